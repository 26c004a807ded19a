//! What one agent says of its ranks at one moment. Bounded: state in flight, not history.

mod ring;
mod seconds;

pub use ring::from_ring;
use serde::{Deserialize, Serialize};

/// Name of the format; the last part is its major version.
pub const SCHEMA: &str = "ringleader.digest.v1";

/// One agent's word: one node, or one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Digest {
    /// `ringleader.digest.v1`.
    pub schema: String,
    /// Who speaks: host name, made unique by the agent where two share one.
    pub node: String,
    /// Counts up with every digest of this agent; starts again with `agent`.
    pub sequence: u64,
    /// Names this run of the agent.
    pub agent: String,
    /// When it was made, nanoseconds since 1970 by the node's clock.
    pub at_ns: i64,
    /// Ranks of the job that this agent sees.
    #[serde(skip_serializing_if = "is_default")]
    pub ranks: Vec<RankDigest>,
    /// What it could not see, for people.
    #[serde(skip_serializing_if = "is_default")]
    pub notes: Vec<String>,
}

/// One process of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankDigest {
    /// Rank in the job, where known (environment, else the largest communicator).
    #[serde(skip_serializing_if = "is_default")]
    pub rank: Option<u32>,
    /// Local rank.
    #[serde(skip_serializing_if = "is_default")]
    pub local_rank: Option<u32>,
    /// Pid on the host.
    #[serde(skip_serializing_if = "is_default")]
    pub pid: u32,
    /// What the kernel says of the process.
    #[serde(skip_serializing_if = "is_default")]
    pub process: ProcessState,
    /// Function of the kernel it sleeps in, where it may be read.
    #[serde(skip_serializing_if = "is_default")]
    pub wchan: Option<String>,
    /// Processor time so far, milliseconds: two digests show whether it runs.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_ms: Option<u64>,
    /// The same of the processes that it has started, while they live.
    #[serde(skip_serializing_if = "is_default")]
    pub below_cpu_ms: Option<u64>,
    /// How many times its main thread has gone to sleep so far: one that sleeps on shows the same number.
    #[serde(skip_serializing_if = "is_default")]
    pub switches: Option<u64>,
    /// By what it is seen.
    #[serde(skip_serializing_if = "is_default")]
    pub seen_by: SeenBy,
    /// Communicators.
    #[serde(skip_serializing_if = "is_default")]
    pub comms: Vec<CommDigest>,
    /// Its receives in the newest seconds; none where it has none, or their ends cannot be seen.
    #[serde(skip_serializing_if = "is_default")]
    pub receives: Option<ReceiveDigest>,
    /// What its collectives did in the newest seconds, at most [`MAX_SECONDS`], oldest first.
    #[serde(skip_serializing_if = "is_default")]
    pub seconds: Vec<SecondDigest>,
    /// What the plugin's ring has lost so far, all kinds together.
    #[serde(skip_serializing_if = "is_default")]
    pub lost: u64,
    /// Ranks of the job by its environment.
    #[serde(skip_serializing_if = "is_default")]
    pub world_size: Option<u32>,
    /// Ranks of the job on its node, by its environment.
    #[serde(skip_serializing_if = "is_default")]
    pub local_world_size: Option<u32>,
    /// Its environment loads the plugin: it would show by a ring if it had a communicator.
    #[serde(skip_serializing_if = "is_default")]
    pub would_show: bool,
    /// It ended its last communicator in good order.
    #[serde(skip_serializing_if = "is_default")]
    pub is_ended: bool,
    /// Where its main thread is, outermost frame first, at most [`MAX_FRAMES`]: only while it is requested.
    #[serde(skip_serializing_if = "is_default")]
    pub stack: Vec<String>,
    /// When that stack was taken, ns by its node's clock: the same one is in several digests. 0 if that is not known.
    #[serde(skip_serializing_if = "is_default")]
    pub stack_ns: i64,
    /// What TCP counts of its connections to other hosts; none where it has none, or they cannot be seen.
    #[serde(skip_serializing_if = "is_default")]
    pub tcp: Option<TcpDigest>,
}

