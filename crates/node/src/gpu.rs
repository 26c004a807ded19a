//! GPUs as NVML tells of them. None where NVML does not support the reading on that GPU or refuses it.

use serde::{Deserialize, Serialize};

/// NVML's word where the user's library and the kernel module are of two versions.
pub const VERSION_MISMATCH: &str = "Driver/library version mismatch";
/// NVML's word where the kernel module is not there.
pub const DRIVER_NOT_LOADED: &str = "Driver Not Loaded";
/// NVML's word where a GPU does not answer on the bus any more.
pub const GPU_IS_LOST: &str = "GPU is lost";
/// NVML's word where a GPU works again after a reset only.
pub const RESET_REQUIRED: &str = "GPU requires reset";

/// All GPUs of the driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// `580.95.05`.
    pub driver_version: Option<String>,
    /// Newest CUDA the driver supports: `13.0`.
    pub cuda_version: Option<String>,
    /// Version of the library.
    pub nvml_version: Option<String>,
    /// GPUs NVML counts, also those it then cannot open.
    pub n_counted: u32,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// Those it could not open: index and NVML's word (`GPU is lost`).
    pub failures: Vec<(u32, String)>,
    /// Version of the loaded kernel module (/sys/module/nvidia/version or /proc/driver/nvidia/version).
    pub module_version: Option<String>,
    /// How long NVML took to start, milliseconds: seconds where no process keeps the GPUs initialised.
    pub init_ms: u64,
    /// Read from within the step of a scheduled job, whose cgroup may hide GPUs that the bus shows.
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
    /// Readings that ended in an error other than "not supported": name of the reading and NVML's word.
    pub failures: Vec<(String, String)>,
    /// Watts.
    pub power_w: Option<f64>,
    /// Enforced limit, watts.
    pub power_limit_w: Option<f64>,
    /// Factory limit, watts.
    pub power_default_w: Option<f64>,
    /// Percent.
    pub utilization_pct: Option<u32>,
    /// Celsius.
    pub temperature_c: Option<u32>,
    /// Where the driver slows it down, Celsius.
    pub slowdown_c: Option<u32>,
    /// Degrees left until its target limit (T.Limit); below zero it is too hot.
    pub margin_c: Option<i32>,
    /// Margin at which the driver slows it down, usually a few degrees below zero.
    pub slowdown_margin_c: Option<i32>,
    /// Device memory, Celsius.
    pub memory_temperature_c: Option<u32>,
    /// MiB.
    pub memory_used_mib: Option<u64>,
    /// MiB.
    pub memory_total_mib: Option<u64>,
    /// MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Highest, MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// MHz.
    pub memory_clock_mhz: Option<u32>,
    /// 0 (most) to 15.
    pub performance_state: Option<u32>,
    /// Bit mask of the reasons for the clocks (NVML's clocks event reasons).
    pub clock_reasons: Option<u64>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// `default`, `exclusive-thread`, `prohibited`, `exclusive-process`.
    pub compute_mode: Option<String>,
    /// MIG mode.
    pub mig: Option<bool>,
    /// ECC switched on.
    pub ecc: Option<bool>,
    /// Error counts since the driver was loaded or the GPU was reset.
    pub volatile: Ecc,
    /// Error counts of its life.
    pub aggregate: Ecc,
    /// More uncorrected errors of on-chip memories in its life than NVIDIA accepts.
    pub sram_threshold_exceeded: Option<bool>,
    /// Row remapping.
    pub rows: Option<Rows>,
    /// What the driver wants done: `none`, `reset`, `reboot`, `drain-p2p`, `drain-and-reset`; a number that is not known
    /// yet stands as it is.
    pub recovery_action: Option<String>,
    /// PCIe.
    pub pcie: PcieLink,
    /// NVLinks, by number. Empty where the GPU has none.
    pub links: Vec<NvLink>,
    /// Time between the two looks at the counters of links and of PCIe, milliseconds; None if there was one look.
    pub window_ms: Option<u64>,
    /// Fabric registration: `not-supported`, `not-started`, `in-progress`, `completed`.
    pub fabric_state: Option<String>,
    /// What the registration ended with; 0 is success.
    pub fabric_status: Option<u32>,
    /// Health mask of the fabric, where the driver gives one: two bits each for degraded bandwidth, route recovery,
    /// route unhealthy and access timeout recovery (1 true, 2 false), then four for the configuration (above 1: wrong).
    pub fabric_health_mask: Option<u32>,
    /// NVML's summary of it: 1 healthy, 2 unhealthy, 3 limited capacity, 0 not supported.
    pub fabric_health_summary: Option<u32>,
    /// Cluster the GPU belongs to, as a UUID; None where it is all zeros.
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
    /// On-chip memories, mended.
    pub sram_corrected: Option<u64>,
    /// On-chip memories, not mended.
    pub sram_uncorrected: Option<u64>,
    /// Device memory, mended.
    pub dram_corrected: Option<u64>,
    /// Device memory, not mended.
    pub dram_uncorrected: Option<u64>,
    /// All, mended.
    pub total_corrected: Option<u64>,
    /// All, not mended.
    pub total_uncorrected: Option<u64>,
}

/// Row remapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rows {
    /// For errors that were mended.
    pub corrected: u32,
    /// For errors that were not.
    pub uncorrected: u32,
    /// One waits for the next reset.
    pub pending: bool,
    /// One failed.
    pub failed: bool,
    /// Banks with no spare row left; None where the driver gives no histogram.
    pub banks_exhausted: Option<u32>,
    /// Banks with few left.
    pub banks_low: Option<u32>,
}

/// PCIe link of a GPU, as NVML sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PcieLink {
    /// Generation now; drops when the GPU idles.
    pub generation: Option<u32>,
    /// Highest of GPU and slot together.
    pub generation_max: Option<u32>,
    /// Lanes now.
    pub width: Option<u32>,
    /// Lanes, most.
    pub width_max: Option<u32>,
    /// Packets sent again since the driver was loaded.
    pub replays: Option<u64>,
    /// The same at the second look.
    pub replays_later: Option<u64>,
}

/// One NVLink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLink {
    /// Number.
    pub number: u32,
    /// Up.
    pub active: Option<bool>,
    /// What is at the other end: PCI address.
    pub remote: Option<String>,
    /// `gpu`, `switch`, `ibm-npu`.
    pub remote_kind: Option<String>,
    /// Error counters: name, value at the first look, value at the second look some hundred milliseconds later.
    pub counters: Vec<(String, u64, Option<u64>)>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProcess {
    /// In the pid namespace of the driver (the host's); in a container it may name a stranger.
    pub pid: u32,
    /// MiB.
    pub memory_mib: Option<u64>,
}
