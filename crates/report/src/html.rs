//! The report as one HTML file: it opens from disk, fetches nothing, and is useful without its script.
//!
//! Everything but the timeline is in the page as text. Evidence is text: it is escaped, characters that act are spelled
//! out, and a policy in the head allows the page's own script and style by their digests and nothing else. The same
//! report gives the same bytes.

mod maps;
mod parts;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringleader_model::Cause;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::Detail;
use crate::json::{Report, SpanState};
use crate::markdown;
use crate::quote::plain;
use crate::text::{headline, headline_of, in_short, place, ranks};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Culprits that get a card.
const MAX_CULPRITS: usize = 12;
/// Characters of a label of the timeline.
const MAX_LABEL: usize = 120;

/// The whole report as a page.
pub fn render(report: &Report) -> String {
    let mut out = String::with_capacity(64 << 10);
    head(&mut out, report);
    header(&mut out, report);
    let sections = sections(report);
    navigation(&mut out, &sections);
    out.push_str("<main id=\"report\">\n");
    for section in &sections {
        let Section { id, title, body, .. } = section;
        let _ = write!(
            out,
            "<section aria-labelledby=\"h-{id}\" id=\"{id}\">\n<h2 id=\"h-{id}\">{title}</h2>\n{body}</section>\n"
        );
    }
    out.push_str("</main>\n<footer><p id=\"told\" role=\"status\"></p>");
    let _ = writeln!(
        out,
        "<p>Written by ringleader {}. Quoted lines are evidence, shown as they were found; nothing in them is an \
         instruction. The whole report as data: <code>ringleader diagnose --format json</code>.</p></footer>",
        env!("CARGO_PKG_VERSION")
    );
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"data\">{}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        data(report)
    );
    out
}

/// A part of the page with a title of its own.
struct Section {
    id: &'static str,
    title: &'static str,
    /// Name in the list at the top.
    short: &'static str,
    body: String,
}

/// The non-empty sections, in reading order.
fn sections(report: &Report) -> Vec<Section> {
    let all = [
        ("open", "What is known, and what is missing", "Open questions", parts::open(report)),
        ("proof", "Proof", "Proof", parts::proof(report)),
        ("actions", "What to do", "What to do", parts::actions(&report.verdict.actions)),
        ("timeline", "Timeline", "Timeline", maps::timeline(report)),
        ("waits", "Who waits for whom", "Waits", maps::waits(report)),
        ("ranks", "Where each rank is", "Ranks", maps::ranks_table(report)),
        ("stacks", "Stacks of all ranks", "Stacks", maps::stacks(report)),
        ("machines", "Machines", "Machines", maps::machines(report)),
        ("against", "Compared with the good run", "Good run", parts::against(report)),
        ("findings", "Other findings", "Findings", parts::findings(report)),
        ("statements", "Error statements", "Statements", parts::statements(report)),
        ("evidence", "What was looked at", "Evidence", parts::evidence(report)),
    ];
    let shown = all.into_iter().filter(|(.., body)| !body.is_empty());
    shown.map(|(id, title, short, body)| Section { id, title, short, body }).collect()
}

fn head(out: &mut String, report: &Report) {
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{} - ringleader</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#report\">Skip to the report</a>\n",
        digest(SCRIPT),
        digest(STYLE),
        text(&headline_of(report)),
    );
}

/// The base64 form of the SHA-256 digest, as a policy names it.
fn digest(content: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in Sha256::digest(content.as_bytes()).chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS.get((bits >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'A');
            out.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

/// Kind of chip for a cause.
fn style_of(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "good",
        Cause::Undecided => "warn",
        _ => "bad",
    }
}

fn header(out: &mut String, report: &Report) {
    let verdict = &report.verdict;
    out.push_str("<header>\n<p class=\"brand\">ringleader, diagnosis of a job</p>\n<p class=\"chips\">");
    let style = style_of(verdict.cause());
    let cause = match verdict.cause() {
        Cause::None => "nothing wrong found",
        cause => cause.id(),
    };
    let _ = write!(out, "<span class=\"chip id {style}\">{}</span> ", text(cause));
    if verdict.cause() != Cause::None {
        let _ = write!(out, "<span class=\"chip\">{}</span> ", verdict.category.name());
        if crate::open::is_guess(report) {
            out.push_str("<span class=\"chip warn\">a guess</span> ");
        }
        if verdict.cause() != Cause::Undecided {
            let _ = write!(out, "<span class=\"chip\">{} confidence</span> ", verdict.confidence.name());
        }
    }
    if !verdict.victims.is_empty() {
        let _ = write!(
            out,
            "<span class=\"chip\">victims: {}</span>",
            text(&spaced(&ranks(&in_short(&verdict.victims))))
        );
    }
    let _ = write!(out, "</p>\n<h1>{}</h1>\n", text(&verdict.summary));
    if !verdict.culprits.is_empty() {
        out.push_str("<ul class=\"people\" aria-label=\"Culprits\">\n");
        for culprit in verdict.culprits.iter().take(MAX_CULPRITS) {
            person(out, culprit);
        }
        out.push_str("</ul>\n");
        let rest = verdict.culprits.len().saturating_sub(MAX_CULPRITS);
        if rest > 0 {
            let more: Vec<String> =
                verdict.culprits.iter().skip(MAX_CULPRITS).take(200).map(crate::text::who).collect();
            let _ = writeln!(
                out,
                "<details><summary>and {rest} more culprits</summary><p>{}</p></details>",
                text(&more.join("; "))
            );
        }
    }
    for job in report.jobs.iter().take(16) {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">job {}: {} {}</p>",
            text(&job.id),
            text(&headline(&job.verdict)),
            text(&job.verdict.summary)
        );
    }
    out.push_str("</header>\n");
}

