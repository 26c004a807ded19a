//! What a reader returns: the state of one process's ring as plain data.
//!
//! Times are nanoseconds of the host's CLOCK_MONOTONIC unless a name says otherwise; `ReadMoment` maps them to the wall
//! clock. GPU times are those of the GPU's global timer and compare only within one GPU.

/// The state of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The process that wrote the ring.
    pub process: RingProcess,
    /// When the ring was read, and how its clock maps to the wall clock.
    pub taken: ReadMoment,
    /// Communicators, live and ended, in the order of their creation.
    pub comms: Vec<Comm>,
    /// Operations that have ended, oldest first, as far back as the ring reaches.
    pub recent: Vec<Done>,
    /// Proxy operations done here for another process (PXN).
    pub foreign: Vec<Foreign>,
    /// Counts of events that the ring could not keep.
    pub lost: Lost,
}

/// The process that NCCL runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingProcess {
    /// Pid as the process itself sees it (within its container).
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22): pid and start time identify a process.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`, without hyphens; monotonic clocks of one boot id compare.
    pub boot_id: String,
    /// Host name, cut at 64 bytes.
    pub host: String,
    /// RANK in the environment when the plugin was loaded.
    pub rank: Option<u32>,
    /// LOCAL_RANK, likewise.
    pub local_rank: Option<u32>,
    /// WORLD_SIZE, likewise.
    pub world_size: Option<u32>,
    /// The profiler interface that NCCL asked for: 1 to 7.
    pub interface: u8,
    /// Whether the process ended its last communicator in an orderly way.
    pub is_ended: bool,
    /// When reports of kernels were given up, because NCCL makes them wrongly from then on. The end of later operations
    /// is known from proxies only.
    pub kernels_ended_ns: Option<u64>,
    /// That it called `exit`; a process that was killed, crashed or called `_exit` did not.
    pub exit: Option<Exit>,
}

/// A process called `exit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// 0 to 255.
    pub code: u8,
    /// CLOCK_MONOTONIC of the call, ns.
    pub at_ns: u64,
}

/// The moment of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadMoment {
    /// CLOCK_MONOTONIC at the reading; for a dead process the newest time in the ring.
    pub mono_ns: u64,
    /// CLOCK_REALTIME of the same moment.
    pub unix_ns: u64,
    /// Whether its process held the ring at that moment; None for a file that was not read by a `Reader`.
    pub is_held: Option<bool>,
}

impl ReadMoment {
    /// Converts a monotonic time of this ring to wall clock time, nanoseconds since 1970.
    pub fn unix_of(&self, mono_ns: u64) -> u64 {
        self.unix_ns.saturating_sub(self.mono_ns).saturating_add(mono_ns)
    }
}

/// One communicator of this process, in which it is one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comm {
    /// Index in the ring's region; `Op::comm` and `Done::comm` refer to it.
    pub slot: u32,
    /// NCCL's commId (interface 5 and later) or commHash (before; up to interface 3 it is 0 until the first operation).
    /// Equal on all ranks of the communicator.
    pub id: u64,
    /// Name given by the program (torch's group description), cut at 63 bytes.
    pub name: String,
    /// Number of ranks; 0 if the interface does not report it (1 to 3).
    pub size: u32,
    /// This process's rank within it.
    pub rank: Option<u32>,
    /// Number of nodes.
    pub nodes: u32,
    /// When it was made.
    pub created_ns: u64,
    /// When it was finalized.
    pub ended_ns: Option<u64>,
    /// Collectives called so far; the next one gets this number. Numbers count from 0 in the order of the calls, so in
    /// a correct program equal numbers are the same call on all ranks.
    pub collectives: u64,
    /// Collectives that have ended.
    pub collectives_done: u64,
    /// Sends and receives called so far.
    pub p2p: u64,
    /// Sends and receives that have ended.
    pub p2p_done: u64,
    /// Bytes of ended operations.
    pub bytes_done: u64,
    /// Newest sign of progress: an operation handed over, started or ended, or a proxy step.
    pub progress_ns: u64,
    /// Host time minus GPU time: the smallest difference, over the newest ended operations, between the moment when a
    /// start was seen and the GPU's own time of that start. A GPU time plus this is a host time that is late by at most
    /// the fastest of these sightings, usually some microseconds.
    pub gpu_offset_ns: Option<i64>,
    /// Its kernels are not reported: interfaces 1 and 2, if none were requested, and after reports were given up.
    pub lacks_kernels: bool,
    /// Operations in flight, oldest first.
    pub in_flight: Vec<Op>,
}

