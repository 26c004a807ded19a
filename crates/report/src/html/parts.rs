//! The parts of the page that are read: proof, actions, findings, open questions, statements, evidence.

use std::fmt::Write as _;

use ringleader_model::Cause;

use super::{spaced, style_of, text};
use crate::json::{
    Action, Context, Evidence, Finding, Impact, Report, Role, Severity, Span, SpanState, Statement,
};
use crate::open;
use crate::quote::plain_lines;
use crate::sets;
use crate::text::{citation, decider, notes, others, tally, who};
use crate::{Detail, missing};

/// Calls before and after the one that a record is of.
const CALLS_AROUND: u32 = 4;
/// Citations of one finding.
const MAX_CITATIONS: usize = 24;
/// Findings, statements, files, notes.
const MAX_FINDINGS: usize = 100;
const MAX_STATEMENTS: usize = 100;
const MAX_FILES: usize = 400;
const MAX_NOTES: usize = 100;
/// Unexplained statements that are shown unfolded.
const MAX_OPEN: usize = 6;
/// Lines and characters of one quotation.
const MAX_LINES: usize = 40;
const MAX_CHARS: usize = 2_000;

/// Lines of evidence, in bounds.
fn quoted(raw: &str) -> String {
    let lines = plain_lines(raw);
    let n_left = lines.len().saturating_sub(MAX_LINES);
    let mut shown: Vec<String> = lines.into_iter().take(MAX_LINES).map(|line| cut(&line)).collect();
    if n_left > 0 {
        shown.push(format!("({n_left} more lines)"));
    }
    text_lines(&shown)
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{} (cut)", line.get(..at).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// Lines as the content of a `pre`.
fn text_lines(lines: &[String]) -> String {
    lines.iter().map(|line| text(line)).collect::<Vec<_>>().join("\n")
}

/// A citation: its place, the line as it is there, what it means if that is said otherwise, the lines around it.
fn cited(out: &mut String, report: &Report, evidence: &Evidence) {
    let _ = write!(out, "<span class=\"cite mono\">{}</span>", text(&citation(evidence)));
    let raw = evidence.raw();
    if let Some(raw) = raw.as_ref().filter(|_| !evidence.is_record()) {
        let _ = write!(out, "<pre class=\"raw\">{}</pre>", quoted(raw));
    }
    if evidence.is_meaning() || evidence.is_record() || raw.is_none() {
        let lines = plain_lines(&evidence.text);
        let tag = if lines.len() > 1 { "pre" } else { "p" };
        let _ = write!(out, "<{tag} class=\"means\">{}</{tag}>", quoted(&evidence.text));
    }
    if let Some(context) = evidence.context.as_ref().filter(|c| !c.before.is_empty() || !c.after.is_empty()) {
        around(out, evidence, context);
    }
    if evidence.is_record() {
        calls_around(out, report, &evidence.text);
    }
}

/// The calls of a rank around the one that a record is of: `rank 2 #45: all_reduce …`.
fn calls_around(out: &mut String, report: &Report, record: &str) {
    let of = || {
        let rest = record.strip_prefix("rank ")?;
        let (rank, rest) = rest.split_once(" #")?;
        let (seq, _) = rest.split_once(':')?;
        Some((rank.parse::<u32>().ok()?, seq.parse::<u32>().ok()?))
    };
    let Some((rank, seq)) = of() else { return };
    let near = |span: &&Span| {
        span.seq.is_some_and(|own| own.abs_diff(seq) <= CALLS_AROUND) && sets::holds(&span.ranks, rank)
    };
    let mut spans: Vec<&Span> = report.timeline.iter().filter(near).collect();
    spans.sort_by_key(|span| (span.seq, span.start_ns));
    if spans.len() < 2 {
        return;
    }
    let row = |span: &&Span| {
        let number = span.seq.unwrap_or_default();
        let state = match span.state {
            SpanState::Finished => "finished",
            SpanState::Running => "runs",
            SpanState::Waiting => "waits",
            SpanState::Called => "called",
        };
        let row = format!("#{number:<6} {} of {}, {state}", text(&span.op), text(&span.group));
        if number == seq { format!("<mark>{row}</mark>") } else { row }
    };
    let rows: Vec<String> = spans.iter().map(row).collect();
    let _ = write!(
        out,
        "<details class=\"around\"><summary>calls of rank {rank} around it</summary><pre>{}</pre></details>",
        rows.join("\n")
    );
}

fn around(out: &mut String, evidence: &Evidence, context: &Context) {
    let first = context.line.saturating_sub(context.before.len() as u32);
    let cited = context.before.len()..context.before.len() + context.lines.len();
    let all = context.before.iter().chain(&context.lines).chain(&context.after);
    let rows: Vec<String> = (first..)
        .zip(all.enumerate())
        .map(|(number, (at, line))| {
            let line = text(&cut(line));
            let row = format!("<span class=\"no\">{number:>6} </span>{line}");
            if cited.contains(&at) { format!("<mark>{row}</mark>") } else { row }
        })
        .collect();
    let _ = write!(
        out,
        "<details class=\"around\"><summary>lines around it in {}</summary><pre>{}</pre></details>",
        text(&evidence.source),
        rows.join("\n")
    );
}

fn citations(out: &mut String, report: &Report, evidence: &[Evidence]) {
    out.push_str("<ol class=\"proofs\">\n");
    for one in evidence.iter().take(MAX_CITATIONS) {
        out.push_str("<li>");
        cited(out, report, one);
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    more(out, evidence.len(), MAX_CITATIONS, "citations");
}

fn more(out: &mut String, n_all: usize, n_shown: usize, what: &str) {
    if n_all > n_shown {
        let _ = writeln!(out, "<p class=\"quiet\">and {} more {what}</p>", n_all - n_shown);
    }
}

/// What the verdict rests on.
pub(super) fn proof(report: &Report) -> String {
    let mut out = String::new();
    if let Some(finding) = decider(report) {
        if open::is_guess(report) {
            out.push_str("<p>No line and no record shows this cause; these lines have its words.</p>\n");
            citations(&mut out, report, &open::resembling(&finding.evidence, true));
        } else {
            citations(&mut out, report, &finding.evidence);
        }
    }
    out
}

fn impact(impact: Impact) -> String {
    let style = match impact {
        Impact::Harmless => "good",
        Impact::Disruptive => "warn",
        Impact::Destructive => "bad",
    };
    format!("<span class=\"chip {style}\">{}</span>", impact.name())
}

fn command(out: &mut String, line: &str) {
    if line.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<div class=\"command\"><pre>{}</pre><button type=\"button\" data-copy aria-label=\"Copy the command\">Copy</button></div>",
        text_lines(&plain_lines(line))
    );
}

/// What to do, first things first.
pub(super) fn actions(actions: &[Action]) -> String {
    if actions.is_empty() {
        return String::new();
    }
    let mut out = String::from("<ol class=\"steps\">\n");
    for action in actions {
        let _ = write!(out, "<li>{} {}", text(&action.text), impact(action.impact));
        command(&mut out, action.command.as_deref().unwrap_or_default());
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    out
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "bad",
        Severity::Warning => "warn",
        Severity::Info => "",
    }
}

fn finding(out: &mut String, report: &Report, finding: &Finding, is_open: bool) {
    let open = if is_open { " open" } else { "" };
    let _ = write!(
        out,
        "<li><details{open} data-print><summary><span class=\"chip {}\">{}</span> {}</summary>\
         <p class=\"quiet\"><code>{}</code> by rule <code>{}</code>, {} confidence",
        severity(finding.severity),
        finding.severity.name(),
        text(&finding.title),
        text(&finding.cause),
        text(&finding.id),
        finding.confidence.name()
    );
    if !finding.culprits.is_empty() {
        let people: Vec<String> = finding.culprits.iter().take(8).map(who).collect();
        let _ = write!(out, "; {}", text(&people.join("; ")));
    }
    out.push_str("</p>\n");
    citations(out, report, &finding.evidence);
    out.push_str(&actions(&finding.actions));
    out.push_str("</details></li>\n");
}

/// Findings besides the one that decided.
pub(super) fn findings(report: &Report) -> String {
    let others = others(report);
    if others.is_empty() {
        return String::new();
    }
    // Without one that decided they are what there is to go by.
    let n_open = if decider(report).is_some() { 0 } else { 3 };
    let mut out = String::from("<ul class=\"plain\">\n");
    for (at, one) in others.iter().take(MAX_FINDINGS).enumerate() {
        finding(&mut out, report, one, at < n_open);
    }
    out.push_str("</ul>\n");
    more(&mut out, others.len(), MAX_FINDINGS, "findings");
    out
}

/// What differs from a good run.
pub(super) fn against(report: &Report) -> String {
    let Some(against) = &report.against else { return String::new() };
    let mut out = format!("<p class=\"quiet\">The good run's verdict: {}.</p>\n", text(&against.verdict));
    if against.differences.is_empty() {
        out.push_str("<p>Nothing differs in what both runs show.</p>\n");
    } else {
        out.push_str(
            "<table class=\"wide\"><thead><tr><th scope=\"col\">kind</th><th scope=\"col\">what</th>\
             <th scope=\"col\">this run</th><th scope=\"col\">good run</th></tr></thead><tbody>\n",
        );
        for one in &against.differences {
            let side = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), text);
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                text(&one.kind),
                text(&one.name),
                side(&one.bad),
                side(&one.good)
            );
        }
        out.push_str("</tbody></table>\n");
    }
    for part in &against.not_compared {
        let _ = writeln!(out, "<p class=\"quiet\">not compared: {}</p>", text(part));
    }
    out
}

