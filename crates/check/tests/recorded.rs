//! Snapshots that `zoo/check.py --record` took on a machine with four H200 GPUs, one planted fault each: the check that
//! has to name it does, and nothing else fails.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "the crate is pure, its recordings are files")]

use std::path::Path;

use ringleader_check::{CheckResult, NodeReport, Options, Verdict, checks, judge};
use ringleader_node::Node;

fn report(name: &str) -> NodeReport {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{name}.json"));
    let node: Node = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    judge(&node, checks::ALL, &Options::default())
}

fn bad(report: &NodeReport, least: Verdict) -> Vec<&str> {
    report.checks.iter().filter(|check| check.verdict >= least).map(|check| check.id.as_str()).collect()
}

fn result<'a>(report: &'a NodeReport, id: &str) -> &'a CheckResult {
    report.checks.iter().find(|check| check.id == id).unwrap()
}

#[test]
fn a_node_with_a_healthy_job_is_clean() {
    for name in ["clean", "clean-quick"] {
        let report = report(name);
        assert!(bad(&report, Verdict::Warn).is_empty(), "{name}: {:?}", bad(&report, Verdict::Warn));
        assert!(report.checks.iter().filter(|check| check.verdict == Verdict::Ok).count() >= 15, "{name}");
    }
}

/// Fault, the check that names it, how bad, a word of its answer, and checks that rightly fail too.
const FAULTS: &[(&str, &str, Verdict, &str, &[&str])] = &[
    ("shm-small", "shm-space", Verdict::Warn, "default", &[]),
    ("shm-full", "shm-space", Verdict::Fail, "filler", &[]),
    ("shm-stale-and-live", "shm-stale", Verdict::Warn, "no process", &[]),
    ("open-files", "limits", Verdict::Warn, "256 files", &[]),
    ("master-port-taken", "master-port", Verdict::Fail, "listens there", &[]),
    ("master-address", "master-address", Verdict::Fail, "does not resolve", &["master-port"]),
    ("dead-interface", "master-address", Verdict::Fail, "no answer", &["interface-choice"]),
    ("stopped-rank", "job-processes", Verdict::Fail, "stopped", &[]),
    ("zombie", "job-processes", Verdict::Fail, "collected", &[]),
    ("orphan", "job-orphans", Verdict::Warn, "gone", &[]),
    ("other-environment", "job-environment", Verdict::Fail, "NCCL_ALGO", &[]),
    ("illegal-access", "xid", Verdict::Fail, "Xid 31", &["job-processes"]),
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
            bad(&report, Verdict::Fail).into_iter().filter(|b| b != id && !others.contains(b)).collect();
        assert!(surplus.is_empty(), "{name}: {surplus:?} fail too");
    }
}

#[test]
fn what_looks_like_a_fault_and_is_none() {
    // A segment that a live process maps, beside one that nobody does.
    let stale = result(&report("shm-stale-and-live"), "shm-stale").clone();
    assert_eq!(stale.items.len(), 1, "{:?}", stale.items);
    // A program's own illegal access does not drain the node.
    assert!(!report("illegal-access").drains());
    // A low limit of locked memory hurts nobody without RDMA.
    assert_eq!(result(&report("memlock"), "limits").verdict, Verdict::Ok);
}
