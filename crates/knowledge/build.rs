//! Converts the TOML tables of `data/` to static Rust tables in `OUT_DIR/tables.rs`.
//!
//! A row that lacks a field, repeats another row, or names an unknown cause fails the build, so the program's tables
//! are complete.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "a build script reads files and stops the build on a bad row"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use toml::{Table, Value};

#[path = "build/claims.rs"]
mod claims;
#[path = "build/collectives.rs"]
mod collectives;
#[path = "build/exports.rs"]
mod exports;
#[path = "build/figures.rs"]
mod figures;
#[path = "build/impact.rs"]
mod impact;
#[path = "build/likeness.rs"]
mod likeness;
#[path = "build/machine.rs"]
mod machine;
#[path = "build/messages.rs"]
mod messages;
#[path = "build/places.rs"]
mod places;
#[path = "build/programs.rs"]
mod programs;
#[path = "build/settings.rs"]
mod settings;
#[path = "build/signs.rs"]
mod signs;
#[path = "build/statuses.rs"]
mod statuses;

/// Rows whose first literal is shorter than this cannot be found by their first bytes.
const PREFIX_BYTES: usize = 8;

fn main() {
    println!("cargo:rerun-if-changed=data");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=src/form/needle_hash.rs");
    println!("cargo:rerun-if-changed=src/form/needle_list.rs");
    println!("cargo:rerun-if-changed=src/message/hash.rs");
    println!("cargo:rerun-if-changed=src/message/holes.rs");
    let mut out = String::new();
    let causes = causes(&mut out);
    warns(&mut out);
    groups(&mut out, &causes);
    sayings(&mut out, &causes);
    claims::write(&mut out, &causes);
    signs::write(&mut out, &causes);
    let dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    likeness::write(&mut out, &causes, Path::new(&dir));
    collectives::write(&mut out);
    settings::write(&mut out);
    figures::write(&mut out, &causes);
    statuses::write(&mut out, &causes);
    machine::write(&mut out);
    places::write(&mut out);
    programs::write(&mut out);
    exports::write(&mut out);
    messages::write(&mut out, Path::new(&dir));
    fs::write(Path::new(&dir).join("tables.rs"), out).expect("OUT_DIR can be written");
}

fn read(name: &str) -> Table {
    let path = format!("data/{name}");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.parse::<Table>().unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn text<'a>(row: &'a Table, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("field `{key}` missing in {row:?}"))
}

fn optional<'a>(row: &'a Table, key: &str) -> &'a str {
    row.get(key).map_or("", |v| v.as_str().unwrap_or_else(|| panic!("field `{key}` is no string in {row:?}")))
}

fn list<'a>(row: &'a Table, key: &str) -> Vec<&'a str> {
    match row.get(key) {
        None => Vec::new(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|v| v.as_str().unwrap_or_else(|| panic!("`{key}` holds a non-string: {row:?}")))
            .collect(),
        Some(_) => panic!("field `{key}` is no list in {row:?}"),
    }
}

fn array<'a>(table: &'a Table, key: &str) -> Vec<&'a Table> {
    table
        .get(key)
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("no array `{key}`"))
        .iter()
        .map(|v| v.as_table().expect("rows are tables"))
        .collect()
}

/// The advice of a row, from its `do`.
fn advice(row: &Table) -> String {
    let items = array(row, "do");
    assert!(!items.is_empty(), "nothing to do in {row:?}");
    let mut out = String::new();
    for item in items {
        let impact = match text(item, "impact") {
            "harmless" => "Harmless",
            "disruptive" => "Disruptive",
            "destructive" => "Destructive",
            other => panic!("unknown impact {other}"),
        };
        let _ = write!(
            out,
            "crate::cause::Advice {{ text: {:?}, command: {:?}, impact: ringleader_model::Impact::{impact} }}, ",
            text(item, "text"),
            optional(item, "command"),
        );
    }
    out
}

/// The variant of `Cause` for an id: an id without a variant does not compile.
fn variant(id: &str) -> String {
    let words = id.split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    format!("ringleader_model::Cause::{}", words.collect::<String>())
}

/// A module of constants, one for each id of a table: an id that the table lacks does not compile.
fn constants<'a>(out: &mut String, module: &str, ids: impl IntoIterator<Item = &'a str>) {
    let _ = writeln!(out, "/// Ids of the rows.\npub mod {module} {{");
    for id in ids {
        let _ = writeln!(
            out,
            "/// `{id}`.\npub const {}: &str = {id:?};",
            id.replace('-', "_").to_ascii_uppercase()
        );
    }
    out.push_str("}\n");
}

