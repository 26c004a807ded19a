//! What a user gives that is of no use: nothing in it, cut off, forbidden, or not there; and files that are asked for.

use std::path::Path;
use std::process::{Command, Output};

use crate::cli::{err, out, ringleader};

fn run(args: &[&str], folder: &Path) -> Output {
    ringleader().args(args).current_dir(folder).output().unwrap()
}

fn good_log() -> Vec<u8> {
    std::fs::read(crate::root().join("cases/healthy/evidence/nccl_vm_916.log")).unwrap()
}

/// The message names what was given, and says what the report does not.
#[test]
fn an_empty_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let output = run(&["diagnose", "empty"], folder.path());
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        err(&output),
        "error: failed to find evidence in empty: no file could be read there\n",
        "what to give is in the report"
    );
    assert!(out(&output).contains("ringleader help evidence"), "{}", out(&output));
    let json = run(&["diagnose", "empty", "--format", "json"], folder.path());
    assert!(err(&json).contains("ringleader help evidence"), "{}", err(&json));
}

/// With a run of which nothing is known nothing can be compared.
#[test]
fn a_good_run_without_evidence_is_3() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("good")).unwrap();
    std::fs::write(folder.path().join("nccl.log"), good_log()).unwrap();
    let output = run(&["diagnose", "nccl.log", "--against", "good"], folder.path());
    assert_eq!(output.status.code(), Some(3), "{}", out(&output));
    assert!(err(&output).contains("find evidence in good") && err(&output).contains("--against"));
    let same = run(&["diagnose", "nccl.log", "--against", "nccl.log"], folder.path());
    assert!(out(&same).contains("compared with the good run (its own verdict: none)"), "{}", out(&same));
}

/// A job in which a rank skips a call, beside the same job when it went well: which rank calls what else, where.
#[test]
fn a_good_run_shows_whose_calls_differ() {
    let cases = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let at = |case: &str| cases.join(case).join("evidence").display().to_string();
    let bad = at("skipped-allreduce");
    let good = at("healthy");
    let output = run(&["diagnose", &bad, "--against", &good, "--width", "400"], &cases);
    let shown = out(&output);
    assert!(shown.contains("#45 of default_pg on rank 2: all_reduce of 1024 Float, in the good run all_reduce of 1048576 Float"), "{shown}");
    assert!(shown.contains("first unfinished call of ranks 0-1,3 in default_pg: #45"), "{shown}");
    assert_eq!(shown.matches("\n  statement ").count(), 7, "{shown}");
}

/// A beginning that is well is no job that is well.
#[test]
fn a_log_that_is_cut_off_is_undecided() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nccl.log"), good_log()).unwrap();
    let gzip = Command::new("gzip").arg("nccl.log").current_dir(folder.path()).status();
    assert!(gzip.unwrap().success());
    let whole = run(&["diagnose", "nccl.log.gz"], folder.path());
    assert_eq!(whole.status.code(), Some(0), "{}", out(&whole));
    let bytes = std::fs::read(folder.path().join("nccl.log.gz")).unwrap();
    std::fs::write(folder.path().join("nccl.log.gz"), &bytes[..bytes.len() / 2]).unwrap();
    let cut = run(&["diagnose", "nccl.log.gz"], folder.path());
    assert_eq!(cut.status.code(), Some(5), "{}", out(&cut));
    let words = out(&cut).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("nccl.log.gz is cut off") && words.contains("give the whole file"), "{words}");
}

/// Each command says what it takes itself.
#[test]
fn a_path_that_is_not_there_gets_the_help_of_its_command() {
    let folder = tempfile::tempdir().unwrap();
    for (args, help) in [
        (&["diagnose", "nosuch"][..], "ringleader diagnose PATH"),
        (&["lint", "nosuch"], "ringleader lint PATH"),
        (&["trace", "nosuch"], "ringleader trace FILES"),
        (&["mcp", "--root", "/nosuch"], "ringleader mcp --root DIR"),
    ] {
        let output = run(args, folder.path());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = err(&output);
        assert!(said.contains(help) && said.matches("ringleader ").count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn standard_output_takes_one_thing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nccl.log"), good_log()).unwrap();
    for option in ["--html", "--perfetto"] {
        let output = run(&["diagnose", "nccl.log", option, "-"], folder.path());
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).contains(option) && !folder.path().join("-").exists(), "{}", err(&output));
    }
    std::fs::write(folder.path().join("train.log"), "RuntimeError: boom\n").unwrap();
    let output = run(&["diagnose", "train.log", "--perfetto", "x.pftrace"], folder.path());
    assert!(err(&output).contains("x.pftrace shows nothing"), "{}", err(&output));
}

/// A path inside of a folder is named with it.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_without_permission_is_named_whole() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let sub = folder.path().join("job/sub");
    std::fs::create_dir_all(&sub).unwrap();
    std::fs::set_permissions(&sub, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root reads everything, but not from a namespace in which it is nobody.
    let Some(mut apart) = crate::cli::apart(&["--user"], "exec \"$0\" \"$@\"") else { return };
    let output = apart.arg("diagnose").arg(folder.path().join("job")).output().unwrap();
    std::fs::set_permissions(&sub, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(output.status.code(), Some(6), "{}{}", out(&output), err(&output));
    assert!(err(&output).contains("/job/sub: Permission denied"), "{}", err(&output));
    assert!(!err(&output).contains("chmod a+r"), "{}", err(&output));
}

#[test]
fn a_node_that_is_as_it_was_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let node = run(&["check", "--format", "node-json", "--output", "node.json"], folder.path());
    assert!(node.status.success(), "{}", err(&node));
    let run = |args: &[&str]| run(&[&["check", "--from", "node.json"], args].concat(), folder.path());
    let saved = run(&["--save-baseline", "base.json"]);
    assert!(err(&saved).contains("baseline of 1 node saved to base.json"), "{}", err(&saved));
    let same = run(&["--against", "base.json"]);
    assert!(out(&same).ends_with("\nnothing has changed since the baseline base.json\n"), "{}", out(&same));
}

#[test]
fn one_is_not_called_several() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.py"), "import torch\n").unwrap();
    let output = run(&["lint", "train.py"], folder.path());
    assert_eq!(out(&output), "0 findings in 1 file (0 errors, 0 warnings)\n");
    let version = run(&["version", "--verbose"], folder.path());
    assert!(!out(&version).contains("not found\n"), "what to do: {}", out(&version));
}
