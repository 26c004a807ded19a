//! Processes: stacks, process lists, GPU tables, limits.

use crate::{Frame, PciAddress, Pid, WallTime};

/// Stacks of one process, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessStacks {
    /// Process, if the dump says so.
    pub pid: Option<Pid>,
    /// Command line, if printed.
    pub command: Option<Box<str>>,
    /// Tool that took them.
    pub tool: StackTool,
    /// Threads, in file order.
    pub threads: Vec<ThreadStack>,
    /// The tool failed on this process: what it said (`process is stopped (T)`).
    pub failure: Option<Box<str>>,
}

/// Who took a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackTool {
    /// py-spy dump.
    #[default]
    PySpy,
    /// Python's faulthandler, on request or on a crash.
    Faulthandler,
    /// gdb.
    Gdb,
    /// `/proc/PID/stack`.
    Kernel,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadStack {
    /// Thread id: native id (py-spy, gdb) or pthread handle (faulthandler).
    pub tid: Option<u64>,
    /// Name.
    pub name: Option<Box<str>>,
    /// py-spy's `active`/`idle`; None where the tool does not tell.
    pub active: Option<bool>,
    /// faulthandler's `Current thread`: the one that crashed.
    pub current: bool,
    /// Holds the GIL, where the tool tells.
    pub holds_gil: bool,
    /// Innermost first. Native frames have an empty or library file.
    pub frames: Vec<Frame>,
}

/// A `ps` listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessTable {
    /// Rows.
    pub rows: Vec<ProcessRow>,
}

/// One process of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRow {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Process.
    pub pid: Option<Pid>,
    /// Parent.
    pub ppid: Option<Pid>,
    /// `STAT` as printed; the first letter is the state.
    pub state: Box<str>,
    /// Kernel function it sleeps in; empty if `-` or not printed.
    pub wchan: Box<str>,
    /// Seconds since its start, if printed.
    pub elapsed_s: Option<u64>,
    /// CPU share, percent, if printed.
    pub cpu_pct: Option<f32>,
    /// Command line.
    pub command: Box<str>,
}

/// nvidia-smi's default table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTable {
    /// When it ran.
    pub at: Option<WallTime>,
    /// Driver version.
    pub driver_version: Option<Box<str>>,
    /// CUDA version the driver supports.
    pub cuda_version: Option<Box<str>>,
    /// GPUs.
    pub gpus: Vec<GpuRow>,
    /// (GPU index, process) pairs of the process table.
    pub processes: Vec<(u32, Pid)>,
    /// What nvidia-smi said instead of a table, or of a GPU it could not ask (`Unable to determine the device handle
    /// for GPU …`): line and text.
    pub failures: Vec<(u32, Box<str>)>,
}

/// One GPU of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuRow {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Index.
    pub index: u32,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// Power draw, watts.
    pub power_w: Option<f32>,
    /// Utilisation, percent.
    pub utilization_pct: Option<f32>,
    /// Temperature, Celsius.
    pub temperature_c: Option<f32>,
    /// Memory used, MiB.
    pub memory_used_mib: Option<u64>,
    /// Memory of the GPU, MiB.
    pub memory_total_mib: Option<u64>,
    /// Uncorrected memory errors since the driver was loaded; None if not counted.
    pub uncorrected_errors: Option<u64>,
    /// Some field reads `ERR!`: the driver does not reach the GPU.
    pub has_error: bool,
}

/// One resource limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Line in the source.
    pub line: u32,
    /// What.
    pub kind: LimitKind,
    /// Soft limit in its own unit (bytes for locked memory, count for files); None = unlimited.
    pub soft: Option<u64>,
    /// Hard limit; None = unlimited, or not printed (`ulimit -a`).
    pub hard: Option<u64>,
}

/// Limits that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// Locked memory, bytes.
    LockedMemory,
    /// Open files.
    OpenFiles,
}
