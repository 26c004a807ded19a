//! The face of ringleader: reads evidence from disk, has it judged, prints the report.
//!
//! This crate is the only one that touches files, the terminal or the environment. It concludes nothing: what a
//! report says comes from `ringleader_rules`, what it quotes from `ringleader_evidence`, and its form from
//! `ringleader_report`.

pub mod check;
mod cli;
mod collect;
mod command;
mod diagnose;
pub mod exit;
pub mod explain;
mod failure;
mod fanout;
pub mod gather;
mod help;
#[cfg(feature = "history")]
mod history;
mod jobs;
pub mod lint;
mod pager;
mod probe;
mod progress;
mod run;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use ringleader_model::{Case, Picture, Verdict};
use ringleader_report::json::Report;

pub use crate::failure::Failure;

/// What was read and what it means.
#[derive(Debug)]
pub struct Diagnosis {
    /// What was read.
    pub case: Case,
    /// What it means.
    pub verdict: Verdict,
    /// What a report shows beside the verdict.
    pub picture: Picture,
}

impl Diagnosis {
    /// The report.
    pub fn report(&self) -> Report {
        Report::whole(&self.case, &self.verdict, &self.picture)
    }
}

/// Reads everything under `paths` (`-` is standard input) and judges it.
///
/// # Errors
/// If a path that was named does not exist.
pub fn diagnose(paths: &[PathBuf], show_progress: bool) -> Result<Diagnosis, Failure> {
    let case = gather::gather(paths, show_progress)?;
    let (verdict, picture) = ringleader_rules::examine(&case);
    Ok(Diagnosis { case, verdict, picture })
}

/// Runs the program with these arguments (the first is its name). Prints, and answers with the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    failure::record_panics();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cli::run(args)));
    match outcome {
        Ok(Ok(code)) => code,
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
