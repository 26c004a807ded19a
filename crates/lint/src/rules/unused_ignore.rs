//! # What it shows
//! A comment ignores a rule that finds nothing there.
//!
//! # Why it happens
//! The code was mended, or moved away from the comment.
//!
//! # Evidence
//! No finding of that rule has its line.
//!
//! # What looks like it but is not
//! A comment for a rule of low confidence where low confidence was not asked for.
//!
//! # What to do
//! Remove the comment.
//!
//! # References
//! docs/lint.md.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "unused-ignore",
    title: "an ignore comment covers nothing",
    family: Family::Comments,
    predicts: Cause::Undecided,
    severity: Severity::Warning,
    confidence: Confidence::High,
    doc: include_str!("unused_ignore.rs"),
    check,
};

fn check(_: &Scan<'_, '_>) -> Vec<LintFinding> {
    // Comments are looked at once all findings are there.
    Vec::new()
}
