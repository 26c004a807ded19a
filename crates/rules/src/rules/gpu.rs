//! A GPU, its driver and its place on PCIe.

pub(super) mod ecc_uncorrectable;
pub(super) mod gpu_driver_bug;
pub(super) mod gpu_fallen_off_bus;
pub(crate) mod gpu_kernel_stuck;
pub(super) mod gpu_throttled;
pub(super) mod gpu_tool_failed;
pub(super) mod gsp_timeout;
pub(super) mod other_xid;
pub(super) mod pcie_error;
pub(super) mod pcie_width;
pub(super) mod row_remap_failure;
pub(super) mod unlisted_gpu;
pub(super) mod wrong_results;
