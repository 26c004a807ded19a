//! `ringleader explain`: the question from the command line, the answer onto the terminal.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use ringleader_report::Detail;

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::explain::answer::{Explanation, Schema};
use crate::explain::{catalog, explain, kinds, listed, page, text};
use crate::failure::Failure;
use crate::pager;
use crate::terminal::{LookArgs, spelled};

/// Bytes of a question that are read from standard input.
const MAX_STDIN: u64 = 1 << 20;

/// Explain a symptom, a cause, an Xid, a variable or a log line, and what to do
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("../help/explain.txt"))]
pub(crate) struct ExplainArgs {
    /// A name, a number, a setting, a message, or a line of a log; `-` reads it from standard input; nothing lists
    /// what is known
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    what: Vec<OsString>,
    /// Form of the answer; json is json-v1
    #[arg(long, value_enum, default_value_t = ExplainFormat::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: ExplainFormat,
    #[command(flatten)]
    look: LookArgs,
    /// If it has several meanings, print all of each
    #[arg(long, short, env = "RINGLEADER_VERBOSE", hide_env = true, value_parser = FalseyValueParser::new())]
    verbose: bool,
    /// Print all of one kind: causes, symptoms, xids, variables, messages, verbs, slurm and others; without KIND, the
    /// kinds
    #[arg(long, value_name = "KIND", conflicts_with = "what", num_args = 0..=1, default_missing_value = "")]
    list: Option<String>,
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

impl Subcommand for ExplainArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let look = self.look.look(if self.verbose { Detail::Everything } else { Detail::Usual });
        let show = |text: &str| pager::print(text, !self.no_pager).map_err(Failure::Write);
        if self.list.as_deref() == Some("") {
            show(&(kinds().join("\n") + "\n"))?;
            return Ok(Code::NothingFound.into());
        }
        if let Some(kind) = &self.list {
            let topics = listed(kind).ok_or_else(|| Failure::UnknownKind {
                kind: ringleader_report::quote::plain(kind),
                kinds: kinds().join(", "),
            })?;
            match self.format {
                ExplainFormat::Text => show(&page(&topics, &look))?,
                ExplainFormat::Json | ExplainFormat::JsonV1 => {
                    let query = format!("--list {kind}");
                    let all = Explanation { schema: Schema::V1, query, topics, nearest: Vec::new() };
                    print(&all.to_json().map_err(Failure::Json)?)?;
                }
            }
            return Ok(Code::NothingFound.into());
        }
        if self.what.is_empty() {
            show(&catalog(&look))?;
            return Ok(Code::NothingFound.into());
        }
        let answer = explain(&self.question()?);
        match self.format {
            ExplainFormat::Json | ExplainFormat::JsonV1 => print(&answer.to_json().map_err(Failure::Json)?)?,
            ExplainFormat::Text if answer.topics.is_empty() => {}
            ExplainFormat::Text => show(&spelled(text::render(&answer, &look)))?,
        }
        if answer.topics.is_empty() {
            return Err(Failure::Unknown { query: answer.query, nearest: answer.nearest });
        }
        Ok(Code::NothingFound.into())
    }
}

impl ExplainArgs {
    fn question(&self) -> Result<String, Failure> {
        if self.what == ["-"] {
            let mut bytes = Vec::new();
            io::stdin().lock().take(MAX_STDIN).read_to_end(&mut bytes).map_err(Failure::Stdin)?;
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(self.what.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }
}
