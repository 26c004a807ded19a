//! What happens in a watched job, as `ringleader watch --json` prints it: one object a line.

use serde::{Deserialize, Serialize};

/// Name of the format; the last part is its major version.
pub const SCHEMA: &str = "ringleader.watch.v1";

/// By what the job is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sees {
    /// Processes alone.
    #[default]
    Processes,
    /// NCCL RAS.
    Ras,
    /// The plugin.
    Plugin,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// `ringleader.watch.v1`.
    pub schema: String,
    /// When, seconds since 1970.
    pub at: f64,
    /// The job that it is about, where several are watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What happened, with its data.
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// At a moment in nanoseconds since 1970.
    pub fn new(at_ns: i64, what: What) -> Self {
        Self { schema: SCHEMA.to_owned(), at: seconds(at_ns), job: None, what }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// What is watched: once, and when it changes.
    Watching {
        /// Nodes.
        nodes: u32,
        /// Ranks.
        ranks: u32,
        /// By what.
        sees: Sees,
        /// What cannot be seen.
        cannot_see: Vec<String>,
    },
    /// How the job gets on, every few seconds.
    Progress {
        /// Communicators, the largest first, at most [`MAX_COMMS`].
        comms: Vec<CommProgress>,
        /// The rank that keeps the others waiting most.
        slowest: Option<Slowest>,
    },
    /// A rank is late: once, and when what is said of it changes.
    Straggler(Straggler),
    /// The rhythm has broken.
    Stall(Box<Stall>),
    /// Ranks wait for others for longer than a moment, and no alarm is due yet: who for whom, and what those do.
    Waiting(Box<Stall>),
    /// Who is which rank, those that have ended included: in a bundle, not among the events that are printed.
    Ranks {
        /// Processes with a rank.
        ranks: Vec<SeenRank>,
    },
    /// Evidence was written. By the face.
    Bundle {
        /// Folder or file with the bundle.
        path: String,
    },
    /// The evidence was judged. By the face.
    Verdict {
        /// `ringleader.report.v1`.
        report: serde_json::Value,
    },
    /// A stall is over: the communicator moves again.
    Recovered {
        /// Communicator.
        comm: String,
        /// Seconds for which it stood still.
        after_s: f64,
    },
    /// A stall is over and nothing moves again: ranks of it have ended.
    Over {
        /// Communicator.
        comm: String,
        /// Seconds for which it stood still.
        after_s: f64,
    },
    /// The job is over.
    Ended {
        /// In words.
        how: String,
    },
    /// For people.
    Note {
        /// In words.
        text: String,
    },
}

/// A process with a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenRank {
    /// Rank in the job.
    pub rank: u32,
    /// Rank on its node.
    pub local_rank: Option<u32>,
    /// Node.
    pub host: String,
    /// Pid on it.
    pub pid: u32,
    /// What the kernel says of it.
    pub state: crate::digest::ProcessState,
    /// When it began, seconds since 1970 by the node's clock; none if that is not known.
    pub began: Option<f64>,
    /// Since when it has been in this state, seconds since 1970.
    pub since: Option<f64>,
    /// How it ended, if the kernel reported that: its exit code, or the number of its signal, negative.
    pub exit_code: Option<i64>,
}

/// Most communicators in one event.
pub const MAX_COMMS: usize = 64;
/// Ranks whose state one stall lists.
pub const MAX_STATES: usize = 256;

/// How a communicator gets on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommProgress {
    /// Identifier.
    pub id: String,
    /// Name.
    pub name: String,
    /// Ranks.
    pub size: u32,
    /// Ranks that are in a digest.
    pub ranks_seen: u32,
    /// Operations ended.
    pub ops_done: u64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Bus bandwidth while collectives run, GB/s.
    pub busbw_gbs: Option<f64>,
    /// Operations in flight.
    pub in_flight: u32,
    /// Ranks that have not entered the oldest one.
    pub waiting_for: Vec<u32>,
    /// For how long nothing has moved in it, seconds.
    pub still_s: f64,
    /// How long it may pause before that is a stall, seconds.
    pub patience_s: f64,
}

/// The rank that keeps the others waiting most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slowest {
    /// Rank in the job.
    pub rank: u32,
    /// How late it is in the mean, milliseconds.
    pub late_ms: f64,
    /// In most of the last collectives.
    pub persistent: bool,
}

