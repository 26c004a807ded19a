//! What NCCL's RAS service said about a running job.

use crate::{GroupRank, Host, OpKind, Pid, WallTime};

/// One report, text or JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasReport {
    /// `NCCL version`.
    pub nccl_version: Option<Box<str>>,
    /// When asked.
    pub at: Option<WallTime>,
    /// Communicators told of.
    pub comms: Vec<RasComm>,
    /// Processes of the job that did not answer: text form's job-level `INCOMPLETE` and `DEAD`.
    pub missing_processes: Vec<RasPeer>,
    /// The service could not be reached, or said it has no data: the text of that.
    pub unavailable: Option<Box<str>>,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasComm {
    /// `hash`, equal to the log's commId.
    pub hash: u64,
    /// Ranks the communicator has.
    pub size: u32,
    /// Ranks that answered. The text form lists outliers only: `listed_all` is false then.
    pub ranks: Vec<RasRank>,
    /// Ranks without an answer.
    pub missing: Vec<RasPeer>,
    /// Whether `ranks` holds every rank that answered.
    pub listed_all: bool,
    /// Text form: a count that the unlisted majority shares, per operation: (operation, ranks, count).
    pub majority_counts: Vec<(OpKind, u32, u64)>,
    /// Status words (`RUNNING`, `ABORT`), if printed.
    pub status: Vec<Box<str>>,
    /// Error words (`MISMATCH`, `INCOMPLETE`), if printed.
    pub errors: Vec<Box<str>>,
}

/// One answering rank of a communicator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasRank {
    /// Who.
    pub peer: RasPeer,
    /// Launch counts per operation that RAS counts: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce.
    pub counts: Vec<(OpKind, u64)>,
    /// `init_state`: 0 done, 7 in progress, else an error code.
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
    /// Rank within the communicator; None for job-level lines.
    pub rank: Option<GroupRank>,
    /// Bootstrap address of its node.
    pub host: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
    /// CUDA device.
    pub cuda_dev: Option<u32>,
    /// `unresponsive`.
    pub unresponsive: bool,
    /// `considered_dead`.
    pub dead: bool,
}
