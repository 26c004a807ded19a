//! # What it checks
//!
//! The port where the ranks of a job meet, on the node of rank 0: which process listens on it.
//!
//! # What fails
//!
//! A process that is neither rank 0, nor its launcher, nor below them listens there: the job cannot start, or its ranks
//! connect to another program. It warns if nothing listens while ranks wait.
//!
//! # What to do
//!
//! End that process, or give the job another MASTER_PORT.
//!
//! # References
//!
//! torch docs, distributed, environment variable initialization; torchrun, --master-port.

use std::collections::BTreeSet;

use ringleader_node::{Listener, Process};

use crate::answer::{CheckAnswer, CheckState, Impact, Item};
use crate::jobs::{ProcessTree, by_meeting, name};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "master-port",
    title: "the master port belongs to the job",
    area: Area::Job,
    reads: &[Probe::Jobs, Probe::Network, Probe::System],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("master_port.rs"),
    run,
};

/// A rank younger than this may not listen yet, nanoseconds.
const STARTING_NS: i64 = 60_000_000_000;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let network = match view.node.net.seen() {
        Ok(network) => network,
        Err(missing) => return missing.into(),
    };
    let tree = ProcessTree::new(jobs);
    let own_namespace = view.node.system.get().and_then(|system| system.net_namespace);
    let (mut items, mut told) = (Vec::new(), Vec::new());
    let (mut fix, mut is_judged) = (None, false);
    for ranks in by_meeting(jobs) {
        let Some(first) = ranks.iter().find(|rank| rank.rank() == Some(0)) else { continue };
        let Some(port) = first.number("MASTER_PORT").and_then(|port| u16::try_from(port).ok()) else {
            continue;
        };
        if let (Some(own), Some(other)) = (own_namespace, first.net_namespace)
            && own != other
        {
            told.push(format!("{} has a network namespace of its own", name(first)));
            continue;
        }
        let who = judge(&tree, first, &ranks, &network.listeners, port);
        let evidence = format!("/proc/net/tcp, MASTER_PORT={port} of pid {}", first.pid);
        let mut push = |verdict, text| {
            items.push(Item { subject: format!("port {port}"), verdict, text, evidence: evidence.clone() });
        };
        match who {
            PortOwner::Own(pid) => {
                is_judged = true;
                told.push(format!("port {port}: pid {pid} of the job listens"));
            }
            PortOwner::Unknown => {
                told.push(format!("port {port}: a process listens; run as root to see which"));
            }
            PortOwner::Stranger(listener) => {
                let pid = listener.pid.unwrap_or_default();
                let command = listener.command.as_deref().unwrap_or("unknown");
                push(
                    CheckState::Fail,
                    format!(
                        "pid {pid} ({command}) listens there and does not belong to the job of {}",
                        name(first)
                    ),
                );
                fix = Some(format!("ps -o pid,ppid,user,lstart,args -p {pid}"));
            }
            PortOwner::Nobody if view.node.at_ns - first.started_ns < STARTING_NS => {
                is_judged = true;
                told.push(format!("port {port}: the job has just started"));
            }
            PortOwner::Nobody => {
                push(
                    CheckState::Warn,
                    format!("nothing listens, and {} ranks of the job are here", ranks.len()),
                );
            }
        }
    }
    if items.is_empty() && told.is_empty() {
        return CheckAnswer::skipped("no rank 0 with MASTER_PORT runs here");
    }
    if items.is_empty() && !is_judged {
        return CheckAnswer::skipped(told.join("; "));
    }
    CheckAnswer::from_items(told.join("; "), items)
        .advise(Impact::Harmless, "check who listens", Some(fix.unwrap_or_else(|| "ss -ltnp".to_owned())))
        .advise(Impact::Disruptive, "start the job with another MASTER_PORT, or end what listens there", None)
}

enum PortOwner<'a> {
    Own(u32),
    Stranger(&'a Listener),
    Unknown,
    Nobody,
}

fn judge<'a>(
    tree: &ProcessTree<'_>,
    first: &Process,
    ranks: &[&Process],
    listeners: &'a [Listener],
    port: u16,
) -> PortOwner<'a> {
    let here: Vec<&Listener> = listeners.iter().filter(|listener| listener.port == port).collect();
    // Rank 0, the processes above it (torchrun's agent runs the store), and their children.
    let mut own: BTreeSet<u32> = ranks.iter().map(|rank| rank.pid).collect();
    if let Some(first) = tree.get(first.pid) {
        own.extend(tree.above(first).into_iter().filter(|p| !crate::jobs::is_reaper(p)).map(|p| p.pid));
    }
    let is_own = |pid: u32| {
        own.contains(&pid)
            || tree
                .get(pid)
                .is_some_and(|process| tree.above(process).iter().any(|parent| own.contains(&parent.pid)))
    };
    if let Some(pid) = here.iter().filter_map(|listener| listener.pid).find(|pid| is_own(*pid)) {
        return PortOwner::Own(pid);
    }
    match here.iter().find(|listener| listener.pid.is_some()) {
        Some(stranger) => PortOwner::Stranger(stranger),
        None if here.is_empty() => PortOwner::Nobody,
        None => PortOwner::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Listener, Network, Part};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::{NOW_NS, NodeStage, process};

    fn listens(stage: NodeStage, port: u16, pid: Option<u32>) -> NodeStage {
        let listener = Listener { address: "0.0.0.0".to_owned(), port, pid, command: Some("x".to_owned()) };
        stage.with(|node| node.net = Part::of(Network { listeners: vec![listener], ..Network::default() }))
    }

    #[test]
    fn a_stranger_and_nobody() {
        let stage = listens(NodeStage::job(|_, _| {}), 29_500, Some(999));
        stage.expect(&CHECK, CheckState::Fail, &["port 29500"]);
        assert!(stage.answer(&CHECK).summary.contains("pid 999 (x)"));
        listens(NodeStage::job(|_, _| {}), 1, Some(999)).expect(&CHECK, CheckState::Warn, &["port 29500"]);
    }

    #[test]
    fn the_jobs_own() {
        for pid in [80, 70] {
            listens(NodeStage::job(|_, _| {}), 29_500, Some(pid)).expect(&CHECK, CheckState::Ok, &[]);
        }
        let child = NodeStage::job(|_, _| {}).process(process(300, 80, "python3", &[]));
        listens(child, 29_500, Some(300)).expect(&CHECK, CheckState::Ok, &[]);
        let young = NodeStage::job(|_, rank| rank.started_ns = NOW_NS - 1_000_000_000);
        listens(young, 1, None).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn what_cannot_be_told() {
        listens(NodeStage::job(|_, _| {}), 29_500, None).expect(&CHECK, CheckState::Skipped, &[]);
        listens(NodeStage::new(), 29_500, Some(1)).expect(&CHECK, CheckState::Skipped, &[]);
        NodeStage::job(|_, _| {}).expect(&CHECK, CheckState::Skipped, &[]);
        let elsewhere = NodeStage::job(|n, rank| {
            rank.environment.as_mut().unwrap().insert("RANK".to_owned(), (n + 4).to_string());
        });
        listens(elsewhere, 29_500, Some(999)).expect(&CHECK, CheckState::Skipped, &[]);
        let apart = NodeStage::job(|_, rank| rank.net_namespace = Some(2));
        let apart = apart.with(|node| {
            let system = ringleader_node::System { net_namespace: Some(1), ..Default::default() };
            node.system = Part::of(system);
        });
        listens(apart, 29_500, Some(999)).expect(&CHECK, CheckState::Skipped, &[]);
    }
}
