//! `ringleader trace record`: timelines of a running job, through the on-demand interface of PyTorch's profiler.
//!
//! A process that was started with `KINETO_USE_DAEMON=1` asks a Unix socket of a fixed name every few seconds whether it
//! shall record. The protocol is dynolog's: a datagram is a size (8 bytes), a type (32 bytes) and a body. Source: PyTorch
//! Kineto, `IpcFabricConfigClient.cpp` and `ipcfabric/FabricManager.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use ringleader_model::Fact;

use crate::command::print;
use crate::exit::Code;
use crate::failure::Failure;

/// Record the same steps of all ranks of a job that runs here
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Folder for the timelines
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Processes to record [default: all that ask]
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Ranks to wait for before the recording starts [default: those that ask within 12 s]
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// Steps to record
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=200))]
    steps: u32,
    /// Begin at the next multiple of this step: choose more steps than the job runs in 20 s
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    at_multiple: u32,
    /// Record this many milliseconds from a common start, for programs whose optimizer is not PyTorch's: the same time,
    /// not the same steps
    #[arg(long, value_name = "MS", conflicts_with = "at_multiple", value_parser = clap::value_parser!(u32).range(10..=60_000))]
    duration_ms: Option<u32>,
    /// Record Python's calls too: advice then names the line of your code. Each call of the recorded steps costs, and files grow
    #[arg(long, conflicts_with = "command")]
    stacks: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "S", default_value_t = 300)]
    timeout: u64,
    #[command(flatten)]
    nsys: super::nsys::NsysArgs,
}

/// Name of the socket at which processes ask.
const NAME: &[u8] = b"dynolog";
/// Bytes before the body of a datagram.
const HEAD_BYTES: usize = 40;
/// Two rounds of requests: every process that asks at all has asked by then.
const TWO_POLLS: Duration = Duration::from_secs(12);
/// Each question that a process asked while nobody listened can leave an answer behind that it reads before the next one:
/// from then on it reads each answer so many questions late. Two were seen (PyTorch 2.11).
const LAG: Duration = Duration::from_millis(10_500);
/// What a profiler needs between its order and the start: 5 s of warm-up, and it looks once a second.
const WARM_UP: Duration = Duration::from_secs(6);
/// From the first answer to a common start: the others are told within a round. A profiler looks once a second, from the
/// answer on, whether the start is near, and gives up if less than its warm-up is left then: a start at whole seconds would
/// meet that limit.
const TO_START: Duration = Duration::from_millis(24_500);
const _: () = assert!(
    (POLL.as_millis() + JITTER.as_millis() + LAG.as_millis() + WARM_UP.as_millis()) + 2_000
        < TO_START.as_millis(),
    "the last rank has to have its order in time"
);
/// Time between two questions of a process.
const POLL: Duration = Duration::from_secs(5);
/// Questions come this much earlier or later.
const JITTER: Duration = Duration::from_millis(300);
/// Room that a rank's timeline may take, bytes: five steps of a large model are a tenth of it.
const ROOM_BYTES: u64 = 256 << 20;
/// A file that has not grown for this long is written.
const QUIET: Duration = Duration::from_millis(1_500);

