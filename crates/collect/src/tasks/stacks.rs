//! Python stacks of a running process by py-spy, as a library, without stopping the process: its memory is read while
//! it goes on. A read may therefore be torn; it is then tried again. Printed as `py-spy dump --native` prints, whose form
//! the reader of stacks knows. Arguments and locals of functions are never read.
//!
//! Native frames are below and between Python's where a thread is blocked (`native`); threads without Python have
//! theirs alone. They come from a thread of this process: what hangs there costs them and not Python's.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};

use crate::native::{Thread, ThreadsLook};
use crate::procfs::status;
use crate::request::{ReadingError, Request};
use crate::sysfs::text;

/// A torn read is rare, two in a row rarer.
const TRIES: u32 = 5;
/// CAP_SYS_PTRACE, capability(7).
const SYS_PTRACE: u32 = 19;
/// For the native frames of one process; some dozens of milliseconds are usual.
const NATIVE: Duration = Duration::from_millis(1_500);
/// What is kept of the deadline for the answer.
const RESERVE: Duration = Duration::from_millis(500);

/// What py-spy reads, and the look at the threads that was taken right before.
struct Read {
    version: String,
    traces: Vec<StackTrace>,
    look: Option<io::Result<ThreadsLook>>,
}

/// Native frames of a process's threads, and how many threads were left out.
type Native = Result<(Vec<Thread>, usize), String>;

pub(super) fn take(request: &Request) -> Result<String, ReadingError> {
    let began = Instant::now();
    let pid = request.pid()?;
    let mut head = StackHead::new(pid, request.known_pid);
    if !is_python(pid) {
        let none = "it is not a Python process";
        if !request.native_frames {
            return Err(ReadingError::Absent(none.to_owned()));
        }
        let look = ThreadsLook::take(&request.roots.proc, pid, &BTreeSet::new());
        let native = native(Some(look), request, began).unwrap_or_else(|| Ok((Vec::new(), 0)));
        let (threads, n_left_out) = native.map_err(|error| ReadingError::Failed(explain(&error)))?;
        if threads.iter().all(|thread| thread.frames.is_empty()) {
            return Err(ReadingError::Absent(format!("{none}, and no thread of it is blocked")));
        }
        return Ok(head.print(&[], Some(&Ok((threads, n_left_out)))));
    }
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let mut last = String::new();
    let mut look = None;
    for n in 0..TRIES {
        thread::sleep(Duration::from_millis(u64::from(n) * 40));
        match read(request, pid, &config) {
            Ok(read) if read.traces.iter().any(|trace| !trace.frames.is_empty()) => {
                head.python = Some(read.version);
                let native = native(read.look, request, began);
                return Ok(head.print(&read.traces, native.as_ref()));
            }
            Ok(read) => {
                "no thread has a Python frame".clone_into(&mut last);
                look = read.look;
            }
            Err(error) => last = error,
        }
    }
    // Native frames may still be reported, as for a process that is about to end.
    if request.native_frames && !is_forbidden(&last) {
        let look = look.unwrap_or_else(|| ThreadsLook::take(&request.roots.proc, pid, &BTreeSet::new()));
        if let Some(Ok((threads, n_left_out))) = native(Some(look), request, began)
            && threads.iter().any(|thread| !thread.frames.is_empty())
        {
            head.why_no_python = Some(last);
            return Ok(head.print(&[], Some(&Ok((threads, n_left_out)))));
        }
    }
    Err(ReadingError::Failed(explain(&last)))
}

fn read(request: &Request, pid: u32, config: &Config) -> Result<Read, String> {
    // The error's type is a crate's of its own; its words are all that is wanted.
    let words = |error: &dyn std::fmt::Display| format!("{error:#}");
    let id = py_spy::Pid::try_from(pid).map_err(|error| words(&error))?;
    let mut spy = PythonSpy::new(id, config).map_err(|error| format!("{error:#}"))?;
    let look = request.native_frames.then(|| ThreadsLook::take(&request.roots.proc, pid, &BTreeSet::new()));
    let traces = spy.get_stack_traces().map_err(|error| format!("{error:#}"))?;
    Ok(Read { version: spy.version.to_string(), traces, look })
}

