//! What `check` may do beside looking: run harmless fixes, and end orphans of an earlier job. Nothing of it without
//! being asked, and each with a question or with the pids named by hand.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringleader_check::NodeReport;
use ringleader_node::{Node, Process};
use ringleader_report::quote;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use crate::failure::Failure;

/// Time an ended process has to go away before the report.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks for each harmless fix, and runs those that are wanted.
pub(crate) fn fix(report: &NodeReport) -> Result<(), Failure> {
    let mut fixes: Vec<(&str, &str, &str)> = Vec::new();
    for check in &report.checks {
        for fix in check.fixes.iter().filter(|fix| fix.is_automatic) {
            let Some(command) = &fix.command else { continue };
            if !fixes.iter().any(|(_, _, known)| known == command) {
                fixes.push((&check.id, &fix.text, command));
            }
        }
    }
    if fixes.is_empty() {
        return say("nothing to fix: no failing check has a command that is harmless");
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Nodes {
            why: format!(
                "--fix asks before each of {} commands, and there is no terminal to ask on",
                fixes.len()
            ),
            help: "run it on a terminal, or take the commands from the report",
        });
    }
    for (id, text, command) in fixes {
        say(&format!("{id}: {}\n  {}", quote::plain(text), quote::plain(command)))?;
        if !ask("run it? [y/N] ")? {
            continue;
        }
        let status = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            // Standard output is the report.
            .stdout(io::stderr())
            .status();
        match status {
            Ok(status) if status.success() => say("done")?,
            Ok(status) => say(&format!("it failed: {status}"))?,
            Err(error) => say(&format!("it could not be started: {error}"))?,
        }
    }
    say("check again to see what has changed")
}

/// What became of a process that was to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KillResult {
    /// It got the signal and is gone.
    Gone,
    /// It got the signal and is still there.
    Stays,
    /// It is stopped: the signal waits until it is continued.
    Stopped,
    /// It was left alone: why.
    Refused(String),
}

/// Sends SIGTERM to those of `pids` that `orphans` names in this very snapshot and that belong to the user; and says
/// what became of each.
pub(crate) fn end_orphans(
    node: &Node,
    pids: &[u32],
    orphans: &dyn Fn(&Node) -> Vec<u32>,
    proc: &Path,
) -> Vec<(u32, KillResult)> {
    let named = orphans(node);
    let own = geteuid().as_raw();
    pids.iter().map(|pid| (*pid, end_one(node, *pid, &named, own, proc))).collect()
}

fn end_one(node: &Node, pid: u32, named: &[u32], own: u32, proc: &Path) -> KillResult {
    let refuse = |why: &str| KillResult::Refused(why.to_owned());
    if !named.contains(&pid) {
        return refuse("it is not an orphan of an earlier job now");
    }
    let Some(process) = process(node, pid) else {
        return refuse("it is not among the processes that were read");
    };
    if process.uid != own {
        return KillResult::Refused(format!("it belongs to user {}, and you are {own}", process.uid));
    }
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return refuse("that is not a pid");
    };
    // The handle holds on to one process: from here on the number cannot come to mean another. What it means is looked
    // at once more, since time has passed since the snapshot.
    let handle = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(error) => return KillResult::Refused(format!("no handle on it could be opened: {error}")),
    };
    if command(proc, pid).as_deref() != Some(process.command.as_str()) || owner(proc, pid) != Some(own) {
        return refuse("its pid now belongs to another process");
    }
    if let Err(error) = pidfd_send_signal(&handle, Signal::TERM) {
        return KillResult::Refused(format!("it could not be signalled: {error}"));
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match state(proc, pid) {
            None | Some('Z' | 'X') => return KillResult::Gone,
            Some('T' | 't') => return KillResult::Stopped,
            Some(_) => {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    KillResult::Stays
}

fn process(node: &Node, pid: u32) -> Option<&Process> {
    node.jobs.get()?.processes.iter().find(|process| process.pid == pid)
}

fn command(proc: &Path, pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0.to_owned())
}

fn owner(proc: &Path, pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(proc.join(pid.to_string()).join("status")).ok()?;
    // Real, effective, saved, file system.
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Its state; a zombie has ended, although its parent has not collected its status.
fn state(proc: &Path, pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// What became of them, for the reader.
pub(crate) fn tell(ended: &[(u32, KillResult)]) -> Result<(), Failure> {
    for (pid, what) in ended {
        match what {
            KillResult::Gone => say(&format!("pid {pid}: ended"))?,
            KillResult::Stays => say(&format!(
                "pid {pid}: was asked to end but did not within {} s; look at it with: cat /proc/{pid}/wchan",
                PATIENCE.as_secs()
            ))?,
            KillResult::Stopped => say(&format!(
                "pid {pid}: was asked to end, but is stopped: the signal waits until it is resumed: kill -CONT {pid}"
            ))?,
            KillResult::Refused(why) => say(&format!("pid {pid}: left alone: {why}"))?,
        }
    }
    Ok(())
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stderr().lock(), "{text}").map_err(Failure::Write)
}

fn ask(question: &str) -> Result<bool, Failure> {
    let mut err = io::stderr().lock();
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).map_err(Failure::Write)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::Stdin)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use ringleader_node::{Jobs, Node, Part, Process};
    use rustix::process::geteuid;

    use super::{KillResult, end_orphans};

    fn node(pid: u32, uid: u32, command: &str) -> Node {
        let process = Process { pid, uid, command: command.to_owned(), ..Process::default() };
        Node { jobs: Part::of(Jobs { processes: vec![process], ..Jobs::default() }), ..Node::default() }
    }

    #[test]
    fn only_what_is_an_orphan_now_and_ours_is_ended() {
        let proc = Path::new("/proc");
        let own = geteuid().as_raw();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let all = |_: &Node| vec![pid];
        let none = |_: &Node| Vec::new();
        let refused = |ended: Vec<(u32, KillResult)>| match &ended[0].1 {
            KillResult::Refused(why) => why.clone(),
            other => panic!("{other:?}"),
        };
        let sleep = node(pid, own, "sleep");
        assert!(refused(end_orphans(&sleep, &[pid], &none, proc)).contains("not an orphan"));
        assert!(
            refused(end_orphans(&node(pid, own + 1, "sleep"), &[pid], &all, proc)).contains("belongs to")
        );
        assert!(
            refused(end_orphans(&node(pid, own, "python"), &[pid], &all, proc)).contains("another process")
        );
        assert!(refused(end_orphans(&Node::default(), &[pid], &all, proc)).contains("not among"));
        assert!(child.try_wait().unwrap().is_none(), "nothing was sent so far");
        let handle = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(handle, rustix::process::Signal::STOP).unwrap();
        while super::state(proc, pid) != Some('T') {
            std::thread::yield_now();
        }
        assert_eq!(end_orphans(&sleep, &[pid], &all, proc), [(pid, KillResult::Stopped)]);
        assert!(child.try_wait().unwrap().is_none());
        rustix::process::kill_process(handle, rustix::process::Signal::CONT).unwrap();
        child.wait().unwrap();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let (all, sleep) = (|_: &Node| vec![pid], node(pid, own, "sleep"));
        assert_eq!(end_orphans(&sleep, &[pid], &all, proc), [(pid, KillResult::Gone)]);
        child.wait().unwrap();
    }
}