/// Candidates, the statements that nothing explains, and the questions whose answers would decide.
pub(super) fn open(report: &Report) -> String {
    let mut out = String::new();
    let is_undecided = report.verdict.cause() == Cause::Undecided;
    if !report.candidates.is_empty() {
        out.push_str("<h3>Possible causes, most likely first</h3>\n<ol class=\"steps\">\n");
        for one in &report.candidates {
            let _ = write!(
                out,
                "<li><span class=\"chip id {}\">{}</span> {}",
                style_of(one.cause()),
                text(&one.cause),
                text(&one.why)
            );
            if let Some(needs) = &one.needs {
                let _ = write!(out, "<br><span class=\"quiet\">next: {}</span>", text(needs));
            }
            command(&mut out, one.command.as_deref().unwrap_or_default());
            out.push_str("</li>\n");
        }
        out.push_str("</ol>\n");
    }
    let unexplained: Vec<&Statement> = open::statements(report).into_iter().take(MAX_OPEN).collect();
    if !unexplained.is_empty() {
        out.push_str("<h3>Unexplained error statements</h3>\n<ol class=\"proofs\">\n");
        for one in unexplained {
            let _ = write!(
                out,
                "<li><span class=\"cite mono\">{}</span> <span class=\"quiet\">{}</span><pre class=\"raw\">{}</pre>",
                text(&open::spot(one)),
                text(&open::spread(one)),
                quoted(&one.text)
            );
            meanings(&mut out, one);
            out.push_str("</li>\n");
        }
        out.push_str("</ol>\n");
    }
    // The lines themselves are above.
    let asked = open::questions(report);
    if !asked.is_empty() {
        let title = if is_undecided { "What would decide" } else { "What would show more" };
        let _ = write!(out, "<h3>{title}</h3>\n<ul class=\"steps\">\n");
        for open in asked.into_iter().take(24) {
            let _ = write!(out, "<li>{}", text(&open.question));
            command(&mut out, &open.command);
            out.push_str("</li>\n");
        }
        out.push_str("</ul>\n");
    }
    out
}

