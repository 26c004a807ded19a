//! Sources of evidence, and citations of them.

use crate::{Host, LocalRank, Pid, Rank};

/// Index of a [`Source`] within its case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// One file, archive member or stream of the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path as the user will find it: relative to the given path; `logs.tar!a/b.log` for an archive member.
    pub path: String,
    /// Kinds of evidence found in its content.
    pub kinds: Vec<SourceKind>,
    /// Size after decompression, bytes.
    pub size_bytes: u64,
}

impl Source {
    /// The path without the file name: evidence of one attempt is often kept in a folder of its own.
    pub fn folder(&self) -> &str {
        self.path.rfind(['/', '!']).and_then(|at| self.path.get(..at)).unwrap_or_default()
    }
}

/// Kinds of evidence that readers know, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// PyTorch Flight Recorder dump (pickle or JSON).
    FlightRecorder,
    /// NCCL_DEBUG lines.
    NcclLog,
    /// PyTorch's own messages, tracebacks, launcher output.
    TorchLog,
    /// `error.json` of torch elastic.
    ElasticError,
    /// NCCL RAS report.
    Ras,
    /// Ring of the NCCL plugin.
    Ring,
    /// Stacks of a live or crashed process.
    Stacks,
    /// Process list.
    Processes,
    /// nvidia-smi output, in any form.
    NvidiaSmi,
    /// dcgmi diag, as a table or as JSON.
    Dcgmi,
    /// State or log of the Fabric Manager or the persistence daemon.
    GpuServices,
    /// nvidia-bug-report.sh: sections that other readers read.
    BugReport,
    /// Kernel log.
    KernelLog,
    /// nccl-tests output.
    NcclTests,
    /// Limits of a process or shell.
    Limits,
    /// Environment variables.
    Environment,
    /// Copies between GPUs, compared afterwards.
    CopyTest,
    /// Tools of the fabric and the network.
    Network,
    /// Tools of the node: memory, mounts, modules, services.
    System,
    /// Output of a scheduler: Slurm, Kubernetes.
    Scheduler,
    /// Snapshot of a node, as `check` and `collect` take it.
    NodeSnapshot,
    /// Events of a watcher.
    Watch,
    /// Events of the guard in a training job.
    Guard,
    /// Timeline of a profiler.
    Timeline,
    /// Manifest of a bundle.
    Bundle,
    /// Text in which no reader recognised anything.
    PlainText,
    /// Binary or unreadable content.
    Unknown,
}

impl SourceKind {
    /// All of them, in the order of the list above.
    pub const ALL: [Self; 27] = [
        Self::FlightRecorder,
        Self::NcclLog,
        Self::TorchLog,
        Self::ElasticError,
        Self::Ras,
        Self::Ring,
        Self::Stacks,
        Self::Processes,
        Self::NvidiaSmi,
        Self::Dcgmi,
        Self::GpuServices,
        Self::BugReport,
        Self::KernelLog,
        Self::NcclTests,
        Self::Limits,
        Self::Environment,
        Self::CopyTest,
        Self::Network,
        Self::System,
        Self::Scheduler,
        Self::NodeSnapshot,
        Self::Watch,
        Self::Guard,
        Self::Timeline,
        Self::Bundle,
        Self::PlainText,
        Self::Unknown,
    ];

    /// Stable name, as printed in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FlightRecorder => "flight-recorder",
            Self::NcclLog => "nccl-log",
            Self::TorchLog => "torch-log",
            Self::ElasticError => "elastic-error",
            Self::Ras => "nccl-ras",
            Self::Ring => "nccl-ring",
            Self::Stacks => "stacks",
            Self::Processes => "processes",
            Self::NvidiaSmi => "nvidia-smi",
            Self::Dcgmi => "dcgmi",
            Self::GpuServices => "gpu-services",
            Self::BugReport => "nvidia-bug-report",
            Self::KernelLog => "kernel-log",
            Self::NcclTests => "nccl-tests",
            Self::Limits => "limits",
            Self::Environment => "environment",
            Self::CopyTest => "copy-test",
            Self::Network => "network",
            Self::System => "system",
            Self::Scheduler => "scheduler",
            Self::NodeSnapshot => "node-snapshot",
            Self::Watch => "watch-events",
            Self::Guard => "guard-events",
            Self::Timeline => "timeline",
            Self::Bundle => "bundle-manifest",
            Self::PlainText => "text",
            Self::Unknown => "unknown",
        }
    }
}

