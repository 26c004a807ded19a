//! The checks, one file each. Their order is the order of the table.

mod clock;
mod cpu_pressure;
mod gpu_ecc;
mod gpu_processes;
mod job_environment;
mod job_orphans;
mod job_processes;
mod job_versions;
mod limits;
mod master_port;
mod memory_pressure;
mod shm_space;
mod shm_stale;
mod storage;

use crate::rule::{Check, Probe};

/// All checks.
pub static ALL: &[&Check] = &[
    // GPUs and their driver.
    &gpu_ecc::CHECK,
    // NVLink.
    // PCIe.
    // Kernel, memory, clock, storage.
    &memory_pressure::CHECK,
    &cpu_pressure::CHECK,
    &clock::CHECK,
    &storage::CHECK,
    // Fabric and network.
    // Shared memory, limits, processes, settings of the job.
    &shm_space::CHECK,
    &shm_stale::CHECK,
    &limits::CHECK,
    &job_processes::CHECK,
    &job_orphans::CHECK,
    &job_environment::CHECK,
    &job_versions::CHECK,
    &master_port::CHECK,
    &gpu_processes::CHECK,
];

/// The check of that id.
pub fn by_id(id: &str) -> Option<&'static Check> {
    ALL.iter().copied().find(|check| check.id == id)
}

/// What has to be read for these checks.
pub fn probes(checks: &[&'static Check]) -> Vec<Probe> {
    let mut probes: Vec<Probe> = checks.iter().flat_map(|check| check.reads.iter().copied()).collect();
    probes.sort_unstable();
    probes.dedup();
    probes
}
