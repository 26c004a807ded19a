//! Native deaths: faulthandler's report, C++ `terminate`, and what shell, scheduler and MPI say of a killed process.
//!
//! ```text
//! Fatal Python error: Segmentation fault
//!
//! Current thread 0x00007fe85c801300 (most recent call first):
//!   File "/usr/lib/python3.12/ctypes/__init__.py", line 525 in string_at
//! ```
//! Written by CPython `Python/pylifecycle.c` and `Python/traceback.c`. It names no rank, and reports of two processes
//! may run into each other.

use ringleader_model::{Frame, Pid, Rank, ThreadStack, Who};

use super::scan::{after, between, clip, digits};

/// Threads and frames kept of one report.
const MAX_THREADS: usize = 1_024;
const MAX_FRAMES: usize = 512;

/// A report of faulthandler, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct CrashReport {
    pub(super) reason: Box<str>,
    pub(super) threads: Vec<ThreadStack>,
    /// Inside a C stack trace (3.14), which is left out.
    native: bool,
}

/// What a line was to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashLine {
    /// Part of it.
    Part,
    /// Its last line.
    Last,
    /// Something else.
    Foreign,
}

/// `Fatal Python error: Aborted`, also after somebody's unfinished line.
pub(super) fn begins(text: &str) -> Option<CrashReport> {
    let reason = after(text, "Fatal Python error: ")?;
    Some(CrashReport { reason: clip(reason.trim(), 300).into(), ..CrashReport::default() })
}

impl CrashReport {
    /// Offers a line.
    pub(super) fn feed(&mut self, text: &str) -> CrashLine {
        let bare = text.trim();
        if bare.starts_with("Extension modules:") {
            return CrashLine::Last;
        }
        if bare.is_empty()
            || bare.starts_with("<no Python frame>")
            || bare == "..."
            || bare.starts_with("Garbage-collecting")
        {
            return CrashLine::Part;
        }
        if bare.contains("C stack trace (most recent call first)") {
            self.native = true;
            return CrashLine::Part;
        }
        if let Some(thread) = thread_line(bare) {
            self.native = false;
            if self.threads.len() < MAX_THREADS {
                self.threads.push(thread);
            }
            return CrashLine::Part;
        }
        if self.native && (bare.starts_with("Binary file ") || bare.starts_with("<cannot get C stack")) {
            return CrashLine::Part;
        }
        let Some(frame) = frame(text) else { return CrashLine::Foreign };
        if let Some(thread) = self.threads.last_mut()
            && thread.frames.len() < MAX_FRAMES
        {
            thread.frames.push(frame);
        }
        CrashLine::Part
    }
}

/// `Thread 0x00007f0e45ca66c0 (most recent call first):`, `Current thread 0x… [python3] (most recent call first):`.
fn thread_line(text: &str) -> Option<ThreadStack> {
    let (current, rest) = match text.strip_prefix("Current thread 0x") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("Thread 0x")?),
    };
    let (tid, rest) = rest.split_once(' ')?;
    rest.contains("most recent call first").then_some(())?;
    Some(ThreadStack {
        tid: u64::from_str_radix(tid, 16).ok(),
        name: between(rest, "[", "]").filter(|n| !n.is_empty()).map(Into::into),
        current,
        ..ThreadStack::default()
    })
}

/// `  File "/srv/train/train.py", line 65 in sync_grads`, also torn before its quote.
fn frame(text: &str) -> Option<Frame> {
    let (before, rest) = text.split_once("\", line ")?;
    let (_, file) = before.rsplit_once('"')?;
    let (line, rest) = digits(rest);
    let function = rest.strip_prefix(" in ")?.trim_end();
    Some(Frame {
        function: clip(function, 512).into(),
        file: clip(file, 1_024).into(),
        line: line.parse().ok()?,
    })
}

/// The signal that a reason names.
pub(super) fn signal(reason: &str) -> Option<u32> {
    const NAMES: [(&str, u32); 16] = [
        ("Segmentation fault", 11),
        ("segmentation fault", 11),
        ("SIGSEGV", 11),
        ("Aborted", 6),
        ("SIGABRT", 6),
        ("terminate called", 6),
        ("Bus error", 7),
        ("SIGBUS", 7),
        ("Floating point exception", 8),
        ("Floating-point exception", 8),
        ("SIGFPE", 8),
        ("Illegal instruction", 4),
        ("SIGILL", 4),
        ("Killed", 9),
        ("Out Of Memory", 9),
        ("oom_kill", 9),
    ];
    NAMES.iter().find(|(name, _)| reason.contains(name)).map(|(_, number)| *number)
}

/// What a shell says, alone or with the command before or after it.
const SHELL: [&str; 5] = ["Segmentation fault", "Bus error", "Aborted", "Killed", "Floating point exception"];

/// A native crash reported in one line: its reason and the process.
pub(super) fn one_line(text: &str) -> Option<(&str, Who)> {
    let bare = text.trim();
    let nobody = || Who::default();
    for words in SHELL {
        if bare == words || (bare.starts_with(words) && bare.contains("(core dumped)")) {
            return Some((bare, nobody()));
        }
        // `./train.sh: line 3: 4711 Killed                  python train.py`
        if let Some((before, _)) = bare.split_once(words)
            && let Some((_, number)) = before.split_once(": line ")
            && let Some((_, pid)) = number.split_once(": ")
            && let (figures, "") = digits(pid.trim())
            && !figures.is_empty()
        {
            return Some((bare, Who { pid: figures.parse().ok().map(Pid), ..nobody() }));
        }
    }
    if bare.starts_with("*** SIG") || bare.starts_with("*** Process received signal ***") {
        return Some((bare, nobody()));
    }
    if let Some(rest) = bare.strip_prefix("srun: error: ") {
        // `node1: task 3: Out Of Memory`, `node1: tasks 0-3: Killed`
        let (host, rest) = rest.split_once(": ")?;
        let (tasks, reason) = rest.strip_prefix("task")?.split_once(": ")?;
        signal(reason)?;
        let rank = tasks.trim().parse().ok().map(Rank);
        return Some((bare, Who { rank, host: Some(short_host(host)), ..nobody() }));
    }
    if bare.starts_with("slurmstepd: error: ") && (bare.contains("oom_kill") || bare.contains("oom-kill")) {
        return Some((bare, nobody()));
    }
    if bare.contains(" noticed that process rank ") && bare.contains(" exited on signal ") {
        let rank = after(bare, "process rank ").and_then(|t| digits(t).0.parse().ok()).map(Rank);
        let pid = after(bare, "with PID ").and_then(|t| digits(t).0.parse().ok()).map(Pid);
        let host = between(bare, " on node ", " ").map(short_host);
        return Some((bare, Who { rank, pid, host, ..nobody() }));
    }
    None
}

/// A host up to its first dot; an address whole.
pub(super) fn short_host(name: &str) -> ringleader_model::Host {
    let is_address = name.contains(':') || name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match name.split_once('.') {
        Some((short, _)) if !is_address => short.into(),
        _ => name.into(),
    }
}