/// What a rank's symmetric collectives, of all communicators, did in one second of its node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondDigest {
    /// Since 1970.
    #[serde(rename = "s", skip_serializing_if = "is_default")]
    pub second: i64,
    /// Milliseconds of it in which one had been called and had not ended.
    #[serde(rename = "o", skip_serializing_if = "is_default")]
    pub open_ms: u32,
    /// Milliseconds of it in which the kernel of one ran.
    #[serde(rename = "r", skip_serializing_if = "is_default")]
    pub ran_ms: u32,
    /// How many ended in it.
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pub n: u32,
}

/// Seconds that a digest carries for each rank: agents speak more often.
pub const MAX_SECONDS: usize = 6;

/// A rank's receives from other ranks, of all communicators, in the newest seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiveDigest {
    /// Milliseconds that this is over.
    #[serde(rename = "t", skip_serializing_if = "is_default")]
    pub span_ms: u32,
    /// Milliseconds of them in which a receive ran.
    #[serde(rename = "r", skip_serializing_if = "is_default")]
    pub ran_ms: u32,
    /// Receives that ended.
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pub n: u32,
    /// The longest of them, milliseconds.
    #[serde(rename = "l", skip_serializing_if = "is_default")]
    pub longest_ms: u32,
}

/// What a process's TCP connections to other addresses did in the newest few seconds, as the kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpDigest {
    /// Milliseconds that the counts are over.
    #[serde(rename = "t", skip_serializing_if = "is_default")]
    pub span_ms: u32,
    /// Own addresses of these connections, at most [`MAX_ADDRESSES`].
    #[serde(rename = "a", skip_serializing_if = "is_default")]
    pub addresses: Vec<String>,
    /// Those that carried something, at most [`MAX_FLOWS`]: the busiest.
    #[serde(rename = "w", skip_serializing_if = "is_default")]
    pub flows: Vec<TcpFlow>,
}

/// All of a process's connections from one address to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpFlow {
    /// Own address.
    #[serde(rename = "f", skip_serializing_if = "is_default")]
    pub from: String,
    /// The peer's.
    #[serde(rename = "t", skip_serializing_if = "is_default")]
    pub to: String,
    /// Milliseconds for which data waited to be sent or acknowledged and the receiver had room: of the connection for which
    /// that was longest.
    #[serde(rename = "b", skip_serializing_if = "is_default")]
    pub busy_ms: u32,
    /// Bytes that were acknowledged, of all.
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pub bytes: u64,
}

/// Own addresses that a digest carries for each rank.
pub const MAX_ADDRESSES: usize = 4;
/// Ways that a digest carries for each rank.
pub const MAX_FLOWS: usize = 8;

/// State of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// Not read.
    #[default]
    Unknown,
    /// Runs or sleeps.
    Alive,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Sleeps in the kernel and cannot be woken (state D).
    Uninterruptible,
    /// Ended, not yet collected by its parent.
    Zombie,
    /// Gone.
    Dead,
}

/// Where the knowledge of a rank's operations comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenBy {
    /// The process alone: no operations are known.
    #[default]
    Process,
    /// NCCL RAS: counts of launches, no ends.
    Ras,
    /// The plugin's ring.
    Ring,
}

