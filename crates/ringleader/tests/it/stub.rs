//! `check` against a stand-in for the driver's library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The stand-in of crates/collect, compiled with one fault.
fn library(folder: &Path, fault: &str) -> PathBuf {
    let library = folder.join(format!("libnvml-{fault}.so"));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .arg(format!("-DFAULT=\"{fault}\""))
        .arg(crate::root().join("crates/collect/tests/nvml_stub.c"))
        .status();
    assert!(status.unwrap().success(), "the stand-in does not compile");
    library
}

fn check(nvml: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .args(["check", "--format", "json", "--unstable-nvml"])
        .arg(nvml)
        .args(arguments)
        .output()
        .unwrap()
}

fn one(output: &Output) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["checks"][0].clone()
}

#[test]
fn a_driver_that_hangs_costs_its_deadline_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = library(folder.path(), "hang-init");
    let began = Instant::now();
    let output = check(&nvml, &["--only", "gpu-driver", "--deadline-ms", "1500"]);
    // The deadline, and what a busy machine takes to start two processes.
    assert!(began.elapsed() < Duration::from_millis(1_500 + 3_000), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    let said = one(&output);
    assert_eq!((said["id"].as_str(), said["verdict"].as_str()), (Some("gpu-driver"), Some("fail")));
    let summary = said["summary"].as_str().unwrap();
    assert!(summary.contains("no answer within 1500 ms") && summary.contains("nvmlInit"), "{summary}");
}

#[test]
fn one_gpu_that_hangs_is_named_and_the_others_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = library(folder.path(), "hang-gpu");
    let output = check(&nvml, &["--only", "gpu-temperature,gpus-present", "--deadline-ms", "4000"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |id: &str| report["checks"].as_array().unwrap().iter().find(|c| c["id"] == id).unwrap().clone();
    assert_eq!(of("gpu-temperature")["verdict"], "ok");
    let present = of("gpus-present");
    assert_eq!(present["verdict"], "fail");
    assert!(present.to_string().contains("hangs in nvmlDeviceGetPowerUsage"), "{present}");
}

#[test]
fn a_library_of_another_version_is_named_with_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = library(folder.path(), "mismatch");
    let said = one(&check(&nvml, &["--only", "gpu-driver"]));
    assert_eq!(said["verdict"], "fail");
    assert!(said["summary"].as_str().unwrap().contains("Driver/library version mismatch"), "{said}");
    assert!(said["fixes"].to_string().contains("updated under the running kernel"), "{said}");
}

#[test]
fn faults_of_one_gpu_are_each_named_by_their_check() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = library(folder.path(), "faults");
    let ids = "gpu-ecc,gpu-row-remapping,gpu-recovery-action,gpu-power-and-clocks,nvlink-state,nvlink-errors";
    let output = check(&nvml, &["--only", ids]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (id, verdict) in [
        ("gpu-ecc", "fail"),
        ("gpu-row-remapping", "warn"),
        ("gpu-recovery-action", "fail"),
        ("gpu-power-and-clocks", "warn"),
        ("nvlink-state", "fail"),
        ("nvlink-errors", "fail"),
    ] {
        let said = report["checks"].as_array().unwrap().iter().find(|c| c["id"] == id).unwrap();
        assert_eq!(said["verdict"], verdict, "{said}");
        assert!(said["summary"].as_str().unwrap().starts_with("GPU 1 (0000:00:07.0)"), "{said}");
    }
}

#[test]
fn a_healthy_stand_in_is_clean() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = library(folder.path(), "none");
    let ids = "gpu-driver,gpu-ecc,gpu-row-remapping,gpu-recovery-action,gpu-temperature,gpu-power-and-clocks,gpu-mode,nvlink-state,nvlink-errors,nvswitch-fabric";
    let output = check(&nvml, &["--only", ids]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for said in report["checks"].as_array().unwrap() {
        assert_eq!(said["verdict"], "ok", "{said}");
    }
}
