//! Output of one attempt while it runs: forwarded to our own output, and searched for training steps.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringleader_evidence::{Limits, Scratch};
use ringleader_model::Case;
use ringleader_run::effective::AttemptSpan;
use ringleader_run::output::{Position, STREAMS, StreamReader};
use ringleader_run::stall;
use ringleader_run::state::{Folder, now};
use ringleader_run::steps::{self, Counters};
use ringleader_run::tree;
use serde::{Deserialize, Serialize};

/// Interval between reads of the files.
const NAP: Duration = Duration::from_millis(30);
/// Interval at which the forwarded position is saved.
const NOTE: Duration = Duration::from_millis(500);
/// Longest line that is searched for a step, bytes.
const MAX_LINE: usize = 8 << 10;
/// Number of recent pauses between steps that are kept.
const MAX_PAUSES: usize = 200;
/// Part of each file of the output that is read for what it states, bytes.
const MAX_OUTPUT: u64 = 16 << 20;

/// Up to where an attempt's output has been forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Passed {
    attempt: u32,
    positions: [Position; 2],
}

/// Forwards an attempt's output in a thread, since the reader of our output may be slow.
pub(crate) struct Passer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Passer {
    /// Continues where the previous supervisor stopped.
    pub(crate) fn start(folder: &Folder, attempt: u32) -> io::Result<Self> {
        let path = folder.attempt(attempt)?;
        let before: Passed = folder.read("passed.json").ok().flatten().unwrap_or_default();
        let positions = if before.attempt == attempt { before.positions } else { Default::default() };
        let stop = Arc::new(AtomicBool::new(false));
        let (told, folder) = (Arc::clone(&stop), folder.clone());
        let thread = thread::spawn(move || pass(&folder, attempt, &path, positions, &told));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Forwards the rest and stops.
    pub(crate) fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has already been reported.
            let _ = thread.join();
        }
    }
}

/// Ranks of the whole job by the environment of its processes. That of an elastic launcher may count nodes instead.
pub(crate) fn ranks(holder: u32, launcher: u32, is_elastic: bool) -> Option<u32> {
    let env = |pid: u32| ringleader_collect::follow::rank_env(Path::new("/proc"), pid);
    let of = |pid: u32| env(pid).filter(|env| env.rank.is_some())?.world_size;
    let members = tree::members(holder, Some(std::process::id()));
    members
        .iter()
        .filter(|member| member.pid != launcher || !is_elastic)
        .filter_map(|member| of(member.pid))
        .max()
}

fn pass(folder: &Folder, attempt: u32, path: &Path, positions: [Position; 2], stop: &AtomicBool) {
    let mut readers = [
        StreamReader::new(path, STREAMS[0], positions[0]),
        StreamReader::new(path, STREAMS[1], positions[1]),
    ];
    let mut buffer = vec![0; 64 << 10];
    let mut noted = Instant::now();
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        let mut n_read = 0;
        for (at, reader) in readers.iter_mut().enumerate() {
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                n_read += n;
                let bytes = buffer.get(..n).unwrap_or_default();
                // Our output may be closed; the files hold everything.
                let _ = if at == 0 {
                    io::stdout().lock().write_all(bytes).and_then(|()| io::stdout().flush())
                } else {
                    io::stderr().lock().write_all(bytes)
                };
            }
        }
        for (stream, reader) in STREAMS.iter().zip(&mut readers) {
            let missed = reader.missed();
            if missed > 0 {
                let mut err = io::stderr().lock();
                // Standard error may be closed.
                let _ = writeln!(
                    err,
                    "ringleader: {missed} bytes of {stream} were not forwarded: they were removed before our reader took them"
                );
            }
        }
        if noted.elapsed() >= NOTE || is_last {
            let positions = [readers[0].position(), readers[1].position()];
            // At worst half a second of output is forwarded twice.
            let _ = folder.write("passed.json", &Passed { attempt, positions });
            noted = Instant::now();
        }
        if is_last && n_read == 0 {
            return;
        }
        if n_read == 0 {
            thread::sleep(NAP);
        }
    }
}

/// Steps of an attempt, from its output.
pub(crate) struct AttemptProgress {
    readers: [StreamReader; 2],
    rest: [Vec<u8>; 2],
    counters: Counters,
    /// When the last output arrived.
    moved: Instant,
    began: Instant,
    pauses: VecDeque<Duration>,
    buffer: Vec<u8>,
    /// Step of the checkpoint: the program prints it when it resumes, before it computes any step.
    resumed_from: Option<u64>,
    /// How far both streams had been printed at the last two steps.
    marks: VecDeque<[Position; 2]>,
}

