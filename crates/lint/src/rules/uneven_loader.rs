//! # What it shows
//! A loop over a process's own batches calls collectives in each turn; a process with fewer batches leaves first.
//!
//! # Why it happens
//! Iterable datasets, packed sequences, filters and sharded files do not give all ranks the same number.
//!
//! # Evidence
//! The loop goes over a loader or over local data; no join(), no agreed number of steps was seen.
//!
//! # What looks like it but is not
//! DistributedSampler with drop_last or padding; join(); a loop over a number of steps.
//!
//! # What to do
//! Agree on the number of batches, drop the last, or wrap the loop in join().
//!
//! # References
//! PyTorch documentation, distributed data parallel: join; DistributedSampler.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding, partings};
use crate::flow::compare::Parting;
use crate::flow::trace::Decider;
use crate::flow::value::Locally;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "uneven-loader",
    title: "ranks may have different numbers of batches",
    family: Family::Code,
    predicts: Cause::UnevenInputs,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("uneven_loader.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = shares(scan);
    findings.extend(partings(scan, &RULE, |d| {
        let is_loop = d.parting == Parting::Loop && d.decision.kind == Decider::For;
        let ends = d.parting == Parting::Handler
            && matches!(d.decision.taint.local, Some(Locally::Loader | Locally::End));
        let runs_out = d.decision.taint.local == Some(Locally::End) && matches!(d.parting, Parting::Exit(..));
        d.is_local && (is_loop || ends || runs_out)
    }));
    findings
}

/// Generators that yield the process's share of a list, where nothing makes the shares even.
fn shares(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let evens = |text: &str| {
        let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        squeezed.contains("drop_last")
            || squeezed.contains("total_size")
            || [
                "//self.world",
                "//world",
                "//self.num_replicas",
                "//num_replicas",
                "%world",
                "%self.world",
                "//n_ranks",
                "//self.size",
                "//size",
            ]
            .iter()
            .any(|word| squeezed.contains(word))
    };
    calls(scan, |seen| seen.path == "<share of a list>")
        .filter(|(_, seen)| !evens(scan.project.files[seen.at.file].text))
        .map(|(func, seen)| {
            let title = "each rank yields its share of a list, and shares may differ by one".to_owned();
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.help =
                "cut the list to a multiple of the number of ranks, or pad it, before it is divided".into();
            finding
        })
        .collect()
}
