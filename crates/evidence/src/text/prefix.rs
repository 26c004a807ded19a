//! Prefixes that launchers put before each line.
//!
//! | prefix | written by | says |
//! |---|---|---|
//! | `[rank3]: ` | torch, on uncaught exceptions and in c10's log | rank |
//! | `[default3]:` | torchrun `--tee` (`[${role}${local_rank}]:`) | local rank |
//! | `3: `, ` 3: ` | `srun -l` (task id, padded on the left) | rank |
//! | `[1,3]<stdout>:` | mpirun `--tag-output` (`[job,rank]`) | rank |
//! | `[1,mpirank:3,algo-1]<stdout>:` | the same in SageMaker | rank |
//! | `(Task pid=123, ip=10.0.0.1) `, `(Actor(rank=1) pid=123) ` | Ray and vLLM workers | pid, host |
//! | `2026-11-20T08:21:34.123Z stdout F ` | container runtimes, `kubectl logs --timestamps` | time |
//! | `Nov 20 08:21:34 host prog[123]: ` | syslog, journald | time, host, pid |
//! | `[2026-11-20 08:21:34] `, `2026-11-20 08:21:34,123 ` | ts(1), Python's logging | time |
//! | `node1: `, `worker-1: ` | pdsh (and DeepSpeed over it), clush | host |
//! | `[pod/trainer-0/main] ` | `kubectl logs --prefix` | host (the pod's name is that of its host) |
//! | `job.node7.nolog [stderr] ` | Milabench and others | nothing |
//! | `rank5[906][MainThread]: ` | Composer, Streaming | rank, process |
//! | `trainer-1  \| ` | docker compose (service and number, padded) | host |
//! | `[24 similar log lines] ` | Monarch | nothing |
//!
//! They stack. `3: `, `node1: ` and `trainer-1 | ` look like much else (`ValueError: x`, `step: 5`, a table's row), so
//! they are taken off only where what follows is known to be a log line, or where most lines of the file carry such a
//! label.

use std::sync::Arc;

use memchr::memmem;
use ringleader_knowledge::form::Level;
use ringleader_model::{Host, LocalRank, Pid, Rank};

use crate::ground::{Tag, scan::Scan, stamp};
use crate::readers;

/// Namespace-wide names of Kubernetes: 253 for a pod, 63 for a container, and what is between.
const MAX_POD_BYTES: usize = 320;
/// Prefixes on one line; more than that is not a log.
const MAX_STACKED: u32 = 6;
/// Host names kept for sharing; past that each line gets its own.
const MAX_HOSTS: usize = 4096;

/// Takes launcher prefixes off the lines of one source.
#[derive(Default)]
pub(crate) struct Stripper {
    hosts: Vec<Host>,
    /// Lines with content so far, and those of them that began like `3: ` or `node1: `.
    n_lines: u64,
    n_labelled: u64,
    /// Every label is believed, for a look at what may follow.
    believes: bool,
}

