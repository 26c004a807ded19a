//! What a reader returns: the state of one process's ring as plain data.
//!
//! Times are nanoseconds of the host's CLOCK_MONOTONIC unless a name says otherwise; `Taken` maps them to the wall clock.
//! GPU times are of the GPU's global timer and compare only within one GPU.

/// One process, as its ring tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Who wrote the ring.
    pub process: Process,
    /// When this was read, and how its clock maps to the wall clock.
    pub taken: Taken,
    /// Communicators, live and ended, in the order of their making.
    pub comms: Vec<Comm>,
    /// Operations that have ended, oldest first, as far back as the ring reaches.
    pub recent: Vec<Done>,
    /// Proxy operations done here for another process (PXN).
    pub foreign: Vec<Foreign>,
    /// What the ring could not keep.
    pub lost: Lost,
}

/// The process that NCCL runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Pid as the process itself sees it (within its container).
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22): pid and this name a process.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`, without hyphens; monotonic clocks of one boot id compare.
    pub boot_id: String,
    /// Host name, cut at 64 bytes.
    pub host: String,
    /// RANK, LOCAL_RANK, WORLD_SIZE of the environment when the plugin was loaded.
    pub rank: Option<u32>,
    /// As above.
    pub local_rank: Option<u32>,
    /// As above.
    pub world_size: Option<u32>,
    /// The interface that NCCL asked for: 1 to 7.
    pub interface: u8,
    /// The process ended its last communicator in good order.
    pub is_ended: bool,
    /// When reports of kernels were given up, since NCCL makes them wrongly from then on: of operations after that the end
    /// is seen by proxies alone.
    pub kernels_ended_ns: Option<u64>,
}

/// Moment of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// CLOCK_MONOTONIC at the reading; for a dead process the newest time in the ring.
    pub mono_ns: u64,
    /// CLOCK_REALTIME of the same moment.
    pub unix_ns: u64,
    /// Whether its process held the ring at that moment; None for a file that was not read by a `Reader`.
    pub is_held: Option<bool>,
}

impl Taken {
    /// A monotonic time of this ring on the wall clock, nanoseconds since 1970.
    pub fn unix_of(&self, mono_ns: u64) -> u64 {
        self.unix_ns.saturating_sub(self.mono_ns).saturating_add(mono_ns)
    }
}

/// One communicator of this process: one rank of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comm {
    /// Place in the ring's region; `Op::comm` and `Done::comm` name it.
    pub slot: u32,
    /// What NCCL calls commId (interface 5 and later) or commHash (before; up to interface 3 from the
    /// first operation on, 0 until then). Equal on all ranks of the communicator.
    pub id: u64,
    /// Name given by the program (torch's group description), cut at 63 bytes.
    pub name: String,
    /// Number of ranks; 0 where the interface does not tell (1 to 3).
    pub size: u32,
    /// This process's rank within it.
    pub rank: Option<u32>,
    /// Number of nodes.
    pub nodes: u32,
    /// When it was made.
    pub created_ns: u64,
    /// When it was finalized.
    pub ended_ns: Option<u64>,
    /// Collectives handed over so far; the next one has this number. Numbers count from 0 in the order of the calls, so
    /// that equal numbers are the same call on all ranks of a right program.
    pub collectives: u64,
    /// Collectives that have ended.
    pub collectives_done: u64,
    /// Sends and receives handed over so far.
    pub p2p: u64,
    /// Sends and receives that have ended.
    pub p2p_done: u64,
    /// Bytes of ended operations.
    pub bytes_done: u64,
    /// Newest sign of progress: an operation handed over, started or ended, a proxy step.
    pub progress_ns: u64,
    /// Host time minus the GPU's, from the newest operations that have ended: their smallest difference between the
    /// moment when a start was seen and the GPU's own time of it. A GPU time plus this is a host time, late by no more
    /// than the quickest of these sightings was, usually some microseconds.
    pub gpu_offset_ns: Option<i64>,
    /// Its kernels are not reported: interfaces 1 and 2, who asks for none, and after they were given up.
    pub lacks_kernels: bool,
    /// Operations in flight, oldest first.
    pub in_flight: Vec<Op>,
}

/// An operation that has been handed to NCCL and has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// Number within its communicator: collectives and point-to-point are counted apart.
    pub number: u64,
    /// What it is.
    pub call: Call,
    /// When NCCL was called.
    pub enqueued_ns: u64,
    /// When the program's call returned from the enqueue (`stopEvent`).
    pub handed_over_ns: Option<u64>,
    /// When its first channel's kernel was seen to start, host clock.
    pub started_ns: Option<u64>,
    /// Channels whose kernel has started, and has stopped.
    pub channels_started: u16,
    /// As above.
    pub channels_stopped: u16,
    /// What its proxies wait for.
    pub waits: Vec<Wait>,
    /// Whether its end can be seen at all: kernels are reported (interface 3 and later) or proxies were.
    pub is_end_visible: bool,
    /// A send or receive: its number counts apart from those of the collectives.
    pub is_p2p: bool,
    /// NCCL has told algorithm and channels of its launch. One that is handed over and not launched is a broadcast that
    /// NCCL does not report further; one that is neither still connects, or waits for the end of its group.
    pub is_launched: bool,
    /// Channels whose kernel has started and has not stopped: bit n is channel n.
    pub open_channels: u64,
}

/// What was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// NCCL's name: `AllReduce`, `Send`. Empty if the interface did not tell.
    pub function: String,
    /// NCCL's count per communicator and function, where given.
    pub sequence: Option<u64>,
    /// Number of elements.
    pub count: u64,
    /// NCCL's name of the type: `ncclFloat32`.
    pub datatype: String,
    /// Root, for collectives with one.
    pub root: Option<u32>,
    /// Peer, for point-to-point.
    pub peer: Option<u32>,
    /// `RING`, `TREE`, ... as NCCL names it.
    pub algorithm: String,
    /// `LL`, `LL128`, `SIMPLE`.
    pub protocol: String,
    /// Channels that it uses.
    pub channels: u16,
    /// Captured into a CUDA graph: it may run many times or never.
    pub is_captured: bool,
}

impl Call {
    /// Bytes of one element of `datatype`; none for a name that is not known.
    pub fn element_bytes(&self) -> Option<u64> {
        Some(match self.datatype.as_str() {
            "ncclInt8" | "ncclUint8" | "ncclFloat8e4m3" | "ncclFloat8e5m2" => 1,
            "ncclFloat16" | "ncclBfloat16" => 2,
            "ncclInt32" | "ncclUint32" | "ncclFloat32" => 4,
            "ncclInt64" | "ncclUint64" | "ncclFloat64" => 8,
            _ => return None,
        })
    }
}

/// A proxy operation: one channel's traffic with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Peer rank within the communicator.
    pub peer: u32,
    /// Channel.
    pub channel: u8,
    /// Sending, else receiving.
    pub is_send: bool,
    /// What it waits for.
    pub phase: Phase,
    /// Since when.
    pub since_ns: u64,
    /// Steps done, and wanted.
    pub steps_done: u32,
    /// As above.
    pub steps: u32,
    /// Events of the network plugin that are open: sends or receives that its device has not completed. Only where the
    /// plugin is asked for them and the network plugin gives them.
    pub net_open: u32,
}

/// What a proxy step waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not told yet.
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

/// An operation that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Place of its communicator in the region.
    pub comm: u32,
    /// As in `Op`.
    pub number: u64,
    /// What it was.
    pub call: Call,
    /// When NCCL was called.
    pub enqueued_ns: u64,
    /// When its first kernel was seen to start, host clock; as `enqueued_ns` if it was never seen.
    pub started_ns: u64,
    /// When its last channel was seen to stop, host clock.
    pub ended_ns: u64,
    /// From the first start to the last stop by the GPU's timer.
    pub gpu_ns: Option<u64>,
    /// GPU timer at the first start.
    pub gpu_started_ns: Option<u64>,
    /// Longest time that one of its proxies spent in one wait: the phase, the peer, nanoseconds.
    pub longest_wait: Option<(Phase, u32, u64)>,
    /// A send or receive: its number counts apart from those of the collectives.
    pub is_p2p: bool,
    /// Its end was seen. Else it is known only to be over, because a later one of its communicator ran; `ended_ns` is
    /// then the newest sign of it.
    pub is_end_seen: bool,
}

/// A proxy operation done here for an operation of another process on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Pid of that process, as it sees itself.
    pub pid: u32,
    /// What the proxy waits for.
    pub wait: Wait,
}

/// What the ring could not keep, by kind, since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Communicators.
    pub comms: u64,
    /// Operations.
    pub ops: u64,
    /// Proxy operations.
    pub waits: u64,
    /// Ended operations that were not written because their place was busy.
    pub records: u64,
    /// Ended operations that newer ones have written over.
    pub overwritten: u64,
    /// Faults inside the plugin, which went quiet after the first.
    pub faults: u64,
    /// Entries that were being written when they were read, or when the process died.
    pub torn: u64,
}
