//! A decision as a text for people: `decision.txt` in the folder of the attempt.

use std::fmt::Write as _;

use ringleader_model::Cause;
use ringleader_run::agree::{Decree, Judged, What};

/// The decision, its verdict and its evidence. `own`: cause and text of this node's own report on the attempt.
pub(crate) fn of(decree: &Decree, judged: &Judged, own: Option<(Cause, &str)>) -> String {
    let verdict = &judged.verdict;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "attempt {} failed", decree.failed());
    let confidence = verdict.confidence;
    let _ =
        writeln!(out, "{} ({}, confidence {confidence}): {}", verdict.cause, verdict.class, verdict.summary);
    for culprit in &verdict.culprits {
        let parts = [
            culprit.rank.map(|rank| format!("rank {rank}")),
            culprit.host.as_ref().map(|host| format!("node {host}")),
            culprit.gpu.as_ref().map(|gpu| format!("GPU {gpu}")),
            culprit.place.clone(),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            let _ = writeln!(out, "  {}", parts.join(", "));
        }
    }
    if !verdict.evidence.is_empty() {
        out.push_str("\nevidence\n");
    }
    for cited in &verdict.evidence {
        let line = cited.line.map_or_else(String::new, |line| format!(":{line}"));
        let _ = writeln!(out, "  {}{line}: {}", cited.source, cited.text.replace('\n', "\n    "));
    }
    let _ = writeln!(out, "\ndecision by {}", judged.by);
    for why in &decree.why {
        let _ = writeln!(out, "  {why}");
    }
    match &decree.what {
        What::Run { nodes, checkpoint, .. } => {
            let from = checkpoint.as_ref().map_or("the beginning", |chosen| chosen.path.as_str());
            let _ =
                writeln!(out, "  next: attempt {} on {} from {from}", decree.generation, nodes.join(", "));
        }
        _ => out.push_str("  no further attempt\n"),
    }
    if !judged.traceback.is_empty() {
        out.push_str("\nthe first rank that failed said\n");
        for line in &judged.traceback {
            let _ = writeln!(out, "  {line}");
        }
    }
    if let Some((cause, text)) = own.filter(|(_, text)| !text.is_empty()) {
        let differs = verdict.cause != cause;
        let note = if differs {
            "; the decision also rests on other nodes and on how the launcher ended"
        } else {
            ""
        };
        let _ = writeln!(out, "\nwhat the evidence of this node alone shows{note}\n\n{text}");
    }
    out
}
