//! The collectors, one file each: what each takes, what it needs to be allowed, and what it does to the job.
//!
//! None stops a process, sends a signal or writes anything but the bundle, unless its impact says so; those run only
//! when they are asked for by name. A collector that fails costs its own items: each says in the manifest what came of
//! it.

mod dump;
mod logs;
mod node;
mod poured;
mod ras;
mod rings;
mod stacks;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use ringleader_bundle::{
    BundleWriter, Caps, Clock, Content, Host, Item, ItemOutcome, Manifest, Origin, SCHEMA, Version,
};
use ringleader_node::{Jobs, Node, Part, Process};

use crate::probe::Probe;
use crate::request::Request;
use crate::run::{by_name, now_ns, run_one};

/// What a collector does to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorImpact {
    /// Nothing.
    ReadOnly,
    /// Stops processes for a moment.
    Pauses,
    /// Makes the job, or a process of it, write or do something.
    Writes,
}

/// One collector.
pub struct Collector {
    /// Name.
    pub name: &'static str,
    /// What it takes, a few words.
    pub takes: &'static str,
    /// What it needs to be allowed, and what is missing without.
    pub privileges: &'static str,
    /// What it does to the job.
    pub impact: CollectorImpact,
    /// Whether it was asked for.
    wanted: fn(&Ask) -> bool,
    collect: fn(&mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError>,
}

/// All collectors, in the order they run: what passes first.
pub static ALL: &[Collector] = &[
    Collector {
        name: "node",
        takes: "everything `check` reads, and the kernel log",
        privileges: "root, for the kernel log and other users' processes",
        impact: CollectorImpact::ReadOnly,
        wanted: |_| true,
        collect: node::collect,
    },
    Collector {
        name: "stacks",
        takes: "Python and native stacks of each process of the job, and where its threads are in the kernel",
        privileges: "CAP_SYS_PTRACE; root, for the kernel's stacks",
        impact: CollectorImpact::ReadOnly,
        wanted: |ask| ask.with_stacks,
        collect: stacks::collect,
    },
    Collector {
        name: "samples",
        takes: "where the main threads of some ranks are, sampled over some seconds, if requested",
        privileges: "as stacks",
        impact: CollectorImpact::ReadOnly,
        wanted: |ask| ask.samples.is_some(),
        collect: stacks::sample,
    },
    Collector {
        name: "rings",
        takes: "the plugin's record of each process: its operations, in flight and ended",
        privileges: "to be the job's user, or root",
        impact: CollectorImpact::ReadOnly,
        wanted: |_| true,
        collect: rings::collect,
    },
    Collector {
        name: "watch-events",
        takes: "what the watcher that requests it has seen of the job",
        privileges: "none",
        impact: CollectorImpact::ReadOnly,
        wanted: |ask| !ask.watch_events.is_empty(),
        collect: watch::collect,
    },
    Collector {
        name: "ras",
        takes: "NCCL's own view of the running job, as text and as JSON",
        privileges: "CAP_SYS_ADMIN, to enter the network of a container",
        impact: CollectorImpact::ReadOnly,
        wanted: |ask| ask.with_ras,
        collect: ras::collect,
    },
    Collector {
        name: "ask-dump",
        takes: "a Flight Recorder dump that the live job is asked to write",
        privileges: "to write to the job's pipe",
        impact: CollectorImpact::Writes,
        wanted: |ask| ask.with_dump_request,
        collect: dump::collect,
    },
    Collector {
        name: "stacks-again",
        takes: "the same stacks again, if requested: a single sample does not separate stuck from slow",
        privileges: "as stacks",
        impact: CollectorImpact::ReadOnly,
        wanted: |ask| ask.with_stacks && ask.stacks_again_ms.is_some(),
        collect: stacks::collect_again,
    },
    Collector {
        name: "node-item",
        takes: "the snapshot of the node, with a second sample of the job's processes if stacks are taken twice",
        privileges: "none",
        impact: CollectorImpact::ReadOnly,
        wanted: |_| true,
        collect: node::write,
    },
    Collector {
        name: "logs",
        takes: "logs, dumps and error files that the job's processes write, and the paths that were given",
        privileges: "to read them",
        impact: CollectorImpact::ReadOnly,
        wanted: |ask| ask.with_logs || !ask.paths.is_empty(),
        collect: logs::collect,
    },
];

/// How main threads are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Of each process.
    pub n: u32,
    /// From one to the next, milliseconds.
    pub every_ms: u64,
    /// Of which processes; of many the first.
    pub pids: Vec<u32>,
}

