//! `ringleader lint`: training code and launch files, before they run.

mod baseline;
mod change;
mod format;
mod quote;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringleader_lint::{Confidence, LintFinding, LintOptions, LintReport, Severity, rules};

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::{Failure, listed};

pub use format::schema;
pub(crate) use quote::quote;
pub(crate) use walk::sources;

/// Find collective-logic bugs in training code, and mistakes in launch files, before the job starts
#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// Folders and files of one project
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Form of the report; json is json-v1
    #[arg(long, value_enum, default_value_t = LintFormat::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: LintFormat,
    /// Least confidence of what is printed; low adds conditions on each process's own data
    #[arg(long, value_enum, default_value_t = Least::Medium)]
    confidence: Least,
    /// Also print hygiene findings: they are not faults and never change the exit code
    #[arg(long)]
    info: bool,
    /// Only these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    select: Vec<String>,
    /// Not these rules
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Also look at tests
    #[arg(long)]
    tests: bool,
    /// Leave out what this file lists
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write what is found to the baseline instead of printing it
    #[arg(long, requires = "baseline")]
    write_baseline: bool,
    /// Print only findings in lines that changed since this revision of git
    #[arg(long, value_name = "REV")]
    changed_since: Option<String>,
    /// Make changes that are safe and mechanical
    #[arg(long)]
    fix: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LintFormat {
    Text,
    #[value(alias = "json")]
    JsonV1,
    Sarif,
    Github,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Least {
    High,
    Medium,
    Low,
}

impl From<Least> for Confidence {
    fn from(least: Least) -> Self {
        match least {
            Least::High => Self::High,
            Least::Medium => Self::Medium,
            Least::Low => Self::Low,
        }
    }
}

impl Subcommand for LintArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        for id in self.select.iter().chain(&self.ignore) {
            if !rules::all().any(|rule| rule.id == id) {
                let nearest = nearest(id);
                return Err(Failure::Unknown { query: id.clone(), nearest });
            }
        }
        let sources = sources(&self.paths, self.tests)?;
        let options = LintOptions {
            least: self.confidence.into(),
            least_severity: if self.info { Severity::Info } else { Severity::Warning },
            select: self.select.clone(),
            ignore: self.ignore.clone(),
        };
        let mut report = ringleader_lint::lint(&sources, &options);
        if let Some(revision) = &self.changed_since {
            let changed = change::since(revision, &self.paths)?;
            report.findings.retain(|finding| changed.holds(&finding.place));
        }
        if let Some(path) = &self.baseline {
            if self.write_baseline {
                baseline::write(path, &report.findings)?;
                return Ok(Code::NothingFound.into());
            }
            baseline::leave_out(path, &mut report.findings)?;
        }
        if self.fix {
            let n = change::fix(&sources, &report.findings)?;
            report.findings.retain(|finding| finding.fix.is_none());
            report.notes.extend(
                (n > 0).then(|| ringleader_lint::Note {
                    path: ".".to_owned(),
                    text: format!("{n} changes made"),
                }),
            );
        }
        print(&self.render(&report)?)?;
        if report.n_files == 0 {
            let help = "lint reads Python, and files that launch a job: name the folder that holds them";
            return Err(Failure::NoUsableEvidence {
                n_files: sources.len(),
                what: listed(&self.paths),
                help,
            });
        }
        Ok(exit_code(&report.findings).into())
    }
}

impl LintArgs {
    fn render(&self, report: &LintReport) -> Result<String, Failure> {
        match self.format {
            LintFormat::Text => Ok(format::text(report)),
            LintFormat::JsonV1 => format::json(report).map_err(Failure::Json),
            LintFormat::Sarif => format::sarif(report).map_err(Failure::Json),
            LintFormat::Github => Ok(format::github(report)),
        }
    }
}

fn nearest(id: &str) -> Vec<String> {
    let mut near: Vec<(usize, &str)> =
        rules::all().map(|rule| (strsim::levenshtein(id, rule.id), rule.id)).collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, id)| id.to_owned()).collect()
}

fn exit_code(findings: &[LintFinding]) -> Code {
    if findings.iter().any(|finding| finding.severity > Severity::Info) {
        Code::Findings
    } else {
        Code::NothingFound
    }
}
