//! NCCL's WARN texts as messages: the rows of `nccl_warn.toml` with the meaning of their group.
//!
//! Texts that are too short to be distinctive, and texts that another row already has, are left to
//! `nccl_warn::find`.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::super::{array, list, optional, pieces, read, text};
use super::Line;

/// Literal bytes that a text needs: in all, and in one piece.
const MIN_BYTES: usize = 14;
const MIN_PIECE: usize = 7;
/// Placeholder for a value.
const HOLE: &str = "{text}";
/// Words of a text that name its row.
const NAME_WORDS: usize = 8;

pub(super) fn add(lines: &mut Vec<Line>) {
    let (warns, groups) = (read("nccl_warn.toml"), read("nccl_groups.toml"));
    let mut patterns: BTreeSet<String> = lines.iter().map(|l| l.pattern.clone()).collect();
    let mut ids: BTreeSet<String> = lines.iter().map(|l| l.id.clone()).collect();
    for warn in array(&warns, "warn") {
        let pieces: Vec<String> = pieces(text(warn, "fmt"));
        let literal: usize = pieces.iter().map(String::len).sum();
        if literal < MIN_BYTES
            || pieces.iter().all(|p| p.len() < MIN_PIECE)
            || pieces.iter().any(|p| p.contains('{'))
        {
            continue;
        }
        let pattern = joined(&pieces, HOLE);
        let mut pattern = pattern.as_str();
        while let Some(rest) = pattern.strip_prefix(HOLE) {
            pattern = rest.trim_start_matches([':', ' ']);
        }
        // Families of codes describe these in more detail.
        if pattern.starts_with("Cuda failure") {
            continue;
        }
        let pattern = pattern.to_owned();
        if !patterns.insert(pattern.clone()) {
            continue;
        }
        let id = name(&pieces, &mut ids);
        let group =
            groups.get(text(warn, "cause")).and_then(Value::as_table).expect("every text has a group");
        lines.push(Line { id, pattern, row: row(warn, group, &joined(&pieces, "1")) });
    }
}

/// The pieces with `hole` between them; adjacent holes are merged into one.
fn joined(pieces: &[String], hole: &str) -> String {
    let mut out = String::new();
    for (n, piece) in pieces.iter().enumerate() {
        if n > 0 && !(out.ends_with(hole) && pieces[n - 1].is_empty()) {
            out.push_str(hole);
        }
        out.push_str(piece);
    }
    out.trim_end().to_owned()
}

fn name(pieces: &[String], ids: &mut BTreeSet<String>) -> String {
    let text = pieces.join(" ").to_ascii_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).take(NAME_WORDS).collect();
    let stem = format!("nccl-warn-{}", words.join("-"));
    (1..10_000)
        .map(|n| if n == 1 { stem.clone() } else { format!("{stem}-{n}") })
        .find(|id| ids.insert(id.clone()))
        .expect("fewer than 10,000 texts begin alike")
}

fn row(warn: &Table, group: &Table, example: &str) -> Table {
    let string = |text: String| Value::String(text);
    let causes = list(group, "causes");
    let mut row = Table::new();
    row.insert("role".into(), string(if causes.is_empty() { "echo" } else { "suggests" }.into()));
    row.insert("about".into(), string("self".into()));
    row.insert("by".into(), string("NCCL (WARN)".into()));
    row.insert("since".into(), string(text(warn, "since").trim_start_matches("<=").into()));
    row.insert("source".into(), string(format!("NVIDIA/nccl src/{}", text(warn, "file"))));
    row.insert("says".into(), string(text(group, "meaning").into()));
    row.insert("action".into(), string(text(group, "action").into()));
    row.insert("impact".into(), string(optional(group, "impact").into()));
    row.insert("candidates".into(), Value::Array(causes.into_iter().map(|c| string(c.into())).collect()));
    row.insert("after".into(), Value::Array(vec![string("NCCL WARN".into())]));
    row.insert("example".into(), string(format!("node0:17:120 [1] init.cc:42 NCCL WARN {example}")));
    row
}
