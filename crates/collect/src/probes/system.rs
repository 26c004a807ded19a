//! Kernel, clock, memory, modules.

use std::collections::BTreeMap;

use ringleader_node::System;

use crate::procfs::cgroup;
use crate::request::{ReadingError, Request, Roots};
use crate::sys;
use crate::sysfs::{link_name, names, text};

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

pub(super) fn take(request: &Request) -> Result<System, ReadingError> {
    let proc = &request.roots.proc;
    let uptime = text(&proc.join("uptime"))
        .ok_or_else(|| ReadingError::Failed(format!("{} is not readable", proc.join("uptime").display())))?;
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
    let is_live = request.roots == Roots::default();
    let clock = if is_live { sys::kernel_clock() } else { None };
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
        // The clock is the kernel's own: of a captured tree nothing is known.
        clock_is_kept: clock.as_ref().map(|clock| clock.is_kept),
        clock_error_us: clock.map(|clock| clock.max_error_us),
        container: container(request),
        has_kernel_pids: text(&request.roots.proc.join("2/comm"))
            .is_some_and(|name| name.trim() == "kthreadd"),
        euid: rustix::process::geteuid().as_raw(),
        oom_kills: text(&proc.join("vmstat"))
            .and_then(|counts| counts.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())),
        net_namespace: link_name(&proc.join("self/ns/net"))
            .and_then(|name| name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()),
        cgroup: text(&proc.join("self/cgroup")).and_then(|listing| cgroup(&request.roots.sys, &listing)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let taken = take(&Request::default()).unwrap();
        assert!(taken.memory_total > taken.memory_available && taken.memory_available > 0);
        assert!(taken.uptime_s > 0.0 && taken.n_cpus > 0 && !taken.kernel.is_empty());
        // The error grows while nothing synchronises the clock, up to the kernel's bound of 16 s.
        assert!(taken.clock_error_us.is_some_and(|error| error <= 16_000_000));
    }

    #[test]
    fn a_captured_tree() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        std::fs::create_dir_all(proc.join("pressure")).unwrap();
        std::fs::write(proc.join("uptime"), "1000.50 9.0\n").unwrap();
        std::fs::write(
            proc.join("meminfo"),
            "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\n",
        )
        .unwrap();
        std::fs::write(
            proc.join("pressure/memory"),
            "some avg10=12.50 avg60=1 total=1\nfull avg10=3.25 avg60=1 total=1\n",
        )
        .unwrap();
        std::fs::write(proc.join("vmstat"), "nr_free_pages 5\noom_kill 3\n").unwrap();
        let taken = take(&Request { roots: Roots::under(root.path()), ..Request::default() }).unwrap();
        assert_eq!((taken.memory_total, taken.memory_available, taken.swap_used), (1_024_000, 409_600, 5120));
        assert_eq!((taken.pressure_some_pct["memory"], taken.pressure_full_pct["memory"]), (12.5, 3.25));
        assert_eq!((taken.oom_kills, taken.clock_is_kept), (Some(3), None));
    }
}
