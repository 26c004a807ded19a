//! The command line: the list of subcommands, and help on them.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::command::{Subcommand, print};
use crate::config;
use crate::exit::Code;
use crate::failure::Failure;
use crate::help;

/// Names the rank that stalls, breaks or poisons a multi-GPU job, and proves it.
#[derive(Debug, Parser)]
#[command(name = "ringleader", version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Makes the subcommands, and the way into each, of one list.
macro_rules! subcommands {
    ($($(#[$only:meta])* $name:ident($args:ty),)+) => {
        #[derive(Debug, clap::Subcommand)]
        enum Command {
            $($(#[$only])* $name(Box<$args>),)+
            Help(HelpArgs),
        }

        impl Command {
            fn run(&self) -> Result<ExitCode, Failure> {
                match self {
                    $($(#[$only])* Self::$name(args) => args.run(),)+
                    Self::Help(args) => args.run(),
                }
            }
        }
    };
}

// In the order of the help text. What each does is in its own file; `mod` stands in `lib.rs` (decision 5).
subcommands! {
    Diagnose(crate::diagnose::DiagnoseArgs),
    Check(crate::check::CheckArgs),
    Collect(crate::collect::CollectArgs),
    Explain(crate::explain::command::ExplainArgs),
    Lint(crate::lint::LintArgs),
    Watch(crate::watch::WatchArgs),
    Bench(crate::bench::BenchArgs),
    Verify(crate::verify::VerifyArgs),
    Trace(crate::trace::TraceArgs),
    Run(crate::run::RunArgs),
    #[cfg(feature = "history")]
    History(crate::history::HistoryArgs),
    #[cfg(feature = "mcp")]
    Mcp(crate::mcp::McpArgs),
    Env(crate::env::EnvArgs),
    Version(crate::version::VersionArgs),
    Probe(crate::probe::ProbeArgs),
}

// Its help is made of what there is help on.
#[derive(Debug, Args)]
struct HelpArgs {
    /// What about
    topic: Option<String>,
}

impl Subcommand for HelpArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        print(&help::topic(program(), self.topic.as_deref())?)?;
        Ok(Code::NothingFound.into())
    }
}

/// The command line with all of its help.
pub(crate) fn program() -> clap::Command {
    let program = Cli::command();
    let topics: Vec<String> = help::names(&program).iter().map(|name| format!("`help {name}`")).collect();
    program.mut_subcommand("help", |help| help.about(format!("Say more: {}", topics.join(", "))))
}

pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let parsed = config::matches(program(), args)
        .and_then(|matches| Cli::from_arg_matches(&matches).map_err(Failure::Usage));
    match parsed {
        Ok(cli) => cli.command.run(),
        // What was asked for goes to standard output, so that it can be piped.
        Err(Failure::Usage(error)) if !error.use_stderr() => {
            print(&error.render().to_string()).map(|()| Code::NothingFound.into())
        }
        Err(failure) => Err(failure),
    }
}
