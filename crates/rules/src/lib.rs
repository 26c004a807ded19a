//! From a case to a verdict: `correlate` joins what was seen, `rules` conclude from it, `verdict` orders conclusions.
//!
//! Everything here is a pure function of the case: the same case gives the same verdict. A rule neither calls another
//! nor reads its findings; shared work lives in [`correlate`]; only [`verdict`] sees all findings.

pub mod correlate;
mod drafting;
mod gid;
mod hardware;
#[cfg(test)]
mod hostile;
pub mod jobs;
#[cfg(test)]
mod laws;
mod rule;
pub mod rules;
#[cfg(test)]
mod staging;
#[cfg(test)]
mod staging_jobs;
#[cfg(test)]
mod staging_kernel;
mod told;
pub mod verdict;

use ringleader_model::{Case, Need, Verdict};

pub use crate::rule::{Draft, Input, Outcome, Rule};

/// Diagnoses a case. Evidence of several jobs is told apart; the newest job's verdict stands, and the others are said.
pub fn diagnose(case: &Case) -> Verdict {
    let Some(jobs) = jobs::split(case) else { return diagnose_job(case) };
    let mut verdicts: Vec<(String, Verdict)> =
        jobs.iter().map(|job| (job.label.clone(), diagnose_job(&job.case))).collect();
    let healthy = |v: &Verdict| matches!(v.cause, "none" | "undecided");
    let at = verdicts.iter().rposition(|(_, v)| !healthy(v)).unwrap_or(verdicts.len().saturating_sub(1));
    let (label, mut verdict) = verdicts.swap_remove(at);
    for (other, said) in verdicts {
        verdict.needs.push(Need {
            question: format!(
                "the evidence holds records of {} jobs or attempts: this verdict is of {label}; {other} gives {} ({})",
                jobs.len(),
                said.cause,
                said.summary
            ),
            command: "ringleader diagnose   (give it the files of one attempt only)".to_owned(),
        });
    }
    verdict
}

fn diagnose_job(case: &Case) -> Verdict {
    let scene = correlate::Scene::new(case);
    verdict::decide(&scene, rules::ALL)
}
