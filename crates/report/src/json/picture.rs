//! Additions to report version 1: the picture beside the verdict. Each part is left out where it is empty.

use std::collections::BTreeMap;

use ringleader_model as model;
use schemars::JsonSchema;
use serde::Serialize;

use super::{JobRow, Location, RankRow};

/// Rows of ranks: outliers come first.
const MAX_RANKS: usize = 1024;
/// Stacks within stacks; parsers bound how deep a document may go.
const MAX_DEPTH: u32 = 40;

/// An error statement: equal lines of all ranks and sources.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Statement {
    /// Its name within this report.
    pub id: String,
    /// The line with a placeholder for each number, address and random name.
    pub template: String,
    /// The first such line as it was printed.
    pub text: String,
    /// Number of lines.
    pub count: u64,
    /// Files that hold it, at most 16.
    pub sources: Vec<String>,
    /// Ranks that printed it, compressed.
    pub ranks: String,
    /// Hosts on which it was printed, at most 16.
    pub hosts: Vec<String>,
    /// The first line.
    pub first: Spot,
    /// The last line.
    pub last: Spot,
    /// When the first was printed, ns on its writer's wall clock; null if unknown.
    pub at_ns: Option<i64>,
    /// What became of it.
    pub role: Role,
    /// The rule that explains it, or the row of the message table that knows it; null if none.
    pub by: Option<String>,
    /// What is known of the words in it.
    pub words: Vec<Word>,
}

/// What became of an error statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Nothing explains it.
    Unexplained,
    /// A finding is its cause, or cites it.
    Explained,
    /// Healthy jobs print it too, or the job went on after it.
    Harmless,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Spot {
    /// File, as in `looked_at`.
    pub source: String,
    /// Line, counted from 1; null where lines mean nothing.
    #[schemars(range(min = 1))]
    pub line: Option<u32>,
}

/// A word, and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Word {
    /// The word, or the program that prints the line.
    pub text: String,
    /// What it means.
    pub means: String,
}

/// Something that was printed once, or first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Event {
    /// Month, day and time on the wall clock of the process that printed it; null if unknown.
    pub time: Option<String>,
    /// Rank that printed it.
    pub rank: Option<u32>,
    /// Host on which it was printed.
    pub host: Option<String>,
    /// Its place.
    pub at: Spot,
    /// Its first line.
    pub text: String,
    /// Others that printed the like later.
    pub more: usize,
}

/// A version or a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fact {
    /// `NCCL`, `NCCL_IB_HCA`.
    pub name: String,
    /// A setting rather than a version.
    pub setting: bool,
    /// Processes disagree about it.
    pub differs: bool,
    /// Its values, the rarest first.
    pub values: Vec<FactValue>,
}

/// Equal calls of one rank in one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Call {
    /// Group.
    pub group: String,
    /// What was called.
    pub op: String,
    /// How often.
    pub count: usize,
    /// Median of the time from its call to its end, ns; null if no recorder saw it end.
    pub median_ns: Option<i64>,
}

/// A value, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FactValue {
    /// The value.
    pub value: String,
    /// Ranks that have it, compressed, as far as they are known.
    pub ranks: String,
    /// Hosts on which it is so.
    pub hosts: Vec<String>,
    /// Processes or listings that have it.
    pub count: usize,
}

/// A cause that comes into question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Candidate {
    /// Id of the cause.
    pub cause: String,
    /// Only the order of the weights matters.
    pub weight: u32,
    /// What points to it.
    pub why: String,
    /// What would decide; null if unknown.
    pub needs: Option<String>,
    /// The command that shows it; null if there is none.
    pub command: Option<String>,
}

impl Candidate {
    /// The cause as one of the list.
    pub fn cause(&self) -> model::Cause {
        super::listed(&self.cause)
    }
}

/// Ranks that wait for others in one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Wait {
    /// Ranks that have entered it, compressed.
    pub from: String,
    /// Ranks that have not; empty if all have.
    pub to: String,
    /// Those of `to` without a record.
    pub unseen: String,
    /// The operation: `all_reduce #45 of default_pg`.
    pub op: String,
    /// Since when, ns since 1970 by the recorder's clock; null if unknown.
    pub since_ns: Option<i64>,
    /// The operation as data, of a collective with one number.
    #[serde(skip)]
    pub call: Option<model::NamedCall>,
}

