//! # What it shows
//! The process group is made with the default timeout.
//!
//! # Why it happens
//! Ten minutes are too short for some checkpoints and too long for most hangs.
//!
//! # Evidence
//! No timeout argument.
//!
//! # What looks like it but is not
//! A group whose timeout a launcher's configuration sets.
//!
//! # What to do
//! Choose one.
//!
//! # References
//! PyTorch documentation, init_process_group.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "no-timeout",
    title: "the process group has the default timeout",
    family: Family::Code,
    predicts: Cause::TimeoutTooShort,
    severity: Severity::Info,
    confidence: Confidence::Medium,
    doc: include_str!("no_timeout.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.path.ends_with("distributed.init_process_group"));
    let bare = calls.filter(|(_, seen)| seen.argument("timeout", 2).is_none());
    bare.map(|(func, seen)| {
        let title = "init_process_group without a timeout: ten minutes with NCCL, whatever the job's longest pause is".to_owned();
        let mut finding = finding(scan, &RULE, func, seen.at, title);
        finding.help = "pass timeout=timedelta(...) above the longest checkpoint or evaluation, below what a hang may cost".into();
        finding.page = "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group";
        finding
    })
    .collect()
}
