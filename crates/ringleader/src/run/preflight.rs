//! The preflight check of the node before each attempt: `check --quick`, and a command of the site.

use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use ringleader_run::policy::Preflight;

use crate::exit::Code;
use crate::run::limited::{CommandResult, last_lines, within};

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
            CommandResult::Code(code, said) if code == Code::Findings as i32 => {
                return Err(format!("check --quick: {}", last_lines(&said)));
            }
            // An error of the check itself says nothing about the node.
            CommandResult::Code(..) | CommandResult::Failed(_) => {}
            CommandResult::Late => {
                return Err(format!("check --quick did not end within {:?}", wanted.within));
            }
        }
    }
    if let Some(line) = &wanted.command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        match within(command, wanted.within) {
            CommandResult::Code(0, _) => {}
            CommandResult::Code(code, said) => {
                return Err(format!("`{line}` ended with {code}: {}", last_lines(&said)));
            }
            CommandResult::Late => return Err(format!("`{line}` did not end within {:?}", wanted.within)),
            CommandResult::Failed(why) => return Err(format!("`{line}`: {why}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
