//! Commands of others, with a deadline: a test of the site, a call of the scheduler.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How a command ended.
pub(crate) enum CommandResult {
    /// Its exit code, -1 after a signal, and its output.
    Code(i32, String),
    /// It was killed at the deadline.
    Late,
    /// It could not be started.
    Failed(std::io::Error),
}

/// Runs a command with a deadline; afterwards kills everything that it started.
pub(crate) fn within(mut command: Command, limit: Duration) -> CommandResult {
    let spawned =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return CommandResult::Failed(error),
    };
    let (sender, said) = mpsc::channel();
    let streams: Vec<Box<dyn std::io::Read + Send>> = [
        child.stdout.take().map(|out| Box::new(out) as Box<dyn std::io::Read + Send>),
        child.stderr.take().map(|out| Box::new(out) as Box<dyn std::io::Read + Send>),
    ]
    .into_iter()
    .flatten()
    .collect();
    for stream in streams {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut text = String::new();
            // Output that is not text is not quoted.
            let _ = std::io::Read::read_to_string(&mut std::io::Read::take(stream, 64 << 10), &mut text);
            let _ = sender.send(text);
        });
    }
    drop(sender);
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let text: Vec<String> =
                    (0..2).filter_map(|_| said.recv_timeout(Duration::from_millis(300)).ok()).collect();
                return CommandResult::Code(status.code().unwrap_or(-1), text.concat());
            }
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            _ => break,
        }
    }
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Fails only if all of its processes have just ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    thread::spawn(move || child.wait());
    CommandResult::Late
}

/// The last lines of an output, as one.
pub(crate) fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ")
}
