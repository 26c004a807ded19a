//! Output of PyTorch, its launcher and Python itself.

use crate::{Frame, OpKind, Pid, Rank, RankSet};

/// The watchdog's description of an operation: `WorkNCCL(SeqNum=45, OpType=ALLREDUCE, …)`.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkDescription {
    /// `SeqNum`, per process group (for COALESCED: the point-to-point counter); PyTorch before 1.12 prints none.
    pub seq: Option<u64>,
    /// `OpType`.
    pub kind: OpKind,
    /// `NumelIn`.
    pub numel_in: Option<u64>,
    /// `NumelOut`.
    pub numel_out: Option<u64>,
    /// `Timeout(ms)`.
    pub timeout_ms: Option<u64>,
}

/// A process group in torch's line prefix: `[PG ID 0 PG GUID 0(default_pg) Rank 3]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupLabel {
    /// `PG ID`: local creation number.
    pub id: Option<Box<str>>,
    /// `PG GUID`: the name that is equal on all members.
    pub guid: Option<Box<str>>,
    /// Description in parentheses.
    pub desc: Option<Box<str>>,
}

/// One event in the output of torch, Python, its launcher, or gloo.
#[derive(Clone, Debug, PartialEq)]
pub enum TorchEvent {
    /// `Watchdog caught collective operation timeout: … ran for N milliseconds`.
    WatchdogTimeout {
        /// The operation that timed out.
        work: WorkDescription,
        /// `ran for`, ms.
        ran_ms: u64,
        /// Group, if the prefix names it.
        group: GroupLabel,
    },
    /// `failure detected by watchdog at work sequence id: … last enqueued work: …, last completed work: …`, the older
    /// `Timeout at NCCL work: …`, and the numbers of `Received a dump signal …`.
    WatchdogPosition {
        /// The failing sequence number, if stated.
        seq: Option<u64>,
        /// Last enqueued.
        last_enqueued: i64,
        /// Last completed.
        last_completed: i64,
        /// Group.
        group: GroupLabel,
    },
    /// `Stack trace of the failed collective:` and its frames.
    FailedCollectiveStack {
        /// Innermost first.
        frames: Vec<Frame>,
    },
    /// `Collective WorkNCCL(…) raised the following async exception: …`.
    AsyncError {
        /// The operation, if stated.
        work: Option<WorkDescription>,
        /// The NCCL or CUDA error text.
        error: Box<str>,
        /// Text after `Last error:`.
        last_error: Option<Box<str>>,
    },
    /// Watchdog thread ended with an exception (`… terminated with exception: CUDA error: …`).
    WatchdogDied {
        /// Text of the exception.
        error: Box<str>,
    },
    /// `Received a dump signal due to a collective timeout from …`.
    DumpSignal {
        /// The rank that raised it; None = this rank.
        from: Option<Rank>,
    },
    /// `watchdog got stuck for N seconds` / heartbeat monitor.
    WatchdogStuck {
        /// Seconds.
        seconds: Option<u64>,
    },
    /// `Could not acquire GIL within …`.
    GilStuck,
    /// Desync report.
    Desync {
        /// `joined but didn't finish`: ranks and collective number.
        unfinished: Vec<(RankSet, u64)>,
        /// `finished #n, but didn't join #n+1`: ranks and the collective they did not join.
        not_joined: Vec<(RankSet, u64)>,
        /// `never joined any collectives`.
        never_joined: RankSet,
    },
    /// `Detected mismatch between collectives on ranks.`: two fingerprints.
    FingerprintMismatch {
        /// The fingerprint of the rank that prints it.
        mine: Box<Fingerprint>,
        /// The fingerprint of the other rank.
        theirs: Box<Fingerprint>,
    },
    /// An uncaught Python exception (or one that a logger printed).
    Exception(Box<PythonException>),
    /// `Fatal Python error: Segmentation fault` and the like, or a native crash report.
    Crash {
        /// `Segmentation fault`, `Aborted`, `Bus error`.
        reason: Box<str>,
        /// Signal, if known.
        signal: Option<u32>,
        /// All threads as faulthandler printed them.
        threads: Vec<crate::ThreadStack>,
    },
    /// One block of torchrun's table.
    ChildFailure {
        /// Whether it is the block of the root cause.
        is_root: bool,
        /// Exit code; negative = signal.
        exit_code: i64,
        /// Time of the block, as printed.
        time: Option<Box<str>>,
        /// Host as printed.
        host: Option<Box<str>>,
        /// Text of `traceback :`.
        message: Option<Box<str>>,
    },
    /// `failed (exitcode: -6) local_rank: 3 (pid: 1348) of binary`.
    ChildExit {
        /// Exit code; negative = signal.
        exit_code: i64,
        /// The launcher says that it ended before the others.
        is_first: bool,
    },
    /// A launcher started a process; the observation says which, as far as it was printed.
    Started,
    /// `ChildFailedError` with its table cut off or empty.
    LauncherFailed {
        /// `train.py FAILED`.
        script: Option<Box<str>>,
    },
    /// `Sending process N closing signal SIGTERM`: a consequence, never a cause.
    ClosingSignal {
        /// Receiving process.
        pid: Pid,
        /// `SIGTERM`.
        signal: Box<str>,
    },
    /// `Received 15 death signal, shutting down workers`: the launcher was stopped from outside.
    LauncherKilled {
        /// Signal number or name.
        signal: Box<str>,
    },
    /// Problems of TCPStore, rendezvous and sockets.
    Store(StoreEvent),
    /// Problems of gloo.
    Gloo(GlooEvent),
    /// `Rank 1 failed to pass monitoredBarrier` / `Ranks 1, 3 failed to pass …`.
    BarrierMissed {
        /// The absent ranks.
        absent: RankSet,
    },
    /// `torch.distributed` was used without NCCL, or NCCL is not built in.
    NoNccl {
        /// The message.
        text: Box<str>,
    },
    /// A statement known to be harmless or a mere echo (kept so that it can be counted).
    Echo {
        /// Short name of the statement.
        what: &'static str,
    },
    /// An error line of any program that no other reader claimed but that names an error (`Error:`, `error:`,
    /// `AssertionError`): raw text for rules that know a message.
    ErrorLine {
        /// Text without prefixes.
        text: Box<str>,
    },
}

