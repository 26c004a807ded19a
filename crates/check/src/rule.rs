//! The definition of a check.

use crate::answer::CheckAnswer;
use crate::view::NodeView;

/// One check: static facts and a pure function.
pub struct Check {
    /// Kebab-case id; names the thing that should be well. Never reused.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// Its heading in the table.
    pub area: Area,
    /// Parts of the snapshot it reads.
    pub reads: &'static [Probe],
    /// Whether its failure justifies taking the node out of service.
    pub drains: bool,
    /// Whether it is fast enough for `--quick`.
    pub is_quick: bool,
    /// First version that has it.
    pub since: &'static str,
    /// Source text of its file; `explain` prints its doc comment.
    pub doc: &'static str,
    /// Judges a node.
    pub run: fn(&NodeView<'_>) -> CheckAnswer,
}

impl Check {
    /// The module's doc comment without `//!`.
    pub fn explanation(&self) -> String {
        let lines = self.doc.lines().map_while(|l| l.strip_prefix("//!"));
        lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect::<Vec<_>>().join("\n")
    }
}

/// Headings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// GPUs and their driver.
    Gpu,
    /// NVLink and its switches.
    NvLink,
    /// PCIe.
    Pcie,
    /// Kernel, memory, clock, storage.
    Host,
    /// Fabric and network.
    Network,
    /// Limits, shared memory, processes, settings of the job.
    Job,
}

impl Area {
    /// Its name as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::NvLink => "nvlink",
            Self::Pcie => "pcie",
            Self::Host => "host",
            Self::Network => "network",
            Self::Job => "job",
        }
    }
}

/// Parts of a snapshot that are read together, in a separate process with one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Probe {
    /// Kernel, clock, memory, modules.
    System,
    /// NVML.
    Gpus,
    /// sysfs of the PCI bus, AER, EDAC.
    Pci,
    /// /dev/kmsg.
    KernelLog,
    /// systemctl.
    Services,
    /// /sys/class/infiniband.
    Rdma,
    /// Interfaces, routes, listeners.
    Network,
    /// Name lookups and connection tests.
    Reach,
    /// /dev/shm.
    Shm,
    /// File systems.
    Mounts,
    /// Processes of jobs.
    Jobs,
    /// Libraries that the job has loaded.
    Libraries,
}

impl Probe {
    /// All probes.
    pub const ALL: [Self; 12] = [
        Self::System,
        Self::Gpus,
        Self::Pci,
        Self::KernelLog,
        Self::Services,
        Self::Rdma,
        Self::Network,
        Self::Reach,
        Self::Shm,
        Self::Mounts,
        Self::Jobs,
        Self::Libraries,
    ];

    /// Its name on the command line of the process that reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Gpus => "gpus",
            Self::Pci => "pci",
            Self::KernelLog => "kernel-log",
            Self::Services => "services",
            Self::Rdma => "rdma",
            Self::Network => "network",
            Self::Reach => "reach",
            Self::Shm => "shm",
            Self::Mounts => "mounts",
            Self::Jobs => "jobs",
            Self::Libraries => "libraries",
        }
    }
}
