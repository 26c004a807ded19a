//! The field's messages: patterns split into literals and holes, pooled texts, and the windows that find a row.
//!
//! Everything becomes integers that index one text: the compiler reads a few large arrays instead of thousands of
//! structures, and the program neither parses nor relocates anything at start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::{impact, list, optional, text};

#[path = "families.rs"]
mod families;
#[path = "forms.rs"]
mod forms;
#[path = "../src/message/holes.rs"]
mod holes;
#[path = "warn_messages.rs"]
mod warn_messages;
#[path = "windows.rs"]
mod windows;

use holes::HOLES;

/// Classes of characters, in the order of `message::pattern::HoleClass`.
const CLASSES: &[&str] = &["digits", "int", "num", "hex", "list", "host", "word", "any"];

/// Bit of a part that is a hole; a part without it is the number of a string.
const HOLE_BIT: u32 = 1 << 31;

/// Strings, each stored once.
#[derive(Default)]
struct Pool {
    numbers: BTreeMap<String, u32>,
    strings: Vec<String>,
}

impl Pool {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = self.strings.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.strings.push(text.to_owned());
        number
    }
}

/// A row, read from a file or made from a family.
pub(super) struct Line {
    id: String,
    pattern: String,
    row: Table,
}

pub(super) fn write(out: &mut String, dir: &Path) {
    let (mut lines, ordinary) = gather();
    lines.sort_by(|a, b| a.id.cmp(&b.id));
    let categories = categories();
    let mut pool = Pool::default();
    pool.number("");
    let (mut rows, mut parts, mut lists) = (Vec::new(), Vec::new(), vec![0u32]);
    let mut literals = Vec::new();
    let (mut ids, mut patterns) = (BTreeSet::new(), BTreeSet::new());
    for line in &lines {
        let (id, row) = (&line.id, &line.row);
        assert!(ids.insert(id.clone()), "message id {id} is given twice");
        let after = list(row, "after");
        let key = format!("{}\u{0}{after:?}{:?}", line.pattern, list(row, "without"));
        assert!(patterns.insert(key), "message {id}: another row has the same pattern");
        let split = split(id, &line.pattern);
        literals.push(
            split
                .iter()
                .filter_map(|p| match p {
                    Part::Literal(text) => Some(text.clone()),
                    Part::Hole(..) => None,
                })
                .collect::<Vec<String>>(),
        );
        let first_part = parts.len() as u32;
        for part in &split {
            parts.push(match part {
                Part::Literal(text) => pool.number(text),
                Part::Hole(hole, class) => HOLE_BIT | (*hole as u32) << 8 | *class as u32,
            });
        }
        let n_parts = parts.len() as u32 - first_part;
        let candidates = list(row, "candidates");
        let flags = flags(id, row, &candidates, &categories);
        let mut keep = |items: &[&str]| {
            if items.is_empty() {
                return 0;
            }
            let at = lists.len() as u32;
            lists.push(items.len() as u32);
            for item in items {
                lists.push(pool.number(item));
            }
            at
        };
        let candidates = keep(&candidates);
        let after = keep(&after);
        let without = keep(&list(row, "without"));
        let covers = keep(&list(row, "covers"));
        let examples = match row.get("example") {
            Some(Value::String(one)) => vec![one.as_str()],
            _ => list(row, "examples"),
        };
        assert!(!examples.is_empty(), "message {id} has no example");
        let examples = keep(&examples);
        let mut string = |key: &str| pool.number(if key == "id" { id } else { optional(row, key) });
        let (says, by, source) = (text(row, "says"), text(row, "by"), text(row, "source"));
        assert!(!says.is_empty() && !by.is_empty() && !source.is_empty(), "message {id} is incomplete");
        rows.push([
            string("id"),
            string("says"),
            string("by"),
            string("source"),
            string("cause"),
            string("action"),
            string("is_not"),
            string("since"),
            string("until"),
            first_part,
            n_parts,
            flags,
            candidates,
            after,
            without,
            examples,
            split_literal_bytes(&split),
            covers,
        ]);
    }
    emit(out, &pool, &rows, &parts, &lists, dir);
    forms::write(out, &ordinary);
    windows::write(out, &lines.iter().map(|l| l.id.as_str()).collect::<Vec<_>>(), &literals, &ordinary);
}

/// Role, subject, category and flags of a row as one number. Refuses what contradicts itself.
fn flags(id: &str, row: &Table, candidates: &[&str], categories: &BTreeMap<String, String>) -> u32 {
    let category_of = |cause: &str| categories.get(cause);
    let cause = optional(row, "cause");
    for id_of_cause in candidates.iter().copied().chain(Some(cause)).filter(|c| !c.is_empty()) {
        assert!(category_of(id_of_cause).is_some(), "message {id}: unknown cause {id_of_cause}");
    }
    let role = match text(row, "role") {
        "harmless" => 0,
        "echo" => 1,
        "suggests" => 2,
        "states" => 3,
        other => panic!("message {id}: unknown role {other}"),
    };
    assert!(cause.is_empty() || role >= 2, "message {id}: a cause, but role {}", text(row, "role"));
    assert!(role != 3 || !cause.is_empty() || !candidates.is_empty(), "message {id} states nothing");
    let about = match text(row, "about") {
        "none" => 0,
        "self" => 1,
        "other" => 2,
        "group" => 3,
        other => panic!("message {id}: about {other}?"),
    };
    let category = match optional(row, "category") {
        "" if role == 0 => "none",
        "" => [cause].iter().chain(candidates).find_map(|c| category_of(c)).map_or("none", |c| c),
        given => given,
    };
    let category = match category {
        "none" => 0,
        "hang" => 1,
        "error" => 2,
        "crash" => 3,
        "corruption" => 4,
        "performance" => 5,
        "init" => 6,
        other => panic!("message {id}: unknown category {other}"),
    };
    let flag = |key: &str| row.get(key).is_some_and(|v| v.as_bool() == Some(true));
    role | about << 2
        | category << 4
        | u32::from(flag("whole")) << 8
        | u32::from(flag("head")) << 9
        | u32::from(flag("first")) << 10
        | process(id, row) << 11
        | (impact::of(row) as u32) << 24
}

