//! The ring of one process: NCCL's operations and their state. The ring identifies its process.

use crate::OpKind;

/// One ring. Times are nanoseconds since 1970 by the clock of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingRecord {
    /// WORLD_SIZE of its environment.
    pub world_size: Option<u32>,
    /// Identifies the boot of its host: times of one boot compare to the microsecond.
    pub boot_id: Box<str>,
    /// Start of the process, clock ticks since boot: with the pid it identifies the process.
    pub start_ticks: u64,
    /// Version of the profiler interface that NCCL asked for.
    pub interface: u8,
    /// Whether the process ended its last communicator in an orderly way.
    pub is_ended: bool,
    /// That it called `exit`: the code, 0 to 255, and when. One that was killed, crashed or called `_exit` did not; neither
    /// did one whose plugin is older.
    pub exit: Option<(u8, i64)>,
    /// Whether the process was alive when the ring was read, so that operations were in flight at `taken_ns`. Otherwise
    /// `taken_ns` is the newest time in the ring, and the ring does not show how long the process was idle after it.
    pub is_live: bool,
    /// When it was read.
    pub taken_ns: i64,
    /// Communicators, in the order of their creation.
    pub comms: Vec<RingComm>,
    /// Distinct calls.
    pub calls: Vec<RingCall>,
    /// Operations in the order of the calls; ended ones as far back as the ring reaches.
    pub ops: Vec<RingOp>,
    /// What the proxies of operations in flight wait for.
    pub waits: Vec<RingWait>,
    /// Communicators, operations and proxy operations that did not fit into the ring, so that it is incomplete.
    pub n_lost: u64,
    /// Entries that were being written when the ring was read, or when its process died.
    pub n_torn: u64,
}

/// One rank of one communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingComm {
    /// NCCL's commId or commHash, which its log and RAS print, too; 0 if the interface does not report it before the
    /// first operation (1 to 3) and there was none.
    pub id: u64,
    /// Name given by the program.
    pub name: Box<str>,
    /// Number of ranks; 0 if unknown.
    pub size: u32,
    /// This process's rank within it.
    pub rank: Option<u32>,
    /// When it was created.
    pub created_ns: i64,
    /// When it was finalized; 0 if it was not.
    pub ended_ns: i64,
    /// Collectives called so far.
    pub collectives: u64,
    /// Collectives that have ended.
    pub collectives_done: u64,
    /// Sends and receives called so far.
    pub p2p: u64,
    /// Sends and receives that have ended.
    pub p2p_done: u64,
    /// Newest sign of progress.
    pub progress_ns: i64,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingCall {
    /// Kind.
    pub kind: OpKind,
    /// Number of elements.
    pub count: u64,
    /// Type, by torch's name; empty if unknown.
    pub dtype: Box<str>,
    /// Root of a rooted collective.
    pub root: Option<u32>,
    /// Peer of a send or receive, within the communicator.
    pub peer: Option<u32>,
}

/// One operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOp {
    /// Number within its communicator, from 1; collectives and point-to-point operations are counted separately.
    pub number: u32,
    /// Index into `comms`.
    pub comm: u32,
    /// Index into `calls`.
    pub call: u32,
    /// When NCCL was called.
    pub enqueued_ns: i64,
    /// When its kernel was seen to start; 0 if it was not.
    pub started_ns: i64,
    /// When its last channel was seen to stop; 0 while in flight.
    pub ended_ns: i64,
    /// Duration of its kernel by the GPU's own clock, ns; 0 if unknown.
    pub gpu_ns: u64,
    /// Send or receive.
    pub is_p2p: bool,
    /// Whether it was passed to the GPU's stream.
    pub is_launched: bool,
    /// Whether its end can be seen at all.
    pub is_end_visible: bool,
    /// Whether it is part of a CUDA graph: it may run many times, or never.
    pub is_captured: bool,
    /// Channels whose kernel has started, and channels whose kernel has stopped.
    pub channels: (u16, u16),
    /// Byte range in the file: start and end; equal if unknown.
    pub span: (u64, u64),
}

/// Progress of an operation on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingStage {
    /// NCCL was called but has not passed it to the GPU yet: it is connecting, or waits for the end of a group.
    Entered,
    /// Passed to the GPU; its kernel has not started.
    Launched,
    /// Its kernel runs.
    Started,
    /// It has ended.
    Finished,
}

impl RingOp {
    /// How far it has progressed.
    pub fn stage(&self) -> RingStage {
        match (self.started_ns, self.ended_ns) {
            (_, ended) if ended > 0 => RingStage::Finished,
            (started, _) if started > 0 || self.channels.0 > 0 => RingStage::Started,
            _ if self.is_launched => RingStage::Launched,
            _ => RingStage::Entered,
        }
    }

    /// Whether it is in flight, as far as known: an operation captured into a graph need not run.
    pub fn is_open(&self) -> bool {
        self.ended_ns == 0 && self.is_end_visible && (!self.is_captured || self.stage() == RingStage::Started)
    }
}

/// Unfinished traffic of one channel with one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingWait {
    /// Index into `ops`.
    pub op: u32,
    /// Peer within the communicator.
    pub peer: u32,
    /// Channel.
    pub channel: u8,
    /// Whether it sends; otherwise it receives.
    pub is_send: bool,
    /// What it waits for.
    pub phase: RingPhase,
    /// Since when it waits.
    pub since_ns: i64,
    /// Steps done and steps wanted.
    pub steps: (u32, u32),
}

/// What a proxy waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingPhase {
    /// Unknown.
    #[default]
    Unknown,
    /// Its own GPU has not produced the data.
    SendGpu,
    /// The receiver has not granted credit.
    SendPeer,
    /// The data was passed to the network, which has not confirmed it.
    SendNet,
    /// Nothing has arrived.
    RecvNet,
    /// GPUDirect's flush.
    RecvFlush,
    /// Its own GPU has not consumed the data.
    RecvGpu,
}

impl RingPhase {
    /// Explanation for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Unknown => "for an unknown reason",
            Self::SendGpu => "the own GPU has not produced the data",
            Self::SendPeer => "the receiver has given no credit",
            Self::SendNet => "the network has not confirmed",
            Self::RecvNet => "nothing has arrived",
            Self::RecvFlush => "the flush has not ended",
            Self::RecvGpu => "the own GPU does not take the data",
        }
    }
}
