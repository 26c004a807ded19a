//! Parses the bytes of a ring: a frozen image, or the file of a dead process. Nothing in the bytes is trusted; what
//! does not fit is left out, or refused with the reason.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::layout::{
    CALLS, COMM_WORDS_1_0, COMMS, END_SEEN, HEADER, JOURNAL, MAGIC, MAJOR, MINOR, P2P_BIT, PASSED_OVER,
    REGIONS, Region, call, comm, done, head, op, wait,
};
use crate::names::{NameKind, OWN};
use crate::progress::{ChannelProgress, HANDED_OVER, LAUNCHED, PROXIED};
use crate::state::{
    CallArgs, Comm, Done, Exit, Foreign, Lost, Op, Phase, ReadMoment, RingProcess, State, Wait,
};
use crate::{journal, slot};

/// Largest accepted region, entries: many times what any version writes.
const MOST_ENTRIES: u64 = 1 << 20;
/// Largest accepted file, bytes.
pub(crate) const MOST_BYTES: u64 = 256 << 20;

/// Number of ended operations of a communicator used to compare the GPU's clock with the host's.
const CLOCK_SAMPLES: usize = 64;

/// Why bytes are not a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Shorter than the header: length in bytes.
    Short(u64),
    /// No magic word: something else, or a ring that was never finished.
    NotARing,
    /// Another major version: major, minor.
    Version(u32, u32),
    /// A region is outside the file or has an impossible size: its index.
    Region(usize),
    /// Longer than any ring: length in bytes.
    Long(u64),
}

impl fmt::Display for ParseError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(bytes) => write!(to, "read a ring: only {bytes} bytes"),
            Self::NotARing => to.write_str("read a ring: it does not begin as one"),
            Self::Version(major, minor) => {
                write!(to, "read a ring of format {major}.{minor}: this version reads {MAJOR}.{MINOR}")
            }
            Self::Region(number) => write!(to, "read a ring: table {number} does not fit the file"),
            Self::Long(bytes) => write!(to, "read a ring: {bytes} bytes are more than any ring has"),
        }
    }
}

impl std::error::Error for ParseError {}

/// The bytes as words.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl<'a> Words<'a> {
    pub(crate) fn get(self, at: usize) -> u64 {
        let bytes = at.checked_mul(8).and_then(|at| self.0.get(at..)?.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
    fn text(self, at: usize, words: usize) -> String {
        let bytes = self.0.get(at * 8..(at + words) * 8).unwrap_or(&[]);
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        String::from_utf8_lossy(text).into_owned()
    }
    /// One entry of a region.
    fn entry(self, region: &Region, index: usize) -> Self {
        let at = region.at.saturating_add(index.saturating_mul(region.words)) * 8;
        Self(self.0.get(at..at + region.words * 8).unwrap_or(&[]))
    }
    fn entries(self, region: &'a Region) -> impl Iterator<Item = (usize, Self)> {
        (0..region.entries).map(move |index| (index, self.entry(region, index)))
    }
}

/// The regions, as the header describes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regions {
    pub(crate) names: Region,
    pub(crate) comms: Region,
    pub(crate) ops: Region,
    pub(crate) waits: Region,
    pub(crate) journal: Region,
    /// Without entries in format 1.0.
    pub(crate) calls: Region,
}

