//! # What it shows
//! A function that runs on one process alone, by a decorator such as rank_zero_only or on_main_process, calls a
//! collective.
//!
//! # Why it happens
//! Loggers, callbacks and savers are decorated; a metric's compute(), all_gather or a barrier in them communicates.
//!
//! # Evidence
//! The decorated function is tried on a process that the decorator lets in and on one that it keeps out.
//!
//! # What looks like it but is not
//! Work on one rank without communication; a decorated function that both sides of a split barrier frame.
//!
//! # What to do
//! Compute on all ranks and hand the result to the decorated function.
//!
//! # References
//! Lightning documentation, rank_zero_only; torchmetrics, metrics in distributed mode; PyTorch documentation,
//! torch.distributed: collectives must be called by all processes of the group, in the same order.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::partings;
use crate::flow::compare::Parting;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "collective-in-rank-zero-function",
    title: "a decorator keeps ranks out of a collective",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("collective_in_rank_zero_function.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| d.parting == Parting::Decorator)
}
