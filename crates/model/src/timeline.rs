//! Timelines: what a profiler recorded of one process, as rows of numbers with interned names.

use crate::{Host, OpKind, Pid, Rank};

/// The program that recorded a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recorder {
    /// PyTorch's profiler.
    Torch,
    /// Nsight Systems, exported to SQLite.
    Nsight,
    /// NCCL's Inspector plugin.
    Inspector,
    /// NCCL's example profiler plugin.
    NcclExample,
    /// Ringleader's own plugin of NCCL, whose rings show communication alone.
    NcclPlugin,
    /// XLA's profiler (JAX, TensorFlow).
    Xla,
    /// A Perfetto trace.
    Perfetto,
}

impl Recorder {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torch => "PyTorch profiler",
            Self::Nsight => "Nsight Systems",
            Self::Inspector => "NCCL Inspector",
            Self::NcclExample => "NCCL example profiler",
            Self::NcclPlugin => "NCCL plugin's ring",
            Self::Xla => "XLA profiler",
            Self::Perfetto => "Perfetto",
        }
    }
}

/// The timeline of one process on one GPU. Times are ns of one clock within a timeline; the clocks of two timelines may
/// differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// What recorded it.
    pub recorder: Recorder,
    /// Global rank, if the file states it.
    pub rank: Option<Rank>,
    /// Ranks of the job, if stated.
    pub world_size: Option<u32>,
    /// Host, if stated.
    pub host: Option<Host>,
    /// Process, if stated.
    pub pid: Option<Pid>,
    /// Number of the GPU, as the process counts.
    pub device: Option<u32>,
    /// `NVIDIA H200`.
    pub device_name: Option<Box<str>>,
    /// Streaming multiprocessors of the GPU.
    pub n_sms: Option<u32>,
    /// NCCL's release, as stated.
    pub nccl_version: Option<Box<str>>,
    /// Process groups that the file lists.
    pub groups: Vec<TimelineGroup>,
    /// Names that rows refer to.
    pub names: Vec<Box<str>>,
    /// What the GPU did, by start.
    pub work: Vec<DeviceWork>,
    /// What host threads did, by start, longer ones first.
    pub host_spans: Vec<HostSpan>,
    /// Arguments of communication operations.
    pub calls: Vec<CommCall>,
    /// Annotated steps, by start.
    pub steps: Vec<StepMark>,
    /// Events in the file, whether they are kept or not.
    pub n_events: u64,
    /// It ends before its end, or parts of it could not be read.
    pub is_damaged: bool,
}

/// A process group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineGroup {
    /// Name: `0`.
    pub name: Box<str>,
    /// Description: `default_pg`, `TENSOR_MODEL_PARALLEL_GROUP`.
    pub description: Box<str>,
    /// Global ranks; empty if unknown.
    pub ranks: Vec<u32>,
}

/// Something that a GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceWork {
    /// Start, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// Index of its name.
    pub name: u32,
    /// Stream.
    pub stream: u32,
    /// Kind.
    pub kind: WorkKind,
    /// Number that it shares with the call that launched it; 0 if unknown.
    pub correlation: u32,
    /// Index of its arguments in `calls`, plus 1; 0 for none.
    pub call: u32,
    /// Bytes of a copy.
    pub size_bytes: u64,
    /// Blocks of the kernel's grid.
    pub n_blocks: u32,
}

/// Kinds of work on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkKind {
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates between ranks.
    Comm,
    /// A copy.
    Copy {
        /// From or to the host.
        with_host: bool,
        /// The host's side is memory that is not pinned.
        pageable: bool,
    },
    /// Memory set to a value.
    Fill,
}

/// Something that a host thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpan {
    /// Start, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// Index of its name.
    pub name: u32,
    /// Thread.
    pub thread: u32,
    /// Kind.
    pub kind: SpanKind,
    /// Of a runtime call, the number that it shares with the work it launched; of an operator, its external id. 0 if none.
    pub link: u32,
}

/// Kinds of what a host thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpanKind {
    /// An operator of the framework.
    Operator,
    /// An annotation of the program or the framework.
    Annotation,
    /// A call of the GPU's runtime or driver.
    Runtime(RuntimeCall),
    /// A Python function.
    Python,
    /// The recorder's own cost.
    Overhead,
}

/// Calls of the GPU's runtime, by what they do to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuntimeCall {
    /// Launches a kernel or graph.
    Launch,
    /// Queues a copy, or copies.
    Copy,
    /// Waits for the GPU.
    Synchronize,
    /// Allocates or frees memory of the GPU.
    Allocate,
    /// Anything else.
    Other,
}

/// Arguments of one communication operation, from one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommCall {
    /// Kind; None if unknown.
    pub kind: Option<OpKind>,
    /// Name of the process group or hash of the communicator.
    pub group: Box<str>,
    /// Description of the group.
    pub description: Box<str>,
    /// Ranks of the group, where all are listed.
    pub ranks: Vec<u32>,
    /// Number of ranks in the group; 0 if unknown.
    pub group_size: u32,
    /// Sequence number in the group, if recorded.
    pub seq: Option<u64>,
    /// Elements that this rank gives.
    pub in_elements: u64,
    /// Elements that this rank gets.
    pub out_elements: u64,
    /// Bytes of an element; 0 if the type is unknown.
    pub element_bytes: u32,
    /// Peer of a send or receive.
    pub peer: Option<u32>,
    /// Elements to each peer differ between peers.
    pub has_splits: bool,
    /// Bus bandwidth that the recorder itself computed, MB/s; 0 for none.
    pub stated_busbw_mbs: u64,
}

impl CommCall {
    /// Bytes of the message as nccl-tests counts them: the larger side; None if the type is unknown.
    pub fn size_bytes(&self) -> Option<u64> {
        let elements = self.in_elements.max(self.out_elements);
        (self.element_bytes > 0 && elements > 0).then(|| elements.saturating_mul(self.element_bytes.into()))
    }
}

/// An annotated step of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMark {
    /// Its number, as annotated.
    pub number: u64,
    /// Start on the host, ns.
    pub start_ns: i64,
    /// End on the host, ns.
    pub end_ns: i64,
    /// Bytes of the annotation in the file.
    pub bytes: (u64, u64),
}

impl Timeline {
    /// An empty timeline.
    pub fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            rank: None,
            world_size: None,
            host: None,
            pid: None,
            device: None,
            device_name: None,
            n_sms: None,
            nccl_version: None,
            groups: Vec::new(),
            names: Vec::new(),
            work: Vec::new(),
            host_spans: Vec::new(),
            calls: Vec::new(),
            steps: Vec::new(),
            n_events: 0,
            is_damaged: false,
        }
    }

    /// A name.
    pub fn name(&self, at: u32) -> &str {
        self.names.get(at as usize).map_or("", |name| name)
    }

    /// Arguments of work that communicates.
    pub fn call_of(&self, work: &DeviceWork) -> Option<&CommCall> {
        self.calls.get((work.call as usize).checked_sub(1)?)
    }
}
