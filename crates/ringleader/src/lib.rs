//! The face of ringleader: reads evidence from disk, has it judged, prints the report.
//!
//! This crate is the only one that touches files, the terminal or the environment. It concludes nothing: what a
//! report says comes from `ringleader_rules`, and what it quotes from `ringleader_evidence`.

mod cli;
pub mod exit;
mod failure;
pub mod gather;
mod help;
mod progress;
pub mod report;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

pub use crate::failure::Failure;

/// Runs the program with these arguments (the first is its name). Prints, and answers with the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    failure::record_panics();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cli::run(args)));
    match outcome {
        Ok(Ok(code)) => code.into(),
        Ok(Err(failure)) => {
            // Nobody is left to tell if standard error is gone.
            let _ = io::stderr().lock().write_all(failure.message().as_bytes());
            failure.exit_code().into()
        }
        Err(_) => {
            let _ = io::stderr().lock().write_all(failure::our_bug().as_bytes());
            exit::Code::OurBug.into()
        }
    }
}
