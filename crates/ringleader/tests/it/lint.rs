//! `lint`: its forms of output, `--fix` and `--baseline`; `diagnose --source`: what the lint says of the functions in which
//! ranks stand.

use std::path::Path;
use std::process::Output;

use crate::cli::{err, out, ringleader};

/// The program of the case `skipped-allreduce`, as far as its stacks name it: rank 0 leaves one call out.
const SKIPS: &str = "\
import torch
import torch.distributed as dist


def sync_grads(model, step, skip_at):
    for p in model.parameters():
        if dist.get_rank() == 0 and step == skip_at:
            continue
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def plain_job(model, make_batch):
    for step in range(100):
        model(make_batch(step)).sum().backward()
        sync_grads(model, step, 7)
        torch.cuda.synchronize()
";

/// The same without the fault: rank 0 alone prints.
fn right() -> String {
    SKIPS.replace("            continue\n", "            print(step)\n")
}

fn diagnose(source: Option<&Path>, format: &str) -> Output {
    let case = crate::root().join("cases/skipped-allreduce/evidence");
    let mut command = ringleader();
    command.args(["diagnose", "--format", format]).arg(case);
    if let Some(folder) = source {
        command.arg("--source").arg(folder);
    }
    command.output().unwrap()
}

fn report(source: Option<&Path>) -> serde_json::Value {
    serde_json::from_str(out(&diagnose(source, "json"))).unwrap()
}

fn quoted(report: &serde_json::Value) -> Vec<&serde_json::Value> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().filter(|f| f["title"].as_str().unwrap().starts_with("in the source: ")).collect()
}

#[test]
fn the_condition_in_the_source_supports_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.py"), SKIPS).unwrap();
    let (without, with) = (report(None), report(Some(folder.path())));
    assert_eq!(without["verdict"], with["verdict"]);
    assert_eq!(quoted(&without).len(), 0);
    let quoted = quoted(&with);
    assert_eq!(quoted.len(), 1, "{quoted:#?}");
    let finding = quoted[0];
    assert_eq!(finding["id"], "exit-before-collective");
    assert_eq!(finding["severity"], "info");
    let condition = finding["evidence"].as_array().unwrap().iter().find(|e| e["line"] == 7);
    let text = condition.unwrap()["text"].as_str().unwrap();
    assert!(text.contains("dist.get_rank() == 0 and step == skip_at"), "{text}");
    assert_eq!(condition.unwrap()["source"], "train.py");
    assert!(with["looked_at"].as_array().unwrap().iter().any(|e| e["source"] == "train.py"));
    crate::report::valid_json(&with);

    let shown = diagnose(Some(folder.path()), "text");
    assert!(out(&shown).contains("in the source: continue under"), "{}", out(&shown));
    assert_eq!(shown.status.code(), diagnose(None, "text").status.code());
}

#[test]
fn code_that_is_right_supports_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.py"), right()).unwrap();
    // A fault in another function is none of this verdict.
    let other = "import torch.distributed as dist\n\ndef save(path):\n    if dist.get_rank() == 0:\n        dist.barrier()\n";
    std::fs::write(folder.path().join("save.py"), other).unwrap();
    let with = report(Some(folder.path()));
    assert_eq!(quoted(&with).len(), 0, "{:#?}", quoted(&with));
    let looked = with["looked_at"].as_array().unwrap().iter().find(|e| e["kind"] == "source-code").unwrap();
    let note = looked["notes"][0]["text"].as_str().unwrap();
    assert!(note.starts_with("2 files of source"), "{note}");
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let output = diagnose(Some(Path::new("/no/such/folder")), "text");
    assert_ne!(output.status.code(), Some(0));
    assert!(err(&output).contains("/no/such/folder"), "{}", err(&output));
}

/// A small project: a script with faults of several kinds and comments that ignore some, a job script, and a file that is right.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("train.py", TRAIN),
        ("job.sh", "#!/bin/bash\nexport NCCL_SOCKET_IFNAM=eth0\ntorchrun --nproc-per-node 8 train.py\n"),
        ("broken.py", "def f(:\n    return 1\n"),
        ("right.py", "import torch.distributed as dist\n\ndef wait():\n    dist.barrier()\n"),
    ];
    for (path, text) in files {
        std::fs::write(folder.path().join(path), text).unwrap();
    }
    folder
}