/// Native frames, if they were asked for. A page or a file that does not come costs them alone.
fn native(look: Option<io::Result<ThreadsLook>>, request: &Request, began: Instant) -> Option<Native> {
    let look = match look? {
        Ok(look) => look,
        Err(error) => return Some(Err(error.to_string())),
    };
    let deadline = match request.deadline_ms {
        0 => NATIVE,
        limit => {
            Duration::from_millis(limit).saturating_sub(began.elapsed()).saturating_sub(RESERVE).min(NATIVE)
        }
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(look.frames(Instant::now() + deadline));
    });
    let late = || format!("they were not available within {} ms", (deadline + RESERVE / 2).as_millis());
    let frames = receiver.recv_timeout(deadline + RESERVE / 2).map_err(|_| late());
    Some(frames.and_then(|frames| frames.map_err(|error| error.to_string())))
}

/// What precedes the threads. Only the name of the program: a command line may hold secrets.
struct StackHead {
    shown_pid: String,
    pid: u32,
    name: String,
    program: String,
    python: Option<String>,
    why_no_python: Option<String>,
}

impl StackHead {
    fn new(pid: u32, known: Option<u32>) -> Self {
        let at = Path::new("/proc").join(pid.to_string());
        let facts = text(&at.join("status")).unwrap_or_default();
        let inner =
            status(&facts, "NSpid").and_then(|list| list.split_whitespace().last()).unwrap_or_default();
        let own = if inner.is_empty() { pid.to_string() } else { inner.to_owned() };
        Self {
            shown_pid: known.map_or(own, |known| known.to_string()),
            pid,
            name: name_of(pid),
            program: fs::read_link(at.join("exe"))
                .map_or_else(|_| String::new(), |p| p.display().to_string()),
            python: None,
            why_no_python: None,
        }
    }

    fn print(&self, traces: &[StackTrace], native: Option<&Native>) -> String {
        let mut out = format!("Process {}: {}\n", self.shown_pid, self.name);
        // Writing to a String cannot fail.
        let _ = match (&self.python, &self.why_no_python) {
            (Some(version), _) => writeln!(out, "Python v{version} ({})\n", self.program),
            (None, Some(why)) => writeln!(out, "No Python frames: {why}\n"),
            (None, None) => writeln!(out),
        };
        let (threads, n_left_out): (&[Thread], usize) = match native {
            Some(Ok((threads, n_left_out))) => (threads, *n_left_out),
            _ => (&[], 0),
        };
        let mut met = BTreeSet::new();
        // The library lists the newest thread first; the main one is the oldest.
        for trace in traces.iter().rev() {
            let id =
                trace.os_thread_id.map_or_else(|| format!("{:#X}", trace.thread_id), |tid| tid.to_string());
            let name = trace.thread_name.as_ref().map_or_else(String::new, |name| format!(": \"{name}\""));
            let _ = writeln!(out, "Thread {id} ({}){name}", trace.status_str());
            let of_it = threads.iter().find(|thread| match trace.os_thread_id {
                Some(tid) => u64::from(thread.own_tid) == tid,
                // Before Python 3.11 threads do not tell their numbers.
                None => thread.tid == self.pid && trace.thread_name.as_deref() == Some("MainThread"),
            });
            let python: Vec<Python> = trace.frames.iter().map(Python::new).collect();
            let (lines, why) = merged(&python, of_it);
            for line in lines {
                let _ = writeln!(out, "    {line}");
            }
            if let Some(why) = why {
                let _ = writeln!(out, "        native frames: {why}");
            }
            met.extend(of_it.map(|thread| thread.tid));
        }
        for thread in threads.iter().filter(|thread| !met.contains(&thread.tid)) {
            let id = if thread.tid == self.pid { &self.shown_pid } else { &thread.own_tid.to_string() };
            let activity = if thread.frames.is_empty() { "active" } else { "idle" };
            let name: String = thread.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            let _ = writeln!(out, "Thread {id} ({activity}): \"{name}\"");
            for frame in &thread.frames {
                let _ = writeln!(out, "    {} ({})", frame.function, frame.file);
            }
            if let Some(why) = &thread.why {
                let _ = writeln!(out, "        native frames: {why}");
            }
        }
        if n_left_out > 0 {
            let _ = writeln!(out, "{n_left_out} more threads were not examined for native frames");
        }
        if let Some(Err(why)) = native {
            let _ = writeln!(out, "No native frames: {}", explain(why));
        }
        out
    }
}

/// A frame of Python's as it is printed.
struct Python {
    line: String,
    /// The interpreter's loop was entered again for it.
    is_entry: bool,
}

