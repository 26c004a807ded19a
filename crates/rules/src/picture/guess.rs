//! The causes that come into question where the verdict is a guess by the wording of the evidence.

use ringleader_correlate::Scene;
use ringleader_knowledge::cause;
use ringleader_model::{Candidate, Cause, Verdict};

use crate::{likeness, unexplained};

/// Candidates that are kept.
const MAX_CANDIDATES: usize = 5;

/// The guessed cause, the next most similar ones, then those that unexplained statements suggest; each with its meaning
/// and the command that would show it. Empty if a rule decided.
pub(super) fn candidates(scene: &Scene<'_>, verdict: &Verdict) -> Vec<Candidate> {
    let is_guess =
        verdict.findings.first().is_some_and(|f| f.rule == likeness::RULE && f.cause == verdict.cause);
    let Some(likely) = scene.likeness().likeliest().filter(|_| is_guess) else { return Vec::new() };
    let open = unexplained::unexplained(scene, &verdict.findings);
    let stated = unexplained::candidates(&open).into_iter().map(|(cause, _)| cause);
    let mut causes: Vec<Cause> = Vec::new();
    for cause in std::iter::once(verdict.cause).chain(likely.next).chain(stated) {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes.truncate(MAX_CANDIDATES);
    let n = causes.len() as u32;
    causes.into_iter().enumerate().map(|(at, cause)| candidate(cause, n - at as u32)).collect()
}

fn candidate(of: Cause, weight: u32) -> Candidate {
    let known = cause::of(of);
    let advice = known.advice.iter().find(|a| !a.command.is_empty());
    Candidate {
        cause: of,
        weight,
        why: known.meaning.to_owned(),
        needs: advice.map(|a| a.text.to_owned()).unwrap_or_default(),
        command: advice.map(|a| a.command.to_owned()).unwrap_or_default(),
    }
}