/// One fault that is proven, one that a comment ignores, one whose comment lacks a reason, a comment that covers nothing,
/// and one that only low confidence shows.
const TRAIN: &str = "\
import torch.distributed as dist


def log(loss, step):
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        print(step, loss)


def serve():
    if dist.get_rank() == 0:
        dist.barrier()  # ringleader: ignore[collective-under-rank-condition] the others wait in the server


def stop():
    if dist.get_rank() == 0:
        dist.barrier()  # ringleader: ignore[collective-under-rank-condition]


def share(batch):
    # ringleader: ignore[exit-before-collective] there was a return here
    if batch.numel() > 0:
        dist.all_reduce(batch)
";

/// Runs `ringleader lint` in a folder: output, with an error if there is one, and the exit code.
fn linted(folder: &Path, args: &[&str]) -> String {
    let output = ringleader().current_dir(folder).arg("lint").args(args).output().unwrap();
    assert!(err(&output).is_empty(), "{}", err(&output));
    format!("{}exit code: {}\n", out(&output), output.status.code().unwrap())
}

#[test]
fn as_text() {
    insta::assert_snapshot!(linted(project().path(), &["."]));
}

#[test]
fn as_text_with_low_confidence_and_hygiene() {
    insta::assert_snapshot!(linted(project().path(), &["--confidence", "low", "--info", "."]));
}

#[test]
fn as_json() {
    insta::assert_snapshot!(linted(project().path(), &["--format", "json-v1", "."]));
}

#[test]
fn as_sarif() {
    let text = linted(project().path(), &["--format", "sarif", "."]);
    let mut report: serde_json::Value =
        serde_json::from_str(text.split("exit code: ").next().unwrap()).unwrap();
    // The list of rules holds the documentation of each: those that were found are enough here.
    let results = report["runs"][0]["results"].as_array().unwrap().clone();
    let rules = report["runs"][0]["tool"]["driver"]["rules"].as_array_mut().unwrap();
    assert!(rules.len() > 30);
    rules.retain(|rule| results.iter().any(|result| result["ruleId"] == rule["id"]));
    for rule in rules {
        assert!(rule["help"]["text"].as_str().unwrap().starts_with("# What it shows"));
        rule["help"]["text"] = "...".into();
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn as_commands_of_github() {
    insta::assert_snapshot!(linted(project().path(), &["--format", "github", "."]));
}

#[test]
fn what_can_be_mended_is_mended() {
    let folder = project();
    let said = linted(folder.path(), &["--fix", "--confidence", "low", "--format", "github", "."]);
    let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
    insta::assert_snapshot!(format!(
        "{said}--- job.sh\n{}--- train.py\n{}",
        read("job.sh"),
        read("train.py")
    ));
    // What is mended stays as it is.
    let mended = (read("job.sh"), read("train.py"));
    linted(folder.path(), &["--fix", "--confidence", "low", "--format", "github", "."]);
    assert_eq!((read("job.sh"), read("train.py")), mended);
}

#[test]
fn a_baseline_leaves_out_what_is_known() {
    let folder = project();
    let written = linted(folder.path(), &["--baseline", "known.txt", "--write-baseline", "."]);
    let known = std::fs::read_to_string(folder.path().join("known.txt")).unwrap();
    // Lines move, and one fault is new.
    let moved = TRAIN.replace("def log", "VERSION = 2\n\n\ndef log")
        + "\n\ndef more(x):\n    if dist.get_rank() == 1:\n        dist.barrier()\n";
    std::fs::write(folder.path().join("train.py"), moved).unwrap();
    let left = linted(folder.path(), &["--baseline", "known.txt", "--format", "github", "."]);
    insta::assert_snapshot!(format!("{written}--- known.txt\n{known}--- with it\n{left}"));
}

/// Runs git in a folder, without the settings of whoever tests.
fn git(folder: &Path, args: &[&str]) {
    let output = std::process::Command::new("git")
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", err(&output));
}

#[test]
fn changed_lines_alone_are_shown() {
    let folder = project();
    for args in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "first"]] {
        git(folder.path(), args);
    }
    let changed = ["--changed-since", "HEAD", "--format", "github"];
    let said = linted(folder.path(), &changed);
    assert!(!said.contains("::error") && said.ends_with("exit code: 0\n"), "{said}");
    // A function below the old faults, and a file that git does not know yet.
    let more = "\n\ndef more(x):\n    if dist.get_rank() == 1:\n        dist.barrier()\n";
    std::fs::write(folder.path().join("train.py"), format!("{TRAIN}{more}")).unwrap();
    std::fs::write(folder.path().join("new.py"), format!("import torch.distributed as dist\n{more}"))
        .unwrap();
    let said = linted(folder.path(), &changed);
    let places: Vec<&str> = said.lines().filter(|line| line.starts_with("::error")).collect();
    assert_eq!(places.len(), 2, "{said}");
    assert!(places[0].contains("file=new.py,line=6"), "{said}");
    assert!(places[1].contains("file=train.py,line=28"), "{said}");
    assert!(said.ends_with("exit code: 4\n"), "{said}");
    // A revision that is none is no empty answer.
    let output = ringleader()
        .current_dir(folder.path())
        .args(["lint", "--changed-since", "no-such-revision"])
        .output()
        .unwrap();
    assert!(!matches!(output.status.code(), Some(0 | 4)), "{output:?}");
    assert!(err(&output).contains("no-such-revision"), "{}", err(&output));
}