/// A list of variants of `Cause`.
fn variants(ids: &[&str]) -> String {
    let list: Vec<String> = ids.iter().map(|id| variant(id)).collect();
    format!("&[{}]", list.join(", "))
}

fn causes(out: &mut String) -> BTreeSet<String> {
    let table = read("causes.toml");
    let source = fs::read_to_string("data/causes.toml").expect("it was just read");
    let mut ids = BTreeSet::new();
    let mut rows: Vec<(&String, &Value)> = table.iter().collect();
    rows.sort_by_key(|(id, _)| source.find(&format!("[{id}]")));
    out.push_str("pub(crate) static CAUSES: &[crate::cause::CauseRow] = &[\n");
    for (id, row) in rows {
        let row = row.as_table().expect("a cause is a table");
        let category = match text(row, "category") {
            "none" => "None",
            "hang" => "Hang",
            "error" => "Error",
            "crash" => "Crash",
            "corruption" => "Corruption",
            "performance" => "Performance",
            "init" => "Init",
            other => panic!("cause {id}: unknown category {other}"),
        };
        let class = match optional(row, "class") {
            "" => "None",
            "transient" => "Some(ringleader_model::Class::Transient)",
            "node" => "Some(ringleader_model::Class::Node)",
            "program" => "Some(ringleader_model::Class::Program)",
            "external" => "Some(ringleader_model::Class::External)",
            "unknown" => "Some(ringleader_model::Class::Unknown)",
            other => panic!("cause {id}: unknown class {other}"),
        };
        // A job that is merely slow continues; every other cause needs a class.
        let goes_on = matches!(category, "Performance") || id == "none";
        assert_eq!(class == "None", goes_on, "cause {id}: class and category do not fit");
        let _ = writeln!(
            out,
            "crate::cause::CauseRow {{ cause: {}, section: {:?}, category: ringleader_model::Category::{category}, \
             class: {class}, meaning: {:?}, shows: {:?}, is_not: {:?}, advice: &[{}], source: {:?} }},",
            variant(id),
            text(row, "section"),
            text(row, "meaning"),
            optional(row, "shows"),
            optional(row, "is_not"),
            advice(row),
            optional(row, "source"),
        );
        ids.insert(id.clone());
    }
    out.push_str("];\n");
    ids
}

/// The literal pieces between printf placeholders, up to the first line break.
fn pieces(format: &str) -> Vec<String> {
    let format = format.split("\\n").next().unwrap_or(format);
    let mut pieces = vec![String::new()];
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        let last = pieces.last_mut().expect("never empty");
        match c {
            '%' if chars.peek() == Some(&'%') => {
                chars.next();
                last.push('%');
            }
            '%' => {
                // flags, width, precision, length; then one conversion letter
                while let Some(&next) = chars.peek() {
                    chars.next();
                    if next.is_ascii_alphabetic() && !matches!(next, 'l' | 'h' | 'z' | 'j' | 't' | 'q' | 'L')
                    {
                        break;
                    }
                }
                pieces.push(String::new());
            }
            '\\' if chars.peek() == Some(&'"') => {}
            c => last.push(c),
        }
    }
    pieces
}

fn warns(out: &mut String) {
    let table = read("nccl_warn.toml");
    let results = read("nccl_results.toml");
    let names: Vec<String> =
        array(&results, "result").into_iter().map(|row| text(row, "name").to_owned()).collect();
    let mut rows: Vec<(Vec<String>, &Table)> =
        array(&table, "warn").into_iter().map(|row| (pieces(text(row, "fmt")), row)).collect();
    rows.sort_by(|a, b| {
        (&a.0, text(a.1, "since"), text(a.1, "file")).cmp(&(&b.0, text(b.1, "since"), text(b.1, "file")))
    });
    let mut seen = BTreeSet::new();
    let mut short = Vec::new();
    out.push_str("pub(crate) static WARNS: &[crate::nccl_warn::WarnText] = &[\n");
    for (index, (pieces, row)) in rows.iter().enumerate() {
        let key = (text(row, "fmt"), text(row, "since"), text(row, "file"));
        assert!(seen.insert(key), "repeated row {key:?}");
        if pieces.first().is_none_or(|p| p.len() < PREFIX_BYTES) {
            short.push(index);
        }
        let results: Vec<u8> =
            list(row, "result").into_iter().map(|name| result_code(&names, name)).collect();
        let (since, at_or_before) = match text(row, "since").strip_prefix("<=") {
            Some(version) => (version, true),
            None => (text(row, "since"), false),
        };
        let until = match text(row, "until") {
            "" => "None".to_owned(),
            version => format!("Some({})", version_literal(version)),
        };
        let _ = writeln!(
            out,
            "crate::nccl_warn::WarnText {{ format: {:?}, pieces: &{pieces:?}, group: {:?}, results: &{results:?}, \
             since: {}, since_or_before: {at_or_before}, until: {until}, file: {:?} }},",
            text(row, "fmt"),
            text(row, "cause"),
            version_literal(since),
            text(row, "file"),
        );
    }
    let _ = writeln!(out, "];\npub(crate) static WARNS_SHORT: &[u16] = &{short:?};");
    let _ = writeln!(out, "pub(crate) const PREFIX_BYTES: usize = {PREFIX_BYTES};");
}

