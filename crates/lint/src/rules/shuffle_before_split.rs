//! # What it shows
//! A list is shuffled with the global generator and then cut into parts by rank.
//!
//! # Why it happens
//! The parts are disjoint only if all ranks have the same order; the global generator is seeded per rank, or
//! consumed differently.
//!
//! # Evidence
//! random.shuffle or numpy's without a generator of its own, then a slice by rank.
//!
//! # What looks like it but is not
//! A generator that all ranks seed alike.
//!
//! # What to do
//! Give the shuffle a seed of its own.
//!
//! # References
//! Python documentation, random.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "shuffle-before-split",
    title: "ranks take their parts of lists in different orders",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("shuffle_before_split.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.path == "<part of a shuffled list>");
    calls
        .map(|(func, seen)| {
            let title = "each rank takes its part of a list that it shuffled for itself: samples come twice or never".to_owned();
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            if let Some(origin) = seen.args.first().and_then(|list| list.taint.origin()) {
                let text = "shuffled here".to_owned();
                finding.related.push(crate::Related { place: crate::drafting::place(scan.project, origin, Some(func)), text });
            }
            finding.help = "shuffle with a generator of its own that all ranks seed alike: random.Random(seed).shuffle(...)".into();
            finding
        })
        .collect()
}
