//! # What it shows
//! The result of transpose, permute or .T goes into a collective without .contiguous().
//!
//! # Why it happens
//! A view shares memory in another order. Newer versions of torch refuse it; older ones sent the memory as it lies,
//! so values arrive in the wrong places.
//!
//! # Evidence
//! The argument was made by transpose, permute, swapaxes, t() or .T and no copy was made since.
//!
//! # What looks like it but is not
//! A view that .contiguous() or reshape copied.
//!
//! # What to do
//! .contiguous() first.
//!
//! # References
//! pytorch#73515, torchrec#1889, fairscale#1173.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::flow::value::Data;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "non-contiguous-tensor",
    title: "a transposed view goes into a collective",
    family: Family::Code,
    predicts: Cause::ApplicationException,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("non_contiguous_tensor.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.row.is_some_and(|row| row.of.framework == "torch.distributed"));
    calls
        .filter_map(|(func, seen)| {
            let row = seen.row?;
            seen.args.iter().find(|value| matches!(value.data, Data::View))?;
            let title =
                format!("{} gets a transposed view: collectives want contiguous memory", row.call.name);
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.help = "call .contiguous() first, and copy back what is written in place".into();
            finding.page = row.of.page;
            Some(finding)
        })
        .collect()
}
