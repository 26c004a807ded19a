//! A node's memory, mounts, modules, services and what its scheduler says.

use crate::{PciDevice, Pid, WallTime};

/// What a system tool says.
#[derive(Clone, Debug, PartialEq)]
pub enum SystemFact {
    /// A row of df.
    Mount(Mount),
    /// `ls -l` of a folder.
    Listing(Listing),
    /// Files of a memory cgroup.
    MemoryGroup(MemoryGroup),
    /// cpu.stat of a cgroup.
    CpuGroup(CpuGroup),
    /// `free`, /proc/meminfo.
    Memory(Memory),
    /// `lsmod`, /proc/modules: names, sorted.
    Modules(Vec<Box<str>>),
    /// `lspci -vvv`.
    Pci(Vec<PciDevice>),
    /// Options the kernel was started with (/proc/cmdline).
    KernelOptions(Box<str>),
    /// NUMA nodes: (node, CPUs, MiB).
    Numa(Vec<(u32, u32, u64)>),
    /// Packages with their versions: pip, conda, rpm, dpkg, `nvcc --version`.
    Packages(Vec<(Box<str>, Box<str>)>),
    /// A service of systemd.
    Service(Service),
    /// What a scheduler says of a job, a step or a node: Slurm, Kubernetes.
    Scheduler(SchedulerEvent),
}

/// A row of df.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mount {
    /// What is mounted.
    pub device: Box<str>,
    /// Where.
    pub at: Box<str>,
    /// Bytes, or inodes where `is_inodes`.
    pub size: u64,
    /// Used.
    pub used: u64,
    /// Available.
    pub available: u64,
    /// `df -i`: inodes are counted, not bytes.
    pub is_inodes: bool,
}

/// `ls -l` of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The folder, if a heading or a shell's line tells.
    pub folder: Option<Box<str>>,
    /// Mode and owner of the folder itself (`.`): `drwxrwxrwt`, `root`.
    pub own: Option<(Box<str>, Box<str>)>,
    /// Files.
    pub files: Vec<ListedFile>,
}

/// A file of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedFile {
    /// Line.
    pub line: u32,
    /// `-rw-------`.
    pub mode: Box<str>,
    /// Owner.
    pub owner: Box<str>,
    /// Bytes.
    pub size: u64,
    /// When it was last written, as printed.
    pub when: Box<str>,
    /// Name.
    pub name: Box<str>,
}

/// What the files of a memory cgroup say; each with its line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryGroup {
    /// The group, if a heading tells.
    pub path: Option<Box<str>>,
    /// Limit, bytes; None inside = `max`.
    pub max: Option<(u32, Option<u64>)>,
    /// Used now, bytes.
    pub current: Option<(u32, u64)>,
    /// Largest use, bytes.
    pub peak: Option<(u32, u64)>,
    /// How often the limit was hit with nothing left to reclaim.
    pub oom: Option<(u32, u64)>,
    /// Processes killed for it.
    pub oom_kill: Option<(u32, u64)>,
    /// Bytes of shared memory, which counts too.
    pub shmem: Option<(u32, u64)>,
}

/// How often a cgroup used up its share of processor time, since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuGroup {
    /// Line of the first figure.
    pub line: u32,
    /// The group, if a heading tells.
    pub path: Option<Box<str>>,
    /// Periods in which something ran.
    pub periods: u64,
    /// Periods in which it was held back.
    pub throttled: u64,
    /// Time for which it was held back, of all its processors, microseconds.
    pub throttled_us: u64,
}

/// Memory of the node, bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// All.
    pub total: u64,
    /// What a new process could have.
    pub available: u64,
    /// Shared.
    pub shared: Option<u64>,
}

/// A service of systemd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// `nvidia-fabricmanager.service`.
    pub name: Box<str>,
    /// `active`, `inactive`, `failed`, `activating`.
    pub state: Box<str>,
    /// In the parentheses: `running`, `dead`, `Result: exit-code`.
    pub detail: Box<str>,
}

/// What a scheduler says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerEvent {
    /// `Slurm` or `Kubernetes`.
    pub scheduler: Box<str>,
    /// What happened.
    pub kind: SchedulerKind,
    /// Job, step or pod: `812.0`, `pod/worker-3`.
    pub subject: Box<str>,
    /// Node, if named.
    pub node: Option<Box<str>>,
    /// Process, if named.
    pub pid: Option<Pid>,
    /// Exit code or signal, if printed.
    pub exit_code: Option<i64>,
    /// Container of the pod, if named.
    pub container: Option<Box<str>>,
    /// Containers that the pod has, if listed.
    pub n_containers: Option<u32>,
    /// When it ended, if printed: by the clock of whoever asked, with the zone's distance in its error.
    pub ended_at: Option<WallTime>,
}

/// What a scheduler says happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchedulerKind {
    /// Killed for lack of memory.
    OutOfMemory,
    /// Taken away for another job.
    Preempted,
    /// The pod was evicted: the node lacked memory or disk.
    Evicted,
    /// The node failed or is not ready.
    NodeFail,
    /// The limit of time was reached.
    TimeLimit,
    /// Cancelled by somebody.
    Cancelled,
    /// It could not be placed: too few GPUs, a full node.
    Unschedulable,
    /// Failed, with nothing more told.
    #[default]
    Failed,
    /// All is well.
    Completed,
    /// It has not ended.
    Running,
}
