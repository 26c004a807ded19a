//! Events of the kernel log: the machine's own account of its devices and processes.

use crate::{PciAddress, Pid, WallTime};

/// One event of a kernel log.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelEvent {
    /// Microseconds since boot, if the line has such a timestamp.
    pub uptime_us: Option<u64>,
    /// Boot of the source that it belongs to, counted from 0: uptimes of two boots do not compare.
    pub boot: u32,
    /// The device concerned: a GPU, a switch, a network card, or the port that reports for a device below it.
    pub device: Option<PciAddress>,
    /// What happened.
    pub kind: KernelEventKind,
}

/// Kinds of events.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelEventKind {
    /// `NVRM: Xid (PCI:0000:3b:00): 79, …`.
    Xid(Box<Xid>),
    /// `nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 …`.
    Sxid(Box<Sxid>),
    /// `GPU has fallen off the bus` without an Xid number.
    GpuLost,
    /// `RmInitAdapter failed!`, or the driver's probe failed.
    GpuInitFailed {
        /// `0x26:0x56:1463`, if printed.
        code: Option<Box<str>>,
    },
    /// The GPU's system processor does not answer, reported without an Xid number.
    GspSilent,
    /// A check inside the driver failed.
    DriverAssertion,
    /// User library and kernel module of the driver have different versions.
    DriverMismatch {
        /// Version of the program's library.
        client: Option<Box<str>>,
        /// Version of the module.
        module: Option<Box<str>>,
        /// The program.
        pid: Option<Pid>,
    },
    /// The driver was loaded: a boundary between what came before and after.
    DriverLoaded {
        /// `580.82.07`.
        version: Box<str>,
    },
    /// A report of PCIe error reporting.
    PcieError(Box<PcieError>),
    /// A hot-plug slot lost its link or its card.
    PcieLinkDown,
    /// A fault caught by the IOMMU.
    IommuFault,
    /// A machine check of a processor.
    MachineCheck {
        /// Whether the hardware failed to correct it.
        uncorrected: bool,
    },
    /// Errors of the host's memory, counted by its controller.
    MemoryErrors {
        /// Number of errors.
        count: u64,
        /// Whether they were uncorrectable.
        uncorrected: bool,
        /// Memory module, as printed.
        place: Box<str>,
    },
    /// A page of the host's memory is bad; the process that used it may be named.
    MemoryFailure {
        /// The process that is killed because of it.
        pid: Option<Pid>,
        /// Its name.
        name: Box<str>,
    },
    /// The out-of-memory killer ended a process.
    OomKill(Box<OomKill>),
    /// A network card or its firmware reports a problem.
    NicTrouble {
        /// `mlx5_core`, `bnxt_en`, `efa`.
        driver: Box<str>,
        /// Network interface or verbs device, if named.
        interface: Option<Box<str>>,
        /// Kind of problem.
        trouble: NicTrouble,
    },
    /// A link changed its state.
    Link {
        /// Network interface or verbs device; the card's driver if none is named.
        interface: Box<str>,
        /// The card's driver; empty if none is named.
        driver: Box<str>,
        /// New state.
        state: LinkState,
        /// Kind of link.
        medium: LinkMedium,
    },
    /// `INFO: task NAME:PID blocked for more than N seconds.`
    HungTask {
        /// Process.
        pid: Option<Pid>,
        /// Name, at most 15 characters.
        name: Box<str>,
        /// Seconds.
        seconds: u64,
    },
    /// A processor made no progress.
    Lockup {
        /// Process running on it.
        pid: Option<Pid>,
        /// Its name.
        name: Box<str>,
        /// Seconds, if printed.
        seconds: Option<u64>,
    },
    /// A program crashed: `python[123]: segfault at …`, `traps: …`.
    Crash {
        /// Process (or thread: the kernel prints the thread's id).
        pid: Option<Pid>,
        /// Name, at most 15 characters.
        name: Box<str>,
        /// `segfault`, `trap invalid opcode`, `general protection fault`.
        what: Box<str>,
        /// Library or program where it crashed.
        object: Option<Box<str>>,
    },
    /// Storage fails or hangs.
    Storage {
        /// File system, disk or server as printed.
        name: Box<str>,
        /// Kind of problem.
        trouble: StorageTrouble,
    },
    /// The machine's limit of open files was reached.
    FileLimit,
    /// Processors were slowed down because of heat.
    Throttled,
    /// The kernel itself failed.
    Panic,
    /// What the log covers; one for each source, cited as a whole.
    Covers(Box<KernelCoverage>),
}

