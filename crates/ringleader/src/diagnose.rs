//! `ringleader diagnose`: evidence of a failed job, or of one that runs here, to a verdict.

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use ringleader_model::{Fact, Observation, Severity, Verdict};
use ringleader_report::{markdown, text};
use tempfile::TempDir;

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;
use crate::gather::context;
use crate::terminal::{LookArgs, detail};
use crate::{Diagnosis, collect};

/// Read evidence of a failed job and say which rank is to blame, why, and what to do
#[derive(Debug, Args)]
pub(crate) struct DiagnoseArgs {
    /// Folders, files or archives; `-` is standard input
    #[arg(value_name = "PATH", required_unless_present = "live")]
    paths: Vec<PathBuf>,
    /// Collect from the job that runs here, as `collect` does, and judge that
    #[arg(long)]
    live: bool,
    /// Processes of the job, with their children [default: all that carry a rank or use a GPU]
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "live")]
    pid: Vec<u32>,
    /// Processes of this Slurm job
    #[arg(long, value_name = "SLURM", requires = "live", conflicts_with = "pid")]
    job: Option<String>,
    /// Do not ask NCCL's RAS service, not even where a rank of the job offers it
    #[arg(long, requires = "live")]
    no_ras: bool,
    /// Keep what was collected in this bundle
    #[arg(long, value_name = "FILE", requires = "live")]
    keep: Option<PathBuf>,
    /// Form of the report; json is json-v1
    #[arg(long, value_enum, default_value_t = Format::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: Format,
    #[command(flatten)]
    look: LookArgs,
    /// Least severity that makes the exit code 4
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY", env = "RINGLEADER_FAIL_ON", hide_env = true)]
    fail_on: FailOn,
    /// Print the verdict alone
    #[arg(long, short, env = "RINGLEADER_QUIET", hide_env = true, value_parser = FalseyValueParser::new(), conflicts_with = "verbose")]
    quiet: bool,
    /// Print every finding with its proof, and every note
    #[arg(long, short, env = "RINGLEADER_VERBOSE", hide_env = true, value_parser = FalseyValueParser::new())]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    #[value(alias = "json")]
    JsonV1,
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Error,
    Warning,
    Never,
}

impl Subcommand for DiagnoseArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let mut paths = self.paths.clone();
        // Removed once the report is printed.
        let _scratch = if self.live {
            let (bundle, scratch) = self.collect()?;
            paths.insert(0, bundle);
            scratch
        } else {
            None
        };
        // The process is about to end: taking a case of millions of entries apart would only cost time.
        let diagnosis = ManuallyDrop::new(crate::diagnose(&paths, !self.quiet)?);
        let mut report = diagnosis.report();
        if self.format == Format::JsonV1 {
            context::add(&mut report, &paths);
        }
        let Diagnosis { case, verdict, .. } = &*diagnosis;
        let detail = detail(self.quiet, self.verbose);
        let text = match self.format {
            Format::JsonV1 => report.to_json().map_err(Failure::Json)?,
            Format::Markdown => markdown::render(&report, detail),
            Format::Text => text::render(&report, &self.look.look(detail)),
        };
        print(&text)?;
        // Error statements and signs of progress are understood in text of any program.
        let is_understood = |o: &Observation| matches!(o.fact, Fact::Said(_) | Fact::Progress(_));
        let is_known = case.sources.iter().any(ringleader_rules::is_known);
        if !is_known && !case.observations.iter().any(is_understood) {
            let n_files = case.sources.iter().filter(|source| !source.kinds.is_empty()).count();
            return Err(Failure::NoUsableEvidence { n_files });
        }
        Ok(exit_code(verdict, self.fail_on).into())
    }
}

impl DiagnoseArgs {
    /// Collects from the job that runs here: the bundle, and the folder that holds it if nobody wants to keep it.
    fn collect(&self) -> Result<(PathBuf, Option<TempDir>), Failure> {
        let failed = |path: PathBuf| {
            let is_named = self.keep.is_some();
            move |source| match source {
                Failure::Create { .. } | Failure::Bundle(_) => {
                    Failure::Live { path, is_named, source: Box::new(source) }
                }
                other => other,
            }
        };
        let (bundle, scratch) = if let Some(path) = &self.keep {
            (path.clone(), None)
        } else {
            let folder = tempfile::Builder::new().prefix("ringleader-").tempdir();
            let create = |source| Failure::Create { path: std::env::temp_dir(), source };
            let folder = folder.map_err(create).map_err(failed(std::env::temp_dir()))?;
            (folder.path().join("live.tar.zst"), Some(folder))
        };
        collect::for_diagnosis(&self.pid, self.job.as_deref(), !self.no_ras, &bundle)
            .map_err(failed(bundle.clone()))?;
        Ok((bundle, scratch))
    }
}

fn exit_code(verdict: &Verdict, fail_on: FailOn) -> Code {
    let least = match fail_on {
        FailOn::Error => Severity::Error,
        FailOn::Warning => Severity::Warning,
        FailOn::Never => return Code::NothingFound,
    };
    if verdict.cause == ringleader_model::Cause::Undecided {
        Code::Undecided
    } else if verdict.findings.iter().any(|finding| finding.severity >= least) {
        Code::Findings
    } else {
        Code::NothingFound
    }
}
