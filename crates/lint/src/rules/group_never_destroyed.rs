//! # What it shows
//! A process group is made and never destroyed.
//!
//! # Why it happens
//! Programs that end without it leave NCCL's threads to the order of destructors.
//!
//! # Evidence
//! No file of the project names destroy_process_group.
//!
//! # What looks like it but is not
//! A library, whose user destroys the group.
//!
//! # What to do
//! Destroy it.
//!
//! # References
//! PyTorch documentation, shutdown.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "group-never-destroyed",
    title: "the process group is not destroyed at the end",
    family: Family::Code,
    predicts: Cause::RankExitedEarly,
    severity: Severity::Info,
    confidence: Confidence::Medium,
    doc: include_str!("group_never_destroyed.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.path.ends_with("distributed.init_process_group"));
    let calls: Vec<_> = calls.collect();
    if calls.is_empty() || scan.project.files.iter().any(|file| file.text.contains("destroy_process_group")) {
        return Vec::new();
    }
    calls
        .into_iter()
        .map(|(func, seen)| {
            let title = "nothing calls destroy_process_group: a rank that ends first can take the others' last collective with it".to_owned();
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.help = "call torch.distributed.destroy_process_group() on all ranks at the end".into();
            finding.page = "https://docs.pytorch.org/docs/stable/distributed.html#shutdown";
            finding
        })
        .collect()
}