/// A fingerprint of DETAIL debug mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fingerprint {
    /// Rank that it belongs to.
    pub rank: Option<Rank>,
    /// `SequenceNumber` (counted from 0).
    pub seq: Option<u64>,
    /// `OpType`.
    pub op_type: Box<str>,
    /// `TensorShape` as printed.
    pub shape: Box<str>,
    /// `TensorDtypes`.
    pub dtypes: Box<str>,
}

/// A Python exception with its traceback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PythonException {
    /// `torch.OutOfMemoryError`.
    pub class: Box<str>,
    /// Message, all lines, bounded.
    pub message: Box<str>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Exceptions before `During handling …` / `direct cause`: class and message, oldest first.
    pub chained: Vec<(Box<str>, Box<str>)>,
    /// Text after `Last error:` inside the message.
    pub nccl_last_error: Option<Box<str>>,
    /// Whether frames may be lost or mixed because lines of several ranks are interleaved.
    pub interleaved: bool,
}

/// TCPStore, rendezvous and c10d sockets.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// Nothing answered at the master's address.
    ConnectTimeout {
        /// `host:port` or `(host, port)` as printed.
        address: Box<str>,
        /// The text.
        text: Box<str>,
    },
    /// One failed attempt (errno 111 and others).
    ConnectFailed {
        /// Address as printed.
        address: Box<str>,
        /// errno, if printed.
        errno: Option<i32>,
        /// The text.
        text: Box<str>,
    },
    /// `1/4 clients joined`.
    ClientsMissing {
        /// Number of clients that joined.
        joined: u32,
        /// Number of clients expected.
        expected: u32,
    },
    /// A key that no process set: `wait timeout after 300000ms, keys: /default_pg/0//cuda//0`.
    WaitTimeout {
        /// The keys.
        keys: Box<str>,
        /// The rank that should have set it, from the text `[1] is setting up … from [0]`.
        setter: Option<Rank>,
    },
    /// The store's host is gone, or a connection to it broke.
    ConnectionLost {
        /// The text.
        text: Box<str>,
    },
    /// EADDRINUSE.
    AddressInUse {
        /// Port.
        port: Option<u16>,
    },
    /// A name does not resolve (gai errors, `Name or service not known`).
    Unresolved {
        /// Host name, if printed.
        name: Box<str>,
        /// The text.
        text: Box<str>,
    },
    /// Rendezvous closed or timed out; an agent's heartbeat was lost.
    Rendezvous {
        /// The text.
        text: Box<str>,
    },
}

impl StoreEvent {
    /// The address, as printed, to which a connection failed.
    pub fn unreached(&self) -> Option<&str> {
        match self {
            Self::ConnectTimeout { address, .. } | Self::ConnectFailed { address, .. } => Some(address),
            _ => None,
        }
    }
}

/// Gloo's transport.
#[derive(Clone, Debug, PartialEq)]
pub enum GlooEvent {
    /// `Connection closed by peer [addr]:port`.
    ClosedByPeer {
        /// Address.
        peer: Box<str>,
    },
    /// `Timed out waiting Nms for send|recv operation to complete`.
    TimedOut,
    /// Connect failed or refused.
    ConnectFailed {
        /// Address, if printed.
        remote: Box<str>,
        /// The text.
        text: Box<str>,
    },
    /// `Unable to resolve hostname to a (local) address. Using the loopback address as fallback.`
    LoopbackFallback,
    /// Any other message of gloo.
    Other {
        /// The text.
        text: Box<str>,
    },
}
