//! Runs a simulated job of thousands of ranks against a real hub.
//!
//! ```text
//! agents run HUB --nodes 1280 --ranks 8 --step-ms 1000 --gap-ms 2000 --start UNIX_NS
//!     speaks for all nodes, each with a lease of its own; lines on stdin: `fault RANK`, `heal`, `kill NODE`, `quit`
//! agents analyse HUB NAME
//!     stands for election; as analyser it joins all digests and prints what it finds
//! agents sizes
//!     prints length and time of one packed digest
//! ```
//! Both print one JSON object per line. `zoo/hub.py` runs them against each other.

#![expect(clippy::print_stdout, reason = "its output")]

mod job;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_hub::{Change, Feed, Hub, HubLink, HubOptions, Published, Stats};
use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::What;
use serde_json::{Value, json};

use job::{Fault, Job};

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

fn say(mut line: Value) {
    line["at"] = json!(now_ns() as f64 / 1e9);
    println!("{line}");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str, default: i64| -> Result<i64, std::num::ParseIntError> {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)).map_or(Ok(default), |text| text.parse())
    };
    let words: Vec<&str> = args.iter().take_while(|arg| !arg.starts_with("--")).map(String::as_str).collect();
    match words[..] {
        ["run", address] => {
            let job = Job {
                n_nodes: value("--nodes", 64)? as u32,
                ranks_per_node: value("--ranks", 8)? as u32,
                step_ns: value("--step-ms", 1000)? * 1_000_000,
                start_ns: value("--start", now_ns())?,
                fault: None,
            };
            let gap = Duration::from_millis(value("--gap-ms", 1000)?.cast_unsigned());
            run(address, job, gap)
        }
        ["analyse", address, name] => analyse(address, name),
        ["sizes"] => {
            sizes();
            Ok(())
        }
        _ => Err("agents run HUB [--nodes N] ... | agents analyse HUB NAME | agents sizes".into()),
    }
}

fn commands() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Publishes for all nodes of the job.
fn run(address: &str, mut job: Job, gap: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let options = |node| HubOptions { gap, beat: gap.max(Duration::from_secs(2)), ..HubOptions::new(node) };
    let mut hubs: BTreeMap<u32, Hub> = BTreeMap::new();
    hubs.insert(0, Hub::open(address, options(Job::node(0)))?);
    for node in 1..job.n_nodes {
        let hub = hubs[&0].beside(options(Job::node(node)))?;
        hubs.insert(node, hub);
    }
    let lines = commands();
    let mut gone = Stats::default();
    let (mut before, mut told) = (Stats::default(), Instant::now());
    let mut sequence = 0;
    // All nodes publish once within this time, evenly spread.
    let round = gap.min(Duration::from_secs(1));
    'job: loop {
        sequence += 1;
        let begun = Instant::now();
        for (turn, (node, hub)) in hubs.iter().enumerate() {
            hub.publish(&job.digest(*node, sequence, now_ns()))?;
            let due = begun + round.mul_f64(turn as f64 / hubs.len() as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        for line in lines.try_iter() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["fault", rank] => {
                    job.fault = Some(Fault { rank: rank.parse()?, at_ns: now_ns() });
                    let stuck_at = job.stuck_at_ns().map(|ns| ns as f64 / 1e9);
                    say(json!({"agents": "fault", "rank": rank, "stuck_at": stuck_at}));
                }
                ["heal"] => {
                    // The job starts again, as after a restart.
                    job.fault = None;
                    say(json!({"agents": "heal"}));
                }
                ["kill", node] => {
                    if let Some(hub) = hubs.remove(&node.parse()?) {
                        add(&mut gone, hub.stats());
                        hub.abandon();
                    }
                    say(json!({"agents": "kill", "node": node}));
                }
                ["quit"] => break 'job,
                _ => say(json!({"agents": "what?", "line": line})),
            }
        }
        if told.elapsed() >= Duration::from_secs(5) {
            let mut all = gone;
            let mut n_up = 0;
            for hub in hubs.values() {
                add(&mut all, hub.stats());
                n_up += u32::from(hub.link() == HubLink::Up);
            }
            let seconds = told.elapsed().as_secs_f64();
            say(json!({
                "agents": "sent",
                "up": n_up,
                "of": hubs.len(),
                "per_s": ((all.sent - before.sent) as f64 / seconds).round(),
                "kib_per_s": ((all.sent_bytes - before.sent_bytes) as f64 / seconds / 1024.0).round(),
                "failed": all.failed - before.failed,
                "leases_lost": all.leases_lost - before.leases_lost,
                "round_s": begun.elapsed().as_secs_f64(),
            }));
            (before, told) = (all, Instant::now());
        }
        std::thread::sleep((begun + round).saturating_duration_since(Instant::now()));
    }
    // Thousands of sequential goodbyes would take long; the leases expire by themselves.
    for (_, hub) in hubs {
        hub.abandon();
    }
    Ok(())
}

