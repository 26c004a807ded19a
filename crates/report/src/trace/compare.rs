//! The report of `ringleader trace --against`, version 1: these types are the format.

pub mod text;

use ringleader_model::{Case, WorkKind};
use ringleader_trace::Analysis;
use ringleader_trace::compare::{self, Comparison, Fate, InStep, KernelChange, StepChange};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Verdict, ms};

/// What differs between two sets of timelines of one program: `here` minus `there`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparisonReport {
    /// Name and version of this format.
    pub schema: ComparisonSchema,
    /// What differs, in one sentence.
    pub summary: String,
    /// The job's step, on the rank that waits for no other.
    pub step: StepDifference,
    /// What the job's step is made of on that rank: these changes add up to that of `step`, the largest first.
    pub parts: Vec<PartDifference>,
    /// The other set.
    pub there: Side,
    /// This set.
    pub here: Side,
    /// The same ranks in both sets, by rank.
    pub ranks: Vec<RankDifference>,
    /// Ranks that only this set has.
    pub only_here: Vec<u32>,
    /// Ranks that only the other set has.
    pub only_there: Vec<u32>,
    /// Communication by kind, size and number of ranks, the largest change of time in a step first.
    pub collectives: Vec<CollectiveDifference>,
    /// Kernels and copies, the largest change of time in a step first.
    pub kernels: Vec<KernelDifference>,
    /// Kernels and copies that differ beyond those listed.
    pub more_kernels: usize,
    /// What limits the comparison.
    pub notes: Vec<String>,
}

/// Name and version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ComparisonSchema {
    /// This version.
    #[serde(rename = "ringleader.trace-comparison.v1")]
    V1,
}

/// One of the two sets.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Side {
    /// Its own answer.
    pub verdict: Verdict,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// Length of a usual step on the slowest rank, milliseconds; `step` has the paired steps only.
    pub step_ms: f64,
    /// The rank that the others wait for in most of the paired steps.
    pub last_rank: Option<u32>,
    /// In so many of the paired steps.
    pub last_steps: usize,
}

/// A quantity in paired steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepDifference {
    /// Mean there, milliseconds a step.
    pub there_ms: f64,
    /// Mean here, milliseconds a step.
    pub here_ms: f64,
    /// Here minus there, milliseconds a step.
    pub change_ms: f64,
    /// What steps of one set vary by anyway (median deviation, the larger of both sets), milliseconds.
    pub noise_ms: f64,
    /// Pairs of steps.
    pub pairs: usize,
    /// Pairs with a change in the direction of the mean.
    pub alike: usize,
    /// Whether the change exceeds twice the noise and half a percent, in one direction in 70 % of the pairs.
    pub clear: bool,
}

/// A part of a step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PartDifference {
    /// `compute`, `exposed-communication` (once all ranks are in it), `waiting-for-ranks`, `exposed-copies`, or `idle-` and
    /// a reason.
    pub part: String,
    /// Its change.
    #[serde(flatten)]
    pub change: StepDifference,
}

/// The same rank in both sets.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankDifference {
    /// The rank.
    pub rank: u32,
    /// How its steps are paired.
    pub paired_by: PairedBy,
    /// Numbers of the paired steps, there and here.
    pub steps: Vec<StepPair>,
    /// Its step.
    pub step: StepDifference,
    /// Parts of its step; their changes add up to that of `step`.
    pub parts: Vec<PartDifference>,
    /// Communication beside computation; a part of `compute`.
    pub hidden_communication: StepDifference,
    /// Calls of the GPU's runtime in a step.
    pub calls: Calls,
}

/// How steps are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PairedBy {
    /// By the numbers of their annotations.
    Number,
    /// The first usual step with the first, and so on.
    Order,
}

/// Calls of the GPU's runtime in a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Calls {
    /// Launches of kernels and graphs.
    pub launches: CallPair,
    /// Copies.
    pub copies: CallPair,
    /// Waits for the GPU.
    pub synchronisations: CallPair,
    /// Memory of the GPU allocated or freed.
    pub allocations: CallPair,
}

/// A number of calls in a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CallPair {
    /// Mean there.
    pub there: f64,
    /// Mean here.
    pub here: f64,
}

/// A pair of steps: numbers as annotated, else places in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepPair {
    /// There.
    pub there: u64,
    /// Here.
    pub here: u64,
}

