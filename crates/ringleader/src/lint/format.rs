//! The report of `lint`: text, JSON version 1, SARIF 2.1.0, GitHub's workflow commands.

use std::fmt::Write as _;

use ringleader_lint::{LintFinding, LintReport, Location, Severity, rules};
use ringleader_report::quote::plain;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

/// The report, version 1. Within version 1 fields are only added.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonReport {
    /// Name and version of this format.
    schema: &'static str,
    /// By place.
    findings: Vec<JsonFinding>,
    /// What was not read, or only in part.
    notes: Vec<JsonNote>,
    /// Files that were read.
    n_files: usize,
    /// Findings that a comment in the source ignores.
    n_ignored: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonFinding {
    /// Id of the rule; `ringleader explain` knows it.
    rule: &'static str,
    /// error, warning or info.
    severity: &'static str,
    /// high, medium or low.
    confidence: &'static str,
    /// The cause that a job which runs into it would be diagnosed with.
    predicts: &'static str,
    /// The place in the code or launch file.
    place: JsonPlace,
    /// What is wrong.
    title: String,
    /// Both paths with their calls.
    why: Vec<String>,
    /// Other places that matter.
    related: Vec<JsonRelated>,
    /// What to do.
    help: String,
    /// The framework's documentation; may be empty.
    page: &'static str,
    /// Stays the same while lines move.
    fingerprint: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonPlace {
    /// File.
    path: String,
    /// First line, from 1.
    line: u32,
    /// First column, in characters from 1.
    column: u32,
    /// Last line.
    end_line: u32,
    /// The column after the last.
    end_column: u32,
    /// The function around it; may be empty.
    function: String,
    /// The source there, its first line.
    text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonRelated {
    /// The related place.
    place: JsonPlace,
    /// What is there.
    text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonNote {
    /// File.
    path: String,
    /// What the user should know of the file.
    text: String,
}

const SCHEMA: &str = "ringleader.lint.v1";

/// The JSON Schema of the format.
pub fn schema() -> String {
    let schema = schemars::schema_for!(JsonReport);
    format!("{schema:#}\n", schema = schema.as_value())
}

fn place(place: &Location) -> JsonPlace {
    JsonPlace {
        path: place.path.clone(),
        line: place.line,
        column: place.column,
        end_line: place.end_line,
        end_column: place.end_column,
        function: place.function.clone(),
        text: place.text.clone(),
    }
}

fn predicts(finding: &LintFinding) -> &'static str {
    rules::all().find(|rule| rule.id == finding.rule).map_or("", |rule| rule.predicts.id())
}

pub(super) fn json(report: &LintReport) -> Result<String, serde_json::Error> {
    let findings = report.findings.iter().map(|finding| JsonFinding {
        rule: finding.rule,
        severity: finding.severity.name(),
        confidence: finding.confidence.name(),
        predicts: predicts(finding),
        place: place(&finding.place),
        title: finding.title.clone(),
        why: finding.why.clone(),
        related: finding
            .related
            .iter()
            .map(|r| JsonRelated { place: place(&r.place), text: r.text.clone() })
            .collect(),
        help: finding.help.clone(),
        page: finding.page,
        fingerprint: finding.fingerprint(),
    });
    let notes = report.notes.iter().map(|note| JsonNote { path: note.path.clone(), text: note.text.clone() });
    let report = JsonReport {
        schema: SCHEMA,
        findings: findings.collect(),
        notes: notes.collect(),
        n_files: report.n_files,
        n_ignored: report.n_ignored,
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

/// Places of one mistake that are shown by name.
const MAX_COPIES: usize = 8;

/// Findings that say the same of several places, each with the other places: a setting that was copied from file to file
/// is one mistake.
fn folded(findings: &[LintFinding]) -> Vec<(&LintFinding, Vec<&Location>)> {
    let mut out: Vec<(&LintFinding, Vec<&Location>)> = Vec::new();
    for finding in findings {
        let is_same = |other: &LintFinding| {
            (other.rule, other.confidence, &other.title, &other.why, &other.help)
                == (finding.rule, finding.confidence, &finding.title, &finding.why, &finding.help)
                && other.related.is_empty()
                && finding.related.is_empty()
        };
        match out.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, copies)) => copies.push(&finding.place),
            None => out.push((finding, Vec::new())),
        }
    }
    out
}

pub(super) fn text(report: &LintReport) -> String {
    let mut out = String::new();
    let folded = folded(&report.findings);
    for (finding, copies) in &folded {
        let at = &finding.place;
        let _ = writeln!(
            out,
            "{}:{}:{}: {} [{}]",
            plain(&at.path),
            at.line,
            at.column,
            finding.severity.name(),
            finding.rule
        );
        let _ = writeln!(out, "  {}", plain(&finding.title));
        if !at.text.is_empty() {
            let _ = writeln!(out, "    {} | {}", at.line, plain(&at.text));
        }
        for line in &finding.why {
            let _ = writeln!(out, "  {}", plain(line));
        }
        for related in &finding.related {
            let other = &related.place;
            let _ = writeln!(
                out,
                "  {}:{}: {}: {}",
                plain(&other.path),
                other.line,
                related.text,
                plain(&other.text)
            );
        }
        for copy in copies.iter().take(MAX_COPIES) {
            let _ = writeln!(out, "  the same: {}:{}", plain(&copy.path), copy.line);
        }
        if let n @ 1.. = copies.len().saturating_sub(MAX_COPIES) {
            let _ = writeln!(out, "  the same in {n} more places: --format json-v1 has all");
        }
        let _ = writeln!(out, "  fix: {}", plain(&finding.help));
        let _ =
            writeln!(out, "  confidence: {}; ringleader explain {}", finding.confidence.name(), finding.rule);
        if !finding.page.is_empty() {
            let _ = writeln!(out, "  {}", finding.page);
        }
        out.push('\n');
    }
    let n = folded.len();
    let places = match report.findings.len() {
        all if all == n => String::new(),
        all => format!(" at {all} places"),
    };
    let of = |severity| folded.iter().filter(|(finding, _)| finding.severity == severity).count();
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let _ = writeln!(
        out,
        "{}{places} in {} ({}, {}){}",
        count(n, "finding"),
        count(report.n_files, "file"),
        count(of(Severity::Error), "error"),
        count(of(Severity::Warning), "warning"),
        if report.n_ignored > 0 {
            format!("; {} ignored by comments", report.n_ignored)
        } else {
            String::new()
        },
    );
    for note in &report.notes {
        let _ = writeln!(out, "note: {}: {}", plain(&note.path), plain(&note.text));
    }
    out
}

/// Workflow commands: a line each; `%`, line ends and, in properties, `:` and `,` are escaped.
pub(super) fn github(report: &LintReport) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    for finding in &report.findings {
        let level = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "notice",
        };
        let at = &finding.place;
        let mut message = plain(&finding.title);
        for line in &finding.why {
            let _ = write!(message, "\n{}", plain(line));
        }
        let _ = write!(message, "\nfix: {}", plain(&finding.help));
        let _ = writeln!(
            out,
            "::{level} file={},line={},endLine={},col={},title={}::{}",
            property(&at.path),
            at.line,
            at.end_line,
            at.column,
            property(finding.rule),
            data(&message),
        );
    }
    out
}

