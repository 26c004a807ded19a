//! NCCL_DEBUG lines, as NCCL 2.8 to 2.32 print them (`src/debug.cc` writes the head, everything else the text).
//!
//! ```text
//! vm:916:972 [0] NCCL INFO ncclCommInitRankConfig comm 0x… rank 0 nranks 4 … commId 0x9f… - Init COMPLETE
//! [2026-11-20 08:21:25] vm:916:916 [0] NCCL INFO AllReduce: opCount 2c sendbuff 0x… … comm 0x… [nranks=4] stream 0x…
//!
//! [2026-11-20 08:28:48] node2:3173:3173 [0] bootstrap.cc:114 NCCL WARN Bootstrap : no socket interface found
//! node2:3173:3173 [0] NCCL INFO init.cc:126 -> 5
//! ```
//!
//! Processes are distinguished by host and pid (their threads are one), or by the launcher's prefix where a line names
//! neither. A communicator is a pointer within a process; a pointer that is used again is another communicator. A line
//! that was cut or torn by another rank's print gives nothing, except a WARN, whose beginning is worth having.

mod header;
mod lines;
mod said;

use std::hash::Hasher;

use memchr::memmem;
use ringleader_model::{
    Cite, Fact, GroupRank, Host, NcclBacktrace, NcclCall, NcclComm, NcclLink, NcclLog, NcclMessage,
    NcclProcess, NcclSetting, NcclStranger, NcclTransport, NoteKind, Pid, SourceKind, WallTime, Who,
};

use self::header::{LineHead, NcclLevel};
use self::lines::{Channel, CommEvent, CommLine, MaybeColl};
use crate::ground::intern::{FxHasher, LookupMap};
use crate::ground::{Line, LineReader, Sink, Tag, Wants, bounded_text, stamp};

/// Whether a line begins with NCCL's words alone, without its head.
pub(crate) fn begins(line: &[u8]) -> bool {
    [&b"NCCL version "[..], b"NCCL WARN ", b"NCCL INFO "].iter().any(|start| line.starts_with(start))
}

/// Whether a line is NCCL's: `host:pid:tid [dev] …NCCL INFO …`.
pub(crate) fn is_known(line: &[u8]) -> bool {
    let near = line.get(..200).unwrap_or(line);
    memmem::find(near, b" NCCL INFO ").is_some() || memmem::find(near, b" NCCL WARN ").is_some()
}

/// All heads, and what rank 0 prints without one.
pub(crate) const WANTS: Wants = Wants { words: || vec!["NCCL "], begins: |_| false };

/// No process.
const NOBODY: u32 = u32::MAX;
/// WARNs whose back-trace may still follow.
const MAX_PENDING: usize = 256;

/// NCCL_DEBUG lines.
pub(crate) struct NcclReader {
    log: NcclLog,
    /// What is looked up for each line, by index of its process.
    hot: Vec<Hot>,
    /// Process of the last line.
    last: u32,
    process_ids: LookupMap<u64, u32>,
    comm_ids: LookupMap<(u32, u64), u32>,
    link_ids: LookupMap<u64, u32>,
    /// The last stamp, as printed and as read: lines of one second share it.
    stamp: [u8; 22],
    stamp_at: Option<WallTime>,
    marker: memmem::Finder<'static>,
    /// (process, thread, message) of WARNs without a result so far.
    pending: Vec<(u32, u32, u32)>,
    /// Communicator that a stranger (see [`NcclLog::strangers`]) turned out to be.
    resolved: Vec<Option<u32>>,
    bare_version: Option<(Box<str>, Cite)>,
    first: Option<(Cite, Box<[u8]>)>,
    is_cut: bool,
    is_full: bool,
}

#[derive(Clone)]
struct Hot {
    host: Host,
    pid: Option<u32>,
    ptr: u64,
    comm: u32,
    link: u32,
}

impl Hot {
    #[inline]
    fn is(&self, head: &LineHead<'_>) -> bool {
        self.pid == head.pid && self.host.as_bytes() == head.host
    }
}

fn process_key(head: &LineHead<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(head.host);
    hasher.write_u64(head.pid.map_or(u64::MAX, u64::from));
    hasher.finish()
}

