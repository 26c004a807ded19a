//! # What it shows
//! new_group is called with a list of ranks that the calling rank computed from its own rank.
//!
//! # Why it happens
//! It looks natural to make only the group one belongs to. But new_group is a collective of the whole job: all
//! ranks must call it for all groups, in the same order.
//!
//! # Evidence
//! The list comes from the rank.
//!
//! # What looks like it but is not
//! A loop over the lists of all groups; use_local_synchronization=True, which frees those who are no members.
//!
//! # What to do
//! Make all groups on all ranks.
//!
//! # References
//! PyTorch documentation, torch.distributed.new_group; pytorch#130102.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "group-by-rank",
    title: "the members of a new group depend on the rank",
    family: Family::Code,
    predicts: Cause::CollectiveDesync,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("group_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.row.is_some_and(|row| row.call.name == "new_group"));
    calls
        .filter_map(|(func, seen)| {
            let ranks = seen.argument("ranks", 0)?;
            let is_own = seen.argument("use_local_synchronization", 99).is_some_and(|v| v.as_int() == Some(1));
            let axes = ranks.taint.axes | ranks.shape.axes;
            (axes != 0 && !is_own).then(|| {
                let title = "each rank makes a group of its own ranks: all ranks must make all groups, in one order".to_owned();
                let mut finding = finding(scan, &RULE, func, seen.at, title);
                finding.help = "loop over the lists of all groups on all ranks and keep the one that holds the own rank, or pass use_local_synchronization=True".into();
                finding.page = "https://docs.pytorch.org/docs/stable/distributed.html#groups";
                finding
            })
        })
        .collect()
}
