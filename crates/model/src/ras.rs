//! Reports of NCCL's RAS service about a running job.

use crate::{GroupRank, Host, OpKind, Pid, WallTime};

/// One report, text or JSON, or one event of its monitor mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasReport {
    /// `NCCL version`.
    pub nccl_version: Option<Box<str>>,
    /// When the report was requested, or when the event happened.
    pub at: Option<WallTime>,
    /// Communicators in the report. The text form names only those with a problem; `groups` counts all.
    pub comms: Vec<RasComm>,
    /// Table of the text form: communicators with equal state, counted. Empty in JSON, which lists every communicator.
    pub groups: Vec<RasGroup>,
    /// Processes of the job that did not answer: `INCOMPLETE` and `DEAD` at job level in the text form, and the process
    /// that a monitor event reports as dead or unresponsive.
    pub missing_processes: Vec<RasPeer>,
    /// Timeouts while the service queried its peers.
    pub n_timeouts: u32,
    /// Message if the service was unreachable or had no data.
    pub unavailable: Option<Box<str>>,
}

/// One line of the text form's table of communicators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasGroup {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// `Group #`.
    pub number: u32,
    /// Number of communicators in it.
    pub n_comms: u32,
    /// Number of ranks of each communicator.
    pub comm_size: u32,
    /// GPUs in the group that answered.
    pub n_ranks: u32,
    /// `RUNNING`, `INIT`, `ABORT`, `FINALIZE`, `NOCOMM`.
    pub status: Box<str>,
    /// `OK`, or `INCOMPLETE`, `ERROR`, `MISMATCH` joined by commas.
    pub errors: Box<str>,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasComm {
    /// `hash`, equal to the log's commId.
    pub hash: u64,
    /// Number of ranks; 0 if the report was cut before it.
    pub size: u32,
    /// Ranks that answered. If the text form lists only outliers, `listed_all` is false.
    pub ranks: Vec<RasRank>,
    /// Ranks without data: those whose process did not answer (`unresponsive`), and those that answered but are not, or
    /// not yet, members (neither `unresponsive` nor `dead`).
    pub missing: Vec<RasPeer>,
    /// Whether `ranks` holds every rank that answered.
    pub listed_all: bool,
    /// Text form: counts of the ranks that are not listed: (operation, ranks, count). Releases before 2.26 count all
    /// operations together: [`OpKind::Other`].
    pub majority_counts: Vec<(OpKind, u32, u64)>,
    /// Status words (`RUNNING`, `ABORT`, `NOCOMM`), if printed.
    pub status: Vec<Box<str>>,
    /// Text form: how many ranks have which status, if they differ.
    pub status_counts: Vec<(Box<str>, u32)>,
    /// Error words (`MISMATCH`, `INCOMPLETE`), if printed.
    pub errors: Vec<Box<str>>,
    /// Errors in the text form's `ERROR` (`Unhandled CUDA error`), and the number of ranks that reported each.
    pub reported: Vec<(Box<str>, u32)>,
}

/// One rank of a communicator that answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasRank {
    /// The process.
    pub peer: RasPeer,
    /// Launch counts per operation that RAS counts: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce.
    pub counts: Vec<(OpKind, u64)>,
    /// Status word, if the text form prints it for this rank.
    pub status: Option<Box<str>>,
    /// `init_state`: 0 done, 7 in progress, otherwise an error code.
    pub init_state: Option<i64>,
    /// `async_error`.
    pub async_error: Option<i64>,
    /// `abort_flag` (the watchdog is tearing down).
    pub aborting: bool,
    /// `finalize_called` or `destroy_flag`.
    pub finalizing: bool,
}

/// A process and rank as RAS names them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasPeer {
    /// Line in the source, counted from 1; 0 if unknown.
    pub line: u32,
    /// Rank within the communicator; None for job-level lines.
    pub rank: Option<GroupRank>,
    /// Bootstrap address of its node.
    pub host: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
    /// CUDA device.
    pub cuda_dev: Option<u32>,
    /// `unresponsive`: its process did not answer the service.
    pub unresponsive: bool,
    /// `considered_dead`: the service has given up on it.
    pub dead: bool,
}