/// One line, once its head is known.
#[derive(Clone, Copy)]
struct NcclLogLine<'a> {
    process: u32,
    tid: u32,
    dev: Option<u32>,
    at: Option<WallTime>,
    cite: Cite,
    text: &'a [u8],
}

impl Default for NcclReader {
    fn default() -> Self {
        Self {
            log: NcclLog::default(),
            hot: Vec::new(),
            last: NOBODY,
            process_ids: LookupMap::default(),
            comm_ids: LookupMap::default(),
            link_ids: LookupMap::default(),
            stamp: [0; 22],
            stamp_at: None,
            marker: memmem::Finder::new(b"NCCL "),
            pending: Vec::new(),
            resolved: Vec::new(),
            bare_version: None,
            first: None,
            is_cut: false,
            is_full: false,
        }
    }
}

impl LineReader for NcclReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let (at, body) = self.stamp(line.body);
        let head = match header::strict(body) {
            Some(head) => head,
            None => match header::loose(body, &self.marker) {
                Some(head) => head,
                None => return self.bare(line, body, sink),
            },
        };
        self.head(line, &head, at.or(line.tag.at), sink);
        !head.torn
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        let Some((cite, text)) = self.first.take() else { return };
        self.settle_version();
        self.settle_ranks();
        self.settle_strangers();
        let mut log = std::mem::take(&mut self.log);
        log.truncated = self.is_cut;
        if log.n_calls_dropped == 0 {
            log.dropped_of_comm.clear();
        } else {
            log.dropped_of_comm.resize(log.comms.len(), 0);
        }
        let who = match log.processes.as_slice() {
            [only] => only.who.clone(),
            _ => Who::default(),
        };
        let at = log.comms.first().and_then(|c| c.at);
        sink.push(cite, who, at, Fact::Nccl(Box::new(log)), &text);
    }
}

