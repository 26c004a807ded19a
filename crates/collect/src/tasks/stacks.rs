//! Python stacks of a running process by py-spy, as a library, without stopping the process: its memory is read while
//! it goes on. A read may therefore be torn; it is then tried again. Printed as `py-spy dump` prints, whose form the
//! reader of stacks knows. Arguments and locals of functions are never read.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};

use crate::probes::Trouble;
use crate::procfs::status;
use crate::request::Request;
use crate::sysfs::text;

/// A torn read is rare, two in a row rarer.
const TRIES: u32 = 5;
/// CAP_SYS_PTRACE, capability(7).
const SYS_PTRACE: u32 = 19;

pub(super) fn take(request: &Request) -> Result<String, Trouble> {
    let pid = request.pid()?;
    if !is_python(pid) {
        return Err(Trouble::Absent("it is no Python process".to_owned()));
    }
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let mut last = String::new();
    for n in 0..TRIES {
        thread::sleep(Duration::from_millis(u64::from(n) * 40));
        match read(pid, &config) {
            Ok((version, traces)) if traces.iter().any(|trace| !trace.frames.is_empty()) => {
                return Ok(print(pid, request.known_pid, &version, &traces));
            }
            Ok(_) => "no thread has a Python frame".clone_into(&mut last),
            Err(error) => last = error,
        }
    }
    Err(Trouble::Failed(explain(&last)))
}

fn read(pid: u32, config: &Config) -> Result<(String, Vec<StackTrace>), String> {
    // The error's type is a crate's of its own; its words are all that is wanted.
    let words = |error: &dyn std::fmt::Display| format!("{error:#}");
    let id = py_spy::Pid::try_from(pid).map_err(|error| words(&error))?;
    let mut spy = PythonSpy::new(id, config).map_err(|error| format!("{error:#}"))?;
    let traces = spy.get_stack_traces().map_err(|error| format!("{error:#}"))?;
    Ok((spy.version.to_string(), traces))
}

/// Only the name of the program: a command line may hold secrets.
fn print(pid: u32, known: Option<u32>, version: &str, traces: &[StackTrace]) -> String {
    let at = Path::new("/proc").join(pid.to_string());
    let facts = text(&at.join("status")).unwrap_or_default();
    let inner = status(&facts, "NSpid").and_then(|list| list.split_whitespace().last()).unwrap_or_default();
    let own = if inner.is_empty() { pid.to_string() } else { inner.to_owned() };
    let shown = known.map_or(own, |known| known.to_string());
    let program = fs::read_link(at.join("exe")).map_or_else(|_| String::new(), |p| p.display().to_string());
    let mut out = format!(
        "Process {shown}: {}\nPython v{version} ({program})\n\n",
        status(&facts, "Name").unwrap_or("python")
    );
    // The library lists the newest thread first; the main one is the oldest.
    for trace in traces.iter().rev() {
        let id = trace.os_thread_id.map_or_else(|| format!("{:#X}", trace.thread_id), |tid| tid.to_string());
        let name = trace.thread_name.as_ref().map_or_else(String::new, |name| format!(": \"{name}\""));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "Thread {id} ({}){name}", trace.status_str());
        for frame in &trace.frames {
            let file = frame.short_filename.as_ref().unwrap_or(&frame.filename);
            let _ = if frame.line > 0 {
                writeln!(out, "    {} ({file}:{})", frame.name, frame.line)
            } else {
                writeln!(out, "    {} ({file})", frame.name)
            };
        }
    }
    out
}

/// Its program or a library it has loaded is Python.
fn is_python(pid: u32) -> bool {
    let at = Path::new("/proc").join(pid.to_string());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let exe = fs::read_link(at.join("exe")).ok().and_then(|path| name(&path));
    exe.is_some_and(|exe| exe.contains("python"))
        || text(&at.join("maps")).is_none_or(|maps| maps.contains("libpython"))
}

/// Names what was not allowed, and who could allow it.
fn explain(error: &str) -> String {
    let lower = error.to_ascii_lowercase();
    if !["permission denied", "not permitted", "eperm", "eacces"].iter().any(|word| lower.contains(word)) {
        return error.to_owned();
    }
    let own = text(Path::new("/proc/self/status")).unwrap_or_default();
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
