//! Where the threads of a process are, as far as the kernel reports: the main thread, and those that are stopped or in
//! an uninterruptible wait. Nothing is stopped for it.
//!
//! The kernel's stacks follow a heading that the reader of stacks knows: `/proc/4711/task/4712/stack:`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::procfs::Stat;
use crate::request::{ReadingError, Request};
use crate::sysfs::{names, text};

/// Threads of one process that are shown.
const MAX_THREADS: usize = 64;

pub(super) fn take(request: &Request) -> Result<String, ReadingError> {
    let pid = request.pid()?;
    let of = request.roots.proc.join(pid.to_string());
    let tasks = of.join("task");
    let mut out = String::new();
    let mut n_shown = 0;
    for tid in names(&tasks) {
        let at = tasks.join(&tid);
        let Some(stat) = text(&at.join("stat")).and_then(|line| Stat::parse(&line)) else { continue };
        let is_main = tid == pid.to_string();
        if !is_main && !matches!(stat.state.as_str(), "T" | "t" | "D") {
            continue;
        }
        n_shown += 1;
        if n_shown > MAX_THREADS {
            let _ = writeln!(out, "… and more threads like these");
            break;
        }
        // As the job's own evidence calls it: its first thread has the number of the process.
        let known = request.known_pid.unwrap_or(pid);
        let tid = if is_main { known.to_string() } else { tid };
        thread(&mut out, known, &tid, &at, &stat);
    }
    if n_shown == 0 {
        return Err(ReadingError::Absent("it has ended".to_owned()));
    }
    Ok(out)
}

fn thread(out: &mut String, pid: u32, tid: &str, at: &Path, stat: &Stat) {
    let place = text(&at.join("wchan")).filter(|place| !place.is_empty() && place != "0");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "pid {pid} thread {tid} {}: state {} in {}",
        stat.command,
        stat.state,
        place.as_deref().unwrap_or("user code, or unknown")
    );
    match fs::read_to_string(at.join("stack")) {
        Ok(stack) if stack.trim().is_empty() => {}
        Ok(stack) => {
            let _ = writeln!(out, "/proc/{pid}/task/{tid}/stack:\n{}\n", stack.trim_end());
        }
        Err(error) => {
            let _ = writeln!(out, "its stack in the kernel: {error} (only root may read it)");
        }
    }
}
