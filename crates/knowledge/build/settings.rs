//! The tables of environment variables, and of the ways in which their values are misread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use toml::{Table, Value};

use super::{array, list, optional, read, text, version_literal};

pub(super) fn write(out: &mut String) {
    let table = read("nccl_env.toml");
    variables(out, &table);
    unread(out, &table);
    traps(out);
    conflicts(out, &table);
}

/// `[["2.3.5", "14"], ["2.14.3", "18"]]` as pairs.
fn history(row: &Table) -> String {
    let Some(items) = row.get("defaults") else { return String::new() };
    let items = items.as_array().unwrap_or_else(|| panic!("`defaults` is no list in {row:?}"));
    let mut out = String::new();
    for item in items {
        let pair: Vec<&str> = item.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let [version, value] = pair[..] else { panic!("`defaults` wants pairs in {row:?}") };
        let _ = write!(out, "({}, {value:?}), ", version_literal(version));
    }
    out
}

fn parse(row: &Table) -> &'static str {
    match text(row, "parse") {
        "strtoll" => "Strtoll",
        "param-bool" => "ParamBool",
        "word" => "Word",
        "exact-word" => "ExactWord",
        "word-list" => "WordList",
        "level" => "Level",
        "c10d-int" => "TorchInt",
        "c10d-bool" => "TorchBool",
        "c10d-word" => "TorchWord",
        "text" => "Text",
        other => panic!("unknown parse {other}"),
    }
}

fn range(row: &Table) -> String {
    let Some(items) = row.get("range") else { return "None".to_owned() };
    let bounds: Vec<i64> = items.as_array().into_iter().flatten().filter_map(Value::as_integer).collect();
    let [low, high] = bounds[..] else { panic!("`range` wants two numbers in {row:?}") };
    assert!(low <= high, "empty range in {row:?}");
    format!("Some(({low}, {high}))")
}

fn reader(kind: &str, row: &Table) -> String {
    let reader = match (kind, optional(row, "reader")) {
        ("nccl", "nccl") => "NCCL",
        ("nccl", "inspector plugin") => "NCCL's inspector plugin",
        ("nccl", "example profiler") => "NCCL's example of a profiler plugin",
        ("nccl", "example tuner") => "NCCL's example of a tuner plugin",
        ("nccl", "contrib sample") => "a sample of NCCL's",
        ("torch", "") => "PyTorch",
        ("other", own) if !own.is_empty() => own,
        (kind, other) => panic!("unknown reader {other} of a {kind} row"),
    };
    reader.to_owned()
}

fn variables(out: &mut String, table: &Table) {
    let mut rows: BTreeMap<&str, (&str, &Table)> = BTreeMap::new();
    for kind in ["nccl", "torch", "other"] {
        for row in array(table, kind) {
            let name = text(row, "name");
            assert!(rows.insert(name, (kind, row)).is_none(), "variable {name} twice");
        }
    }
    let names: BTreeSet<&str> = rows.keys().copied().collect();
    let mut aliases: BTreeMap<&str, &str> = BTreeMap::new();
    out.push_str("pub(crate) static VARIABLES: &[crate::variable::Variable] = &[\n");
    for (name, (kind, row)) in &rows {
        for alias in list(row, "aliases") {
            assert!(!names.contains(alias), "{alias} is a variable of its own");
            assert!(aliases.insert(alias, name).is_none(), "alias {alias} twice");
        }
        let nccl = |key| {
            let version = if *kind == "nccl" { text(row, key).trim_start_matches("<=") } else { "" };
            if version.is_empty() { "None".to_owned() } else { format!("Some({})", version_literal(version)) }
        };
        let status = match optional(row, "status") {
            "current" | "" => "Current",
            "deprecated" => "Deprecated",
            "alias" => "Alias",
            "removed" => "Removed",
            other => panic!("{name}: unknown status {other}"),
        };
        let status = if row.contains_key("removed") { "Removed" } else { status };
        let agree = match text(row, "same_on_all_ranks") {
            "must" => "Must",
            "should" => "Should",
            "per_host_ok" => "PerHost",
            "per_rank_ok" => "PerRank",
            "must_differ" => "Differ",
            other => panic!("{name}: unknown agreement {other}"),
        };
        let _ = writeln!(
            out,
            "crate::variable::Variable {{ name: {name:?}, reader: {:?}, group: {:?}, since: {}, \
             since_or_before: {}, last: {}, since_torch: {:?}, status: crate::variable::Status::{status}, \
             status_since: {:?}, replaced_by: {:?}, aliases: &{:?}, values: {:?}, \
             parse: crate::variable::Parse::{}, words: &{:?}, range: {}, default: {:?}, defaults: &[{}], \
             agreement: crate::variable::Agreement::{agree}, documented: {}, for_production: {}, does: {:?}, \
             note: {:?}, source: {:?} }},",
            reader(kind, row),
            optional(row, "group"),
            nccl("since"),
            *kind == "nccl" && text(row, "since").starts_with("<="),
            nccl("last"),
            if *kind == "torch" { optional(row, "since") } else { "" },
            row.get("removed").map_or(optional(row, "status_since"), |_| optional(row, "removed")),
            optional(row, "replaced_by"),
            list(row, "aliases"),
            optional(row, "values"),
            parse(row),
            list(row, "words"),
            range(row),
            text(row, "default"),
            history(row),
            // Only NCCL's table distinguishes documented from undocumented variables.
            row.get("documented").and_then(Value::as_bool).unwrap_or(true),
            optional(row, "production") != "no",
            text(row, "does"),
            optional(row, "note"),
            text(row, "source"),
        );
    }
    let _ = writeln!(out, "];\npub(crate) static ALIASES: &[(&str, &str)] = &{:?};", Vec::from_iter(aliases));
    let _ = writeln!(
        out,
        "pub(crate) static LABELS: &[&str] = &{:?};\n\
         pub(crate) static PLUGIN_PREFIXES: &[&str] = &{:?};\npub(crate) const NEWEST: \
         crate::version::NcclVersion = {};",
        list(table, "labels"),
        list(table, "plugin_prefixes"),
        version_literal(text(table, "newest_nccl")),
    );
}

