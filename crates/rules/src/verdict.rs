//! Orders findings: cause before consequence. The only place that sees all of them.

use ringleader_model::{Category, Confidence, RankSet, Verdict};

use crate::correlate::Scene;
use crate::rule::Rule;

/// Runs every rule and names the root.
pub fn decide(_scene: &Scene<'_>, _rules: &[&Rule]) -> Verdict {
    Verdict {
        cause: "undecided",
        category: Category::None,
        confidence: Confidence::Low,
        summary: String::new(),
        culprits: Vec::new(),
        victims: RankSet::default(),
        actions: Vec::new(),
        findings: Vec::new(),
        needs: Vec::new(),
    }
}
