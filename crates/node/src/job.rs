//! Processes of jobs. Environments and command lines contain only what passes the allow-list.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Jobs of this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Jobs {
    /// Processes that have a rank or use a GPU, and their parents up to the launcher.
    pub processes: Vec<Process>,
    /// How the processes were chosen: `all processes with a rank or a GPU`, `pid 4711 and its children`.
    pub chosen_by: String,
    /// Processes of other users that were unreadable.
    pub n_hidden: u32,
    /// Why processes of other users cannot even be counted (`hidepid` of /proc).
    pub unseen: Option<String>,
    /// Other processes that carry a rank, use a GPU or could not be looked into, as they count themselves: of another job, or
    /// not found to be of this one. They are there.
    pub others: Vec<u32>,
}

impl Jobs {
    /// Why this node may have processes of the job that are not listed, as a sentence; None if it cannot.
    pub fn blind_spot(&self) -> Option<String> {
        self.unseen.clone().or_else(|| {
            let n = self.n_hidden;
            (n > 0).then(|| format!("{n} processes of other users could not be inspected: run as root"))
        })
    }

    /// Pids that several processes of this node have: each container counts its processes from one.
    pub fn shared_pids(&self) -> BTreeSet<u32> {
        let mut seen = BTreeSet::new();
        let known = |process: &Process| process.inner_pid.unwrap_or(process.pid);
        self.processes.iter().map(known).filter(|pid| !seen.insert(*pid)).collect()
    }
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Pid.
    pub pid: u32,
    /// Pid in the innermost namespace, if it differs.
    pub inner_pid: Option<u32>,
    /// Parent.
    pub ppid: u32,
    /// Owner.
    pub uid: u32,
    /// `R`, `S`, `D`, `T`, `t`, `Z`.
    pub state: String,
    /// How it ended, if it is a zombie: its exit code, or the number of its signal, negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Kernel function it sleeps in.
    pub wchan: Option<String>,
    /// Name of its program, one word.
    pub command: String,
    /// Command line without values that may be secrets.
    pub arguments: Vec<String>,
    /// Start, nanoseconds since 1970.
    pub started_ns: i64,
    /// Processor time used, seconds.
    pub cpu_s: f64,
    /// How many times its main thread has gone to sleep.
    pub sleeps: Option<u64>,
    /// Bytes of memory held.
    pub memory: u64,
    /// Threads.
    pub n_threads: u32,
    /// Threads that were in state D at both readings: tid and kernel function.
    pub blocked_threads: Vec<(u32, String)>,
    /// Whether it has a GPU's device file open.
    pub uses_gpu: bool,
    /// Minor numbers of the GPU device files that it has open (`/dev/nvidia3` is 3): the GPUs that it could use.
    pub gpu_minors: Vec<u32>,
    /// PCI addresses of the GPUs that it computes on, if the driver reports them.
    pub gpus: Vec<String>,
    /// Its environment, as far as it concerns the job: `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR`, NCCL_*,
    /// TORCH_*, SLURM_* … None if it was unreadable.
    pub environment: Option<BTreeMap<String, String>>,
    /// Names of variables whose values were removed.
    pub cut_variables: Vec<String>,
    /// Limits: name as in /proc/PID/limits -> soft, hard; None is unlimited.
    pub limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Number of open files.
    pub n_open_files: Option<u32>,
    /// Current directory.
    pub directory: Option<String>,
    /// Where its standard output goes: a path, `pipe:[4711]`, `/dev/null`.
    pub stdout: Option<String>,
    /// Where its standard error goes.
    pub stderr: Option<String>,
    /// Files that it writes, or is configured to write, that look like logs or dumps: paths as the process itself sees
    /// them.
    pub logs: Vec<String>,
    /// Descriptors of open files that are also logs but whose paths are withheld, because they may contain a secret.
    pub withheld_files: Vec<u32>,
    /// Number of processors that it may run on.
    pub n_cpus: Option<u32>,
    /// Memory cgroup, if it has a limit or was near it.
    pub cgroup: Option<Cgroup>,
    /// Effective capabilities, as a bit mask; bit 14 (CAP_IPC_LOCK) lifts the limit of locked memory.
    pub capabilities: Option<u64>,
    /// Network namespace, to tell containers apart.
    pub net_namespace: Option<u64>,
    /// Why it could not be read.
    pub hidden: Option<String>,
    /// It is above the job in the tree and does not belong to it: listed only for the tree.
    pub is_above: bool,
    /// Files that a process of another job writes as well: their owner is unknown.
    pub contested: Vec<String>,
    /// The second reading, some seconds later.
    pub again: Option<SecondLook>,
}

/// A second reading of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondLook {
    /// Time since the snapshot of the first one, milliseconds.
    pub after_ms: u64,
    /// State letter.
    pub state: String,
    /// Kernel function in which it sleeps.
    pub wchan: Option<String>,
    /// Processor time used since its start, seconds.
    pub cpu_s: f64,
    /// How many times its main thread has gone to sleep.
    pub sleeps: Option<u64>,
}

impl Process {
    /// The pid that the job's own evidence uses: that of its container, if it has one that is unique on this node.
    pub fn known_pid(&self, shared: &BTreeSet<u32>) -> u32 {
        self.inner_pid.filter(|pid| !shared.contains(pid)).unwrap_or(self.pid)
    }

    /// A numeric variable of its environment.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.variable(name)?.trim().parse().ok()
    }

    /// A variable of its environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.as_ref()?.get(name).map(String::as_str)
    }

    /// Global rank, from the launcher's variables.
    pub fn rank(&self) -> Option<u32> {
        ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID", "SLURM_PROCID"]
            .iter()
            .find_map(|name| self.number(name))
    }

    /// Rank on this node, from the launcher's variables.
    pub fn local_rank(&self) -> Option<u32> {
        ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"]
            .iter()
            .find_map(|name| self.number(name))
    }

    /// World size, from the launcher's variables.
    pub fn world_size(&self) -> Option<u32> {
        ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JAX_NUM_PROCESSES", "SLURM_NTASKS"]
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
    /// Version of the cgroup interface, 1 or 2.
    pub version: u32,
    /// Memory limit, bytes; None is unlimited.
    pub memory_max: Option<u64>,
    /// Memory in use including the page cache, bytes.
    pub memory_current: Option<u64>,
    /// Page cache that can be reclaimed at once, bytes.
    pub memory_inactive_file: Option<u64>,
    /// Shared memory, bytes: files in /dev/shm count here.
    pub memory_shmem: Option<u64>,
    /// Processes killed for lack of memory since the group was created.
    pub oom_kills: Option<u64>,
    /// Times that the limit was hit.
    pub hits: Option<u64>,
    /// Processors granted; None is unlimited.
    pub cpus: Option<f64>,
    /// Scheduling periods.
    pub cpu_periods: Option<u64>,
    /// Periods in which it was throttled.
    pub cpu_throttled: Option<u64>,
    /// Total throttled time, microseconds.
    pub cpu_throttled_us: Option<u64>,
    /// Limit of processes; None is unlimited.
    pub pids_max: Option<u64>,
    /// Number of processes.
    pub pids_current: Option<u64>,
}
