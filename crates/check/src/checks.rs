//! The checks, one file each. Their order is the order of the table.

mod gpu_ecc;
mod interface_choice;
mod interface_errors;
mod master_address;
mod mtu;
mod peers_reachable;
mod rdma_errors;
mod rdma_gids;
mod rdma_ports;
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
    &rdma_ports::CHECK,
    &rdma_errors::CHECK,
    &rdma_gids::CHECK,
    &interface_choice::CHECK,
    &interface_errors::CHECK,
    &master_address::CHECK,
    &peers_reachable::CHECK,
    &mtu::CHECK,
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
