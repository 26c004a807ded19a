//! The preflight check of the node before each attempt: `check --quick`, and a command of the site.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_run::policy::Preflight;

use crate::exit::Code;

/// A preflight check in progress.
pub(crate) struct Examination {
    answer: Receiver<Result<(), String>>,
    pub(crate) generation: u64,
}

impl Examination {
    pub(crate) fn begin(wanted: Preflight, generation: u64) -> Self {
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            // The supervisor may have ended.
            let _ = sender.send(examine(&wanted));
        });
        Self { answer, generation }
    }

    /// The result, once there is one: why the node cannot join.
    pub(crate) fn taken(&self) -> Option<Result<(), String>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => {
                Some(Err("the preflight check was interrupted".to_owned()))
            }
        }
    }
}

fn examine(wanted: &Preflight) -> Result<(), String> {
    if wanted.check {
        let words = ["check", "--quick", "--for", "prolog", "--quiet", "--color", "never"];
        let argv = crate::run::own(&words).map_err(|failure| failure.message())?;
        let mut command = Command::new(argv.first().cloned().unwrap_or_default());
        command.args(argv.get(1..).unwrap_or_default());
        match within(command, wanted.within) {
            Ended::Code(code, said) if code == Code::Findings as i32 => {
                return Err(format!("check --quick: {}", last_lines(&said)));
            }
            // An error of the check itself says nothing about the node.
            Ended::Code(..) | Ended::Failed(_) => {}
            Ended::Late => return Err(format!("check --quick did not end within {:?}", wanted.within)),
        }
    }
    if let Some(line) = &wanted.command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        match within(command, wanted.within) {
            Ended::Code(0, _) => {}
            Ended::Code(code, said) => {
                return Err(format!("`{line}` ended with {code}: {}", last_lines(&said)));
            }
            Ended::Late => return Err(format!("`{line}` did not end within {:?}", wanted.within)),
            Ended::Failed(why) => return Err(format!("`{line}`: {why}")),
        }
    }
    Ok(())
}

enum Ended {
    Code(i32, String),
    Late,
    Failed(String),
}

/// Runs a command with a deadline; afterwards kills everything that it started.
fn within(mut command: Command, limit: Duration) -> Ended {
    let spawned =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Ended::Failed(error.to_string()),
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
                return Ended::Code(status.code().unwrap_or(-1), text.concat());
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
    Ended::Late
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(command: &str) -> Preflight {
        Preflight { check: false, command: Some(command.to_owned()), within: Duration::from_millis(400) }
    }

    #[test]
    fn a_command_of_the_site_decides() {
        assert_eq!(examine(&site("true")), Ok(()));
        let why = examine(&site("echo no link; exit 3")).err().unwrap_or_default();
        assert!(why.contains("ended with 3: no link"), "{why}");
        let why = examine(&site("sleep 60 & sleep 60")).err().unwrap_or_default();
        assert!(why.contains("did not end within"), "{why}");
    }
}