/// An operation that was passed to NCCL and has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// Number within its communicator: collectives and point-to-point operations are counted separately.
    pub number: u64,
    /// The call.
    pub call: CallArgs,
    /// When NCCL was called.
    pub enqueued_ns: u64,
    /// When the program's call returned from the enqueue (`stopEvent`).
    pub handed_over_ns: Option<u64>,
    /// When its first channel's kernel was seen to start, host clock.
    pub started_ns: Option<u64>,
    /// Channels whose kernel has started.
    pub channels_started: u16,
    /// Channels whose kernel has stopped.
    pub channels_stopped: u16,
    /// Waits of its proxies.
    pub waits: Vec<Wait>,
    /// Whether its end can be seen at all: kernels are reported (interface 3 and later), or proxies were.
    pub is_end_visible: bool,
    /// A send or receive: these are numbered separately from collectives.
    pub is_p2p: bool,
    /// NCCL has reported algorithm and channels of its launch. An operation that is handed over but not launched is a
    /// broadcast that NCCL does not report further; one that is neither is still connecting, or waits for the end of
    /// its group.
    pub is_launched: bool,
    /// Channels whose kernel has started and not stopped: bit n is channel n.
    pub open_channels: u64,
}

/// The arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallArgs {
    /// NCCL's name: `AllReduce`, `Send`. Empty if the interface does not report it.
    pub function: String,
    /// NCCL's counter per communicator and function, if reported.
    pub sequence: Option<u64>,
    /// Number of elements.
    pub count: u64,
    /// NCCL's name of the type: `ncclFloat32`.
    pub datatype: String,
    /// Root of a rooted collective.
    pub root: Option<u32>,
    /// Peer of a send or receive.
    pub peer: Option<u32>,
    /// `RING`, `TREE`, ... as NCCL names it.
    pub algorithm: String,
    /// `LL`, `LL128`, `SIMPLE`.
    pub protocol: String,
    /// Number of channels that it uses.
    pub channels: u16,
    /// Captured into a CUDA graph: it may run many times or never.
    pub is_captured: bool,
}

impl CallArgs {
    /// Bytes of one element of `datatype`; None for an unknown name.
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
    /// Whether it sends; otherwise it receives.
    pub is_send: bool,
    /// The resource that it waits for.
    pub phase: Phase,
    /// Since when it waits.
    pub since_ns: u64,
    /// Steps done.
    pub steps_done: u32,
    /// Steps wanted.
    pub steps: u32,
    /// Open events of the network plugin: sends or receives that its device has not completed. Only if these events
    /// were requested and the network plugin reports them.
    pub net_open: u32,
}

/// A resource that a proxy step waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not reported yet.
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

/// An operation that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Index of its communicator in the region.
    pub comm: u32,
    /// As in `Op`.
    pub number: u64,
    /// Function and arguments of the ended call.
    pub call: CallArgs,
    /// When NCCL was called.
    pub enqueued_ns: u64,
    /// When its first kernel was seen to start, host clock; equal to `enqueued_ns` if no start was seen.
    pub started_ns: u64,
    /// When its last channel was seen to stop, host clock.
    pub ended_ns: u64,
    /// Time from the first start to the last stop by the GPU's timer.
    pub gpu_ns: Option<u64>,
    /// GPU timer at the first start.
    pub gpu_started_ns: Option<u64>,
    /// Longest time that one of its proxies spent in one wait: phase, peer, nanoseconds.
    pub longest_wait: Option<(Phase, u32, u64)>,
    /// A send or receive: these are numbered separately from collectives.
    pub is_p2p: bool,
    /// Its end was seen. Otherwise it is over only because a later operation of its communicator ran; `ended_ns` is
    /// then the newest sign of it.
    pub is_end_seen: bool,
}

/// A proxy operation done here for an operation of another process on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Pid of that process, as it sees itself.
    pub pid: u32,
    /// The resource that the proxy waits for.
    pub wait: Wait,
}

/// Counts of events that the ring could not keep, by kind, since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Communicators.
    pub comms: u64,
    /// Operations.
    pub ops: u64,
    /// Proxy operations.
    pub waits: u64,
    /// Ended operations that were not recorded because their entry was busy.
    pub records: u64,
    /// Ended operations that newer ones have overwritten.
    pub overwritten: u64,
    /// Faults inside the plugin, which disarms after the first.
    pub faults: u64,
    /// Entries that were being written when the ring was read, or when the process died.
    pub torn: u64,
}
