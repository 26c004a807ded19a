//! # What it shows
//!
//! Several facts, each harmless by itself, together have only one explanation.
//!
//! # Why it happens
//!
//! An expert draws such conclusions from a few lines: a job hangs in its first collective with peer access, and PCIe
//! bridges redirect that traffic; nothing answers at the rendezvous, and a host name resolves to the loopback
//! interface.
//!
//! # Evidence
//!
//! One line for each sign. Signs and conclusions are rows of `crates/knowledge/data/signs.toml`.
//!
//! # What looks like it but is not
//!
//! Each sign alone is ordinary. A conclusion has at most medium confidence, and is dropped if a sign contradicts it.
//!
//! # What to do
//!
//! The action in the row of the conclusion.
//!
//! # References
//!
//! crates/knowledge/data/signs.toml; NCCL user guide, troubleshooting; torchrun's rendezvous.

use ringleader_correlate::Scene;
use ringleader_knowledge::{cause, sign};
use ringleader_model::{Category, Confidence, Finding, Severity, Weight};

use crate::rule::{Draft, Outcome, Rule};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "signs-together",
    title: "facts that together leave one explanation",
    since: "0.3",
    doc: include_str!("signs_together.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    for row in sign::conclusions() {
        let known = findings.iter().any(|f| f.cause == row.cause);
        if let Some(evidence) = scene.signs().follows(row).filter(|_| !known) {
            let slow = cause::category(row.cause) == Category::Performance;
            let draft = Draft::new(RULE.id, row.cause, row.title)
                .severity(if slow { Severity::Warning } else { Severity::Error })
                .weight(if row.confidence > Confidence::Low { Weight::Derived } else { Weight::Symptom })
                .confidence(row.confidence)
                .at_most(row.confidence)
                .culprits(culprits(scene, row))
                .evidence(evidence)
                .explains(row.over)
                .outright(row.outright)
                .advise_all(row.advice);
            findings.extend(draft.build());
        }
    }
    Outcome::from_findings(findings)
}