/// One rank of one communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommDigest {
    /// Equal on all ranks: NCCL's commId or commHash, hexadecimal.
    #[serde(skip_serializing_if = "is_default")]
    pub id: String,
    /// Name given by the program.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// Number of ranks.
    #[serde(skip_serializing_if = "is_default")]
    pub size: u32,
    /// Rank within it.
    #[serde(skip_serializing_if = "is_default")]
    pub rank: Option<u32>,
    /// Collectives handed over so far.
    #[serde(skip_serializing_if = "is_default")]
    pub collectives: u64,
    /// Collectives that have ended; none where ends cannot be seen.
    #[serde(skip_serializing_if = "is_default")]
    pub collectives_done: Option<u64>,
    /// Sends and receives handed over so far.
    #[serde(skip_serializing_if = "is_default")]
    pub p2p: u64,
    /// Sends and receives that have ended.
    #[serde(skip_serializing_if = "is_default")]
    pub p2p_done: Option<u64>,
    /// Bytes of ended operations.
    #[serde(skip_serializing_if = "is_default")]
    pub bytes_done: u64,
    /// Newest sign of progress, nanoseconds since 1970 by the node's clock.
    #[serde(skip_serializing_if = "is_default")]
    pub progress_ns: i64,
    /// Newest sign that what is in flight moves: a kernel started, a proxy went on, an operation ended. Not the calls. 0 where
    /// that is not seen.
    #[serde(skip_serializing_if = "is_default")]
    pub moved_ns: i64,
    /// It was finalized.
    #[serde(skip_serializing_if = "is_default")]
    pub is_ended: bool,
    /// The oldest operations in flight, at most [`MAX_IN_FLIGHT`].
    #[serde(skip_serializing_if = "is_default")]
    pub in_flight: Vec<OpDigest>,
    /// How many there are in all.
    #[serde(skip_serializing_if = "is_default")]
    pub n_in_flight: u32,
    /// Ended collectives, at most [`MAX_RECENT`], oldest first: some of the newest, and some whose numbers all agents choose
    /// alike, so that there are some that all have.
    #[serde(skip_serializing_if = "is_default")]
    pub recent: Vec<DoneDigest>,
    /// The step that the calls show.
    #[serde(skip_serializing_if = "is_default")]
    pub period: Option<PeriodDigest>,
    /// Sums over the newest whole steps, at most [`MAX_STEPS`], oldest first: who is late once a step is late in few of its
    /// collectives.
    #[serde(skip_serializing_if = "is_default")]
    pub steps: Vec<StepDigest>,
}

/// Steps that a digest carries for each communicator.
pub const MAX_STEPS: usize = 4;

/// Sums over collectives with consecutive numbers, none of them with a root.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepDigest {
    /// The first number, a multiple of `ops`.
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pub first: u64,
    /// How many: the smallest power of two that is no smaller than the step.
    #[serde(rename = "o", skip_serializing_if = "is_default")]
    pub ops: u32,
    /// Collectives in a step.
    #[serde(rename = "s", skip_serializing_if = "is_default")]
    pub step: u32,
    /// From the calls to the kernels' starts, in all, ns: as in [`DoneDigest`].
    #[serde(rename = "q", skip_serializing_if = "is_default")]
    pub queued_ns: u64,
    /// From the kernels' starts to their ends, in all, ns.
    #[serde(rename = "r", skip_serializing_if = "is_default")]
    pub ran_ns: u64,
    /// From the ends of the collectives before to the calls, in all, ns.
    #[serde(rename = "g", skip_serializing_if = "is_default")]
    pub gap_ns: u64,
    /// From the ends of the collectives before to their own, in all, ns.
    #[serde(rename = "p", skip_serializing_if = "is_default")]
    pub period_ns: u64,
}

/// Calls that repeat themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeriodDigest {
    /// Operations in one repetition.
    #[serde(skip_serializing_if = "is_default")]
    pub ops: u32,
    /// Repetitions seen.
    #[serde(skip_serializing_if = "is_default")]
    pub repeats: u32,
    /// Time of one, nanoseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub step_ns: i64,
    /// From the first to the last of them, nanoseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub span_ns: i64,
    /// Among them is what training consists of: reductions, or traffic between two ranks. What is sent out before the first
    /// step repeats itself too.
    #[serde(skip_serializing_if = "is_default")]
    pub is_training: bool,
}

/// Whether this is NCCL's name of a send or receive.
pub fn is_p2p(function: &str) -> bool {
    matches!(function, "Send" | "Recv" | "SendRecv")
}

/// Whether all ranks enter and leave this collective alike; one with a root may be left early.
pub fn is_symmetric(function: &str) -> bool {
    matches!(function, "AllReduce" | "AllGather" | "ReduceScatter" | "AlltoAll" | "AllToAll")
}

/// Communicators that a digest carries for each rank.
pub const MAX_COMMS: usize = 64;

