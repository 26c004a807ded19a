//! Cases: small programs, each with what it must show or that it must show nothing.
//!
//! The files in `cases/` hold several programs, each below a line `#: fires NAME RULE|RULE` or `#: silent NAME`. A name
//! that appears with `low` in front of the word is tried with low confidence.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read their cases")]

use ringleader_lint::{Confidence, Options, Source, lint};

struct Case {
    name: String,
    rules: Vec<String>,
    is_low: bool,
    path: String,
    text: String,
}

fn cases(file: &str) -> Vec<Case> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let text = std::fs::read_to_string(root.join(file)).unwrap();
    let extension = file.rsplit('.').next().unwrap();
    let mut list: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("#: ") {
            let mut words = head.split_whitespace().peekable();
            let is_low = words.next_if_eq(&"low").is_some();
            let fires = words.next() == Some("fires");
            let name = words.next().unwrap().to_owned();
            let rules =
                words.next().map(|rules| rules.split('|').map(str::to_owned).collect()).unwrap_or_default();
            assert_eq!(fires, !Vec::<String>::is_empty(&rules), "{name}");
            let path = words.next().map_or(format!("case.{extension}"), str::to_owned);
            list.push(Case { name, rules, is_low, path, text: String::new() });
        } else if let Some(case) = list.last_mut() {
            case.text.push_str(line);
            case.text.push('\n');
        }
    }
    list
}

fn check(file: &str) {
    let mut wrong = Vec::new();
    for case in cases(file) {
        let least = if case.is_low { Confidence::Low } else { Confidence::Medium };
        // Hygiene is no fault.
        let options = Options { least, ..Options::default() };
        let report = lint(&[Source { path: case.path.clone(), text: case.text.clone() }], &options);
        let found: Vec<_> = report
            .findings
            .iter()
            .filter(|f| {
                f.severity != ringleader_lint::Severity::Info || case.rules.iter().any(|r| r == f.rule)
            })
            .collect();
        let said: Vec<String> = found
            .iter()
            .map(|f| format!("{}:{} {} {}", f.place.line, f.confidence, f.rule, f.title))
            .collect();
        let is_right = if case.rules.is_empty() {
            found.is_empty()
        } else {
            found.iter().any(|f| case.rules.iter().any(|rule| rule == f.rule))
        };
        if !is_right {
            wrong.push(format!("{}: wanted {:?}, got {said:?}", case.name, case.rules));
        }
    }
    assert!(wrong.is_empty(), "{file}:\n{}", wrong.join("\n"));
}

#[test]
fn rank_conditions() {
    check("rank_conditions.py");
}

#[test]
fn look_alikes_stay_silent() {
    check("look_alikes.py");
}

#[test]
fn general() {
    check("general.py");
}

#[test]
fn other_rules() {
    check("others.py");
}

#[test]
fn scripts() {
    check("launch.sh");
}

#[test]
fn manifests() {
    check("manifests.yaml");
}

#[test]
fn rules_are_documented() {
    for rule in ringleader_lint::rules::all() {
        let text = rule.explanation();
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        assert_eq!(headings, ringleader_lint::Rule::HEADINGS, "{}", rule.id);
    }
}
