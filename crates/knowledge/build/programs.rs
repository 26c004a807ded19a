//! The table of programs by name.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{array, list, optional, read, text};

pub(super) fn write(out: &mut String) {
    let table = read("programs.toml");
    let mut seen = BTreeSet::new();
    out.push_str("pub(crate) static PROGRAMS: &[crate::program::Programs] = &[\n");
    for row in array(&table, "program") {
        let does = text(row, "does");
        assert!(seen.insert(does.to_owned()), "programs that do {does} stand twice");
        let variant = match does {
            "trains" => "Trains",
            "launches" => "Launches",
            "beside" => "Beside",
            "runs-first" => "RunsFirst",
            other => panic!("programs do not do {other}"),
        };
        let names = list(row, "names");
        assert!(names.iter().all(|name| name.len() > 1), "a name that matches nearly all: {names:?}");
        let _ = writeln!(
            out,
            "crate::program::Programs {{ does: crate::program::Does::{variant}, names: &{names:?}, commands: &{:?}, source: {:?} }},",
            list(row, "commands"),
            text(row, "source"),
        );
    }
    out.push_str("];\n");
    starters(&array(&table, "starter"), out);
}

fn starters(rows: &[&toml::Table], out: &mut String) {
    let mut seen = BTreeSet::new();
    out.push_str("pub(crate) static STARTERS: &[crate::program::Starter] = &[\n");
    for row in rows {
        let names = list(row, "names");
        for name in &names {
            assert!(seen.insert((*name).to_owned()), "{name} stands twice");
        }
        let launcher = Some(optional(row, "launcher")).filter(|launcher| !launcher.is_empty());
        let roles: Vec<String> = list(row, "roles")
            .into_iter()
            .map(|role| format!("crate::program::ProgramRole::{}", variant(role)))
            .collect();
        let _ = writeln!(
            out,
            "crate::program::Starter {{ names: &{names:?}, launcher: {launcher:?}, roles: &[{}] }},",
            roles.join(", "),
        );
    }
    out.push_str("];\n");
}

fn variant(role: &str) -> &'static str {
    match role {
        "starts" => "Starts",
        "elastic" => "Elastic",
        "joins" => "Joins",
        "typed" => "Typed",
        "script" => "Script",
        "wraps" => "Wraps",
        "above" => "Above",
        "reaps" => "Reaps",
        "boots" => "Boots",
        "contains" => "Contains",
        other => panic!("no role is called {other}"),
    }
}