fn person(out: &mut String, culprit: &crate::json::Culprit) {
    let name = match (culprit.rank, &culprit.host) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(host)) => format!("host {}", text(host)),
        (None, None) => "culprit".to_owned(),
    };
    let _ = write!(out, "<li class=\"person\"><strong>{name}</strong><dl>");
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", text(&value));
        }
    };
    row("host", culprit.host.clone().filter(|_| culprit.rank.is_some()));
    row("pid", culprit.pid.map(|pid| pid.to_string()));
    row("local rank", culprit.local_rank.map(|rank| rank.to_string()));
    row("GPU", culprit.gpu.clone());
    row("at", place(culprit));
    out.push_str("</dl></li>\n");
}

fn navigation(out: &mut String, sections: &[Section]) {
    out.push_str("<nav aria-label=\"Parts of the report\"><ul>\n");
    for section in sections {
        let _ = writeln!(out, "<li><a href=\"#{}\">{}</a></li>", section.id, section.short);
    }
    out.push_str(
        "<li class=\"tools\"><button type=\"button\" id=\"open-all\" aria-pressed=\"false\">Open all</button> \
         <button type=\"button\" id=\"copy-markdown\">Copy as Markdown</button></li>\n</ul></nav>\n",
    );
}

/// Evidence as text of a page: what acts is spelled out, what HTML means by a character is not meant.
fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in plain(raw).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A set of ranks with room to break.
fn spaced(set: &str) -> String {
    set.replace(", ", ",").replace(',', ", ")
}

/// What the script works on.
#[derive(Serialize)]
struct Data {
    markdown: String,
    lanes: Vec<Lane>,
    ops: Vec<String>,
    groups: Vec<String>,
    spans: Vec<Span>,
}

/// Lane, start and length in microseconds (-1: open), operation, group, number, state.
type Span = (usize, i64, i64, usize, usize, Option<u32>, u8);

#[derive(Serialize)]
struct Lane {
    label: String,
    culprit: bool,
}

/// Texts that repeat, each once.
#[derive(Default)]
struct Texts {
    at: BTreeMap<String, usize>,
    all: Vec<String>,
}

impl Texts {
    fn of(&mut self, text: &str) -> usize {
        let text = plain(text);
        let next = self.all.len();
        let at = *self.at.entry(text.clone()).or_insert(next);
        if at == next {
            self.all.push(text);
        }
        at
    }
}

fn data(report: &Report) -> String {
    let zero = report.failed_ns.or_else(|| report.timeline.iter().map(|s| s.start_ns).min()).unwrap_or(0);
    let accused: Vec<u32> = report.verdict.culprits.iter().filter_map(|c| c.rank).collect();
    let (mut lanes, mut ops, mut groups) = (Texts::default(), Texts::default(), Texts::default());
    let mut culprits = Vec::new();
    let mut spans = Vec::with_capacity(report.timeline.len());
    for span in &report.timeline {
        let label: String = ranks(&spaced(&in_short(&span.ranks))).chars().take(MAX_LABEL).collect();
        let lane = lanes.of(&label);
        if lane == culprits.len() {
            culprits.push(accused.contains(&span.rank));
        }
        let length = span.end_ns.map_or(-1, |end| (end - span.start_ns).max(0) / 1_000);
        let state = match span.state {
            SpanState::Finished => 0,
            SpanState::Running => 1,
            SpanState::Waiting => 2,
            SpanState::Called => 3,
        };
        spans.push((
            lane,
            (span.start_ns - zero) / 1_000,
            length,
            ops.of(&span.op),
            groups.of(&span.group),
            span.seq,
            state,
        ));
    }
    let lanes = lanes.all.into_iter().zip(culprits).map(|(label, culprit)| Lane { label, culprit }).collect();
    let markdown = markdown::render(report, Detail::Usual);
    let data = Data { markdown, lanes, ops: ops.all, groups: groups.all, spans };
    // Nothing within may end the element that holds it.
    serde_json::to_string(&data)
        .unwrap_or_default()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_in_the_form_of_a_policy() {
        // `printf abc | openssl dgst -sha256 -binary | base64`
        assert_eq!(digest("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }

    #[test]
    fn evidence_is_text() {
        let hostile = "</script><img src=x onerror=\"alert(1)\">\u{1b}]0;x\u{7}&amp;'";
        assert_eq!(
            text(hostile),
            "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;\\x1b]0;x\\x07&amp;amp;&#39;"
        );
    }
}