/// A part of the merged stacks: frames that the same ranks go through, and what is below them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Stack {
    /// Frames, the outermost first.
    pub frames: Vec<StackFrame>,
    /// Ranks, compressed.
    pub ranks: String,
    /// Below the last frame; those with the fewest ranks first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub children: Vec<Stack>,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StackFrame {
    /// The frame's place in the source.
    #[serde(flatten)]
    pub place: Location,
    /// Whether it is the program's own code.
    pub own: bool,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Machine {
    /// Its name; null if the evidence does not tell.
    pub host: Option<String>,
    /// Ranks on it, compressed.
    pub ranks: String,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Its network ports.
    pub nics: Vec<Nic>,
    /// Paths between its GPUs.
    pub paths: Vec<Path>,
    /// Paths between its GPUs and its network cards.
    pub card_paths: Vec<CardPath>,
    /// What is wrong with the node itself: positions in `findings`.
    pub findings: Vec<usize>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gpu {
    /// The driver's index.
    pub index: Option<u32>,
    /// PCI address.
    pub pci: Option<String>,
    /// Product.
    pub model: Option<String>,
    /// The rank that runs on it.
    pub rank: Option<u32>,
    /// Numbers worth a look, with their units.
    pub values: Vec<Value>,
    /// NVLinks that are active, and all of them.
    pub nvlinks: Option<[u32; 2]>,
    /// What its own tables show to be wrong.
    pub faults: Vec<String>,
    /// Findings that name it: positions in `findings`.
    pub findings: Vec<usize>,
}

/// A number of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Value {
    /// Name of the number: `power`.
    pub name: String,
    /// The number with its unit: `121 of 700 W`.
    pub value: String,
}

/// The path between two GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Path {
    /// The driver's indices of both.
    pub gpus: [u32; 2],
    /// `NV18`: NVLinks; `PIX`, `PXB`, `PHB`, `NODE`, `SYS`: PCIe, the nearer first.
    pub kind: String,
}

/// The path between a GPU and a network card of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CardPath {
    /// The driver's index of the GPU.
    pub gpu: u32,
    /// The card: `mlx5_0`.
    pub card: String,
    /// `PIX`, `PXB`, `PHB`, `NODE`, `SYS`: the nearer first.
    pub kind: String,
}

/// One network port or interface.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Nic {
    /// `mlx5_0`, `eth0`.
    pub name: String,
    /// State as its tool prints it.
    pub state: Option<String>,
    /// Gb/s.
    pub rate_gbps: Option<f64>,
    /// Whether it works; null if unknown.
    pub up: Option<bool>,
    /// Findings that name it: positions in `findings`.
    pub findings: Vec<usize>,
}

/// One operation of ranks that made the same calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Span {
    /// The lowest of the ranks.
    pub rank: u32,
    /// All of them, compressed.
    pub ranks: String,
    /// Group.
    pub group: String,
    /// What was called.
    pub op: String,
    /// Number within the group; null for messages.
    pub seq: Option<u32>,
    /// When it was called, ns since 1970 by the recorder's clock; of several ranks the median.
    pub start_ns: i64,
    /// When it ended; null if it has not, or that is unknown.
    pub end_ns: Option<i64>,
    /// How far it got.
    pub state: SpanState,
}

/// How far an operation got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
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

/// What differs between two runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Against {
    /// The good run's verdict: the id of its cause, or `none`, or `undecided`.
    pub verdict: String,
    /// What differs.
    pub differences: Vec<Difference>,
    /// Parts that could not be compared, since one of the runs lacks them.
    pub not_compared: Vec<String>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    /// `version`, `setting`, `topology`, `calls`, `timing` or `statement`. May grow.
    pub kind: String,
    /// What differs.
    pub name: String,
    /// In the bad run; null if it is not there.
    pub bad: Option<String>,
    /// In the good run; null if it is not there.
    pub good: Option<String>,
}

fn path(case: &model::Case, source: model::SourceId) -> String {
    case.sources.get(source.0 as usize).map(|s| s.path.clone()).unwrap_or_default()
}

