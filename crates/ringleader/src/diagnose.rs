//! `ringleader diagnose`: evidence of a failed job, or of one that runs here, to a verdict.

use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use ringleader_model::{Case, Fact, Observation, Severity, Verdict};
use ringleader_report::json::{JobRow, Report};
use ringleader_report::{against, brief, html, markdown, quote, text, timeline};

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::{self, Failure, HELP_EVIDENCE};
use crate::gather::{self, context, excerpts, folders};
use crate::jobs::{self, LocalJob};
use crate::terminal::{self, LookArgs, detail};
use crate::{Diagnosis, collect};

/// Diagnose a failed job from its evidence: the rank at fault, the cause, and what to do
#[derive(Debug, Args)]
#[command(
    override_usage = "ringleader diagnose [OPTIONS] <PATH>...\n       ringleader diagnose [OPTIONS] --live [PATH]..."
)]
pub(crate) struct DiagnoseArgs {
    /// Folders, files or archives; `-` is standard input
    #[arg(value_name = "PATH", required_unless_present = "live")]
    paths: Vec<PathBuf>,
    /// Collect from the running job, as `collect` does, and diagnose that bundle
    #[arg(long)]
    live: bool,
    /// Processes of the job, with their children [default: every job of this node, each by itself]
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "live")]
    pid: Vec<u32>,
    /// Processes of this Slurm job
    #[arg(long, value_name = "SLURM", requires = "live", conflicts_with = "pid")]
    job: Option<String>,
    /// Do not query NCCL's RAS service
    #[arg(long, requires = "live")]
    no_ras: bool,
    /// Write the collected bundle to this file [default: a new folder for temporary files]
    #[arg(long, value_name = "FILE", requires = "live")]
    keep: Option<PathBuf>,
    /// Form of the report; json is json-v1
    #[arg(long, value_enum, default_value_t = DiagnoseFormat::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: DiagnoseFormat,
    /// Compare with the evidence of a good run of the same job: what differs in versions, settings, machines, calls, timing
    #[arg(long, value_name = "GOOD")]
    against: Option<PathBuf>,
    /// Lint the training code in this folder and quote the findings about the functions in which ranks stand
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Print one bounded text for a reader without access to the files: contents, order of events, unexplained errors, who waits
    /// for whom, what is missing; secrets are removed
    #[arg(long, conflicts_with_all = ["quiet", "verbose"])]
    brief: bool,
    /// Size limit of --brief, bytes
    #[arg(long, value_name = "BYTES", default_value_t = brief::USUAL_BYTES as u32, value_parser = clap::value_parser!(u32).range(2048..=1_048_576), requires = "brief")]
    brief_bytes: u32,
    /// Also write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the operations around the failure as a Perfetto trace, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    #[command(flatten)]
    look: LookArgs,
    /// Least severity that makes the exit code 4
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY", env = "RINGLEADER_FAIL_ON", hide_env = true)]
    fail_on: FailOn,
    /// Print only the verdict
    #[arg(long, short, env = "RINGLEADER_QUIET", hide_env = true, value_parser = FalseyValueParser::new(), conflicts_with = "verbose")]
    quiet: bool,
    /// Print every finding with its evidence, and every note
    #[arg(long, short, env = "RINGLEADER_VERBOSE", hide_env = true, value_parser = FalseyValueParser::new())]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DiagnoseFormat {
    Text,
    Json,
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
        self.refuse_streams()?;
        let is_any = self.live && self.pid.is_empty() && self.job.is_none();
        let found = if is_any { jobs::here() } else { Vec::new() };
        if found.len() > 1 {
            return self.several(&found);
        }
        // What the kernel of an idle node said of some program is no verdict on a job. Without /proc nothing is known of jobs.
        let sees_processes = Path::new("/proc/self/stat").exists();
        if is_any && found.is_empty() && self.paths.is_empty() && sees_processes {
            let why = "no job runs on this node (`ringleader check` looks at the node alone)".to_owned();
            return Err(Failure::Absent { why });
        }
        if let Some(why) = self.live.then(|| jobs::without_ranks(&self.pid)).flatten() {
            return Err(Failure::Absent { why });
        }
        let mut paths = self.paths.clone();
        if self.live {
            paths.insert(0, self.collect(&self.pid, self.keep.clone(), false)?);
        }
        let diagnosis = self.judge(&paths)?;
        self.print(&self.report(&diagnosis, &paths)?, &diagnosis.case, &paths)?;
        self.outcome(&diagnosis, &paths).map(ExitCode::from)
    }
}

