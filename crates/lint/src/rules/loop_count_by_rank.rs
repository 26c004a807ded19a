//! # What it shows
//! A loop with a collective in it has a number of turns that depends on the rank.
//!
//! # Why it happens
//! The loop goes over what one rank owns: its files, its layers, its part of a list.
//!
//! # Evidence
//! The iterable of the loop depends on the rank.
//!
//! # What looks like it but is not
//! A loop over all ranks in which one of them works and all meet at a barrier.
//!
//! # What to do
//! Agree on the number of turns (all_reduce MAX) and go round empty, or move the collective behind the loop.
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
    id: "loop-count-by-rank",
    title: "ranks go round a loop of collectives differently often",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("loop_count_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| !d.is_local && d.parting == Parting::Loop)
}
