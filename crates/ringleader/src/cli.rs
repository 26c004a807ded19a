//! The command line.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ringleader_model::{Cause, Severity, Verdict};

use crate::check::{self, CheckArgs, ProbeArgs};
use crate::collect::{self, CollectArgs};
use crate::exit::Code;
use crate::failure::Failure;
use crate::report::{self, Detail, Look};
use crate::watch::{self, WatchArgs};
use crate::{Diagnosis, explain, help, pager};

/// Names the rank that stalls, breaks or poisons a multi-GPU job, and proves it.
#[derive(Debug, Parser)]
#[command(name = "ringleader", version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Diagnose(Diagnose),
    Check(Box<CheckArgs>),
    Collect(Box<CollectArgs>),
    Explain(Explain),
    Watch(Box<WatchArgs>),
    /// Reads one part of a node; run by `check` and `collect`
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Say more: `help exit-codes`, `help evidence`, `help diagnose`, `help explain`, `help check`,
    /// `help collect`, `help watch`
    Help {
        /// What about
        topic: Option<String>,
    },
}

/// Read evidence of a failed job and say which rank is to blame, why, and what to do
#[derive(Debug, Args)]
struct Diagnose {
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
    /// Keep what was collected in this bundle
    #[arg(long, value_name = "FILE", requires = "live")]
    keep: Option<PathBuf>,
    /// Form of the report; json is json-v1
    #[arg(long, value_enum, default_value_t = Format::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: Format,
    /// Colour in the text report; auto obeys NO_COLOR
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN", env = "RINGLEADER_COLOR", hide_env = true)]
    color: Color,
    /// Columns of the text report, 40 to 400 [default: the terminal's, else 80]
    #[arg(long, value_name = "COLUMNS", env = "RINGLEADER_WIDTH", hide_env = true,
          value_parser = clap::value_parser!(u16).range(40..=400))]
    width: Option<u16>,
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

/// Say what a cause, an Xid, a variable or a log line means, and what to do
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/explain.txt"))]
struct Explain {
    /// A name, a number, a setting, a message, or a line of a log; `-` reads it from standard input; nothing lists
    /// what is known
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    what: Vec<OsString>,
    /// Form of the answer; json is json-v1
    #[arg(long, value_enum, default_value_t = ExplainFormat::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: ExplainFormat,
    /// Colour in the text; auto obeys NO_COLOR
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN", env = "RINGLEADER_COLOR", hide_env = true)]
    color: Color,
    /// Columns of the text, 40 to 400 [default: the terminal's, else 80]
    #[arg(long, value_name = "COLUMNS", env = "RINGLEADER_WIDTH", hide_env = true,
          value_parser = clap::value_parser!(u16).range(40..=400))]
    width: Option<u16>,
    /// If it may be several things, print all of each
    #[arg(long, short, env = "RINGLEADER_VERBOSE", hide_env = true, value_parser = FalseyValueParser::new())]
    verbose: bool,
    /// Do not page on a terminal
    #[arg(long, env = "RINGLEADER_NO_PAGER", hide_env = true, value_parser = FalseyValueParser::new())]
    no_pager: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExplainFormat {
    Text,
    Json,
    JsonV1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    JsonV1,
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Error,
    Warning,
    Never,
}

pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // What was asked for goes to standard output, so that it can be piped.
        Err(error) if !error.use_stderr() => {
            return print(&error.render().to_string()).map(|()| Code::NothingFound.into());
        }
        Err(error) => return Err(Failure::Usage(error)),
    };
    let code = match cli.command {
        Command::Diagnose(args) => diagnose(&args)?,
        Command::Check(args) => check::run(&args)?,
        Command::Collect(args) => {
            let (text, code) = collect::run(&args)?;
            print(&text)?;
            code
        }
        Command::Explain(args) => explain(&args)?,
        // It may pass on the code of the command that it followed.
        Command::Watch(args) => return watch::run(&args),
        Command::Probe(args) => check::probe(&args)?,
        Command::Help { topic } => {
            print(&help::topic::<Cli>(topic.as_deref())?)?;
            Code::NothingFound
        }
    };
    Ok(code.into())
}