impl Stripper {
    /// Takes launcher prefixes off `raw`, writes what they said into `tag`, and returns the rest.
    #[inline]
    pub(crate) fn strip<'a>(&mut self, raw: &'a [u8], tag: &mut Tag) -> &'a [u8] {
        if tag.at.is_some() || tag.level.is_some() || !tag.who.is_nobody() {
            *tag = Tag::default();
        }
        self.n_lines += u64::from(!raw.is_empty());
        if is_plain(raw) { raw } else { self.strip_slowly(raw, tag) }
    }

    /// The same of a line within a line, which is not counted.
    pub(crate) fn strip_within<'a>(&mut self, raw: &'a [u8], tag: &mut Tag) -> &'a [u8] {
        if is_plain(raw) { raw } else { self.strip_slowly(raw, tag) }
    }

    /// Counts a line whose prefix somebody else reads, and which has no label.
    #[inline]
    pub(crate) fn count_plain(&mut self) {
        self.n_lines += 1;
    }

    /// Whether a line so far began with what may be a label.
    pub(super) fn saw_label(&self) -> bool {
        self.n_labelled > 0
    }

    /// Passes `is_it` the number of bytes before each rest that prefixes leave of a line, labels believed, until it
    /// says yes.
    pub(super) fn each_rest(&mut self, raw: &[u8], is_it: &mut impl FnMut(usize) -> bool) -> bool {
        if is_plain(raw) {
            return false;
        }
        self.believes = true;
        let mut tag = Tag::default();
        let mut rank_is_task = false;
        let mut rest = raw;
        for _ in 0..MAX_STACKED {
            let Some(next) = self.next(rest, &mut tag, &mut rank_is_task) else { break };
            rest = next;
            if is_it(raw.len() - rest.len()) {
                return true;
            }
        }
        false
    }

    fn strip_slowly<'a>(&mut self, raw: &'a [u8], tag: &mut Tag) -> &'a [u8] {
        let mut rest = raw;
        // A task id of `srun -l` is the rank only if no launcher of ranks runs inside the task.
        let mut rank_is_task = false;
        for _ in 0..MAX_STACKED {
            match self.next(rest, tag, &mut rank_is_task) {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest
    }

    /// What follows one prefix.
    #[inline]
    fn next<'a>(&mut self, rest: &'a [u8], tag: &mut Tag, rank_is_task: &mut bool) -> Option<&'a [u8]> {
        match rest {
            [b'[', ..] => bracket(rest, tag, rank_is_task)
                .or_else(|| bracketed_date(rest, tag))
                .or_else(|| tensorrt(rest, tag))
                .or_else(|| self.pod(rest, tag)),
            [b'(', ..] => self.ray(rest, tag),
            [0x1b, ..] => self.ray(after_colour(rest), tag),
            [b'0'..=b'9', ..] => self
                .iso(rest, tag)
                .or_else(|| logging(rest, tag))
                .or_else(|| self.task(rest, tag, rank_is_task))
                .or_else(|| self.node(rest, tag)),
            [b' ', ..] => self.task(rest, tag, rank_is_task),
            [b'A'..=b'Z', ..] => self.syslog(rest, tag),
            [b'a'..=b'z', ..] if let Some(rest) = of_stream(rest) => Some(rest),
            [b'r', b'a', b'n', b'k', ..] => {
                composer(rest, tag).or_else(|| self.node(rest, tag)).or_else(|| self.compose(rest, tag))
            }
            [b'a'..=b'z', ..] => self.node(rest, tag).or_else(|| self.compose(rest, tag)),
            _ => None,
        }
    }

    /// `(TaskName pid=123, ip=10.0.0.1) `, in colour or not. An actor's name may hold brackets of its own.
    fn ray<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let inside = line.strip_prefix(b"(")?;
        let near = inside.get(..128).unwrap_or(inside);
        let at = memmem::find(near, b"pid=")?;
        let name = near.get(..at)?;
        if !(name.is_empty() || name.ends_with(b" ")) || memmem::find(name, b") ").is_some_and(|p| p + 2 < at)
        {
            return None;
        }
        let close = at + memchr::memchr(b')', near.get(at..)?)?;
        let (inside, rest) = (inside.get(..close)?, inside.get(close + 1..)?);
        let mut scan = Scan(inside.get(at + 4..)?);
        let pid = scan.dec32()?;
        if scan.lit(b", ip=").is_some() {
            tag.who.host = Some(self.host(scan.0));
        } else if !scan.0.is_empty() {
            return None;
        }
        tag.who.pid = Some(Pid(pid));
        let rest = after_colour(rest);
        Some(rest.strip_prefix(b" ").unwrap_or(rest))
    }

    /// `2026-11-20T08:21:34.123456789Z stdout F `, the stamp alone, or the stamp and syslog's host and program.
    fn iso<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let (at, rest) = stamp::date_time_shaped(line, b'T')?;
        let rest = stamp::after_zone(rest).strip_prefix(b" ")?;
        tag.at = at.or(tag.at);
        for stream in [&b"stdout F "[..], b"stderr F ", b"stdout P ", b"stderr P "] {
            if let Some(rest) = rest.strip_prefix(stream) {
                return Some(rest);
            }
        }
        Some(self.host_and_program(rest, tag).unwrap_or(rest))
    }

    /// `Nov 20 08:21:34 host prog[123]: `.
    fn syslog<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let (at, rest) = stamp::syslog_shaped(line)?;
        let rest = rest.strip_prefix(b" ")?;
        let rest = self.host_and_program(rest, tag)?;
        tag.at = at.or(tag.at);
        Some(rest)
    }

    /// `host prog[123]: `. The kernel's lines stay as they are: their reader knows this form.
    fn host_and_program<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let near = line.get(..160).unwrap_or(line);
        let gap = memchr::memchr(b' ', near)?;
        let end = memmem::find(near, b"]: ")?;
        let (host, program) = (near.get(..gap)?, near.get(gap + 1..end)?);
        let open = memchr::memchr(b'[', program)?;
        let (name, pid) = (program.get(..open)?, program.get(open + 1..)?);
        let mut pid = Scan(pid);
        let number = pid.dec32()?;
        if !pid.0.is_empty() || !is_host(host) || name.is_empty() || name.contains(&b' ') || name == b"kernel"
        {
            return None;
        }
        tag.who.host = Some(self.host(host));
        tag.who.pid = Some(Pid(number));
        line.get(end + 3..)
    }

    /// `[pod/trainer-0/main] ` of `kubectl logs --prefix`.
    fn pod<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let inside = line.strip_prefix(b"[pod/")?;
        let near = inside.get(..MAX_POD_BYTES).unwrap_or(inside);
        let close = memchr::memchr(b']', near)?;
        let (pod, container) = near.get(..close)?.split_at_checked(memchr::memchr(b'/', near)?)?;
        if !is_host(pod) || !is_host(container.get(1..)?) {
            return None;
        }
        tag.who.host = Some(self.host(pod));
        let rest = inside.get(close + 1..)?;
        Some(rest.strip_prefix(b" ").unwrap_or(rest))
    }

    /// `trainer-1  | ` of docker compose.
    fn compose<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let near = line.get(..80).unwrap_or(line);
        let end = memchr::memchr(b' ', near)?;
        let (name, rest) = line.split_at_checked(end)?;
        let rest = rest.trim_ascii_start().strip_prefix(b"|")?;
        let (stem, number) = name.split_at_checked(name.iter().rposition(|b| matches!(b, b'-' | b'_'))?)?;
        let is_numbered = number.get(1..).is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit));
        let rest = match rest {
            [] => rest,
            [b' ', rest @ ..] => rest,
            _ => return None,
        };
        // A table has more columns.
        let is_row = memmem::find(rest, b" | ").is_some();
        if !is_numbered || !is_host(stem) || is_row || !self.label_counts(rest) {
            return None;
        }
        tag.who.host = Some(self.host(name));
        Some(rest)
    }

    /// `3: ` of `srun -l`.
    fn task<'a>(&mut self, line: &'a [u8], tag: &mut Tag, rank_is_task: &mut bool) -> Option<&'a [u8]> {
        let pad = line.iter().take(6).take_while(|b| **b == b' ').count();
        let digits = line.get(pad..)?;
        let n = digits.iter().take(7).take_while(|b| b.is_ascii_digit()).count();
        if !(1..=6).contains(&n) {
            return None;
        }
        let rest = digits.get(n..)?.strip_prefix(b":")?;
        let rest = match rest {
            [] => rest,
            [b' ', rest @ ..] => rest,
            _ => return None,
        };
        if !self.label_counts(rest) {
            return None;
        }
        let mut scan = Scan(digits);
        tag.who.rank = Some(Rank(scan.dec32()?));
        *rank_is_task = true;
        Some(rest)
    }

    /// `node1: ` of pdsh.
    fn node<'a>(&mut self, line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
        let near = line.get(..80).unwrap_or(line);
        let end = near.iter().position(|b| matches!(b, b':' | b' ' | b'\t'))?;
        let host = near.get(..end)?;
        let rest = match line.get(end..)? {
            // Of an empty line.
            b":" => b"",
            rest => rest.strip_prefix(b": ")?,
        };
        if !is_node_name(host) || !self.label_counts(rest) {
            return None;
        }
        tag.who.host = Some(self.host(host));
        Some(rest)
    }

    /// Whether a label before `rest` may be believed.
    fn label_counts(&mut self, rest: &[u8]) -> bool {
        self.n_labelled += 1;
        self.believes || (self.n_labelled > 2 && self.n_labelled * 2 > self.n_lines) || is_known(rest)
    }

    /// The name up to its first dot (addresses whole), shared between lines.
    fn host(&mut self, name: &[u8]) -> Host {
        let is_address = name.iter().all(|b| matches!(b, b'0'..=b'9' | b'.')) || name.contains(&b':');
        let short = if is_address { name } else { name.split(|b| *b == b'.').next().unwrap_or(name) };
        if let Some(known) = self.hosts.iter().find(|h| h.as_bytes() == short) {
            return known.clone();
        }
        let host: Host = Arc::from(String::from_utf8_lossy(short));
        if self.hosts.len() < MAX_HOSTS {
            self.hosts.push(host.clone());
        }
        host
    }
}