impl RecordArgs {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let recording = Recording {
            out: self.out.clone(),
            pids: self.pid.clone(),
            n_ranks: self.ranks,
            window: match self.duration_ms {
                Some(ms) => Window::Time { ms },
                None => Window::Steps { n: self.steps, at_multiple: self.at_multiple },
            },
            with_stacks: self.stacks,
            timeout: Duration::from_secs(self.timeout),
        };
        recording.prepare()?;
        if !self.nsys.command.is_empty() {
            return self.nsys.run(&self.out);
        }
        say(
            "waiting for ranks to ask; they ask every few seconds if they were started with KINETO_USE_DAEMON=1.\n\
             Recording slows the recorded steps (by half where they are short) and writes some megabytes a rank. A job that its \
             hosts bound stays slower afterwards (by a sixth where it was measured): the recorder stays attached, unless the job \
             was started with TEARDOWN_CUPTI=1.\n",
        );
        let (recorded, mut seen) = self.until_they_step(recording)?;
        let mut text = String::new();
        let mut total = 0;
        let mut windows = Vec::new();
        for (pid, path) in &recorded.files {
            let size = std::fs::metadata(path).map_or(0, |m| m.len());
            total += size;
            let _ = write!(text, "pid {pid}: {} ({:.1} MB", path.display(), size as f64 / 1e6);
            match seen.remove(pid) {
                Some((window, n_steps)) => {
                    let _ = write!(text, ", {n_steps} steps");
                    windows.push(window);
                }
                None => text.push_str(", nothing: it made no step"),
            }
            text.push_str(")\n");
        }
        let _ = writeln!(text, "{:.1} MB in all.", total as f64 / 1e6);
        let is_same = share_time(&windows);
        if self.duration_ms.is_some() {
            text.push_str("The ranks recorded the same time, not the same steps.\n");
        } else if !is_same {
            text.push_str(
                "The ranks did not record the same steps: they were told on two sides of a multiple. Record again, with a \
                 larger --at-multiple.\n",
            );
        }
        let _ = writeln!(text, "Now: ringleader trace {}", self.out.display());
        print(&text)?;
        let is_whole = windows.len() == recorded.n_told && is_same;
        Ok(if is_whole { Code::NothingFound } else { Code::Undecided }.into())
    }

    /// Records; once more where a rank has recorded nothing, since it had made no step yet. Answers with what each rank's
    /// timeline holds.
    fn until_they_step(&self, mut recording: Recording) -> Result<(Recorded, Held), Failure> {
        let begun = Instant::now();
        loop {
            let recorded = recording.record(&|text| say(&format!("{text}\n")), &AtomicBool::new(false))?;
            let held: Held =
                recorded.files.iter().filter_map(|(pid, p)| Some((*pid, window_of(p)?))).collect();
            let left = Duration::from_secs(self.timeout).saturating_sub(begun.elapsed());
            if held.len() == recorded.files.len() || left < TWO_POLLS + TO_START {
                return Ok((recorded, held));
            }
            say("a rank has not made a step yet; recording again\n");
            recording.timeout = left;
        }
    }
}

/// What the timeline of each process holds.
type Held = BTreeMap<u32, ((i64, i64), usize)>;

/// Start and end of what a timeline holds, ns, and how many steps of the optimizer.
fn window_of(path: &Path) -> Option<((i64, i64), usize)> {
    let case = crate::gather::gather(&[path.to_owned()], true).ok()?;
    let timeline = case.observations.iter().find_map(|o| match &o.fact {
        Fact::Timeline(timeline) => Some(timeline),
        _ => None,
    })?;
    let spans = timeline.host_spans.iter();
    let window = spans.clone().map(|s| (s.start_ns, s.end_ns)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let n_steps = spans.filter(|s| timeline.name(s.name).starts_with("Optimizer.step")).count();
    Some((window, n_steps))
}

/// Whether all of these times have half of the shortest in common: ranks that wait for one another in each step do the
/// same step at the same time.
fn share_time(windows: &[(i64, i64)]) -> bool {
    let shortest = windows.iter().map(|(from, to)| to - from).min().unwrap_or(0);
    let from = windows.iter().map(|(from, _)| *from).max().unwrap_or(0);
    let to = windows.iter().map(|(_, to)| *to).min().unwrap_or(0);
    (to - from) * 2 >= shortest
}

/// What the ranks record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    /// Steps, from the next multiple of a step number on.
    Steps { n: u32, at_multiple: u32 },
    /// The same time.
    Time { ms: u32 },
}

/// A recording of ranks of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// Folder for the timelines.
    pub(crate) out: PathBuf,
    /// Processes; all that ask if empty.
    pub(crate) pids: Vec<u32>,
    /// Ranks to wait for before the recording starts.
    pub(crate) n_ranks: Option<usize>,
    /// What they record.
    pub(crate) window: Window,
    /// Whether Python's calls are recorded.
    pub(crate) with_stacks: bool,
    /// It is given up after this.
    pub(crate) timeout: Duration,
}

/// What was recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The file of each process.
    pub(crate) files: BTreeMap<u32, PathBuf>,
    /// Processes that were asked to record.
    pub(crate) n_told: usize,
}

