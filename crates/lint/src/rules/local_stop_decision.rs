//! # What it shows
//! A process leaves a loop or function on grounds of its own data and so skips collectives, also those of a
//! backward pass.
//!
//! # Why it happens
//! Early stopping on a local loss, a skipped batch, a NaN, a time limit, a signal.
//!
//! # Evidence
//! The condition of the exit is computed from local data and not agreed upon.
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

use crate::drafting::partings;
use crate::flow::compare::Parting;
use crate::flow::value::Locally;
use crate::rule::{Family, Rule};
use crate::{Finding, Scan};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "local-stop-decision",
    title: "one process decides alone to stop",
    family: Family::Code,
    predicts: Cause::UnevenInputs,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("local_stop_decision.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
    partings(scan, &RULE, |d| {
        d.is_local
            && (matches!(d.parting, Parting::Exit(..)) && d.decision.taint.local != Some(Locally::End)
                || (d.parting == Parting::Loop && d.decision.kind == crate::flow::trace::Decider::While))
    })
}
