//! The GPUs, as reported by the driver's library NVML. The library is loaded at run time: a node without a driver is an
//! answer.
//!
//! Each GPU is read by a thread of its own, so that one that hangs is named while the others still answer. Nothing is
//! set, reset or cleared.

mod asker;
mod links;
mod reading;

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use ringleader_node::{
    DRIVER_NOT_LOADED, GPU_IS_LOST, Gpu, Gpus, HANGS, NO_MODULE, RESET_REQUIRED, VERSION_MISMATCH,
};

use crate::request::{ReadingError, Request, Roots};
use crate::sysfs::{names, text};

/// Least time, and share of the deadline, that is kept back to print what the GPUs that answer have said.
const RESERVE_MS: u64 = 300;
const RESERVE_SHARE: u64 = 10;
/// GPUs that are read; no machine has as many.
const MAX_GPUS: u32 = 64;
/// Library of the driver.
const LIBRARY: &str = "libnvidia-ml.so.1";

pub(super) fn take(request: &Request) -> Result<Gpus, ReadingError> {
    let started = Instant::now();
    let n_on_bus = n_on_bus(&request.roots.sys);
    let module_version = module_version(&request.roots);
    // In a thread with a name: if it hangs, the name is what the report can say of it.
    let (sender, receiver) = mpsc::channel();
    let library = request.nvml.clone();
    spawn("nvmlInit", move || {
        let mut builder = Nvml::builder();
        if let Some(library) = &library {
            builder.lib_path(library.as_os_str());
        }
        // Nobody listens if the caller has given up.
        let _ = sender.send(builder.init().map(|nvml| {
            let n_counted = nvml.device_count();
            (nvml, n_counted)
        }));
    })?;
    let begun = receiver.recv().unwrap_or(Err(NvmlError::Unknown));
    let init_ms = started.elapsed().as_millis() as u64;
    let (nvml, n_counted) = match begun {
        Ok((nvml, n_counted)) => {
            (nvml, n_counted.map_err(|e| trouble(&e, n_on_bus, module_version.as_deref()))?)
        }
        Err(error) => return Err(trouble(&error, n_on_bus, module_version.as_deref())),
    };
    // Lives as long as the process, which ends with the answer: threads that hang may hold it.
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    let mut taken = Gpus {
        driver_version: nvml.sys_driver_version().ok(),
        cuda_version: nvml.sys_cuda_driver_version().ok().map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        nvml_version: nvml.sys_nvml_version().ok(),
        n_counted,
        module_version,
        init_ms,
        is_restricted: is_restricted(&request.roots.proc),
        ..Gpus::default()
    };
    let limit = Duration::from_millis(match request.deadline_ms {
        0 => u64::MAX / 1_000_000,
        deadline => deadline.saturating_sub(RESERVE_MS.max(deadline / RESERVE_SHARE)),
    });
    read_all(nvml, request.window_ms, &mut taken, started, limit)?;
    Ok(taken)
}