/// What is to be collected.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Whose processes, where the kernel's file systems are, and how patient probes are.
    pub request: Request,
    /// How much may go in.
    pub caps: Caps,
    /// Stacks of the job's processes.
    pub with_stacks: bool,
    /// NCCL RAS.
    pub with_ras: bool,
    /// Logs and dumps of the job.
    pub with_logs: bool,
    /// Ask the live job for a Flight Recorder dump: it writes a file.
    pub with_dump_request: bool,
    /// Take stacks a second time, at least this much after the first, milliseconds.
    pub stacks_again_ms: Option<u64>,
    /// Sample the main threads of ranks.
    pub samples: Option<Samples>,
    /// No part may take longer than this, milliseconds; each part's own deadline holds as well.
    pub longest_ms: Option<u64>,
    /// Rings of the job that were read already, also of processes that have ended.
    pub rings: Vec<RingImage>,
    /// Events of the watcher that asks, one JSON object a line (`ringleader.watch.v1`).
    pub watch_events: String,
    /// Files and folders to include.
    pub paths: Vec<PathBuf>,
    /// Version of the program.
    pub tool_version: String,
    /// Command line, for the manifest.
    pub asked: Vec<String>,
}

/// A ring as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingImage {
    /// Name of the file.
    pub name: String,
    /// Where it lay.
    pub path: PathBuf,
    /// Its process, as this host counts.
    pub pid: Option<u32>,
    /// A consistent image: itself a ring file.
    pub bytes: Vec<u8>,
}

/// Warning that goes with every bundle that holds logs.
pub const LOGS_REMARK: &str = "logs are as the job wrote them and may contain secrets (--no-logs leaves them out); environments and command lines are limited to the allow-list";

/// What collectors work with.
struct Context<'c, 'w> {
    program: &'c Path,
    ask: &'c Ask,
    node: Node,
    /// Name of the host, and the folder of its items.
    host: String,
    bundle: BundleWriter<&'w mut dyn Write>,
    /// When the first stacks were taken.
    stacks_at: Option<Instant>,
}

/// Collects into `out`, by processes of `program` where something may hang. Tells `progress` the name of each collector
/// that begins.
///
/// # Errors
/// If `out` fails. Whatever else goes wrong is in the manifest.
pub fn collect(
    program: &Path,
    ask: &Ask,
    out: &mut dyn Write,
    progress: &dyn Fn(&str),
) -> Result<Manifest, ringleader_bundle::BundleError> {
    let (began_ns, started) = (now_ns(), Instant::now());
    let bundle = BundleWriter::new(out, ask.caps)?;
    let mut context =
        Context { program, ask, node: Node::default(), host: String::new(), bundle, stacks_at: None };
    for collector in ALL.iter().filter(|collector| (collector.wanted)(ask)) {
        progress(collector.name);
        (collector.collect)(&mut context)?;
    }
    let manifest = Manifest {
        schema: SCHEMA.to_owned(),
        format: Version::default(),
        tool_version: ask.tool_version.clone(),
        asked: ask.asked.clone(),
        began_ns,
        took_ms: started.elapsed().as_millis() as u64,
        hosts: vec![host_of(&context.node, &context.host)],
        remarks: if ask.with_logs { vec![LOGS_REMARK.to_owned()] } else { Vec::new() },
        items: Vec::new(),
    };
    let (_, manifest) = context.bundle.finish(manifest)?;
    Ok(manifest)
}