impl Recording {
    /// Makes the folder, and refuses where the disks have no room.
    ///
    /// # Errors
    /// If the folder cannot be made or the timelines may not fit.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.out)
            .map_err(|source| Failure::Create { path: self.out.clone(), source })?;
        for folder in [self.out.as_path(), Path::new("/tmp")] {
            enough_room(folder, self.n_ranks.unwrap_or(8).max(self.pids.len()))?;
        }
        Ok(())
    }

    /// Records and reports each stage; ends early once `stop` is set.
    ///
    /// # Errors
    /// If another daemon holds the socket, or no rank asks in time.
    pub(crate) fn record(&self, say: &dyn Fn(&str), stop: &AtomicBool) -> Result<Recorded, Failure> {
        let socket = bind()?;
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .map_err(|source| Failure::Create { path: self.out.clone(), source })?;
        let begun = Instant::now();
        let is_over = || begun.elapsed() > self.timeout || stop.load(Ordering::Relaxed);
        let told = self.tell(&socket, &is_over)?;
        say(&format!("{} ranks will record: {:?}", told.len(), told.keys().collect::<Vec<_>>()));
        let files = self.take(&socket, &told, &is_over)?;
        Ok(Recorded { files, n_told: told.len() })
    }

    /// Waits until all ranks have asked once, then tells each of them at its next question. Answers with the file that each
    /// process will write.
    fn tell(
        &self,
        socket: &UnixDatagram,
        is_over: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<u32, PathBuf>, Failure> {
        let mut seen: BTreeMap<u32, RequestTimes> = BTreeMap::new();
        let mut launchers: BTreeSet<u32> = BTreeSet::new();
        let mut told = BTreeMap::new();
        let wanted = self.n_ranks.or((!self.pids.is_empty()).then_some(self.pids.len()));
        let mut start_ms = None;
        let tag = format!("{}-{}", std::process::id(), now_ms());
        loop {
            if is_over() {
                let why = format!(
                    "{} ranks asked within {} s; was the job started with KINETO_USE_DAEMON=1? (ringleader env offers it)",
                    seen.len(),
                    self.timeout.as_secs()
                );
                return Err(Failure::Absent { why });
            }
            let all_here = match wanted {
                Some(n) => seen.len() >= n,
                None => seen.values().any(|asked| asked.first.elapsed() > TWO_POLLS),
            };
            if all_here && !seen.is_empty() && told.len() == seen.len() {
                return Ok(told);
            }
            let Some(Question { pid, ancestors, kind, from }) = question(socket) else { continue };
            if kind == b"ctxt" {
                answer(socket, &from, &kind, &1_i32.to_le_bytes());
                continue;
            }
            // A launcher that imports PyTorch asks, too.
            launchers.extend(ancestors);
            seen.retain(|pid, _| !launchers.contains(pid));
            if launchers.contains(&pid) || !self.pids.is_empty() && !self.pids.contains(&pid) {
                answer(socket, &from, &kind, b"");
                continue;
            }
            let now = Instant::now();
            let asked = seen.entry(pid).or_insert(RequestTimes { first: now, last: now });
            let round = if asked.last < now { POLL.min(now - asked.last) } else { POLL };
            asked.last = now;
            let others = seen.iter().filter(|(other, _)| **other != pid);
            let waits = others.map(|(_, asked)| round.saturating_sub(now - asked.last)).collect();
            if !all_here || told.contains_key(&pid) || told.is_empty() && !begins_round(waits, round) {
                answer(socket, &from, &kind, b"");
                continue;
            }
            let start = *start_ms.get_or_insert_with(|| now_ms() + TO_START.as_millis() as u64);
            // Newer profilers write below /tmp and nowhere else.
            let path = PathBuf::from(format!("/tmp/ringleader-trace-{tag}-{pid}.json"));
            answer(socket, &from, &kind, self.order(&path, start).as_bytes());
            told.insert(pid, path);
        }
    }

    /// The configuration that a rank receives.
    fn order(&self, path: &Path, start_ms: u64) -> String {
        let mut order = format!("ACTIVITIES_LOG_FILE={}\n", path.display());
        let _ = match self.window {
            Window::Time { ms } => {
                write!(order, "PROFILE_START_TIME={start_ms}\nACTIVITIES_DURATION_MSECS={ms}\n")
            }
            Window::Steps { n, at_multiple } => write!(
                order,
                "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP={at_multiple}\nACTIVITIES_WARMUP_ITERATIONS=1\nACTIVITIES_ITERATIONS={n}\n"
            ),
        };
        if self.with_stacks {
            order.push_str("PROFILE_WITH_STACK=true\n");
        }
        order
    }

    /// Waits for the files and moves them; goes on answering, so that nobody who asks waits.
    fn take(
        &self,
        socket: &UnixDatagram,
        told: &BTreeMap<u32, PathBuf>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<u32, PathBuf>, Failure> {
        let mut sizes: BTreeMap<u32, (u64, Instant)> = BTreeMap::new();
        let mut taken = BTreeMap::new();
        while taken.len() < told.len() && !is_over() {
            if let Some(Question { kind, from, .. }) = question(socket) {
                let nothing: &[u8] = if kind == b"ctxt" { &[1, 0, 0, 0] } else { b"" };
                answer(socket, &from, &kind, nothing);
            }
            for (pid, path) in told {
                if taken.contains_key(pid) {
                    continue;
                }
                // A process in a container writes into its own /tmp.
                let inside = PathBuf::from(format!("/proc/{pid}/root{}", path.display()));
                let Some(found) = [path, &inside].into_iter().find_map(|p| written_as(p, *pid)) else {
                    continue;
                };
                let size = std::fs::metadata(&found).map_or(0, |m| m.len());
                let before = sizes.entry(*pid).or_insert((size, Instant::now()));
                if before.0 != size {
                    *before = (size, Instant::now());
                } else if size > 0 && before.1.elapsed() > QUIET {
                    let to = self.out.join(format!("pid-{pid}.json"));
                    let moved = std::fs::rename(&found, &to)
                        .or_else(|_| std::fs::copy(&found, &to).and_then(|_| std::fs::remove_file(&found)));
                    moved.map_err(|source| Failure::Create { path: to.clone(), source })?;
                    taken.insert(*pid, to);
                }
            }
        }
        Ok(taken)
    }
}

/// When a process asked.
#[derive(Clone, Copy, Debug)]
struct RequestTimes {
    first: Instant,
    last: Instant,
}

/// Whether the longest pause between questions lies before this process's own: if the ranks are told from it on, all are
/// told within the shortest time, and hardly ever on two sides of the step at which the recording begins. `waits` are the
/// times until the others ask again.
fn begins_round(mut waits: Vec<Duration>, round: Duration) -> bool {
    waits.sort_unstable();
    let mut before = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for wait in waits {
        longest = longest.max(wait.saturating_sub(before));
        before = wait;
    }
    round.saturating_sub(before) + JITTER >= longest
}

/// The file as the process names it: some versions put the pid in front of the ending.
fn written_as(path: &Path, pid: u32) -> Option<PathBuf> {
    if path.exists() {
        return Some(path.to_owned());
    }
    let stem = path.to_string_lossy();
    let other = PathBuf::from(format!("{}_{pid}.json", stem.strip_suffix(".json")?));
    other.exists().then_some(other)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

fn say(text: &str) {
    // The reader may be gone.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Refuses where the timelines would fill the disk.
fn enough_room(folder: &Path, n_ranks: usize) -> Result<(), Failure> {
    let stat = rustix::fs::statvfs(folder)
        .map_err(|error| Failure::CannotWrite { path: folder.to_owned(), source: error.into() })?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let needed = ROOM_BYTES * n_ranks as u64;
    if free < needed {
        let text =
            format!("{} MiB are free, and {n_ranks} timelines may take {} MiB", free >> 20, needed >> 20);
        let source = io::Error::new(io::ErrorKind::StorageFull, text);
        return Err(Failure::CannotWrite { path: folder.to_owned(), source });
    }
    Ok(())
}

/// Takes the socket that processes ask.
fn bind() -> Result<UnixDatagram, Failure> {
    let folder = std::env::var_os("KINETO_IPC_SOCKET_DIR").filter(|dir| !dir.is_empty());
    let (shown, bound) = if let Some(folder) = folder {
        let path = PathBuf::from(folder).join("dynolog");
        (path.display().to_string(), UnixDatagram::bind(&path))
    } else {
        // The other side counts the closing zero as part of the name.
        let name = [NAME, b"\0"].concat();
        let bound =
            SocketAddr::from_abstract_name(name).and_then(|address| UnixDatagram::bind_addr(&address));
        ("@dynolog".to_owned(), bound)
    };
    bound.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!(
                    "another daemon (dynolog?) holds the socket {shown}; record with it, or stop it first"
                )
            }
            _ => format!("the socket {shown} cannot be taken: {error}"),
        };
        Failure::Absent { why }
    })
}

