//! GPUs, from nvidia-smi, dcgmi and the driver's services.
//!
//! Every field is the printed value; None if the tool printed nothing, `N/A` or an error. Counters run since the
//! driver was loaded or the GPU was reset (volatile), or since the GPU was made (aggregate).

use crate::{PciAddress, Pid, WallTime};

/// One output of nvidia-smi.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTable {
    /// Which output it is.
    pub form: GpuForm,
    /// When it ran.
    pub at: Option<WallTime>,
    /// Driver version.
    pub driver_version: Option<Box<str>>,
    /// CUDA version that the driver supports.
    pub cuda_version: Option<Box<str>>,
    /// Number of attached GPUs according to the driver.
    pub attached: Option<u32>,
    /// GPUs.
    pub gpus: Vec<GpuRow>,
    /// (GPU index, process) pairs of the process table.
    pub processes: Vec<(u32, Pid)>,
    /// Paths between pairs of GPUs (`topo -m`), or their peer access (`topo -p2p`).
    pub paths: Vec<GpuPath>,
    /// Paths between GPUs and network cards (`topo -m`).
    pub card_paths: Vec<CardPath>,
    /// Messages of nvidia-smi instead of a table, or about a GPU that it could not query (`Unable to determine the
    /// device handle for GPU …`): line and text.
    pub failures: Vec<(u32, Box<str>)>,
    /// The output ends early: GPUs that it does not list may have followed.
    pub is_cut: bool,
}

/// Outputs of nvidia-smi.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuForm {
    /// The table it prints without arguments.
    #[default]
    Table,
    /// `-q`.
    Query,
    /// `-q -x`.
    Xml,
    /// `--query-gpu`, `--query-remapped-rows`, `--query-compute-apps`.
    Csv,
    /// `-L`.
    List,
    /// `nvlink -s`, `-e`, `-R`, `-c`.
    NvLink,
    /// `topo -m`, `topo -p2p`.
    Topology,
    /// `dmon`.
    Monitor,
    /// `pmon`.
    ProcessMonitor,
    /// Samples of the DCGM exporter.
    Metrics,
    /// The table of rocm-smi.
    RocmSmi,
}

/// One GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuRow {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// NVML's index, if printed or evident from the order; indices follow the PCI addresses.
    pub index: Option<u32>,
    /// `GPU-fc51bf99-…`.
    pub uuid: Option<Box<str>>,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// Product.
    pub name: Option<Box<str>>,
    /// Power draw, watts.
    pub power_w: Option<f32>,
    /// Enforced power limit, watts.
    pub power_limit_w: Option<f32>,
    /// Factory power limit, watts.
    pub power_default_w: Option<f32>,
    /// Utilisation, percent.
    pub utilization_pct: Option<f32>,
    /// Temperature, Celsius.
    pub temperature_c: Option<f32>,
    /// Temperature of its memory, Celsius.
    pub memory_temperature_c: Option<f32>,
    /// Degrees Celsius until the GPU must slow down (`T.Limit`).
    pub temperature_left_c: Option<f32>,
    /// Memory used, MiB.
    pub memory_used_mib: Option<u64>,
    /// Memory of the GPU, MiB.
    pub memory_total_mib: Option<u64>,
    /// Clock of the multiprocessors, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// The highest such clock, MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Performance state, 0 (highest) to 15.
    pub performance_state: Option<u8>,
    /// Reasons for the current clocks.
    pub clock_reasons: Option<ClockReasons>,
    /// Accumulated time of slowdowns, by reason.
    pub held_down: HeldDown,
    /// Uncorrected memory errors since the driver was loaded, of all memories; None if not counted.
    pub uncorrected_errors: Option<u64>,
    /// Error counters since the driver was loaded or the GPU was reset.
    pub volatile: EccCounts,
    /// Error counters over the GPU's lifetime.
    pub aggregate: EccCounts,
    /// Whether SRAM had more uncorrectable errors than NVIDIA accepts.
    pub sram_threshold_exceeded: Option<bool>,
    /// Whether some memory cannot be repaired.
    pub unrepairable_memory: Option<bool>,
    /// Rows of the memory that were remapped.
    pub rows: RowRemapping,
    /// Pages that were retired (GPUs before Ampere).
    pub pages: RetiredPages,
    /// PCIe link.
    pub pcie: PcieLink,
    /// NVLink, by link.
    pub links: Vec<NvLink>,
    /// Whether it joined the NVLink fabric: `Completed`, `In Progress`, `Not Started`, `N/A`.
    pub fabric_state: Option<Box<str>>,
    /// Result of joining: `Success` or an error.
    pub fabric_status: Option<Box<str>>,
    /// Overall fabric health, and the problems: `Unhealthy`, `Bandwidth: Degraded`.
    pub fabric_health: Vec<Box<str>>,
    /// Action that the driver requests: `None`, `Reset`, `Reboot`, `Drain P2P`, `Drain and Reset`.
    pub recovery_action: Option<Box<str>>,
    /// Compute mode: `Default`, `Exclusive_Process`, `Prohibited`.
    pub compute_mode: Option<Box<str>>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// MIG mode.
    pub mig: Option<bool>,
    /// Whether a field reads `ERR!` or `[Unknown Error]`: the driver cannot reach the GPU.
    pub has_error: bool,
}

