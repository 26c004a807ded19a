//! Collectives and point-to-point operations, in the terms of NCCL and torch.

/// Kind of an operation, common to the names of torch and NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OpKind {
    /// all-reduce (torch's barrier on NCCL is one of a single element).
    AllReduce,
    /// all-gather, of equal parts into one tensor or into a list.
    AllGather,
    /// reduce-scatter.
    ReduceScatter,
    /// broadcast.
    Broadcast,
    /// reduce.
    Reduce,
    /// gather.
    Gather,
    /// scatter.
    Scatter,
    /// all-to-all, equal or with splits.
    AllToAll,
    /// barrier, where it has a name of its own.
    Barrier,
    /// send to one peer.
    Send,
    /// receive from one peer.
    Recv,
    /// end entry of a coalesced block.
    Coalesced,
    /// anything else.
    Other,
}

impl OpKind {
    /// Name for people: torch's function name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Recv => "recv",
            Self::Coalesced => "coalesced",
            Self::Other => "operation",
        }
    }

    /// From a Flight Recorder `profiling_name` without its `nccl:` prefix and peers (`_all_gather_base`).
    pub fn from_profiling_name(name: &str) -> Self {
        let name = name.strip_prefix("nccl:").unwrap_or(name);
        let word = name.split(' ').next().unwrap_or(name);
        match word {
            "all_reduce"
            | "allreduce_coalesced"
            | "all_reduce_coalesced"
            | "all_reduce_barrier"
            | "all_reduce_sparse" => Self::AllReduce,
            "all_gather"
            | "_all_gather_base"
            | "all_gather_into_tensor"
            | "all_gather_into_tensor_coalesced"
            | "all_gather_coalesced" => Self::AllGather,
            "reduce_scatter"
            | "_reduce_scatter_base"
            | "reduce_scatter_tensor"
            | "reduce_scatter_tensor_coalesced"
            | "reduce_scatter_coalesced" => Self::ReduceScatter,
            "broadcast" | "_broadcast_oop" => Self::Broadcast,
            "reduce" | "_reduce_oop" => Self::Reduce,
            "gather" => Self::Gather,
            "scatter" => Self::Scatter,
            "all_to_all" | "all_to_all_single" | "alltoall_base" | "_all_to_all_base" => Self::AllToAll,
            "barrier" => Self::Barrier,
            "send" => Self::Send,
            "recv" | "recvAnySource" => Self::Recv,
            "coalesced" => Self::Coalesced,
            _ => Self::Other,
        }
    }

    /// From the watchdog's `OpType=` (`ALLREDUCE`, `_ALLGATHER_BASE`).
    pub fn from_op_type(name: &str) -> Self {
        match name {
            "ALLREDUCE" | "ALLREDUCE_COALESCED" | "_ALLREDUCE_SPARSE" => Self::AllReduce,
            "ALLGATHER" | "_ALLGATHER_BASE" | "ALLGATHER_COALESCED" | "ALLGATHER_INTO_TENSOR_COALESCED" => {
                Self::AllGather
            }
            "REDUCE_SCATTER" | "_REDUCE_SCATTER_BASE" | "REDUCE_SCATTER_TENSOR_COALESCED" => {
                Self::ReduceScatter
            }
            "BROADCAST" => Self::Broadcast,
            "REDUCE" => Self::Reduce,
            "GATHER" => Self::Gather,
            "SCATTER" => Self::Scatter,
            "ALLTOALL" | "ALLTOALL_BASE" => Self::AllToAll,
            "BARRIER" => Self::Barrier,
            "SEND" => Self::Send,
            "RECV" | "RECVANYSOURCE" => Self::Recv,
            "COALESCED" => Self::Coalesced,
            _ => Self::Other,
        }
    }

    /// From NCCL's COLL lines and RAS (`AllReduce`).
    pub fn from_nccl(name: &str) -> Self {
        match name {
            "AllReduce" => Self::AllReduce,
            "AllGather" => Self::AllGather,
            "ReduceScatter" => Self::ReduceScatter,
            "Broadcast" => Self::Broadcast,
            "Reduce" => Self::Reduce,
            "Gather" => Self::Gather,
            "Scatter" => Self::Scatter,
            "AlltoAll" | "AllToAll" => Self::AllToAll,
            "Send" => Self::Send,
            "Recv" => Self::Recv,
            _ => Self::Other,
        }
    }

    /// Whether it is point-to-point.
    pub fn is_p2p(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }

    /// Whether ranks may state different sizes in one correct call (a root that gathers, splits of all-to-all).
    pub fn sizes_may_differ(self) -> bool {
        matches!(
            self,
            Self::Gather
                | Self::Scatter
                | Self::AllToAll
                | Self::Send
                | Self::Recv
                | Self::Coalesced
                | Self::Other
        )
    }
}

