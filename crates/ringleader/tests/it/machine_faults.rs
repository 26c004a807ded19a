//! The table of machine faults and of what looks like them, held by diagnosing both sides of every row.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::cause;

use crate::recorded::{self, Recorded};

/// Sections of the list of causes whose every cause must have a row.
const SECTIONS: [&str; 4] =
    ["GPU and fabric hardware", "versions and settings", "host and container limits", "network"];
/// Causes of other sections that must have one too.
const MORE: [&str; 8] = [
    "oom-killed",
    "process-uninterruptible",
    "port-in-use",
    "hostname-resolution",
    "silent-corruption",
    "slow-link",
    "wrong-transport",
    "bandwidth-below-expected",
];
/// Causes without a row, and why. This list only shrinks.
const WITHOUT: [(&str, &str); 11] = [
    ("gpu-driver-bug", "no public line of an Xid that is the driver's alone and ends a job"),
    ("framework-bug", "no rule names it"),
    ("gpu-busy", "no rule names it yet"),
    ("gpu-isolation", "no rule names it yet"),
    ("imex-domain", "no rule names it yet"),
    ("pcie-degraded", "no rule names it yet: rules about width and speed say pcie-error"),
    ("library-mismatch", "no rule names it yet"),
    ("network-config-mismatch", "no rule names it yet"),
    ("nic-hardware", "no rule names it yet"),
    ("nccl-bug-version", "no public log has it"),
    ("network-unreachable", "its recorded jobs are no cases of the repository"),
];

struct Row {
    fault: String,
    cause: String,
    case: String,
    look_alikes: Vec<String>,
}

/// Words in backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(crate::root().join("docs/machine-faults.md")).unwrap();
    let table = text.lines().filter(|l| l.starts_with("| ") && l.contains('`'));
    table
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [fault, cause, case, look_alikes, why] = cells.as_slice() else { panic!("{line}") };
            assert!(!fault.is_empty() && why.len() > 10, "{line}");
            let one = |cell: &str| match code(cell).as_slice() {
                [only] => only.clone(),
                _ => panic!("{line}"),
            };
            let look_alikes = code(look_alikes);
            assert!(!look_alikes.is_empty(), "{line}");
            Row { fault: (*fault).to_owned(), cause: one(cause), case: one(case), look_alikes }
        })
        .collect()
}

#[test]
fn faults_are_named_and_their_look_alikes_are_not() {
    let rows = rows();
    let cases: BTreeMap<String, Recorded> =
        recorded::all().into_iter().map(|c| (c.name.clone(), c)).collect();
    let named: BTreeSet<&String> = rows.iter().flat_map(|r| r.look_alikes.iter().chain([&r.case])).collect();
    let verdicts: BTreeMap<&String, &'static str> = named
        .iter()
        .map(|name| {
            let case = cases.get(*name).unwrap_or_else(|| panic!("no case {name}"));
            (*name, recorded::diagnose(&case.files).cause.id())
        })
        .collect();
    let mut wrong = Vec::new();
    for row in &rows {
        let got = verdicts[&row.case];
        if got != row.cause {
            wrong.push(format!("{}: {} gives {got}, not {}", row.fault, row.case, row.cause));
        }
        for name in &row.look_alikes {
            let (got, truth) = (verdicts[name], &cases[name].truth);
            let is_true = got == truth.cause || truth.also_right.iter().any(|c| c == got);
            if got == row.cause || !is_true {
                wrong.push(format!("{}: {name} gives {got}, its truth is {}", row.fault, truth.cause));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_is_whole() {
    let rows = rows();
    let faults: BTreeSet<&str> = rows.iter().map(|r| r.fault.as_str()).collect();
    assert_eq!(faults.len(), rows.len(), "a fault stands twice");
    let causes: BTreeSet<&str> = rows.iter().map(|r| r.cause.as_str()).collect();
    let unknown: Vec<&&str> = causes.iter().filter(|c| cause::get(c).is_none()).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let of_sections = cause::all().iter().filter(|c| SECTIONS.contains(&c.section)).map(|c| c.cause.id());
    for id in of_sections.chain(MORE) {
        let is_excused = WITHOUT.iter().any(|(without, _)| *without == id);
        assert!(causes.contains(id) != is_excused, "{id}: a row or an excuse, not both");
    }
    // A look-alike that nobody holds against a fault proves nothing.
    let held: BTreeSet<&str> = rows.iter().flat_map(|r| &r.look_alikes).map(String::as_str).collect();
    let made: Vec<String> =
        recorded::all().into_iter().map(|c| c.name).filter(|n| n.contains("like-")).collect();
    let loose: Vec<&String> = made.iter().filter(|n| !held.contains(n.as_str())).collect();
    assert!(loose.is_empty(), "{loose:?}");
}
