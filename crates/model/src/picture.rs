//! What a report shows beside its findings: who did what around the failure, who waits for whom, where processes are,
//! the machines, and what became of each error statement. All of it is bounded, and equal ranks are folded.

use crate::{
    Cause, Cite, Frame, Host, NamedCall, PciAddress, Pid, Rank, RankSet, SourceId, Verdict, WallTime,
};

/// The picture of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Error statements, those that matter most first.
    pub statements: Vec<PicturedStatement>,
    /// Statements for which there was no room.
    pub n_statements_left_out: usize,
    /// The first of each statement, rank and host, in the order of their times.
    pub events: Vec<PicturedEvent>,
    /// Versions and settings; those that differ between processes first.
    pub facts: Vec<PicturedFact>,
    /// Calls of the lowest rank that a recorder saw: what, how often, how long.
    pub calls: Vec<PicturedCall>,
    /// Where ranks differ in what they called, in words.
    pub differences: Vec<String>,
    /// The first and the last time in the evidence, ns from the beginning of the year.
    pub span: Option<(i64, i64)>,
    /// Ranks of the job, if that is known.
    pub world_size: Option<u32>,
    /// Causes that come into question while nothing is decided, the likeliest first.
    pub candidates: Vec<Candidate>,
    /// Where each rank is, outliers first; equal ones folded.
    pub standings: Vec<Standing>,
    /// Processes of the job that have a rank, by rank.
    pub members: Vec<PicturedMember>,
    /// Who waits for whom.
    pub waits: Vec<Wait>,
    /// The main threads' stacks, merged from the outermost frame inward; each child follows its parent.
    pub stacks: Vec<StackNode>,
    /// Nodes with their GPUs and network ports; those with faults first.
    pub machines: Vec<Machine>,
    /// Nodes for which there was no room.
    pub n_machines_left_out: usize,
    /// Operations around the failure.
    pub timeline: Vec<TimelineSpan>,
    /// The moment that the timeline is drawn around, ns on the clock of its spans.
    pub failed_ns: Option<i64>,
    /// The jobs of the evidence, with the verdict on each, its findings left out; empty if there is only one job.
    pub jobs: Vec<(String, Verdict)>,
}

/// What became of an error statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatementRole {
    /// Nothing explains it.
    Unexplained,
    /// A finding is its cause, or cites it.
    Explained,
    /// Healthy jobs print it too, or the job went on after it.
    Harmless,
}

/// An error statement: equal lines of all ranks and sources.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturedStatement {
    /// Its first line, with a placeholder for each number, address and random name.
    pub template: Box<str>,
    /// Its first line as it was printed.
    pub text: Box<str>,
    /// Number of lines.
    pub count: u64,
    /// Ranks that printed it.
    pub ranks: RankSet,
    /// Hosts on which it was printed.
    pub hosts: Vec<Host>,
    /// Sources that hold it, at most 16.
    pub sources: Vec<SourceId>,
    /// The first line.
    pub first: Cite,
    /// The last line.
    pub last: Cite,
    /// When the first was printed.
    pub at: Option<WallTime>,
    /// What became of it.
    pub role: StatementRole,
    /// The rule that explains it, or the row of the message table that knows it; may be empty.
    pub by: &'static str,
    /// What is known of the words in it: the word, and its meaning.
    pub words: Vec<(String, String)>,
}

/// Something that was printed once, or first.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturedEvent {
    /// When, ns from the beginning of the year, on the wall clock of the process that printed it.
    pub in_year_ns: Option<i64>,
    /// Rank that printed it.
    pub rank: Option<Rank>,
    /// Host on which it was printed.
    pub host: Option<Host>,
    /// Its first line.
    pub text: String,
    /// Its place.
    pub cite: Cite,
    /// Others that printed the like later.
    pub n_more: usize,
}

/// A version or a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturedFact {
    /// `NCCL`, `NCCL_IB_HCA`.
    pub name: String,
    /// A setting rather than a version.
    pub is_setting: bool,
    /// Processes disagree about it.
    pub differs: bool,
    /// Its values, the rarest first.
    pub values: Vec<PicturedValue>,
}

/// Equal calls of one rank in one group.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturedCall {
    /// Group.
    pub group: String,
    /// `all_reduce of 1048576 Float`.
    pub op: String,
    /// Number of these calls.
    pub n: usize,
    /// Median of the time from its call to its end, ns; None if no recorder saw it end.
    pub median_ns: Option<i64>,
}

/// A value, and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturedValue {
    /// The value.
    pub value: String,
    /// Ranks that have it, as far as they are known.
    pub ranks: RankSet,
    /// Hosts on which it is so.
    pub hosts: Vec<Host>,
    /// Processes or listings that have it.
    pub n: usize,
}

/// A cause that comes into question.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The cause.
    pub cause: Cause,
    /// Weight among the candidates; only the order matters.
    pub weight: u32,
    /// What points to it.
    pub why: String,
    /// What would decide.
    pub needs: String,
    /// The command that shows it; may be empty.
    pub command: String,
}

