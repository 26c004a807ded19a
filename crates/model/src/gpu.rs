//! GPUs: what nvidia-smi, dcgmi and the driver's services say of them.
//!
//! Every field is what a tool printed; None where it printed nothing, `N/A` or an error. A counter counts since the
//! driver was loaded or the GPU was reset (volatile) or since the GPU was made (aggregate).

use crate::{PciAddress, Pid, WallTime};

/// One output of nvidia-smi.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTable {
    /// Which of its outputs.
    pub form: GpuForm,
    /// When it ran.
    pub at: Option<WallTime>,
    /// Driver version.
    pub driver_version: Option<Box<str>>,
    /// CUDA version the driver supports.
    pub cuda_version: Option<Box<str>>,
    /// GPUs that the driver says are attached.
    pub attached: Option<u32>,
    /// GPUs.
    pub gpus: Vec<GpuRow>,
    /// (GPU index, process) pairs of the process table.
    pub processes: Vec<(u32, Pid)>,
    /// Paths between pairs of GPUs (`topo -m`), or their peer access (`topo -p2p`).
    pub paths: Vec<GpuPath>,
    /// What nvidia-smi said instead of a table, or of a GPU it could not ask (`Unable to determine the device handle
    /// for GPU …`): line and text.
    pub failures: Vec<(u32, Box<str>)>,
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
}

/// One GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuRow {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Index of NVML, if printed or plain from the order; indexes go by PCI address.
    pub index: Option<u32>,
    /// `GPU-fc51bf99-…`.
    pub uuid: Option<Box<str>>,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// Product.
    pub name: Option<Box<str>>,
    /// Power draw, watts.
    pub power_w: Option<f32>,
    /// Power limit in force, watts.
    pub power_limit_w: Option<f32>,
    /// Power limit the GPU leaves the factory with, watts.
    pub power_default_w: Option<f32>,
    /// Utilisation, percent.
    pub utilization_pct: Option<f32>,
    /// Temperature, Celsius.
    pub temperature_c: Option<f32>,
    /// Temperature of its memory, Celsius.
    pub memory_temperature_c: Option<f32>,
    /// Degrees left until the GPU must slow down, Celsius (`T.Limit`).
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
    /// Performance state, 0 (most) to 15.
    pub performance_state: Option<u8>,
    /// Why the clocks are what they are.
    pub clock_reasons: Option<ClockReasons>,
    /// How long they were held down, by reason.
    pub held_down: HeldDown,
    /// Uncorrected memory errors since the driver was loaded, of all memories; None if not counted.
    pub uncorrected_errors: Option<u64>,
    /// Error counters since the driver was loaded or the GPU was reset.
    pub volatile: EccCounts,
    /// Error counters of the GPU's life.
    pub aggregate: EccCounts,
    /// SRAM had more uncorrectable errors than NVIDIA accepts.
    pub sram_threshold_exceeded: Option<bool>,
    /// Memory that no repair can mend.
    pub unrepairable_memory: Option<bool>,
    /// Rows of the memory that were replaced.
    pub rows: RowRemapping,
    /// Pages that were taken out of use (GPUs before Ampere).
    pub pages: RetiredPages,
    /// PCIe.
    pub pcie: PcieLink,
    /// NVLink, by link.
    pub links: Vec<NvLink>,
    /// `Completed`, `In Progress`, `Not Started`, `N/A`: whether it joined the NVLink fabric.
    pub fabric_state: Option<Box<str>>,
    /// `Success`, or the error it ended with.
    pub fabric_status: Option<Box<str>>,
    /// Fabric health as a whole, and the points that are amiss: `Unhealthy`, `Bandwidth: Degraded`.
    pub fabric_health: Vec<Box<str>>,
    /// What the driver wants done: `None`, `Reset`, `Reboot`, `Drain P2P`, `Drain and Reset`.
    pub recovery_action: Option<Box<str>>,
    /// `Default`, `Exclusive_Process`, `Prohibited`.
    pub compute_mode: Option<Box<str>>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// MIG mode.
    pub mig: Option<bool>,
    /// Some field reads `ERR!` or `[Unknown Error]`: the driver does not reach the GPU.
    pub has_error: bool,
}

/// Reasons for the clocks (NVML's bit mask of clock event reasons).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReasons(pub u64);

impl ClockReasons {
    /// Nothing to do.
    pub const IDLE: u64 = 0x1;
    /// Clocks that a user set.
    pub const USER: u64 = 0x2;
    /// The power limit.
    pub const POWER_CAP: u64 = 0x4;
    /// Hardware slowdown: too hot, power brake, or a power draw that the board cannot give.
    pub const HW_SLOWDOWN: u64 = 0x8;
    /// Equal clocks of a group.
    pub const SYNC_BOOST: u64 = 0x10;
    /// The driver keeps it below its highest operating temperature.
    pub const SW_THERMAL: u64 = 0x20;
    /// Hardware slows it down: too hot.
    pub const HW_THERMAL: u64 = 0x40;
    /// Hardware slows it down: the power supply or rack asked for it.
    pub const HW_POWER_BRAKE: u64 = 0x80;
    /// A display.
    pub const DISPLAY: u64 = 0x100;

