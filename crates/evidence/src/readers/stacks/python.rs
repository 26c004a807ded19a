//! py-spy (`py-spy dump --pid N`, py-spy: `src/dump.rs`) and faulthandler on request (CPython:
//! `Python/traceback.c`).
//!
//! ```text
//! Process 1347: python3 -u train.py
//! Python v3.12.3 (/usr/bin/python3.12)
//!
//! Thread 1347 (active+gil): "MainThread"
//!     synchronize (torch/cuda/__init__.py:1162)
//!         Locals:
//!             self: <Stream …>
//! Thread 1390 (idle)
//! ```
//! ```text
//! Thread 0x00007f2f41ffb640 (most recent call first):
//!   File "/usr/lib/python3.12/threading.py", line 355 in wait
//! ```

use ringleader_model::{Frame, Pid, Rank, StackTool, ThreadStack};

use super::{CRASH_LINES, StackReader};
use crate::ground::{Line, Sink};

/// The rank in the title that SGLang gives its worker, `sglang::scheduler_TP3`, as its log names no process: with stages or replicas
/// beside it the number is that of a group.
fn rank_of_title(title: &str) -> Option<Rank> {
    let name = title.strip_prefix("sglang::")?;
    let (_, rest) = name.split_once("_TP")?;
    let (number, other) = rest.split_once("_EP").map_or((rest, None), |(n, other)| (n, Some(other)));
    let rank: u32 = number.parse().ok()?;
    let is_alone = !["_DP", "_PP"].iter().any(|part| name.contains(part));
    (is_alone && other.is_none_or(|other| other.parse() == Ok(rank))).then_some(Rank(rank))
}

impl StackReader {
    pub(super) fn python(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if body.starts_with("Thread ") || body.starts_with("Current thread ") {
            return self.python_thread(body, line, sink);
        }
        if let Some(rest) = body.strip_prefix("Process ") {
            let Some((pid, command)) =
                rest.split_once(':').and_then(|(p, c)| Some((p.parse().ok()?, c.trim())))
            else {
                return false;
            };
            let open = self.begin(StackTool::PySpy, line, sink);
            open.fact.pid = Some(Pid(pid));
            open.who.rank = open.who.rank.or_else(|| rank_of_title(command));
            open.fact.command = (!command.is_empty()).then(|| command.into());
            open.took(line, sink);
            // Others may know the line too: what follows shows whether it begins a dump.
            return false;
        }
        if body.starts_with("Timeout (") && body.ends_with(")!") {
            self.close(sink);
            return true;
        }
        if let Some(failure) = failure_of(body) {
            let open = self.begin(StackTool::PySpy, line, sink);
            open.fact.failure = Some(failure.into());
            open.took(line, sink);
            return true;
        }
        let Some(open) = &mut self.open else { return false };
        match open.fact.tool {
            StackTool::PySpy => {
                let is_ours = if let Some(reason) = body.strip_prefix("Reason: ") {
                    match &mut open.fact.failure {
                        Some(failure) => *failure = format!("{failure}: {reason}").into(),
                        None => return false,
                    }
                    true
                } else if let Some(frame) = body.strip_prefix("    ").filter(|_| open.in_thread) {
                    // Deeper: arguments and locals, which may hold anything.
                    if !frame.starts_with(' ') {
                        let Some(frame) = pyspy_frame(frame) else { return false };
                        open.frame(frame);
                    }
                    true
                } else if let Some(frame) = narrow_frame(body).filter(|_| open.in_thread) {
                    open.frame(frame);
                    true
                } else {
                    open.fact.threads.is_empty()
                        && ((body.starts_with("Python v") && body.ends_with(')'))
                            || body.starts_with("Parent Process "))
                };
                if is_ours {
                    open.took(line, sink);
                }
                is_ours
            }
            StackTool::Faulthandler => {
                let Some(inner) = body.strip_prefix("  ").filter(|_| open.in_thread) else { return false };
                if let Some(frame) = file_line_frame(inner) {
                    open.frame(frame);
                } else if !matches!(inner, "..." | "<no Python frame>") {
                    return false;
                }
                open.took(line, sink);
                true
            }
            StackTool::Gdb | StackTool::Kernel => false,
        }
    }

    fn python_thread(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some((head, current)) = faulthandler_head(body) {
            if line.number < self.crash_until {
                self.crash_until = line.number.saturating_add(CRASH_LINES);
                self.close(sink);
                return false;
            }
            // A second dump of the same process names its threads again.
            let is_again =
                self.open.as_ref().is_some_and(|o| o.fact.threads.iter().any(|t| t.tid == head.tid));
            if is_again {
                self.close(sink);
            }
            let open = self.open_of(StackTool::Faulthandler, line, sink);
            open.thread(ThreadStack { current, ..head });
            open.took(line, sink);
            return true;
        }
        let Some(thread) = pyspy_head(body) else { return false };
        // A process has one main thread: the next one is of the next process.
        let is_main = |t: &ThreadStack| t.name.as_deref() == Some(MAIN);
        if is_main(&thread) && self.open.as_ref().is_some_and(|o| o.fact.threads.iter().any(is_main)) {
            self.close(sink);
        }
        let pid = Some(&thread).filter(|t| is_main(t)).and_then(|t| pid_of_main(t.tid?));
        let open = self.open_of(StackTool::PySpy, line, sink);
        open.fact.pid = open.fact.pid.or(pid);
        open.thread(thread);
        open.took(line, sink);
        true
    }
}