pub(super) fn sarif(report: &LintReport) -> Result<String, serde_json::Error> {
    let level = |severity| match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    };
    let location = |place: &Location| {
        json!({"physicalLocation": {
            "artifactLocation": {"uri": place.path.replace(' ', "%20")},
            "region": {"startLine": place.line, "startColumn": place.column, "endLine": place.end_line, "endColumn": place.end_column},
        }})
    };
    let rules: Vec<_> = rules::all()
        .map(|rule| {
            json!({
                "id": rule.id,
                "shortDescription": {"text": rule.title},
                "help": {"text": rule.explanation()},
                "defaultConfiguration": {"level": level(rule.severity)},
            })
        })
        .collect();
    let results: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            let related: Vec<_> = finding
                .related
                .iter()
                .map(|related| {
                    let mut at = location(&related.place);
                    at["message"] = json!({"text": related.text});
                    at
                })
                .collect();
            let message =
                std::iter::once(&finding.title).chain(&finding.why).chain(std::iter::once(&finding.help));
            let message = message.map(String::as_str).collect::<Vec<_>>().join("\n");
            json!({
                "ruleId": finding.rule,
                "level": level(finding.severity),
                "message": {"text": message},
                "locations": [location(&finding.place)],
                "relatedLocations": related,
                "partialFingerprints": {"ringleader/v1": finding.fingerprint()},
                "properties": {"confidence": finding.confidence.name()},
            })
        })
        .collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "ringleader", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    Ok(serde_json::to_string_pretty(&log)? + "\n")
}
