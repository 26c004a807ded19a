//! A Flight Recorder dump, packed: the entries of a job of 1,024 ranks are two million and repeat a few dozen stacks
//! and shapes. So stacks and shapes are tables, and an entry holds indices.

use std::sync::Arc;

use crate::{Frame, GroupRank, OpKind, OpState, Rank};

/// One dump: the record of one process. The dump does not contain its rank.
///
/// Ranks of one job make the same calls from the same places, so dumps with equal tables share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlightDump {
    /// Format version, `2.10`.
    pub version: Box<str>,
    /// NCCL's version, if the dump states it.
    pub library_version: Option<Box<str>>,
    /// Rank in the file's name (torch writes prefix + global rank); a hint, never proof.
    pub name_hint: Option<Rank>,
    /// The process groups of this process.
    pub groups: Vec<FlightGroup>,
    /// Distinct frames.
    pub frames: Arc<Vec<Frame>>,
    /// Distinct stacks: indices into `frames`, innermost first.
    pub stacks: Arc<Vec<Box<[u32]>>>,
    /// Distinct calls: kind, shapes, types, peers.
    pub signatures: Arc<Vec<Signature>>,
    /// `thread_id`s of the recording threads (2.10 and newer), as printed: the `Thread 0x…` lines of a native crash
    /// report name the same threads and thus identify the dump's process.
    pub thread_ids: Vec<u64>,
    /// Entries, oldest first.
    pub ops: Vec<FlightOp>,
    /// Whether the file ends before the dump does.
    pub truncated: bool,
}

/// A process group from the dump's `pg_config`, `pg_status` and entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlightGroup {
    /// `pg_id`, the key of `pg_status`: a creation number, local to the process. Empty if unknown.
    pub id: Box<str>,
    /// `name`; equal on all members.
    pub name: Box<str>,
    /// `desc`: `default_pg`, `undefined`, or the user's.
    pub desc: Box<str>,
    /// Global ranks of the members in group-rank order; empty if the dump lacks them. Every dump of a job repeats
    /// the list of all its ranks.
    pub ranks: Arc<[Rank]>,
    /// `last_enqueued_collective`; None if absent or -1. Outdated on healthy jobs: entries take precedence.
    pub last_enqueued: Option<i64>,
    /// `last_started_collective`.
    pub last_started: Option<i64>,
    /// `last_completed_collective`.
    pub last_completed: Option<i64>,
}

/// The arguments of a call: equal signatures are the same call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    /// Kind.
    pub kind: OpKind,
    /// `profiling_name` without the `nccl:` prefix, if it is more specific than the kind.
    pub name: Box<str>,
    /// For send and recv: the peer's rank within the group.
    pub peer: Option<GroupRank>,
    /// For send and recv: this process's own rank within the group.
    pub me: Option<GroupRank>,
    /// Shape of each input tensor.
    pub input_sizes: Box<[Box<[u64]>]>,
    /// Shape of each output tensor.
    pub output_sizes: Box<[Box<[u64]>]>,
    /// Type of each input tensor (`Float`, `BFloat16`).
    pub input_dtypes: Box<[Box<str>]>,
    /// Type of each output tensor.
    pub output_dtypes: Box<[Box<str>]>,
}

impl Signature {
    /// Number of elements in all input tensors.
    pub fn input_elements(&self) -> u64 {
        self.input_sizes
            .iter()
            .map(|s| s.iter().fold(1_u64, |a, b| a.saturating_mul(*b)))
            .fold(0, u64::saturating_add)
    }

    /// Number of elements in all output tensors.
    pub fn output_elements(&self) -> u64 {
        self.output_sizes
            .iter()
            .map(|s| s.iter().fold(1_u64, |a, b| a.saturating_mul(*b)))
            .fold(0, u64::saturating_add)
    }
}

/// One entry, 56 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlightOp {
    /// Wall clock at enqueue, ns since 1970 UTC.
    pub created_ns: i64,
    /// When the watchdog noticed the start; 0 = it did not.
    pub started_ns: i64,
    /// When the watchdog noticed the end; 0 = it did not.
    pub completed_ns: i64,
    /// `collective_seq_id`, per group.
    pub seq: u32,
    /// `p2p_seq_id`, per group.
    pub p2p_seq: u32,
    /// `record_id`, per process.
    pub record_id: u32,
    /// Index into `signatures`.
    pub signature: u32,
    /// Index into `stacks`.
    pub stack: u32,
    /// `timeout_ms`; 0 = not stated.
    pub timeout_ms: u32,
    /// `duration_ms` in microseconds; 0 = not stated (needs timing).
    pub duration_us: u32,
    /// Index into `groups`.
    pub group: u16,
    /// State.
    pub state: OpState,
    /// `retired` (bit 0), `is_p2p` (bit 1).
    pub flags: u8,
}

impl FlightOp {
    /// Bit of `flags`: the watchdog has removed the work object from its list.
    pub const RETIRED: u8 = 1;
    /// Bit of `flags`: send or recv.
    pub const P2P: u8 = 2;

    /// `is_p2p`.
    pub fn is_p2p(&self) -> bool {
        self.flags & Self::P2P != 0
    }
}