fn meanings(out: &mut String, statement: &Statement) {
    if statement.words.is_empty() {
        return;
    }
    out.push_str("<ul class=\"plain\">");
    for word in &statement.words {
        let _ = write!(out, "<li class=\"quiet\"><b>{}</b>: {}</li>", text(&word.text), text(&word.means));
    }
    out.push_str("</ul>");
}

/// All error statements, and what became of each.
pub(super) fn statements(report: &Report) -> String {
    if report.statements.is_empty() {
        return String::new();
    }
    let count = |role: Role| report.statements.iter().filter(|s| s.role == role).count();
    let mut out = format!(
        "<p>{} unexplained, {} explained by findings, {} harmless.</p>\n<details><summary>show them</summary>\n\
         <table class=\"wide\"><thead><tr><th scope=\"col\">is</th><th scope=\"col\">lines</th><th scope=\"col\">by</th>\
         <th scope=\"col\">first at</th><th scope=\"col\">text</th></tr></thead><tbody>\n",
        count(Role::Unexplained),
        count(Role::Explained),
        count(Role::Harmless)
    );
    for one in report.statements.iter().take(MAX_STATEMENTS) {
        let (role, style) = match one.role {
            Role::Unexplained => ("unexplained", "warn"),
            Role::Explained => ("explained", ""),
            Role::Harmless => ("harmless", "good"),
        };
        let by = one.by.as_deref().unwrap_or_default();
        let said: Vec<String> =
            [spaced(&one.ranks), one.hosts.join(", ")].into_iter().filter(|s| !s.is_empty()).collect();
        let _ = writeln!(
            out,
            "<tr><td><span class=\"chip {style}\" title=\"{}\">{role}</span></td><td>{}</td><td>{}</td>\
             <td class=\"mono\">{}</td><td class=\"mono\">{}</td></tr>",
            text(by),
            one.count,
            text(&said.join(" on ")),
            text(&open::spot(one)),
            quoted(&one.text)
        );
    }
    out.push_str("</tbody></table>\n");
    let n_all = report.statements.len() + report.statements_left_out;
    more(&mut out, n_all, report.statements.len().min(MAX_STATEMENTS), "statements");
    out.push_str("</details>\n");
    out
}