/// Lines that certainly carry no prefix, by their first bytes: NCCL's own stamp, `host:pid:`, indented text.
#[inline]
fn is_plain(raw: &[u8]) -> bool {
    match raw {
        [] => true,
        // `[2026-11-20 08:21:25] host:pid:…`
        [b'[', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..] => {
            raw.get(22..).is_some_and(is_nccls)
        }
        [b'a'..=b'z' | b'A'..=b'Z', rest @ ..] => {
            // A label ends in `: `, a syslog stamp has its first blank after three letters.
            for (at, pair) in rest.windows(2).take(64).enumerate() {
                match pair {
                    [b':', b' '] => return false,
                    [b':', _] => return true,
                    // `trainer-1  | `
                    [b' ', b' ' | b'|'] if at != 2 => return !is_columned(rest),
                    [b' ', b'['] if at != 2 => {
                        return !rest.get(at..).is_some_and(|r| r.starts_with(b" [std"));
                    }
                    [b' ', _] => return at != 2,
                    _ => {}
                }
            }
            true
        }
        [b' ', rest @ ..] => !matches!(rest.iter().take(6).find(|b| **b != b' '), Some(b'0'..=b'9')),
        [b'[' | b'(' | b'0'..=b'9' | 0x1b, ..] => false,
        _ => true,
    }
}