/// `Unknown` stays the last: a kind that is added and not listed then fails here.
const _: () = {
    assert!(SourceKind::ALL.len() == SourceKind::Unknown as usize + 1);
    let mut at = 0;
    while at < SourceKind::ALL.len() {
        assert!(SourceKind::ALL[at] as usize == at);
        at += 1;
    }
};

/// The place in a source that an observation cites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cite {
    /// The source.
    pub source: SourceId,
    /// Line, counted from 1; 0 if lines are meaningless (binary formats).
    pub line: u32,
    /// Byte offset of the start, after decompression.
    pub start: u64,
    /// Byte offset of the end.
    pub end: u64,
}

impl Cite {
    /// Cites a whole source.
    pub fn whole(source: SourceId) -> Self {
        Self { source, line: 0, start: 0, end: 0 }
    }
}

/// The process that an observation is about, as far as its own line and its launcher's prefix show.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// Global rank.
    pub rank: Option<Rank>,
    /// Rank within the node.
    pub local_rank: Option<LocalRank>,
    /// Host.
    pub host: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
}

impl Who {
    /// The process with this global rank.
    pub fn rank(rank: u32) -> Self {
        Self { rank: Some(Rank(rank)), ..Self::default() }
    }

    /// Whether nothing is known.
    pub fn is_nobody(&self) -> bool {
        *self == Self::default()
    }
}

/// A time on a host's wall clock. Clocks of two hosts may differ by minutes: compare across hosts only after
/// alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime {
    /// Nanoseconds since 1970-01-01 in the zone of the writer (logs rarely state one). If `has_year` is false,
    /// the year counts as 1970.
    pub ns: i64,
    /// Uncertainty, nanoseconds: at least half of the last printed digit.
    pub error_ns: i64,
    /// False for timestamps such as `E1120 08:21:34`, which have no year.
    pub has_year: bool,
}

/// Something that a reader could not read, or left out, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The place.
    pub cite: Cite,
    /// The kind of problem.
    pub kind: NoteKind,
    /// One sentence: what, why, and a remedy if there is one.
    pub text: String,
}

/// Kinds of [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// The file ends early; everything before the cut was read.
    Truncated,
    /// The content has a known format but is malformed from here on.
    Malformed,
    /// A bound of the reader was reached; the rest was left out.
    LimitReached,
    /// Known format, unknown version or field.
    UnknownVersion,
    /// The file could not be opened or read.
    Unreadable,
    /// The system does not let this user read it.
    Denied,
    /// No reader recognised anything in it.
    Unrecognised,
    /// The file has no byte.
    Empty,
    /// A remark that is not a problem.
    Remark,
}

/// The rank that a path names: `rank3.log`, `py-spy-rank-3.txt`, `rank.3/stdout`. Not `local_rank3`, not `node_rank3`.
pub fn rank_in_path(path: &str) -> Option<Rank> {
    let lower = path.to_ascii_lowercase();
    let mut found = None;
    // Paddle's launcher gives each process a `workerlog.3`.
    for (at, word) in lower.match_indices("rank").chain(lower.match_indices("workerlog")) {
        let before = lower.get(..at)?;
        let is_word = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        let qualifier = before.trim_end_matches(['_', '-', '.']);
        let is_other = ["local", "node", "group", "machine"].iter().any(|word| qualifier.ends_with(word));
        let rest = lower.get(at + word.len()..)?;
        let rest = rest.strip_prefix(['_', '-', '.', '=']).unwrap_or(rest);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let ends = !rest.get(digits.len()..)?.starts_with(|c: char| c.is_ascii_alphabetic());
        if is_word && !is_other && ends && digits.len() < 6 {
            found = digits.parse().ok().map(Rank).or(found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::rank_in_path;
    use crate::Rank;

    #[test]
    fn ranks_in_names() {
        for path in [
            "rank3.log",
            "logs/py-spy-rank-3.txt",
            "1/rank.3/stdout",
            "Rank_3.out",
            "out.rank=3",
            "log/workerlog.3",
        ] {
            assert_eq!(rank_in_path(path), Some(Rank(3)), "{path}");
        }
        for path in ["local_rank3.log", "frank3.log", "ranking.txt", "rank.log", "node_rank3.log", "rank3b"] {
            assert_eq!(rank_in_path(path), None, "{path}");
        }
    }
}
