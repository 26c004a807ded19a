//! `ringleader trace`: timelines of a job's ranks, read together.

mod baseline;
#[cfg(target_os = "linux")]
mod nsys;
#[cfg(target_os = "linux")]
pub(crate) mod record;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringleader_model::{Case, Cause, Fact, Observation, Timeline};
use ringleader_report::trace::compare::{self, ComparisonReport};
use ringleader_report::trace::{TraceReport, html, merged, plot, text};
use ringleader_trace::Analysis;

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::{Failure, HELP_EVIDENCE, listed};
use crate::gather;
use crate::terminal::{LookArgs, detail};

/// Show where a job spends its time, from the timelines of its ranks
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    /// Timelines of the ranks of one job: folders, files or archives
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Form of the report; json is json-v1
    #[arg(long, value_enum, default_value_t = TraceFormat::Text, env = "RINGLEADER_FORMAT", hide_env = true)]
    format: TraceFormat,
    /// The same as --format json-v1
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    look: LookArgs,
    /// Other timelines of the same program (before a change, another node): what differs, and what it costs
    #[arg(long, value_name = "PATH")]
    against: Vec<PathBuf>,
    /// Compare bandwidths with what was measured here: of `ringleader bench --save`, or output of nccl-tests
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the report as one page that fetches nothing
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write all ranks as one timeline on one clock, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Write the plots as pictures: steps.svg, bandwidth.svg, timeline.svg and lateness.svg (the last two if there is something to show)
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// The same pictures as PNG
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum TraceCommand {
    #[cfg(target_os = "linux")]
    Record(record::RecordArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TraceFormat {
    Text,
    Markdown,
    #[value(alias = "json")]
    JsonV1,
}

impl Subcommand for TraceArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        #[cfg(target_os = "linux")]
        if let Some(TraceCommand::Record(record)) = &self.command {
            return record.run();
        }
        let case = gather::gather(&self.paths, true).map_err(with_help)?;
        let rings = rings(&case);
        let timelines: Vec<(&Timeline, Option<u32>)> = timelines(&case).chain(shown(&rings)).collect();
        if timelines.is_empty() {
            let n_files = case.sources.iter().filter(|source| !source.kinds.is_empty()).count();
            return Err(Failure::NoUsableEvidence {
                n_files,
                what: listed(&self.paths),
                help: HELP_EVIDENCE,
            });
        }
        let baseline = self.baseline.as_deref().map(baseline::load).transpose()?;
        let analysis = ringleader_trace::analyse_against(timelines, baseline.as_ref());
        let report = TraceReport::new(&analysis, &case);
        self.write_files(&report, &analysis)?;
        if !self.against.is_empty() {
            let other = gather::gather(&self.against, true).map_err(with_help)?;
            let rings = self::rings(&other);
            let timelines = self::timelines(&other).chain(shown(&rings));
            let there = ringleader_trace::analyse_against(timelines, baseline.as_ref());
            if there.views.is_empty() {
                let n_files = other.sources.iter().filter(|source| !source.kinds.is_empty()).count();
                let what = listed(&self.against);
                return Err(Failure::NoUsableEvidence { n_files, what, help: HELP_EVIDENCE });
            }
            let report = ComparisonReport::new((&there, &other), (&analysis, &case));
            print(&match self.format() {
                TraceFormat::JsonV1 => report.to_json().map_err(Failure::Json)?,
                TraceFormat::Text => compare::text::render(&report),
                TraceFormat::Markdown => compare::text::markdown(&report),
            })?;
            let code = if report.step.pairs == 0 { Code::Undecided } else { Code::NothingFound };
            return Ok(code.into());
        }
        let text = match self.format() {
            TraceFormat::JsonV1 => report.to_json().map_err(Failure::Json)?,
            TraceFormat::Text => text::render(&report, &self.look.look(detail(false, false))),
            TraceFormat::Markdown => text::markdown(&report),
        };
        print(&text)?;
        let code = match report.verdict.cause() {
            Cause::Undecided => Code::Undecided,
            _ => Code::NothingFound,
        };
        Ok(code.into())
    }
}

impl TraceArgs {
    fn format(&self) -> TraceFormat {
        if self.json { TraceFormat::JsonV1 } else { self.format }
    }

    fn write_files(&self, report: &TraceReport, analysis: &Analysis<'_>) -> Result<(), Failure> {
        let write = |path: &Path, bytes: &[u8]| {
            std::fs::write(path, bytes)
                .map_err(|source| Failure::CannotWrite { path: path.to_owned(), source })
        };
        let create = |folder: &Path| {
            std::fs::create_dir_all(folder)
                .map_err(|source| Failure::CannotWrite { path: folder.to_owned(), source })
        };
        if let Some(path) = &self.html {
            write(path, html::render(report, analysis).as_bytes())?;
        }
        if let Some(path) = &self.perfetto {
            let failed = |source| Failure::CannotWrite { path: path.clone(), source };
            let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
            merged::write(analysis, &mut file).and_then(|()| file.flush()).map_err(failed)?;
        }
        if self.svg.is_none() && self.png.is_none() {
            return Ok(());
        }
        let pictures = [
            ("steps", Some(plot::steps(report))),
            ("bandwidth", Some(plot::bandwidth(report))),
            ("timeline", plot::timeline(analysis)),
            ("lateness", plot::lateness(analysis)),
        ];
        for (name, picture) in pictures.iter().filter_map(|(name, picture)| Some((name, picture.as_ref()?))) {
            if let Some(folder) = &self.svg {
                create(folder)?;
                write(&folder.join(format!("{name}.svg")), picture.to_svg().as_bytes())?;
            }
            if let Some(folder) = &self.png {
                let path = folder.join(format!("{name}.png"));
                let failed =
                    |error| Failure::CannotWrite { path: path.clone(), source: std::io::Error::other(error) };
                let image = picture.to_png().map_err(failed)?;
                create(folder)?;
                write(&path, &image)?;
            }
        }
        Ok(())
    }
}

/// The timelines, with the rank that names of files give.
pub(crate) fn timelines(case: &Case) -> impl Iterator<Item = (&Timeline, Option<u32>)> {
    case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Timeline(timeline) => Some((&**timeline, o.who.rank.map(|rank| rank.0))),
        _ => None,
    })
}

/// The rings of the plugin as timelines, where nothing else was recorded.
fn rings(case: &Case) -> Vec<Timeline> {
    if timelines(case).next().is_some() {
        return Vec::new();
    }
    let of = |o: &Observation| match &o.fact {
        Fact::Ring(ring) => {
            ringleader_trace::rings::timeline(ring, o.who.rank, o.who.host.clone(), o.who.pid)
        }
        _ => None,
    };
    case.observations.iter().filter_map(of).collect()
}

fn shown(rings: &[Timeline]) -> impl Iterator<Item = (&Timeline, Option<u32>)> {
    rings.iter().map(|timeline| (timeline, None))
}

/// The same failure, with what this command takes.
fn with_help(failure: Failure) -> Failure {
    match failure {
        Failure::NoSuchPath { path, source, .. } => {
            let help = "name timelines of the ranks, or folders that hold them: ringleader trace FILES…";
            Failure::NoSuchPath { path, source, help }
        }
        other => other,
    }
}