impl Python {
    fn new(frame: &py_spy::Frame) -> Self {
        let file = frame.short_filename.as_ref().unwrap_or(&frame.filename);
        let line = if frame.line > 0 {
            format!("{} ({file}:{})", frame.name, frame.line)
        } else {
            format!("{} ({file})", frame.name)
        };
        Self { line, is_entry: frame.is_entry || frame.is_shim_entry }
    }
}

/// Python's frames with the native ones where they belong, the innermost first; and what is to be said of the latter.
///
/// Each native frame of the interpreter's loop represents Python's frames up to where the loop was entered. What the
/// interpreter does between is left out; what it does innermost shows what the thread waits for, and stays.
fn merged(python: &[Python], native: Option<&Thread>) -> (Vec<String>, Option<String>) {
    let all = || python.iter().map(|frame| frame.line.clone());
    let Some(thread) = native else { return (all().collect(), None) };
    if python.is_empty() || thread.frames.is_empty() {
        let own = thread.frames.iter().map(|frame| format!("{} ({})", frame.function, frame.file));
        return (all().chain(own).collect(), thread.why.clone());
    }
    if !thread.is_still {
        return (all().collect(), Some("it moved between the reads of Python and native frames".to_owned()));
    }
    let own = |frame: &crate::native::NativeFrame| format!("{} ({})", frame.function, frame.file);
    let mut lines: Vec<String> = Vec::new();
    let mut rest = python;
    let mut is_known = false;
    for frame in &thread.frames {
        if frame.is_evaluation() {
            let n = rest.iter().position(|frame| frame.is_entry).map_or(rest.len(), |at| at + 1);
            lines.extend(rest.iter().take(n).map(|frame| frame.line.clone()));
            rest = rest.get(n..).unwrap_or_default();
            is_known = true;
        } else if !is_known || !frame.is_interpreter() && !rest.is_empty() {
            lines.push(own(frame));
        }
    }
    // Not all of Python's: cut before, or an interpreter that enters its loop in another way. Then only what is innermost
    // of all is sure.
    if !rest.is_empty() && (thread.is_whole || !is_known) {
        let inner = thread.frames.iter().take_while(|frame| !frame.is_evaluation());
        let n = if is_known {
            usize::MAX
        } else {
            thread.frames.iter().take_while(|f| !f.is_interpreter()).count() + 1
        };
        return (inner.take(n).map(own).chain(all()).collect(), thread.why.clone());
    }
    lines.extend(rest.iter().map(|frame| frame.line.clone()));
    (lines, thread.why.clone())
}

/// Name of its program alone: a command line may hold secrets.
pub(super) fn name_of(pid: u32) -> String {
    let facts = text(&Path::new("/proc").join(pid.to_string()).join("status")).unwrap_or_default();
    status(&facts, "Name").unwrap_or("python").to_owned()
}

/// Its program or a library it has loaded is Python.
fn is_python(pid: u32) -> bool {
    let at = Path::new("/proc").join(pid.to_string());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let exe = fs::read_link(at.join("exe")).ok().and_then(|path| name(&path));
    exe.is_some_and(|exe| exe.contains("python"))
        || text(&at.join("maps")).is_none_or(|maps| maps.contains("libpython"))
}

fn is_forbidden(error: &str) -> bool {
    let lower = error.to_ascii_lowercase();
    ["permission denied", "not permitted", "eperm", "eacces"].iter().any(|word| lower.contains(word))
}

/// Names what was not allowed, and who could allow it.
pub(super) fn explain(error: &str) -> String {
    if !is_forbidden(error) {
        return error.to_owned();
    }
    let own = text(Path::new("/proc/thread-self/status")).unwrap_or_default();
    let mask = status(&own, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let has = mask & (1 << SYS_PTRACE) != 0;
    let scope = text(Path::new("/proc/sys/kernel/yama/ptrace_scope"));
    let mut why = format!("{error}; reading its memory ");
    if has {
        why.push_str(
            "is refused although CAP_SYS_PTRACE is there: a seccomp profile or another user namespace",
        );
    } else {
        why.push_str(
            "needs CAP_SYS_PTRACE, which is missing: run as root; in a container add it (docker run --cap-add \
             SYS_PTRACE; Kubernetes: securityContext.capabilities.add: [SYS_PTRACE])",
        );
    }
    if let Some(scope) = scope.filter(|scope| scope != "0") {
        let _ = write!(why, "; kernel.yama.ptrace_scope is {scope}");
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_named_and_other_errors_are_left() {
        assert_eq!(explain("no such process"), "no such process");
        assert!(explain("failed to read: Operation not permitted (os error 1)").contains("CAP_SYS_PTRACE"));
    }
}
