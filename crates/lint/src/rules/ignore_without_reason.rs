//! # What it shows
//! A comment ignores a rule and does not say why it is right there.
//!
//! # Why it happens
//! Haste.
//!
//! # Evidence
//! Nothing follows the bracket.
//!
//! # What looks like it but is not
//! A comment of another tool.
//!
//! # What to do
//! Write the reason after the bracket. Without one the comment has no effect.
//!
//! # References
//! docs/lint.md.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "ignore-without-reason",
    title: "an ignore comment has no reason",
    family: Family::Comments,
    predicts: Cause::Undecided,
    severity: Severity::Warning,
    confidence: Confidence::High,
    doc: include_str!("ignore_without_reason.rs"),
    check,
};

fn check(_: &Scan<'_, '_>) -> Vec<LintFinding> {
    // Comments are looked at once all findings are there.
    Vec::new()
}