#[test]
fn what_git_ignores_and_tests_are_left_out() {
    let folder = project();
    git(folder.path(), &["init", "-q"]);
    for path in ["made/train.py", "tests/train.py", "test_train.py"] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, TRAIN).unwrap();
    }
    std::fs::write(folder.path().join(".gitignore"), "made/\n").unwrap();
    let files = |args: &[&str]| {
        let said = linted(folder.path(), &[args, &["--format", "json-v1", "."]].concat());
        let report: serde_json::Value =
            serde_json::from_str(said.split("exit code: ").next().unwrap()).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let mut files: Vec<String> =
            findings.iter().map(|f| f["place"]["path"].as_str().unwrap().to_owned()).collect();
        files.dedup();
        files
    };
    assert_eq!(files(&[]), ["job.sh", "train.py"]);
    assert_eq!(files(&["--tests"]), ["job.sh", "test_train.py", "tests/train.py", "train.py"]);
    // Who names a file wants it read.
    let named = linted(folder.path(), &["--format", "github", "made/train.py"]);
    assert!(named.contains("file=made/train.py,line=6"), "{named}");
}

/// Both run `ringleader lint` with the options that it has.
#[test]
fn the_hook_and_the_action_run_the_command() {
    let read = |path: &str| std::fs::read_to_string(crate::root().join(path)).unwrap();
    let entry = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(key).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {key} in {text}"))
    };
    let hook = entry(&read(".pre-commit-hooks.yaml"), "entry: ");
    let action = entry(&read("action.yml"), "run: ");
    let action = action.replace("$ARGUMENTS", "--select unread-variable").replace("$PATHS", ".");
    let folder = project();
    for (command, sign, n) in [(hook, ": error [", 2), (action, "::warning ", 1)] {
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("ringleader"));
        let output = ringleader().current_dir(folder.path()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{command}: {}", err(&output));
        assert_eq!(out(&output).matches(sign).count(), n, "{command}: {}", out(&output));
    }
}

/// A setting that was copied into several files is one finding for people, and one of each file for programs.
#[test]
fn a_copied_mistake_is_shown_once() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.sh", "b.sh", "c.sh"] {
        std::fs::write(
            folder.path().join(name),
            "export NCCL_TIMEOUT=60\ntorchrun --nproc-per-node 8 train.py\n",
        )
        .unwrap();
    }
    std::fs::write(
        folder.path().join("d.sh"),
        "export NCCL_SOCKET_TIMEOUT=60\ntorchrun --nproc-per-node 8 train.py\n",
    )
    .unwrap();
    let run = |format: &str| {
        let mut command = ringleader();
        command.args(["lint", "--format", format, "--select", "unread-variable", "."]);
        command.current_dir(folder.path()).output().unwrap()
    };
    let text = run("text");
    assert_eq!(text.status.code(), Some(4));
    let said = out(&text);
    assert_eq!(said.matches("[unread-variable]").count(), 2, "{said}");
    assert!(said.contains("  the same: b.sh:1\n  the same: c.sh:1\n"), "{said}");
    assert!(said.contains("2 findings at 4 places in 4 files (0 errors, 2 warnings)"), "{said}");
    let json: serde_json::Value = serde_json::from_str(out(&run("json-v1"))).unwrap();
    assert_eq!(json["findings"].as_array().unwrap().len(), 4);
}
