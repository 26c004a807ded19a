//! # What it checks
//!
//! Versions that must fit together: the driver's kernel module and its libraries, the CUDA runtime of the job and the
//! driver, NCCL between the ranks, the module for RDMA to GPU memory, and a second driver for the same GPUs.
//!
//! # What fails
//!
//! A driver library of another version than the module; a CUDA runtime of a newer major version than the driver
//! supports, unless CUDA's compatibility package is loaded; ranks with two versions of NCCL; nouveau beside NVIDIA's
//! driver. Missing nvidia_peermem warns only with RDMA cards on kernels before 5.12: newer kernels register GPU memory
//! by dma-buf.
//!
//! # What to do
//!
//! Install the version that the others have.
//!
//! # References
//!
//! NVIDIA, CUDA Compatibility; NVIDIA/nccl docs, Troubleshooting, GPU Direct.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_node::{Gpus, System};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "versions",
    title: "versions of driver, CUDA and NCCL",
    area: Area::Gpu,
    reads: &[Probe::Gpus, Probe::System, Probe::Libraries, Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("versions.rs"),
    run,
};

/// First kernel in which a driver can export its memory for RDMA (dma-buf in ib_core).
const DMABUF_KERNEL: (u32, u32) = (5, 12);

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let (gpus, system) = (view.node.gpus.get(), view.node.system.get());
    let libraries = view.node.libraries.get();
    if gpus.is_none() && libraries.is_none_or(BTreeMap::is_empty) {
        let nouveau = system.and_then(|system| nouveau(system, false));
        return match (nouveau, view.node.gpus.seen().err()) {
            (Some(item), _) => advise(CheckAnswer::from_items("", vec![item])),
            (None, Some(missing)) => missing.into(),
            (None, None) => CheckAnswer::skipped("not read"),
        };
    }
    let mut items: Vec<Item> = Vec::new();
    let module = gpus.and_then(|gpus| gpus.module_version.as_deref().or(gpus.driver_version.as_deref()));
    if let (Some(module), Some(gpus)) = (module, gpus) {
        items.extend(nvml(gpus, module));
    }
    if let Some(system) = system {
        items.extend(nouveau(system, gpus.is_some()));
        items.extend(peermem(system));
    }
    // One item per library and version, not per process.
    let mut loaded: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
    for (pid, of) in libraries.into_iter().flatten() {
        for (name, version) in of.iter().filter(|(_, version)| !version.is_empty()) {
            loaded.entry((name, version)).or_default().push(*pid);
        }
    }
    let cuda = gpus.and_then(|gpus| gpus.cuda_version.as_deref());
    for ((name, version), pids) in &loaded {
        let who = format!("pid {}", pids.iter().take(4).map(u32::to_string).collect::<Vec<_>>().join(", "));
        let evidence = format!("/proc/{}/maps: {name} {version}", pids.first().copied().unwrap_or(0));
        let has_compat = pids.iter().any(|pid| {
            let of = libraries.and_then(|libraries| libraries.get(pid));
            let own = of.and_then(|of| of.iter().find(|(name, _)| name.starts_with("libcuda.so")));
            own.is_some_and(|(_, version)| Some(version.as_str()) != module)
        });
        if name.starts_with("libcudart")
            && let (Some(runtime), Some(driver)) = (major(version), cuda.and_then(major))
            && runtime > driver
            && !has_compat
        {
            items.push(Item {
                subject: who,
                verdict: CheckState::Fail,
                text: format!(
                    "CUDA runtime {version}, the driver supports CUDA up to {}",
                    cuda.unwrap_or_default()
                ),
                evidence,
            });
        } else if name.starts_with("libcuda.so")
            && let Some(module) = module
            && version.contains('.')
            && *version < module
            && major(version) != major(module)
        {
            // A newer one is CUDA's compatibility package; an older one is left over in an image.
            items.push(Item {
                subject: who,
                verdict: CheckState::Fail,
                text: format!("it has loaded the driver's library {version}, the module is {module}"),
                evidence,
            });
        }
    }
    let nccl: BTreeSet<&str> = loaded
        .keys()
        .filter(|(name, _)| name.starts_with("libnccl.so"))
        .map(|(_, version)| *version)
        .collect();
    if nccl.len() > 1 && one_job(view) {
        let all = nccl.iter().copied().collect::<Vec<_>>().join(" and ");
        items.push(Item {
            subject: "NCCL".to_owned(),
            verdict: CheckState::Fail,
            text: format!("ranks of one job have loaded NCCL {all}"),
            evidence: format!("/proc/*/maps: libnccl.so.2 {all}"),
        });
    }
    let driver = gpus.and_then(|gpus| gpus.driver_version.as_deref()).unwrap_or("unknown");
    let of_job = nccl.first().map_or_else(String::new, |version| format!(", NCCL {version}"));
    let ok = format!("driver {driver}, CUDA up to {}{of_job}", cuda.unwrap_or("?"));
    let mut answer = advise(CheckAnswer::from_items(ok, items));
    if let Some(version) = nccl.first() {
        answer = answer.value("nccl-version", version, ValueKind::Same);
    }
    if let Some(version) = module {
        answer = answer.value("driver-module", version, ValueKind::Same);
    }
    if let Some(vbios) = gpus.and_then(|gpus| gpus.gpus.first()?.vbios.as_deref()) {
        answer = answer.value("gpu-vbios", vbios, ValueKind::Same);
    }
    answer
}

fn advise(answer: CheckAnswer) -> CheckAnswer {
    answer.advise(
        Impact::Harmless,
        "compare what is loaded with what is installed",
        Some(
            "cat /proc/driver/nvidia/version; nvidia-smi | head -4; lsmod | grep -E 'nvidia|nouveau|peermem'"
                .to_owned(),
        ),
    )
}

