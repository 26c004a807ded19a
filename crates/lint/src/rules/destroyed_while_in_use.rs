//! # What it shows
//! A process group is destroyed while a send, a receive or a collective that was started without waiting is under way.
//!
//! # Why it happens
//! isend and async_op=True return at once. A rank that then calls destroy_process_group closes the connection while its peer
//! still reads.
//!
//! # Evidence
//! In one function: an asynchronous call, no wait, no synchronize and no barrier, then destroy_process_group.
//!
//! # What looks like it but is not
//! Work that is waited for; a barrier before the end; an exit of the process on failure.
//!
//! # What to do
//! Wait for the work, and call barrier before destroy_process_group.
//!
//! # References
//! PyTorch documentation, torch.distributed, shutdown. PiPPy#1139.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{finding, place};
use crate::flow::machine::SeenCall;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Related, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "destroyed-while-in-use",
    title: "the group is destroyed while a call is under way",
    family: Family::Code,
    predicts: Cause::RankExitedEarly,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("destroyed_while_in_use.rs"),
    check,
};

fn last(seen: &SeenCall) -> &str {
    seen.path.rsplit('.').next().unwrap_or_default()
}

/// Whether a call only starts something.
fn starts(seen: &SeenCall) -> bool {
    let is_async = seen.keywords.iter().any(|(key, value)| key == "async_op" && value.as_int() == Some(1));
    is_async || matches!(seen.path.as_str(), "torch.distributed.isend" | "torch.distributed.irecv")
}

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for (func, tried) in &scan.tried {
        let mut started: Option<&SeenCall> = None;
        for seen in &tried.seen {
            if starts(seen) {
                started = started.or(Some(seen));
            } else if matches!(
                last(seen),
                "wait" | "synchronize" | "barrier" | "wait_for_everyone" | "result"
            ) {
                started = None;
            } else if seen.path == "torch.distributed.destroy_process_group"
                && let Some(work) = started.take()
            {
                let title = "the process group is destroyed while a call on it may be under way".to_owned();
                let mut finding = finding(scan, &RULE, *func, seen.at, title);
                let text = "started here, and not waited for".to_owned();
                finding.related.push(Related { place: place(scan.project, work.at, None), text });
                finding.help =
                    "wait for the work, and let all ranks meet in a barrier before destroy_process_group"
                        .into();
                finding.page = "https://docs.pytorch.org/docs/stable/distributed.html#shutdown";
                findings.push(finding);
            }
        }
    }
    findings
}
