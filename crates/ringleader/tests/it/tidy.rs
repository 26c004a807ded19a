//! The rules of the repository that a machine can hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each crate may import from this workspace. A new edge needs a decision note.
const EDGES: &[(&str, &[&str])] = &[
    ("ringleader-model", &[]),
    ("ringleader-knowledge", &["ringleader-model"]),
    ("ringleader-ring", &[]),
    ("ringleader-plugin", &["ringleader-ring"]),
    ("ringleader-watch", &["ringleader-model", "ringleader-knowledge", "ringleader-ring"]),
    ("ringleader-hub", &["ringleader-watch"]),
    ("ringleader-run", &["ringleader-model", "ringleader-knowledge", "ringleader-collect", "ringleader-hub"]),
    (
        "ringleader-evidence",
        &["ringleader-model", "ringleader-knowledge", "ringleader-node", "ringleader-ring"],
    ),
    ("ringleader-correlate", &["ringleader-model", "ringleader-knowledge"]),
    ("ringleader-trace", &["ringleader-model", "ringleader-knowledge"]),
    ("ringleader-lint", &["ringleader-model", "ringleader-knowledge"]),
    (
        "ringleader-rules",
        &["ringleader-model", "ringleader-knowledge", "ringleader-correlate", "ringleader-trace"],
    ),
    ("ringleader-report", &["ringleader-knowledge", "ringleader-model", "ringleader-trace"]),
    ("ringleader-node", &[]),
    (
        "ringleader-check",
        &["ringleader-model", "ringleader-knowledge", "ringleader-evidence", "ringleader-node"],
    ),
    ("ringleader-bundle", &[]),
    ("ringleader-probe", &["ringleader-model", "ringleader-knowledge"]),
    (
        "ringleader-collect",
        &[
            "ringleader-model",
            "ringleader-knowledge",
            "ringleader-node",
            "ringleader-bundle",
            "ringleader-ring",
            "ringleader-watch",
        ],
    ),
    (
        "ringleader",
        &[
            "ringleader-model",
            "ringleader-knowledge",
            "ringleader-evidence",
            "ringleader-rules",
            "ringleader-report",
            "ringleader-trace",
            "ringleader-node",
            "ringleader-bundle",
            "ringleader-check",
            "ringleader-collect",
            "ringleader-probe",
            "ringleader-ring",
            "ringleader-watch",
            "ringleader-hub",
            "ringleader-lint",
            "ringleader-run",
        ],
    ),
    // Tests only: it judges what the readers and rules make of its jobs.
    ("ringleader-synth", &["ringleader-model", "ringleader-evidence", "ringleader-rules", "ringleader-ring"]),
    (
        "xtask",
        &["ringleader", "ringleader-knowledge", "ringleader-model", "ringleader-report", "ringleader-rules"],
    ),
];

/// The floor of each crate. It imports from lower floors alone, never from its own.
const FLOORS: &[(&str, u8)] = &[
    ("ringleader-model", 0),
    ("ringleader-ring", 0),
    ("ringleader-node", 0),
    ("ringleader-bundle", 0),
    ("ringleader-knowledge", 1),
    ("ringleader-plugin", 1),
    ("ringleader-evidence", 2),
    ("ringleader-watch", 2),
    ("ringleader-correlate", 2),
    ("ringleader-trace", 2),
    ("ringleader-lint", 2),
    ("ringleader-rules", 3),
    ("ringleader-check", 3),
    ("ringleader-collect", 3),
    ("ringleader-hub", 3),
    ("ringleader-probe", 3),
    ("ringleader-report", 4),
    ("ringleader-run", 4),
    ("ringleader", 5),
    // Tests and chores: nothing but tests imports them.
    ("ringleader-synth", 6),
    ("xtask", 6),
];

/// Crates that touch nothing outside of their arguments.
const PURE: &[&str] = &[
    "model",
    "knowledge",
    "evidence",
    "correlate",
    "trace",
    "rules",
    "node",
    "check",
    "watch",
    "report",
    "lint",
];

/// Rust files that are longer than the bound. This list only shrinks.
const LONG: &[&str] = &[];
const MAX_LINES: usize = 800;