/// What was read, what was not there, and what could not be read.
pub(super) fn evidence(report: &Report) -> String {
    let mut out = format!("<p>{}</p>\n", text(&tally(&report.looked_at)));
    if !report.looked_at.is_empty() {
        out.push_str("<details><summary>files</summary><ul class=\"plain mono\">\n");
        for entry in report.looked_at.iter().take(MAX_FILES) {
            let _ = writeln!(
                out,
                "<li>{} <span class=\"quiet\">{}</span></li>",
                text(&entry.source),
                text(&entry.kind)
            );
        }
        out.push_str("</ul>");
        more(&mut out, report.looked_at.len(), MAX_FILES, "files");
        out.push_str("</details>\n");
    }
    if !report.not_looked_at.is_empty() {
        out.push_str(
            "<details data-print><summary>missing evidence, and what would collect it</summary>\n<table class=\"wide\"><thead><tr>\
             <th scope=\"col\">kind</th><th scope=\"col\">command</th></tr></thead><tbody>\n",
        );
        for one in &report.not_looked_at {
            let why =
                if one.why == missing::NOT_GIVEN { String::new() } else { format!("<br>{}", text(&one.why)) };
            let _ = writeln!(
                out,
                "<tr><td class=\"nowrap\">{}</td><td><code>{}</code>{why}</td></tr>",
                text(&one.kind),
                text_lines(&plain_lines(&one.command))
            );
        }
        out.push_str("</tbody></table></details>\n");
    }
    let notes = notes(report, Detail::Usual);
    if !notes.is_empty() {
        out.push_str("<h3>Notes on what could not be read</h3>\n<ul>\n");
        for (place, note) in notes.iter().take(MAX_NOTES) {
            let _ = writeln!(out, "<li><code>{}</code> {}</li>", text(place), text(note));
        }
        out.push_str("</ul>\n");
        more(&mut out, notes.len(), MAX_NOTES, "notes");
    }
    out
}