fn spot(case: &model::Case, cite: model::Cite) -> Spot {
    Spot { source: path(case, cite.source), line: (cite.line > 0).then_some(cite.line) }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn statements(case: &model::Case, picture: &model::Picture) -> Vec<Statement> {
    let one = |(n, stated): (usize, &model::PicturedStatement)| Statement {
        id: format!("s{}", n + 1),
        template: stated.template.to_string(),
        text: stated.text.to_string(),
        count: stated.count,
        sources: stated.sources.iter().map(|source| path(case, *source)).collect(),
        ranks: stated.ranks.to_string(),
        hosts: stated.hosts.iter().map(ToString::to_string).collect(),
        first: spot(case, stated.first),
        last: spot(case, stated.last),
        at_ns: stated.at.map(|at| at.ns),
        role: match stated.role {
            model::StatementRole::Unexplained => Role::Unexplained,
            model::StatementRole::Explained => Role::Explained,
            model::StatementRole::Harmless => Role::Harmless,
        },
        by: some(stated.by),
        words: stated
            .words
            .iter()
            .map(|(text, means)| Word { text: text.clone(), means: means.clone() })
            .collect(),
    };
    picture.statements.iter().enumerate().map(one).collect()
}

/// `11-20 08:21:34.879`.
fn clock(in_year_ns: i64) -> String {
    let ms = in_year_ns.div_euclid(1_000_000);
    let date = model::Date::from_days(ms.div_euclid(86_400_000));
    let of_day = ms.rem_euclid(86_400_000);
    let (s, ms) = (of_day / 1_000, of_day % 1_000);
    format!("{:02}-{:02} {:02}:{:02}:{:02}.{ms:03}", date.month, date.day, s / 3_600, s / 60 % 60, s % 60)
}

pub(super) fn events(case: &model::Case, picture: &model::Picture) -> Vec<Event> {
    let one = |event: &model::PicturedEvent| Event {
        time: event.in_year_ns.map(clock),
        rank: event.rank.map(|rank| rank.0),
        host: event.host.as_ref().map(ToString::to_string),
        at: spot(case, event.cite),
        text: event.text.clone(),
        more: event.n_more,
    };
    picture.events.iter().map(one).collect()
}

pub(super) fn facts(picture: &model::Picture) -> Vec<Fact> {
    let value = |value: &model::PicturedValue| FactValue {
        value: value.value.clone(),
        ranks: value.ranks.to_string(),
        hosts: value.hosts.iter().map(ToString::to_string).collect(),
        count: value.n,
    };
    let one = |fact: &model::PicturedFact| Fact {
        name: fact.name.clone(),
        setting: fact.is_setting,
        differs: fact.differs,
        values: fact.values.iter().map(value).collect(),
    };
    picture.facts.iter().map(one).collect()
}

pub(super) fn calls(picture: &model::Picture) -> Vec<Call> {
    let one = |call: &model::PicturedCall| Call {
        group: call.group.clone(),
        op: call.op.clone(),
        count: call.n,
        median_ns: call.median_ns,
    };
    picture.calls.iter().map(one).collect()
}

pub(super) fn span(picture: &model::Picture) -> Option<[String; 2]> {
    picture.span.map(|(from, to)| [clock(from), clock(to)])
}

pub(super) fn candidates(picture: &model::Picture) -> Vec<Candidate> {
    let one = |candidate: &model::Candidate| Candidate {
        cause: candidate.cause.id().to_owned(),
        weight: candidate.weight,
        why: candidate.why.clone(),
        needs: some(&candidate.needs),
        command: some(&candidate.command),
    };
    picture.candidates.iter().map(one).collect()
}

/// The row of the job that the report is about comes first, the others keep their order.
pub(super) fn jobs(picture: &model::Picture, verdict: &model::Verdict) -> Vec<JobRow> {
    let one = |(id, verdict): &(String, model::Verdict)| JobRow { id: id.clone(), verdict: verdict.into() };
    let mut rows: Vec<JobRow> = picture.jobs.iter().map(one).collect();
    // Of jobs with the same answer the report is that of the last.
    let is_told = |(_, of_job): &(String, model::Verdict)| {
        of_job.cause == verdict.cause
            && of_job.summary == verdict.summary
            && of_job.confidence == verdict.confidence
    };
    if let Some(at) = picture.jobs.iter().rposition(is_told) {
        rows[..=at].rotate_right(1);
    }
    rows
}

pub(super) fn waits(picture: &model::Picture) -> Vec<Wait> {
    let one = |wait: &model::Wait| Wait {
        from: wait.from.to_string(),
        to: wait.to.to_string(),
        unseen: wait.unseen.to_string(),
        op: wait.op.clone(),
        since_ns: wait.since_ns,
        call: wait.call.clone(),
    };
    picture.waits.iter().map(one).collect()
}

/// One row per rank: where recorded ranks are.
pub(super) fn ranks(picture: &model::Picture) -> Vec<RankRow> {
    let known: BTreeMap<model::Rank, &model::PicturedMember> =
        picture.members.iter().map(|member| (member.rank, member)).collect();
    let rows = picture.standings.iter().flat_map(|standing| {
        standing.ranks.ranks().iter().map(|rank| {
            let member = known.get(rank);
            let words = [standing.doing.as_str(), standing.fate.as_str()];
            let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
            RankRow {
                rank: rank.0,
                host: member.and_then(|m| m.host.as_deref()).map(str::to_owned),
                pid: member.and_then(|m| m.pid).map(|pid| pid.0),
                state: standing.state.name().to_owned(),
                cpu_ms: None,
                busy: None,
                place: standing.place.as_ref().map(Location::from),
                waits_for: some(&words.join("; ")),
                activity: None,
                since: None,
                has_moved: None,
            }
        })
    });
    rows.take(MAX_RANKS).collect()
}

pub(super) fn stacks(picture: &model::Picture) -> Vec<Stack> {
    let mut nodes = picture.stacks.as_slice();
    below(&mut nodes, 0, 0)
}

/// The parts at this depth, taken off the front.
fn below(nodes: &mut &[model::StackNode], depth: u32, level: u32) -> Vec<Stack> {
    let mut parts = Vec::new();
    while let Some((first, rest)) = nodes.split_first().filter(|(first, _)| first.depth >= depth) {
        *nodes = rest;
        let mut part =
            Stack { frames: vec![frame(first)], ranks: first.ranks.to_string(), children: Vec::new() };
        let mut last = first;
        // One frame after the other, while the same ranks go through it.
        while let Some((next, rest)) = nodes
            .split_first()
            .filter(|(next, _)| next.depth == last.depth + 1 && next.ranks.len() == last.ranks.len())
        {
            *nodes = rest;
            part.frames.push(frame(next));
            last = next;
        }
        let children = below(nodes, last.depth + 1, level + 1);
        if level < MAX_DEPTH {
            part.children = children;
        }
        parts.push(part);
    }
    parts
}

fn frame(node: &model::StackNode) -> StackFrame {
    StackFrame { place: Location::from(&node.frame), own: node.is_own }
}

pub(super) fn machines(picture: &model::Picture) -> Vec<Machine> {
    let gpu = |gpu: &model::MachineGpu| Gpu {
        index: gpu.index,
        pci: gpu.pci.map(|pci| pci.to_string()),
        model: some(&gpu.model),
        rank: gpu.rank.map(|rank| rank.0),
        values: gpu
            .values
            .iter()
            .map(|(name, value)| Value { name: (*name).to_owned(), value: value.clone() })
            .collect(),
        nvlinks: gpu.links.map(|(active, all)| [active, all]),
        faults: gpu.faults.clone(),
        findings: gpu.findings.clone(),
    };
    let nic = |nic: &model::MachineNic| Nic {
        name: nic.name.to_string(),
        state: some(&nic.state),
        rate_gbps: nic.rate_gbps,
        up: nic.is_up,
        findings: nic.findings.clone(),
    };
    let one = |machine: &model::Machine| Machine {
        host: machine.host.as_ref().map(ToString::to_string),
        ranks: machine.ranks.to_string(),
        gpus: machine.gpus.iter().map(gpu).collect(),
        nics: machine.nics.iter().map(nic).collect(),
        paths: machine
            .paths
            .iter()
            .map(|(from, to, kind)| Path { gpus: [*from, *to], kind: kind.to_string() })
            .collect(),
        card_paths: machine
            .card_paths
            .iter()
            .map(|(gpu, card, kind)| CardPath { gpu: *gpu, card: card.to_string(), kind: kind.to_string() })
            .collect(),
        findings: machine.findings.clone(),
    };
    picture.machines.iter().map(one).collect()
}

pub(super) fn timeline(picture: &model::Picture) -> Vec<Span> {
    let one = |span: &model::TimelineSpan| Span {
        rank: span.ranks.ranks().first().map_or(0, |rank| rank.0),
        ranks: span.ranks.to_string(),
        group: span.group.clone(),
        op: span.op.clone(),
        seq: span.seq,
        start_ns: span.start_ns,
        end_ns: span.end_ns,
        state: match span.state {
            model::SpanState::Finished => SpanState::Finished,
            model::SpanState::Running => SpanState::Running,
            model::SpanState::Waiting => SpanState::Waiting,
            model::SpanState::Called => SpanState::Called,
        },
    };
    picture.timeline.iter().map(one).collect()
}