/// Reads each GPU in a thread of its own, until `limit` after `started`.
fn read_all(
    nvml: &'static Nvml,
    window_ms: u64,
    taken: &mut Gpus,
    started: Instant,
    limit: Duration,
) -> Result<(), ReadingError> {
    let (sender, receiver) = mpsc::channel();
    let mut waiting: Vec<(u32, Arc<Mutex<&'static str>>)> = Vec::new();
    for index in 0..taken.n_counted.min(MAX_GPUS) {
        let doing = Arc::new(Mutex::new("nvmlDeviceGetHandleByIndex"));
        waiting.push((index, Arc::clone(&doing)));
        let sender = sender.clone();
        spawn(&format!("gpu {index}"), move || {
            let gpu =
                nvml.device_by_index(index).map(|device| reading::read(&device, index, window_ms, doing));
            let _ = sender.send((index, gpu));
        })?;
    }
    drop(sender);
    while !waiting.is_empty() {
        match receiver.recv_timeout(limit.saturating_sub(started.elapsed())) {
            Ok((index, gpu)) => {
                waiting.retain(|(other, _)| *other != index);
                match gpu {
                    Ok(gpu) => taken.gpus.push(gpu),
                    Err(error) => taken.failures.push((index, word(&error))),
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    for (index, doing) in waiting {
        let doing = doing.lock().map_or("", |doing| *doing);
        let ms = started.elapsed().as_millis();
        taken.failures.push((index, format!("no answer within {ms} ms, it {HANGS} {doing}")));
    }
    taken.gpus.sort_by_key(|gpu: &Gpu| gpu.index);
    taken.failures.sort();
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ReadingError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map(|_| ()).map_err(|error| ReadingError::Failed(format!("start a thread: {error}")))
}

/// NVIDIA GPUs on the PCI bus, whether a driver holds them or not.
fn n_on_bus(sys: &Path) -> usize {
    let devices = sys.join("bus/pci/devices");
    names(&devices)
        .iter()
        .filter(|address| {
            let read = |name: &str| text(&devices.join(address).join(name)).unwrap_or_default();
            read("vendor") == "0x10de" && read("class").starts_with("0x03")
        })
        .count()
}

/// This process belongs to the step of a Slurm job (`…/job_123/step_0/…`), which may be granted some GPUs only.
fn is_restricted(proc: &Path) -> bool {
    let group = text(&proc.join("self/cgroup")).unwrap_or_default();
    group.contains("/job_") && group.contains("/step_")
}

/// Version of the loaded kernel module.
fn module_version(roots: &Roots) -> Option<String> {
    text(&roots.sys.join("module/nvidia/version")).filter(|v| !v.is_empty()).or_else(|| {
        // NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …
        let line = text(&roots.proc.join("driver/nvidia/version"))?;
        let is_version = |word: &&str| {
            word.contains('.')
                && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        };
        line.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
    })
}

/// Why NVML cannot be used at all.
fn trouble(error: &NvmlError, n_on_bus: usize, module: Option<&str>) -> ReadingError {
    let has_gpu = n_on_bus > 0 || module.is_some();
    let on_bus = match n_on_bus {
        0 => "no NVIDIA GPU on the PCI bus".to_owned(),
        1 => "1 NVIDIA GPU on the PCI bus".to_owned(),
        n => format!("{n} NVIDIA GPUs on the PCI bus"),
    };
    let module = module.map_or_else(|| NO_MODULE.to_owned(), |v| format!("kernel module nvidia {v}"));
    match error {
        NvmlError::LibloadingError(error) => {
            let why = format!("{LIBRARY} cannot be loaded ({error}); {on_bus}, {module}");
            if has_gpu { ReadingError::Failed(why) } else { ReadingError::Absent(why) }
        }
        NvmlError::DriverNotLoaded if !has_gpu => {
            ReadingError::Absent(format!("{DRIVER_NOT_LOADED}; {on_bus}, {module}"))
        }
        error => ReadingError::Failed(format!("NVML does not start: {}; {on_bus}, {module}", word(error))),
    }
}

/// NVML's own word for an error.
fn word(error: &NvmlError) -> String {
    match error {
        NvmlError::DriverNotLoaded => DRIVER_NOT_LOADED.to_owned(),
        NvmlError::LibRmVersionMismatch => VERSION_MISMATCH.to_owned(),
        NvmlError::GpuLost => GPU_IS_LOST.to_owned(),
        NvmlError::ResetRequired => RESET_REQUIRED.to_owned(),
        NvmlError::NoPermission => "Insufficient Permissions".to_owned(),
        NvmlError::InsufficientPower => "Insufficient External Power".to_owned(),
        NvmlError::Timeout => "Timeout".to_owned(),
        NvmlError::IrqIssue => "Interrupt Request Issue".to_owned(),
        NvmlError::CorruptedInfoROM => "Corrupted infoROM".to_owned(),
        NvmlError::OperatingSystem => "the operating system has blocked the request".to_owned(),
        NvmlError::InsufficientMemory => "Insufficient Memory".to_owned(),
        NvmlError::Unknown => "Unknown Error".to_owned(),
        NvmlError::UnexpectedVariant(code) => format!("NVML error {code}"),
        other => other.to_string(),
    }
}

/// The GPU, its driver or this program's version of NVML has no such reading.
fn is_unsupported(error: &NvmlError) -> bool {
    // 25: a struct of another version; 26: a function that is gone.
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::InvalidArg
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::UnexpectedVariant(25 | 26)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::put;

    fn roots(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), files);
        let roots = Roots::under(root.path());
        (root, roots)
    }

    #[test]
    fn a_node_without_a_driver_is_an_answer() {
        let (_keep, roots) = roots(&[]);
        let request =
            Request { roots, nvml: Some("/nonexistent/libnvidia-ml.so.1".into()), ..Request::default() };
        assert!(
            matches!(take(&request), Err(ReadingError::Absent(why)) if why.contains("no NVIDIA GPU on the PCI bus"))
        );
    }

    #[test]
    fn a_gpu_without_a_library_is_trouble() {
        let (_keep, roots) = roots(&[
            ("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n"),
        ]);
        let request =
            Request { roots, nvml: Some("/nonexistent/libnvidia-ml.so.1".into()), ..Request::default() };
        assert!(
            matches!(take(&request), Err(ReadingError::Failed(why)) if why.contains("1 NVIDIA GPU on the PCI bus"))
        );
    }

    #[test]
    fn the_version_of_the_module() {
        let line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)\nGCC version: 13.2.0\n";
        let (_keep, roots) = roots(&[("proc/driver/nvidia/version", line)]);
        assert_eq!(module_version(&roots).as_deref(), Some("580.159.04"));
    }
}
