//! What the ring of one process tells: NCCL's operations on it, with the state of each. The ring says itself whose it is.

use crate::OpKind;

/// One ring. Times are nanoseconds since 1970 by the clock of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingRecord {
    /// WORLD_SIZE of its environment.
    pub world_size: Option<u32>,
    /// Names the boot of its host: times of one boot compare to the microsecond.
    pub boot_id: Box<str>,
    /// Start of the process, clock ticks since boot: with the pid it names the process.
    pub start_ticks: u64,
    /// Version of the profiler interface that NCCL asked for.
    pub interface: u8,
    /// The process ended its last communicator in good order.
    pub is_ended: bool,
    /// The process lived when the ring was read, so what is in flight was so at `taken_ns`. Otherwise `taken_ns` is the
    /// last thing the ring knows of, and how long it stood still afterwards is not known from it.
    pub is_live: bool,
    /// When it was read.
    pub taken_ns: i64,
    /// Communicators, in the order of their making.
    pub comms: Vec<RingComm>,
    /// Distinct calls.
    pub calls: Vec<RingCall>,
    /// Operations, in the order in which NCCL was called; those that have ended as far back as the ring reaches.
    pub ops: Vec<RingOp>,
    /// What proxies of operations in flight wait for, by operation.
    pub waits: Vec<RingWait>,
    /// Communicators, operations and proxy operations for which the ring had no room: what it shows is not all.
    pub n_lost: u64,
    /// Entries that were being written when the ring was read, or when its process died.
    pub n_torn: u64,
}

/// One rank of one communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingComm {
    /// NCCL's commId or commHash, which its log and RAS print too; 0 where the interface does not tell it before the first
    /// operation (1 to 3) and there was none.
    pub id: u64,
    /// Name given by the program.
    pub name: Box<str>,
    /// Number of ranks; 0 if unknown.
    pub size: u32,
    /// This process's rank within it.
    pub rank: Option<u32>,
    /// When it was made.
    pub created_ns: i64,
    /// When it was finalized; 0 = it was not.
    pub ended_ns: i64,
    /// Collectives handed over so far.
    pub collectives: u64,
    /// Of those, ended.
    pub collectives_done: u64,
    /// Sends and receives handed over so far.
    pub p2p: u64,
    /// Of those, ended.
    pub p2p_done: u64,
    /// Newest sign of progress.
    pub progress_ns: i64,
}

/// What was called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingCall {
    /// Kind.
    pub kind: OpKind,
    /// Elements.
    pub count: u64,
    /// Type, by torch's name; empty = unknown.
    pub dtype: Box<str>,
    /// Root of a rooted collective.
    pub root: Option<u32>,
    /// Peer of a send or receive, within the communicator.
    pub peer: Option<u32>,
}

/// One operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOp {
    /// Number within its communicator, from 1; collectives and point-to-point count apart.
    pub number: u32,
    /// Index into `comms`.
    pub comm: u32,
    /// Index into `calls`.
    pub call: u32,
    /// When NCCL was called.
    pub enqueued_ns: i64,
    /// When its kernel was seen to start; 0 = it was not.
    pub started_ns: i64,
    /// When its last channel was seen to stop; 0 = in flight.
    pub ended_ns: i64,
    /// Time of its kernel by the GPU's own clock, ns; 0 = not told.
    pub gpu_ns: u64,
    /// Send or receive.
    pub is_p2p: bool,
    /// Given to the GPU's stream.
    pub is_launched: bool,
    /// Its end can be seen at all.
    pub is_end_visible: bool,
    /// Part of a CUDA graph: it may run many times, or never.
    pub is_captured: bool,
    /// Channels whose kernel has started, and stopped.
    pub channels: (u16, u16),
    /// Place in the file: start and end, bytes; equal if it is not known.
    pub span: (u64, u64),
}

/// How far an operation has come on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingStage {
    /// NCCL was called, and has not yet given it to the GPU: it connects, or waits for the end of a group.
    Entered,
    /// Given to the GPU; its kernel has not started there.
    Launched,
    /// Its kernel runs.
    Started,
    /// It has ended.
    Finished,
}

impl RingOp {
    /// How far it has come.
    pub fn stage(&self) -> RingStage {
        match (self.started_ns, self.ended_ns) {
            (_, ended) if ended > 0 => RingStage::Finished,
            (started, _) if started > 0 || self.channels.0 > 0 => RingStage::Started,
            _ if self.is_launched => RingStage::Launched,
            _ => RingStage::Entered,
        }
    }

    /// In flight, as far as can be known: what was recorded into a graph need never run.
    pub fn is_open(&self) -> bool {
        self.ended_ns == 0 && self.is_end_visible && (!self.is_captured || self.stage() == RingStage::Started)
    }
}

/// One channel's traffic with one peer that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingWait {
    /// Index into `ops`.
    pub op: u32,
    /// Peer within the communicator.
    pub peer: u32,
    /// Channel.
    pub channel: u8,
    /// Sending, else receiving.
    pub is_send: bool,
    /// What it waits for.
    pub phase: RingPhase,
    /// Since when.
    pub since_ns: i64,
    /// Steps done, and wanted.
    pub steps: (u32, u32),
}

/// What a proxy waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingPhase {
    /// Not told.
    #[default]
    Unknown,
    /// The own GPU has not produced the data.
    SendGpu,
    /// The receiver has given no credit.
    SendPeer,
    /// Handed to the network, which has not confirmed.
    SendNet,
    /// Nothing has arrived.
    RecvNet,
    /// GPUDirect's flush.
    RecvFlush,
    /// The own GPU does not take the data.
    RecvGpu,
}

impl RingPhase {
    /// For people.
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
