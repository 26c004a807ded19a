//! `ringleader check`: takes a snapshot of a node, or reads a recorded one, and has it judged.

mod act;
pub mod fleet_table;
mod junit;
mod nodes;
mod output;
mod past;
mod prometheus;
pub mod schema;
pub mod table;

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{FalseyValueParser, NonEmptyStringValueParser};
use clap::{Args, ValueEnum};
use ringleader_check::fleet::Fleet;
use ringleader_check::{Check, CheckState, Expectations, NodeReport, checks, judge};
use ringleader_collect::{Peer, Probe, Request, Roots, Target};
use ringleader_node::{FLEET_PEER, Node, Outcome};
use ringleader_report::{TextStyle, quote};

use self::output::Out;
use crate::command::Subcommand;
use crate::exit::Code;
use crate::failure::Failure;
use crate::fanout::nodes::NodesArgs;
use crate::terminal::{LookArgs, detail};

/// Each check with its id, its title and its documentation, for the site.
pub fn documents() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    ringleader_check::checks::ALL.iter().map(|check| (check.id, check.title, check.explanation()))
}

/// Check this node, or many: GPUs, fabric, kernel log, shared memory, limits, processes, network, versions
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/check.txt"))]
pub(crate) struct CheckArgs {
    /// Only these checks, by id
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Only checks that take less than half a second
    #[arg(long)]
    quick: bool,
    /// Only checks for this purpose; prolog: those that justify draining the node
    #[arg(long = "for", value_enum, value_name = "PURPOSE")]
    purpose: Option<Purpose>,
    /// Form of the report; json is json-v1, jsonl a line for each node as it answers, node-json the readings themselves
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// Write the report to this file, atomically unless it is a device or a pipe
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Processes of the job, with their children [default: all that carry a rank or use a GPU]
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Number of GPUs this node must have [default: as many as the PCI bus shows]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Hosts that must answer on TCP, with or without a port; with many nodes, nodes also try each other
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    peer: Vec<String>,
    /// A node of the same fleet, by the name that the asking node has for it
    #[arg(long, hide = true, value_name = "HOST")]
    fleet_peer: Vec<String>,
    /// Longest wait for any one reading, milliseconds
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    /// Judge a recorded snapshot (node-json) in place of this node; - is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Least verdict that makes the exit code 4
    #[arg(long, value_enum, default_value_t = CheckFailOn::Fail, value_name = "VERDICT")]
    fail_on: CheckFailOn,
    /// Save the current values, for `--against`
    #[arg(long, value_name = "FILE")]
    save_baseline: Option<PathBuf>,
    /// Compare with a baseline: changed versions and settings, grown counters, worse checks
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Offer to run harmless fixes, one by one
    #[arg(long)]
    fix: bool,
    /// End these processes if they are yours and are orphans of an earlier job
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    kill_orphans: Vec<u32>,
    #[command(flatten)]
    look: LookArgs,
    /// Print counts and problems, without reasons
    #[arg(long, short, env = "RINGLEADER_QUIET", hide_env = true, value_parser = FalseyValueParser::new(), conflicts_with = "verbose")]
    quiet: bool,
    /// Print everything, nothing shortened
    #[arg(long, short, env = "RINGLEADER_VERBOSE", hide_env = true, value_parser = FalseyValueParser::new())]
    verbose: bool,
    #[command(flatten)]
    nodes: NodesArgs,
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
    Jsonl,
    Junit,
    Prometheus,
    NodeJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFailOn {
    Fail,
    Warn,
    Never,
}

impl Subcommand for CheckArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let look = self.look.look(detail(self.quiet, self.verbose));
        // A wrong id is to be found here and not on each of a thousand nodes.
        let chosen = choose(self)?;
        let code = if self.nodes.is_asked() { nodes::run(self, &look) } else { here(self, &chosen, &look) };
        Ok(code?.into())
    }
}

