//! The type of a rule.

use ringleader_model::{Cause, Confidence, Severity};

use crate::{LintFinding, Scan};

/// Kind of input that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Python.
    Code,
    /// Scripts, manifests, images, files of variables.
    Launch,
    /// Comments to this program.
    Comments,
}

/// A rule.
#[derive(Clone, Copy)]
pub struct LintRule {
    /// Kebab-case; names the fault.
    pub id: &'static str,
    /// Title of the rule, a few words.
    pub title: &'static str,
    /// Kind of input that the rule reads.
    pub family: Family,
    /// Cause that `diagnose` names for a job with this bug.
    pub predicts: Cause,
    /// Severity of its findings.
    pub severity: Severity,
    /// Usual confidence of its findings.
    pub confidence: Confidence,
    /// Its file, whose first comment documents it.
    pub doc: &'static str,
    pub(crate) check: fn(&Scan<'_, '_>) -> Vec<LintFinding>,
}

impl LintRule {
    /// Headings that a rule's doc comment must have, in this order.
    pub const HEADINGS: [&'static str; 6] = [
        "What it shows",
        "Why it happens",
        "Evidence",
        "What looks like it but is not",
        "What to do",
        "References",
    ];

    /// Its documentation as Markdown.
    pub fn explanation(&self) -> String {
        let lines = self.doc.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }
}

impl std::fmt::Debug for LintRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("id", &self.id).finish_non_exhaustive()
    }
}
