//! The checks, one file each. Their order is that of the printed table.

mod acs_iommu;
mod clock;
mod cpu_pressure;
mod gpu_driver;
mod gpu_ecc;
mod gpu_mode;
mod gpu_power_and_clocks;
mod gpu_processes;
mod gpu_recovery_action;
mod gpu_row_remapping;
mod gpu_temperature;
mod gpus_present;
mod host_memory_errors;
mod interface_choice;
mod interface_errors;
mod job_environment;
mod job_orphans;
mod job_processes;
mod job_versions;
mod kernel_errors;
mod limits;
mod master_address;
mod master_port;
mod memory_pressure;
mod mtu;
mod nvlink_errors;
mod nvlink_state;
mod nvswitch_fabric;
mod pcie_errors;
mod pcie_link;
mod peers_reachable;
mod rdma_errors;
mod rdma_gids;
mod rdma_ports;
mod shm_space;
mod shm_stale;
mod storage;
mod versions;
mod xid;
mod xid_hardware;

use crate::rule::{Check, Probe};

/// All checks.
pub static ALL: &[&Check] = &[
    // GPUs and their driver.
    &gpu_driver::CHECK,
    &gpus_present::CHECK,
    &xid_hardware::CHECK,
    &xid::CHECK,
    &gpu_recovery_action::CHECK,
    &gpu_ecc::CHECK,
    &gpu_row_remapping::CHECK,
    &gpu_temperature::CHECK,
    &gpu_power_and_clocks::CHECK,
    &gpu_mode::CHECK,
    &versions::CHECK,
    // NVLink.
    &nvlink_state::CHECK,
    &nvlink_errors::CHECK,
    &nvswitch_fabric::CHECK,
    // PCIe.
    &pcie_link::CHECK,
    &pcie_errors::CHECK,
    &acs_iommu::CHECK,
    // Kernel, memory, clock, storage.
    &kernel_errors::CHECK,
    &host_memory_errors::CHECK,
    &memory_pressure::CHECK,
    &cpu_pressure::CHECK,
    &clock::CHECK,
    &storage::CHECK,
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
    &shm_stale::CHECK,
    &limits::CHECK,
    &job_processes::CHECK,
    &job_orphans::CHECK,
    &job_environment::CHECK,
    &job_versions::CHECK,
    &master_port::CHECK,
    &gpu_processes::CHECK,
];

/// The check with this id.
pub fn by_id(id: &str) -> Option<&'static Check> {
    ALL.iter().copied().find(|check| check.id == id)
}

/// The probes that these checks need.
pub fn probes(checks: &[&'static Check]) -> Vec<Probe> {
    let mut probes: Vec<Probe> = checks.iter().flat_map(|check| check.reads.iter().copied()).collect();
    probes.sort_unstable();
    probes.dedup();
    probes
}
