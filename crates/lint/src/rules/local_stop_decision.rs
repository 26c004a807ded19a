//! # What it shows
//! A process leaves a loop or function on grounds of its own data and so skips collectives, also those of a
//! backward pass.
//!
//! # Why it happens
//! Early stopping on a local loss, a skipped batch, a NaN, a time limit, a signal.
//!
//! # Evidence
//! The condition of the exit is computed from local data and not agreed upon. Or a flag that ends the loop of a framework
//! (`trainer.should_stop`, `control.should_training_stop`) is set under a condition on the rank and not agreed upon.
//!
//! # What looks like it but is not
//! A decision that was reduced or broadcast; the end of a loop with a fixed number of steps.
//!
//! # What to do
//! all_reduce the decision (MAX for 'anybody stops') and leave together.
//!
//! # References
//! PyTorch documentation, torch.distributed: collectives must be called by all processes of the group, in the same
//! order.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{finding, partings};
use crate::flow::compare::Parting;
use crate::flow::value::Locally;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "local-stop-decision",
    title: "one process decides alone to stop",
    family: Family::Code,
    predicts: Cause::UnevenInputs,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("local_stop_decision.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = partings(scan, &RULE, |d| {
        d.is_local
            && (matches!(d.parting, Parting::Exit(..)) && d.decision.taint.local != Some(Locally::End)
                || (d.parting == Parting::Loop && d.decision.kind == crate::flow::trace::Decider::While))
    });
    findings.extend(stops(scan));
    findings
}

/// Flags that end the loop of a framework and that one rank alone sets.
fn stops(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let all = scan.tried.iter().flat_map(|(func, tried)| tried.stops.iter().map(|at| (*func, *at)));
    let first: std::collections::BTreeMap<_, _> = all.map(|(func, at)| (at, func)).collect();
    first
        .into_iter()
        .map(|(at, func)| {
            let title =
                "only some ranks set the flag that ends the loop: each rank reads its own, the others go on";
            let mut finding = finding(scan, &RULE, func, at, title.to_owned());
            finding.confidence = Confidence::Medium;
            finding.help = "let all ranks set it alike: broadcast the decision, or reduce it (trainer.strategy.reduce_boolean_decision); a barrier aligns the time and not the decision".into();
            finding.page = "https://lightning.ai/docs/pytorch/stable/extensions/strategy.html";
            finding
        })
        .collect()
}
