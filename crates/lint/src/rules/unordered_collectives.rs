//! # What it shows
//! A loop over a set, a listing of files or another unordered container calls a collective in each turn.
//!
//! # Why it happens
//! Python orders a set of strings by a hash that each process seeds for itself; file systems list in any order.
//!
//! # Evidence
//! The loop iterates over a set, or over values from one without sorting.
//!
//! # What looks like it but is not
//! sorted(...); dicts, which keep the order of insertion; a set that is only asked for membership.
//!
//! # What to do
//! Sort.
//!
//! # References
//! Python documentation, PYTHONHASHSEED; nvalchemi-toolkit#143, apex#19.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "unordered-collectives",
    title: "collectives run in the order of an unordered container",
    family: Family::Code,
    predicts: Cause::CollectiveOrderMismatch,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("unordered_collectives.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.row.is_some() && !seen.order.is_clean());
    let registered = registrations(scan);
    calls
        .map(|(func, seen)| {
            let name = seen.row.map_or("a collective", |row| row.call.name);
            let title = format!(
                "{name} is called in the order of a set or of a listing, which differs between processes"
            );
            // A call further down is shown at the loop.
            let is_here = scan.project.functions[func].def.span.holds(seen.at.span)
                && scan.project.functions[func].file == seen.at.file;
            let at = if is_here { seen.at } else { seen.order.origin().unwrap_or(seen.at) };
            let mut finding = finding(scan, &RULE, func, at, title);
            let other = if is_here { seen.order.origin() } else { Some(seen.at) };
            if let Some(origin) = other.filter(|origin| *origin != at) {
                let text = if is_here { "the order comes from here" } else { "the collective" }.to_owned();
                finding.related.push(crate::Related {
                    place: crate::drafting::place(scan.project, origin, Some(func)),
                    text,
                });
            }
            finding.help =
                "go over sorted(...): the order of a set of strings depends on the hash seed of each process"
                    .into();
            finding
        })
        .chain(registered)
        .collect()
}

/// Buffers and parameters that are registered in no order: wrappers broadcast and flatten them in the order of registration.
fn registrations(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    const NAMES: &[&str] = &["register_buffer", "register_parameter", "add_module"];
    let is_one = |path: &str| path.rsplit('.').next().is_some_and(|last| NAMES.contains(&last));
    calls(scan, |seen| is_one(&seen.path) && !seen.order.is_clean())
        .map(|(func, seen)| {
            let title =
                "parts of the model are registered in the order of a set: ranks then exchange different ones";
            let mut finding = finding(scan, &RULE, func, seen.at, title.to_owned());
            finding.help = "go over sorted(...) or a list".into();
            finding
        })
        .collect()
}