/// Reasons for the clocks (NVML's bit mask of clock event reasons).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReasons(pub u64);

impl ClockReasons {
    /// The GPU is idle.
    pub const IDLE: u64 = 0x1;
    /// Clocks set by a user.
    pub const USER: u64 = 0x2;
    /// The power limit.
    pub const POWER_CAP: u64 = 0x4;
    /// Hardware slowdown: too hot, power brake, or a power draw beyond the board's capability.
    pub const HW_SLOWDOWN: u64 = 0x8;
    /// Clocks synchronised within a group.
    pub const SYNC_BOOST: u64 = 0x10;
    /// The driver keeps it below its highest operating temperature.
    pub const SW_THERMAL: u64 = 0x20;
    /// Hardware slows it down: too hot.
    pub const HW_THERMAL: u64 = 0x40;
    /// Hardware slows it down at the request of the power supply or rack.
    pub const HW_POWER_BRAKE: u64 = 0x80;
    /// A display clock setting.
    pub const DISPLAY: u64 = 0x100;

    /// Whether any reason of `mask` is set.
    pub fn any(self, mask: u64) -> bool {
        self.0 & mask != 0
    }
}

/// Accumulated time of slowdowns, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldDown {
    /// Because of the power limit.
    pub power_cap_us: Option<u64>,
    /// By the driver, because of heat.
    pub sw_thermal_us: Option<u64>,
    /// By hardware, because of heat.
    pub hw_thermal_us: Option<u64>,
    /// By hardware, because of a power brake.
    pub hw_power_brake_us: Option<u64>,
}

/// Errors of the GPU's memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EccCounts {
    /// Corrected errors of on-chip memories.
    pub sram_corrected: Option<u64>,
    /// Uncorrected errors of on-chip memories.
    pub sram_uncorrected: Option<u64>,
    /// Corrected errors of device memory.
    pub dram_corrected: Option<u64>,
    /// Uncorrected errors of device memory.
    pub dram_uncorrected: Option<u64>,
    /// Corrected errors of all memories, if only the sum is printed.
    pub total_corrected: Option<u64>,
    /// Uncorrected errors of all memories, if only the sum is printed.
    pub total_uncorrected: Option<u64>,
}

impl EccCounts {
    /// Uncorrected errors of all memories.
    pub fn uncorrected(&self) -> Option<u64> {
        self.total_uncorrected.max(sum(self.sram_uncorrected, self.dram_uncorrected))
    }

    /// Corrected errors of all memories.
    pub fn corrected(&self) -> Option<u64> {
        self.total_corrected.max(sum(self.sram_corrected, self.dram_corrected))
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        _ => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

/// Row remapping (Ampere and later).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRemapping {
    /// Rows remapped because of corrected errors.
    pub corrected: Option<u64>,
    /// Rows remapped because of uncorrected errors.
    pub uncorrected: Option<u64>,
    /// Whether a remapping waits for the next reset.
    pub pending: Option<bool>,
    /// Whether a remapping failed: NVIDIA accepts the GPU for return.
    pub failed: Option<bool>,
    /// Banks without a spare row.
    pub banks_exhausted: Option<u64>,
    /// Banks with few spare rows.
    pub banks_low: Option<u64>,
}

/// Page retirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetiredPages {
    /// Pages retired because of corrected (single-bit) errors.
    pub single_bit: Option<u64>,
    /// Pages retired because of uncorrected (double-bit) errors.
    pub double_bit: Option<u64>,
    /// Whether pages wait for the next reset.
    pub pending: Option<bool>,
}

