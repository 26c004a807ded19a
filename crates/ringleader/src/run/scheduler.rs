//! Runs the scheduler's commands for an excluded node, in a thread: a scheduler that does not answer must not keep the supervisor
//! from following the job. Whatever comes of them, the job goes on without the node.

use std::io;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringleader_run::site;

use crate::run::limited::{CommandResult, last_lines, within};

/// Deadline of a command. A requeue waits for Slurm's controller up to 20 s.
const LIMIT: Duration = Duration::from_mins(1);

/// Runs the commands one after the other; returns what came of each.
pub(crate) fn call(commands: Vec<site::Command>) -> JoinHandle<Vec<String>> {
    thread::spawn(move || called(commands, LIMIT))
}

fn called(commands: Vec<site::Command>, limit: Duration) -> Vec<String> {
    let (mut said, mut has_failed) = (Vec::new(), false);
    for wanted in commands {
        let line = wanted.argv.join(" ");
        if wanted.needs_previous && has_failed {
            said.push(format!("not run, since the command before it failed: {line}"));
            continue;
        }
        let outcome = run(&wanted, limit);
        has_failed = outcome.is_err();
        said.push(match outcome {
            Ok(()) => format!("{line}: done"),
            Err(why) => format!(
                "{line}: {why}; the job goes on without the node; the command needs: {}",
                wanted.right
            ),
        });
    }
    said
}

fn run(wanted: &site::Command, limit: Duration) -> Result<(), String> {
    let [program, words @ ..] = wanted.argv.as_slice() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(words);
    match within(command, limit) {
        CommandResult::Code(0, said) => match wanted.proof {
            // `kubectl cordon` ends with 0 where it may not cordon.
            Some(proof) if !said.contains(proof) => Err(last_lines(&said)),
            _ => Ok(()),
        },
        CommandResult::Code(code, said) => Err(format!("ended with {code}: {}", last_lines(&said))),
        CommandResult::Late => Err(format!("did not end within {limit:?}")),
        CommandResult::Failed(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("{program} is not in the PATH"))
        }
        CommandResult::Failed(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, proof: Option<&'static str>, needs_previous: bool) -> site::Command {
        let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
        site::Command { argv, right: "a right", proof, needs_previous }
    }

    #[test]
    fn a_command_that_fails_or_hangs_is_told() {
        let absent = site::Command { argv: vec!["/absent/kubectl".to_owned()], ..shell("", None, false) };
        let said = called(
            vec![
                shell("echo node/n1 cordoned", Some("cordoned"), false),
                shell("echo error: unable to cordon >&2", Some("cordoned"), false),
                shell("touch /nowhere/must-not-run", None, true),
                shell("sleep 60", None, false),
                shell("echo no right >&2; exit 1", None, false),
                absent,
            ],
            Duration::from_millis(400),
        );
        for (line, words) in said.iter().zip([
            "cordoned: done",
            "error: unable to cordon; the job goes on without the node; the command needs: a right",
            "not run, since the command before it failed",
            "did not end within 400ms",
            "ended with 1: no right",
            "/absent/kubectl is not in the PATH",
        ]) {
            assert!(line.contains(words), "{line}");
        }
    }
}
