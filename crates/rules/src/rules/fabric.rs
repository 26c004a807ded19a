//! Paths of data between GPUs: NVLink, peer access, InfiniBand and RoCE, and what NCCL makes of them.

pub(super) mod fabric_manager_down;
pub(super) mod gdr_peermem_missing;
pub(super) mod gid_table;
pub(super) mod ib_gid_or_roce_config;
pub(super) mod ib_link_down;
pub(super) mod measured_bandwidth;
pub(super) mod nvlink_error;
pub(super) mod nvswitch_error;
pub(super) mod p2p_acs_iommu;
pub(super) mod p2p_unsupported;
mod paths;
pub(super) mod perftest_bandwidth;
pub(super) mod port_counters;
pub(super) mod port_state;
pub(super) mod routing_or_rail;
