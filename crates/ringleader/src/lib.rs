//! ringleader finds the rank that stalls, breaks or poisons a multi-GPU training job: [`report`] goes from a folder to a
//! report, and [`run`] is the program.
//!
//! The face of ringleader: reads evidence from disk, has it judged, prints the report.
//!
//! Only this crate opens evidence, and only it uses the terminal. The crates that act on a node (`collect`, `probe`,
//! `run`, `hub`, `plugin`) touch files too. What a report says comes from `ringleader_rules`, what it quotes from
//! `ringleader_evidence`, and its form from `ringleader_report`. This crate adds what only a live job or a search for
//! files shows: what of the evidence was not found, and what `run` and `watch` decide from verdicts.

mod bench;
pub mod check;
mod cli;
mod collect;
mod command;
mod config;
mod diagnose;
pub mod env;
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
#[cfg(feature = "mcp")]
mod mcp;
mod pager;
mod plugin;
mod probe;
mod progress;
mod run;
mod terminal;
mod trace;
mod verify;
mod version;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringleader_model::{Case, Picture, Verdict};
use ringleader_report::json::Report;

pub use crate::failure::Failure;
pub use ringleader_probe::schema as probe_schema;

/// Reads the evidence of a job (a folder, a bundle, or one file) and judges it: the report that `ringleader diagnose
/// --format json` prints, with the lines around each citation.
///
/// The report names the cause, who is to blame, the proof with file and line, and what to do. It can be printed as
/// text, Markdown, HTML or JSON by [`ringleader_report`]. Nothing is written, and no process or network is touched.
///
/// ```
/// let folder = std::env::temp_dir().join(format!("ringleader-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(
///     folder.join("train.log"),
///     "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of \
///      79.11 GiB of which 3.10 GiB is free.\n",
/// )?;
/// let report = ringleader::report(&folder)?;
/// assert_eq!(report.verdict.cause, "cuda-oom");
/// assert!(report.to_json()?.contains("train.log"));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If `path` does not exist. Files within a folder never fail: the report notes what could not be read.
pub fn report(path: impl AsRef<Path>) -> Result<Report, Failure> {
    let paths = [path.as_ref().to_owned()];
    let mut report = diagnose(&paths, false)?.report();
    gather::context::add(&mut report, &paths);
    Ok(report)
}

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

/// The command line, for completions and manual pages.
pub fn command() -> clap::Command {
    cli::program()
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
