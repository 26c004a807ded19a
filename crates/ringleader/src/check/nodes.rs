//! `check` on many nodes: who is asked, in what way, and what becomes of the answers.

use ringleader_check::fleet::{Fleet, FleetReport, Silence, SilentNode, SilentSchema};
use ringleader_check::{CheckState, NodeReport, SCHEMA};
use ringleader_model::plain_word;
use ringleader_report::{Detail, TextStyle};

use super::output::Out;
use super::{CheckArgs, CheckFailOn, CheckFormat, choose, fleet_table, junit, past, prometheus};
use crate::exit::Code;
use crate::failure::Failure;
use crate::fanout::{Fanout, HostAnswer, Ran};

/// Bytes of one node's report. A node with everything amiss stays below a hundredth of it.
const MAX_REPORT: u64 = 16 << 20;
/// Patience with a node: a check takes two seconds, a loaded login some more.
const DEADLINE_SECS: u64 = 30;
/// Nodes of the fleet that each node tries.
const MAX_FLEET_PEERS: usize = 4;
/// The check that looks at them.
const PEERS: &str = "peers-reachable";

/// Asks the nodes and prints what they say.
pub(crate) fn run(args: &CheckArgs, look: &TextStyle) -> Result<Code, Failure> {
    if let Some(why) = conflict(args) {
        return Err(Failure::Nodes { why, help: "leave one of the two out" });
    }
    let (transport, hosts) = args.nodes.transport()?;
    let program = args.nodes.program()?;
    let remote = remote_args(args);
    let fleet_peers = |at: usize| fleet_peers(args, &hosts, at);
    let fanout = Fanout {
        transport: &*transport,
        hosts: &hosts,
        program: &program,
        args: &remote,
        args_of: &fleet_peers,
        parallel: args.nodes.parallel.into(),
        deadline: args.nodes.deadline(DEADLINE_SECS),
        max_bytes: MAX_REPORT,
        spool: None,
        show_progress: look.detail != Detail::Verdict,
    };
    let mut fleet = Fleet::new(past::load(args.against.as_deref())?);
    let mut saved = past::Saved::new(args.save_baseline.as_deref());
    let mut out = Out::new(args.output.as_deref())?;
    if args.format == CheckFormat::Junit {
        junit::start(&mut out)?;
    }
    fanout.run(|answer| {
        let HostAnswer { host, timing, outcome, .. } = answer;
        let outcome = outcome.and_then(|ran| read(&ran, &host).ok_or_else(|| transport.explain(&host, &ran)));
        match &outcome {
            Ok(report) => {
                fleet.answered(report, Some(timing));
                saved.add(report);
            }
            Err(silence) => fleet.silent(&host, silence.clone()),
        }
        if args.format == CheckFormat::Jsonl {
            line(&mut out, &host, &outcome)?;
        }
        if args.format == CheckFormat::Junit {
            match &outcome {
                Ok(report) => junit::node(&mut out, report)?,
                Err(silence) => junit::silent(&mut out, &host, silence)?,
            }
        }
        Ok::<(), Failure>(())
    })?;
    let report = fleet.report();
    match args.format {
        CheckFormat::Text => out.write(&fleet_table::render(&report, look))?,
        CheckFormat::Json | CheckFormat::JsonV1 => {
            out.write(&(serde_json::to_string_pretty(&report).map_err(Failure::Json)? + "\n"))?;
        }
        CheckFormat::Jsonl => {
            out.write(&(serde_json::to_string(&report).map_err(Failure::Json)? + "\n"))?;
            if look.detail != Detail::Verdict {
                aside(&fleet_table::render(&report, look));
            }
        }
        CheckFormat::Junit => junit::end(&mut out)?,
        CheckFormat::Prometheus => out.write(&prometheus::render(&fleet))?,
        CheckFormat::NodeJson => {}
    }
    out.finish()?;
    saved.write()?;
    Ok(code(&report, args.fail_on))
}