fn version_literal(version: &str) -> String {
    let parts: Vec<u16> =
        version.split('.').map(|p| p.parse().unwrap_or_else(|_| panic!("bad version {version}"))).collect();
    let (major, minor, patch) = match parts[..] {
        [major, minor, patch] => (major, minor, patch),
        [major, minor] => (major, minor, 0),
        _ => panic!("bad version {version}"),
    };
    format!("crate::version::NcclVersion {{ major: {major}, minor: {minor}, patch: {patch} }}")
}

fn result_code(names: &[String], name: &str) -> u8 {
    names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("unknown result {name}")) as u8
}

fn groups(out: &mut String, causes: &BTreeSet<String>) {
    let table = read("nccl_groups.toml");
    let used: BTreeSet<String> =
        array(&read("nccl_warn.toml"), "warn").into_iter().map(|r| text(r, "cause").to_owned()).collect();
    let known: BTreeSet<String> = table.keys().cloned().collect();
    let missing: Vec<&String> = used.difference(&known).collect();
    assert!(missing.is_empty(), "groups without a meaning: {missing:?}");
    out.push_str("pub(crate) static GROUPS: &[crate::nccl_warn::WarnGroup] = &[\n");
    for (id, row) in &table {
        let row = row.as_table().expect("a group is a table");
        let ids = list(row, "causes");
        for cause in &ids {
            assert!(causes.contains(*cause), "group {id}: unknown cause {cause}");
        }
        let _ = writeln!(
            out,
            "crate::nccl_warn::WarnGroup {{ id: {id:?}, meaning: {:?}, action: {:?}, impact: ringleader_model::Impact::{}, \
             causes: {} }},",
            text(row, "meaning"),
            text(row, "action"),
            impact::VARIANTS[impact::of(row)],
            variants(&ids),
        );
    }
    out.push_str("];\n");
    constants(out, "warn_groups", table.keys().map(String::as_str));
}

fn sayings(out: &mut String, causes: &BTreeSet<String>) {
    let table = read("sayings.toml");
    let mut seen = BTreeSet::new();
    out.push_str("pub(crate) static SAYINGS: &[crate::saying::Saying] = &[\n");
    for row in array(&table, "saying") {
        let (any, all, none, file) =
            (list(row, "any"), list(row, "all"), list(row, "none"), list(row, "file"));
        assert!(!any.is_empty() || !all.is_empty() || !file.is_empty(), "a saying without a text: {row:?}");
        assert!(seen.insert(format!("{any:?}{all:?}{none:?}{file:?}")), "repeated saying {row:?}");
        let cause = optional(row, "cause");
        let role = match text(row, "role") {
            "states" => "States",
            "suggests" => "Suggests",
            "echo" => "Echo",
            "benign" => "Harmless",
            other => panic!("unknown role {other}"),
        };
        assert_eq!(
            cause.is_empty(),
            matches!(role, "Echo" | "Harmless"),
            "role and cause do not fit: {row:?}"
        );
        assert!(cause.is_empty() || causes.contains(cause), "unknown cause in {row:?}");
        let speaker = match optional(row, "by") {
            "" => "Any",
            "nccl" => "Nccl",
            "program" => "Program",
            other => panic!("unknown speaker {other}"),
        };
        let cause = if cause.is_empty() { "None".to_owned() } else { format!("Some({})", variant(cause)) };
        let (title, also) = (optional(row, "title"), list(row, "also"));
        assert!(also.iter().all(|id| causes.contains(*id)), "unknown cause in {row:?}");
        let _ = writeln!(
            out,
            "crate::saying::Saying {{ cause: {cause}, role: crate::message::Role::{role}, \
             by: crate::saying::By::{speaker}, any: &{any:?}, all: &{all:?}, none: &{none:?}, file: &{file:?}, \
             title: {title:?}, also: {}, means: {:?}, cite: {:?} }},",
            variants(&also),
            text(row, "means"),
            text(row, "cite"),
        );
    }
    out.push_str("];\n");
}
