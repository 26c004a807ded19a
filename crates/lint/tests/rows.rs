//! The bugs of the collection, row by row: each small program before the fix and after it.
//!
//! Rows 1 to 23 are conditions on the rank in `cases/rank_conditions.py`; the others follow in `cases/rows_*.py`, below
//! `#: row N before RULE|RULE` and `#: row N after`. The first must fire by default, the others with low confidence.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests read their cases and print the score"
)]

use std::collections::{BTreeMap, BTreeSet};

use ringleader_lint::{Confidence, LintFinding, LintOptions, Severity, SourceFile, lint};

/// The programs of rows 1 to 23: before and after.
const RANK_CONDITIONS: [(&str, &str); 23] = [
    ("engine-saves-on-rank-0", "engine-saves-on-all"),
    ("barrier-in-checkpointer-of-master", "checkpointer-decides-who-writes"),
    ("save-state-on-main", "save-state-on-all"),
    ("sharded-state-dict-on-zero", "sharded-state-dict-on-all"),
    ("trainer-saves-on-main", "trainer-saves-on-all"),
    ("m06-zero3-save-pretrained", "zero3-save-pretrained-on-all"),
    ("gather-object-on-main", "gather-object-on-all"),
    ("gather-for-metrics-on-main", "gather-for-metrics-on-all"),
    ("table-in-trainer", "table-gathered-before"),
    ("module-gathers-on-zero", "module-gathers-on-all"),
    ("m08-lightning-log-dir", "log-dir-read-on-all"),
    ("sync-dist-on-zero", "rank-zero-only-log"),
    ("metric-in-rank-zero-hook", "metric-without-sync"),
    ("sum-in-a-print", "sum-before-the-print"),
    ("helper-hides-the-rank", "helper-from-config"),
    ("counter-of-a-progress-bar", "plain-counter"),
    ("full-tensor-on-zero", "full-tensor-on-all"),
    ("extra-barrier-on-rank-0", "one-barrier-each"),
    ("half-of-a-split-barrier", "both-halves"),
    ("rank-0-returns", "barrier-after-the-branch"),
    ("ddp-forward-on-one-gpu", "module-forward-on-one-gpu"),
    ("evaluation-on-one-worker", "evaluation-on-all"),
    ("guard-on-an-axis-of-the-group", "guard-on-another-axis"),
];

/// Programs of a file by the text after `#: `.
fn programs(file: &str) -> BTreeMap<String, String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let text = std::fs::read_to_string(root.join(file)).unwrap();
    let mut list = BTreeMap::new();
    let mut head = String::new();
    for line in text.lines() {
        if let Some(next) = line.strip_prefix("#: ") {
            next.clone_into(&mut head);
            assert!(list.insert(head.clone(), String::new()).is_none(), "{head} stands there twice");
        } else if let Some(text) = list.get_mut(&head) {
            text.push_str(line);
            text.push('\n');
        }
    }
    list
}

fn found(text: &str, least: Confidence) -> Vec<LintFinding> {
    let options = LintOptions { least, least_severity: Severity::Info, ..LintOptions::default() };
    lint(&[SourceFile { path: "train.py".to_owned(), text: text.to_owned() }], &options).findings
}

/// Whether one of the rules fires; hygiene counts where a row is about it.
fn fires(findings: &[LintFinding], rules: &[&str]) -> bool {
    findings.iter().any(|finding| rules.contains(&finding.rule))
}

fn is_silent(findings: &[LintFinding], rules: &[&str]) -> bool {
    findings.iter().all(|finding| finding.severity == Severity::Info && !rules.contains(&finding.rule))
}

#[test]
fn conditions_on_the_rank_fire_before_and_are_silent_after() {
    let programs = programs("rank_conditions.py");
    for (n, (before, after)) in RANK_CONDITIONS.iter().enumerate() {
        let row = n + 1;
        let (head, text) =
            programs.iter().find(|(head, _)| head.starts_with(&format!("fires {before} "))).unwrap();
        let rules: Vec<&str> = head.split(' ').nth(2).unwrap().split('|').collect();
        assert!(fires(&found(text, Confidence::Medium), &rules), "row {row}: {before}");
        let (_, text) = programs.iter().find(|(head, _)| **head == format!("silent {after}")).unwrap();
        let after_it = found(text, Confidence::Medium);
        assert!(is_silent(&after_it, &rules), "row {row}: {after}: {after_it:#?}");
    }
}

#[test]
fn the_other_rows_fire_before_and_are_silent_after() {
    let mut all = programs("rows_24_to_52.py");
    all.extend(programs("rows_53_to_80.py"));
    let rows: BTreeSet<u32> =
        all.keys().map(|head| head.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(rows, (24..=80).collect());
    let mut missed = Vec::new();
    for row in &rows {
        let (head, before) =
            all.iter().find(|(head, _)| head.starts_with(&format!("row {row} before "))).unwrap();
        let rules: Vec<&str> = head.split(' ').nth(3).unwrap().split('|').collect();
        let after = &all[&format!("row {row} after")];
        let (before, after) = (found(before, Confidence::Low), found(after, Confidence::Low));
        let is_right = fires(&before, &rules) && is_silent(&after, &rules);
        if !is_right {
            missed.push(*row);
            let said = |findings: &[LintFinding]| -> Vec<String> {
                findings.iter().map(|f| format!("{}:{} {}", f.rule, f.place.line, f.title)).collect()
            };
            eprintln!("row {row}: before {:#?}, after {:#?}", said(&before), said(&after));
        }
    }
    eprintln!("{} of {} rows", rows.len() - missed.len(), rows.len());
    assert!(missed.is_empty(), "{missed:?}");
}
