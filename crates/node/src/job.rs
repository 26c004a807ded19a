//! Processes of jobs. Environment and command lines hold only what the allow-list lets through.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Jobs of this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Jobs {
    /// Processes that carry a rank or use a GPU, and their parents up to the launcher.
    pub processes: Vec<Process>,
    /// How the processes were chosen: `all processes with a rank or a GPU`, `pid 4711 and its children`.
    pub chosen_by: String,
    /// Processes of other users that could not be looked into.
    pub n_hidden: u32,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Pid.
    pub pid: u32,
    /// Pid in the innermost namespace, where it is another one.
    pub inner_pid: Option<u32>,
    /// Parent.
    pub ppid: u32,
    /// Owner.
    pub uid: u32,
    /// `R`, `S`, `D`, `T`, `t`, `Z`.
    pub state: String,
    /// Kernel function it sleeps in.
    pub wchan: Option<String>,
    /// Its program, one word.
    pub command: String,
    /// Command line with every value cut that may be a secret.
    pub arguments: Vec<String>,
    /// Start, nanoseconds since 1970.
    pub started_ns: i64,
    /// Processor time used, seconds.
    pub cpu_s: f64,
    /// Bytes of memory held.
    pub memory: u64,
    /// Threads.
    pub n_threads: u32,
    /// Threads in state D: tid and kernel function.
    pub blocked_threads: Vec<(u32, String)>,
    /// It has a GPU's device file open.
    pub uses_gpu: bool,
    /// PCI addresses of GPUs it computes on, if the driver tells.
    pub gpus: Vec<String>,
    /// What stands in for the job: `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR`, NCCL_*, TORCH_*, SLURM_* … None
    /// if the environment was not readable.
    pub environment: Option<BTreeMap<String, String>>,
    /// Names of variables whose values were cut.
    pub cut_variables: Vec<String>,
    /// Limits: name as in /proc/PID/limits -> soft, hard; None is unlimited.
    pub limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Open files, counted.
    pub n_open_files: Option<u32>,
    /// Current directory.
    pub directory: Option<String>,
    /// Files it writes that look like logs or dumps: paths.
    pub logs: Vec<String>,
    /// Memory cgroup, if it has a limit or was near it.
    pub cgroup: Option<Cgroup>,
    /// Network namespace, to tell containers apart.
    pub net_namespace: Option<u64>,
    /// Could not be looked into: why.
    pub hidden: Option<String>,
}

impl Process {
    /// A number of its environment.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.variable(name)?.trim().parse().ok()
    }

    /// A variable of its environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.as_ref()?.get(name).map(String::as_str)
    }

    /// Global rank, by the launcher's variables.
    pub fn rank(&self) -> Option<u32> {
        ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
            .iter()
            .find_map(|name| self.number(name))
    }

    /// Rank on this node.
    pub fn local_rank(&self) -> Option<u32> {
        ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"]
            .iter()
            .find_map(|name| self.number(name))
    }

    /// World size.
    pub fn world_size(&self) -> Option<u32> {
        ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"]
            .iter()
            .find_map(|name| self.number(name))
    }
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// Path.
    pub path: String,
    /// Bytes; None is unlimited.
    pub memory_max: Option<u64>,
    /// Bytes.
    pub memory_current: Option<u64>,
    /// Processes killed for lack of memory since the group was made.
    pub oom_kills: Option<u64>,
    /// Times the limit was hit.
    pub hits: Option<u64>,
    /// Processors granted; None is unlimited.
    pub cpus: Option<f64>,
    /// Periods, and those in which it was held back.
    pub cpu_periods: Option<u64>,
    /// Held back.
    pub cpu_throttled: Option<u64>,
    /// Processes it may have; None is unlimited.
    pub pids_max: Option<u64>,
    /// Processes it has.
    pub pids_current: Option<u64>,
}
