//! Tests of the whole: the program as users meet it, its report, and the rules of the repository.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bundles;
mod cases;
mod cli;
mod collect_nodes;
mod explain;
#[cfg(target_os = "linux")]
mod fix;
mod fleet;
mod forms;
mod hand_made;
mod hostile;
mod live;
mod machine_faults;
mod recorded;
mod report;
mod schema;
mod stub;
mod tidy;
mod variants;
mod watch;
mod zoo;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Evidence folders of all recorded cases, by name.
fn recorded() -> Vec<(String, PathBuf)> {
    let mut cases: Vec<(String, PathBuf)> = std::fs::read_dir(root().join("cases"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path().join("evidence")))
        .filter(|(_, evidence)| evidence.is_dir())
        .collect();
    cases.sort();
    assert!(cases.len() > 40, "the recorded cases are gone");
    cases
}