/// Name of the thread in which Python runs the program.
pub(super) const MAIN: &str = "MainThread";

/// The process of a main thread: Linux gives both one number. Numbers in hexadecimal are addresses.
fn pid_of_main(tid: u64) -> Option<Pid> {
    /// Linux counts no further.
    const MOST: u64 = 1 << 22;
    u32::try_from(tid).ok().filter(|_| tid > 0 && tid <= MOST).map(Pid)
}

/// `  backward (torch/tensor.py:102)`, as py-spy 0.1 indents frames: only with a line of a file.
fn narrow_frame(body: &str) -> Option<Frame> {
    let frame = body.strip_prefix("  ").filter(|frame| !frame.starts_with(' '))?;
    pyspy_frame(frame).filter(|frame| frame.line > 0)
}

/// `Thread 1347 (active+gil): "MainThread"`; other systems print the id in hexadecimal.
fn pyspy_head(body: &str) -> Option<ThreadStack> {
    let (id, rest) = body.strip_prefix("Thread ")?.split_once(" (")?;
    let (status, name) = rest.split_once(')')?;
    let name = match name {
        "" => None,
        _ => Some(name.strip_prefix(": ")?.trim_matches('"').into()),
    };
    let (activity, gil) = status.split_once('+').unwrap_or((status, ""));
    let active = match activity {
        "active" => Some(true),
        "idle" => Some(false),
        "gil" => None,
        _ => return None,
    };
    let tid = thread_id(id)?;
    Some(ThreadStack {
        tid: Some(tid),
        name,
        active,
        holds_gil: gil == "gil" || activity == "gil",
        ..ThreadStack::default()
    })
}

fn thread_id(id: &str) -> Option<u64> {
    match id.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => id.parse().ok(),
    }
}

/// `    synchronize (torch/cuda/__init__.py:1162)`, without a line for native code: `    ncclAllReduce (libnccl.so.2)`.
pub(super) fn pyspy_frame(body: &str) -> Option<Frame> {
    let (function, place) = body.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = match place.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => (file, line),
        _ => (place, 0),
    };
    Some(Frame { function: function.into(), file: file.into(), line })
}

/// `Thread 0x00007f2f41ffb640 [name] (most recent call first):` and whether it is the `Current thread`.
fn faulthandler_head(body: &str) -> Option<(ThreadStack, bool)> {
    let rest = body.trim_end().strip_suffix(" (most recent call first):")?;
    let (current, rest) = match rest.strip_prefix("Current thread ") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix("Thread ")?),
    };
    let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).map(Into::into);
    Some((ThreadStack { tid: Some(thread_id(id)?), name, ..ThreadStack::default() }, current))
}

/// `File "/srv/train/train.py", line 208 in plain_job`
fn file_line_frame(inner: &str) -> Option<Frame> {
    let (file, rest) = inner.strip_prefix("File \"")?.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(Frame { function: function.into(), file: file.into(), line: line.parse().unwrap_or(0) })
}

/// What tools say when they cannot take a stack, and nothing else says.
fn failure_of(body: &str) -> Option<&str> {
    let body = body.trim_end();
    let known = match body.strip_prefix("Error: ") {
        Some(error) => [
            "stack trace",
            "python version from target process",
            "process executable name",
            "PyInterpreterState",
            "PyThreadState",
            "_PyRuntime",
            "python interpreter",
            "to suspend process",
        ]
        .iter()
        .any(|words| error.contains(words)),
        None => {
            body.strip_prefix("process is stopped").is_some_and(|r| r.is_empty() || r.starts_with(" (T"))
                || body.starts_with("Permission Denied: Try running again with elevated permissions")
                || body.starts_with("ptrace: Operation not permitted")
                || body.starts_with("Could not attach to process.")
                || (body.starts_with("warning: process ") && body.contains(" is already traced by process "))
        }
    };
    known.then_some(body)
}

#[cfg(test)]
mod tests {
    use super::rank_of_title;

    #[test]
    fn titles_of_workers() {
        for (title, expected) in [
            ("sglang::scheduler_TP2", Some(2)),
            ("sglang::scheduler_TP2_EP2", Some(2)),
            ("sglang::scheduler_DP1_TP0", None),
            ("sglang::scheduler_TP3_EP11", None),
            ("sglang::scheduler_TP2_PP1", None),
            ("sglang::detokenizer", None),
            ("VLLM::Worker_TP3", None),
            ("python train.py --name a::b_TP1", None),
        ] {
            assert_eq!(rank_of_title(title).map(|rank| rank.0), expected, "{title}");
        }
    }
}