/// Whether the word ends in a figure and a bar follows: docker compose's label, or a table.
fn is_columned(line: &[u8]) -> bool {
    let near = line.get(..80).unwrap_or(line);
    let Some((name, rest)) = memchr::memchr(b' ', near).and_then(|end| near.split_at_checked(end)) else {
        return false;
    };
    name.last().is_some_and(u8::is_ascii_digit) && rest.trim_ascii_start().starts_with(b"|")
}

/// `host:1345:` follows: the head of NCCL's own line, whose stamp is its own too.
#[inline]
fn is_nccls(rest: &[u8]) -> bool {
    let n = rest.iter().take(253).take_while(|b| !matches!(b, b':' | b' ')).count();
    n > 0 && matches!(rest.get(n..), Some([b':', b'0'..=b'9', ..]))
}

/// `[2026-11-20 08:21:34] `, unless it is the stamp of NCCL or of torchrun 2.1, which their readers know.
fn bracketed_date<'a>(line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
    let inside = line.strip_prefix(b"[")?;
    let (at, rest) =
        stamp::date_time_shaped(inside, b' ').or_else(|| stamp::date_time_shaped(inside, b'T'))?;
    let rest = stamp::after_zone(rest).strip_prefix(b"] ")?;
    if is_nccls(rest) || rest.starts_with(b"torch.") || rest.starts_with(b"NCCL ") {
        return None;
    }
    tag.at = at.or(tag.at);
    Some(rest)
}

/// `[07/18/2026-21:47:32] [TRT-LLM] [RANK 5] [E] ` of TensorRT-LLM; the rank is left out where there is one.
fn tensorrt<'a>(line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
    let rest = line.get(22..)?.strip_prefix(b"[TRT-LLM] ")?;
    let [b'[', m1, m2, b'/', d1, d2, b'/', y1, y2, y3, y4, b'-', clock @ .., b']', b' '] = line.get(..22)?
    else {
        return None;
    };
    let stamp = [&[*y1, *y2, *y3, *y4, b'-', *m1, *m2, b'-', *d1, *d2, b' '], clock].concat();
    let (at, _) = stamp::date_time_shaped(&stamp, b' ')?;
    let mut scan = Scan(rest);
    let rank = if scan.lit(b"[RANK ").is_some() {
        let rank = scan.dec32()?;
        scan.lit(b"] ")?;
        Some(Rank(rank))
    } else {
        None
    };
    let [b'[', level, b']', b' ', rest @ ..] = scan.0 else { return None };
    tag.level = match level {
        b'F' => Some(Level::Fatal),
        b'E' => Some(Level::Error),
        b'W' => Some(Level::Warning),
        b'I' => Some(Level::Info),
        b'D' | b'V' | b'T' => Some(Level::Debug),
        _ => return None,
    };
    tag.at = at.or(tag.at);
    tag.who.rank = rank.or(tag.who.rank);
    Some(rest)
}

