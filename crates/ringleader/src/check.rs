//! `ringleader check`: takes a snapshot of a node, or reads a recorded one, and has it judged.

pub mod table;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ringleader_check::{Check, NodeReport, Options, Verdict, checks, judge};
use ringleader_collect::{Peer, Request, Roots, Target};
use ringleader_node::Node;

use crate::exit::Code;
use crate::failure::Failure;
use crate::report::Look;

/// Check a node: GPUs, fabric, kernel log, shared memory, limits, processes, network, versions
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Only these checks, by id
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Only what takes less than half a second
    #[arg(long)]
    quick: bool,
    /// Only what matters for this purpose; prolog: what justifies draining the node
    #[arg(long = "for", value_enum, value_name = "PURPOSE")]
    purpose: Option<Purpose>,
    /// Form of the report; json is json-v1, node-json the readings themselves
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// Processes of the job, with their children [default: all that carry a rank or use a GPU]
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// GPUs this node should have [default: as many as the PCI bus shows]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Hosts that should answer on TCP, each with a port or without
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',')]
    peer: Vec<String>,
    /// Longest wait for any one reading, milliseconds
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    /// Judge a recorded snapshot (node-json) in place of this node
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Least verdict that makes the exit code 4
    #[arg(long, value_enum, default_value_t = CheckFailOn::Fail, value_name = "VERDICT")]
    fail_on: CheckFailOn,
    /// Where proc, sys, dev and etc are, for tests
    #[arg(long, hide = true, value_name = "DIR")]
    unstable_root: Option<PathBuf>,
    /// NVML's library, for tests
    #[arg(long, hide = true, value_name = "FILE")]
    unstable_nvml: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    Prolog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    Text,
    Json,
    JsonV1,
    NodeJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFailOn {
    Fail,
    Warn,
    Never,
}

/// Time between two looks at a counter, milliseconds: long enough for an error rate to show, short enough for a report
/// within two seconds.
const WINDOW_MS: u64 = 400;
const CONNECT_MS: u64 = 800;

/// What to print, and the code to end with.
pub(crate) fn run(args: &CheckArgs, look: &Look) -> Result<(String, Code), Failure> {
    let chosen = choose(args)?;
    let node = match &args.from {
        Some(path) => recorded(path)?,
        None => live(args, &chosen)?,
    };
    if args.format == CheckFormat::NodeJson {
        let text = serde_json::to_string(&node).map_err(Failure::Json)?;
        return Ok((text + "\n", Code::NothingFound));
    }
    let options = Options { n_gpus: args.gpus, since_ns: None };
    let report = judge(&node, &chosen, &options);
    let text = match args.format {
        CheckFormat::Json | CheckFormat::JsonV1 | CheckFormat::NodeJson => {
            serde_json::to_string_pretty(&report).map_err(Failure::Json)? + "\n"
        }
        CheckFormat::Text => table::render(&report, look),
    };
    Ok((text, code(&report, args.fail_on)))
}

fn code(report: &NodeReport, fail_on: CheckFailOn) -> Code {
    let least = match fail_on {
        CheckFailOn::Fail => Verdict::Fail,
        CheckFailOn::Warn => Verdict::Warn,
        CheckFailOn::Never => return Code::NothingFound,
    };
    if report.verdict() >= least { Code::Findings } else { Code::NothingFound }
}

fn choose(args: &CheckArgs) -> Result<Vec<&'static Check>, Failure> {
    for id in &args.only {
        if checks::by_id(id).is_none() {
            let nearest = checks::ALL.iter().map(|check| check.id.to_owned()).collect();
            return Err(Failure::UnknownCheck { id: id.clone(), known: nearest });
        }
    }
    let wanted = |check: &&Check| {
        (args.only.is_empty() || args.only.iter().any(|id| id == check.id))
            && (!args.quick || check.is_quick)
            && (args.purpose != Some(Purpose::Prolog) || check.drains)
    };
    Ok(checks::ALL.iter().copied().filter(wanted).collect())
}

fn recorded(path: &PathBuf) -> Result<Node, Failure> {
    let file = File::open(path).map_err(|source| Failure::NoSuchPath { path: path.clone(), source })?;
    serde_json::from_reader(BufReader::new(file))
        .map_err(|source| Failure::Snapshot { path: path.clone(), source })
}

fn live(args: &CheckArgs, chosen: &[&'static Check]) -> Result<Node, Failure> {
    let program = std::env::current_exe().map_err(Failure::Program)?;
    let request = Request {
        roots: args.unstable_root.as_deref().map_or_else(Roots::default, Roots::under),
        target: Target { pids: args.pid.clone(), slurm_job: None },
        window_ms: if args.quick { 0 } else { WINDOW_MS },
        nvml: args.unstable_nvml.clone(),
        connect_ms: CONNECT_MS,
        peers: args.peer.iter().map(|peer| Peer::named(peer)).collect(),
        ..Request::default()
    };
    let names: Vec<&str> = checks::probes(chosen).into_iter().map(ringleader_check::Probe::name).collect();
    Ok(ringleader_collect::take(&program, &names, &request, args.deadline_ms, env!("CARGO_PKG_VERSION")))
}

/// The process of one probe: reads a request from standard input, prints the answer.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Which
    name: String,
}

pub(crate) fn probe(args: &ProbeArgs) -> Result<Code, Failure> {
    let Some(probe) = ringleader_collect::by_name(&args.name) else {
        let known = ringleader_collect::probes::ALL.iter().map(|probe| probe.name.to_owned()).collect();
        return Err(Failure::UnknownCheck { id: args.name.clone(), known });
    };
    ringleader_collect::answer(probe, &mut io::stdin().lock(), &mut io::stdout().lock())
        .map_err(Failure::Write)?;
    Ok(Code::NothingFound)
}
