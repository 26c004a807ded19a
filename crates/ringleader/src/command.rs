//! What every subcommand is: options, and one way in. `cli` lists them.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use crate::failure::Failure;

/// A subcommand. The type holds its options; its documentation is its help.
pub(crate) trait Subcommand: clap::Args {
    /// Does what was asked and prints it. Answers with the code to end with.
    ///
    /// # Errors
    /// If it ends without its report, or with one that says nothing.
    fn run(&self) -> Result<ExitCode, Failure>;
}

/// Writes to standard output.
///
/// # Errors
/// If it takes no more.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Write)
}