fn host_of(node: &Node, host: &str) -> Host {
    let mut versions = std::collections::BTreeMap::new();
    let mut add = |name: &str, version: Option<&str>| {
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            versions.entry(name.to_owned()).or_insert_with(|| version.to_owned());
        }
    };
    let mut clock = Clock { wall_ns: node.at_ns, ..Clock::default() };
    if let Some(system) = node.system.get() {
        add("kernel", Some(&system.kernel));
        for (module, version) in &system.modules {
            add(module, Some(version));
        }
        clock.uptime_s = system.uptime_s;
        clock.boot_id.clone_from(&system.boot_id);
        clock.is_kept = system.clock_is_kept;
        clock.error_us = system.clock_error_us;
    }
    if let Some(gpus) = node.gpus.get() {
        add("driver", gpus.driver_version.as_deref());
        add("cuda", gpus.cuda_version.as_deref());
        add("nvml", gpus.nvml_version.as_deref());
    }
    for libraries in node.libraries.get().into_iter().flat_map(|all| all.values()) {
        for (library, version) in libraries {
            add(library, Some(version));
        }
    }
    Host { host: host.to_owned(), clock, versions }
}

impl Context<'_, '_> {
    /// Processes of the job; why there are none has been said in the node's part.
    fn jobs(&self) -> Option<&Jobs> {
        self.node.jobs.get()
    }

    /// An item of this host, named below its folder.
    fn item(&self, kind: &str, name: &str, origin: Origin) -> Item {
        let name = if name.is_empty() { String::new() } else { format!("{}/{name}", self.host) };
        Item {
            name,
            kind: kind.to_owned(),
            host: self.host.clone(),
            origin,
            at_ns: now_ns(),
            ..Item::default()
        }
    }

    /// Adds what a task said, or why it said nothing.
    fn add_text(
        &mut self,
        item: Item,
        part: &Part<serde_json::Value>,
        text: Option<&str>,
    ) -> Result<(), ringleader_bundle::BundleError> {
        let item = Item { at_ns: part.at_ns, took_ms: part.took_ms, ..item };
        match (text, outcome_of(part)) {
            (Some(text), None) => self.bundle.add_bytes(item, Content::Text, text.as_bytes()).map(|_| ()),
            (_, outcome) => {
                let none = || ItemOutcome::Failed(vec!["its answer could not be parsed".to_owned()]);
                self.bundle.missing(Item { outcome: outcome.unwrap_or_else(none), ..item });
                Ok(())
            }
        }
    }

    /// Runs a task in a process of its own.
    fn run(&self, task: &str, request: &Request) -> Part<serde_json::Value> {
        match by_name(task) {
            Some(task) => run_task(self.program, task, request, self.ask.longest_ms),
            None => Part::default(),
        }
    }
}

fn run_task(
    program: &Path,
    task: &Probe,
    request: &Request,
    longest_ms: Option<u64>,
) -> Part<serde_json::Value> {
    let deadline_ms = match request.deadline_ms {
        0 => task.deadline_ms,
        limit => limit.min(task.deadline_ms),
    };
    let deadline_ms = longest_ms.map_or(deadline_ms, |longest| longest.min(deadline_ms));
    run_one(program, task, &Request { deadline_ms, longest_ms, ..request.clone() })
}

/// Why there is nothing; None if there is something.
fn outcome_of<T>(part: &Part<T>) -> Option<ItemOutcome> {
    let missing = part.seen().err()?;
    Some(if missing.is_trouble {
        ItemOutcome::Failed(vec![missing.why])
    } else {
        ItemOutcome::Skipped(missing.why)
    })
}

/// Runs a task for each of many processes, some at a time, and answers in their order.
fn run_for_each(
    program: &Path,
    task: &str,
    requests: &[Request],
    at_once: usize,
    longest_ms: Option<u64>,
) -> Vec<Part<serde_json::Value>> {
    let Some(task) = by_name(task) else { return requests.iter().map(|_| Part::default()).collect() };
    let mut parts = Vec::with_capacity(requests.len());
    for some in requests.chunks(at_once.max(1)) {
        thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|request| scope.spawn(move || run_task(program, task, request, longest_ms)))
                .collect();
            parts.extend(threads.into_iter().map(|thread| thread.join().unwrap_or_default()));
        });
    }
    parts
}

/// What a file of a process's items is called by.
fn label(process: &Process) -> String {
    match process.rank() {
        Some(rank) => format!("rank-{rank}-pid-{}", process.pid),
        None => format!("pid-{}", process.pid),
    }
}

/// Letters that are safe in a path within the bundle.
fn tame(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-+%".contains(c) { c } else { '_' };
    let tame: String = name.chars().map(safe).collect();
    if tame.trim_matches('.').is_empty() { "unnamed".to_owned() } else { tame }
}