impl Regions {
    /// Reads the header and checks every region against the length.
    pub(crate) fn of(words: Words<'_>) -> Result<Self, ParseError> {
        let bytes = words.0.len() as u64;
        if words.0.len() < HEADER.words * 8 {
            return Err(ParseError::Short(bytes));
        }
        if bytes > MOST_BYTES {
            return Err(ParseError::Long(bytes));
        }
        if words.get(head::MAGIC) != MAGIC {
            return Err(ParseError::NotARing);
        }
        let version = words.get(head::VERSION);
        if version >> 32 != MAJOR {
            return Err(ParseError::Version((version >> 32) as u32, version as u32));
        }
        let region = |number: usize, word: usize, least: usize| {
            let (at, size, entries) = (words.get(word), words.get(word + 1), words.get(word + 2));
            let fits = (1..=MOST_ENTRIES).contains(&entries)
                // Newer versions may add words at the end of entries, but never remove any.
                && (least as u64..=4096).contains(&size)
                && at >= HEADER.words as u64
                && at.checked_add(size * entries).is_some_and(|end| end <= bytes / 8);
            let region = Region { at: at as usize, words: size as usize, entries: entries as usize };
            if fits { Ok(region) } else { Err(ParseError::Region(number)) }
        };
        let mut regions = REGIONS;
        for (number, (to, known)) in regions.iter_mut().zip(REGIONS).enumerate() {
            let least = if known == COMMS { COMM_WORDS_1_0 } else { known.words };
            *to = region(number, head::REGIONS + number * 3, least)?;
        }
        let [names, comms, ops, waits, journal] = regions;
        let calls = if words.get(head::CALLS) == 0 {
            Region { entries: 0, ..CALLS }
        } else {
            region(REGIONS.len(), head::CALLS, CALLS.words)?
        };
        Ok(Self { names, comms, ops, waits, journal, calls })
    }
}

fn one_less(word: u64) -> Option<u32> {
    (word as u32).checked_sub(1)
}

struct Parser<'a> {
    words: Words<'a>,
    regions: Regions,
    base_ns: u64,
    torn: u64,
}

impl State {
    /// Parses the bytes of a ring: an image, or the file of a dead process.
    ///
    /// # Errors
    /// The bytes are not a ring, are truncated, or are a ring of another major version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let words = Words(bytes);
        let regions = Regions::of(words)?;
        let parser =
            Parser { words, regions, base_ns: words.get(head::MADE_MONO), torn: words.get(head::TORN) };
        Ok(parser.state())
    }

    /// The byte range of each operation in a ring, by the place of the communicator, whether it is a send or receive,
    /// and the number, as in `Op` and `Done`. Empty if the bytes are not a ring.
    pub fn places(bytes: &[u8]) -> BTreeMap<(u32, bool, u64), Range<u64>> {
        let words = Words(bytes);
        let Ok(regions) = Regions::of(words) else { return BTreeMap::new() };
        let mut parser = Parser { words, regions, base_ns: 0, torn: 0 };
        let comms = parser.comms();
        let mut places = BTreeMap::new();
        let parts = [(regions.journal, done::COMM, done::NUMBER), (regions.ops, op::COMM, op::NUMBER)];
        for (part, (region, comm, number)) in parts.into_iter().enumerate() {
            for (index, entry) in words.entries(&region) {
                let tag = entry.get(0);
                let is_whole = if part == 0 { journal::place(tag).is_some() } else { slot::is_live(tag) };
                let Some(found) = TrackedComm::by(&comms, entry.get(comm)).filter(|_| is_whole) else {
                    continue;
                };
                let number = entry.get(number);
                let start = (region.at + index * region.words) as u64 * 8;
                let place = start..start + region.words as u64 * 8;
                places.insert((found.comm.slot, number & P2P_BIT != 0, number & !P2P_BIT), place);
            }
        }
        places
    }
}

