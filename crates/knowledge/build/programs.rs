//! The table of programs by name.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{array, list, read, text};

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
}