/// `13` of `13.0.96`.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// NVML's version is CUDA's major number followed by that of the driver: `13.580.159.04`.
fn nvml(gpus: &Gpus, module: &str) -> Option<Item> {
    let library = gpus.nvml_version.as_deref()?;
    let own = library.split_once('.')?.1;
    (own != module && own.split('.').count() >= 2).then(|| Item {
        subject: "NVML".to_owned(),
        verdict: CheckState::Warn,
        text: format!("the library is of driver {own}, the module is {module}"),
        evidence: format!("nvmlSystemGetNVMLVersion: {library}; /sys/module/nvidia/version: {module}"),
    })
}

fn nouveau(system: &System, has_nvidia: bool) -> Option<Item> {
    let is_loaded = system.modules.contains_key("nouveau");
    is_loaded.then(|| Item {
        subject: "module nouveau".to_owned(),
        verdict: if has_nvidia { CheckState::Warn } else { CheckState::Fail },
        text: "it is loaded and holds GPUs that NVIDIA's driver needs".to_owned(),
        evidence: "/sys/module/nouveau".to_owned(),
    })
}

fn peermem(system: &System) -> Option<Item> {
    let has = |name: &str| system.modules.contains_key(name);
    let mut numbers = system.kernel.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let kernel: (u32, u32) = (numbers.next()?, numbers.next()?);
    let is_missing = has("mlx5_ib") && has("nvidia") && !has("nvidia_peermem") && !has("nv_peer_mem");
    (is_missing && kernel < DMABUF_KERNEL && system.container.is_none()).then(|| Item {
        subject: "module nvidia_peermem".to_owned(),
        verdict: CheckState::Warn,
        text: format!(
            "it is not loaded, and kernel {} has no other way to read GPU memory over RDMA",
            system.kernel
        ),
        evidence: "/sys/module: mlx5_ib and nvidia, without nvidia_peermem".to_owned(),
    })
}

/// Whether all ranks belong to one job, judging by their master address.
fn one_job(view: &NodeView<'_>) -> bool {
    let masters: BTreeSet<_> =
        view.ranks().map(|rank| (rank.variable("MASTER_ADDR"), rank.variable("MASTER_PORT"))).collect();
    masters.len() == 1
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Jobs, Node, Outcome, Part, Process};

    use super::*;
    use crate::staging_gpus::{gpus, healthy, is_sound, verdict};

    fn with(libraries: &[(u32, &str, &str)]) -> Node {
        let mut node = healthy();
        let mut all: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
        for (pid, name, version) in libraries {
            all.entry(*pid).or_default().insert((*name).to_owned(), (*version).to_owned());
        }
        let process = |pid: &u32| Process {
            pid: *pid,
            environment: Some([("RANK".to_owned(), pid.to_string())].into()),
            ..Process::default()
        };
        node.jobs = Part::of(Jobs { processes: all.keys().map(process).collect(), ..Jobs::default() });
        node.libraries = Part::of(all);
        node
    }

    #[test]
    fn runtime_and_driver() {
        is_sound(&CHECK);
        assert_eq!(verdict(&CHECK, &with(&[(1, "libcudart.so.13", "13.2.20")])).0, CheckState::Ok);
        let newer = with(&[(1, "libcudart.so.14", "14.0.1"), (1, "libcuda.so.1", "580.159.04")]);
        assert_eq!(verdict(&CHECK, &newer), (CheckState::Fail, vec!["pid 1".to_owned()]));
        // CUDA's compatibility package.
        let compat = with(&[(1, "libcudart.so.14", "14.0.1"), (1, "libcuda.so.1", "610.10.01")]);
        assert_eq!(verdict(&CHECK, &compat).0, CheckState::Ok);
        let stale = with(&[(1, "libcuda.so.1", "550.54.15")]);
        assert_eq!(verdict(&CHECK, &stale).0, CheckState::Fail);
    }

    #[test]
    fn two_versions_of_nccl() {
        let two = with(&[(1, "libnccl.so.2", "2.28.9"), (2, "libnccl.so.2", "2.27.3")]);
        assert_eq!(verdict(&CHECK, &two), (CheckState::Fail, vec!["NCCL".to_owned()]));
        let one = with(&[(1, "libnccl.so.2", "2.28.9"), (2, "libnccl.so.2", "2.28.9")]);
        assert_eq!(verdict(&CHECK, &one).0, CheckState::Ok);
    }

    #[test]
    fn modules() {
        let with = |names: &[&str], kernel: &str| {
            let mut node = healthy();
            let Outcome::Seen(system) = &mut node.system.outcome else { panic!() };
            system.kernel = kernel.to_owned();
            for name in names {
                system.modules.insert((*name).to_owned(), String::new());
            }
            verdict(&CHECK, &node).0
        };
        assert_eq!(with(&["mlx5_ib"], "6.8.0"), CheckState::Ok);
        assert_eq!(with(&["mlx5_ib"], "5.4.0-200"), CheckState::Warn);
        assert_eq!(with(&["mlx5_ib", "nvidia_peermem"], "5.4.0-200"), CheckState::Ok);
        assert_eq!(with(&["nouveau"], "6.8.0"), CheckState::Warn);
    }

    #[test]
    fn a_library_left_behind() {
        let mut node = healthy();
        gpus(&mut node).nvml_version = Some("13.580.95.05".to_owned());
        assert_eq!(verdict(&CHECK, &node), (CheckState::Warn, vec!["NVML".to_owned()]));
    }
}
