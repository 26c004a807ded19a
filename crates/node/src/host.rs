//! The host: kernel, clock, memory, file systems, services.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Kernel, memory and clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct System {
    /// `uname -r`.
    pub kernel: String,
    /// Id of this boot.
    pub boot_id: String,
    /// Seconds since boot.
    pub uptime_s: f64,
    /// Processors online.
    pub n_cpus: u32,
    /// Load of the last minute.
    pub load_1m: f64,
    /// Memory, bytes.
    pub memory_total: u64,
    /// Memory available to a new process, bytes.
    pub memory_available: u64,
    /// Swap in use, bytes.
    pub swap_used: u64,
    /// Pressure: `cpu`, `memory`, `io` -> share of the last 10 s in which some task waited, percent.
    pub pressure_some_pct: BTreeMap<String, f64>,
    /// The same for times in which all tasks waited.
    pub pressure_full_pct: BTreeMap<String, f64>,
    /// Whether something synchronises the kernel's clock (adjtimex reports no error).
    pub clock_is_kept: Option<bool>,
    /// Largest error that the synchronising program reports, microseconds.
    pub clock_error_us: Option<u64>,
    /// Versions of relevant kernel modules by name; empty if a module states none.
    pub modules: BTreeMap<String, String>,
    /// How this process was found to run in a container; None if it does not.
    pub container: Option<String>,
    /// Whether pids are those of the kernel's own log: its threads are seen by their numbers.
    pub has_kernel_pids: bool,
    /// Effective user id.
    pub euid: u32,
    /// Processes killed by the kernel for lack of memory since boot, in any group.
    pub oom_kills: Option<u64>,
    /// Network namespace of the reading process.
    pub net_namespace: Option<u64>,
    /// Cgroup of the reading process: the limits of a container.
    pub cgroup: Option<crate::Cgroup>,
}

/// The kernel log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelLog {
    /// Lines in the form of /dev/kmsg (`6,1234,5678901,-;text`), oldest first.
    pub lines: Vec<String>,
    /// Whether the oldest lines have been overwritten: the log then does not begin at boot.
    pub is_cut: bool,
    /// File beside the snapshot with the same lines; a reader of both must use only one.
    pub also_in: Option<String>,
}

/// A service of systemd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// `nvidia-fabricmanager.service`.
    pub name: String,
    /// `loaded`, `not-found`, `masked`.
    pub load: String,
    /// `active`, `inactive`, `failed`.
    pub active: String,
    /// `running`, `dead`.
    pub sub: String,
    /// Version of its program, if known.
    pub version: Option<String>,
}

/// /dev/shm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shm {
    /// Size, bytes.
    pub size: u64,
    /// Bytes available.
    pub available: u64,
    /// Free inodes; None if unlimited.
    pub inodes_free: Option<u64>,
    /// Files of NCCL and torch, and the largest others.
    pub segments: Vec<Segment>,
    /// Files that are deleted but still held: their space is freed when the last holder ends. NCCL deletes its
    /// segments as soon as both sides have attached, so those of a healthy job are listed here.
    pub deleted: Vec<Segment>,
    /// Why processes that may hold segments are invisible here (`hidepid` of /proc, a separate pid namespace).
    pub unseen: Option<String>,
}

/// A file in /dev/shm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Name.
    pub name: String,
    /// Size, bytes.
    pub size: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Owner.
    pub uid: u32,
    /// Mode bits.
    pub mode: u32,
    /// Last written, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Processes that map it or have it open.
    pub held_by: Vec<u32>,
    /// Whether some processes were unreadable (another user's) or invisible: an empty `held_by` then proves nothing.
    pub is_held_unknown: bool,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Mount point.
    pub at: String,
    /// Device.
    pub device: String,
    /// `ext4`, `nfs4`, `lustre`.
    pub kind: String,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Size, bytes; None if it did not answer.
    pub size: Option<u64>,
    /// Bytes free for users.
    pub available: Option<u64>,
    /// Inodes in all; None if not counted.
    pub inodes: Option<u64>,
    /// Inodes free.
    pub inodes_free: Option<u64>,
    /// Milliseconds until it answered.
    pub answered_ms: Option<u64>,
    /// Its error, or that it did not answer by the deadline.
    pub failure: Option<String>,
    /// Processes of the job that work here (current directory or open files).
    pub used_by: Vec<u32>,
    /// A process in whose mount namespace it was seen, if that differs from ours (a container).
    pub seen_by: Option<u32>,
    /// Where the thread that queried it is blocked, if it did not answer: `state D, in rpc_wait_bit_killable`.
    pub stuck_in: Option<String>,
}

/// Start of [`Mount::failure`] if the file system did not answer by the deadline.
pub const NO_ANSWER: &str = "no answer";

impl Mount {
    /// Whether it did not answer by the deadline.
    pub fn is_silent(&self) -> bool {
        self.answered_ms.is_none() && self.failure.as_deref().is_some_and(|why| why.starts_with(NO_ANSWER))
    }

    /// Whether the system refused this user: its words for EACCES and EPERM.
    pub fn is_refused(&self) -> bool {
        let words = ["ermission", "not permitted"];
        self.failure.as_deref().is_some_and(|why| words.iter().any(|word| why.contains(word)))
    }
}
