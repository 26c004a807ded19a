//! The causes that come into question where the verdict is a guess by the wording of the evidence.

use ringleader_knowledge::cause;
use ringleader_model::{Candidate, Cause};

use crate::likeness;
use crate::weigh::{Decision, Weighed};

/// Candidates that are kept.
const MAX_CANDIDATES: usize = 5;

/// The causes that were weighed, the likeliest first; each with its meaning, what speaks for it most and the command that would
/// show it. Empty if a rule decided.
pub(super) fn candidates(decision: &Decision) -> Vec<Candidate> {
    let verdict = &decision.verdict;
    let is_guess =
        verdict.findings.first().is_some_and(|f| f.rule == likeness::RULE && f.cause == verdict.cause);
    let faults = || decision.weighed.iter().filter(|of| is_guess && of.cause != Cause::None);
    // Each was weighed by itself; one of them at most is right.
    let sum: f32 = faults().map(Weighed::probability).sum();
    faults().take(MAX_CANDIDATES).map(|of| candidate(of, sum.max(1.0))).collect()
}

fn candidate(of: &Weighed, sum: f32) -> Candidate {
    let known = cause::of(of.cause);
    let advice = known.advice.iter().find(|a| !a.command.is_empty());
    let pct = (of.probability() / sum * 100.0).round();
    let because = match of.because().join(", ") {
        none if none.is_empty() => String::new(),
        some => format!(": {some}"),
    };
    Candidate {
        cause: of.cause,
        weight: pct as u32,
        why: format!("{} ({pct} %{because})", known.meaning),
        needs: advice.map(|a| a.text.to_owned()).unwrap_or_default(),
        command: advice.map(|a| a.command.to_owned()).unwrap_or_default(),
    }
}