/// The category of each cause. `messages/pending_causes.toml` has the ids of the closed list that still lack a row in
/// `causes.toml`.
fn categories() -> BTreeMap<String, String> {
    let pending = super::read("messages/pending_causes.toml");
    let known = super::read("causes.toml");
    let of_pending = pending.iter().map(|(id, category)| (id.clone(), category.as_str()));
    let of_known = known.iter().map(|(id, row)| (id.clone(), row.get("category").and_then(Value::as_str)));
    of_pending.chain(of_known).filter_map(|(id, category)| Some((id, category?.to_owned()))).collect()
}

/// All rows of `data/messages` with families expanded, and the ordinary output in which windows should be rare.
fn gather() -> (Vec<Line>, String) {
    let mut names: Vec<String> = fs::read_dir("data/messages")
        .expect("data/messages is there")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let (mut lines, mut ordinary) = (Vec::new(), String::new());
    for name in names {
        let is = |kind: &str| Path::new(&name).extension().is_some_and(|e| e == kind);
        if is("toml") {
            let table = super::read(&format!("messages/{name}"));
            for row in table.get("message").and_then(Value::as_array).into_iter().flatten() {
                let row = row.as_table().expect("a message is a table").clone();
                let (id, pattern) = (text(&row, "id").to_owned(), text(&row, "match").to_owned());
                lines.push(Line { id, pattern, row });
            }
            families::spell(&table, &mut lines);
        } else if is("txt") {
            let path = format!("data/messages/{name}");
            ordinary.push_str(&fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")));
        }
    }
    warn_messages::add(&mut lines);
    (lines, ordinary)
}

enum Part {
    Literal(String),
    Hole(usize, usize),
}

fn split_literal_bytes(parts: &[Part]) -> u32 {
    parts.iter().map(|p| if let Part::Literal(text) = p { text.len() as u32 } else { 0 }).sum()
}

/// `{name}` and `{name:class}` are holes; every other brace is text.
fn split(id: &str, pattern: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut literal = String::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        if let Some((hole, class, after)) = hole(id, rest) {
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            assert!(
                !matches!(parts.last(), Some(Part::Hole(..))),
                "message {id}: two holes without text between them"
            );
            parts.push(Part::Hole(hole, class));
            rest = after;
        } else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    assert!(parts.iter().any(|p| matches!(p, Part::Literal(_))), "message {id} has no text");
    parts
}

fn hole<'a>(id: &str, text: &'a str) -> Option<(usize, usize, &'a str)> {
    let inner = text.strip_prefix('{')?;
    let (inner, after) = inner.split_once('}')?;
    if inner.is_empty() || !inner.bytes().all(|b| b.is_ascii_lowercase() || b == b':') {
        return None;
    }
    let (name, class) = inner.split_once(':').map_or((inner, None), |(name, class)| (name, Some(class)));
    let hole = HOLES
        .iter()
        .position(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("message {id}: unknown hole {{{name}}}"));
    let class = class.unwrap_or(HOLES[hole].1);
    let class = CLASSES
        .iter()
        .position(|known| *known == class)
        .unwrap_or_else(|| panic!("message {id}: unknown class {class}"));
    Some((hole, class, after))
}

fn emit(out: &mut String, pool: &Pool, rows: &[[u32; 18]], parts: &[u32], lists: &[u32], dir: &Path) {
    let mut blob = String::new();
    let mut starts = vec![0u32];
    for string in &pool.strings {
        blob.push_str(string);
        starts.push(blob.len() as u32);
    }
    fs::write(dir.join("messages.txt"), &blob).expect("OUT_DIR can be written");
    out.push_str(
        "pub(crate) static MESSAGE_TEXT: &str = include_str!(concat!(env!(\"OUT_DIR\"), \"/messages.txt\"));\n",
    );
    numbers(out, "MESSAGE_STARTS", "u32", &starts);
    numbers(out, "MESSAGE_PARTS", "u32", parts);
    numbers(out, "MESSAGE_LISTS", "u32", lists);
    let _ = writeln!(out, "pub(crate) static MESSAGE_ROWS: [[u32; 18]; {}] = {rows:?};", rows.len());
}

/// One array of numbers.
pub(super) fn numbers<T: std::fmt::Debug>(out: &mut String, name: &str, kind: &str, values: &[T]) {
    let _ = writeln!(out, "pub(crate) static {name}: [{kind}; {}] = {values:?};", values.len());
}

/// What a row says of the life of the process that it names: three bits of a kind, and above them a code plus 256.
fn process(id: &str, row: &Table) -> u32 {
    match row.get("process") {
        None => 0,
        Some(Value::String(kind)) => match kind.as_str() {
            "named" => 1,
            "exit-code" => 2,
            "signal" => 3,
            "started" => 5,
            "joins" => 6,
            other => panic!("message {id}: process {other}?"),
        },
        Some(Value::Integer(code)) if (-64..=255).contains(code) => 4 | ((code + 256) as u32) << 3,
        Some(other) => panic!("message {id}: process {other:?}?"),
    }
}