/// torch's name of an NCCL datatype number; empty for an unknown number.
pub fn nccl_datatype_name(datatype: u8) -> &'static str {
    const NAMES: [&str; 12] = [
        "Char",
        "Byte",
        "Int",
        "UInt32",
        "Long",
        "UInt64",
        "Half",
        "Float",
        "Double",
        "BFloat16",
        "Float8_e4m3fn",
        "Float8_e5m2",
    ];
    NAMES.get(datatype as usize).copied().unwrap_or("")
}

/// Name of an NCCL reduction number; 5 and above are defined by the caller.
pub fn nccl_redop_name(redop: u8) -> &'static str {
    const NAMES: [&str; 5] = ["sum", "prod", "max", "min", "avg"];
    NAMES.get(redop as usize).copied().unwrap_or("custom")
}

/// State of one operation on one rank, as its recorder reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OpState {
    /// Enqueued. Without timing it may already be running on the GPU.
    Scheduled,
    /// Seen to have started (only with timing on).
    Started,
    /// Finished.
    Completed,
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Function name.
    pub function: Box<str>,
    /// File, as printed: absolute, or shortened by py-spy (`torch/cuda/__init__.py`).
    pub file: Box<str>,
    /// Line number; 0 if unknown.
    pub line: u32,
}

/// The owner of a frame's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameOwner {
    /// The interpreter, its standard library, a launcher, or torch.
    Framework,
    /// Some other installed package.
    Library,
    /// The user's own program.
    User,
}

impl Frame {
    /// Whether it is machine code without a line: its file is a library, a program, or unknown.
    pub fn is_native(&self) -> bool {
        self.line == 0 && !self.file.ends_with(".py") && !self.file.starts_with('<')
    }

    /// The owner of the code, derived from the path alone.
    pub fn owner(&self) -> FrameOwner {
        let file = &*self.file;
        if file.is_empty() || file.starts_with('<') {
            return FrameOwner::Framework;
        }
        // The interpreter's program, and what the kernel maps into every process.
        if self.is_native() && (file.starts_with("python") || file.starts_with('[')) {
            return FrameOwner::Framework;
        }
        for packages in ["site-packages/", "dist-packages/"] {
            if let Some((_, inside)) = file.rsplit_once(packages) {
                let top = inside.split('/').next().unwrap_or(inside);
                return if matches!(
                    top,
                    "torch" | "torchgen" | "functorch" | "torchelastic" | "debugpy" | "_pytest" | "pluggy"
                ) {
                    FrameOwner::Framework
                } else {
                    FrameOwner::Library
                };
            }
        }
        // Machine code is identified by its library.
        if file.rsplit_once(".so").is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('.')) {
            return FrameOwner::Framework;
        }
        // py-spy shortens installed files to a path below their package directory.
        if file.starts_with("torch/") || file.starts_with("torch\\") {
            return FrameOwner::Framework;
        }
        // What an installer writes into `bin/` starts a package: torchrun, horovodrun.
        let is_script = |(folder, name): (&str, &str)| folder.ends_with("/bin") && !name.contains('.');
        if file.contains("/lib/python3") || file.rsplit_once('/').is_some_and(is_script) {
            return FrameOwner::Framework;
        }
        if !file.starts_with('/')
            && STANDARD.iter().any(|s| file == *s || (s.ends_with('/') && file.starts_with(s)))
        {
            return FrameOwner::Framework;
        }
        FrameOwner::User
    }
}

/// Modules of the standard library as py-spy shortens their paths.
const STANDARD: [&str; 22] = [
    "threading.py",
    "runpy.py",
    "subprocess.py",
    "selectors.py",
    "socket.py",
    "ssl.py",
    "queue.py",
    "contextlib.py",
    "functools.py",
    "pickle.py",
    "json/",
    "concurrent/",
    "multiprocessing/",
    "asyncio/",
    "importlib/",
    "ctypes/",
    "logging/",
    "unittest/",
    "_bootstrap_external.py",
    "_bootstrap.py",
    "traceback.py",
    "signal.py",
];

/// The innermost frame of the user's own code; otherwise that of an installed package other than torch.
/// `frames` is innermost first. A bare `<module>` line counts only if there is nothing deeper.
pub fn user_frame(frames: &[Frame]) -> Option<&Frame> {
    frames
        .iter()
        .find(|f| f.owner() == FrameOwner::User)
        .or_else(|| frames.iter().find(|f| f.owner() == FrameOwner::Library))
}
