//! The report for a ticket. Everything that may contain text of the evidence is in a fence or a code span, so it cannot
//! become a heading, a link or a mention, or end its own fence.

use std::fmt::Write as _;

use ringleader_model::Cause;

use crate::Detail;
use crate::json::{Action, Confidence, Evidence, Report};
use crate::open;
use crate::quote::{plain, plain_lines, wrap};
use crate::text::{
    MAX_RANKS, citation, decider, difference, headline, headline_of, is_live, notes, others, place, ranks,
    standing, tally, who,
};

/// Citations shown of one finding unless everything is asked for.
const MAX_CITATIONS: usize = 8;
/// Findings shown with proof if none of them decided, and citations of each.
const MAX_CANDIDATES: usize = 3;
const MAX_CANDIDATE_CITATIONS: usize = 2;
/// Other findings, culprits and notes shown unless everything is asked for.
const MAX_OTHERS: usize = 10;
/// Columns of the sentence in its fence: trackers do not wrap a fence.
const FENCE_COLUMNS: usize = 100;

/// The whole report as Markdown, a newline at its end.
pub fn render(report: &Report, detail: Detail) -> String {
    let mut out = String::new();
    let all = detail == Detail::Everything;
    let limit = |usual: usize| if all { usize::MAX } else { usual };
    let verdict = &report.verdict;
    line(&mut out, &format!("## ringleader: {}", plain(&headline_of(report))));
    out.push('\n');
    for job in report.jobs.iter().take(limit(MAX_RANKS)) {
        let text = format!("{}: {}", job.id, headline(&job.verdict));
        line(&mut out, &format!("- **job** {}", code(&plain(&text))));
    }
    more(&mut out, report.jobs.len(), limit(MAX_RANKS), "jobs");
    if !verdict.summary.is_empty() {
        fence(&mut out, "", "text", &wrap(&plain(&verdict.summary), FENCE_COLUMNS).join("\n"));
        out.push('\n');
    }
    for culprit in verdict.culprits.iter().take(limit(MAX_OTHERS)) {
        let at = place(culprit).map(|place| format!(" at {}", code(&place))).unwrap_or_default();
        line(&mut out, &format!("- **culprit** {}{at}", code(&who(culprit))));
    }
    more(&mut out, verdict.culprits.len(), limit(MAX_OTHERS), "culprits");
    if !verdict.victims.is_empty() {
        line(&mut out, &format!("- **victims** {}", code(&ranks(&verdict.victims))));
    }
    if detail == Detail::Verdict {
        return out;
    }
    rank_rows(&mut out, report, limit(MAX_RANKS));
    let is_guess = open::is_guess(report);
    if let Some(finding) = decider(report).filter(|finding| !finding.evidence.is_empty()) {
        heading(&mut out, if is_guess { "Lines whose words led to the guess" } else { "Proof" });
        let lines =
            if is_guess { open::resembling(&finding.evidence, all) } else { finding.evidence.clone() };
        evidence(&mut out, "", &lines, limit(MAX_CITATIONS));
    }
    if !verdict.actions.is_empty() && !is_guess {
        heading(&mut out, "What to do");
        for (n, action) in verdict.actions.iter().enumerate() {
            self::action(&mut out, &format!("{}. ", n + 1), action);
        }
    }
    other_findings(&mut out, report, detail);
    if let Some(against) = &report.against {
        heading(&mut out, "Compared with the good run");
        for one in &against.differences {
            line(&mut out, &format!("- {}: {}", one.kind, prose(&plain(&difference(one)))));
        }
        for part in &against.not_compared {
            line(&mut out, &format!("- not compared: {}", prose(&plain(part))));
        }
    }
    open_questions(&mut out, report, limit(open::MAX_STATEMENTS));
    heading(&mut out, "Looked at");
    if all {
        for entry in &report.looked_at {
            line(&mut out, &format!("- {} ({})", code(&plain(&entry.source)), entry.kind));
        }
    } else {
        let tally = tally(&report.looked_at);
        line(&mut out, &tally);
        if let Some(names) = open::empty(report) {
            line(&mut out, &format!("\nEmpty: {}", code(&names)));
        }
    }
    if !report.not_looked_at.is_empty() && verdict.cause() != Cause::Undecided && !all {
        let kinds: Vec<&str> = report.not_looked_at.iter().map(|missing| missing.kind.as_str()).collect();
        if verdict.confidence != Confidence::High {
            line(&mut out, &format!("\nNot given: {}", kinds.join(", ")));
        }
    } else if !report.not_looked_at.is_empty() {
        heading(&mut out, "Not given, and what would collect it");
        for missing in &report.not_looked_at {
            line(
                &mut out,
                &format!("- {} ({}): {}", missing.kind, missing.why, code(&plain(&missing.command))),
            );
        }
    }
    let notes = notes(report, detail);
    if !notes.is_empty() {
        heading(&mut out, "Notes");
        for (place, text) in notes.iter().take(limit(MAX_OTHERS)) {
            line(&mut out, &format!("- {} {}", code(place), code(text)));
        }
        more(&mut out, notes.len(), limit(MAX_OTHERS), "notes");
    }
    out
}