impl Parser<'_> {
    fn state(mut self) -> State {
        let words = self.words;
        let rank = |at| one_less(words.get(at));
        let process = RingProcess {
            pid: words.get(head::PID) as u32,
            start_ticks: words.get(head::START_TICKS),
            boot_id: words.text(head::BOOT_ID, head::BOOT_ID_WORDS),
            host: words.text(head::HOST, head::HOST_WORDS),
            rank: rank(head::RANK),
            local_rank: rank(head::LOCAL_RANK),
            world_size: rank(head::WORLD_SIZE),
            interface: words.get(head::INTERFACE) as u8,
            is_ended: words.get(head::COMMS_MADE) > 0 && words.get(head::COMMS_LIVE) == 0,
            kernels_ended_ns: Some(words.get(head::KERNELS_ENDED)).filter(|at| *at != 0),
            exit: one_less(words.get(head::EXIT_CODE)).and_then(|code| {
                Some(Exit { code: u8::try_from(code).ok()?, at_ns: words.get(head::EXITED) })
            }),
        };
        let mut comms = self.comms();
        let (mut waits, foreign) = self.waits();
        let mut recent = self.journal(&comms);
        self.ops(&mut comms, &mut waits, &mut recent);
        self.calls(&mut comms, &mut recent);
        recent.sort_by_key(|done| done.ended_ns);
        clocks(&mut comms, &recent);

        let mut comms: Vec<(u64, Comm)> =
            comms.into_values().map(|found| (found.order, found.comm)).collect();
        comms.sort_by_key(|(order, _)| *order);
        let mut comms: Vec<Comm> = comms.into_iter().map(|(_, comm)| comm).collect();
        for comm in &mut comms {
            comm.in_flight.sort_by_key(|op| (op.enqueued_ns, op.is_p2p, op.number));
        }
        let lost = Lost {
            comms: words.get(head::LOST_COMMS),
            ops: words.get(head::LOST_OPS),
            waits: words.get(head::LOST_WAITS),
            records: words.get(head::LOST_RECORDS),
            overwritten: [(head::JOURNAL_HEAD, self.regions.journal), (head::CALLS_HEAD, self.regions.calls)]
                .iter()
                .map(|(word, region)| words.get(*word).saturating_sub(region.entries as u64))
                .fold(0, u64::saturating_add),
            faults: words.get(head::FAULTS),
            torn: self.torn,
        };
        let taken = self.taken(&comms, &recent);
        State { process, taken, comms, recent, foreign, lost }
    }

    fn taken(&self, comms: &[Comm], recent: &[Done]) -> ReadMoment {
        let words = self.words;
        if words.get(head::TAKEN_MONO) != 0 {
            return ReadMoment {
                mono_ns: words.get(head::TAKEN_MONO),
                unix_ns: words.get(head::TAKEN_UNIX),
                is_held: one_less(words.get(head::HELD)).map(|held| held != 0),
            };
        }
        let made = words.get(head::MADE_MONO);
        let in_comms =
            comms.iter().flat_map(|comm| [comm.progress_ns, comm.created_ns, comm.ended_ns.unwrap_or(0)]);
        let in_recent = recent.iter().map(|done| done.ended_ns);
        let mono_ns = in_comms.chain(in_recent).max().unwrap_or(0).max(made);
        ReadMoment {
            mono_ns,
            unix_ns: words.get(head::MADE_UNIX).saturating_add(mono_ns - made),
            is_held: None,
        }
    }

    /// Whether an entry is live; an entry that was being written is counted as torn.
    fn is_live(&mut self, tag: u64) -> bool {
        let is_torn = !slot::is_live(tag) && !slot::is_free(tag);
        self.torn = self.torn.saturating_add(u64::from(is_torn));
        slot::is_live(tag)
    }

    fn comms(&mut self) -> BTreeMap<usize, TrackedComm> {
        let mut comms = BTreeMap::new();
        let region = self.regions.comms;
        for (index, entry) in self.words.entries(&region) {
            let tag = entry.get(0);
            if !self.is_live(tag) {
                continue;
            }
            let size = entry.get(comm::SIZE);
            let comm = Comm {
                slot: index as u32,
                id: entry.get(comm::ID),
                name: entry.text(comm::NAME, comm::NAME_WORDS),
                size: size as u32,
                rank: one_less(entry.get(comm::RANK)),
                nodes: (size >> 32) as u32,
                created_ns: entry.get(comm::CREATED),
                ended_ns: Some(entry.get(comm::ENDED)).filter(|at| *at != 0),
                collectives: entry.get(comm::COLLECTIVES),
                // Includes calls that are not followed; those in flight are subtracted when they are read.
                collectives_done: entry.get(comm::COLLECTIVES_DONE).saturating_add(entry.get(comm::PASSED)),
                p2p: entry.get(comm::P2P),
                p2p_done: entry.get(comm::P2P_DONE).saturating_add(entry.get(comm::PASSED_P2P)),
                bytes_done: entry.get(comm::BYTES_DONE).saturating_add(entry.get(comm::PASSED_BYTES)),
                progress_ns: entry.get(comm::PROGRESS),
                gpu_offset_ns: None,
                lacks_kernels: entry.get(comm::SIGHT) & 1 == 0,
                in_flight: Vec::new(),
            };
            comms.insert(
                index,
                TrackedComm {
                    tag,
                    order: entry.get(comm::ORDER),
                    sight: entry.get(comm::SIGHT),
                    plan_started: entry.get(comm::PLAN_STARTED),
                    started_call: entry.get(comm::STARTED_CALL),
                    passed: 0,
                    n_unseen: 0,
                    comm,
                },
            );
        }
        comms
    }

    /// Proxy operations by the reference to their operation, and those of other processes.
    fn waits(&mut self) -> (BTreeMap<u64, Vec<Wait>>, Vec<Foreign>) {
        let mut waits: BTreeMap<u64, Vec<Wait>> = BTreeMap::new();
        let mut foreign = Vec::new();
        let region = self.regions.waits;
        for (_, entry) in self.words.entries(&region) {
            if !self.is_live(entry.get(0)) {
                continue;
            }
            let wait = self.wait(entry);
            match entry.get(wait::OP) {
                0 => foreign.push(Foreign { pid: entry.get(wait::PID) as u32, wait }),
                reference => waits.entry(reference).or_default().push(wait),
            }
        }
        (waits, foreign)
    }

    fn wait(&self, entry: Words<'_>) -> Wait {
        let what = entry.get(wait::WHAT);
        let steps_done = entry.get(wait::DONE);
        let phase_of = |step: u64| {
            let word = entry.get(wait::PHASES + (step % wait::PHASES_WORDS as u64) as usize);
            let since = self.base_ns.saturating_add(word & ((1 << 56) - 1));
            (word != 0 && word >> 56 & 31 == step & 31).then_some((phase(word >> 61), since))
        };
        // Steps end in order, so the first one that is not done holds up the rest.
        let now = phase_of(steps_done).filter(|(phase, _)| *phase != Phase::Unknown);
        let last = steps_done.checked_sub(1).and_then(phase_of).map(|(_, since)| since);
        let (phase, since_ns) = now.unwrap_or((Phase::Unknown, last.unwrap_or(entry.get(wait::STARTED))));
        Wait {
            peer: what as u32,
            channel: (what >> 32) as u8,
            is_send: what >> 40 & 1 == 1,
            phase,
            since_ns,
            steps_done: steps_done as u32,
            steps: entry.get(wait::STEPS) as u32,
            net_open: (entry.get(wait::STEPS) >> 32) as u32,
        }
    }

    fn journal(&mut self, comms: &BTreeMap<usize, TrackedComm>) -> Vec<Done> {
        let mut recent = Vec::new();
        let region = self.regions.journal;
        for (_, entry) in self.words.entries(&region) {
            let sequence = entry.get(0);
            if journal::place(sequence).is_none() {
                self.torn = self.torn.saturating_add(u64::from(sequence != 0));
                continue;
            }
            // The communicator's entry may belong to another one by now.
            let Some(found) = TrackedComm::by(comms, entry.get(done::COMM)) else { continue };
            let number = entry.get(done::NUMBER);
            recent.push(Done {
                comm: found.comm.slot,
                number: number & !P2P_BIT,
                call: self.call(
                    entry.get(done::CODES),
                    entry.get(done::SEQUENCE),
                    entry.get(done::COUNT),
                    entry.get(done::RANKS),
                ),
                enqueued_ns: entry.get(done::ENQUEUED),
                started_ns: entry.get(done::STARTED),
                ended_ns: entry.get(done::ENDED),
                gpu_ns: entry.get(done::GPU_NS).checked_sub(1),
                gpu_started_ns: Some(entry.get(done::GPU_STARTED)).filter(|at| *at != 0),
                longest_wait: longest(entry.get(done::LONGEST)),
                is_p2p: number & P2P_BIT != 0,
                is_end_seen: entry.get(done::FLAGS) & END_SEEN != 0,
            });
        }
        recent
    }

    fn ops(
        &mut self,
        comms: &mut BTreeMap<usize, TrackedComm>,
        waits: &mut BTreeMap<u64, Vec<Wait>>,
        recent: &mut Vec<Done>,
    ) {
        let region = self.regions.ops;
        for (index, entry) in self.words.entries(&region) {
            let tag = entry.get(0);
            if !self.is_live(tag) {
                continue;
            }
            let Some(found) = TrackedComm::by_mut(comms, entry.get(op::COMM)) else { continue };
            let progress = ChannelProgress(entry.get(op::CONTROL));
            let number = entry.get(op::NUMBER);
            let call = self.call(
                entry.get(op::CODES),
                entry.get(op::SEQUENCE),
                entry.get(op::COUNT),
                entry.get(op::RANKS),
            );
            let waits = waits.remove(&slot::reference(index, slot::generation(tag))).unwrap_or_default();
            let some = |word: usize| Some(entry.get(word)).filter(|at| *at != 0);
            let is_p2p = number & P2P_BIT != 0;
            let number = number & !P2P_BIT;
            if is_over(progress, entry.get(op::PLAN), entry.get(op::HANDED_OVER), found) {
                let done = if is_p2p { &mut found.comm.p2p_done } else { &mut found.comm.collectives_done };
                *done = done.saturating_add(1);
                let bytes = call.element_bytes().unwrap_or(0).saturating_mul(call.count);
                found.comm.bytes_done = found.comm.bytes_done.saturating_add(bytes);
                recent.push(Self::over(found.comm.slot, number, is_p2p, call, progress, entry));
                continue;
            }
            // A launched operation without channels shares the kernel of another one, as symmetric operations do. An
            // operation that was handed over without a launch is one that NCCL does not report.
            let is_given = progress.has(LAUNCHED) || progress.has(HANDED_OVER);
            let has_kernels = !is_given || found.sight & 2 == 0 || call.channels > 0;
            let is_asked = entry.get(op::CODES) & PASSED_OVER == 0;
            // Launches from before reports were given up are still reported.
            let are_told = found.sight & 1 == 1 || progress.expected() > 0;
            let sees_kernels =
                is_asked && are_told && has_kernels && !matches!(call.algorithm.as_str(), "Unknown" | "CE");
            found.comm.in_flight.push(Op {
                number,
                call,
                enqueued_ns: entry.get(op::ENQUEUED),
                handed_over_ns: some(op::HANDED_OVER),
                started_ns: some(op::STARTED),
                channels_started: progress.started() as u16,
                channels_stopped: progress.stopped() as u16,
                waits,
                is_end_visible: sees_kernels || progress.has(PROXIED) || progress.started() > 0,
                is_p2p,
                is_launched: progress.has(LAUNCHED),
                open_channels: entry.get(op::OPEN),
            });
        }
    }

    /// The record of an operation that is over although no event reported its end.
    fn over(
        comm: u32,
        number: u64,
        is_p2p: bool,
        call: CallArgs,
        progress: ChannelProgress,
        entry: Words<'_>,
    ) -> Done {
        let (enqueued_ns, started) = (entry.get(op::ENQUEUED), entry.get(op::STARTED));
        let (gpu_started, gpu_ended) = (entry.get(op::GPU_STARTED), entry.get(op::GPU_ENDED));
        let gpu_started_ns = (gpu_started != u64::MAX).then_some(gpu_started);
        Done {
            comm,
            number,
            call,
            enqueued_ns,
            started_ns: if started == 0 { enqueued_ns } else { started },
            ended_ns: entry.get(op::STOPPED).max(entry.get(op::HANDED_OVER)).max(enqueued_ns),
            gpu_ns: gpu_started_ns.and_then(|started| gpu_ended.checked_sub(started)),
            gpu_started_ns,
            longest_wait: longest(entry.get(op::LONGEST)),
            is_p2p,
            is_end_seen: progress.started() > 0 || progress.has(PROXIED),
        }
    }

    /// Reads the calls that are not followed. Nothing reports their end, so the newest few of each communicator that
    /// were handed over count as in flight, unless a kernel of a later call has started.
    fn calls(&mut self, comms: &mut BTreeMap<usize, TrackedComm>, recent: &mut Vec<Done>) {
        let region = self.regions.calls;
        let mut places: Vec<(u64, Words<'_>)> = Vec::new();
        for (_, entry) in self.words.entries(&region) {
            match journal::place(entry.get(0)) {
                Some(place) => places.push((place, entry)),
                None => self.torn = self.torn.saturating_add(u64::from(entry.get(0) != 0)),
            }
        }
        places.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        for (place, entry) in &places {
            if let Some(found) = TrackedComm::by_mut(comms, entry.get(call::COMM)) {
                found.passed = found.passed.max(place + 1);
            }
        }
        // If other communicators have overwritten the entry of the newest call, its copy in the communicator is used.
        let region = self.regions.comms;
        for (index, found) in &mut *comms {
            let entry = self.words.entry(&region, *index);
            let last = entry.get(comm::LAST_PLACE);
            let is_whole = entry.get(comm::LAST_BEGUN) == last;
            if found.passed < last && is_whole && self.regions.calls.entries > 0 {
                self.passed(found, entry, comm::LAST, entry.get(comm::LAST_HANDED) == last, recent);
            }
        }
        for (place, entry) in places {
            let is_handed_over = entry.get(call::STATE) == journal::marked(place);
            if let Some(found) = TrackedComm::by_mut(comms, entry.get(call::COMM)) {
                self.passed(found, entry, call::NUMBER, is_handed_over, recent);
            }
        }
        // The counts of a busy communicator may have been read at different moments.
        for found in comms.values_mut() {
            let comm = &mut found.comm;
            comm.collectives_done = comm.collectives_done.min(comm.collectives);
            comm.p2p_done = comm.p2p_done.min(comm.p2p);
        }
    }

    /// Reads one such call; its number and the words after it are at `at`.
    fn passed(
        &self,
        found: &mut TrackedComm,
        entry: Words<'_>,
        at: usize,
        is_handed_over: bool,
        recent: &mut Vec<Done>,
    ) {
        let word = |word: usize| entry.get(at + word - call::NUMBER);
        let (number, enqueued_ns) = (word(call::NUMBER), word(call::ENQUEUED));
        let is_p2p = number & P2P_BIT != 0;
        let number = number & !P2P_BIT;
        let call = self.call(word(call::CODES), 0, word(call::COUNT), word(call::ROOT) & 0xffff_ffff);
        let comm = &mut found.comm;
        if is_handed_over {
            let is_over = found.n_unseen >= comm::UNSEEN_WORDS
                || enqueued_ns < found.started_call
                || comm.ended_ns.is_some();
            if is_over {
                recent.push(Done {
                    comm: comm.slot,
                    number,
                    call,
                    enqueued_ns,
                    started_ns: enqueued_ns,
                    ended_ns: enqueued_ns,
                    is_p2p,
                    ..Done::default()
                });
                return;
            }
            found.n_unseen += 1;
        }
        let done = if is_p2p { &mut comm.p2p_done } else { &mut comm.collectives_done };
        *done = done.saturating_sub(1);
        let bytes = call.element_bytes().unwrap_or(0).saturating_mul(call.count);
        comm.bytes_done = comm.bytes_done.saturating_sub(bytes);
        comm.in_flight.push(Op {
            number,
            call,
            enqueued_ns,
            handed_over_ns: is_handed_over.then_some(enqueued_ns),
            is_p2p,
            ..Op::default()
        });
    }

    fn call(&self, codes: u64, sequence: u64, count: u64, ranks: u64) -> CallArgs {
        CallArgs {
            function: self.name(NameKind::Function, codes as u8),
            sequence: sequence.checked_sub(1),
            count,
            datatype: self.name(NameKind::Datatype, (codes >> 8) as u8),
            root: one_less(ranks),
            peer: one_less(ranks >> 32),
            algorithm: self.name(NameKind::Algorithm, (codes >> 16) as u8),
            protocol: self.name(NameKind::Protocol, (codes >> 24) as u8),
            channels: (codes >> 32) as u16,
            is_captured: codes >> 48 & 1 == 1,
        }
    }

    fn name(&self, kind: NameKind, code: u8) -> String {
        if code >= OWN {
            let index = usize::from(code - OWN);
            if index >= self.regions.names.entries {
                return String::new();
            }
            let entry = self.words.entry(&self.regions.names, index);
            return if slot::is_live(entry.get(0)) { entry.text(1, 4) } else { String::new() };
        }
        let at = usize::from(code).checked_sub(1);
        at.and_then(|at| kind.list().get(at)).map_or_else(String::new, |name| (*name).to_owned())
    }
}