impl AttemptProgress {
    pub(crate) fn new(path: &Path, resumed_from: Option<u64>) -> Self {
        Self {
            resumed_from,
            readers: STREAMS.map(|stream| StreamReader::new(path, stream, Position::default())),
            rest: Default::default(),
            counters: Counters::default(),
            moved: Instant::now(),
            began: Instant::now(),
            pauses: VecDeque::new(),
            buffer: vec![0; 64 << 10],
            marks: VecDeque::new(),
        }
    }

    /// Reads new output.
    pub(crate) fn look(&mut self) {
        // The other stream may have grown since.
        let earlier = [self.readers[0].position(), self.readers[1].position()];
        for at in 0..2 {
            loop {
                let read = self.readers.get_mut(at).map_or(Ok(0), |reader| reader.read(&mut self.buffer));
                let Ok(n @ 1..) = read else { break };
                let mut bytes = self.rest.get_mut(at).map(std::mem::take).unwrap_or_default();
                bytes.extend_from_slice(self.buffer.get(..n).unwrap_or_default());
                let end = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
                let position = self.readers.get(at).map(StreamReader::position).unwrap_or_default();
                let mut left = bytes.len() as u64;
                for line in bytes.get(..end).unwrap_or_default().split(|byte| matches!(byte, b'\n' | b'\r')) {
                    left = left.saturating_sub(line.len() as u64 + 1);
                    if self.line(line) {
                        let mut mark = earlier;
                        mark[at] = Position { offset: position.offset.saturating_sub(left), ..position };
                        self.marks.push_back(mark);
                        while self.marks.len() > 2 {
                            self.marks.pop_front();
                        }
                    }
                }
                let rest = bytes.get(end..).unwrap_or_default();
                let rest = if rest.len() > MAX_LINE { Vec::new() } else { rest.to_vec() };
                if let Some(slot) = self.rest.get_mut(at) {
                    *slot = rest;
                }
            }
        }
    }

    /// Returns whether the line shows a step.
    fn line(&mut self, line: &[u8]) -> bool {
        if line.is_empty() || line.len() > MAX_LINE {
            return false;
        }
        let Some(step) = std::str::from_utf8(line).ok().and_then(steps::of) else { return false };
        let has_begun = self.counters.last().is_some();
        if !self.counters.take(now(), step, self.resumed_from) {
            return false;
        }
        if has_begun {
            self.pauses.push_back(self.moved.elapsed());
            if self.pauses.len() > MAX_PAUSES {
                self.pauses.pop_front();
            }
        }
        self.moved = Instant::now();
        true
    }

    /// Up to where the output is older than the last but one step.
    pub(crate) fn before(&self) -> Option<[Position; 2]> {
        self.marks.front().copied().filter(|_| self.marks.len() > 1)
    }

    /// Silence until now does not count: the job is suspended.
    pub(crate) fn wait(&mut self) {
        (self.moved, self.began) = (Instant::now(), Instant::now());
    }

    /// Writes the steps into the times of the attempt.
    pub(crate) fn note(&self, span: &mut AttemptSpan) {
        (span.first, span.last) = (self.counters.first(), self.counters.last());
        // An earlier attempt may have shown it.
        span.resets |= self.counters.resets();
    }

    /// Time since the last step.
    pub(crate) fn still(&self) -> Duration {
        if self.counters.last().is_some() { self.moved.elapsed() } else { self.began.elapsed() }
    }

    /// The same as far as it is known and longer than usual; zero while the pause is a usual one, None before the first
    /// step: a rank may print none.
    pub(crate) fn known_still(&self, floor: Duration) -> Option<Duration> {
        self.counters.last()?;
        let still = self.still();
        Some(if still < self.patience(floor) { Duration::ZERO } else { still })
    }

    /// How long a job may print no step before it is examined.
    pub(crate) fn patience(&self, floor: Duration) -> Duration {
        let longest = self.pauses.iter().max().copied().unwrap_or_default();
        stall::patience(self.counters.last().map(|_| longest), floor)
    }
}

/// What the output of an attempt states, as the readers see it. Of a long file its beginning.
pub(crate) fn facts(path: &Path) -> Case {
    let (mut scratch, limits) = (Scratch::default(), Limits::default());
    let mut read = |file: &PathBuf| {
        let name = file.file_name()?.to_string_lossy().into_owned();
        let mut input = File::open(file).ok()?.take(MAX_OUTPUT);
        Some(ringleader_evidence::read(&name, &mut input, &mut scratch, &limits))
    };
    let mut read_all = || {
        let files = ringleader_run::output::files(path);
        ringleader_evidence::merge(files.iter().filter_map(&mut read).collect())
    };
    // A bug of a reader must not end the supervisor.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut read_all)).unwrap_or_default()
}

/// Files of an attempt that are evidence.
pub(crate) fn evidence(path: &Path) -> Vec<PathBuf> {
    let mut files = ringleader_run::output::files(path);
    files.extend(Some(path.join("error.json")).filter(|path| path.is_file()));
    files
}
