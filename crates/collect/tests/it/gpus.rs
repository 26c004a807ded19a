//! The probe of the GPUs against a stand-in for NVML, and probes of this very machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ringleader_collect::{ReadingError, Request, Roots, by_name};
use ringleader_node::{GPU_IS_LOST, Gpus, Pci, VERSION_MISMATCH};

/// The stand-in, compiled with one fault.
fn stub(folder: &Path, fault: &str) -> PathBuf {
    let library = folder.join(format!("libnvml-{fault}.so"));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .arg(format!("-DFAULT=\"{fault}\""))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml_stub.c"))
        .status();
    assert!(status.unwrap().success(), "the stand-in does not compile");
    library
}

fn gpus(fault: &str, deadline_ms: u64, window_ms: u64) -> Result<Gpus, ReadingError> {
    let folder = tempfile::tempdir().unwrap();
    let request = Request {
        roots: Roots::under(folder.path()),
        nvml: Some(stub(folder.path(), fault)),
        deadline_ms,
        window_ms,
        ..Request::default()
    };
    let value = (by_name("gpus").unwrap().take)(&request)?;
    Ok(serde_json::from_value(value).unwrap())
}

#[test]
fn a_healthy_node() {
    let gpus = gpus("none", 5_000, 20).unwrap();
    assert_eq!(gpus.driver_version.as_deref(), Some("580.159.04"));
    assert_eq!(gpus.cuda_version.as_deref(), Some("13.0"));
    assert_eq!((gpus.n_counted, gpus.gpus.len()), (2, 2));
    assert!(gpus.failures.is_empty(), "{:?}", gpus.failures);
    let gpu = &gpus.gpus[0];
    assert!(gpu.failures.is_empty(), "{:?}", gpu.failures);
    assert_eq!((gpu.pci.as_str(), gpu.name.as_str()), ("0000:00:06.0", "NVIDIA H200"));
    assert_eq!((gpu.power_w, gpu.power_limit_w), (Some(77.03), Some(700.0)));
    assert_eq!(
        (gpu.margin_c, gpu.slowdown_margin_c, gpu.memory_temperature_c),
        (Some(51), Some(-2), Some(42))
    );
    assert_eq!(
        (gpu.memory_total_mib, gpu.clock_reasons, gpu.performance_state),
        (Some(143_771), Some(1), Some(0))
    );
    assert_eq!(gpu.recovery_action.as_deref(), Some("none"));
    assert_eq!(
        (gpu.ecc, gpu.volatile.dram_uncorrected, gpu.volatile.total_uncorrected),
        (Some(true), Some(0), Some(0))
    );
    let rows = gpu.rows.unwrap();
    assert_eq!((rows.pending, rows.banks_exhausted), (false, Some(0)));
    // The stand-in knows the second version of the answer, not the third.
    assert_eq!((gpu.fabric_state.as_deref(), gpu.fabric_health_mask), (Some("completed"), Some(0)));
    assert_eq!(gpu.links.len(), 18);
    let link = &gpu.links[17];
    assert_eq!((link.active, link.remote_kind.as_deref()), (Some(true), Some("switch")));
    let counters = ["replay", "recovery", "crc"].map(|name| (name.to_owned(), 0, Some(0)));
    assert_eq!(link.counters, counters);
    assert!(gpu.window_ms.unwrap() >= 20);
    assert_eq!((gpu.processes[0].pid, gpu.processes[0].memory_mib), (4711, Some(512)));
    assert!(gpus.gpus[1].processes.is_empty());
}

#[test]
fn faults_of_one_gpu() {
    let gpus = gpus("faults", 5_000, 10).unwrap();
    let gpu = &gpus.gpus[1];
    assert_eq!(gpu.volatile.total_uncorrected, Some(2));
    assert_eq!(gpu.recovery_action.as_deref(), Some("reset"));
    assert_eq!(gpu.links[7].active, Some(false));
    let recovery = gpu.links[3].counters.iter().find(|(name, _, _)| name == "recovery").unwrap();
    assert!(recovery.2.unwrap() > recovery.1);
    assert!(gpu.rows.unwrap().pending);
}

#[test]
fn a_gpu_that_hangs_is_named_and_the_other_one_answers() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = Some(stub(folder.path(), "hang-gpu"));
    let request =
        Request { roots: Roots::under(folder.path()), nvml, deadline_ms: 1_500, ..Request::default() };
    let began = Instant::now();
    let value = (by_name("gpus").unwrap().take)(&request).unwrap();
    assert!(began.elapsed().as_millis() < 1_500, "{:?}", began.elapsed());
    let gpus: Gpus = serde_json::from_value(value).unwrap();
    assert_eq!(gpus.gpus.len(), 1);
    let (index, why) = &gpus.failures[0];
    assert_eq!(*index, 1);
    assert!(why.contains("hangs in nvmlDeviceGetPowerUsage"), "{why}");
}

#[test]
fn a_gpu_that_is_lost() {
    assert_eq!(gpus("lost", 5_000, 0).unwrap().failures, [(1, GPU_IS_LOST.to_owned())]);
}

#[test]
fn a_driver_that_does_not_start() {
    assert!(
        matches!(gpus("mismatch", 5_000, 0), Err(ReadingError::Failed(why)) if why.contains(VERSION_MISMATCH))
    );
    // No GPU on the bus of that tree: nothing is wrong.
    assert!(matches!(gpus("not-loaded", 5_000, 0), Err(ReadingError::Absent(_))));
}

#[test]
fn this_machines_bus() {
    let request = Request::default();
    match (by_name("pci").unwrap().take)(&request) {
        Ok(value) => {
            let pci: Pci = serde_json::from_value(value).unwrap();
            assert!(!pci.kernel_options.is_empty());
            assert!(pci.devices.iter().all(|device| device.class != 0 && !device.address.is_empty()));
        }
        // A container may hide the bus.
        Err(trouble) => assert!(matches!(trouble, ReadingError::Absent(_)), "{trouble}"),
    }
}

#[test]
fn this_machines_kernel_log_is_read_or_says_why_not() {
    match (by_name("kernel-log").unwrap().take)(&Request::default()) {
        Ok(log) => assert!(log["lines"].is_array()),
        Err(ReadingError::Failed(why)) => assert!(why.contains("kmsg"), "{why}"),
        Err(ReadingError::Absent(_)) => {}
    }
}