/// Types of the workspace that may share a name. One word for each thing: with more the name says nothing.
const MAX_NAMESAKES: usize = 3;
/// The layouts of NCCL's interface, a file for each version: types are named after its header, so each name counts once.
const LAYOUTS: &str = "crates/plugin/src/abi/";

#[test]
fn crates_import_only_lower_floors() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(crate::root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let of = edges.entry(package["name"].as_str().unwrap()).or_default();
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            // Tests may look up: rules are tested over what the readers read.
            if dependency["kind"] != "dev" && names.contains(name) {
                of.insert(name);
            }
        }
    }
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        EDGES.iter().map(|(name, edges)| (*name, edges.iter().copied().collect())).collect();
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
    let floor = |name: &str| *floors.get(name).unwrap_or_else(|| panic!("{name} has no line in FLOORS"));
    for (name, edges) in &edges {
        for lower in edges {
            assert!(floor(lower) < floor(name), "{name} may not import {lower}: its floor is not lower");
        }
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} has no line in EDGES"));
        let surplus: Vec<_> = edges.difference(allowed).collect();
        assert!(surplus.is_empty(), "{name} may not import {surplus:?}");
    }
}

#[test]
fn lower_floors_are_banned_from_the_outside_world() {
    let lists: BTreeSet<String> = PURE
        .iter()
        .map(|name| {
            std::fs::read_to_string(crate::root().join(format!("crates/{name}/clippy.toml"))).unwrap()
        })
        .collect();
    assert_eq!(lists.len(), 1, "the pure crates ban different things");
    let list = lists.first().unwrap();
    for door in [
        "std::fs::File",
        "std::process::Command",
        "std::net::TcpStream",
        "std::time::Instant",
        "std::time::SystemTime",
        "std::env::var",
        "std::env::var_os",
    ] {
        assert!(list.contains(&format!("\"{door}\"")), "{door}");
    }
}

/// Doors to the outside world in one file, tests left out.
fn doors(text: &str) -> Vec<String> {
    let text = without_tests(text);
    let mut found = Vec::new();
    let mut group = false;
    for (n, line) in text.lines().enumerate() {
        // An address is a number; parsing one asks nobody.
        let code = line.split("//").next().unwrap_or_default().replace("std::net::Ip", "Ip");
        group |= code.contains("std::{");
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect::<Vec<_>>();
        let open = ["std::fs", "std::net", "std::process", "std::env", "std::os", "std::thread"]
            .iter()
            .any(|door| code.contains(door))
            || ["SystemTime", "Instant"].iter().any(|word| words.contains(word))
            || (group
                && ["fs", "net", "process", "env", "os", "thread"].iter().any(|word| words.contains(word)));
        if open {
            found.push(format!("{}: {}", n + 1, line.trim()));
        }
        group &= !code.contains(';');
    }
    found
}

/// A file up to its module of unit tests, which is last.
pub(crate) fn without_tests(text: &str) -> &str {
    let mut end = text.len();
    for (at, _) in text.match_indices("#[cfg(test)]\n") {
        let declared = text[at..].lines().find(|line| !line.starts_with("#["));
        if declared.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{')) {
            end = end.min(at);
        }
    }
    &text[..end]
}

