//! What NCCL's RAS service said about a running job.

use crate::{GroupRank, Host, OpKind, Pid, WallTime};

/// One report, text or JSON, or one event of its monitor mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasReport {
    /// `NCCL version`.
    pub nccl_version: Option<Box<str>>,
    /// When asked, or when the event happened.
    pub at: Option<WallTime>,
    /// Communicators told of. The text form names those with a problem only; `groups` counts all.
    pub comms: Vec<RasComm>,
    /// Text form's table: communicators alike, counted. Empty in JSON, which lists every communicator.
    pub groups: Vec<RasGroup>,
    /// Processes of the job that did not answer: text form's job-level `INCOMPLETE` and `DEAD`, and the process that a
    /// monitor event calls dead or unresponsive.
    pub missing_processes: Vec<RasPeer>,
    /// Timeouts while the service asked its peers.
    pub n_timeouts: u32,
    /// The service could not be reached, or said it has no data: the text of that.
    pub unavailable: Option<Box<str>>,
}

/// One line of the text form's table of communicators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasGroup {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// `Group #`.
    pub number: u32,
    /// Communicators in it.
    pub n_comms: u32,
    /// Ranks each communicator has.
    pub comm_size: u32,
    /// GPUs of the group that answered.
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
    /// Ranks the communicator has; 0 if the report was cut before it said so.
    pub size: u32,
    /// Ranks that answered. The text form lists outliers only: `listed_all` is false then.
    pub ranks: Vec<RasRank>,
    /// Ranks without data: those whose process did not answer (`unresponsive`), and those that answered but are no
    /// longer, or not yet, members (neither `unresponsive` nor `dead`).
    pub missing: Vec<RasPeer>,
    /// Whether `ranks` holds every rank that answered.
    pub listed_all: bool,
    /// Text form: counts shared by ranks that are not listed: (operation, ranks, count). Releases before 2.26 count all
    /// operations together: [`OpKind::Other`].
    pub majority_counts: Vec<(OpKind, u32, u64)>,
    /// Status words (`RUNNING`, `ABORT`, `NOCOMM`), if printed.
    pub status: Vec<Box<str>>,
    /// Text form, where ranks differ in status: how many have which.
    pub status_counts: Vec<(Box<str>, u32)>,
    /// Error words (`MISMATCH`, `INCOMPLETE`), if printed.
    pub errors: Vec<Box<str>>,
    /// Text form's `ERROR`: what was reported (`Unhandled CUDA error`), and by how many ranks.
    pub reported: Vec<(Box<str>, u32)>,
}

/// One answering rank of a communicator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RasRank {
    /// Who.
    pub peer: RasPeer,
    /// Launch counts per operation that RAS counts: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce.
    pub counts: Vec<(OpKind, u64)>,
    /// Status word, where the text form prints it for this rank.
    pub status: Option<Box<str>>,
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
    /// `considered_dead`: given up for good.
    pub dead: bool,
}
