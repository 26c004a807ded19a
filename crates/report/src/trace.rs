//! The report of `ringleader trace`, version 1: these types are the format.

pub mod compare;
pub mod html;
pub mod merged;
pub mod picture;
pub mod plot;
mod png;
pub mod text;

use std::collections::BTreeMap;

use ringleader_model::{Case, Cause};
use ringleader_trace::bandwidth::SizeClass;
use ringleader_trace::expected::{Baseline, Basis};
use ringleader_trace::judge::{self, Advice};
use ringleader_trace::split::{Idle, Split};
use ringleader_trace::steps::StepSource;
use ringleader_trace::{Analysis, axes, late};
use schemars::JsonSchema;
use serde::Serialize;

/// Where the time of a job goes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TraceReport {
    /// Name and version of this format.
    pub schema: Schema,
    /// The answer.
    pub verdict: Verdict,
    /// Length of a usual step on the slowest rank, as recorded, milliseconds.
    pub step_ms: f64,
    /// The step in a replay of the recorded dependencies, milliseconds: how well the replay explains the recording.
    pub replayed_ms: f64,
    /// The step in a replay without the recorder's own cost, milliseconds: gains are shares of it.
    pub unrecorded_ms: f64,
    /// How the clocks of the ranks were aligned.
    pub clocks: Clocks,
    /// What a usual step of each rank is made of.
    pub ranks: Vec<RankTime>,
    /// Communication by kind and size, the largest share of time first.
    pub collectives: Vec<Collective>,
    /// What bus bandwidths are compared with.
    pub compared_with: Vec<String>,
    /// What computation loses beside communication, if the recording shows it.
    pub contention: Option<Contention>,
    /// Who waits for whom.
    pub lateness: Lateness,
    /// Imbalance by axis of parallelism, the one with most waiting first.
    pub axes: Vec<Axis>,
    /// What to change, the largest gain first; those below the threshold too, but for those that gain 0 %.
    pub advice: Vec<Suggestion>,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// Name and version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Schema {
    /// This version.
    #[serde(rename = "ringleader.trace.v1")]
    V1,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// Id of the cause, `none` if nothing is worth changing, or `undecided`.
    pub cause: String,
    /// Ranks at fault.
    pub culprits: Vec<u32>,
    /// What the steps lose time on, in one sentence.
    pub summary: String,
    /// Estimated gain, percent of the step.
    pub gain_pct: f64,
}

impl Verdict {
    /// The cause as one of the list.
    pub fn cause(&self) -> Cause {
        crate::json::listed(&self.cause)
    }
}

/// How the clocks of the ranks were aligned.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Clocks {
    /// Whether they agree well enough to say who is late.
    pub aligned: bool,
    /// Half of the ends of synchronising collectives agree this closely after the shift, microseconds.
    pub residual_us: Option<f64>,
    /// Operations with at least two ranks recorded.
    pub joined: usize,
    /// Communication kernels without a partner.
    pub alone: usize,
}

/// What a usual step of a rank is made of, milliseconds. `compute`, `exposed_comm`, `exposed_copy` and `idle` together
/// are `step`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankTime {
    /// Rank.
    pub rank: u32,
    /// Whether the file states the rank; else it is by order.
    pub rank_stated: bool,
    /// Host.
    pub host: Option<String>,
    /// GPU.
    pub device: Option<String>,
    /// What recorded it.
    pub recorder: String,
    /// How steps were found.
    pub steps_by: StepsBy,
    /// Steps in the file.
    pub steps: usize,
    /// Steps that count: warm-up and outliers are left out.
    pub usual_steps: usize,
    /// The step.
    pub step: f64,
    /// Kernels that compute.
    pub compute: f64,
    /// Communication beside computation; part of `compute`.
    pub hidden_comm: f64,
    /// Communication while nothing computes.
    pub exposed_comm: f64,
    /// Copies while neither computes nor communicates anything.
    pub exposed_copy: f64,
    /// Nothing runs, by what held the next work up.
    pub idle: BTreeMap<String, f64>,
}

/// How steps were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are the meaning")]
pub enum StepsBy {
    Annotation,
    Optimizer,
    Forward,
    Repetition,
    Whole,
}

