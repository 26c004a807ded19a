//! Hosts over ssh, with the user's own configuration: keys, jump hosts, users and ports are its business.

use std::path::PathBuf;
use std::process::Command;

use ringleader_check::fleet::{Silence, SilenceKind};

use super::process::{self, CommandEnd};
use super::spool::Output;
use super::{Input, Limits, Ran, Transport, last_line, not_started, timed_out};

pub(crate) struct Ssh {
    /// `ssh`; another in tests.
    pub program: PathBuf,
    /// Another configuration than the user's own.
    pub config: Option<PathBuf>,
    pub connect_timeout_secs: u64,
}

impl Transport for Ssh {
    fn ask(
        &self,
        host: &str,
        argv: &[String],
        input: &Input,
        output: Output<'_>,
        limits: &Limits<'_>,
    ) -> Result<Ran, Silence> {
        let mut command = Command::new(&self.program);
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        // Nobody is there to answer a question, and no terminal is wanted.
        command.args(["-T", "-x", "-o", "BatchMode=yes", "-o"]);
        command.arg(format!("ConnectTimeout={}", self.connect_timeout_secs));
        command.args(["--", host]).arg(shell_words(argv));
        match process::run(&mut command, input, output, limits) {
            Ok(CommandEnd::Ran(ran)) if ran.status == Some(255) => Err(explain(host, &ran.said)),
            Ok(CommandEnd::Ran(ran)) => Ok(ran),
            Ok(CommandEnd::TimedOut(_)) => Err(timed_out(limits)),
            Err(error) => Err(not_started(&self.program.to_string_lossy(), &error)),
        }
    }

    fn explain(&self, host: &str, ran: &Ran) -> Silence {
        if let Some(missing) = no_program(ran.status, &ran.said) {
            return missing;
        }
        no_report(host, ran)
    }
}

/// The shell, or another launcher there, did not find it.
pub(super) fn no_program(status: Option<i32>, said: &str) -> Option<Silence> {
    let is_missing = matches!(status, Some(126 | 127))
        || said.contains("No such file or directory") && said.contains("execve")
        || said.contains("executable file not found");
    is_missing.then(|| Silence {
        kind: SilenceKind::NoProgram,
        why: match status {
            Some(126) => "it is there but cannot be run".to_owned(),
            _ => "the program was not found".to_owned(),
        },
        next:
            "--copy copies this very program to ~/.cache/ringleader there; --remote-program names where it is"
                .to_owned(),
    })
}

/// Something ran, and what came back is of no use.
pub(super) fn no_report(host: &str, ran: &Ran) -> Silence {
    let how = match ran.status {
        Some(status) => format!("exit status {status}"),
        None => "ended by a signal".to_owned(),
    };
    let line = last_line(&ran.said, host);
    let why = match (ran.is_cut, line.is_empty()) {
        (true, _) => "its answer is too long for a report".to_owned(),
        (_, true) => format!("{how}, and no report in its output"),
        (_, false) => format!("{how}: {line}"),
    };
    Silence {
        kind: SilenceKind::NoReport,
        why,
        next: "run `ringleader check` there by hand; --copy makes sure that it is this version".to_owned(),
    }
}

/// What ssh itself failed at.
fn explain(host: &str, said: &str) -> Silence {
    let line = last_line(said, host);
    let refused =
        ["Permission denied", "verification failed", "authentication failures", "IDENTIFICATION HAS CHANGED"];
    let (kind, next) = if refused.iter().any(|text| said.contains(text)) {
        (
            SilenceKind::Refused,
            "log in there once by hand; keys and known hosts are those of your own ssh configuration",
        )
    } else {
        (
            SilenceKind::Unreachable,
            "is the host on, and is its name right? `ssh HOST true` should end without an error",
        )
    };
    // `ssh: connect to host 10.0.0.7 port 22: Connection refused`: the place differs with every host, the reason not.
    let why = match line.strip_prefix("ssh: ") {
        Some(rest) => rest.rsplit(": ").next().unwrap_or(rest).to_owned(),
        // `root@HOST: Permission denied (publickey).`: the user may be the configuration's.
        None => line
            .rsplit_once("HOST: ")
            .or_else(|| line.split_once(": "))
            .map_or(line.clone(), |(_, reason)| reason.to_owned()),
    };
    let why = if why.is_empty() { "ssh ended with 255 and said nothing".to_owned() } else { why };
    Silence { kind, why, next: next.to_owned() }
}

/// One line for the login shell of the other side, whichever that is.
pub(super) fn shell_words(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let word = |text: &String| {
        if !text.is_empty() && text.chars().all(plain) {
            text.clone()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}