fn diagnose(args: &Diagnose) -> Result<Code, Failure> {
    let mut paths = args.paths.clone();
    // Kept until the report is printed; what it holds is removed then.
    let mut scratch = None;
    if args.live {
        let failed = |path: PathBuf| {
            let is_named = args.keep.is_some();
            move |source| match source {
                Failure::Create { .. } | Failure::Bundle(_) => {
                    Failure::Live { path, is_named, source: Box::new(source) }
                }
                other => other,
            }
        };
        let bundle = if let Some(path) = &args.keep {
            path.clone()
        } else {
            let folder = tempfile::Builder::new().prefix("ringleader-").tempdir();
            let create = |source| Failure::Create { path: std::env::temp_dir(), source };
            let folder = folder.map_err(create).map_err(failed(std::env::temp_dir()))?;
            scratch.insert(folder).path().join("live.tar.zst")
        };
        collect::for_diagnosis(&args.pid, args.job.as_deref(), &bundle).map_err(failed(bundle.clone()))?;
        paths.insert(0, bundle);
    }
    // The process is about to end: taking a case of millions of entries apart would only cost time.
    let diagnosis = ManuallyDrop::new(crate::diagnose(&paths, !args.quiet)?);
    let report = diagnosis.report();
    let Diagnosis { case, verdict } = &*diagnosis;
    let text = match args.format {
        Format::Json | Format::JsonV1 => report.to_json().map_err(Failure::Json)?,
        Format::Markdown => report::markdown::render(&report, detail(args)),
        Format::Text => report::text::render(&report, &look(args.color, args.width, detail(args))),
    };
    print(&text)?;
    if !case.sources.iter().any(ringleader_rules::is_known) {
        let n_files = case.sources.iter().filter(|source| !source.kinds.is_empty()).count();
        return Err(Failure::NoUsableEvidence { n_files });
    }
    Ok(exit_code(verdict, args.fail_on))
}

fn exit_code(verdict: &Verdict, fail_on: FailOn) -> Code {
    let least = match fail_on {
        FailOn::Error => Severity::Error,
        FailOn::Warning => Severity::Warning,
        FailOn::Never => return Code::NothingFound,
    };
    if verdict.cause == Cause::Undecided {
        Code::Undecided
    } else if verdict.findings.iter().any(|finding| finding.severity >= least) {
        Code::Findings
    } else {
        Code::NothingFound
    }
}

fn detail(args: &Diagnose) -> Detail {
    match (args.quiet, args.verbose) {
        (true, _) => Detail::Verdict,
        (_, true) => Detail::Everything,
        _ => Detail::Usual,
    }
}

/// Bytes of a question that are read from standard input.
const MAX_STDIN: u64 = 1 << 20;

fn explain(args: &Explain) -> Result<Code, Failure> {
    let detail = if args.verbose { Detail::Everything } else { Detail::Usual };
    let look = look(args.color, args.width, detail);
    if args.what.is_empty() {
        pager::print(&explain::catalog(&look), !args.no_pager).map_err(Failure::Write)?;
        return Ok(Code::NothingFound);
    }
    let query = if args.what == ["-"] {
        let mut bytes = Vec::new();
        io::stdin().lock().take(MAX_STDIN).read_to_end(&mut bytes).map_err(Failure::Stdin)?;
        String::from_utf8_lossy(&bytes).into_owned()
    } else {
        args.what.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let answer = explain::explain(&query);
    match args.format {
        ExplainFormat::Json | ExplainFormat::JsonV1 => print(&answer.to_json().map_err(Failure::Json)?)?,
        ExplainFormat::Text if answer.topics.is_empty() => {}
        ExplainFormat::Text => {
            pager::print(&explain::text::render(&answer, &look), !args.no_pager).map_err(Failure::Write)?;
        }
    }
    if answer.topics.is_empty() {
        return Err(Failure::Unknown { query: answer.query, nearest: answer.nearest });
    }
    Ok(Code::NothingFound)
}

pub(crate) fn look(color: Color, width: Option<u16>, detail: Detail) -> Look {
    let terminal = io::stdout().is_terminal();
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    };
    let own =
        || terminal.then(terminal_size::terminal_size).flatten().map(|(width, _)| width.0.clamp(40, 120));
    let width = width.or_else(own).unwrap_or(80);
    Look { width: width.into(), color, detail }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Write)
}