/// One Xid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Xid {
    /// Number.
    pub code: u16,
    /// Process, if known.
    pub pid: Option<Pid>,
    /// Its name, if known.
    pub name: Option<Box<str>>,
    /// UUID of the GPU, if the log maps addresses to UUIDs.
    pub uuid: Option<Box<str>>,
    /// MIG instance: GPU instance.
    pub gpu_instance: Option<u32>,
    /// Text after pid and name.
    pub body: Box<str>,
    /// NVLink number, if the body names one; -1 = the whole port.
    pub link: Option<i32>,
    /// `Fatal` or `Nonfatal` in the body.
    pub fatal: Option<bool>,
    /// Unit of an NVLink 5 message: `NETIR_LINK_EVT`.
    pub unit: Option<Box<str>>,
    /// The words in parentheses of Xids 74 and 144 to 150.
    pub registers: Vec<u32>,
    /// `caused by previous Xid N`.
    pub caused_by: Option<u16>,
    /// Xid 154: number of the action that the GPU needs.
    pub recovery_action: Option<u8>,
    /// `RST: Yes` of Xids 94 and 95: a reset is needed.
    pub needs_reset: Option<bool>,
}

/// One SXid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sxid {
    /// Number of the switch on its host.
    pub switch: u32,
    /// Number, five digits.
    pub code: u32,
    /// `Fatal` or `Non-fatal`.
    pub fatal: Option<bool>,
    /// Port of the switch.
    pub link: Option<u32>,
    /// First error of a burst.
    pub first: bool,
    /// Text.
    pub text: Box<str>,
}

/// One report of PCIe error reporting (AER), of the machine's firmware (APEI) or of port containment (DPC).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PcieError {
    /// How bad.
    pub severity: PcieSeverity,
    /// Driver of the device that reports: `pcieport`, `nvidia`, `mlx5_core`.
    pub driver: Box<str>,
    /// `Physical Layer`, `Data Link Layer`, `Transaction Layer`.
    pub layer: Box<str>,
    /// Names of the bits that are set: `SDES`, `CmpltTO`.
    pub bits: Vec<Box<str>>,
    /// Whether recovery failed or does not exist.
    pub unrecovered: bool,
}

/// Severity of a PCIe error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PcieSeverity {
    /// Corrected by a replay.
    #[default]
    Corrected,
    /// A transaction was lost.
    NonFatal,
    /// The link is unreliable.
    Fatal,
}

/// One kill for lack of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OomKill {
    /// Victim, as the host counts pids.
    pub pid: Option<Pid>,
    /// Its name.
    pub name: Box<str>,
    /// Name of the process that asked for memory.
    pub invoked_by: Option<Box<str>>,
    /// Whether the limit of a memory cgroup was hit; None if the log does not say.
    pub cgroup_limit: Option<bool>,
    /// `CONSTRAINT_MEMCG`, as printed.
    pub constraint: Option<Box<str>>,
    /// The cgroup whose limit was hit.
    pub limited_cgroup: Option<Box<str>>,
    /// The victim's cgroup.
    pub cgroup: Option<Box<str>>,
    /// Address space, KiB.
    pub total_vm_kib: Option<u64>,
    /// Anonymous memory, KiB.
    pub anon_rss_kib: Option<u64>,
    /// Mapped files, KiB.
    pub file_rss_kib: Option<u64>,
    /// Shared memory, KiB.
    pub shmem_rss_kib: Option<u64>,
}

/// Kinds of problems of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NicTrouble {
    /// The firmware died, or the card no longer answers.
    Dead,
    /// A command to the firmware timed out.
    CommandTimeout,
    /// Packets cannot be sent.
    TransmitTimeout,
    /// The cable or its module is bad, hot or missing.
    Module,
    /// The slot provides too little power.
    Power,
    /// A completion with an error, which its program receives, too.
    Completion,
    /// Another error.
    Other,
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkState {
    /// It works.
    Up,
    /// It does not work.
    Down,
    /// The interface is being removed.
    Removed,
}

/// Kinds of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkMedium {
    /// Ethernet or an interface of unknown kind.
    Ethernet,
    /// InfiniBand port of a verbs device.
    InfiniBand,
    /// Port of a software bridge.
    Bridge,
}

/// Kinds of storage problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageTrouble {
    /// A file system became read-only or shut down.
    ReadOnly,
    /// Reads or writes fail.
    IoError,
    /// The device or server does not answer.
    NotResponding,
}

/// The extent of a kernel log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCoverage {
    /// First uptime of the last boot, microseconds.
    pub first_us: Option<u64>,
    /// Last uptime of the last boot, microseconds.
    pub last_us: Option<u64>,
    /// First wall time.
    pub first_at: Option<WallTime>,
    /// Last wall time.
    pub last_at: Option<WallTime>,
    /// Wall time of the last boot, if it can be derived.
    pub booted_at: Option<WallTime>,
    /// Number of lines.
    pub n_lines: u64,
}
