//! # What it shows
//!
//! A thread, a pool or an asynchronous checkpoint calls collectives on the default group while the process goes on and
//! calls others there.
//!
//! # Why it happens
//!
//! All members of a group must start its collectives in one order. Two threads of one process start them in whatever order
//! they get to run: on one rank the barrier comes first, on another the gather of the thread. Both then wait, or meet a
//! collective of another kind or size.
//!
//! # Evidence
//!
//! The function that is started, or `async_save` without `process_group`, reaches a collective whose group is the default
//! one. The confidence is low: who waits for the thread before each other collective is right.
//!
//! # What looks like it but is not
//!
//! A thread with a group of its own, a thread that only writes, and a checkpoint whose result is awaited before the next
//! collective.
//!
//! # What to do
//!
//! Give the background its own group: `dist.new_group(backend="gloo")`, made once on all ranks.
//!
//! # References
//!
//! - <https://docs.pytorch.org/docs/stable/distributed.checkpoint.html>
//! - <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html>

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::flow::calls::BACKGROUND;
use crate::flow::value::Data;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "collective-in-background",
    title: "a thread shares the default group",
    family: Family::Code,
    predicts: Cause::CollectiveOrderMismatch,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("collective_in_background.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    calls(scan, |seen| seen.path == BACKGROUND)
        .map(|(func, seen)| {
            let name = match seen.args.first().map(|value| &value.data) {
                Some(Data::Str(name)) => name.to_string(),
                _ => "a collective".to_owned(),
            };
            let title =
                format!("what starts here and {name} use the default group side by side: their order is open");
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.help =
                "give the background a group of its own, made once on all ranks: dist.new_group(backend=\"gloo\")"
                    .into();
            finding.page = "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html";
            finding
        })
        .collect()
}