/// Communication of one kind and size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CollectiveDifference {
    /// Operation.
    pub op: Option<String>,
    /// Bytes, as nccl-tests counts.
    pub size_bytes: u64,
    /// Ranks of the group.
    pub ranks: u32,
    /// There; null if that set has none.
    pub there: Option<CollectiveInStep>,
    /// Here; null if this set has none.
    pub here: Option<CollectiveInStep>,
    /// Change of the time that all of them take in a step, hidden or not, milliseconds.
    pub change_ms: f64,
}

/// Communication of one kind and size in a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CollectiveInStep {
    /// Operations in a step of a rank.
    pub count: f64,
    /// Median from the last start to the end, microseconds.
    pub cost_us: f64,
    /// All of them in a step, milliseconds.
    pub total_ms: f64,
    /// Bus bandwidth, GB/s.
    pub busbw_gbs: Option<f64>,
    /// The bandwidth is a lower bound: ranks are missing, or clocks disagree.
    pub lower_bound: bool,
}

/// Kernels or copies of one name, on the rank on which their time changes most.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct KernelDifference {
    /// Name.
    pub name: String,
    /// What happened to them.
    pub what: KernelFate,
    /// The rank on which their time changes most.
    pub rank: u32,
    /// Ranks on which it changes in this direction by half as much or more.
    pub ranks: usize,
    /// There.
    pub there: KernelInStep,
    /// Here.
    pub here: KernelInStep,
    /// Time of all of them in a step, milliseconds.
    pub time: StepDifference,
}

/// What happened to kernels of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are the meaning")]
pub enum KernelFate {
    Added,
    Gone,
    More,
    Fewer,
    Longer,
    Shorter,
}

/// Kernels or copies of one name in a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct KernelInStep {
    /// Number in a step.
    pub count: f64,
    /// Mean length of one, microseconds; 0 where there is none.
    pub each_us: f64,
}

/// Kernels that are listed.
const MAX_KERNELS: usize = 100;

impl ComparisonReport {
    /// The comparison of this set with another one; the cases give the notes.
    pub fn new((there, its_case): (&Analysis<'_>, &Case), (here, case): (&Analysis<'_>, &Case)) -> Self {
        let found = compare::compare(there, here);
        let step = difference(&found.step);
        let mut report = Self {
            schema: ComparisonSchema::V1,
            summary: String::new(),
            step,
            parts: found.parts.iter().map(part).collect(),
            there: side(there, found.last_ranks.iter().map(|pair| pair.0)),
            here: side(here, found.last_ranks.iter().map(|pair| pair.1)),
            ranks: found.ranks.iter().map(rank).collect(),
            only_here: found.only_here.clone(),
            only_there: found.only_there.clone(),
            collectives: found.collectives.iter().map(collective).collect(),
            kernels: found.kernels.iter().take(MAX_KERNELS).map(kernel).collect(),
            more_kernels: found.kernels.len().saturating_sub(MAX_KERNELS),
            notes: notes(&found, (there, its_case), (here, case)),
        };
        report.summary = text::summary(&report);
        report
    }

