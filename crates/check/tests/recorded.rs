//! Snapshots that `zoo/check.py --record` took on a machine with four H200 GPUs, with one planted fault each: the
//! responsible check names it, and nothing else fails.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "the crate is pure, its recordings are files")]

use std::collections::BTreeSet;
use std::path::Path;

use ringleader_check::{CheckResult, CheckState, Expectations, NodeReport, checks, judge};
use ringleader_node::{Node, Outcome};
use serde_json::Value;

fn node(name: &str) -> Node {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{name}.json"));
    serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
}

fn report(name: &str) -> NodeReport {
    judge(&node(name), checks::ALL, &Expectations::default())
}

fn bad(report: &NodeReport, least: CheckState) -> Vec<&str> {
    report.checks.iter().filter(|check| check.verdict >= least).map(|check| check.id.as_str()).collect()
}

fn result<'a>(report: &'a NodeReport, id: &str) -> &'a CheckResult {
    report.checks.iter().find(|check| check.id == id).unwrap()
}

#[test]
fn a_node_with_a_healthy_job_is_clean() {
    for name in ["clean", "clean-quick"] {
        let report = report(name);
        assert!(bad(&report, CheckState::Warn).is_empty(), "{name}: {:?}", bad(&report, CheckState::Warn));
        assert!(report.checks.iter().filter(|check| check.verdict == CheckState::Ok).count() >= 15, "{name}");
    }
}

/// Fault, the check that names it, its verdict, a word of its answer, and checks that rightly fail too.
const FAULTS: &[(&str, &str, CheckState, &str, &[&str])] = &[
    ("shm-small", "shm-space", CheckState::Warn, "default", &[]),
    ("shm-full", "shm-space", CheckState::Fail, "filler", &[]),
    ("shm-stale-and-live", "shm-stale", CheckState::Warn, "no process", &[]),
    ("open-files", "limits", CheckState::Warn, "256 files", &[]),
    ("master-port-taken", "master-port", CheckState::Fail, "listens there", &[]),
    ("master-address", "master-address", CheckState::Fail, "does not resolve", &["master-port"]),
    ("dead-interface", "master-address", CheckState::Fail, "no answer", &["interface-choice"]),
    ("stopped-rank", "job-processes", CheckState::Fail, "stopped", &[]),
    ("zombie", "job-processes", CheckState::Fail, "has not reaped it", &[]),
    ("orphan", "job-orphans", CheckState::Warn, "gone", &[]),
    ("other-environment", "job-environment", CheckState::Fail, "NCCL_ALGO", &[]),
    ("illegal-access", "xid", CheckState::Fail, "Xid 31", &["job-processes"]),
];

#[test]
fn each_planted_fault_is_named_by_its_check_and_by_no_other() {
    for (name, id, verdict, word, others) in FAULTS {
        let report = report(name);
        let check = result(&report, id);
        let items: Vec<String> = check.items.iter().map(|i| format!("{}: {}", i.subject, i.text)).collect();
        assert_eq!(check.verdict, *verdict, "{name}: {}", check.summary);
        let said = format!("{} {}", check.summary, items.join(" "));
        assert!(said.contains(word), "{name}: no '{word}' in {said}");
        let surplus: Vec<&str> =
            bad(&report, CheckState::Fail).into_iter().filter(|b| b != id && !others.contains(b)).collect();
        assert!(surplus.is_empty(), "{name}: {surplus:?} fail too");
    }
}

#[test]
fn what_looks_like_a_fault_and_is_none() {
    // A segment that a live process maps, beside one that no process holds.
    let stale = result(&report("shm-stale-and-live"), "shm-stale").clone();
    assert_eq!(stale.items.len(), 1, "{:?}", stale.items);
    // A program's own illegal access does not drain the node.
    assert!(!report("illegal-access").drains());
    // A low limit of locked memory does no harm without RDMA.
    assert_eq!(result(&report("memlock"), "limits").verdict, CheckState::Ok);
}

/// A text that may be the name of a master, a container's interface or a program.
const HOSTILE: &str = "x;touch${IFS}/tmp/pwn";

/// Sets every text at `path` (without list indices, as in `.reach.host`) to [`HOSTILE`].
fn plant(value: &mut Value, path: &str, wanted: &str) {
    match value {
        Value::String(text) if path == wanted => HOSTILE.clone_into(text),
        Value::Array(list) => list.iter_mut().for_each(|value| plant(value, path, wanted)),
        Value::Object(map) => map.iter_mut().for_each(|(k, v)| plant(v, &format!("{path}.{k}"), wanted)),
        _ => {}
    }
}

fn texts(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::String(_) => {
            found.insert(path.to_owned());
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, path, found)),
        Value::Object(map) => map.iter().for_each(|(k, v)| texts(v, &format!("{path}.{k}"), found)),
        _ => {}
    }
}

#[test]
fn no_text_of_a_node_gets_into_a_command() {
    let mut n_commands = 0;
    for name in
        ["clean", "dead-interface", "master-address", "master-port-taken", "orphan", "shm-stale-and-live"]
    {
        let value = serde_json::to_value(node(name)).unwrap();
        let mut paths = BTreeSet::new();
        texts(&value, "", &mut paths);
        assert!(
            paths.contains(".jobs.outcome.seen.processes.environment.MASTER_ADDR") || name.starts_with("shm")
        );
        for path in paths {
            let mut planted = value.clone();
            plant(&mut planted, "", &path);
            // A kind of failure must be one of a list.
            let Ok(node) = serde_json::from_value::<Node>(planted) else { continue };
            for check in judge(&node, checks::ALL, &Expectations::default()).checks {
                for command in check.fixes.iter().filter_map(|fix| fix.command.as_deref()) {
                    assert!(!command.contains("pwn"), "{name}, {path}: {} says: {command}", check.id);
                    n_commands += 1;
                }
            }
        }
    }
    assert!(n_commands > 500, "{n_commands}");
}

#[test]
fn a_peer_or_a_master_that_no_host_is_called_gets_no_command() {
    let mut node = node("master-address");
    let Outcome::Seen(reach) = &mut node.reach.outcome else { panic!() };
    let mut peer = reach.iter().find(|reach| reach.purpose == "master-address").unwrap().clone();
    (peer.purpose, peer.interface) = ("peer".to_owned(), None);
    reach.push(peer);
    for (host, is_told) in [("head-01.cluster", true), ("$(id)", false), (HOSTILE, false), ("-c", false)] {
        let Outcome::Seen(reach) = &mut node.reach.outcome else { panic!() };
        for reach in reach.iter_mut() {
            host.clone_into(&mut reach.host);
        }
        let report = judge(&node, checks::ALL, &Expectations::default());
        for id in ["master-address", "peers-reachable"] {
            let check = result(&report, id);
            assert_eq!(check.verdict, CheckState::Fail, "{id}");
            let commands: Vec<&str> = check.fixes.iter().filter_map(|fix| fix.command.as_deref()).collect();
            assert_eq!(commands.iter().any(|command| command.contains(host)), is_told, "{commands:?}");
        }
    }
}