/// Findings other than the one that decided.
fn other_findings(out: &mut String, report: &Report, detail: Detail) {
    let all = detail == Detail::Everything;
    let most = if all { usize::MAX } else { MAX_OTHERS };
    let others = others(report);
    if !others.is_empty() {
        heading(out, if decider(report).is_some() { "Other findings" } else { "Findings" });
        let candidates = if decider(report).is_some() { 0 } else { MAX_CANDIDATES };
        for (n, finding) in others.iter().take(most).enumerate() {
            let text = format!(
                "- **{}** {} ({}, {})",
                finding.severity.name(),
                prose(&plain(&finding.title)),
                finding.cause,
                finding.confidence.name()
            );
            line(out, &text);
            if all {
                for culprit in &finding.culprits {
                    line(out, &format!("  - culprit {}", code(&who(culprit))));
                }
                evidence(out, "  ", &finding.evidence, usize::MAX);
                for action in &finding.actions {
                    self::action(out, "  - ", action);
                }
            } else if n < candidates {
                evidence(out, "  ", &finding.evidence, MAX_CANDIDATE_CITATIONS);
            }
        }
        more(out, others.len(), most, "findings");
    }
}

/// Candidates, at most `most` statements that nothing explains, and what would decide.
fn open_questions(out: &mut String, report: &Report, most: usize) {
    if !report.candidates.is_empty() {
        heading(out, "Possible causes, most likely first");
        let shown = open::n_candidates(report, most == usize::MAX);
        for (n, one) in report.candidates.iter().take(shown).enumerate() {
            let needs =
                one.needs.as_ref().map(|needs| format!("; {}", prose(&plain(needs)))).unwrap_or_default();
            line(out, &format!("{}. **{}** {}{needs}", n + 1, one.cause, prose(&plain(&one.why))));
            if let Some(command) = &one.command {
                fence(out, "   ", "sh", &plain_lines(command).join("\n"));
            }
        }
        more(out, report.candidates.len(), shown, "causes");
    }
    let statements = open::statements(report);
    if !statements.is_empty() {
        heading(out, "Unexplained error statements");
        for one in statements.iter().take(most) {
            line(out, &format!("- {} {}", code(&plain(&open::spot(one))), prose(&plain(&open::spread(one)))));
            fence(out, "  ", "", &plain_lines(&one.text).join("\n"));
            for word in &one.words {
                line(out, &format!("  - {}: {}", code(&plain(&word.text)), prose(&plain(&word.means))));
            }
        }
        more(out, statements.len(), most, "statements");
    }
    let questions = open::questions(report);
    if !questions.is_empty() {
        let is_open = report.verdict.cause() == Cause::Undecided || open::is_guess(report);
        heading(out, if is_open { "What would decide" } else { "What would show more" });
        for open in questions {
            line(out, &format!("- {}", prose(&plain(&open.question))));
            fence(out, "  ", "sh", &plain_lines(&open.command).join("\n"));
        }
    }
}

/// One line for each rank of a live look, at most `most`.
fn rank_rows(out: &mut String, report: &Report, most: usize) {
    if is_live(report) {
        heading(out, "Ranks");
        for row in report.ranks.iter().take(most) {
            let busy =
                row.busy.map_or_else(String::new, |share| format!(", {:.0} % of a processor", share * 100.0));
            let text = format!("state {}{busy}: {}", row.state, standing(row));
            line(out, &format!("- **rank {}** {}", row.rank, code(&plain(&text))));
        }
        more(out, report.ranks.len(), most, "ranks");
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn heading(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\n### {text}\n\n");
}

fn more(out: &mut String, n_all: usize, shown: usize, what: &str) {
    if n_all > shown {
        line(out, &format!("- and {} more {what}", n_all - shown));
    }
}

fn evidence(out: &mut String, indent: &str, evidence: &[Evidence], limit: usize) {
    for cited in evidence.iter().take(limit) {
        line(out, &format!("{indent}- {}", code(&citation(cited))));
        if !cited.is_record() {
            fence(out, &format!("{indent}  "), "text", &plain_lines(&cited.quoted()).join("\n"));
        }
        if cited.is_record() || cited.is_meaning() {
            line(out, &format!("{indent}  {}", prose(&plain(&cited.text))));
        }
    }
    if evidence.len() > limit {
        line(out, &format!("{indent}- and {} more citations", evidence.len() - limit));
    }
}

fn action(out: &mut String, label: &str, action: &Action) {
    line(out, &format!("{label}{} *({})*", prose(&plain(&action.text)), action.impact.name()));
    if let Some(command) = &action.command {
        fence(out, &" ".repeat(label.len()), "sh", &plain_lines(command).join("\n"));
    }
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// A code span that `text` (one line) cannot end.
fn code(text: &str) -> String {
    let ticks = "`".repeat(longest_ticks(text) + 1);
    let pad =
        if text.is_empty() || text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// A sentence that may name functions or hosts: as it is while nothing in it could be taken for markup, a link, a
/// mention or an issue number, else as a code span.
fn prose(text: &str) -> String {
    let markup = |c: char| "`*_[]<>#|~&@\\$".contains(c);
    if text.contains(markup) || text.contains("://") || text.contains("www.") {
        code(text)
    } else {
        text.to_owned()
    }
}

/// A fenced block that `text` cannot end.
fn fence(out: &mut String, indent: &str, language: &str, text: &str) {
    let ticks = "`".repeat((longest_ticks(text) + 1).max(3));
    line(out, &format!("{indent}{ticks}{language}"));
    for row in text.lines() {
        line(out, format!("{indent}{row}").trim_end());
    }
    line(out, &format!("{indent}{ticks}"));
}