/// Communication of one kind and size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Collective {
    /// Operation.
    pub op: Option<String>,
    /// Bytes, as nccl-tests counts.
    pub size_bytes: u64,
    /// Ranks of the group.
    pub ranks: u32,
    /// How many in the usual steps.
    pub count: usize,
    /// Median from the last start to the end, microseconds.
    pub cost_us: f64,
    /// Bus bandwidth at that cost, GB/s.
    pub busbw_gbs: Option<f64>,
    /// Blocks of the kernels, one for each channel of NCCL, if they were recorded.
    pub ctas: Option<u32>,
    /// Nodes that the group spans, if all of its ranks are recorded and their hosts are known.
    pub nodes: Option<u32>,
    /// What such a group should reach at this size, GB/s.
    pub expected_gbs: Option<f64>,
    /// Where `expected_gbs` is from: one of `compared_with`.
    pub expected_by: Option<String>,
    /// The bandwidth is a lower bound: ranks are missing, or clocks disagree.
    pub lower_bound: bool,
}

/// Who waits for whom.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Lateness {
    /// Mean time in a step that a rank waits in collectives for others and computes nothing, milliseconds.
    pub mean_wait_ms: f64,
    /// Part of it in sends and receives, milliseconds.
    pub p2p_wait_ms: f64,
    /// A rank that is late in most steps.
    pub straggler: Option<Straggler>,
}

/// A rank that is late in most steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Straggler {
    /// Rank.
    pub rank: u32,
    /// Median time by which it is later than the next one, milliseconds.
    pub lead_ms: f64,
    /// Steps in which it is the last.
    pub steps: usize,
    /// Reason.
    pub why: String,
}

/// What computation loses beside communication: equal kernels at equal places of the program with and without it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Contention {
    /// SMs that the communication's kernels hold: their blocks, median by time.
    pub ctas: u32,
    /// SMs of the GPU.
    pub sms: u32,
    /// Time of computation beside communication over its time alone.
    pub slowdown: f64,
    /// What a rank loses so in a step, milliseconds.
    pub lost_ms: f64,
    /// Kernels beside communication that were compared.
    pub compared: usize,
}

/// Groups of one axis of parallelism.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Axis {
    /// `dp`, `tp`, `pp`, `ep`, `cp`, several joined by `+`, `world`, `p2p`; else by members: `4 ranks, 2 apart`.
    pub name: String,
    /// Whether the job names it; else it is by members.
    pub named: bool,
    /// Ranks of each group.
    pub groups: Vec<Vec<u32>>,
    /// Mean time in a step that a rank waits in operations of these groups and computes nothing, milliseconds.
    pub wait_ms: f64,
    /// The rank that most often comes last to these operations.
    pub last_rank: Option<u32>,
    /// In so many of its own operations, percent.
    pub last_pct: Option<f64>,
    /// What ranks of one group have unequal amounts of, the largest excess first.
    pub unequal: Vec<Unequal>,
}

/// An unequal amount.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Unequal {
    /// The amount that differs between ranks.
    pub what: Amount,
    /// What the rank with most has beyond the mean of its group, percent: mean over steps and groups.
    pub excess_pct: f64,
    /// The same of a time, milliseconds.
    pub excess_ms: Option<f64>,
    /// The rank with the largest excess in all.
    pub rank: u32,
    /// Steps in which it has most of its group, percent.
    pub steps_pct: f64,
}

/// What is unequal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// Time of kernels that compute.
    Computation,
    /// Blocks of kernels that compute: how much is computed, at whatever speed.
    KernelBlocks,
    /// Time of attention kernels, which grows faster than the length of sequences.
    Attention,
    /// Elements that an uneven all-to-all brings to a rank or takes back from it: the load of its experts.
    ExpertTokens,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Suggestion {
    /// Id of the cause.
    pub cause: String,
    /// Ranks at fault.
    pub culprits: Vec<u32>,
    /// What was seen.
    pub seen: String,
    /// What to do.
    pub todo: String,
    /// Estimated step after it, milliseconds.
    pub after_ms: f64,
    /// Gain, percent of the step.
    pub gain_pct: f64,
    /// What the gain is from.
    pub estimated_by: EstimatedBy,
    /// Whether the gain is worth a change.
    pub worth: bool,
}

/// What a gain is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EstimatedBy {
    /// A replay of the recorded dependencies with the change made.
    Replay,
    /// A calculation from the parts of the step.
    Formula,
}

fn ms(ns: i64) -> f64 {
    // Microseconds are as fine as anybody reads.
    (ns as f64 / 1e3).round() / 1e3
}