/// Operations in flight that a digest carries for each communicator.
pub const MAX_IN_FLIGHT: usize = 4;
/// Ended operations that a digest carries for each communicator.
pub const MAX_RECENT: usize = 16;
/// Waits that a digest carries for each operation: the longest ones.
pub const MAX_WAITS: usize = 4;

/// Frames of a stack.
pub const MAX_FRAMES: usize = 48;

/// One operation in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpDigest {
    /// Number within its communicator; point-to-point is counted apart.
    #[serde(skip_serializing_if = "is_default")]
    pub number: u64,
    /// NCCL's name: `AllReduce`, `Send`.
    #[serde(skip_serializing_if = "is_default")]
    pub function: String,
    /// Elements.
    #[serde(skip_serializing_if = "is_default")]
    pub count: u64,
    /// NCCL's name of the type.
    #[serde(skip_serializing_if = "is_default")]
    pub datatype: String,
    /// Root.
    #[serde(skip_serializing_if = "is_default")]
    pub root: Option<u32>,
    /// Peer.
    #[serde(skip_serializing_if = "is_default")]
    pub peer: Option<u32>,
    /// When NCCL was called, nanoseconds since 1970 by the node's clock.
    #[serde(skip_serializing_if = "is_default")]
    pub enqueued_ns: i64,
    /// When its first kernel started.
    #[serde(skip_serializing_if = "is_default")]
    pub started_ns: Option<i64>,
    /// Whether kernels are reported at all: without it, `started_ns` that is none means nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub is_start_visible: bool,
    /// Nobody will tell of its end: it is listed as called, and may have ended long ago.
    #[serde(skip_serializing_if = "is_default")]
    pub is_end_unseen: bool,
    /// Channels started, stopped, in all.
    #[serde(skip_serializing_if = "is_default")]
    pub channels: [u16; 3],
    /// What its proxies wait for.
    #[serde(skip_serializing_if = "is_default")]
    pub waits: Vec<WaitDigest>,
}

/// What a proxy waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitDigest {
    /// Peer rank within the communicator.
    #[serde(skip_serializing_if = "is_default")]
    pub peer: u32,
    /// Channel.
    #[serde(skip_serializing_if = "is_default")]
    pub channel: u8,
    /// Sending, else receiving.
    #[serde(skip_serializing_if = "is_default")]
    pub is_send: bool,
    /// `send-gpu`, `send-peer`, `send-net`, `recv-net`, `recv-flush`, `recv-gpu`, `unknown`.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
    /// Since when, nanoseconds since 1970 by the node's clock.
    #[serde(skip_serializing_if = "is_default")]
    pub since_ns: i64,
}

/// An ended collective, for who came late: durations alone, so that clocks need not agree. There are many of them: on the
/// wire their fields have names of one letter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DoneDigest {
    /// Number within its communicator.
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pub number: u64,
    /// Bytes of the call: count times size of the type.
    #[serde(rename = "b", skip_serializing_if = "is_default")]
    pub bytes: u64,
    /// From the call to the kernel's start, nanoseconds.
    #[serde(rename = "q", skip_serializing_if = "is_default")]
    pub queued_ns: u64,
    /// From the kernel's start to its end, nanoseconds: by the GPU's timer where it is known.
    #[serde(rename = "r", skip_serializing_if = "is_default")]
    pub ran_ns: u64,
    /// From the previous collective's end on this rank and communicator to this call, nanoseconds.
    #[serde(rename = "g", skip_serializing_if = "is_default")]
    pub gap_ns: u64,
    /// From that end to this one's, nanoseconds; 0 where the previous one is not known.
    #[serde(rename = "p", skip_serializing_if = "is_default")]
    pub period_ns: u64,
    /// Longest wait of a proxy: its phase, its peer, nanoseconds.
    #[serde(rename = "w", skip_serializing_if = "is_default")]
    pub longest_wait: Option<(String, u32, u64)>,
    /// NCCL's name: `AllReduce`.
    #[serde(rename = "f", skip_serializing_if = "is_default")]
    pub function: String,
}

/// What is not said is as by default: thousands of agents say it every second.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