impl DiagnoseArgs {
    /// Standard output holds the report. A file named `-` is what nobody means.
    fn refuse_streams(&self) -> Result<(), Failure> {
        for (option, path) in [("--html", &self.html), ("--perfetto", &self.perfetto), ("--keep", &self.keep)]
        {
            if path.as_deref() == Some(Path::new("-")) {
                let why = format!("{option} writes a file beside the report, which standard output holds");
                return Err(Failure::Nodes { why, help: "name a file; ./- is one with that name" });
            }
        }
        Ok(())
    }

    fn judge(&self, paths: &[PathBuf]) -> Result<ManuallyDrop<Diagnosis>, Failure> {
        // The process is about to end: taking a case of millions of entries apart would only cost time.
        crate::diagnose(paths, !self.quiet).map(ManuallyDrop::new)
    }

    /// The report, with the lines around its citations, and compared with a good run if one was named.
    fn report(&self, diagnosis: &Diagnosis, paths: &[PathBuf]) -> Result<Report, Failure> {
        let mut report = diagnosis.report();
        folders::name(&mut report, paths);
        // The verdict alone quotes nothing.
        if !self.quiet || self.html.is_some() {
            context::add(&mut report, paths);
        }
        if let Some(folder) = &self.source {
            crate::lint::quote(&mut report, folder)?;
        }
        if let Some(good) = &self.against {
            let paths = std::slice::from_ref(good);
            let good = crate::diagnose(paths, !self.quiet)?;
            // A run of which nothing is known differs in nothing.
            usable(&good.case, paths, HELP_GOOD)?;
            report.against = Some(against::compare(&report, &good.report()));
        }
        Ok(report)
    }

    fn print(&self, report: &Report, case: &Case, paths: &[PathBuf]) -> Result<(), Failure> {
        if let Some(path) = &self.html {
            let create = |source| Failure::CannotWrite { path: path.clone(), source };
            std::fs::write(path, html::render(report)).map_err(create)?;
        }
        if let Some(path) = &self.perfetto {
            let create = |source| Failure::CannotWrite { path: path.clone(), source };
            if report.timeline.is_empty() {
                // Nobody is left to tell if standard error is gone.
                let _ = writeln!(
                    io::stderr().lock(),
                    "note: no operation with its times is in this evidence: {} shows nothing; a Flight Recorder's dump, a \
                     ring of the plugin or a profiler's timeline would",
                    quote::plain(&path.display().to_string())
                );
            }
            let mut bytes = Vec::new();
            timeline::perfetto(report, &mut bytes).map_err(create)?;
            std::fs::write(path, bytes).map_err(create)?;
        }
        if self.brief {
            let excerpts = excerpts::excerpts(case, paths);
            return print(&brief::render(report, &excerpts, self.brief_bytes as usize));
        }
        let detail = detail(self.quiet, self.verbose);
        print(&match self.format {
            DiagnoseFormat::Json | DiagnoseFormat::JsonV1 => report.to_json().map_err(Failure::Json)?,
            DiagnoseFormat::Markdown => markdown::render(report, detail),
            DiagnoseFormat::Text => terminal::spelled(text::render(report, &self.look.look(detail))),
        })
    }

    fn outcome(&self, diagnosis: &Diagnosis, paths: &[PathBuf]) -> Result<Code, Failure> {
        let Diagnosis { case, verdict, .. } = diagnosis;
        // The report as text says on standard output what to give.
        let help = if self.format == DiagnoseFormat::Text && !self.brief { "" } else { HELP_EVIDENCE };
        usable(case, paths, help)?;
        Ok(exit_code(verdict, self.fail_on))
    }

