//! # What it shows
//!
//! Several facts, none of which is a fault by itself, stand together and leave one explanation.
//!
//! # Why it happens
//!
//! What an expert concludes from a few pasted lines: a job that hangs in its first collective over peer access, and
//! bridges that redirect it; a rendezvous that nobody answers, and a host name that means the loopback interface.
//!
//! # Evidence
//!
//! One line for each sign. Signs and conclusions are rows of `crates/knowledge/data/signs.toml`.
//!
//! # What looks like it but is not
//!
//! Each sign alone is ordinary. A conclusion is never more than medium, and rests on nothing where a sign speaks against
//! it.
//!
//! # What to do
//!
//! What the row says.
//!
//! # References
//!
//! crates/knowledge/data/signs.toml; user guide of NCCL, troubleshooting; torchrun's rendezvous.

use ringleader_correlate::Scene;
use ringleader_knowledge::{cause, sign};
use ringleader_model::{Category, Confidence, Finding, Severity, Weight};

use crate::rule::{Draft, Outcome, Rule};

/// See the module.
pub(crate) static RULE: Rule = Rule {
    id: "signs-together",
    title: "signs that leave one explanation together",
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

/// Causes whose findings are echoes of a conclusion that was drawn.
pub(crate) fn explained_by(scene: &Scene<'_>, finding: &Finding) -> Vec<ringleader_model::Cause> {
    if finding.rule != RULE.id {
        return Vec::new();
    }
    let drawn = sign::conclusions().iter().filter(|c| c.cause == finding.cause && c.title == finding.title);
    drawn.filter(|c| scene.signs().follows(c).is_some()).flat_map(|c| c.over).copied().collect()
}