/// A communicator and what the reader keeps about it.
struct TrackedComm {
    tag: u64,
    order: u64,
    sight: u64,
    plan_started: u64,
    started_call: u64,
    /// One more than the newest place of a call that is not followed, and how many of those count as in flight.
    passed: u64,
    n_unseen: usize,
    comm: Comm,
}

impl TrackedComm {
    fn by(comms: &BTreeMap<usize, Self>, reference: u64) -> Option<&Self> {
        let (index, generation) = slot::referred(reference)?;
        comms.get(&index).filter(|found| slot::same_generation(found.tag, generation))
    }
    fn by_mut(comms: &mut BTreeMap<usize, Self>, reference: u64) -> Option<&mut Self> {
        let (index, generation) = slot::referred(reference)?;
        comms.get_mut(&index).filter(|found| slot::same_generation(found.tag, generation))
    }
}

/// Whether an operation is over although no event ended it.
///
/// Launches of one communicator run one after the other on the GPU: once a kernel of a later one has started, an
/// earlier one has ended, reported or not. Later means a higher launch number, or a call after this one was handed
/// over. If the number of channels is unknown, an operation that has begun and has nothing running is over.
fn is_over(progress: ChannelProgress, plan: u64, handed_over: u64, found: &TrackedComm) -> bool {
    let is_behind = (plan != 0 && plan < found.plan_started) || handed_over < found.started_call;
    let has_run = progress.expected() == 0 && (progress.started() > 0 || progress.has(PROXIED));
    progress.is_quiet() && (is_behind || has_run)
}