/// A rank that is late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Straggler {
    /// Rank in the job.
    pub rank: u32,
    /// How much later than the others it enters, milliseconds, in the mean of the collectives that it was late for.
    pub late_ms: f64,
    /// Share of the last collectives for which it was late, 0 to 1.
    pub share: f64,
    /// Share of the time between collectives that the others lose to it, less what it loses to them, 0 to 1; none where that is
    /// not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Seconds over which whole seconds of the job show it, whatever its collectives are; none where single collectives or steps do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_s: Option<u32>,
    /// In most of them.
    pub persistent: bool,
    /// What makes the rank late.
    pub of: Lag,
    /// How sure that is.
    pub confidence: Confidence,
    /// Communicator in which it shows.
    pub comm: String,
    /// The other end of a slow link: rank in the job.
    pub peer: Option<u32>,
    /// In words.
    pub text: String,
}

impl Straggler {
    /// From this cost on, a rank that is not late in most of its collectives is worth a look at what it does.
    const LEAST_COST: f64 = 0.1;

    /// Whether what it does is worth a look.
    pub fn is_worth_a_look(&self) -> bool {
        self.persistent || self.cost.is_some_and(|cost| cost >= Self::LEAST_COST)
    }
}

/// Why a rank is late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lag {
    /// Its GPU was still busy.
    Compute,
    /// Its program called late while the GPU had nothing to do.
    Host,
    /// Nobody is late; the transfer takes long.
    Network,
    /// It does not show.
    #[default]
    Unknown,
}

/// How sure something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// A guess.
    #[default]
    Low,
    /// Likely.
    Medium,
    /// Sure.
    High,
}

/// The rhythm has broken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    /// Identifier of the communicator in which it shows; empty where no operation can be seen.
    pub comm: String,
    /// Its name.
    pub comm_name: String,
    /// The operation.
    pub op: StalledOp,
    /// When something last moved, seconds since 1970.
    pub since: f64,
    /// Seconds since then.
    pub after_s: f64,
    /// Seconds that it may usually pause; 0 where no rhythm is known.
    pub expected_s: f64,
    /// What kind of stall it is.
    pub shape: Shape,
    /// The same in words, with ranks.
    pub text: String,
    /// Ranks, suspects first, at most [`MAX_STATES`].
    pub states: Vec<RankState>,
    /// How many ranks are in each state, all of them.
    pub n_states: Vec<(String, u32)>,
    /// Ranks of the job to look at first.
    pub suspects: Vec<u32>,
    /// Other communicators that wait for this one.
    pub victims: Vec<String>,
}

/// The operation at which a communicator waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StalledOp {
    /// NCCL's name.
    pub kind: String,
    /// Number within the communicator.
    pub number: u64,
}

/// Kinds of stall, as far as the states of ranks tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The states do not tell.
    #[default]
    Unclear,
    /// A process is stopped, dead, a zombie, or hangs in the kernel.
    Process,
    /// An agent fell silent: its node, or the way to it.
    Silent,
    /// Ranks have not entered what others wait in.
    NeverEntered,
    /// Ranks called different things at the same number.
    Mismatch,
    /// The other end of a send or receive is not there yet.
    MissingPeer,
    /// A send without its receive, or the reverse: whose side is missing has gone on to later calls.
    UnmatchedP2p,
    /// Ranks wait for each other across communicators. Digests keep no order over communicators, so that they do not tell a
    /// cycle of calls in different orders from a call that one rank left out, or made too many.
    #[serde(rename = "knot")]
    Cycle,
    /// All entered; on some ranks the kernel does not start: an earlier one is stuck on the GPU.
    NotStarted,
    /// All entered and started, and the proxies wait for the network.
    Network,
    /// All entered and started, and nothing shows who holds it up.
    Running,
    /// Nobody waits inside; all are outside for longer than ever.
    Outside,
    /// No communicator has come about, and all ranks that are there wait.
    Start,
}

/// Where a rank is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankState {
    /// Rank in the job, else within the communicator.
    pub rank: u32,
    /// Node.
    pub host: String,
    /// Pid on it.
    pub pid: u32,
    /// As [`crate::standing::Standing::name`].
    pub state: String,
    /// In words.
    pub detail: String,
}

/// Nanoseconds as seconds.
pub fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