/// This node, or a recorded one.
fn here(args: &CheckArgs, chosen: &[&'static Check], look: &TextStyle) -> Result<Code, Failure> {
    if args.fix && args.from.is_some() {
        let why = "--fix needs the node itself".to_owned();
        return Err(Failure::Nodes {
            why,
            help: "leave out --from: what was recorded may be gone, or belong to another process",
        });
    }
    let baseline = past::load(args.against.as_deref())?;
    let node = match &args.from {
        Some(path) => recorded(path)?,
        None => live(args, chosen)?,
    };
    let mut out = Out::new(args.output.as_deref())?;
    if args.format == CheckFormat::NodeJson {
        out.write(&(serde_json::to_string(&node).map_err(Failure::Json)? + "\n"))?;
        out.finish()?;
        return Ok(Code::NothingFound);
    }
    let options = Expectations { n_gpus: args.gpus, since_ns: None };
    let mut report = judge(&node, chosen, &options);
    let mut lacks_baseline = false;
    if let Some(baseline) = &baseline {
        match baseline.of(&report) {
            Some(moment) => report.changes = moment.changes(&report),
            None => lacks_baseline = true,
        }
    }
    match args.format {
        CheckFormat::Json | CheckFormat::JsonV1 => {
            out.write(&(serde_json::to_string_pretty(&report).map_err(Failure::Json)? + "\n"))?;
        }
        CheckFormat::Jsonl => out.write(&(serde_json::to_string(&report).map_err(Failure::Json)? + "\n"))?,
        CheckFormat::Junit => {
            junit::start(&mut out)?;
            junit::node(&mut out, &report)?;
            junit::end(&mut out)?;
        }
        CheckFormat::Prometheus => {
            let mut fleet = Fleet::default();
            fleet.answered(&report, None);
            out.write(&prometheus::render(&fleet))?;
        }
        CheckFormat::Text | CheckFormat::NodeJson => out.write(&table::render(&report, look))?,
    }
    if let (Some(path), CheckFormat::Text, false) = (&args.against, args.format, lacks_baseline)
        && report.changes.is_empty()
    {
        out.write(&format!(
            "\nnothing has changed since the baseline {}\n",
            quote::plain(&path.display().to_string())
        ))?;
    }
    out.finish()?;
    if lacks_baseline {
        return Err(Failure::Baseline {
            path: args.against.clone().unwrap_or_default(),
            why: format!("it does not contain {}", report.name()),
        });
    }
    let mut saved = past::Saved::new(args.save_baseline.as_deref());
    saved.add(&report);
    saved.write()?;
    if args.fix {
        act::fix(&report)?;
    }
    let mut is_done = true;
    if !args.kill_orphans.is_empty() {
        let ended = kill_orphans(args)?;
        act::tell(&ended)?;
        is_done = ended.iter().all(|(_, what)| *what == act::KillResult::Gone);
    }
    // A requested action that failed always affects the exit code, regardless of the report.
    let code = if is_done { code(&report, args.fail_on) } else { Code::Findings };
    if code == Code::NothingFound
        && !args.pid.is_empty()
        && let Outcome::Failed(why) | Outcome::Absent(why) = &node.jobs.outcome
    {
        // Nobody is left to tell if standard error is gone.
        let _ =
            writeln!(io::stderr().lock(), "the processes of --pid were not checked: {}", quote::plain(why));
        return Ok(Code::NoUsableEvidence);
    }
    Ok(code)
}

/// Id of the check that names orphans.
const ORPHANS: &str = "job-orphans";

fn kill_orphans(args: &CheckArgs) -> Result<Vec<(u32, act::KillResult)>, Failure> {
    let here = "leave out --from: only what is an orphan at this moment may be ended";
    if args.from.is_some() {
        return Err(Failure::Nodes { why: "--kill-orphans needs the node itself".to_owned(), help: here });
    }
    let Some(check) = checks::by_id(ORPHANS) else {
        let known = checks::ALL.iter().map(|check| check.id.to_owned()).collect();
        return Err(Failure::UnknownCheck { id: ORPHANS.to_owned(), known });
    };
    // The snapshot of the report may be of a choice of checks, and is seconds old.
    let now = live(args, &[check])?;
    let root = args.unstable_root.clone().unwrap_or_else(|| PathBuf::from("/"));
    Ok(act::end_orphans(&now, &args.kill_orphans, &orphans, &root.join("proc")))
}

/// Pids that the check `job-orphans` would name.
fn orphans(node: &Node) -> Vec<u32> {
    ringleader_check::jobs::orphans(node).into_iter().map(|orphan| orphan.pid).collect()
}

fn code(report: &NodeReport, fail_on: CheckFailOn) -> Code {
    let least = match fail_on {
        CheckFailOn::Fail => CheckState::Fail,
        CheckFailOn::Warn => CheckState::Warn,
        CheckFailOn::Never => return Code::NothingFound,
    };
    let has_changed = report.changes.iter().any(|change| change.kind.is_trouble());
    let verdict = if has_changed { report.verdict().max(CheckState::Warn) } else { report.verdict() };
    if verdict >= least { Code::Findings } else { Code::NothingFound }
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
    let chosen: Vec<&'static Check> = checks::ALL.iter().copied().filter(wanted).collect();
    if chosen.is_empty() {
        let why = format!("--quick or --for excludes {}", args.only.join(", "));
        return Err(Failure::Nodes { why, help: "leave --quick or --for out, or name other checks" });
    }
    Ok(chosen)
}

fn recorded(path: &PathBuf) -> Result<Node, Failure> {
    let node = if path.as_os_str() == "-" {
        serde_json::from_reader(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|source| Failure::NoSuchFile { path: path.clone(), source })?;
        serde_json::from_reader(BufReader::new(file))
    };
    node.map_err(|source| Failure::Snapshot { path: path.clone(), source })
}

fn peers(args: &CheckArgs) -> Vec<Peer> {
    let of_fleet = |name: &String| Peer { purpose: FLEET_PEER.to_owned(), ..Peer::named(name) };
    let named = args.peer.iter().map(|peer| Peer::named(peer));
    named.chain(args.fleet_peer.iter().map(of_fleet)).collect()
}

fn live(args: &CheckArgs, chosen: &[&'static Check]) -> Result<Node, Failure> {
    let program = std::env::current_exe().map_err(Failure::Program)?;
    let request = Request {
        roots: args.unstable_root.as_deref().map_or_else(Roots::default, Roots::under),
        target: Target { pids: args.pid.clone(), ..Target::default() },
        window_ms: if args.quick { 0 } else { Request::WINDOW_MS },
        nvml: args.unstable_nvml.clone(),
        connect_ms: Request::CONNECT_MS,
        longest_ms: args.deadline_ms,
        peers: peers(args),
        ..Request::default()
    };
    let names: Vec<&str> = checks::probes(chosen).into_iter().map(ringleader_check::Probe::name).collect();
    let patience =
        |probe: &Probe| args.deadline_ms.map_or(probe.deadline_ms, |longest| longest.min(probe.deadline_ms));
    Ok(ringleader_collect::take(&program, &names, &request, patience, env!("CARGO_PKG_VERSION")))
}
