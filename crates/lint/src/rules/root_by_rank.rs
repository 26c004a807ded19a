//! # What it shows
//! The source of a broadcast, or the target of a reduce or gather, is another rank on each rank.
//!
//! # Why it happens
//! The own rank, or the rank in the node, is passed as src where the rank of the sender belongs.
//!
//! # Evidence
//! The argument is computed from the rank, and two ranks that meet in the call compute different numbers.
//!
//! # What looks like it but is not
//! A loop over all ranks in which each is the source once; a root computed alike on all members of a group.
//!
//! # What to do
//! Name one root. torch takes the rank in the job, also for a group: use get_global_rank(group, 0), or group_src.
//!
//! # References
//! PyTorch documentation, torch.distributed.broadcast.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::finding;
use crate::flow::value::GroupValue;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "root-by-rank",
    title: "ranks name different sources or targets in one call",
    family: Family::Code,
    predicts: Cause::CollectiveDesync,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("root_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let roots = scan.tried.iter().flat_map(|(func, tried)| tried.roots.iter().map(|op| (*func, op)));
    roots
        .map(|(func, op)| {
            let title = format!("the root of {} differs from rank to rank", op.name);
            let mut finding = finding(scan, &RULE, func, op.at, title);
            if op.group != GroupValue::World || op.is_guess {
                finding.confidence = Confidence::Low;
            }
            finding.help =
                "name one rank as the root on all ranks; of a group, get_global_rank(group, 0)".into();
            finding.page =
                "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast";
            finding
        })
        .collect()
}