fn add(all: &mut Stats, one: Stats) {
    all.sent += one.sent;
    all.sent_bytes += one.sent_bytes;
    all.unchanged += one.unchanged;
    all.failed += one.failed;
    all.leases_lost += one.leases_lost;
}

/// Memory of this process in MiB: current and peak.
fn memory_mib() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Processor time of this thread so far, milliseconds.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// The analyser's measurements of itself between two reports.
#[derive(Default)]
struct Meter {
    latencies_ms: Vec<f64>,
    look_ms: f64,
    look_cpu_ms: f64,
    take_cpu_ms: f64,
    n_silent: u32,
}

/// Stands for election; as analyser follows all digests.
fn analyse(address: &str, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let hub = Hub::open(address, HubOptions::new(name))?;
    hub.campaign(true);
    say(json!({"analyser": name, "what": "candidate"}));
    let mut at_work: Option<(Feed, Engine)> = None;
    let mut meter = Meter::default();
    let (mut told, mut looked) = (Instant::now(), Instant::now());
    let (mut is_away, mut pause) = (false, Duration::ZERO);
    // Nodes not heard from since the hub's return, and when it returned. What is known about them is as old as the
    // loss, and would look like a pause of the job.
    let mut missing: (BTreeSet<String>, Instant) = (BTreeSet::new(), Instant::now());
    loop {
        let is_analyser = hub.role().is_analyser();
        // Without a hub nobody else can be analyser: keep what is known.
        let keeps = is_analyser || matches!(hub.link(), HubLink::Away { .. });
        if is_analyser && at_work.is_none() {
            say(json!({"analyser": name, "what": "elected", "incidents": hub.incidents()?.len()}));
            at_work = Some((
                hub.follow(),
                Engine::new(Settings { interval_ns: 1_000_000_000, ..Settings::default() }),
            ));
        } else if !keeps && at_work.is_some() {
            say(json!({"analyser": name, "what": "no longer elected"}));
            at_work = None;
        }
        let Some((feed, engine)) = &mut at_work else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let before = cpu_ms();
        for change in feed.next(Duration::from_millis(250)) {
            match change {
                Change::Digest(digest) => {
                    let now = now_ns();
                    missing.0.remove(&digest.node);
                    meter.latencies_ms.push((now - digest.at_ns) as f64 / 1e6);
                    engine.take(*digest, now);
                }
                Change::Silent { node } => {
                    meter.n_silent += 1;
                    missing.0.remove(&node);
                    say(json!({"analyser": name, "what": "silent", "node": node}));
                }
                Change::Away { why } => {
                    is_away = true;
                    say(json!({"analyser": name, "what": "away", "why": why}));
                }
                Change::Back => {
                    is_away = false;
                    let known = engine.view().nodes.iter().filter(|node| !node.is_silent);
                    missing = (known.map(|node| node.name.clone()).collect(), Instant::now());
                    say(json!({"analyser": name, "what": "back"}));
                }
                other => say(json!({"analyser": name, "what": format!("{other:?}")})),
            }
        }
        meter.take_cpu_ms += cpu_ms() - before;
        let is_whole = missing.0.is_empty() || missing.1.elapsed() > Duration::from_secs(15);
        if !is_away && is_whole && looked.elapsed() >= pause {
            looked = Instant::now();
            let before = cpu_ms();
            let events = engine.look(now_ns());
            meter.look_cpu_ms = meter.look_cpu_ms.max(cpu_ms() - before);
            let took = looked.elapsed();
            meter.look_ms = meter.look_ms.max(took.as_secs_f64() * 1e3);
            // Leaves most of the time for receiving digests.
            pause = (took * 3).max(Duration::from_millis(500));
            for event in events {
                tell(&hub, name, &event.what);
            }
        }
        if told.elapsed() >= Duration::from_secs(5) {
            let view = engine.view();
            let mut latencies = std::mem::take(&mut meter.latencies_ms);
            latencies.sort_by(f64::total_cmp);
            let share = |share: f64| {
                latencies.get(((latencies.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or(0.0)
            };
            let (rss, peak) = memory_mib();
            say(json!({
                "analyser": name,
                "what": "report",
                "nodes": view.nodes.len(),
                "silent": view.nodes.iter().filter(|node| node.is_silent).count(),
                "ranks": view.processes.len(),
                "comms": view.comms.len(),
                "digests_per_s": (latencies.len() as f64 / told.elapsed().as_secs_f64()).round(),
                "latency_ms": [share(0.5).round(), share(0.99).round(), share(1.0).round()],
                "look_ms": meter.look_ms.round(),
                "look_cpu_ms": meter.look_cpu_ms.round(),
                "take_cpu_us": (meter.take_cpu_ms * 1e3 / latencies.len().max(1) as f64).round(),
                "rss_mib": rss,
                "peak_mib": peak,
            }));
            told = Instant::now();
            meter = Meter::default();
        }
    }
}

fn tell(hub: &Hub, name: &str, what: &What) {
    match what {
        What::Stall(stall) => {
            say(json!({
                "analyser": name,
                "what": "stall",
                "suspects": stall.suspects,
                "text": stall.text,
                "op": stall.op.number,
                "since": stall.since,
                "after_s": stall.after_s,
                "expected_s": stall.expected_s,
            }));
            let incident = ringleader_hub::Incident {
                at_ns: now_ns(),
                summary: stall.text.clone(),
                ..ringleader_hub::Incident::default()
            };
            let recorded = hub.record(incident);
            let asked = hub.request_collect(&stall.text);
            say(json!({
                "analyser": name,
                "what": "recorded",
                "incident": recorded.as_ref().ok(),
                "request": asked.as_ref().ok(),
                "error": recorded.as_ref().err().or(asked.as_ref().err()).map(ToString::to_string),
            }));
        }
        What::Recovered { comm, after_s } => {
            say(json!({"analyser": name, "what": "recovered", "comm": comm, "after_s": after_s}));
        }
        What::Watching { nodes, ranks, .. } => {
            say(json!({"analyser": name, "what": "watching", "nodes": nodes, "ranks": ranks}));
        }
        What::Straggler(straggler) => {
            say(json!({"analyser": name, "what": "straggler", "rank": straggler.rank}));
        }
        _ => {}
    }
}

/// Prints length and time of a digest, published through a hub in a temporary directory.
fn sizes() {
    let job = Job {
        n_nodes: 1280,
        ranks_per_node: 8,
        step_ns: 1_000_000_000,
        start_ns: now_ns() - 600_000_000_000,
        fault: None,
    };
    let folder = std::env::temp_dir().join(format!("ringleader-sizes-{}", std::process::id()));
    let options = HubOptions { gap: Duration::ZERO, ..HubOptions::new(Job::node(77)) };
    let Ok(hub) = Hub::open(&format!("dir:{}", folder.display()), options) else { return };
    let (mut json, mut time, n) = (0, Duration::ZERO, 200);
    for sequence in 0..n {
        let digest = job.digest(77, sequence, now_ns() + sequence as i64 * 770_000_000);
        json += serde_json::to_vec(&digest).map_or(0, |bytes| bytes.len());
        let begun = Instant::now();
        let published = hub.publish(&digest);
        time += begun.elapsed();
        assert_eq!(published.ok(), Some(Published::Sent));
        while hub.stats().sent <= sequence {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    say(json!({
        "digests": n,
        "json_bytes": json / n as usize,
        "packed_bytes": hub.stats().sent_bytes / n,
        "pack_us": time.as_micros() as u64 / n,
    }));
    drop(hub);
    std::fs::remove_dir_all(folder).ok();
}