/// A question of a process.
struct Question {
    pid: u32,
    /// Its parent, the parent of that, and so on.
    ancestors: Vec<u32>,
    /// Its type.
    kind: Vec<u8>,
    /// Where to answer.
    from: SocketAddr,
}

/// The next question. None if none comes for a while, or it is malformed.
fn question(socket: &UnixDatagram) -> Option<Question> {
    let mut bytes = [0; 4096];
    let (n, from) = socket.recv_from(&mut bytes).ok()?;
    let datagram = bytes.get(..n)?;
    let (head, body) = datagram.split_at_checked(HEAD_BYTES)?;
    let kind: Vec<u8> = head.get(8..)?.iter().copied().take_while(|b| *b != 0).collect();
    let number = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk::<4>()?));
    // A context is gpu, pid, job; a request is type, count, job, then the pid and those of its ancestors.
    let (pid, ancestors) = match kind.as_slice() {
        b"ctxt" => (number(4)?, Vec::new()),
        b"req" if number(4)? > 0 => {
            let n_pids = (number(4)? as usize).min(bytes.len() / 4);
            // The first process of a container is the ancestor of everything in it, and may be a rank of another one.
            let ancestors = (1..n_pids).map_while(|at| number(16 + 4 * at)).filter(|pid| *pid > 1);
            (number(16)?, ancestors.collect())
        }
        _ => return None,
    };
    Some(Question { pid, ancestors, kind, from })
}