/// A table beside the stream, for the eyes.
fn aside(text: &str) {
    use std::io::Write as _;
    // Nobody is left to tell if standard error is gone.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn conflict(args: &CheckArgs) -> Option<String> {
    let other = [
        (args.from.is_some(), "--from"),
        (args.format == CheckFormat::NodeJson, "--format node-json"),
        (!args.pid.is_empty(), "--pid"),
        (args.fix, "--fix"),
        (!args.kill_orphans.is_empty(), "--kill-orphans"),
    ];
    let (_, name) = other.iter().find(|(is_set, _)| *is_set)?;
    Some(format!("{name} is for one node, and many are named"))
}

/// What the nodes are asked.
fn remote_args(args: &CheckArgs) -> Vec<String> {
    let mut remote = ["check", "--format", "jsonl", "--fail-on", "never"].map(str::to_owned).to_vec();
    let mut push = |words: &[&str]| remote.extend(words.iter().map(|word| (*word).to_owned()));
    if !args.only.is_empty() {
        push(&["--only", &args.only.join(",")]);
    }
    if args.quick {
        push(&["--quick"]);
    }
    if args.purpose.is_some() {
        push(&["--for", "prolog"]);
    }
    if let Some(n) = args.gpus {
        push(&["--gpus", &n.to_string()]);
    }
    if let Some(ms) = args.deadline_ms {
        push(&["--deadline-ms", &ms.to_string()]);
    }
    for peer in &args.peer {
        push(&["--peer", peer]);
    }
    remote
}

/// The other nodes that the one at that place is to reach: those that follow it in the list, so that each node is tried
/// by as many as it tries. Pods have no names for each other.
fn fleet_peers(args: &CheckArgs, hosts: &[String], at: usize) -> Vec<String> {
    let is_looked_at = args.nodes.kube.is_none()
        && choose(args).is_ok_and(|chosen| chosen.iter().any(|check| check.id == PEERS));
    if !is_looked_at {
        return Vec::new();
    }
    let after = hosts.iter().cycle().skip(at + 1).take(hosts.len().saturating_sub(1));
    // Of `root@node1` the name; a port or what a shell would take apart belongs to ssh alone.
    let names = after.filter_map(|host| plain_word(host.rsplit('@').next().unwrap_or(host)));
    names.take(MAX_FLEET_PEERS).flat_map(|name| ["--fleet-peer".to_owned(), name.to_owned()]).collect()
}

/// The report in what a node printed. A login shell may have said something before it.
fn read(ran: &Ran, host: &str) -> Option<NodeReport> {
    if ran.is_cut {
        return None;
    }
    let start = format!("{{\"schema\":\"{SCHEMA}\"");
    let line =
        ran.output.split(|byte| *byte == b'\n').rev().find(|line| line.starts_with(start.as_bytes()))?;
    let mut report: NodeReport = serde_json::from_slice(line).ok()?;
    if report.host != host {
        report.target = Some(host.to_owned());
    }
    Some(report)
}

/// A line for each node, whether it answered or not.
fn line(out: &mut Out, host: &str, outcome: &Result<NodeReport, Silence>) -> Result<(), Failure> {
    let text = match outcome {
        Ok(report) => serde_json::to_string(report),
        Err(silence) => serde_json::to_string(&SilentNode {
            schema: SilentSchema::V1,
            target: host.to_owned(),
            kind: silence.kind,
            why: silence.why.clone(),
            next: silence.next.clone(),
        }),
    };
    out.write(&(text.map_err(Failure::Json)? + "\n"))?;
    out.flush()
}

/// Failures are findings; without one, a node that did not answer leaves the question open; if none answered there is
/// nothing to go by.
pub(crate) fn code(report: &FleetReport, fail_on: CheckFailOn) -> Code {
    let least = match fail_on {
        CheckFailOn::Fail => CheckState::Fail,
        CheckFailOn::Warn => CheckState::Warn,
        CheckFailOn::Never => return Code::NothingFound,
    };
    if report.n_answered == 0 {
        Code::NoUsableEvidence
    } else if report.verdict() >= least {
        Code::Findings
    } else if report.n_silent() > 0 {
        Code::Undecided
    } else {
        Code::NothingFound
    }
}