impl NcclReader {
    /// Takes NCCL's own stamp off.
    #[inline]
    fn stamp<'a>(&mut self, body: &'a [u8]) -> (Option<WallTime>, &'a [u8]) {
        let [b'[', ..] = body else { return (None, body) };
        if let Some((start, rest)) = body.split_first_chunk::<22>()
            && *start == self.stamp
        {
            return (self.stamp_at, rest);
        }
        let Some((at, rest)) = body.get(1..).and_then(|inside| stamp::date_time(inside, b' ')) else {
            return (None, body);
        };
        let Some(rest) = rest.strip_prefix(b"] ") else { return (None, body) };
        if body.len() == rest.len() + 22 {
            self.stamp = body.first_chunk().copied().unwrap_or_default();
            self.stamp_at = Some(at);
        }
        (Some(at), rest)
    }

    /// `NCCL version 2.18.5+cuda12.2`, which rank 0 prints without a head.
    fn bare(&mut self, line: &Line<'_>, body: &[u8], sink: &mut Sink<'_>) -> bool {
        if !body.starts_with(b"NCCL version ") || self.is_cut {
            return false;
        }
        // RAS reports and nccl-tests say it in other words: `NCCL version 2.28.9 compiled with CUDA 13.0`.
        let is_whole = |version: &&[u8]| {
            memmem::find(version, b"+cuda").is_some() && body.trim_ascii().ends_with(version)
        };
        let Some(version) = said::version(body).filter(is_whole) else { return false };
        let version = bounded_text(version, 64).into();
        let cite = self.count(line, sink);
        let process = self.tagged(line.tag, sink);
        match self.log.processes.get_mut(process as usize) {
            Some(process) => (process.nccl_version, process.version_at) = (Some(version), Some(cite)),
            None => self.bare_version = Some((version, cite)),
        }
        self.touch(process, line.tag, line.tag.at, cite);
        true
    }

    /// Counts a line as NCCL's.
    #[inline]
    fn count(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> Cite {
        let cite = sink.cite(line.number, line.offset, line.end());
        if self.first.is_none() {
            self.first = Some((cite, line.raw.into()));
            sink.saw(SourceKind::NcclLog);
        }
        self.log.n_lines += 1;
        cite
    }

    /// Notes that a process spoke.
    #[inline]
    fn touch(&mut self, process: u32, tag: &Tag, at: Option<WallTime>, cite: Cite) {
        let Some(process) = self.log.processes.get_mut(process as usize) else { return };
        process.first.get_or_insert(cite);
        process.last = Some(cite);
        process.last_at = at.or(process.last_at);
        if let (None, Some(_)) = (process.who.rank, tag.who.rank) {
            process.who.rank = tag.who.rank;
        }
        if let (None, Some(_)) = (process.who.local_rank, tag.who.local_rank) {
            process.who.local_rank = tag.who.local_rank;
        }
    }

    #[inline]
    fn head(&mut self, line: &Line<'_>, head: &LineHead<'_>, at: Option<WallTime>, sink: &mut Sink<'_>) {
        let cite = self.count(line, sink);
        let process = if head.host.is_empty() {
            self.tagged(line.tag, sink)
        } else {
            self.process(head, line.tag, cite, sink)
        };
        self.touch(process, line.tag, at, cite);
        let said = NcclLogLine { process, tid: head.tid, dev: head.dev, at, cite, text: head.text };
        match head.level {
            NcclLevel::Info => self.info(&said, sink),
            NcclLevel::Warn => self.message(&said, head.origin, true, sink),
            NcclLevel::Trace => {}
        }
    }

    /// Index of the process that a head names.
    #[inline]
    fn process(&mut self, head: &LineHead<'_>, tag: &Tag, cite: Cite, sink: &mut Sink<'_>) -> u32 {
        if let Some(hot) = self.hot.get(self.last as usize)
            && hot.is(head)
        {
            return self.last;
        }
        let id = match self.known_process(head) {
            Some(id) => id,
            // Glued to what another rank printed: the owner of the line is unknown.
            None if head.torn
                && !head.host.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) =>
            {
                return NOBODY;
            }
            None => self.introduce(head, tag, cite, sink),
        };
        self.last = id;
        id
    }

    fn known_process(&self, head: &LineHead<'_>) -> Option<u32> {
        match self.process_ids.get(&process_key(head)) {
            Some(&id) if self.hot.get(id as usize).is_some_and(|hot| hot.is(head)) => Some(id),
            // Two names with one hash: rare enough to search.
            Some(_) => self.hot.iter().position(|hot| hot.is(head)).map(|id| id as u32),
            None => self.glued(head),
        }
    }

    fn introduce(&mut self, head: &LineHead<'_>, tag: &Tag, cite: Cite, sink: &mut Sink<'_>) -> u32 {
        let host: Host = String::from_utf8_lossy(head.host).into();
        // Its earlier lines may have had no head, only the launcher's prefix.
        let is_it =
            |p: &NcclProcess| p.who.pid.is_none() && p.who.rank.is_some() && p.who.rank == tag.who.rank;
        let nameless = tag.who.rank.and_then(|_| self.log.processes.iter().position(is_it));
        let id = match nameless {
            Some(id) => id as u32,
            None => self.new_process(Who::default(), cite, sink),
        };
        if let (Some(process), Some(hot)) =
            (self.log.processes.get_mut(id as usize), self.hot.get_mut(id as usize))
        {
            (process.who.host, process.who.pid) = (Some(host.clone()), head.pid.map(Pid));
            (hot.host, hot.pid) = (host, head.pid);
            self.process_ids.entry(process_key(head)).or_insert(id);
        }
        id
    }

    /// A torn line may glue a print to the host (`loss 2.3vm:916:916 [0] …`): a known process whose host ends it.
    fn glued(&self, head: &LineHead<'_>) -> Option<u32> {
        if !head.torn {
            return None;
        }
        let is_it =
            |h: &Hot| h.pid == head.pid && !h.host.is_empty() && head.host.ends_with(h.host.as_bytes());
        self.hot.iter().position(is_it).map(|id| id as u32)
    }

    /// Index of the process that a launcher's prefix names, for lines without a head.
    fn tagged(&mut self, tag: &Tag, sink: &mut Sink<'_>) -> u32 {
        if tag.who.is_nobody() {
            return NOBODY;
        }
        let fits = |p: &NcclProcess| {
            let (a, b) = (&p.who, &tag.who);
            let same = |x: bool, y: bool| x || !y;
            same(a.rank == b.rank, b.rank.is_some())
                && same(a.local_rank == b.local_rank, b.local_rank.is_some())
                && same(a.pid == b.pid, b.pid.is_some())
                && same(a.host == b.host || b.rank.is_some(), b.host.is_some())
        };
        if let Some(id) = self.log.processes.iter().position(fits) {
            return id as u32;
        }
        self.new_process(tag.who.clone(), Cite::whole(sink.source), sink)
    }

    fn new_process(&mut self, who: Who, cite: Cite, sink: &mut Sink<'_>) -> u32 {
        if self.full(self.log.processes.len(), cite, sink) {
            return NOBODY;
        }
        let id = self.log.processes.len() as u32;
        // Lines that a head names find it only once a head has named it.
        self.hot.push(Hot { host: "".into(), pid: None, ptr: 0, comm: NOBODY, link: NOBODY });
        self.log.processes.push(NcclProcess { who, ..NcclProcess::default() });
        id
    }

    /// Whether a list of `len` has reached its bound; the first time it is noted.
    fn full(&mut self, len: usize, cite: Cite, sink: &mut Sink<'_>) -> bool {
        let full = len >= sink.limits.max_observations;
        if full && !self.is_full {
            self.is_full = true;
            let text =
                "more NCCL statements of one kind than are kept; later ones of that kind were left out";
            sink.note(cite, NoteKind::LimitReached, text.into());
        }
        full
    }

    #[inline]
    fn info(&mut self, said: &NcclLogLine<'_>, sink: &mut Sink<'_>) {
        match said.text {
            [b'C', b'h', b'a', b'n', ..] => {
                if let Some(channel) = lines::channel(said.text) {
                    self.link(said, &channel, sink);
                }
            }
            [b'A'..=b'Z', ..] => match lines::coll(said.text) {
                MaybeColl::Coll(coll) => self.call(said, &coll, sink),
                MaybeColl::Tuning => {}
                MaybeColl::Broken => self.rest_of_torn(said, sink),
                MaybeColl::No => self.seldom(said, sink),
            },
            [b'c', b'o', b'm', b'm', b' ', ..]
            | [b'n', b'c', b'c', b'l', b'C', ..]
            | [b'[', b'R', b'a', ..] => match lines::life(said.text, self.is_cut) {
                Some(life) => self.life(said, &life, sink),
                None => self.seldom(said, sink),
            },
            _ => self.seldom(said, sink),
        }
    }

    /// A line that broke off may hold another one's beginning.
    fn rest_of_torn(&mut self, said: &NcclLogLine<'_>, sink: &mut Sink<'_>) {
        let Some(head) = header::loose(said.text, &self.marker) else { return };
        if head.host.is_empty() || head.level == NcclLevel::Trace {
            return;
        }
        // The head is glued to what was torn, so an unknown process cannot be identified from it.
        let Some(process) = self.known_process(&LineHead { torn: true, ..head }) else { return };
        let said = NcclLogLine { process, tid: head.tid, dev: head.dev, text: head.text, ..*said };
        match (head.level, lines::coll(head.text)) {
            (NcclLevel::Warn, _) => self.message(&said, head.origin, true, sink),
            (_, MaybeColl::Coll(coll)) => self.call(&said, &coll, sink),
            _ => {}
        }
    }

    /// Lines that come a few times per process.
    fn seldom(&mut self, said: &NcclLogLine<'_>, sink: &mut Sink<'_>) {
        if said::is_filler(said.text) {
            return;
        }
        if let Some((origin, result)) = lines::backtrace(said.text) {
            self.backtrace(said, origin, result, sink);
            return;
        }
        if said::is_failure(said.text) {
            self.message(said, None, false, sink);
            return;
        }
        // The last words of a line without an end may be cut.
        if self.is_cut {
            return;
        }
        if let Some((name, value)) = said::setting(said.text) {
            self.setting(said, name, value, sink);
        } else if let Some(collnet) = lines::collnet(said.text) {
            self.link(said, &collnet, sink);
        } else if let Some(process) = self.log.processes.get_mut(said.process as usize) {
            said::set_up(process, said.text, said.cite);
        } else if let Some(version) = said::version(said.text) {
            self.bare_version = Some((bounded_text(version, 64).into(), said.cite));
        }
    }

    #[inline]
    fn call(&mut self, said: &NcclLogLine<'_>, coll: &lines::CollLine, sink: &mut Sink<'_>) {
        let comm = match self.hot.get(said.process as usize) {
            Some(hot) if hot.ptr == coll.comm && hot.comm != NOBODY => hot.comm,
            _ => self.comm_of(said, coll, sink),
        };
        if self.log.calls.len() >= sink.limits.max_calls {
            self.drop_old_calls(said.cite, sink);
        }
        let at_s = said
            .at
            .filter(|at| at.has_year)
            .map_or(0, |at| u32::try_from(at.ns / 1_000_000_000).unwrap_or(0));
        self.log.calls.push(NcclCall {
            count: coll.count,
            offset: said.cite.start,
            op_count: coll.op_count,
            at_s,
            comm,
            line: said.cite.line,
            root: coll.root,
            kind: coll.kind,
            datatype: coll.datatype,
            redop: coll.redop,
        });
    }

    /// Looks a communicator up, or takes it for a stranger.
    fn comm_of(&mut self, said: &NcclLogLine<'_>, coll: &lines::CollLine, sink: &mut Sink<'_>) -> u32 {
        let key = (said.process, coll.comm);
        let id = match self.comm_ids.get(&key).copied() {
            Some(id) => id,
            None if self.full(self.log.strangers.len(), said.cite, sink) => NOBODY,
            None => {
                let id = u32::MAX - self.log.strangers.len() as u32;
                self.log.strangers.push(NcclStranger {
                    process: said.process,
                    ptr: coll.comm,
                    n_ranks: coll.n_ranks,
                });
                self.resolved.push(None);
                self.comm_ids.insert(key, id);
                id
            }
        };
        if let Some(hot) = self.hot.get_mut(said.process as usize) {
            (hot.ptr, hot.comm) = (coll.comm, id);
        }
        id
    }

    /// Halves the calls: in a hang the last ones tell.
    fn drop_old_calls(&mut self, cite: Cite, sink: &mut Sink<'_>) {
        if self.log.n_calls_dropped == 0 {
            let text =
                format!("more than {} NCCL calls: the oldest were counted, not kept", sink.limits.max_calls);
            sink.note(cite, NoteKind::LimitReached, text);
        }
        let n = (self.log.calls.len() / 2).max(1).min(self.log.calls.len());
        for call in self.log.calls.drain(..n) {
            let at = call.comm as usize;
            if at < self.log.comms.len() {
                if self.log.dropped_of_comm.len() <= at {
                    self.log.dropped_of_comm.resize(at + 1, 0);
                }
                if let Some(dropped) = self.log.dropped_of_comm.get_mut(at) {
                    *dropped += 1;
                }
            }
        }
        self.log.n_calls_dropped += n as u64;
    }

    fn life(&mut self, said: &NcclLogLine<'_>, life: &CommLine<'_>, sink: &mut Sink<'_>) {
        if life.event == CommEvent::Revoked {
            self.message(said, None, false, sink);
            return;
        }
        let key = (said.process, life.ptr);
        let known = self.comm_ids.get(&key).copied();
        let entry = known.and_then(|id| self.log.comms.get(id as usize).map(|comm| (id, comm)));
        let id = match (life.event, entry) {
            // The address came back: another communicator.
            (CommEvent::InitStart, _) => None,
            (CommEvent::InitComplete, Some((id, comm))) => {
                let over = comm.completed.is_some() || comm.destroyed.is_some();
                (!over && comm.rank.0 == life.rank).then_some(id)
            }
            (_, entry) => entry.map(|(id, _)| id),
        };
        let Some(id) = id.or_else(|| self.new_comm(said, life, known, sink)) else { return };
        let Some(comm) = self.log.comms.get_mut(id as usize) else { return };
        comm.at = comm.at.or(said.at);
        comm.cuda_dev = comm.cuda_dev.or(life.cuda_dev);
        comm.nvml_dev = comm.nvml_dev.or(life.nvml_dev);
        comm.gpu = comm.gpu.or(life.gpu);
        comm.comm_id = comm.comm_id.or(life.comm_id);
        comm.parent = comm.parent.or(life.parent);
        comm.color = comm.color.or(life.color);
        if comm.api.is_none() {
            comm.api = life.api.map(|api| String::from_utf8_lossy(api).into());
        }
        let slot = match life.event {
            CommEvent::InitStart => &mut comm.started,
            CommEvent::InitComplete => &mut comm.completed,
            CommEvent::Destroyed => &mut comm.destroyed,
            CommEvent::Aborted => &mut comm.aborted,
            CommEvent::Placed | CommEvent::Revoked => return,
        };
        slot.get_or_insert(said.cite);
    }

    fn new_comm(
        &mut self,
        said: &NcclLogLine<'_>,
        life: &CommLine<'_>,
        known: Option<u32>,
        sink: &mut Sink<'_>,
    ) -> Option<u32> {
        if self.full(self.log.comms.len(), said.cite, sink) {
            return None;
        }
        let id = self.log.comms.len() as u32;
        self.log.comms.push(NcclComm {
            process: said.process,
            ptr: life.ptr,
            rank: GroupRank(life.rank),
            n_ranks: life.n_ranks,
            cuda_dev: None,
            nvml_dev: None,
            gpu: None,
            comm_id: None,
            parent: None,
            color: None,
            api: None,
            started: None,
            completed: None,
            destroyed: None,
            aborted: None,
            at: None,
        });
        if let (CommEvent::Destroyed | CommEvent::Aborted, Some(stranger)) = (life.event, known)
            && let Some(resolved) = self.resolved.get_mut((u32::MAX - stranger) as usize)
        {
            // Its end tells at last who it was.
            resolved.get_or_insert(id);
        }
        self.comm_ids.insert((said.process, life.ptr), id);
        if let Some(hot) = self.hot.get_mut(said.process as usize) {
            (hot.ptr, hot.comm) = (life.ptr, id);
        }
        Some(id)
    }

    #[inline]
    fn link(&mut self, said: &NcclLogLine<'_>, channel: &Channel<'_>, sink: &mut Sink<'_>) {
        if self.is_cut {
            return;
        }
        let is_it = |link: &NcclLink| {
            link.process == said.process
                && link.from.0 == channel.from
                && link.to.0 == channel.to
                && link.is_send == channel.is_send
                && link.transport.as_bytes() == channel.transport
        };
        let last = self.hot.get(said.process as usize).map_or(NOBODY, |hot| hot.link);
        if let Some(link) = self.log.links.get_mut(last as usize)
            && is_it(link)
        {
            link.n_channels += 1;
            return;
        }
        let mut hasher = FxHasher::default();
        hasher.write(channel.transport);
        hasher.write_u64(u64::from(channel.from) << 32 | u64::from(channel.to));
        hasher.write_u64(u64::from(said.process) << 8 | channel.is_send.map_or(2, u64::from));
        let key = hasher.finish();
        let known = match self.link_ids.get(&key) {
            Some(&id) if self.log.links.get(id as usize).is_some_and(is_it) => Some(id),
            Some(_) => self.log.links.iter().position(is_it).map(|id| id as u32),
            None => None,
        };
        let id = match known {
            Some(id) => {
                if let Some(link) = self.log.links.get_mut(id as usize) {
                    link.n_channels += 1;
                }
                id
            }
            None if self.full(self.log.links.len(), said.cite, sink) => return,
            None => {
                let id = self.log.links.len() as u32;
                self.link_ids.entry(key).or_insert(id);
                // What is no UTF-8 is replaced and so never found again: noise of a broken file.
                let transport = String::from_utf8_lossy(channel.transport);
                self.log.links.push(NcclLink {
                    cite: said.cite,
                    process: said.process,
                    from: GroupRank(channel.from),
                    to: GroupRank(channel.to),
                    over: NcclTransport::parse(&transport),
                    transport: transport.into(),
                    is_send: channel.is_send,
                    n_channels: 1,
                });
                id
            }
        };
        if let Some(hot) = self.hot.get_mut(said.process as usize) {
            hot.link = id;
        }
    }

    fn message(&mut self, said: &NcclLogLine<'_>, origin: Option<&[u8]>, is_warn: bool, sink: &mut Sink<'_>) {
        if self.full(self.log.messages.len(), said.cite, sink) {
            return;
        }
        let id = self.log.messages.len() as u32;
        self.log.messages.push(NcclMessage {
            cite: said.cite,
            process: said.process,
            at: said.at,
            cuda_dev: said.dev,
            is_warn,
            origin: origin.map(|o| bounded_text(o, 256).into()),
            text: bounded_text(said.text.trim_ascii_end(), sink.limits.max_text_chars).into(),
            result: None,
        });
        self.pending.retain(|p| (p.0, p.1) != (said.process, said.tid));
        if self.pending.len() >= MAX_PENDING {
            self.pending.remove(0);
        }
        self.pending.push((said.process, said.tid, id));
    }

    fn backtrace(&mut self, said: &NcclLogLine<'_>, origin: &[u8], result: u8, sink: &mut Sink<'_>) {
        if let Some(at) = self.pending.iter().position(|p| (p.0, p.1) == (said.process, said.tid)) {
            let (_, _, id) = self.pending.swap_remove(at);
            if let Some(message) = self.log.messages.get_mut(id as usize) {
                message.result = Some(result);
            }
        }
        if !self.full(self.log.backtraces.len(), said.cite, sink) {
            let origin = bounded_text(origin, 256).into();
            self.log.backtraces.push(NcclBacktrace {
                cite: said.cite,
                process: said.process,
                origin,
                result,
            });
        }
    }

    fn setting(&mut self, said: &NcclLogLine<'_>, name: &[u8], value: &[u8], sink: &mut Sink<'_>) {
        if self.full(self.log.settings.len(), said.cite, sink) {
            return;
        }
        let name: Box<str> = bounded_text(name, 128).into();
        let value: Box<str> = bounded_text(value, sink.limits.max_text_chars).into();
        // Older releases say some of them once per communicator.
        let recent = self.log.settings.iter().rev().take(256);
        if recent.into_iter().any(|s| s.process == said.process && s.name == name && s.value == value) {
            return;
        }
        self.log.settings.push(NcclSetting { cite: said.cite, process: said.process, name, value });
    }

    /// A version printed without a head is that of the only process, or of one that is not named.
    fn settle_version(&mut self) {
        let Some((version, cite)) = self.bare_version.take() else { return };
        let (nccl_version, version_at) = (Some(version), Some(cite));
        if let [only] = self.log.processes.as_mut_slice() {
            if only.nccl_version.is_none() {
                (only.nccl_version, only.version_at) = (nccl_version, version_at);
            }
        } else {
            self.log.processes.push(NcclProcess { nccl_version, version_at, ..NcclProcess::default() });
        }
    }

    /// A launcher's number that two processes bear at the same time is no rank (a task per node, say).
    fn settle_ranks(&mut self) {
        let span = |p: &NcclProcess| Some((p.who.rank?, p.first?.start, p.last?.end, p.who.pid));
        let mut spans: Vec<_> = self.log.processes.iter().filter_map(span).collect();
        spans.sort_unstable();
        let mut shared = Vec::new();
        let mut furthest: Option<(_, u64)> = None;
        for (rank, start, end, _) in spans {
            match furthest {
                Some((r, until)) if r == rank => {
                    if start < until {
                        shared.push(rank);
                    }
                    furthest = Some((rank, until.max(end)));
                }
                _ => furthest = Some((rank, end)),
            }
        }
        for process in &mut self.log.processes {
            if process.who.rank.is_some_and(|rank| shared.binary_search(&rank).is_ok()) {
                process.who.rank = None;
            }
        }
    }

    /// Gives calls of strangers that were introduced by their end to them, and closes the ranks of the others.
    fn settle_strangers(&mut self) {
        if self.resolved.iter().all(Option::is_none) {
            return;
        }
        let mut kept = Vec::new();
        let mut moved = Vec::new();
        for (stranger, resolved) in self.log.strangers.iter().zip(&self.resolved) {
            moved.push(resolved.unwrap_or_else(|| u32::MAX - kept.len() as u32));
            if resolved.is_none() {
                kept.push(*stranger);
            }
        }
        for call in &mut self.log.calls {
            if let Some(to) = moved.get((u32::MAX - call.comm) as usize) {
                call.comm = *to;
            }
        }
        self.log.strangers = kept;
    }
}

#[cfg(test)]
mod tests;
