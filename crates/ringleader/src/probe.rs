//! `ringleader probe`: the process of one probe, which `check` and `collect` start and may abandon.

use std::io;
use std::process::ExitCode;

use clap::Args;

use crate::command::Subcommand;
use crate::exit::Code;
use crate::failure::Failure;

/// Reads one part of a node; run by `check` and `collect`
// It reads a request from standard input and prints the answer.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ProbeArgs {
    /// Which
    name: String,
}

impl Subcommand for ProbeArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let Some(probe) = ringleader_collect::by_name(&self.name) else {
            let known = ringleader_collect::probes::ALL.iter().map(|probe| probe.name.to_owned()).collect();
            return Err(Failure::UnknownCheck { id: self.name.clone(), known });
        };
        ringleader_collect::answer(probe, &mut io::stdin().lock(), &mut io::stdout().lock())
            .map_err(Failure::Write)?;
        Ok(Code::NothingFound.into())
    }
}
