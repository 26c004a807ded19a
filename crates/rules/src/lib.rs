//! From a case to a verdict: `correlate` joins what was seen, `rules` conclude from it, `verdict` orders conclusions.
//!
//! Everything here is a pure function of the case: the same case gives the same verdict. A rule neither calls another
//! nor reads its findings; shared work lives in [`correlate`]; only [`verdict`] sees all findings.

pub mod correlate;
mod gid;
mod drafting;
mod rule;
pub mod rules;
#[cfg(test)]
mod staging;
mod told;
pub mod verdict;

use ringleader_model::{Case, Verdict};

pub use crate::rule::{Draft, Input, Outcome, Rule};

/// Diagnoses a case.
pub fn diagnose(case: &Case) -> Verdict {
    let scene = correlate::Scene::new(case);
    verdict::decide(&scene, rules::ALL)
}