fn pct(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl TraceReport {
    /// The report of an analysis; the case gives the notes.
    pub fn new(analysis: &Analysis<'_>, case: &Case) -> Self {
        Self {
            schema: Schema::V1,
            verdict: verdict(analysis),
            step_ms: ms(analysis.step_ns),
            replayed_ms: ms(analysis.replayed_ns),
            unrecorded_ms: ms(analysis.unrecorded_ns),
            clocks: Clocks {
                aligned: analysis.join.is_aligned(),
                residual_us: analysis.join.residual_ns.map(|ns| ns as f64 / 1e3),
                joined: analysis.join.ops.len(),
                alone: analysis.join.n_alone,
            },
            ranks: ranks(analysis),
            collectives: analysis.sizes.iter().map(|class| collective(analysis, class)).collect(),
            compared_with: compared_with(analysis),
            contention: analysis.contention.map(|found| Contention {
                ctas: found.n_ctas,
                sms: found.n_sms,
                slowdown: (found.slowdown * 1e3).round() / 1e3,
                lost_ms: ms(found.lost_ns),
                compared: found.n_compared,
            }),
            lateness: lateness(analysis),
            axes: analysis.axes.iter().map(axis).collect(),
            advice: analysis.advice.iter().map(suggestion).collect(),
            notes: all_notes(analysis, case).collect(),
        }
    }

    /// As JSON, with a newline at its end.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// What the timelines given do not let one say, and what could not be read.
fn all_notes(analysis: &Analysis<'_>, case: &Case) -> impl Iterator<Item = String> {
    let of_case = case.notes.iter().map(|note| {
        let path = case.sources.get(note.cite.source.0 as usize).map_or("", |s| &s.path);
        format!("{path}: {}", note.text)
    });
    limits(analysis).into_iter().chain(of_case)
}

/// What the timelines given do not let one say.
fn limits(analysis: &Analysis<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if analysis.n_sets > 1 {
        notes.push(format!(
            "these ranks have {} recordings, one after the other; the newest is shown. For an earlier one, give only its files",
            analysis.n_sets
        ));
    }
    if !analysis.without_steps.is_empty() {
        notes.push(format!(
            "of rank {} no whole step was recorded: left out",
            analysis.without_steps.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
        ));
    }
    // If one group fits, it is compared.
    let large = analysis.sizes.iter().filter(|class| class.size_bytes > 0 && class.n_ranks > 1);
    let groups: Vec<(u32, Option<u32>)> = large.map(|class| (class.n_ranks, class.n_nodes)).collect();
    if let Some(why) =
        groups.iter().map(|group| analysis.references.misfit(*group)).reduce(Option::and).flatten()
    {
        notes.push(format!("the baseline is not compared with: {why}"));
    }
    if analysis.waits_unseen() {
        notes.push(format!(
            "collectives take {} per step beyond the shortest of their kind and size: only the other ranks' timelines show whether that is waiting or cost",
            judge::ms(analysis.unseen_wait_ns)
        ));
    }
    notes
}

/// The schema of this format.
pub fn schema() -> String {
    let schema = schemars::schema_for!(TraceReport);
    format!("{schema:#}\n", schema = schema.as_value())
}

fn verdict(analysis: &Analysis<'_>) -> Verdict {
    let none = |cause: &str, summary: &str| Verdict {
        cause: cause.to_owned(),
        culprits: Vec::new(),
        summary: summary.to_owned(),
        gain_pct: 0.0,
    };
    match analysis.advice.first() {
        Some(first) if first.is_worth => Verdict {
            cause: first.cause.id().to_owned(),
            culprits: first.culprits.clone(),
            summary: first.seen.clone(),
            gain_pct: pct(first.gain_pct),
        },
        _ if !analysis.has_work() => none("undecided", "the timelines hold no work of a GPU"),
        _ if analysis.waits_unseen() => none(
            "undecided",
            "collectives wait, but without the other ranks' timelines it is unknown for which rank",
        ),
        _ if !judge::is_explained(analysis.step_ns, analysis.replayed_ns) => {
            none("undecided", "a replay of the recorded dependencies does not explain the recorded steps")
        }
        _ if !analysis.shows_computation() => none(
            "undecided",
            "no rank is late, but only communication was recorded: what else takes time is unknown",
        ),
        _ if !analysis.has_steps() => none(
            "undecided",
            "no step repeats or is marked: the whole recording is shown, in which the program's start counts, too",
        ),
        _ if analysis.n_tried > 0 => {
            none("none", "nothing to gain: no single change makes a step 5 % shorter")
        }
        _ => none("undecided", "the timelines do not show what delayed the GPU's work"),
    }
}

fn ranks(analysis: &Analysis<'_>) -> Vec<RankTime> {
    let of = analysis.views.iter().zip(&analysis.steps).zip(&analysis.means);
    of.map(|((view, steps), mean): ((_, _), &Split)| RankTime {
        rank: view.rank,
        rank_stated: view.is_rank_stated,
        host: view.timeline.host.as_deref().map(str::to_owned),
        device: view.timeline.device_name.as_deref().map(str::to_owned),
        recorder: view.timeline.recorder.name().to_owned(),
        steps_by: match steps.found {
            StepSource::Annotated => StepsBy::Annotation,
            StepSource::Optimizer => StepsBy::Optimizer,
            StepSource::Forward => StepsBy::Forward,
            StepSource::Repetition => StepsBy::Repetition,
            StepSource::Whole => StepsBy::Whole,
        },
        steps: steps.all.len(),
        usual_steps: steps.usual.len(),
        step: ms(mean.length_ns),
        compute: ms(mean.compute_ns),
        hidden_comm: ms(mean.hidden_comm_ns),
        exposed_comm: ms(mean.exposed_comm_ns),
        exposed_copy: ms(mean.exposed_copy_ns),
        idle: Idle::ALL.iter().map(|why| (why.name().to_owned(), ms(mean.idle(*why)))).collect(),
    })
    .collect()
}

/// Where an expected bandwidth is from.
fn basis(analysis: &Analysis<'_>, by: Basis) -> String {
    match by {
        Basis::Baseline => format!("baseline {}", analysis.baseline.map(Baseline::words).unwrap_or_default()),
        Basis::NvLink => {
            "78 % of NVLink's rate with a latency of 25 µs, as fits 2 H100 and 2 H200".to_owned()
        }
        Basis::Table(reach) => format!("measured by others on {} ({})", reach.node, reach.cite.join("; ")),
    }
}

fn compared_with(analysis: &Analysis<'_>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for expected in analysis.sizes.iter().filter_map(|class| class.expected) {
        let words = basis(analysis, expected.by);
        if !all.contains(&words) {
            all.push(words);
        }
    }
    all
}

fn collective(analysis: &Analysis<'_>, class: &SizeClass) -> Collective {
    let short = |gbs: f64| (gbs * 10.0).round() / 10.0;
    Collective {
        op: class.kind.map(|kind| kind.name().to_owned()),
        size_bytes: class.size_bytes,
        ranks: class.n_ranks,
        count: class.n,
        cost_us: class.cost_ns as f64 / 1e3,
        busbw_gbs: class.busbw_gbs.map(short),
        ctas: class.n_ctas,
        nodes: class.n_nodes,
        expected_gbs: class.expected.map(|expected| short(expected.gbs)),
        expected_by: class.expected.map(|expected| basis(analysis, expected.by)),
        lower_bound: class.is_lower_bound,
    }
}

fn lateness(analysis: &Analysis<'_>) -> Lateness {
    let late = &analysis.lateness;
    let straggler = late.straggler.map(|s: late::Straggler| Straggler {
        rank: analysis.views.get(s.view as usize).map_or(0, |view| view.rank),
        lead_ms: ms(s.lead_ns),
        steps: s.n_steps,
        why: s.why.words().to_owned(),
    });
    Lateness { mean_wait_ms: ms(late.mean_wait_ns), p2p_wait_ms: ms(late.p2p_wait_ns), straggler }
}

fn axis(axis: &axes::Axis) -> Axis {
    let unequal = axis.unequal.iter().map(|unequal| Unequal {
        what: match unequal.what {
            axes::Amount::Computation => Amount::Computation,
            axes::Amount::Blocks => Amount::KernelBlocks,
            axes::Amount::Attention => Amount::Attention,
            axes::Amount::Tokens => Amount::ExpertTokens,
        },
        excess_pct: pct(unequal.excess_pct),
        excess_ms: unequal.excess_ns.map(ms),
        rank: unequal.rank,
        steps_pct: pct(unequal.steps_pct),
    });
    Axis {
        name: axis.name.clone(),
        named: axis.is_named,
        groups: axis.groups.clone(),
        wait_ms: ms(axis.wait_ns),
        last_rank: axis.last.map(|(rank, _)| rank),
        last_pct: axis.last.map(|(_, share)| pct(share)),
        unequal: unequal.collect(),
    }
}

impl Amount {
    /// For people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::KernelBlocks => "kernel blocks",
            Self::Attention => "attention",
            Self::ExpertTokens => "expert tokens",
        }
    }
}

fn suggestion(advice: &Advice) -> Suggestion {
    Suggestion {
        cause: advice.cause.id().to_owned(),
        culprits: advice.culprits.clone(),
        seen: advice.seen.clone(),
        todo: advice.todo.clone(),
        after_ms: ms(advice.after_ns),
        gain_pct: pct(advice.gain_pct),
        estimated_by: match advice.estimated_by {
            judge::EstimatedBy::Replay => EstimatedBy::Replay,
            judge::EstimatedBy::Formula => EstimatedBy::Formula,
        },
        worth: advice.is_worth,
    }
}
