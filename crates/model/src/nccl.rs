//! What an NCCL_DEBUG log tells, per process and communicator.

use crate::{Cite, GroupRank, Host, OpKind, PciAddress, Pid, WallTime, Who};

/// Everything read from the NCCL lines of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclLog {
    /// Processes seen, by host and pid (and by launcher tag where lines lack both).
    pub processes: Vec<NcclProcess>,
    /// Communicators, one entry per process and pointer (a pointer used again after destroy is a new entry).
    pub comms: Vec<NcclComm>,
    /// COLL lines in file order.
    pub calls: Vec<NcclCall>,
    /// WARN lines, and INFO lines that report a failure (retries, async events).
    pub messages: Vec<NcclMessage>,
    /// `file:line -> code` back-trace lines.
    pub backtraces: Vec<NcclBacktrace>,
    /// `NCCL_X set by environment to …`.
    pub settings: Vec<NcclSetting>,
    /// Channels: which pair of ranks uses which transport, counted.
    pub links: Vec<NcclLink>,
    /// NCCL lines read.
    pub n_lines: u64,
    /// COLL lines left out because a bound was reached (0 = none). The oldest are left out.
    pub n_calls_dropped: u64,
    /// The source ends inside a line: more was written than is here, so counts are lower bounds.
    pub truncated: bool,
    /// The same per communicator, by index into `comms`; empty if none was left out. What is left of a
    /// communicator's calls begins after this many.
    pub dropped_of_comm: Vec<u64>,
    /// Communicators that appear in COLL lines alone, since the log begins later or INIT lines were masked. Calls of
    /// the first carry `comm` = `u32::MAX`, of the second `u32::MAX - 1`, and so on.
    pub strangers: Vec<NcclStranger>,
}

/// A process that wrote NCCL lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclProcess {
    /// Host, pid; rank and local rank only from a launcher's prefix.
    pub who: Who,
    /// `NCCL version 2.28.9+cuda13.0`, without the word.
    pub nccl_version: Option<Box<str>>,
    /// `cudaDriverVersion 13000`.
    pub cuda_driver_version: Option<u32>,
    /// Bootstrap interface and address: `eth0:192.0.2.2<0>`.
    pub bootstrap: Option<Box<str>>,
    /// `Using network X`.
    pub network: Option<Box<str>>,
    /// IB devices of `NET/IB : Using …`, as printed; None if no such line or it names none.
    pub ib_devices: Option<Box<str>>,
    /// Socket devices of `NET/Socket : Using …`.
    pub socket_devices: Option<Box<str>>,
    /// First line of this process.
    pub first: Option<Cite>,
    /// Last line of this process: what it said before it fell silent.
    pub last: Option<Cite>,
    /// Time of the last line with a stamp.
    pub last_at: Option<WallTime>,
}

/// Life of one communicator on one process.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclComm {
    /// Index into `processes`.
    pub process: u32,
    /// Pointer; unique only inside its process.
    pub ptr: u64,
    /// Rank within the communicator.
    pub rank: GroupRank,
    /// Size.
    pub n_ranks: u32,
    /// CUDA device number of the process.
    pub cuda_dev: Option<u32>,
    /// NVML index.
    pub nvml_dev: Option<u32>,
    /// GPU.
    pub gpu: Option<PciAddress>,
    /// `commId`: equal on all members; absent for splits of NCCL 2.23 and later.
    pub comm_id: Option<u64>,
    /// Parent pointer of a split.
    pub parent: Option<u64>,
    /// Color of a split.
    pub color: Option<i64>,
    /// API that made it (`ncclCommInitRankConfig`, `ncclCommSplit`), if printed.
    pub api: Option<Box<str>>,
    /// `Init START` line; absent if the log begins later.
    pub started: Option<Cite>,
    /// `Init COMPLETE` line.
    pub completed: Option<Cite>,
    /// `Destroy COMPLETE` line.
    pub destroyed: Option<Cite>,
    /// `Abort START` or `Abort COMPLETE` line.
    pub aborted: Option<Cite>,
    /// Time of the first of these lines that has one.
    pub at: Option<WallTime>,
}

/// One COLL line: the call was made (it says nothing about completion).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclCall {
    /// Elements.
    pub count: u64,
    /// Byte offset of the line.
    pub offset: u64,
    /// `opCount`; can stay 0 within a node.
    pub op_count: u64,
    /// Seconds since 1970 of the line's own stamp; 0 = none.
    pub at_s: u32,
    /// Index into `comms`; beyond its end (`u32::MAX` and down, see `NcclLog::strangers`) if the communicator was
    /// never introduced.
    pub comm: u32,
    /// Line number.
    pub line: u32,
    /// Root of rooted collectives; the peer of send and recv.
    pub root: i32,
    /// What.
    pub kind: OpKind,
    /// NCCL datatype number.
    pub datatype: u8,
    /// NCCL reduction number.
    pub redop: u8,
}

/// A communicator known from its COLL lines alone: they name neither rank nor GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclStranger {
    /// Index into `processes`; `u32::MAX` if the lines name no process.
    pub process: u32,
    /// Pointer.
    pub ptr: u64,
    /// Size.
    pub n_ranks: u32,
}

/// A WARN, or an INFO that reports a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclMessage {
    /// Line.
    pub cite: Cite,
    /// Index into `processes`; `u32::MAX` if the line names no process.
    pub process: u32,
    /// Time, if stamped.
    pub at: Option<WallTime>,
    /// CUDA device of the calling thread.
    pub cuda_dev: Option<u32>,
    /// WARN (true) or INFO.
    pub is_warn: bool,
    /// `init.cc:904` as printed.
    pub origin: Option<Box<str>>,
    /// Text after `NCCL WARN `.
    pub text: Box<str>,
    /// Result code of the first back-trace line that followed in the same thread.
    pub result: Option<u8>,
}

/// `init.cc:1582 -> 5`.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclBacktrace {
    /// Line.
    pub cite: Cite,
    /// Index into `processes`.
    pub process: u32,
    /// `init.cc:1582`.
    pub origin: Box<str>,
    /// ncclResult_t.
    pub result: u8,
}

/// A variable NCCL says it read.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclSetting {
    /// Line.
    pub cite: Cite,
    /// Index into `processes`.
    pub process: u32,
    /// `NCCL_NVLS_ENABLE`.
    pub name: Box<str>,
    /// Value as printed.
    pub value: Box<str>,
}

/// Channels between two ranks of one communicator over one transport.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclLink {
    /// First such line.
    pub cite: Cite,
    /// Index into `processes`.
    pub process: u32,
    /// Sender's rank in the communicator.
    pub from: GroupRank,
    /// Receiver's rank.
    pub to: GroupRank,
    /// Text after `via `: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/0/GDRDMA`.
    pub transport: Box<str>,
    /// `[send]`/`[receive]` of NET lines: Some(true) = send.
    pub is_send: Option<bool>,
    /// How many channels said so.
    pub n_channels: u32,
}

/// Host and pid as an NCCL line prints them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPid {
    /// Host.
    pub host: Host,
    /// Process.
    pub pid: Pid,
}
