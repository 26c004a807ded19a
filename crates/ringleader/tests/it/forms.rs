//! The same evidence in the forms in which launchers and container runtimes hand it over, and beside it files that are
//! no evidence.

use std::fs;
use std::path::Path;

use ringleader::diagnose;
use ringleader_model::Rank;

use crate::tidy::rust_files;

/// Cause and confidence, and the ranks that are blamed.
fn verdict(folder: &Path) -> (String, Vec<Rank>) {
    let verdict = diagnose(&[folder.to_owned()], false).unwrap().report().verdict;
    let ranks = verdict.culprits.iter().filter_map(|c| c.rank.map(Rank)).collect();
    (format!("{} {}", verdict.cause, verdict.confidence.name()), ranks)
}

fn evidence(case: &str) -> std::path::PathBuf {
    crate::root().join("cases").join(case).join("evidence")
}

#[test]
fn what_a_launcher_puts_before_each_line_changes_no_verdict() {
    let log = fs::read_to_string(evidence("python-exception").join("stderr.log")).unwrap();
    let packed = |line: &str| {
        let line = serde_json::to_string(&format!("{line}\n")).unwrap();
        format!("{{\"log\":{line},\"stream\":\"stderr\",\"time\":\"2026-11-20T08:22:52.5Z\"}}")
    };
    let mut forms: Vec<(String, String)> =
        vec![("docker".into(), log.lines().map(|l| packed(l) + "\n").collect())];
    for prefix in [
        "[pod/job-0/train] ",
        "worker-1: ",
        "worker1: ",
        "rank1: ",
        "trainer-1  | ",
        "[2026-11-20 08:22:52] ",
        "2026-11-20 08:22:52,123 ",
        "2026-11-20T08:22:52.123Z stderr F ",
        "(RolloutWorker(rank=1) pid=4711, ip=10.0.0.7) ",
        "(train pid=4711) ",
        "[pod/job-0/train] 2026-11-20T08:22:52.123Z ",
        "trainer-1  | [2026-11-20 08:22:52] ",
    ] {
        forms.push((prefix.into(), log.split_inclusive('\n').flat_map(|l| [prefix, l]).collect()));
    }
    for (name, text) in forms {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("log"), text).unwrap();
        assert_eq!(verdict(folder.path()), ("application-exception high".into(), vec![Rank(1)]), "{name}");
    }
}

#[test]
fn programs_and_documents_beside_the_evidence_accuse_nobody() {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(evidence("nodes-healthy")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let before = verdict(folder.path());
    assert!(before.0.starts_with("none"), "{before:?}");
    let program = "try:\n  step()\nexcept RuntimeError:\n  \
        raise RuntimeError(\"CUDA out of memory. lower the batch\")\n";
    let runbook = "# Out of memory\n\nIf the log says `RuntimeError: CUDA out of memory`, lower the batch.\n\n\
        - torch.OutOfMemoryError: CUDA out of memory\n- No space left on device: empty /dev/shm\n";
    fs::write(folder.path().join("a"), program).unwrap();
    fs::write(folder.path().join("b"), runbook).unwrap();
    fs::create_dir(folder.path().join("c")).unwrap();
    let rules = rust_files(&crate::root().join("crates/rules/src/rules"));
    assert!(rules.len() > 50, "{}", rules.len());
    for (at, file) in rules.iter().enumerate() {
        fs::copy(file, folder.path().join("c").join(format!("{at}.rs"))).unwrap();
    }
    assert_eq!(verdict(folder.path()), before);
}