/// What a rank does or how it ended, relative to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StandingState {
    /// It waits in an operation.
    Waits,
    /// Others wait for it in an operation.
    Behind,
    /// It has entered an operation that an older one blocks.
    Held,
    /// It ended in order, or closed its communicators.
    Ended,
    /// It ended otherwise.
    Gone,
    /// State T.
    Stopped,
    /// State D.
    Blocked,
    /// It was seen, and does not wait.
    Alive,
    /// Nothing shows it.
    NoRecord,
}

/// A place that some ranks share.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The ranks.
    pub ranks: RankSet,
    /// What they do.
    pub state: StandingState,
    /// How it ended, or how it was seen last; may be empty.
    pub fate: String,
    /// Innermost frame of the program's own code.
    pub place: Option<Frame>,
    /// What it waits in, or does there; may be empty.
    pub doing: String,
}

/// One process of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturedMember {
    /// Its rank.
    pub rank: Rank,
    /// Host.
    pub host: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
}

/// Ranks that wait for others in one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Ranks that have entered it.
    pub from: RankSet,
    /// Ranks that have not.
    pub to: RankSet,
    /// Those of `to` without a record.
    pub unseen: RankSet,
    /// The operation: `all_reduce #45 of default_pg`.
    pub op: String,
    /// The same as data, of a collective with one number.
    pub call: Option<NamedCall>,
    /// Since when, ns on the recorder's clock.
    pub since_ns: Option<i64>,
}

/// One frame of the merged stacks.
#[derive(Clone, Debug, PartialEq)]
pub struct StackNode {
    /// The frame.
    pub frame: Frame,
    /// Frames above it.
    pub depth: u32,
    /// Ranks whose stack goes through here.
    pub ranks: RankSet,
    /// Whether it is the program's own code.
    pub is_own: bool,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its name; None if the evidence does not tell.
    pub host: Option<Host>,
    /// Ranks on it.
    pub ranks: RankSet,
    /// Its GPUs, by index or address.
    pub gpus: Vec<MachineGpu>,
    /// Its network ports, by name.
    pub nics: Vec<MachineNic>,
    /// Paths between its GPUs, as its driver tells: indices of two GPUs, the lower first, and the kind of their path.
    pub paths: Vec<(u32, u32, Box<str>)>,
    /// Paths between its GPUs and its network cards, as its driver tells: index of the GPU, name of the card, and the kind of their path.
    pub card_paths: Vec<(u32, Box<str>, Box<str>)>,
    /// What is wrong with it, and not with one GPU or port: index into the verdict's findings.
    pub findings: Vec<usize>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineGpu {
    /// The driver's index.
    pub index: Option<u32>,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// Product; may be empty.
    pub model: Box<str>,
    /// The rank that runs on it.
    pub rank: Option<Rank>,
    /// Numbers worth a look: `power` and `121 of 700 W`.
    pub values: Vec<(&'static str, String)>,
    /// NVLinks: active ones and all.
    pub links: Option<(u32, u32)>,
    /// What its own tables show to be wrong.
    pub faults: Vec<String>,
    /// Findings that name it: index into the verdict's findings.
    pub findings: Vec<usize>,
}

/// One network port or interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineNic {
    /// `mlx5_0` or `eth0`.
    pub name: Box<str>,
    /// `ACTIVE`, `DOWN`, `UP`; may be empty.
    pub state: Box<str>,
    /// Gb/s.
    pub rate_gbps: Option<f64>,
    /// Whether it works; None if unknown.
    pub is_up: Option<bool>,
    /// Findings about it: index into the verdict's findings.
    pub findings: Vec<usize>,
}

/// How far an operation got on some ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanState {
    /// It ended.
    Finished,
    /// Its kernel runs.
    Running,
    /// It was called, and its kernel has not been seen to start.
    Waiting,
    /// It was called; the recorder does not show more.
    Called,
}

/// One operation of ranks that made the same calls.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineSpan {
    /// The ranks.
    pub ranks: RankSet,
    /// Group.
    pub group: String,
    /// `all_reduce of 1048576 Float`.
    pub op: String,
    /// Number within the group; None for sends and receives without one.
    pub seq: Option<u32>,
    /// When it was called, ns; of several ranks the median.
    pub start_ns: i64,
    /// When it ended, ns; of several ranks the median. None: it has not, or that is unknown.
    pub end_ns: Option<i64>,
    /// How far it got.
    pub state: SpanState,
}

impl StatementRole {
    /// Stable name, as printed in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unexplained => "unexplained",
            Self::Explained => "explained",
            Self::Harmless => "harmless",
        }
    }
}

impl StandingState {
    /// Stable name, as printed in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Behind => "behind",
            Self::Held => "held",
            Self::Ended => "ended",
            Self::Gone => "gone",
            Self::Stopped => "stopped",
            Self::Blocked => "blocked",
            Self::Alive => "alive",
            Self::NoRecord => "no-record",
        }
    }

    /// Whether its process has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Ended | Self::Gone)
    }
}

impl SpanState {
    /// Stable name, as printed in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Called => "called",
        }
    }
}
