//! An undecided verdict: causes that come into question, unexplained error statements, and what would decide.
//!
//! The open questions of a report repeat both for readers that know neither list; here each is printed once.

use crate::json::{Report, Role, Statement, Undecided};

/// Statements that are shown unfolded unless everything is asked for.
pub(crate) const MAX_STATEMENTS: usize = 4;

/// Unexplained error statements, if they keep the verdict open.
pub(crate) fn statements(report: &Report) -> Vec<&Statement> {
    if report.verdict.cause != "undecided" {
        return Vec::new();
    }
    report.statements.iter().filter(|s| s.role == Role::Unexplained).collect()
}

/// Questions that no candidate and no statement answers.
pub(crate) fn questions(report: &Report) -> Vec<&Undecided> {
    let (quoted, weighed) = (!statements(report).is_empty(), !report.candidates.is_empty());
    let is_told = |question: &str| {
        quoted && question.starts_with("nothing explains this line")
            || weighed && question.starts_with("candidates that fit these lines")
    };
    report.undecided.iter().filter(|open| !is_told(&open.question)).collect()
}

/// What the questions are for.
pub(crate) fn title(report: &Report) -> &'static str {
    if report.verdict.cause == "undecided" { "what would decide" } else { "what would show more" }
}

/// Where a statement occurs first.
pub(crate) fn spot(statement: &Statement) -> String {
    let line = statement.first.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}{line}", statement.first.source)
}

/// `3 times, ranks 0-2, on node1`; empty if there is nothing to add.
pub(crate) fn spread(statement: &Statement) -> String {
    let mut parts = Vec::new();
    if statement.count > 1 {
        parts.push(format!("{} times", statement.count));
    }
    if !statement.ranks.is_empty() {
        parts.push(crate::sets::ranks(&statement.ranks.replace(',', ", ")));
    }
    if !statement.hosts.is_empty() {
        parts.push(format!("on {}", statement.hosts.join(", ")));
    }
    parts.join(", ")
}
