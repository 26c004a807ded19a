//! # What it shows
//! Whether a collective is called depends on what one process alone knows: contents of its batch, a value of its
//! tensors, a file, the clock, a random number.
//!
//! # Why it happens
//! An empty batch, a NaN, a mask without true entries, a path that exists on one node: the process takes the other
//! branch, and its peers wait.
//!
//! # Evidence
//! The condition is computed from local data and no collective made it equal before.
//!
//! # What looks like it but is not
//! A flag that was reduced or broadcast before; a condition on configuration; the size of the job.
//!
//! # What to do
//! Let all ranks decide alike: reduce or broadcast the condition first, or call the collective with zeros.
//!
//! # References
//! PyTorch documentation, torch.distributed: collectives must be called by all processes of the group, in the same
//! order.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::partings;
use crate::flow::compare::Parting;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "collective-under-local-condition",
    title: "a collective depends on the process's own data",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("collective_under_local_condition.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| d.is_local && matches!(d.parting, Parting::Branch | Parting::Order))
}
