//! # What it shows
//! A tensor whose number of elements depends on the rank or on the process's own batch goes into a collective that
//! wants equal sizes.
//!
//! # Why it happens
//! The last batch is shorter, sequences have their own lengths, a mask selects a number of rows.
//!
//! # Evidence
//! The size comes from the rank, from a batch, a mask, a filter; or all_to_all_single sends parts of sizes of the rank's own
//! and does not say what it receives.
//!
//! # What looks like it but is not
//! Padding to an agreed length; calls for objects; a mean or sum of the batch.
//!
//! # What to do
//! Pad to an agreed size, or reduce locally first. NCCL does not check sizes: it hangs or writes wrong values.
//!
//! # References
//! PyTorch documentation, torch.distributed. trl#2890, DeepSpeed#5117.

use ringleader_knowledge::collective::Axis;
use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::flow::value::{Data, GroupValue, Val, bit};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "size-by-rank",
    title: "ranks may give a collective tensors of different sizes",
    family: Family::Code,
    predicts: Cause::ShapeMismatch,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("size_by_rank.rs"),
    check,
};

/// Calls that want the same number of elements from all members.
const EVEN: &[&str] = &[
    "all_gather",
    "all_gather_into_tensor",
    "_all_gather_base",
    "all_reduce",
    "broadcast",
    "reduce",
    "gather",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "gather_for_metrics",
    "allreduce",
    "process_allgather",
    // MPI's capital letters.
    "Allgather",
    "Alltoall",
    "Allreduce",
    "Reduce",
    "Gather",
];

/// Parts that each rank cuts by its own data, while the receivers expect equal ones.
fn counts(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| {
        seen.row.is_some_and(|row| {
            row.call.name == "all_to_all_single" && row.of.framework == "torch.distributed"
        })
    });
    calls
        .filter_map(|(func, seen)| {
            let sent = seen.argument("input_split_sizes", 3)?;
            let differs = sent.taint.join(sent.shape);
            if differs.is_clean() || sent.agreed {
                return None;
            }
            let received = seen.argument("output_split_sizes", 2);
            // What is received is what the others cut: the same numbers only by chance.
            let is_unsaid = received.is_none_or(|value| matches!(value.data, Data::None) || value.sym == sent.sym);
            is_unsaid.then(|| {
                let title = "each rank cuts what it sends by its own data, and the receivers are not told the sizes";
                let mut finding = finding(scan, &RULE, func, seen.at, title.to_owned());
                finding.help = "exchange the sizes first (all_to_all_single of the counts) and pass them as output_split_sizes".into();
                finding.page = "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_to_all_single";
                finding
            })
        })
        .collect()
}

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = counts(scan);
    let calls = calls(scan, |seen| seen.row.is_some_and(|row| EVEN.contains(&row.call.name)));
    findings.extend(calls.filter_map(|(func, seen)| {
            let row = seen.row?;
            // Objects and MPI's small letters may be of any size.
            let is_small = row.call.name.starts_with(|c: char| c.is_ascii_lowercase());
            if row.of.framework == "mpi4py" && is_small {
                return None;
            }
            // The ranks of a tensor-parallel group work on the same batch.
            let group = row.call.group.and_then(|n| seen.argument("group", usize::from(n)));
            if matches!(group, Some(Val { data: Data::Group(GroupValue::Axes(axes)), .. }) if *axes == bit(Axis::Tensor)) {
                return None;
            }
            let at = usize::from(matches!(row.call.name, "all_gather") && row.of.framework == "torch.distributed");
            let tensor = seen.argument("tensor", at)?;
            let shape = tensor.shape;
            if shape.is_clean() || tensor.agreed {
                return None;
            }
            let title = format!("the size of what {} gets differs from rank to rank", row.call.name);
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            if let Some(origin) = shape.origin() {
                let text = "the size comes from here".to_owned();
                finding.related.push(crate::Related { place: crate::drafting::place(scan.project, origin, None), text });
            }
            finding.help = "pad to a size that all ranks agreed on (all_reduce MAX of the length, pad_across_processes), or reduce locally first".into();
            finding.page = row.of.page;
            Some(finding)
        }));
    findings
}