    /// As JSON, with a newline at its end.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// The schema of this format.
pub fn schema() -> String {
    let schema = schemars::schema_for!(ComparisonReport);
    format!("{schema:#}\n", schema = schema.as_value())
}

fn side(analysis: &Analysis<'_>, last: impl Iterator<Item = u32>) -> Side {
    let mut n: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
    for rank in last {
        *n.entry(rank).or_default() += 1;
    }
    let most = n.into_iter().max_by_key(|(rank, n)| (*n, std::cmp::Reverse(*rank)));
    Side {
        verdict: super::verdict(analysis),
        ranks: analysis.views.iter().map(|view| view.rank).collect(),
        step_ms: ms(analysis.step_ns),
        last_rank: most.map(|(rank, _)| rank),
        last_steps: most.map_or(0, |(_, n)| n),
    }
}

fn difference(change: &StepChange) -> StepDifference {
    StepDifference {
        there_ms: ms(change.there_ns),
        here_ms: ms(change.here_ns),
        change_ms: ms(change.ns()),
        noise_ms: ms(change.noise_ns),
        pairs: change.n_pairs,
        alike: change.n_alike,
        clear: change.is_clear(),
    }
}

fn part(of: &compare::PartChange) -> PartDifference {
    PartDifference { part: of.part.name(), change: difference(&of.change) }
}

fn rank(of: &compare::RankChange) -> RankDifference {
    let [launches, copies, synchronisations, allocations] =
        of.n_calls.map(|(there, here)| CallPair { there: tenth(there), here: tenth(here) });
    RankDifference {
        rank: of.rank,
        paired_by: if of.is_by_number { PairedBy::Number } else { PairedBy::Order },
        steps: of.steps.iter().map(|(there, here)| StepPair { there: *there, here: *here }).collect(),
        step: difference(&of.step),
        parts: of.parts.iter().map(part).collect(),
        hidden_communication: difference(&of.hidden_comm),
        calls: Calls { launches, copies, synchronisations, allocations },
    }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn collective(of: &compare::CollectiveChange) -> CollectiveDifference {
    let in_step = |side: &InStep| CollectiveInStep {
        count: tenth(side.n),
        cost_us: side.cost_ns as f64 / 1e3,
        total_ms: ms(side.total_ns),
        busbw_gbs: side.busbw_gbs.map(tenth),
        lower_bound: side.is_lower_bound,
    };
    CollectiveDifference {
        op: of.kind.map(|kind| kind.name().to_owned()),
        size_bytes: of.size_bytes,
        ranks: of.n_ranks,
        there: of.there.as_ref().map(in_step),
        here: of.here.as_ref().map(in_step),
        change_ms: ms(of.change_ns()),
    }
}

fn kernel(of: &KernelChange) -> KernelDifference {
    let in_step = |n: f64, each_ns: i64| KernelInStep { count: tenth(n), each_us: each_ns as f64 / 1e3 };
    KernelDifference {
        name: match of.kind {
            WorkKind::Fill if of.name.is_empty() => "fill".to_owned(),
            _ => of.name.clone(),
        },
        what: match of.fate() {
            Fate::Added => KernelFate::Added,
            Fate::Gone => KernelFate::Gone,
            Fate::More => KernelFate::More,
            Fate::Fewer => KernelFate::Fewer,
            Fate::Longer => KernelFate::Longer,
            Fate::Shorter => KernelFate::Shorter,
        },
        rank: of.rank,
        ranks: of.n_ranks,
        there: in_step(of.n.0, of.each_ns.0),
        here: in_step(of.n.1, of.each_ns.1),
        time: difference(&of.change),
    }
}

/// What limits the comparison.
fn notes(
    found: &Comparison,
    (there, its_case): (&Analysis<'_>, &Case),
    (here, case): (&Analysis<'_>, &Case),
) -> Vec<String> {
    let mut notes = Vec::new();
    let list = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if !found.only_here.is_empty() {
        notes.push(format!("only here: rank {}", list(&found.only_here)));
    }
    if !found.only_there.is_empty() {
        notes.push(format!("only there: rank {}", list(&found.only_there)));
    }
    if found.step.n_pairs < 3 {
        notes.push(format!("{} steps could be paired: what varies anyway is unknown", found.step.n_pairs));
    }
    let unclear = |analysis: &Analysis<'_>| analysis.views.len() > 1 && analysis.lateness.steps.is_empty();
    if unclear(there) || unclear(here) {
        notes.push(
            "clocks do not show which rank waits for which: the slowest rank stands for the job, and waiting counts as communication"
                .to_owned(),
        );
    }
    let devices = |analysis: &Analysis<'_>| -> std::collections::BTreeSet<String> {
        analysis
            .views
            .iter()
            .filter_map(|view| view.timeline.device_name.as_deref().map(str::to_owned))
            .collect()
    };
    let (gpus_there, gpus_here) = (devices(there), devices(here));
    if gpus_there != gpus_here && !gpus_there.is_empty() && !gpus_here.is_empty() {
        let words =
            |gpus: std::collections::BTreeSet<String>| gpus.into_iter().collect::<Vec<_>>().join(", ");
        notes.push(format!("GPUs differ: {} there, {} here", words(gpus_there), words(gpus_here)));
    }
    for (side, analysis, case) in [("there", there, its_case), ("here", here, case)] {
        notes.extend(super::all_notes(analysis, case).map(|note| format!("{side}: {note}")));
    }
    notes
}