    /// Whether one of `mask` holds.
    pub fn any(self, mask: u64) -> bool {
        self.0 & mask != 0
    }
}

/// Accumulated time that clocks were held down, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldDown {
    /// By the power limit.
    pub power_cap_us: Option<u64>,
    /// By the driver, too hot.
    pub sw_thermal_us: Option<u64>,
    /// By hardware, too hot.
    pub hw_thermal_us: Option<u64>,
    /// By hardware, power brake.
    pub hw_power_brake_us: Option<u64>,
}

/// Errors of the GPU's memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EccCounts {
    /// On-chip memories, mended.
    pub sram_corrected: Option<u64>,
    /// On-chip memories, not mended.
    pub sram_uncorrected: Option<u64>,
    /// Device memory, mended.
    pub dram_corrected: Option<u64>,
    /// Device memory, not mended.
    pub dram_uncorrected: Option<u64>,
    /// All memories, mended, where only the sum is printed.
    pub total_corrected: Option<u64>,
    /// All memories, not mended, where only the sum is printed.
    pub total_uncorrected: Option<u64>,
}

impl EccCounts {
    /// Errors that were not mended, of all memories.
    pub fn uncorrected(&self) -> Option<u64> {
        self.total_uncorrected.max(sum(self.sram_uncorrected, self.dram_uncorrected))
    }

    /// Errors that were mended, of all memories.
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
    /// Rows replaced because of errors that were mended.
    pub corrected: Option<u64>,
    /// Rows replaced because of errors that were not.
    pub uncorrected: Option<u64>,
    /// A row waits for the next reset to be replaced.
    pub pending: Option<bool>,
    /// Replacing a row has failed: NVIDIA takes the GPU back.
    pub failed: Option<bool>,
    /// Banks that have no spare row left.
    pub banks_exhausted: Option<u64>,
    /// Banks that have few spare rows left.
    pub banks_low: Option<u64>,
}

/// Page retirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetiredPages {
    /// For errors that were mended.
    pub single_bit: Option<u64>,
    /// For errors that were not.
    pub double_bit: Option<u64>,
    /// Pages wait for the next reset.
    pub pending: Option<bool>,
}

/// PCIe link of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLink {
    /// Generation now; it drops when the GPU idles.
    pub generation: Option<u8>,
    /// Highest generation of GPU and slot together.
    pub generation_max: Option<u8>,
    /// Lanes now.
    pub width: Option<u8>,
    /// Lanes of the GPU.
    pub width_max: Option<u8>,
    /// Packets sent again since the last reset.
    pub replays: Option<u64>,
    /// How often the count of replays ran over.
    pub replay_rollovers: Option<u64>,
}

/// One NVLink of a GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvLink {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Number.
    pub number: u32,
    /// Whether it is up, if told.
    pub active: Option<bool>,
    /// Its speed in one direction, GB/s.
    pub speed_gb_s: Option<f32>,
    /// Packets sent again.
    pub replays: Option<u64>,
    /// How often the link was trained again.
    pub recoveries: Option<u64>,
    /// How often training again failed (NVLink 5).
    pub failed_recoveries: Option<u64>,
    /// Packets with a wrong checksum.
    pub crc_errors: Option<u64>,
    /// Other error counters that are not zero, as printed.
    pub others: Vec<(Box<str>, u64)>,
}

/// What lies between two GPUs.
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

/// A run of dcgmi's diagnostics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTests {
    /// Version of DCGM.
    pub dcgm_version: Option<Box<str>>,
    /// Driver version it detected.
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
    /// GPU, if it is of one.
    pub gpu: Option<u32>,
    /// What came out.
    pub status: GpuTestStatus,
    /// What it warns of.
    pub warnings: Vec<Box<str>>,
}

/// Outcome of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuTestStatus {
    /// Good.
    Pass,
    /// Bad.
    Fail,
    /// Good with a remark.
    Warn,
    /// Not made.
    #[default]
    Skip,
}

/// A service of the driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuService {
    /// `nvidia-fabricmanager`, `nvidia-persistenced`, `nvidia-imex`.
    pub name: Box<str>,
    /// systemd's word: `active`, `inactive`, `failed`, `activating`, `not-found`; None in a log.
    pub active: Option<Box<str>>,
    /// `running`, `dead`, `Result: exit-code` and the like, as printed.
    pub detail: Box<str>,
    /// Version the service states.
    pub version: Option<Box<str>>,
    /// Driver version it found, where it says that the two do not match.
    pub driver_version: Option<Box<str>>,
    /// What it says went wrong: line, time and text.
    pub errors: Vec<(u32, Option<WallTime>, Box<str>)>,
}
