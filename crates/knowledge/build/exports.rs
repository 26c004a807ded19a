//! The table of settings that make the next failure diagnosable.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toml::{Table, Value};

use super::{array, list, optional, read, text, version_literal};

fn version(row: &Table, key: &str) -> String {
    match optional(row, key) {
        "" => "None".to_owned(),
        release => format!("Some({})", version_literal(release)),
    }
}

fn meets(row: &Table) -> String {
    let bad = list(row, "bad");
    match text(row, "meets") {
        "at-least" => {
            let value = text(row, "value");
            format!("AtLeast({})", value.parse::<u64>().unwrap_or_else(|_| panic!("{value} is no number")))
        }
        "same" => "Same".to_owned(),
        "holds" => "Holds".to_owned(),
        "level" => "Level".to_owned(),
        "ours" => "Ours".to_owned(),
        "path-holds" => "PathHolds".to_owned(),
        "set" => "Set".to_owned(),
        "not" => {
            assert!(!bad.is_empty(), "`not` without `bad` in {row:?}");
            format!("Not(&{bad:?})")
        }
        other => panic!("unknown meets {other}"),
    }
}

pub(super) fn write(out: &mut String) {
    let table = read("exports.toml");
    let mut seen = BTreeSet::new();
    out.push_str("pub(crate) static EXPORTS: &[crate::export::Export] = &[\n");
    for row in array(&table, "export") {
        let key = (text(row, "name"), text(row, "level"), optional(row, "from"));
        assert!(seen.insert(key), "{key:?} stands twice");
        let reader = match text(row, "reader") {
            "torch" => "Torch",
            "nccl" => "Nccl",
            "python" => "Python",
            other => panic!("unknown reader {other}"),
        };
        let level = match text(row, "level") {
            "usual" => "Usual",
            "full" => "Full",
            "timeline" => "Timeline",
            other => panic!("unknown level {other}"),
        };
        let needs = match optional(row, "needs") {
            "" => "Nothing",
            "plugin" => "Plugin",
            "path" => "PluginByPath",
            "name" => "PluginByName",
            other => panic!("unknown need {other}"),
        };
        let _ = writeln!(
            out,
            "crate::export::Export {{ name: {:?}, reader: crate::export::SettingReader::{reader}, from: {}, until: {}, \
             level: crate::export::SettingLevel::{level}, needs: crate::export::Needs::{needs}, value: {:?}, \
             meets: crate::export::Meets::{}, is_printed: {}, old: &{:?}, gives: {:?}, costs: {:?}, without: {:?}, source: {:?} }},",
            text(row, "name"),
            version(row, "from"),
            version(row, "until"),
            text(row, "value"),
            meets(row),
            row.get("prints").and_then(Value::as_bool).unwrap_or(true),
            list(row, "old"),
            text(row, "gives"),
            text(row, "costs"),
            text(row, "without"),
            text(row, "source"),
        );
    }
    out.push_str("];\n");
}