/// PCIe link of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLink {
    /// Current generation; it drops when the GPU is idle.
    pub generation: Option<u8>,
    /// Highest generation that GPU and slot both support.
    pub generation_max: Option<u8>,
    /// Current number of lanes.
    pub width: Option<u8>,
    /// Highest number of lanes of the GPU.
    pub width_max: Option<u8>,
    /// Packets retransmitted since the last reset.
    pub replays: Option<u64>,
    /// How often the replay counter overflowed.
    pub replay_rollovers: Option<u64>,
}

/// One NVLink of a GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvLink {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Number.
    pub number: u32,
    /// Whether it is up, if printed.
    pub active: Option<bool>,
    /// Speed in one direction, GB/s.
    pub speed_gb_s: Option<f32>,
    /// Packets retransmitted.
    pub replays: Option<u64>,
    /// Number of retrainings of the link.
    pub recoveries: Option<u64>,
    /// Number of failed retrainings (NVLink 5).
    pub failed_recoveries: Option<u64>,
    /// Packets with a wrong checksum.
    pub crc_errors: Option<u64>,
    /// Other error counters that are not zero, as printed.
    pub others: Vec<(Box<str>, u64)>,
}

/// The connection between two GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPath {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Index of one GPU.
    pub from: u32,
    /// Index of the other one.
    pub to: u32,
    /// `NV18`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; of peer access `OK`, `CNS`, `GNS`, `TNS`, `NS`.
    pub kind: Box<str>,
}

/// The connection between a GPU and a network card.
#[derive(Clone, Debug, PartialEq)]
pub struct CardPath {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Index of the GPU.
    pub gpu: u32,
    /// The card: `mlx5_0`; `NIC0` if the legend does not name it.
    pub card: Box<str>,
    /// `PIX`, `PXB`, `PHB`, `NODE`, `SYS`.
    pub kind: Box<str>,
}

impl GpuPath {
    /// Over NVLink.
    pub fn is_nvlink(&self) -> bool {
        self.kind.starts_with("NV")
    }
}

/// A run of dcgmi's diagnostics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTests {
    /// Version of DCGM.
    pub dcgm_version: Option<Box<str>>,
    /// Driver version that it detected.
    pub driver_version: Option<Box<str>>,
    /// Results, in file order.
    pub results: Vec<GpuTest>,
}

/// Result of one test on one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTest {
    /// Line in the source, counted from 1; 0 in JSON.
    pub line: u32,
    /// Test (`memory`, `PCIe`, `Denylist`).
    pub name: Box<str>,
    /// GPU, if the test is about one.
    pub gpu: Option<u32>,
    /// Outcome.
    pub status: GpuTestStatus,
    /// Text of its warnings.
    pub warnings: Vec<Box<str>>,
}

/// Outcome of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuTestStatus {
    /// Passed.
    Pass,
    /// Failed.
    Fail,
    /// Passed with a remark.
    Warn,
    /// Not run.
    #[default]
    Skip,
}

/// A service of the driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuService {
    /// `nvidia-fabricmanager`, `nvidia-persistenced`, `nvidia-imex`.
    pub name: Box<str>,
    /// State according to systemd: `active`, `inactive`, `failed`, `activating`, `not-found`; None in a log.
    pub active: Option<Box<str>>,
    /// `running`, `dead`, `Result: exit-code` and the like, as printed.
    pub detail: Box<str>,
    /// Version of the service, if stated.
    pub version: Option<Box<str>>,
    /// Driver version that it found, if it reports a mismatch.
    pub driver_version: Option<Box<str>>,
    /// Errors that it reports: line, time and text.
    pub errors: Vec<(u32, Option<WallTime>, Box<str>)>,
}