/// Modules in files of their own that a file declares for tests alone.
pub(crate) fn test_modules(text: &str) -> Vec<String> {
    text.match_indices("#[cfg(test)]\n")
        .filter_map(|(at, _)| text[at..].lines().find(|line| !line.starts_with("#[")))
        .filter_map(|line| line.trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn lower_floors_touch_nothing_outside() {
    assert_eq!(
        doors("use std::{\n    fmt,\n    fs,\n};\nlet now = Instant::now(); // std::env\n").len(),
        2,
        "the scan is blind"
    );
    for name in PURE {
        let files: Vec<(PathBuf, String)> = rust_files(&crate::root().join("crates").join(name).join("src"))
            .into_iter()
            .map(|file| (file.clone(), std::fs::read_to_string(file).unwrap()))
            .collect();
        let tests: BTreeSet<String> = files.iter().flat_map(|(_, text)| test_modules(text)).collect();
        let mut n_scanned = 0;
        for (file, text) in &files {
            // `tests.rs`, or anything in a folder `tests`.
            if file
                .with_extension("")
                .components()
                .any(|part| tests.contains(&*part.as_os_str().to_string_lossy()))
            {
                continue;
            }
            n_scanned += 1;
            let found = doors(text);
            assert!(found.is_empty(), "{}: {found:#?}", file.display());
        }
        assert!(n_scanned > 0, "{name} has no code");
    }
}

/// Modules beside rules that are none: what several rules of a family share.
const BESIDE_RULES: &[&str] = &["mismatch", "paths", "remarks"];

/// The names in a text that are parts of paths or imported.
fn names_in_paths(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut is_import = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        is_import |= code.trim_start().trim_start_matches("pub(crate) ").starts_with("use ");
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut rest = code;
        while let Some(start) = rest.find(is_of_name) {
            let (before, tail) = rest.split_at(start);
            let (name, after) = tail.split_at(tail.find(|c| !is_of_name(c)).unwrap_or(tail.len()));
            if is_import || before.ends_with("::") || after.starts_with("::") {
                names.insert(name);
            }
            rest = after;
        }
        is_import &= !code.contains(';');
    }
    names
}

/// What two rules need is a question that `correlate` answers, or a form of findings that `drafting` has.
#[test]
fn no_rule_knows_another() {
    let sample = "use a::{\n    b, // c\n};\nlet d = e::f(g) + super::h;\n";
    let found: Vec<&str> = names_in_paths(sample).into_iter().collect();
    assert_eq!(found, ["a", "b", "e", "f", "h", "super", "use"], "the scan is blind");
    let root = crate::root().join("crates/rules/src/rules");
    // Of `calls/straggler/link.rs` the rule is `straggler`.
    let rule = |file: &Path| {
        let path = file.strip_prefix(&root).unwrap().with_extension("");
        let name = path.components().nth(1).map(|name| name.as_os_str().to_str().unwrap().to_owned());
        name.filter(|name| name != "tests")
    };
    let files = rust_files(&root);
    let rules: BTreeSet<String> =
        files.iter().filter_map(|f| rule(f)).filter(|name| !BESIDE_RULES.contains(&&**name)).collect();
    assert!(rules.len() > 50, "the scan is blind");
    for file in &files {
        let Some(own) = rule(file) else { continue };
        let text = std::fs::read_to_string(file).unwrap();
        let known = names_in_paths(without_tests(&text));
        let others: Vec<_> = known.iter().filter(|name| **name != own && rules.contains(**name)).collect();
        assert!(others.is_empty(), "{}: a rule may not use {others:?}", file.display());
    }
}

#[test]
fn files_stay_short() {
    let root = crate::root();
    let mut long = BTreeSet::new();
    for folder in ["crates", "xtask", "fuzz"] {
        for file in rust_files(&root.join(folder)) {
            if std::fs::read_to_string(&file).unwrap().lines().count() > MAX_LINES {
                long.insert(file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let known: BTreeSet<String> = LONG.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(long, known, "left: longer than {MAX_LINES} lines; right: the list, which only shrinks");
}

/// Names of the types that a file declares.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let item = line.trim_start();
        let item = match item.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.trim_start(),
            None => item,
        };
        let (keyword, rest) = item.split_once(' ')?;
        // An alias that is indented belongs to a trait, whose implementations have to repeat it.
        let is_type = ["struct", "enum", "union", "trait"].contains(&keyword)
            || keyword == "type" && !line.starts_with(char::is_whitespace);
        let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
        (is_type && name.starts_with(char::is_uppercase)).then_some(name)
    })
}

#[test]
fn few_types_share_a_name() {
    let sample = "pub(crate) struct A<T> {\n    type B = C;\ntype D = E;\npub trait F {\n    enum G {}\n";
    assert_eq!(types(sample).collect::<Vec<_>>(), ["A", "D", "F", "G"], "the scan is blind");
    let root = crate::root();
    let mut namesakes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in std::fs::read_dir(root.join("crates")).unwrap() {
        let files = rust_files(&folder.unwrap().path().join("src"));
        let texts: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let tests: BTreeSet<String> = texts.iter().flat_map(|text| test_modules(text)).collect();
        for (file, text) in files.iter().zip(&texts) {
            let path = file.strip_prefix(&root).unwrap().with_extension("");
            if path.components().any(|part| tests.contains(&*part.as_os_str().to_string_lossy())) {
                continue;
            }
            let path = path.to_str().unwrap();
            let place = if path.starts_with(LAYOUTS) { LAYOUTS } else { path };
            for name in types(without_tests(text)) {
                namesakes.entry(name.to_owned()).or_default().insert(place.to_owned());
            }
        }
    }
    namesakes.retain(|_, places| places.len() > MAX_NAMESAKES);
    assert!(namesakes.is_empty(), "more than {MAX_NAMESAKES} types share a name: {namesakes:#?}");
}

/// No crate but the face runs examples of its documentation (`doctest = false`): each would be a program of its own to
/// link. So none may be elsewhere as if it were run.
#[test]
fn documentation_has_no_example_that_nothing_runs() {
    // The one example of the library: from a folder to a report.
    let run = crate::root().join("crates/ringleader/src/lib.rs");
    for file in rust_files(&crate::root().join("crates")).into_iter().filter(|file| *file != run) {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut is_open = false;
        for line in text.lines().map(str::trim_start) {
            let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
            let Some(fence) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else { continue };
            is_open = !is_open;
            assert!(!is_open || fence == "text", "{}: {line}", file.display());
        }
    }
}

/// Crates whose documentation of one line is to say in one plain sentence what a value is, with its unit or shape.
const DOCUMENTED: &[&str] = &["model", "evidence", "correlate", "watch", "rules", "report", "ringleader"];
/// Words that make a line a riddle: read alone, it does not say who, or does not say what happens.
const RIDDLES: &[&str] = &["told", "of which", "whoever", "for so long", "stands"];
/// Lines that say nothing of the item below.
const EMPTY_LINES: &[&str] = &[
    "Which.",
    "Who.",
    "Whose.",
    "What.",
    "Where.",
    "When.",
    "Why.",
    "How.",
    "How many.",
    "How much.",
    "How long.",
    "It.",
    "Nothing.",
    "All of it.",
    "All of them.",
    "The same.",
    "As above.",
    "As before.",
    "One sentence.",
];
/// Lines of either kind that are left. This number only shrinks.
const MOST_RIDDLES: usize = 5;

/// Documentation of one line that is a riddle or empty. Names in backticks are names.
fn riddles(text: &str) -> Vec<&str> {
    let docs: Vec<Option<&str>> =
        text.lines().map(|line| line.trim_start().strip_prefix("///").map(str::trim)).collect();
    let is_riddle = |doc: &str| {
        let prose: String = doc.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
        let words: Vec<&str> =
            prose.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
        let prose = format!(" {} ", words.join(" "));
        RIDDLES.iter().any(|riddle| prose.contains(&format!(" {riddle} "))) || EMPTY_LINES.contains(&doc)
    };
    let is_doc = |at: Option<usize>| at.and_then(|at| docs.get(at)).is_some_and(Option::is_some);
    let lines = docs.iter().enumerate().filter_map(|(at, doc)| Some((at, (*doc)?)));
    lines
        .filter(|(at, doc)| !is_doc(at.checked_sub(1)) && !is_doc(Some(at + 1)) && is_riddle(doc))
        .map(|(_, doc)| doc)
        .collect()
}

#[test]
fn documentation_of_one_line_says_what_it_documents() {
    let sample =
        "/// Who.\nlet a;\n/// Was told, so.\nb();\n/// `told`: by whom.\nc();\n/// One.\n/// Who.\nd();\n";
    assert_eq!(riddles(sample), ["Who.", "Was told, so."], "the scan is blind");
    let mut found = Vec::new();
    for name in DOCUMENTED {
        for file in rust_files(&crate::root().join("crates").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            found.extend(riddles(&text).into_iter().map(|doc| format!("{}: {doc}", file.display())));
        }
    }
    assert!(found.len() <= MOST_RIDDLES, "{} lines, more than {MOST_RIDDLES}: {found:#?}", found.len());
}

#[test]
fn recorded_evidence_stays_small() {
    fn size(path: &Path) -> u64 {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                if entry.file_type().unwrap().is_dir() {
                    size(&entry.path())
                } else {
                    entry.metadata().unwrap().len()
                }
            })
            .sum()
    }
    let bytes = size(&crate::root().join("cases"));
    assert!(bytes < 15 << 20, "{bytes} bytes of cases");
}

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return files };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