fn unread(out: &mut String, table: &Table) {
    let known: BTreeSet<&str> = ["nccl", "torch", "other"]
        .iter()
        .flat_map(|k| array(table, k))
        .map(|row| text(row, "name"))
        .collect();
    let mut rows = array(table, "bogus");
    rows.sort_by_key(|row| text(row, "name"));
    let mut seen = BTreeSet::new();
    out.push_str("pub(crate) static UNREAD: &[crate::variable::Unread] = &[\n");
    for row in rows {
        let name = text(row, "name");
        assert!(seen.insert(name), "{name} twice");
        assert!(!known.contains(name), "{name} is said to be read and not to be read");
        let _ = writeln!(
            out,
            "crate::variable::Unread {{ name: {name:?}, meant: {:?}, note: {:?}, source: {:?} }},",
            text(row, "meant"),
            optional(row, "note"),
            text(row, "source"),
        );
    }
    out.push_str("];\n");
}

fn traps(out: &mut String) {
    let table = read("value_traps.toml");
    out.push_str("pub(crate) static TRAPS: &[crate::variable::Trap] = &[\n");
    for (id, row) in &table {
        let row = row.as_table().expect("a trap is a table");
        let _ = writeln!(
            out,
            "crate::variable::Trap {{ id: {id:?}, example: {:?}, becomes: {:?}, means: {:?}, instead: {:?}, \
             source: {:?} }},",
            text(row, "example"),
            text(row, "becomes"),
            text(row, "means"),
            text(row, "instead"),
            text(row, "source"),
        );
    }
    out.push_str("];\n");
}

/// `NAME`, `NAME=a|b` or `NAME!=a` as code.
fn condition(text: &str, known: &BTreeSet<&str>) -> String {
    let (name, values) = text.split_once('=').map_or((text, ""), |(name, values)| (name, values));
    let negated = name.ends_with('!');
    let name = name.trim_end_matches('!');
    assert!(known.contains(name), "a conflict names an unknown variable: {text}");
    let values: Vec<&str> = values.split('|').filter(|v| !v.is_empty()).collect();
    format!("crate::conflict::Condition {{ name: {name:?}, values: &{values:?}, negated: {negated} }}")
}

fn conflicts(out: &mut String, variables: &Table) {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for row in ["nccl", "torch", "other"].iter().flat_map(|kind| array(variables, kind)) {
        known.insert(text(row, "name"));
        known.extend(list(row, "aliases"));
    }
    out.push_str("pub(crate) static CONFLICTS: &[crate::conflict::Conflict] = &[\n");
    for (id, row) in &read("conflicts.toml") {
        let row = row.as_table().expect("a conflict is a table");
        let conditions = |key| {
            let list: Vec<String> = list(row, key).into_iter().map(|c| condition(c, &known)).collect();
            assert!(!list.is_empty(), "no `{key}` in {id}");
            list.join(", ")
        };
        let hurts = match text(row, "hurts") {
            "yes" => true,
            "no" => false,
            other => panic!("{id}: hurts = {other}"),
        };
        let _ = writeln!(
            out,
            "crate::conflict::Conflict {{ id: {id:?}, with: &[{}], and: &[{}], hurts: {hurts}, means: {:?}, \
             instead: {:?}, source: {:?} }},",
            conditions("with"),
            conditions("and"),
            text(row, "means"),
            text(row, "instead"),
            text(row, "source"),
        );
    }
    out.push_str("];\n");
}
