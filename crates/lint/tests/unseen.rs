//! Blind rounds: bugs from public fixes, gathered by somebody who did not write the rules, scored before any change.
//!
//! `unseen/lint-N/CASE/` holds `before/` and `after/`, or `ok/` for code that is right, and the truth in `case.toml`. A bug is
//! found if a rule of its class fires before, in the function or at a line that the truth names, and does not fire there
//! after.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests read their cases and print the score"
)]

use std::path::{Path, PathBuf};

use ringleader_lint::{Confidence, LintFinding, LintOptions, SourceFile, lint};

/// Rules that answer a class of the truth.
fn rules_of(class: &str) -> &'static [&'static str] {
    match class {
        "rank-conditional" => &[
            "collective-under-rank-condition",
            "collective-in-rank-zero-function",
            "sharded-call-under-rank-condition",
            "collective-order-by-rank",
            "loop-count-by-rank",
            "exit-before-collective",
            // Gatherers name so what only some ranks reach, also where their data decides.
            "collective-under-local-condition",
            "local-stop-decision",
        ],
        "early-exit" => &[
            "exit-before-collective",
            "local-stop-decision",
            "handler-skips-collective",
            "collective-under-local-condition",
            "collective-under-rank-condition",
        ],
        // The last two: what one rank alone is given, and types that follow a local value.
        "local-stop"
        | "data-conditional"
        | "local-data"
        | "data-dependent"
        | "rank-local-decision"
        | "rank-local-stop" => &[
            "local-stop-decision",
            "collective-under-local-condition",
            "handler-skips-collective",
            "uneven-loader",
            "callback-by-rank",
            "type-by-rank",
        ],
        "order" | "collective-order" => &[
            "collective-order-by-rank",
            "unordered-collectives",
            "collective-under-rank-condition",
            "collective-in-background",
        ],
        "size" => &["size-by-rank"],
        "uneven-loader" | "uneven-loop" => &[
            "uneven-loader",
            "local-stop-decision",
            "loop-count-by-rank",
            "collective-under-local-condition",
        ],
        "seed" | "sampler-epoch" => {
            &["seed-by-rank", "seed-equal-on-all-ranks", "shuffle-before-split", "sampler-without-epoch"]
        }
        "set-device" | "device" => &[
            "same-device-on-all-ranks",
            "no-set-device",
            "collective-before-set-device",
            "local-rank-as-rank",
        ],
        "group" | "new-group" => &["group-by-rank", "collective-under-rank-condition"],
        "p2p" | "p2p-order" => &["all-send-first"],
        "handler" | "exception" => &["handler-skips-collective", "local-stop-decision"],
        // What one rank decides or writes and the others go on without.
        "missing-sync" => &["decided-by-one-rank", "collective-under-local-condition", "local-stop-decision"],
        "contiguous" => &["non-contiguous-tensor"],
        "rank-zero" => &[
            "collective-in-rank-zero-function",
            "collective-under-rank-condition",
            "sharded-call-under-rank-condition",
            // The others leave by an early return.
            "exit-before-collective",
        ],
        "local-rank-as-rank" => &["local-rank-as-rank", "same-device-on-all-ranks"],
        // Gatherers name so numbers of nodes, tasks, GPUs and processes that do not fit.
        "launch" | "numbers" => &[
            "unread-variable",
            "misread-value",
            "debugging-left-in",
            "localhost-master",
            "processes-do-not-multiply",
            "launcher-per-task",
            "node-rank-fixed",
            "no-shared-memory",
            "rdma-out-of-reach",
            "fixed-port",
            "gloo-on-another-network",
        ],
        _ => &[],
    }
}

fn sources(folder: &Path) -> Vec<SourceFile> {
    let mut list = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                list.push(SourceFile { path: name, text });
            }
        }
    }
    list.sort_by(|a, b| a.path.cmp(&b.path));
    list
}

fn findings(folder: &Path, least: Confidence) -> Vec<LintFinding> {
    let options =
        LintOptions { least, least_severity: ringleader_lint::Severity::Info, ..LintOptions::default() };
    lint(&sources(folder), &options).findings
}