    /// Judges each job of this node by its own evidence. The report is that of the worst, with the verdicts of all.
    fn several(&self, found: &[LocalJob]) -> Result<ExitCode, Failure> {
        let mut reports = Vec::new();
        for job in found {
            let keep = self.keep.as_ref().map(|path| jobs::named_after(path, job.root));
            // Jobs of a node come and go; nobody asked for this one by name.
            let bundle = match self.collect(&job.pids, keep, true) {
                Err(Failure::Absent { why }) => {
                    let label = quote::plain(&job.label);
                    // Nobody is left to tell if standard error is gone.
                    let _ = writeln!(io::stderr().lock(), "note: {label}: {why}");
                    continue;
                }
                bundle => bundle?,
            };
            let mut paths = self.paths.clone();
            paths.insert(0, bundle);
            let diagnosis = self.judge(&paths)?;
            let code = self.outcome(&diagnosis, &paths).unwrap_or(Code::NoUsableEvidence);
            let report = self.report(&diagnosis, &paths)?;
            reports.push((code, job.label.clone(), report));
        }
        // Stable: of two that are equally bad, the one that began first is first.
        reports.sort_by_key(|(code, ..)| match code {
            Code::Findings => 0,
            Code::Undecided => 1,
            Code::NothingFound => 3,
            _ => 2,
        });
        let rows: Vec<JobRow> = reports
            .iter()
            .map(|(_, id, report)| JobRow { id: id.clone(), verdict: report.verdict.clone() })
            .collect();
        let Some((code, _, mut report)) = reports.into_iter().next() else {
            return Err(Failure::Absent { why: "the jobs of this node have ended meanwhile".to_owned() });
        };
        report.jobs = rows;
        // Quotations are in the report.
        self.print(&report, &Case::default(), &[])?;
        Ok(code.into())
    }

    /// Collects from a job that runs here. Returns the bundle. It stays: the report cites it. `may_be_gone`: processes that have
    /// ended meanwhile are left out.
    fn collect(&self, pids: &[u32], keep: Option<PathBuf>, may_be_gone: bool) -> Result<PathBuf, Failure> {
        let is_named = keep.is_some();
        let failed = |path: PathBuf| {
            move |source| match source {
                Failure::Create { .. } | Failure::Bundle(_) => {
                    Failure::Live { path, is_named, source: Box::new(source) }
                }
                other => other,
            }
        };
        let (bundle, scratch) = if let Some(path) = keep {
            (path, None)
        } else {
            let folder = tempfile::Builder::new().prefix("ringleader-").tempdir();
            let create = |source| Failure::Create { path: std::env::temp_dir(), source };
            let folder = folder.map_err(create).map_err(failed(std::env::temp_dir()))?;
            (folder.path().join("live.tar.zst"), Some(folder))
        };
        collect::for_diagnosis(pids, self.job.as_deref(), !self.no_ras, &bundle, may_be_gone)
            .map_err(failed(bundle.clone()))?;
        // Only now: a folder without a whole bundle is removed.
        if let Some(folder) = scratch {
            let _ = folder.keep();
            let shown = quote::plain(&bundle.display().to_string());
            // Nobody is left to tell if standard error is gone.
            let _ =
                writeln!(io::stderr().lock(), "note: the evidence is in {shown}; --keep names another file");
        }
        Ok(bundle)
    }
}

/// Advice where the folder or file of a good run has no evidence.
const HELP_GOOD: &str =
    "name the evidence of a run that went well, as rich as that of the bad one: --against GOOD";

/// Whether anything in what was read is evidence.
fn usable(case: &Case, paths: &[PathBuf], help: &'static str) -> Result<(), Failure> {
    if let Some(why) = gather::refused(case, paths) {
        return Err(Failure::Unreadable { why });
    }
    // Error statements, signs of progress and tables of ranks are understood in text of any program.
    let is_understood =
        |o: &Observation| matches!(o.fact, Fact::Said(_) | Fact::Progress(_) | Fact::Outlier(_));
    let is_known = case.sources.iter().any(ringleader_rules::is_known);
    if !is_known && !case.observations.iter().any(is_understood) {
        let n_files = case.sources.iter().filter(|source| !source.kinds.is_empty()).count();
        return Err(Failure::NoUsableEvidence { n_files, what: failure::listed(paths), help });
    }
    Ok(())
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
