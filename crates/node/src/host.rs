//! The host: kernel, clock, memory, file systems, services.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the kernel and the clock say.
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
    /// Bytes.
    pub memory_total: u64,
    /// Bytes a new process could have.
    pub memory_available: u64,
    /// Bytes.
    pub swap_used: u64,
    /// Pressure: `cpu`, `memory`, `io` -> share of the last 10 s in which some task waited, percent.
    pub pressure_some_pct: BTreeMap<String, f64>,
    /// The same, all tasks waited.
    pub pressure_full_pct: BTreeMap<String, f64>,
    /// The kernel's clock is kept in step by somebody (adjtimex says no error).
    pub clock_is_kept: Option<bool>,
    /// Largest error the keeper states, microseconds.
    pub clock_error_us: Option<u64>,
    /// Versions of kernel modules that matter, by name; empty string if it states none.
    pub modules: BTreeMap<String, String>,
    /// This process runs in a container: what gave it away.
    pub container: Option<String>,
    /// Effective user id.
    pub euid: u32,
    /// Processes the kernel has killed for lack of memory since boot, wherever.
    pub oom_kills: Option<u64>,
    /// Network namespace this was read in.
    pub net_namespace: Option<u64>,
    /// The group this was read in: the limits of a container.
    pub cgroup: Option<crate::Cgroup>,
}

/// The kernel log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelLog {
    /// Lines in the form of /dev/kmsg (`6,1234,5678901,-;text`), oldest first.
    pub lines: Vec<String>,
    /// The oldest lines have been overwritten: the first line does not belong to the boot.
    pub is_cut: bool,
    /// The same lines stand in this file, beside the snapshot, too; whoever reads both reads one of them.
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
    /// Version of its program, if it tells.
    pub version: Option<String>,
}

/// /dev/shm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shm {
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub available: u64,
    /// Inodes free; None if unlimited.
    pub inodes_free: Option<u64>,
    /// Files of NCCL and torch, and the largest others.
    pub segments: Vec<Segment>,
    /// Files that are deleted and still held: their room comes back when the last holder ends. NCCL deletes its
    /// segments as soon as both sides have attached, so that a healthy job's stand here.
    pub deleted: Vec<Segment>,
    /// Processes that may hold segments do not show here at all: why (`hidepid` of /proc, a pid namespace of its own).
    pub unseen: Option<String>,
}

/// A file in /dev/shm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes that are really there.
    pub allocated: u64,
    /// Owner.
    pub uid: u32,
    /// Mode bits.
    pub mode: u32,
    /// Last written, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Processes that map it or have it open.
    pub held_by: Vec<u32>,
    /// Some processes could not be looked into (another user's) or do not show: nobody holding it is then not known.
    pub is_held_unknown: bool,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Where.
    pub at: String,
    /// What.
    pub device: String,
    /// `ext4`, `nfs4`, `lustre`.
    pub kind: String,
    /// Read-only.
    pub read_only: bool,
    /// Bytes; None if it did not answer.
    pub size: Option<u64>,
    /// Bytes free for users.
    pub available: Option<u64>,
    /// Inodes in all; None if not counted.
    pub inodes: Option<u64>,
    /// Inodes free.
    pub inodes_free: Option<u64>,
    /// Milliseconds until it answered.
    pub answered_ms: Option<u64>,
    /// What it said, or that it did not answer by the deadline.
    pub failure: Option<String>,
    /// Processes of the job that work here (current directory or open files).
    pub used_by: Vec<u32>,
    /// A process through whose eyes it was seen, where that one has mounts of its own (a container).
    pub seen_by: Option<u32>,
    /// What the thread that asked it stands in, if it did not answer: `state D, in rpc_wait_bit_killable`.
    pub stuck_in: Option<String>,
}
