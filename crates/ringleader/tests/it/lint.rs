//! `diagnose --source`: what the lint says of the functions in which ranks stand.

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
