//! Cases: small programs, each with what it must show or that it must show nothing.
//!
//! The files in `cases/` hold several programs, each below a line `#: fires NAME RULE|RULE` or `#: silent NAME`. A name
//! that appears with `low` in front of the word is tried with low confidence. A line `#- PATH` starts another file of the same
//! program.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read their cases")]

use ringleader_lint::{Confidence, LintOptions, SourceFile, lint};

struct Case {
    name: String,
    rules: Vec<String>,
    is_low: bool,
    files: Vec<SourceFile>,
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
            let rules = if fires { words.next() } else { None };
            let rules = rules.map(|rules| rules.split('|').map(str::to_owned).collect()).unwrap_or_default();
            assert_eq!(fires, !Vec::<String>::is_empty(&rules), "{name}");
            let path = words.next().map_or(format!("case.{extension}"), str::to_owned);
            list.push(Case { name, rules, is_low, files: vec![SourceFile { path, text: String::new() }] });
        } else if let (Some(path), Some(case)) = (line.strip_prefix("#- "), list.last_mut()) {
            case.files.push(SourceFile { path: path.to_owned(), text: String::new() });
        } else if let Some(file) = list.last_mut().and_then(|case| case.files.last_mut()) {
            file.text.push_str(line);
            file.text.push('\n');
        }
    }
    list
}

fn check(file: &str) {
    let mut wrong = Vec::new();
    for case in cases(file) {
        let least = if case.is_low { Confidence::Low } else { Confidence::Medium };
        // Hygiene is no fault.
        let options = LintOptions { least, ..LintOptions::default() };
        let report = lint(&case.files, &options);
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
fn other_files_and_frameworks() {
    check("frameworks.py");
}

/// Where a branch calls what comes later once more, the call in the branch is named and not the last of that name.
#[test]
fn the_call_in_the_branch_is_named() {
    let text = "import torch.distributed as dist\n\ndef save(x):\n    if dist.get_rank() == 0:\n        write(x)\n\
                \x20       dist.barrier()\n    dist.barrier()\n";
    let source = SourceFile { path: "a.py".to_owned(), text: text.to_owned() };
    let found = lint(&[source], &LintOptions::default()).findings;
    assert_eq!(
        found.iter().map(|f| (f.rule, f.place.line)).collect::<Vec<_>>(),
        [("collective-under-rank-condition", 6)]
    );
}

#[test]
fn training_loops() {
    check("training_loops.py");
}

#[test]
fn loops_of_other_frameworks() {
    check("other_frameworks.py");
}

#[test]
fn spellings_of_a_rank() {
    check("rank_spellings.py");
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
fn more_scripts() {
    check("launch_more.sh");
}

#[test]
fn more_manifests() {
    check("manifests_more.yaml");
}

#[test]
fn rules_are_documented() {
    for rule in ringleader_lint::rules::all() {
        let text = rule.explanation();
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        assert_eq!(headings, ringleader_lint::LintRule::HEADINGS, "{}", rule.id);
    }
}

/// What `--fix` makes of a text.
fn fixed(path: &str, text: &str) -> String {
    let source = SourceFile { path: path.to_owned(), text: text.to_owned() };
    let options = LintOptions { least: Confidence::Low, ..LintOptions::default() };
    let mut fixes: Vec<_> =
        lint(&[source], &options).findings.into_iter().filter_map(|finding| finding.fix).collect();
    fixes.sort_by_key(|fix| std::cmp::Reverse(fix.at));
    let mut out = text.to_owned();
    for fix in fixes {
        out.replace_range(fix.at..fix.end, &fix.with);
    }
    out
}

#[test]
fn misspelt_names_and_unused_comments_are_mended() {
    let script = "#!/bin/bash\nexport NCCL_SOCKET_IFNAM=eth0\ntorchrun train.py\n";
    assert_eq!(fixed("job.sh", script), script.replace("IFNAM=", "IFNAME="));
    let code = "x = 1  # ringleader: ignore[exit-before-collective] reason\n# ringleader: ignore[exit-before-collective] reason\ny = 2\n";
    assert_eq!(fixed("a.py", code), "x = 1\ny = 2\n");
    // What nobody can mend by rule stays.
    let bug = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n";
    assert_eq!(fixed("b.py", bug), bug);
}

#[test]
fn configurations() {
    check("configurations.json");
}

#[test]
fn images_and_files_of_variables() {
    let fires = |path: &str, text: &str| {
        let sources = [SourceFile { path: path.to_owned(), text: text.to_owned() }];
        lint(&sources, &LintOptions::default()).findings.into_iter().map(|f| f.rule).collect::<Vec<_>>()
    };
    assert_eq!(
        fires("Dockerfile", "FROM x\nENV NCCL_DEBUG=INFO \\\n    NCCL_TIMEOUT=5\n"),
        ["unread-variable"]
    );
    assert_eq!(fires("Dockerfile", "FROM x\nARG NCCL_TIMEOUT=5\nENV NCCL_VERSION=2.21.5\n"), [""; 0]);
    assert_eq!(fires("job.env", "NCCL_TIMEOUT=5\n"), ["unread-variable"]);
    assert_eq!(fires("job.env", "NCCL_DEBUG=\"INFO\"\n"), ["misread-value"]);
}

#[test]
fn what_is_installed_says_which_variables_are_read() {
    let found = |requirements: &str| {
        let sources = [
            SourceFile { path: "requirements.txt".to_owned(), text: requirements.to_owned() },
            SourceFile {
                path: "job.sh".to_owned(),
                text: "export NCCL_IB_DATA_DIRECT=1\ntorchrun train.py\n".to_owned(),
            },
        ];
        lint(&sources, &LintOptions::default()).findings.len()
    };
    assert_eq!(found("torch==2.1.0\n"), 1);
    assert_eq!(found("nvidia-nccl-cu12==2.18.1\n"), 1);
    assert_eq!(found("torch==2.11.0\n"), 0);
    assert_eq!(found("torch\n"), 0);
}

/// `cases/pairs.txt`: for each rule a program in which it fires, below `#: RULE fires PATH`, and one that looks like it and is
/// right, below `#: RULE silent PATH`.
#[test]
fn each_rule_fires_and_has_a_look_alike_in_which_nothing_does() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/pairs.txt");
    let text = std::fs::read_to_string(root).unwrap();
    let mut met = std::collections::BTreeMap::<&str, Vec<&str>>::new();
    let mut wrong = Vec::new();
    for part in text.split("#: ").skip(1) {
        let (head, program) = part.split_once('\n').unwrap();
        let [rule, word, path] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        met.entry(rule).or_default().push(word);
        let options = LintOptions {
            least: Confidence::Low,
            least_severity: ringleader_lint::Severity::Info,
            ..LintOptions::default()
        };
        let source = SourceFile { path: path.to_owned(), text: program.to_owned() };
        let found = lint(&[source], &options).findings;
        let fires = found.iter().any(|f| f.rule == rule);
        let is_quiet = !fires && found.iter().all(|f| f.severity == ringleader_lint::Severity::Info);
        if (word == "fires" && !fires) || (word == "silent" && !is_quiet) {
            wrong.push(format!(
                "{head}: {:?}",
                found.iter().map(|f| (f.rule, f.place.line)).collect::<Vec<_>>()
            ));
        }
    }
    for rule in ringleader_lint::rules::all() {
        assert_eq!(met.remove(rule.id), Some(vec!["fires", "silent"]), "{}", rule.id);
    }
    assert!(met.is_empty(), "no such rules: {met:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
