//! # What it shows
//! After an exception that is caught, a process goes on without a collective that its peers call.
//!
//! # Why it happens
//! try/except around a step, a download or the reading of a sample: one process fails, the others succeed.
//!
//! # Evidence
//! The handler goes on to other calls than the body of the try statement would have made.
//!
//! # What looks like it but is not
//! A handler that raises again and ends the process; an import that may fail on all alike.
//!
//! # What to do
//! Agree on the failure before anybody goes on, or put the collective into `finally`.
//!
//! # References
//! PyTorch documentation, torch.distributed: collectives must be called by all processes of the group, in the same
//! order.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::partings;
use crate::flow::compare::Parting;
use crate::flow::value::Locally;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "handler-skips-collective",
    title: "an exception on one process skips a collective",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("handler_skips_collective.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| {
        d.is_local && d.parting == Parting::Handler && d.decision.taint.local == Some(Locally::Exception)
    })
}