fn culprits(scene: &Scene<'_>, row: &sign::Conclusion) -> Vec<ringleader_model::Culprit> {
    let seen = scene.signs().get(row.culprit);
    seen.into_iter().flat_map(|s| &s.by).map(|who| scene.culprit(who)).collect()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Sign, SourceKind, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn signs(ids: &[&'static str]) -> StagedCase {
        ids.iter().fold(StagedCase::new(), |stage, id| {
            stage.push(SourceKind::PlainText, Who::default(), Fact::Sign(Sign { id, count: 4 }))
        })
    }

    #[test]
    fn together_they_leave_one_explanation() {
        signs(&["acs-redirects", "note-stands-still"]).expect(&RULE, &["p2p-acs-iommu"]);
        signs(&["shm-of-64-mb", "bus-error"]).expect(&RULE, &["shm-full"]);
        signs(&["bridge-bootstrap", "bridge-peer-lost"]).expect(&RULE, &["wrong-interface"]);
        signs(&["shm-object-fails", "shm-has-room", "few-files-allowed"])
            .expect(&RULE, &["too-many-open-files"]);
        signs(&["memlock-is-low", "verbs-without-memory"]).expect(&RULE, &["memlock-limit"]);
        signs(&["loopback-rendezvous", "several-nodes-asked", "connect-trouble"])
            .expect(&RULE, &["hostname-resolution"]);
    }

    #[test]
    fn what_rare_signs_show() {
        signs(&["sockets-used", "efa-is-there", "several-nodes-asked"]).expect(&RULE, &["wrong-transport"]);
        // One machine needs no network.
        signs(&["sockets-used", "efa-is-there"]).silent(&RULE);
        signs(&["fewer-shards-than-ranks", "gpus-spin"]).expect(&RULE, &["uneven-inputs"]);
        signs(&["compilers-at-work", "start-took-too-long"]).expect(&RULE, &["timeout-too-short"]);
        signs(&["compiles-for-minutes", "coordinator-heartbeat-lost"]).expect(&RULE, &["timeout-too-short"]);
        signs(&["daemons-of-mpirun-report", "broken-off-by-hand"]).expect(&RULE, &["launcher-failure"]);
        signs(&["coordinator-not-reached", "firewall-rules-shown", "peer-answers-ping"])
            .expect(&RULE, &["firewall-or-port"]);
        // Nothing shows that the machines reach each other.
        signs(&["coordinator-not-reached", "firewall-rules-shown"]).silent(&RULE);
        signs(&["other-program-on-the-gpu", "engine-is-starting"]).expect(&RULE, &["gpu-busy"]);
        signs(&["other-program-on-the-gpu", "engine-is-starting", "engine-is-up"]).silent(&RULE);
        signs(&["master-is-another-node", "note-stands-still"]).expect(&RULE, &["rank-env-misconfigured"]);
        signs(&["extension-build-not-done", "some-gpus-rest"]).expect(&RULE, &["stuck-outside-collective"]);
        signs(&["extension-build-not-done", "some-gpus-rest", "extension-is-built"]).silent(&RULE);
    }

    #[test]
    fn signs_that_count_and_messages() {
        let copies = |count| {
            let sign = Fact::Sign(Sign { id: "pageable-copies", count });
            StagedCase::new().push(SourceKind::PlainText, Who::default(), sign)
        };
        copies(10).expect(&RULE, &["transfer-bound"]);
        // A program that reads its input copies it now and then.
        copies(9).silent(&RULE);
        let seed = || signs(&["shared-seed-wait"]);
        seed().says(Who::default(), "RuntimeError: Socket Timeout").expect(&RULE, &["timeout-too-short"]);
        seed().silent(&RULE);
    }

    #[test]
    fn which_conclusions_stand_outright() {
        let is_outright = |ids: &[&'static str]| signs(ids).finding(&RULE).is_outright;
        assert!(is_outright(&["compilers-at-work", "start-took-too-long"]));
        // A limit of shared memory and a crash have other reasons, too.
        assert!(!is_outright(&["shm-of-64-mb", "bus-error"]));
    }

    #[test]
    fn each_alone_is_ordinary() {
        let alone = [
            "acs-redirects",
            "shm-of-64-mb",
            "memlock-is-low",
            "loopback-rendezvous",
            "rdma-ports-up",
            "mig-is-on",
            "file-system-full",
            "write-failed",
            "bridge-bootstrap",
            "shm-object-fails",
            "few-files-allowed",
            "efa-is-there",
            "fewer-shards-than-ranks",
            "gpus-spin",
            "compilers-at-work",
            "start-took-too-long",
            "daemons-of-mpirun-report",
            "broken-off-by-hand",
            "firewall-rules-shown",
            "coordinator-not-reached",
            "compiles-for-minutes",
            "coordinator-heartbeat-lost",
            "other-program-on-the-gpu",
            "master-is-another-node",
            "shared-seed-wait",
            "extension-build-not-done",
            "some-gpus-rest",
        ];
        for id in alone {
            signs(&[id]).silent(&RULE);
        }
        // The loopback interface is right on one node.
        signs(&["loopback-rendezvous", "connect-trouble"]).silent(&RULE);
    }

    #[test]
    fn every_conclusion_of_lines_follows() {
        use ringleader_knowledge::sign::{conclusions, get};
        let is_line = |id: &&&str| get(id.trim_end_matches(" x2")).is_some_and(|r| !r.examples.is_empty());
        for row in conclusions() {
            let firsts: Vec<&'static str> = row
                .all
                .iter()
                .filter_map(|c| c.iter().find(is_line))
                .map(|id| id.trim_end_matches(" x2"))
                .collect();
            if firsts.len() < row.all.len()
                || row.all.iter().flat_map(|c| c.iter()).any(|id| id.contains(" x4"))
            {
                continue;
            }
            let verdict = crate::diagnose(&signs(&firsts).case);
            assert!(verdict.findings.iter().any(|f| f.cause == row.cause), "{}: {firsts:?}", row.id);
        }
    }
}