fn answer(socket: &UnixDatagram, to: &SocketAddr, kind: &[u8], body: &[u8]) {
    let mut datagram = (body.len() as u64).to_le_bytes().to_vec();
    datagram.extend_from_slice(kind);
    datagram.resize(HEAD_BYTES, 0);
    datagram.extend_from_slice(body);
    // Whoever asked may be gone.
    let _ = socket.send_to_addr(&datagram, to);
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_round_begins_after_the_longest_pause() {
        let after =
            |waits: &[u64]| begins_round(waits.iter().map(|ms| Duration::from_millis(*ms)).collect(), POLL);
        // The other one asks soon: now. It has just asked: not now.
        assert!(after(&[700]) && !after(&[4_300]));
        // Out of order by a little: it is awaited at any moment.
        assert!(after(&[0]) && !after(&[4_990]));
        assert!(after(&[100, 200, 300]) && !after(&[100, 4_800, 4_900]));
        assert!(after(&[]), "a single rank is told at once");
    }

    #[test]
    fn stacks_are_ordered_if_asked_for() {
        let order = |with_stacks| {
            let recording = Recording {
                out: PathBuf::from("out"),
                pids: Vec::new(),
                n_ranks: None,
                window: Window::Steps { n: 5, at_multiple: 100 },
                with_stacks,
                timeout: POLL,
            };
            recording.order(Path::new("/tmp/t.json"), 0)
        };
        assert!(!order(false).contains("STACK"));
        assert_eq!(order(true), order(false) + "PROFILE_WITH_STACK=true\n");
    }

    #[test]
    fn ranks_share_their_time_or_not() {
        assert!(share_time(&[(0, 100), (20, 110)]) && share_time(&[(5, 6)]) && share_time(&[]));
        assert!(!share_time(&[(0, 100), (80, 180)]) && !share_time(&[(0, 100), (400, 500)]));
    }

    #[test]
    fn a_question_and_its_answer() {
        let address =
            |name: &str| SocketAddr::from_abstract_name(format!("{name}-{}", std::process::id())).unwrap();
        let daemon = UnixDatagram::bind_addr(&address("daemon")).unwrap();
        let rank = UnixDatagram::bind_addr(&address("rank")).unwrap();
        let mut request = (16_u64 + 12).to_le_bytes().to_vec();
        request.extend_from_slice(b"req");
        request.resize(HEAD_BYTES, 0);
        for number in [2_i32, 3, 0, 0, 4711, 4700, 1] {
            request.extend_from_slice(&number.to_le_bytes());
        }
        rank.send_to_addr(&request, &address("daemon")).unwrap();
        let Question { pid, ancestors, kind, from } = question(&daemon).unwrap();
        assert_eq!((pid, ancestors, kind.as_slice()), (4711, vec![4700], &b"req"[..]));
        answer(&daemon, &from, &kind, b"A=1");
        let mut bytes = [0; 100];
        let n = rank.recv(&mut bytes).unwrap();
        assert_eq!((n, bytes[0], &bytes[8..11], &bytes[40..43]), (43, 3, &b"req"[..], &b"A=1"[..]));
    }
}
