//! Comments in the source: `# ringleader: ignore[rule] reason`.
//!
//! A comment covers its line, or, standing alone, the next one with code. It needs a reason, and one that covers nothing
//! is a finding.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use rayon::prelude::*;
use ringleader_model::Confidence;

use crate::finding::{Fix, LintFinding, Location};
use crate::rules::{ignore_without_reason, unused_ignore};
use crate::{Language, LintOptions, SourceFile};

/// First words of such a comment.
const MARK: &str = "ringleader: ignore[";

/// A comment to this program.
#[derive(Debug)]
struct Ignore {
    line: u32,
    column: u32,
    /// The line that it covers.
    covers: u32,
    rules: Vec<String>,
    has_reason: bool,
    text: String,
    /// The comment with the blanks before it, in bytes; its whole line if nothing else is on it.
    span: (usize, usize),
}

/// Whether a text has such a comment.
fn may_ignore(text: &str) -> bool {
    static MARK_FINDER: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let finder = MARK_FINDER.get_or_init(|| AhoCorasick::new([MARK]).ok());
    finder.as_ref().is_none_or(|finder| finder.is_match(text))
}

/// Takes findings out that a comment ignores. Answers with the rest and how many were ignored.
pub(crate) fn apply(
    files: &[(Language, &SourceFile)],
    findings: Vec<LintFinding>,
    options: &LintOptions,
) -> (Vec<LintFinding>, usize) {
    let mut comments: BTreeMap<&str, Vec<(Ignore, bool)>> = files
        .par_iter()
        .filter(|(language, source)| *language != Language::Other && may_ignore(&source.text))
        .map(|(_, source)| {
            let list = read(&source.text).into_iter().map(|ignore| (ignore, false)).collect();
            (source.path.as_str(), list)
        })
        .collect();
    let mut kept = Vec::new();
    let mut n_ignored = 0;
    for finding in findings {
        let list = comments.get_mut(finding.place.path.as_str());
        let lines = finding.place.line..=finding.place.line;
        let hit = list.into_iter().flatten().find(|(ignore, _)| {
            lines.contains(&ignore.covers)
                && ignore.has_reason
                && ignore.rules.iter().any(|rule| rule == finding.rule)
        });
        match hit {
            Some((_, is_used)) => {
                *is_used = true;
                n_ignored += 1;
            }
            None => kept.push(finding),
        }
    }
    let is_asked = |rule: &str| {
        (options.select.is_empty() || options.select.iter().any(|id| id == rule))
            && !options.ignore.iter().any(|id| id == rule)
    };
    for (path, list) in comments {
        for (ignore, is_used) in list {
            let rule = match (ignore.has_reason, is_used) {
                (false, _) => &ignore_without_reason::RULE,
                (true, false) => &unused_ignore::RULE,
                (true, true) => continue,
            };
            // A finding below the asked confidence may be what the comment is for.
            let may_be_hidden =
                !ignore.rules.iter().all(|id| is_asked(id)) || options.least != Confidence::Low;
            if !is_asked(rule.id)
                || (rule.id == unused_ignore::RULE.id && may_be_hidden && is_known(&ignore.rules))
            {
                continue;
            }
            kept.push(finding(rule, path, &ignore));
        }
    }
    (kept, n_ignored)
}

/// Whether a rule that is usually less certain than what is asked for may have been meant.
fn is_known(rules: &[String]) -> bool {
    rules.iter().any(|id| crate::rules::all().any(|rule| rule.id == id && rule.confidence == Confidence::Low))
}

fn finding(rule: &crate::LintRule, path: &str, ignore: &Ignore) -> LintFinding {
    let title = if rule.id == unused_ignore::RULE.id {
        format!("nothing is found here for {}", ignore.rules.join(", "))
    } else {
        "an ignore comment needs a reason after the bracket".to_owned()
    };
    LintFinding {
        rule: rule.id,
        severity: rule.severity,
        confidence: rule.confidence,
        place: Location {
            path: path.to_owned(),
            line: ignore.line,
            column: ignore.column,
            end_line: ignore.line,
            end_column: ignore.column + ignore.text.chars().count() as u32,
            function: String::new(),
            text: ignore.text.clone(),
        },
        title,
        why: Vec::new(),
        related: Vec::new(),
        help: "write `# ringleader: ignore[rule-id] why it is right here`, or remove the comment".to_owned(),
        page: "",
        fix: (rule.id == unused_ignore::RULE.id).then(|| Fix {
            text: "remove the comment".to_owned(),
            at: ignore.span.0,
            end: ignore.span.1,
            with: String::new(),
        }),
    }
}

fn read(text: &str) -> Vec<Ignore> {
    let lines: Vec<&str> = text.lines().collect();
    let starts: Vec<usize> = text
        .split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some(start)
        })
        .collect();
    let mut list = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let Some(at) = line.find(MARK) else { continue };
        let Some(hash) = line.get(..at).and_then(|before| before.rfind('#')) else { continue };
        let is_comment = line.get(hash + 1..at).is_some_and(|between| between.trim().is_empty());
        let rest = line.get(at + MARK.len()..).unwrap_or_default();
        let Some((rules, reason)) = rest.split_once(']') else { continue };
        if !is_comment {
            continue;
        }
        let stands_alone = line.get(..hash).is_some_and(|before| before.trim().is_empty());
        let next = || {
            let code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
            lines.iter().skip(n + 1).position(|line| code(&line)).map_or(n, |k| n + 1 + k)
        };
        let covers = if stands_alone { next() } else { n };
        let start = starts.get(n).copied().unwrap_or_default();
        let code = line.get(..hash).map_or(0, |before| before.trim_end().len());
        let end = if stands_alone { starts.get(n + 1).copied() } else { None };
        let span = (if stands_alone { start } else { start + code }, end.unwrap_or(start + line.len()));
        list.push(Ignore {
            span,
            line: n as u32 + 1,
            column: line.get(..hash).map_or(0, |before| before.chars().count()) as u32 + 1,
            covers: covers as u32 + 1,
            rules: rules
                .split(',')
                .map(|rule| rule.trim().to_owned())
                .filter(|rule| !rule.is_empty())
                .collect(),
            has_reason: reason.split_whitespace().next().is_some(),
            text: line.get(hash..).unwrap_or_default().to_owned(),
        });
    }
    list
}
