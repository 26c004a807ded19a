//! Kernel, clock, memory, modules.

use std::collections::BTreeMap;

use ringleader_node::System;

use crate::probes::Trouble;
use crate::request::Request;
use crate::sysfs::{names, text};

/// Kernel modules that matter to a job.
const MODULES: &[&str] = &[
    "nvidia",
    "nvidia_uvm",
    "nvidia_modeset",
    "nvidia_drm",
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "mlx5_core",
    "mlx5_ib",
    "ib_core",
    "ib_uverbs",
    "efa",
    "bnxt_en",
    "bnxt_re",
    "nouveau",
];

pub(super) fn take(request: &Request) -> Result<System, Trouble> {
    let proc = &request.roots.proc;
    let uptime = text(&proc.join("uptime"))
        .ok_or_else(|| Trouble::Failed(format!("{} is not readable", proc.join("uptime").display())))?;
    let memory = text(&proc.join("meminfo")).unwrap_or_default();
    let kib = |name: &str| -> u64 {
        memory
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
            })
            .unwrap_or(0)
            * 1024
    };
    let (mut pressure_some_pct, mut pressure_full_pct) = (BTreeMap::new(), BTreeMap::new());
    for what in ["cpu", "memory", "io"] {
        for line in text(&proc.join("pressure").join(what)).unwrap_or_default().lines() {
            let Some(share) =
                line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
            else {
                continue;
            };
            let into = if line.starts_with("full") { &mut pressure_full_pct } else { &mut pressure_some_pct };
            into.insert(what.to_owned(), share);
        }
    }
    let loaded = request.roots.sys.join("module");
    let modules = names(&loaded)
        .into_iter()
        .filter(|name| MODULES.contains(&name.as_str()))
        .map(|name| {
            let version = text(&loaded.join(&name).join("version")).unwrap_or_default();
            (name, version)
        })
        .collect();
    Ok(System {
        kernel: text(&proc.join("sys/kernel/osrelease")).unwrap_or_default(),
        boot_id: text(&proc.join("sys/kernel/random/boot_id")).unwrap_or_default(),
        uptime_s: uptime.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
        n_cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        load_1m: text(&proc.join("loadavg"))
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0),
        memory_total: kib("MemTotal"),
        memory_available: kib("MemAvailable"),
        swap_used: kib("SwapTotal").saturating_sub(kib("SwapFree")),
        pressure_some_pct,
        pressure_full_pct,
        modules,
        // No safe interface to adjtimex is at hand; what keeps the clock is read by the probe of services.
        clock_is_kept: None,
        clock_error_us: None,
        container: container(request),
        euid: rustix::process::geteuid().as_raw(),
    })
}

/// What gives a container away.
fn container(request: &Request) -> Option<String> {
    if request.roots.proc.parent().is_some_and(|root| root.join(".dockerenv").exists()) {
        return Some("/.dockerenv".to_owned());
    }
    let environ = text(&request.roots.proc.join("1/environ")).unwrap_or_default();
    if let Some(kind) = environ.split('\0').find_map(|pair| pair.strip_prefix("container=")) {
        return Some(format!("container={kind} of pid 1"));
    }
    let group = text(&request.roots.proc.join("1/cgroup")).unwrap_or_default();
    ["docker", "kubepods", "containerd", "libpod"]
        .iter()
        .find(|word| group.contains(**word))
        .map(|word| format!("{word} in /proc/1/cgroup"))
}
