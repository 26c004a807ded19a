//! A node's memory, mounts, modules and services, and reports of its scheduler.

use crate::{PciDevice, Pid, WallTime};

/// One output of a system tool.
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
    /// Options of the running kernel (/proc/cmdline).
    KernelOptions(Box<str>),
    /// Pids of the snapshot, and those that a watcher names, are those of the kernel's log.
    NodePids,
    /// NUMA nodes: (node, CPUs, MiB).
    Numa(Vec<(u32, u32, u64)>),
    /// Packages with their versions: pip, conda, rpm, dpkg, `nvcc --version`.
    Packages(Vec<(Box<str>, Box<str>)>),
    /// A service of systemd.
    Service(Service),
    /// A scheduler's report on a job, a step or a node: Slurm, Kubernetes.
    Scheduler(SchedulerEvent),
}

/// A row of df.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mount {
    /// Mounted device.
    pub device: Box<str>,
    /// Mount point.
    pub at: Box<str>,
    /// Size, bytes, or inodes if `is_inodes`.
    pub size: u64,
    /// Used.
    pub used: u64,
    /// Available.
    pub available: u64,
    /// Whether inodes are counted instead of bytes (`df -i`).
    pub is_inodes: bool,
}

/// `ls -l` of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The folder, if a heading or a shell's line names it.
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
    /// Size, bytes.
    pub size: u64,
    /// Time of the last modification, as printed.
    pub when: Box<str>,
    /// Name.
    pub name: Box<str>,
}

/// Content of a memory cgroup's files; each value with its line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryGroup {
    /// The cgroup, if a heading names it.
    pub path: Option<Box<str>>,
    /// Limit, bytes; the inner None means `max`.
    pub max: Option<(u32, Option<u64>)>,
    /// Current use, bytes.
    pub current: Option<(u32, u64)>,
    /// Largest use, bytes.
    pub peak: Option<(u32, u64)>,
    /// How often the limit was hit with nothing left to reclaim.
    pub oom: Option<(u32, u64)>,
    /// Processes killed because of it.
    pub oom_kill: Option<(u32, u64)>,
    /// Shared memory, bytes; it counts towards the limit.
    pub shmem: Option<(u32, u64)>,
}

/// Throttling of a cgroup's processor time since the group was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuGroup {
    /// Line of the first figure.
    pub line: u32,
    /// The cgroup, if a heading names it.
    pub path: Option<Box<str>>,
    /// Periods in which something ran.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled: u64,
    /// Throttled time summed over its processors, microseconds.
    pub throttled_us: u64,
}

/// Memory of the node, bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Total.
    pub total: u64,
    /// Available to a new process.
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
    /// Text in the parentheses: `running`, `dead`, `Result: exit-code`.
    pub detail: Box<str>,
}

/// A program that starts jobs on nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// Slurm.
    #[default]
    Slurm,
    /// Kubernetes.
    Kubernetes,
}

/// An event that a scheduler reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerEvent {
    /// Which scheduler.
    pub scheduler: Scheduler,
    /// Kind of event.
    pub kind: SchedulerKind,
    /// Job, step or pod: `812.0`, `pod/worker-3`.
    pub subject: Box<str>,
    /// Node, if named.
    pub node: Option<Box<str>>,
    /// The node is where the script ran, whatever nodes the job has.
    pub is_of_script: bool,
    /// Process, if named.
    pub pid: Option<Pid>,
    /// Exit code or signal, if printed.
    pub exit_code: Option<i64>,
    /// Container of the pod, if named.
    pub container: Option<Box<str>>,
    /// Number of containers in the pod, if listed.
    pub n_containers: Option<u32>,
    /// When it ended, if printed, by the clock of the querying host; the error includes the possible offset
    /// of its time zone.
    pub ended_at: Option<WallTime>,
}

/// Kinds of scheduler events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchedulerKind {
    /// Killed for lack of memory.
    OutOfMemory,
    /// Preempted by another job.
    Preempted,
    /// The pod was evicted: the node lacked memory or disk.
    Evicted,
    /// The node failed or is not ready.
    NodeFail,
    /// The time limit was reached.
    TimeLimit,
    /// Cancelled by a user or administrator.
    Cancelled,
    /// It could not be placed: too few GPUs, a full node.
    Unschedulable,
    /// Failed, without further details.
    #[default]
    Failed,
    /// Completed successfully.
    Completed,
    /// It has not ended.
    Running,
}