/// Compares the clocks over the newest ended operations of each communicator. It uses few, because the clocks drift.
fn clocks(comms: &mut BTreeMap<usize, TrackedComm>, recent: &[Done]) {
    let mut looked_at: BTreeMap<u32, usize> = BTreeMap::new();
    for done in recent.iter().rev() {
        let Some(gpu) = done.gpu_started_ns.filter(|_| done.is_end_seen) else { continue };
        let number = looked_at.entry(done.comm).or_default();
        *number += 1;
        if *number <= CLOCK_SAMPLES
            && let Some(found) = comms.get_mut(&(done.comm as usize))
        {
            let offset = done.started_ns.wrapping_sub(gpu) as i64;
            found.comm.gpu_offset_ns =
                Some(found.comm.gpu_offset_ns.map_or(offset, |least| least.min(offset)));
        }
    }
}

fn phase(number: u64) -> Phase {
    match number {
        1 => Phase::SendGpu,
        2 => Phase::SendPeer,
        3 => Phase::SendNet,
        4 => Phase::RecvNet,
        5 => Phase::RecvFlush,
        6 => Phase::RecvGpu,
        _ => Phase::Unknown,
    }
}

/// Nanoseconds in the highest 42 bits, then 4 bits of the phase and 18 of the peer.
fn longest(word: u64) -> Option<(Phase, u32, u64)> {
    (word != 0).then(|| (phase(word >> 18 & 0xf), (word & 0x3_ffff) as u32, word >> 22))
}

const _: () =
    assert!(COMMS.entries <= 0xffff && JOURNAL.entries.is_power_of_two() && CALLS.entries.is_power_of_two());
