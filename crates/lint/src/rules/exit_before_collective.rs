//! # What it shows
//! A return, break, continue or raise under a condition on the rank skips a collective that the other ranks call.
//!
//! # Why it happens
//! `if rank != 0: return` at the top of a function whose end has a barrier, or a loop that only rank 0 leaves.
//!
//! # Evidence
//! The rest of the function, of the loop and of its next turns is compared for the rank that leaves and for one
//! that stays.
//!
//! # What looks like it but is not
//! A branch that makes the same call before it leaves; a return for ranks that are no members of the group; a
//! condition that is the same on all ranks.
//!
//! # What to do
//! Leave after the collective, or guard the work instead of leaving.
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
    id: "exit-before-collective",
    title: "some ranks leave before a collective",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("exit_before_collective.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| !d.is_local && matches!(d.parting, Parting::Exit(..)))
}
