//! The checks, one file each. Their order is the order of the table.

mod gpu_ecc;
mod shm_space;

use crate::rule::{Check, Probe};

/// All checks.
pub static ALL: &[&Check] = &[
    // GPUs and their driver.
    &gpu_ecc::CHECK,
    // NVLink.
    // PCIe.
    // Kernel, memory, clock, storage.
    // Fabric and network.
    // Shared memory, limits, processes, settings of the job.
    &shm_space::CHECK,
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
