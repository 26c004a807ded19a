//! # What it shows
//! A collective is in a branch that depends on the rank, and the other branch does not call the same. The ranks
//! that take the branch wait for the others until the timeout.
//!
//! # Why it happens
//! Work for rank 0 (saving, evaluation, logging) contains a call that all ranks must make, often inside a helper or
//! a framework's method: gather_for_metrics, save_checkpoint, all_gather, barrier.
//!
//! # Evidence
//! The function is tried on rank 0 and on other ranks with the same outcome of all other conditions; their calls
//! are compared by group, through functions, methods, context managers and decorators of the project.
//!
//! # What looks like it but is not
//! Halves of one barrier (the others before the work, rank 0 after it), an early return with its own barrier, the
//! same call with other arguments in both branches, a condition on another axis than the members of the group
//! differ in, a group of the ranks that the condition names.
//!
//! # What to do
//! Call the collective on all ranks and keep only the printing or writing under the condition.
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
    id: "collective-under-rank-condition",
    title: "only some ranks call a collective",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("collective_under_rank_condition.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| !d.is_local && d.parting == Parting::Branch && !d.op.is_sharded())
}
