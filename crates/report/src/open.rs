//! An undecided verdict, and one that is a guess: causes that come into question, unexplained error statements, and what
//! would decide.
//!
//! The open questions of a report repeat both for readers that know neither list; here each is printed once.

use ringleader_model::{Asks, Cause};

use crate::json::{Evidence, Finding, LookedAt, Report, Role, Statement, Undecided};

/// Statements that are shown unfolded unless everything is asked for.
pub(crate) const MAX_STATEMENTS: usize = 4;

/// Causes in question that are shown beside several statements, unless everything is asked for: the statements say more.
const MAX_CANDIDATES: usize = 3;

/// How many of the causes in question are shown.
pub(crate) fn n_candidates(report: &Report, all: bool) -> usize {
    if all || statements(report).len() < 2 { usize::MAX } else { MAX_CANDIDATES }
}

/// The finding that the verdict rests on.
pub(crate) fn decider(report: &Report) -> Option<&Finding> {
    report.findings.first().filter(|first| first.cause == report.verdict.cause)
}

/// Id of the finding that only says what the wording resembles.
const GUESS: &str = "likeness";

/// The verdict is what the wording of the evidence resembles: no line and no record shows it.
pub(crate) fn is_guess(report: &Report) -> bool {
    decider(report).is_some_and(|finding| finding.id == GUESS)
}

/// A guess cites single words with their weights: each line once, with its words; without their weights unless asked for.
pub(crate) fn resembling(evidence: &[Evidence], with_weights: bool) -> Vec<Evidence> {
    let mut lines: Vec<Evidence> = Vec::new();
    for cited in evidence {
        let word = match cited.text.rsplit_once(" +") {
            Some((word, _)) if !with_weights => word.to_owned(),
            _ => cited.text.clone(),
        };
        match lines.iter_mut().find(|line| line.source == cited.source && line.line == cited.line) {
            Some(line) => line.text = format!("{}, {word}", line.text),
            None => lines.push(Evidence { text: word, ..cited.clone() }),
        }
    }
    lines
}

/// Unexplained error statements, if they keep the verdict open.
pub(crate) fn statements(report: &Report) -> Vec<&Statement> {
    if report.verdict.cause() != Cause::Undecided && !is_guess(report) {
        return Vec::new();
    }
    report.statements.iter().filter(|s| s.role == Role::Unexplained).collect()
}

/// Questions that no candidate and no statement answers.
pub(crate) fn questions(report: &Report) -> Vec<&Undecided> {
    let (quoted, weighed) = (!statements(report).is_empty(), !report.candidates.is_empty());
    // Of a guess the first line says enough.
    let first = report.undecided.iter().find(|open| open.asks == Asks::Line).map(|open| &open.question);
    let is_guess = is_guess(report);
    let is_told = |open: &Undecided| match open.asks {
        Asks::Line => quoted || is_guess && Some(&open.question) != first,
        Asks::Candidates => weighed,
        Asks::Job => has_jobs(report),
        Asks::Fact => false,
    };
    report.undecided.iter().filter(|open| !is_told(open)).collect()
}

/// The evidence is of several jobs, and the report lists them before everything else.
pub(crate) fn has_jobs(report: &Report) -> bool {
    report.jobs.len() > 1
}

/// The commands that diagnose each of several recorded jobs by itself.
pub(crate) fn of_each_job(report: &Report) -> Option<&str> {
    report.undecided.iter().find(|open| open.asks == Asks::Job).map(|open| open.command.as_str())
}

/// Files without a byte that are named; of many the first.
const MAX_EMPTY: usize = 3;

/// The files that hold nothing, in a few words: an empty log beside good ones is easily taken for a quiet rank.
pub(crate) fn empty(report: &Report) -> Option<String> {
    let is_empty = |entry: &&LookedAt| {
        entry.kind == "empty" || entry.kind == "text" && entry.notes.iter().any(|note| note.is_empty)
    };
    let names: Vec<String> =
        report.looked_at.iter().filter(is_empty).map(|entry| crate::quote::plain(&entry.source)).collect();
    let more = names.len().saturating_sub(MAX_EMPTY);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let first = names.get(..names.len().min(MAX_EMPTY))?.join(", ");
    (!names.is_empty()).then(|| format!("{first}{rest}"))
}

/// Why there is nothing to judge, if no part of the evidence could be read or was of a known kind.
pub(crate) fn nothing(report: &Report) -> Option<String> {
    let is_blank = |entry: &LookedAt| {
        matches!(entry.kind.as_str(), "not-read" | "empty" | "unknown")
            || entry.kind == "text" && entry.notes.iter().any(|note| note.is_empty)
    };
    let is_empty = report.verdict.cause() == Cause::Undecided
        && report.findings.is_empty()
        && report.statements.is_empty()
        && report.looked_at.iter().all(is_blank);
    if !is_empty {
        return None;
    }
    let Some(first) = report.looked_at.first() else {
        return Some("nothing to read: there is no file in what was given".to_owned());
    };
    let source = crate::quote::plain(&first.source);
    let why = match first.notes.first() {
        Some(note) => note.text.trim_start_matches("not read: ").to_owned(),
        None => "it is empty".to_owned(),
    };
    let more = match report.looked_at.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more files)"),
    };
    Some(format!("nothing readable: {source}: {}{more}", crate::quote::plain(&why)))
}

/// What the questions are for.
pub(crate) fn title(report: &Report) -> &'static str {
    let is_open = report.verdict.cause() == Cause::Undecided || is_guess(report);
    if is_open { "what would decide" } else { "what would show more" }
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
