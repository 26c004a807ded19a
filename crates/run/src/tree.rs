//! The processes of the job: all descendants of the holder except the supervisor and its children.
//!
//! The holder is a subreaper, so a process whose parent died becomes its child, in any session or process group.
//! Processes are signalled through a pidfd and only if their start time is unchanged: a reused pid is never signalled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_collect::follow::{self, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Marks the environment of the supervisor and of everything it starts.
pub const MARK: &str = "RINGLEADER_SUPERVISOR";
/// Interval between checks while processes end.
const NAP: Duration = Duration::from_millis(50);
/// How long a killed process may take to disappear: it frees memory or waits for a driver.
const GONE: Duration = Duration::from_secs(5);

/// A process of the job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeProcess {
    /// Its pid.
    pub pid: u32,
    /// Start time, clock ticks since boot.
    pub started_ticks: u64,
    /// Its program name, 15 characters.
    pub command: String,
    /// State letter.
    pub state: String,
}

/// Processes of the job below `holder` that are not zombies. `supervisor` and its descendants are left out.
pub fn members(holder: u32, supervisor: Option<u32>) -> Vec<TreeProcess> {
    let proc = Path::new("/proc");
    let all = follow::processes(proc);
    let mut below = descendants(&all, holder);
    below.remove(&holder);
    if let Some(supervisor) = supervisor {
        for pid in descendants(&all, supervisor) {
            below.remove(&pid);
        }
    }
    // Children of a dead supervisor are the holder's children by now.
    below.retain(|pid| !is_marked(proc, *pid));
    let member = |pid: &u32| {
        let stat = all.get(pid).filter(|stat| !matches!(&*stat.state, "Z" | "X"))?;
        Some(TreeProcess {
            pid: *pid,
            started_ticks: stat.started_ticks,
            command: stat.command.clone(),
            state: stat.state.clone(),
        })
    };
    below.iter().filter_map(member).collect()
}

fn descendants(all: &BTreeMap<u32, Stat>, root: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, stat) in all {
        children.entry(stat.ppid).or_default().push(*pid);
    }
    let (mut found, mut open) = (BTreeSet::from([root]), vec![root]);
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// The kernel shows a program's initial environment, and only to its owner.
fn is_marked(proc: &Path, pid: u32) -> bool {
    let environment = std::fs::read(proc.join(pid.to_string()).join("environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|entry| entry.strip_prefix(MARK.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'=')))
}

/// Sends a signal; false if the process is gone or its pid was reused.
pub fn signal(member: &TreeProcess, signal: Signal) -> bool {
    let Some(pid) = i32::try_from(member.pid).ok().and_then(Pid::from_raw) else { return false };
    let is_same = || {
        follow::process(Path::new("/proc"), member.pid)
            .is_some_and(|stat| stat.started_ticks == member.started_ticks)
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // The descriptor refers to one process: a check after opening shows that it is the right one.
        Ok(descriptor) => is_same() && pidfd_send_signal(&descriptor, signal).is_ok(),
        // Linux before 5.3 has no pidfd.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            is_same() && rustix::process::kill_process(pid, signal).is_ok()
        }
        Err(_) => false,
    }
}

/// Ends the processes that `list` returns: SIGTERM, then SIGKILL after `grace`. Returns those that remain: they wait
/// for a driver or a disk.
pub fn end(mut list: impl FnMut() -> Vec<TreeProcess>, grace: Duration) -> Vec<TreeProcess> {
    let begun = Instant::now();
    let mut asked: BTreeSet<(u32, u64)> = BTreeSet::new();
    loop {
        let left = list();
        if left.is_empty() {
            return left;
        }
        let is_late = begun.elapsed() >= grace;
        for member in &left {
            if is_late {
                signal(member, Signal::KILL);
            } else if asked.insert((member.pid, member.started_ticks)) {
                signal(member, Signal::TERM);
                // A stopped process exits once it runs again.
                if member.state == "T" {
                    signal(member, Signal::CONT);
                }
            }
        }
        if begun.elapsed() >= grace + GONE {
            return list();
        }
        thread::sleep(NAP);
    }
}
