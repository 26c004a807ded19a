//! # What it shows
//! Two ranks make the same calls in different orders, or a call is inside a block that one rank runs before a
//! barrier and the others after it.
//!
//! # Why it happens
//! Branches by rank that were written apart, or a collective inside main_process_first().
//!
//! # Evidence
//! Both branches are compared call by call; they hold the same calls.
//!
//! # What looks like it but is not
//! The same calls in both branches in one order; calls on different groups whose members do not wait for each
//! other.
//!
//! # What to do
//! Make the calls in one order on all ranks.
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
    id: "collective-order-by-rank",
    title: "ranks call collectives in different orders",
    family: Family::Code,
    predicts: Cause::CollectiveOrderMismatch,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("collective_order_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| !d.is_local && matches!(d.parting, Parting::Order | Parting::Handler))
}