/// `2026-11-20 08:21:34,123 ` of Python's logging; ` - INFO - ` and its like only before a line that is known.
fn logging<'a>(line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
    const LEVELS: [&[u8]; 10] = [
        b"- DEBUG - ",
        b"- INFO - ",
        b"- WARNING - ",
        b"- ERROR - ",
        b"- CRITICAL - ",
        b"DEBUG ",
        b"INFO ",
        b"WARNING ",
        b"ERROR ",
        b"CRITICAL ",
    ];
    let (at, rest) = stamp::date_time_shaped(line, b' ')?;
    let rest = stamp::after_zone(rest);
    let rest =
        rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b": ").filter(|r| r.starts_with(b"rank")))?;
    tag.at = at.or(tag.at);
    let levelled = LEVELS.iter().find_map(|level| rest.strip_prefix(*level));
    Some(levelled.filter(|rest| is_known(rest)).unwrap_or(rest))
}

/// `job.node7.nolog [stderr] ` of tools that start commands on several nodes and keep their streams apart.
fn of_stream(line: &[u8]) -> Option<&[u8]> {
    let near = line.get(..160).unwrap_or(line);
    let (name, rest) = line.split_at_checked(memchr::memchr(b' ', near)?)?;
    let is_name = name.iter().all(|b| b.is_ascii_alphanumeric() || b"._-/:".contains(b));
    let rest = rest.strip_prefix(b" [stderr] ").or_else(|| rest.strip_prefix(b" [stdout] "))?;
    is_name.then_some(rest)
}

/// `rank5[906][MainThread]: ` of Composer and Streaming; the number behind the rank is the process.
fn composer<'a>(line: &'a [u8], tag: &mut Tag) -> Option<&'a [u8]> {
    let mut scan = Scan(line);
    scan.lit(b"rank")?;
    let rank = scan.dec32()?;
    scan.lit(b"[")?;
    let pid = scan.dec32()?;
    scan.lit(b"][")?;
    let close = memmem::find(scan.0.get(..64).unwrap_or(scan.0), b"]: ")?;
    (tag.who.rank, tag.who.pid) = (Some(Rank(rank)), Some(Pid(pid)));
    scan.0.get(close + 3..)
}

/// Prefixes in square brackets: torch's, torchrun's, mpirun's, Monarch's.
fn bracket<'a>(line: &'a [u8], tag: &mut Tag, rank_is_task: &mut bool) -> Option<&'a [u8]> {
    let mut scan = Scan(line);
    scan.lit(b"[")?;
    if scan.lit(b"rank").is_some() {
        let rank = scan.dec32()?;
        scan.lit(b"]")?;
        // c10 writes `[rank3]:[W…`, torch `[rank3]: `, gloo `[rank3] `.
        if scan.lit(b":").is_none() && scan.0.first() != Some(&b' ') {
            return None;
        }
        tag.who.rank = Some(Rank(rank));
        *rank_is_task = false;
        return Some(scan.0.strip_prefix(b" ").unwrap_or(scan.0));
    }
    if scan.lit(b"default").is_some() {
        let local = scan.dec32()?;
        scan.lit(b"]:")?;
        tag.who.local_rank = Some(LocalRank(local));
        if std::mem::take(rank_is_task) {
            tag.who.rank = None;
        }
        // torchrun adds no blank; a single one is the terminal's, more are indentation.
        return Some(match scan.0 {
            [b' ', next, ..] if *next != b' ' => scan.0.get(1..)?,
            rest => rest,
        });
    }
    let near = scan.0.get(..64).unwrap_or(scan.0);
    let close = memchr::memchr(b']', near)?;
    let (inside, rest) = (near.get(..close)?, scan.0.get(close + 1..)?);
    if let Some(rest) = [&b"<stdout>:"[..], b"<stderr>:"].iter().find_map(|s| rest.strip_prefix(*s)) {
        // SageMaker names the parts: `[1,mpirank:3,algo-1]<stdout>:`.
        let named = memmem::find(inside, b",mpirank:").and_then(|at| inside.get(at + b",mpirank:".len()..));
        if let Some(named) = named {
            let mut rank = Scan(named);
            tag.who.rank = Some(Rank(rank.dec32()?));
            return Some(rest);
        }
        let comma = memchr::memrchr(b',', inside)?;
        let mut rank = Scan(inside.get(comma + 1..)?);
        tag.who.rank = Some(Rank(rank.dec32()?));
        return rank.0.is_empty().then(|| match rest {
            [b' ', next, ..] if *next != b' ' => rest.get(1..).unwrap_or_default(),
            rest => rest,
        });
    }
    let mut similar = Scan(inside);
    similar.dec()?;
    if similar.0 == b" similar log lines" || similar.0 == b" similar log line" {
        return Some(rest.strip_prefix(b" ").unwrap_or(rest));
    }
    None
}