/// Scores one round: bugs found by default, with low confidence, bugs, look-alikes silent, look-alikes.
fn score(round: &Path) -> (usize, usize, usize, usize, usize, Vec<String>) {
    let (mut default, mut low, mut bugs, mut silent, mut alike) = (0, 0, 0, 0, 0);
    let mut lines = Vec::new();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(round).unwrap().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|folder| folder.join("case.toml").exists()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let truth: toml::Table = std::fs::read_to_string(folder.join("case.toml")).unwrap().parse().unwrap();
        let text = |key: &str| truth.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
        let class = text("rule_class");
        if class == "none" {
            alike += 1;
            let found: Vec<LintFinding> = findings(&folder.join("ok"), Confidence::Medium);
            let found: Vec<_> =
                found.iter().filter(|f| f.severity != ringleader_lint::Severity::Info).collect();
            silent += usize::from(found.is_empty());
            if !found.is_empty() {
                lines.push(format!("{name}: {} at {}", found[0].rule, found[0].place.line));
            }
            continue;
        }
        bugs += 1;
        let rules = rules_of(&class);
        assert!(!rules.is_empty(), "{name}: no rule for {class}");
        let function = text("function");
        let function = function.rsplit('.').next().unwrap_or_default();
        let mut at: Vec<i64> = truth.get("line").and_then(toml::Value::as_integer).into_iter().collect();
        at.extend(
            truth
                .get("also_lines")
                .and_then(|v| v.as_array())
                .into_iter()
                .flatten()
                .filter_map(toml::Value::as_integer),
        );
        let is_mine = |f: &LintFinding| {
            let is_there = f.place.function.rsplit('.').next() == Some(function) && !function.is_empty();
            let mut lines = std::iter::once(&f.place)
                .chain(f.related.iter().map(|r| &r.place))
                .map(|p| i64::from(p.line));
            rules.contains(&f.rule) && (is_there || lines.any(|line| at.contains(&line)))
        };
        let is_after = |f: &LintFinding| {
            rules.contains(&f.rule) && f.place.function.rsplit('.').next() == Some(function)
        };
        let try_at = |least| {
            let before = findings(&folder.join("before"), least);
            let after = findings(&folder.join("after"), least);
            (before.iter().any(is_mine), after.iter().filter(|f| is_after(f)).count())
        };
        let (usual, with_low) = (try_at(Confidence::Medium), try_at(Confidence::Low));
        default += usize::from(usual == (true, 0));
        low += usize::from(with_low == (true, 0));
        lines.push(format!("{name} ({class}): default {usual:?}, low {with_low:?}"));
    }
    (default, low, bugs, silent, alike, lines)
}

fn print(round: &str) -> (usize, usize, usize, usize, usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../unseen").join(round);
    let (default, low, bugs, silent, alike, lines) = score(&root);
    eprintln!(
        "{round}: {default} of {bugs} by default, {low} with low; {silent} of {alike} look-alikes silent"
    );
    for line in lines {
        eprintln!("  {line}");
    }
    (default, low, bugs, silent, alike)
}

/// What was found once stays found, and no look-alike is accused.
fn keeps(
    (default, low, _, silent, alike): (usize, usize, usize, usize, usize),
    by_default: usize,
    with_low: usize,
) {
    assert!(default >= by_default && low >= with_low, "{default} by default, {low} with low");
    assert_eq!(silent, alike);
}

#[test]
fn round_1() {
    keeps(print("lint-1"), 3, 14);
}

#[test]
fn round_2() {
    keeps(print("lint-2"), 3, 11);
}

#[test]
fn round_3() {
    keeps(print("lint-3"), 1, 10);
}

#[test]
fn round_4() {
    keeps(print("lint-4"), 4, 12);
}

#[test]
fn round_5() {
    keeps(print("lint-5"), 6, 13);
}

#[test]
fn round_6() {
    keeps(print("lint-6"), 5, 11);
}

#[test]
fn round_7() {
    keeps(print("lint-7"), 16, 20);
}
