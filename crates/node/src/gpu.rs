//! GPUs as NVML reports them. A reading is None if NVML does not support it on that GPU or refuses it.

use serde::{Deserialize, Serialize};

/// NVML's text if the user library and the kernel module have different versions.
pub const VERSION_MISMATCH: &str = "Driver/library version mismatch";
/// NVML's text if the kernel module is not loaded.
pub const DRIVER_NOT_LOADED: &str = "Driver Not Loaded";
/// Text of a reading if the kernel has no module of the driver.
pub const NO_MODULE: &str = "no kernel module nvidia";
/// NVML's text if a GPU no longer answers on the bus.
pub const GPU_IS_LOST: &str = "GPU is lost";
/// NVML's text if a GPU works again only after a reset.
pub const RESET_REQUIRED: &str = "GPU requires reset";

/// All GPUs of the driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// `580.95.05`.
    pub driver_version: Option<String>,
    /// Newest CUDA version that the driver supports: `13.0`.
    pub cuda_version: Option<String>,
    /// Version of the NVML library.
    pub nvml_version: Option<String>,
    /// Number of GPUs that NVML counts, including those that it then cannot open.
    pub n_counted: u32,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// GPUs that could not be opened: index and NVML's text (`GPU is lost`).
    pub failures: Vec<(u32, String)>,
    /// Version of the loaded kernel module (/sys/module/nvidia/version or /proc/driver/nvidia/version).
    pub module_version: Option<String>,
    /// Time that NVML took to start, milliseconds: seconds if no process keeps the GPUs initialised.
    pub init_ms: u64,
    /// Whether this was read within the step of a scheduled job, whose cgroup may hide GPUs that are on the bus.
    pub is_restricted: bool,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// `GPU-fc51bf99-…`.
    pub uuid: Option<String>,
    /// PCI address, `0000:1b:00.0`.
    pub pci: String,
    /// Product.
    pub name: String,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// VBIOS.
    pub vbios: Option<String>,
    /// Readings that failed with an error other than "not supported": name of the reading and NVML's text.
    pub failures: Vec<(String, String)>,
    /// Power drawn, watts.
    pub power_w: Option<f64>,
    /// Enforced power limit, watts.
    pub power_limit_w: Option<f64>,
    /// Factory power limit, watts.
    pub power_default_w: Option<f64>,
    /// Utilization, percent.
    pub utilization_pct: Option<u32>,
    /// Temperature, Celsius.
    pub temperature_c: Option<u32>,
    /// Temperature at which the driver slows it down, Celsius.
    pub slowdown_c: Option<u32>,
    /// Degrees Celsius below its target limit (T.Limit); negative if it is too hot.
    pub margin_c: Option<i32>,
    /// Margin at which the driver slows it down, usually a few degrees below zero.
    pub slowdown_margin_c: Option<i32>,
    /// Temperature of the device memory, Celsius.
    pub memory_temperature_c: Option<u32>,
    /// Device memory in use, MiB.
    pub memory_used_mib: Option<u64>,
    /// Device memory, MiB.
    pub memory_total_mib: Option<u64>,
    /// SM clock, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Highest SM clock, MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// Memory clock, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Performance state, 0 (highest) to 15.
    pub performance_state: Option<u32>,
    /// Bit mask of the reasons for the clocks (NVML's clocks event reasons).
    pub clock_reasons: Option<u64>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// `default`, `exclusive-thread`, `prohibited`, `exclusive-process`.
    pub compute_mode: Option<String>,
    /// MIG mode.
    pub mig: Option<bool>,
    /// Whether ECC is on.
    pub ecc: Option<bool>,
    /// Error counts since the driver was loaded or the GPU was reset.
    pub volatile: Ecc,
    /// Error counts over its lifetime.
    pub aggregate: Ecc,
    /// Whether its on-chip memories had more uncorrected errors over its lifetime than NVIDIA accepts.
    pub sram_threshold_exceeded: Option<bool>,
    /// Row remapping.
    pub rows: Option<Rows>,
    /// Action that the driver requests: `none`, `reset`, `reboot`, `drain-p2p`, `drain-and-reset`; an unknown number is
    /// kept as it is.
    pub recovery_action: Option<String>,
    /// PCIe link.
    pub pcie: PcieLink,
    /// NVLinks by number; empty if the GPU has none.
    pub links: Vec<NvLink>,
    /// Time between the two readings of the link and PCIe counters, milliseconds; None if there was only one.
    pub window_ms: Option<u64>,
    /// Fabric registration: `not-supported`, `not-started`, `in-progress`, `completed`.
    pub fabric_state: Option<String>,
    /// Result of the registration; 0 is success.
    pub fabric_status: Option<u32>,
    /// Health mask of the fabric, if the driver provides one: two bits each for degraded bandwidth, route recovery,
    /// route unhealthy and access timeout recovery (1 true, 2 false), then four bits for the configuration (above 1:
    /// wrong).
    pub fabric_health_mask: Option<u32>,
    /// NVML's summary of the mask: 1 healthy, 2 unhealthy, 3 limited capacity, 0 not supported.
    pub fabric_health_summary: Option<u32>,
    /// UUID of the cluster that the GPU belongs to; None if it is all zeros.
    pub fabric_cluster: Option<String>,
    /// Clique within the cluster.
    pub fabric_clique: Option<u32>,
    /// Processes that use it.
    pub processes: Vec<GpuProcess>,
}

/// Error counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ecc {
    /// Corrected errors of on-chip memories.
    pub sram_corrected: Option<u64>,
    /// Uncorrected errors of on-chip memories.
    pub sram_uncorrected: Option<u64>,
    /// Corrected errors of device memory.
    pub dram_corrected: Option<u64>,
    /// Uncorrected errors of device memory.
    pub dram_uncorrected: Option<u64>,
    /// All corrected errors.
    pub total_corrected: Option<u64>,
    /// All uncorrected errors.
    pub total_uncorrected: Option<u64>,
}

/// Row remapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rows {
    /// Rows remapped because of corrected errors.
    pub corrected: u32,
    /// Rows remapped because of uncorrected errors.
    pub uncorrected: u32,
    /// Whether a remapping waits for the next reset.
    pub pending: bool,
    /// Whether a remapping failed.
    pub failed: bool,
    /// Banks without a spare row; None if the driver provides no histogram.
    pub banks_exhausted: Option<u32>,
    /// Banks with few spare rows.
    pub banks_low: Option<u32>,
}

/// PCIe link of a GPU, as NVML sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PcieLink {
    /// Current generation; it drops when the GPU is idle.
    pub generation: Option<u32>,
    /// Highest generation that GPU and slot both support.
    pub generation_max: Option<u32>,
    /// Current number of lanes.
    pub width: Option<u32>,
    /// Highest number of lanes.
    pub width_max: Option<u32>,
    /// Packets retransmitted since the driver was loaded.
    pub replays: Option<u64>,
    /// The same at the second reading.
    pub replays_later: Option<u64>,
}

/// One NVLink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLink {
    /// Number.
    pub number: u32,
    /// Whether it is up.
    pub active: Option<bool>,
    /// PCI address of the device at the other end.
    pub remote: Option<String>,
    /// Kind of that device: `gpu`, `switch`, `ibm-npu`.
    pub remote_kind: Option<String>,
    /// Error counters: name, value at the first reading, value at the second reading some hundred milliseconds later.
    pub counters: Vec<(String, u64, Option<u64>)>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProcess {
    /// Pid in the pid namespace of the driver (the host's); in a container it may be another process's.
    pub pid: u32,
    /// Device memory in use, MiB.
    pub memory_mib: Option<u64>,
}