/// Takes one colour sequence off.
fn after_colour(line: &[u8]) -> &[u8] {
    let Some(inside) = line.strip_prefix(b"\x1b[") else { return line };
    let n = inside.iter().take(12).take_while(|b| matches!(b, b'0'..=b'9' | b';')).count();
    match inside.get(n..) {
        Some([b'm', rest @ ..]) => rest,
        _ => line,
    }
}

fn is_host(name: &[u8]) -> bool {
    (1..=253).contains(&name.len())
        && name.first().is_some_and(u8::is_ascii_alphanumeric)
        && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}

/// A word that may be a node's name and is hardly anything else.
fn is_node_name(word: &[u8]) -> bool {
    // Counted things, as programs print them: `step-5: `, `gpu0: `. Nodes are called `worker-1` or `rank1` too.
    const COUNTED: [&[u8]; 11] = [
        b"step",
        b"epoch",
        b"iter",
        b"iteration",
        b"batch",
        b"cuda",
        b"gpu",
        b"device",
        b"frame",
        b"line",
        b"layer",
    ];
    let stem = word;
    let n_end = stem.iter().rev().take_while(|b| b.is_ascii_digit() || matches!(b, b'-' | b'_')).count();
    let stem = stem.get(..stem.len() - n_end).unwrap_or_default();
    is_host(word)
        && word.iter().all(|b| !b.is_ascii_uppercase())
        && word.iter().any(|b| b.is_ascii_digit() || *b == b'-')
        && (word.iter().any(u8::is_ascii_alphabetic) || word.split(|b| *b == b'.').count() == 4)
        && !COUNTED.contains(&stem)
        && !word.starts_with(b"lib")
        && !word.starts_with(b"python")
        && memmem::find(word, b".py").is_none()
        && memmem::find(word, b".so").is_none()
}

/// Whether a line begins like one of a log.
pub(super) fn begins_known(line: &[u8]) -> bool {
    if [&b"[rank"[..], b"[default"].iter().any(|s| line.starts_with(s))
        || stamp::date_time_shaped(line, b'T').is_some()
        || readers::begins(line)
    {
        return true;
    }
    // c10's and Python's log stamps: `[E1120 08:17:08.6…`, `[2026-11-20 08:21:25] `, `W1120 08:17:08.6…`.
    let stamped = line.strip_prefix(b"[").unwrap_or(line);
    if stamp::date_time_shaped(stamped, b' ').is_some() {
        return true;
    }
    if let [b'E' | b'W' | b'I' | b'F', rest @ ..] = stamped {
        let n = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if (3..=4).contains(&n) && rest.get(n) == Some(&b' ') {
            return true;
        }
    }
    false
}

/// Whether a line is like one that this program reads: then a label before it is a launcher's.
fn is_known(line: &[u8]) -> bool {
    begins_known(line) || readers::is_known(line)
}

#[cfg(test)]
#[path = "prefix_tests.rs"]
mod tests;
