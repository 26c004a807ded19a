//! `ringleader history`: what `run` remembers of nodes and GPUs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ringleader_model::Date;
use ringleader_report::quote::plain;
use ringleader_run::history::{History, HistoryError, Incident, NodeHistory};
use ringleader_run::policy;
use ringleader_run::state::now;
use serde_json::json;

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;

/// Name and version of the JSON form.
const SCHEMA: &str = "ringleader.history.v1";

/// List the incidents of nodes and GPUs that `run` recorded, and nodes that fail repeatedly
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Incidents of this node only
    node: Option<String>,
    /// The file [default: $RINGLEADER_HISTORY, ~/.local/share/ringleader/history.db]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only incidents within this time: 30d, 12h
    #[arg(long, value_name = "TIME", default_value = "90d")]
    since: String,
    /// Print only the nodes that fail repeatedly, one per line; the exit code is 4 if there are any
    #[arg(long)]
    lemons: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Subcommand for HistoryArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let wrong = |why: String| Failure::Nodes { why: format!("read --since: {why}"), help: "--since 30d" };
        let since = now() - policy::duration(&self.since).map_err(wrong)?.as_secs_f64();
        let none = || Failure::Nodes {
            why: "find the history: the home folder is unknown".to_owned(),
            help: "name it: --file history.db",
        };
        let path = crate::run::history(self.file.as_ref()).ok_or_else(none)?;
        if !path.exists() {
            return Err(Failure::Absent { why: format!("no incident is recorded in {}", path.display()) });
        }
        let failed = |error: HistoryError| Failure::Nodes {
            why: format!("{}: {error}", path.display()),
            help: "is it a file that `ringleader run` wrote?",
        };
        let history = History::read(&path).map_err(failed)?;
        let standings = history.standings(since).map_err(failed)?;
        let incidents = history.incidents(self.node.as_deref(), since).map_err(failed)?;
        if self.lemons {
            let names: Vec<String> = standings
                .iter()
                .filter(|standing| standing.is_lemon)
                .map(|standing| plain(&standing.node) + "\n")
                .collect();
            print(&names.concat())?;
            return Ok(if names.is_empty() { Code::NothingFound } else { Code::Findings }.into());
        }
        let text =
            if self.json { as_json(&standings, &incidents) } else { self.text(&standings, &incidents) };
        print(&text)?;
        Ok(Code::NothingFound.into())
    }
}

/// Incidents that a person is shown.
const MAX_SHOWN: usize = 50;

impl HistoryArgs {
    fn text(&self, standings: &[NodeHistory], incidents: &[Incident]) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        if self.node.is_none() {
            let _ = writeln!(
                out,
                "{:<24} {:>8} {:>9} {:>7} {:>5} {:>8}  GPUs",
                "node", "attempts", "incidents", "of node", "jobs", "left out"
            );
            for standing in standings.iter().take(MAX_SHOWN) {
                let lemon = if standing.is_lemon { "  LEMON" } else { "" };
                let _ = writeln!(
                    out,
                    "{:<24} {:>8} {:>9} {:>7} {:>5} {:>8}  {}{lemon}",
                    plain(&standing.node),
                    standing.attempts,
                    standing.incidents,
                    standing.of_node,
                    standing.jobs,
                    standing.excluded,
                    plain(&standing.gpus.join(", ")),
                );
            }
            out.push('\n');
        }
        for incident in incidents.iter().take(MAX_SHOWN) {
            let node = incident.node.as_deref().unwrap_or("-");
            let _ = writeln!(
                out,
                "{}  {}  {} attempt {}  {} ({}, {}): {}: {}",
                clock(incident.at),
                plain(node),
                called(&incident.job),
                incident.attempt,
                plain(&incident.cause),
                plain(&incident.class),
                plain(&incident.confidence),
                plain(&incident.action),
                plain(&incident.summary),
            );
        }
        if incidents.len() > MAX_SHOWN {
            let _ = writeln!(out, "… and {} more: --json prints all", incidents.len() - MAX_SHOWN);
        }
        out
    }
}

/// `2026-11-23 08:21:32`, UTC.
fn clock(at: f64) -> String {
    let seconds = at as i64;
    let Date { year, month, day } = Date::from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

fn as_json(standings: &[NodeHistory], incidents: &[Incident]) -> String {
    let nodes: Vec<serde_json::Value> = standings
        .iter()
        .map(|s| {
            json!({"node": s.node, "attempts": s.attempts, "incidents": s.incidents, "of_node": s.of_node, "jobs": s.jobs,
                   "excluded": s.excluded, "gpus": s.gpus, "last": s.last, "is_lemon": s.is_lemon})
        })
        .collect();
    let incidents: Vec<serde_json::Value> = incidents
        .iter()
        .map(|i| {
            json!({"at": i.at, "job": i.job, "attempt": i.attempt, "node": i.node, "gpu": i.gpu, "rank": i.rank,
                   "cause": i.cause, "class": i.class, "confidence": i.confidence, "action": i.action, "summary": i.summary})
        })
        .collect();
    json!({"schema": SCHEMA, "nodes": nodes, "incidents": incidents}).to_string() + "\n"
}

/// `job 4711`; a name that begins with `job` as it is.
fn called(job: &str) -> String {
    if job.starts_with("job") { plain(job) } else { format!("job {}", plain(job)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_whose_name_says_so() {
        assert_eq!(["4711", "job", "job-7"].map(called), ["job 4711", "job", "job-7"]);
    }

    #[test]
    fn times() {
        assert_eq!(clock(0.0), "1970-01-01 00:00:00");
        assert_eq!(clock(1_795_422_092.9), "2026-11-23 08:21:32");
        assert_eq!(clock(951_782_400.0), "2000-02-29 00:00:00");
    }
}
