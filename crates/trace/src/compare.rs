//! Two sets of timelines of one program side by side: rank by rank and step by step, what changed and what it costs.
//!
//! The job's step lasts as long as that of the rank which waits for no other: the parts of this rank's step, here minus
//! there, add up to the change of the job's step. Means over ranks would not: time that one rank computes longer is time
//! that the others wait.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{OpKind, RuntimeCall, SpanKind, WorkKind, median};

use crate::Analysis;
use crate::bandwidth::SizeClass;
use crate::split::{Idle, Split};
use crate::steps::{StepSource, Steps};
use crate::view::RankTimeline;

/// What differs between two sets of timelines; changes are here minus there.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The job's step.
    pub step: StepChange,
    /// What the job's step is made of on the rank that waits for no other: these changes add up to that of `step`, the
    /// largest first.
    pub parts: Vec<PartChange>,
    /// For each pair of steps of the job: the rank that the others wait for, there and here.
    pub last_ranks: Vec<(u32, u32)>,
    /// The same ranks in both sets, by rank.
    pub ranks: Vec<RankChange>,
    /// Ranks that only this set has.
    pub only_here: Vec<u32>,
    /// Ranks that only the other set has.
    pub only_there: Vec<u32>,
    /// Communication by kind, size and number of ranks, the largest change of time in a step first.
    pub collectives: Vec<CollectiveChange>,
    /// Kernels and copies of the GPU, the largest change of time in a step first.
    pub kernels: Vec<KernelChange>,
}

/// A quantity in pairs of steps, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepChange {
    /// Mean over the paired steps there, ns.
    pub there_ns: i64,
    /// Mean over the paired steps here, ns.
    pub here_ns: i64,
    /// Median deviation from the median over steps, the larger of both sets, ns: what varies anyway.
    pub noise_ns: i64,
    /// Pairs of steps.
    pub n_pairs: usize,
    /// Pairs in which the change has the direction of the mean.
    pub n_alike: usize,
}

impl StepChange {
    /// Here minus there, ns.
    pub fn ns(&self) -> i64 {
        self.here_ns - self.there_ns
    }

    /// Whether the change is larger than what the steps of one set vary by, and of one direction in most pairs.
    pub fn is_clear(&self) -> bool {
        let ns = self.ns().abs();
        ns > NOISE_FACTOR * self.noise_ns
            && ns * 1_000 > self.there_ns.max(self.here_ns) * LEAST_PER_MILLE
            && self.n_alike * 100 >= self.n_pairs * ALIKE_PCT
    }

    fn of(pairs: &[(i64, i64)]) -> Self {
        let n = pairs.len() as i64;
        if n == 0 {
            return Self::default();
        }
        let there_ns = pairs.iter().map(|(there, _)| there).sum::<i64>() / n;
        let here_ns = pairs.iter().map(|(_, here)| here).sum::<i64>() / n;
        let change = here_ns - there_ns;
        let noise_ns = deviation(pairs.iter().map(|p| p.0)).max(deviation(pairs.iter().map(|p| p.1)));
        let n_alike = pairs.iter().filter(|(t, h)| (h - t).signum() == change.signum()).count();
        Self { there_ns, here_ns, noise_ns, n_pairs: pairs.len(), n_alike }
    }
}

/// A change counts if it is this many times the median deviation of steps.
const NOISE_FACTOR: i64 = 2;
/// And at least this share of the larger value, per mille: a clock's jitter.
const LEAST_PER_MILLE: i64 = 5;
/// And has the same direction in this share of the pairs, percent.
const ALIKE_PCT: usize = 70;

/// Median distance from the median.
fn deviation(values: impl Iterator<Item = i64> + Clone) -> i64 {
    let middle = median::lower(values.clone()).unwrap_or(0);
    median::lower(values.map(|value| (value - middle).abs())).unwrap_or(0)
}

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Kernels that compute run.
    Compute,
    /// Communication runs and nothing computes, once all ranks are in it.
    ExposedComm,
    /// A collective waits for another rank, and nothing computes.
    Waiting,
    /// Copies or fills run, and nothing else.
    ExposedCopy,
    /// Nothing runs, by reason.
    Idle(Idle),
}

impl Part {
    /// All parts; together they are the step.
    pub fn all() -> impl Iterator<Item = Self> {
        let first = [Self::Compute, Self::ExposedComm, Self::Waiting, Self::ExposedCopy];
        first.into_iter().chain(Idle::ALL.into_iter().map(Self::Idle))
    }

    /// Stable name in reports.
    pub fn name(self) -> String {
        match self {
            Self::Compute => "compute".to_owned(),
            Self::ExposedComm => "exposed-communication".to_owned(),
            Self::Waiting => "waiting-for-ranks".to_owned(),
            Self::ExposedCopy => "exposed-copies".to_owned(),
            Self::Idle(why) => format!("idle-{}", why.name()),
        }
    }

    fn of(self, split: &Split, wait_ns: i64) -> i64 {
        let wait_ns = wait_ns.clamp(0, split.exposed_comm_ns);
        match self {
            Self::Compute => split.compute_ns,
            Self::ExposedComm => split.exposed_comm_ns - wait_ns,
            Self::Waiting => wait_ns,
            Self::ExposedCopy => split.exposed_copy_ns,
            Self::Idle(why) => split.idle(why),
        }
    }
}

/// StepChange of a part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartChange {
    /// The part.
    pub part: Part,
    /// Its change in a step.
    pub change: StepChange,
}

/// The same rank in both sets.
#[derive(Clone, Debug, PartialEq)]
pub struct RankChange {
    /// The rank.
    pub rank: u32,
    /// Paired steps: number or place there, and here.
    pub steps: Vec<(u64, u64)>,
    /// Whether steps are paired by the numbers of their annotations; else by order.
    pub is_by_number: bool,
    /// Length of its step.
    pub step: StepChange,
    /// Parts of its step, in the order of [`Part::all`].
    pub parts: Vec<PartChange>,
    /// Communication beside computation.
    pub hidden_comm: StepChange,
    /// Calls in a step of threads that launch work, in the order of [`CALLS`]: mean there, and here.
    pub n_calls: [(f64, f64); 4],
}

/// Kinds of calls that are counted.
pub const CALLS: [RuntimeCall; 4] =
    [RuntimeCall::Launch, RuntimeCall::Copy, RuntimeCall::Synchronize, RuntimeCall::Allocate];

/// Communication of one kind and size in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InStep {
    /// Operations in a usual step of a rank.
    pub n: f64,
    /// Median cost of one, ns.
    pub cost_ns: i64,
    /// Cost of all of them in a step, ns.
    pub total_ns: i64,
    /// Bus bandwidth at the median cost, GB/s.
    pub busbw_gbs: Option<f64>,
    /// The bandwidth is a lower bound.
    pub is_lower_bound: bool,
}

/// Communication of one kind and size in both sets.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveChange {
    /// Kind of the operations; None if it is unknown.
    pub kind: Option<OpKind>,
    /// Bytes of the message, as nccl-tests counts.
    pub size_bytes: u64,
    /// Ranks of the group.
    pub n_ranks: u32,
    /// There; None if the set has none of these.
    pub there: Option<InStep>,
    /// Here; None if the set has none of these.
    pub here: Option<InStep>,
}

impl CollectiveChange {
    /// Time in a step that all of them take, here minus there, ns.
    pub fn change_ns(&self) -> i64 {
        self.here.map_or(0, |c| c.total_ns) - self.there.map_or(0, |c| c.total_ns)
    }
}

/// Kernels of one name, on the rank on which their time changes most.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelChange {
    /// Name.
    pub name: String,
    /// Kind of the work.
    pub kind: WorkKind,
    /// The rank on which their time changes most.
    pub rank: u32,
    /// Ranks on which it changes in the same direction by half as much or more.
    pub n_ranks: usize,
    /// Number in a step, there and here.
    pub n: (f64, f64),
    /// Mean length of one, there and here, ns; 0 where there is none.
    pub each_ns: (i64, i64),
    /// Time in a step of all of them.
    pub change: StepChange,
}

/// What happened to the kernels of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Only here.
    Added,
    /// Only there.
    Gone,
    /// More of them here.
    More,
    /// Fewer of them here.
    Fewer,
    /// As many, and each takes longer here.
    Longer,
    /// As many, and each is shorter here.
    Shorter,
}

impl KernelChange {
    /// What happened.
    pub fn fate(&self) -> Fate {
        let (there, here) = self.n;
        match (there > 0.0, here > 0.0) {
            (false, _) => Fate::Added,
            (_, false) => Fate::Gone,
            _ if here > there * 1.02 => Fate::More,
            _ if there > here * 1.02 => Fate::Fewer,
            _ if self.change.ns() >= 0 => Fate::Longer,
            _ => Fate::Shorter,
        }
    }
}

/// Compares this set (`here`) with another one (`there`).
pub fn compare(there: &Analysis<'_>, here: &Analysis<'_>) -> Comparison {
    let (step, parts, last_ranks) = job(there, here);
    let ranks_of = |analysis: &Analysis<'_>| -> BTreeMap<u32, usize> {
        analysis.views.iter().enumerate().map(|(place, view)| (view.rank, place)).collect()
    };
    let (at_there, at_here) = (ranks_of(there), ranks_of(here));
    let both: Vec<(u32, usize, usize)> =
        at_here.iter().filter_map(|(rank, place)| Some((*rank, *at_there.get(rank)?, *place))).collect();
    let only = |of: &BTreeMap<u32, usize>, other: &BTreeMap<u32, usize>| {
        of.keys().copied().filter(|rank| !other.contains_key(rank)).collect()
    };
    let step_pairs: Vec<(bool, Vec<(u32, u32)>)> = both
        .iter()
        .map(|(_, a, b)| match (there.steps.get(*a), here.steps.get(*b)) {
            (Some(a), Some(b)) => paired(a, b),
            _ => (false, Vec::new()),
        })
        .collect();
    let ranks = both
        .iter()
        .zip(&step_pairs)
        .map(|((rank, a, b), (is_by_number, pairs))| {
            rank_change(*rank, (there, *a), (here, *b), *is_by_number, pairs)
        })
        .collect();
    Comparison {
        step,
        parts,
        last_ranks,
        ranks,
        only_here: only(&at_here, &at_there),
        only_there: only(&at_there, &at_here),
        collectives: collectives(there, here),
        kernels: kernels(there, here, &both, &step_pairs),
    }
}

/// Pairs of usual steps of one rank: by number, if both sets have annotated numbers in common; else by order.
fn paired(there: &Steps, here: &Steps) -> (bool, Vec<(u32, u32)>) {
    if let Some(pairs) = by_number(
        &there.usual.iter().map(|at| (number(there, *at), *at)).collect::<Vec<_>>(),
        &here.usual.iter().map(|at| (number(here, *at), *at)).collect::<Vec<_>>(),
    ) {
        return (true, pairs);
    }
    (false, there.usual.iter().copied().zip(here.usual.iter().copied()).collect())
}

/// The annotated number of a step.
fn number(steps: &Steps, at: u32) -> Option<u64> {
    (steps.found == StepSource::Annotated).then(|| steps.all.get(at as usize).map(|step| step.number))?
}

/// Pairs with equal numbers, if at least half of the smaller set has one.
fn by_number<T: Copy>(there: &[(Option<u64>, T)], here: &[(Option<u64>, T)]) -> Option<Vec<(T, T)>> {
    let numbered: BTreeMap<u64, T> = there.iter().filter_map(|(n, at)| Some(((*n)?, *at))).collect();
    let pairs: Vec<(T, T)> = here.iter().filter_map(|(n, at)| Some((*numbered.get(&(*n)?)?, *at))).collect();
    (!pairs.is_empty() && pairs.len() * 2 >= there.len().min(here.len())).then_some(pairs)
}

/// One step of a job: its number, the view that waits for no other, and the step's place there.
type JobStep = (Option<u64>, (usize, u32));

/// Steps of the job. If the clocks do not say who waits, the slowest rank stands for the job.
fn job_steps(analysis: &Analysis<'_>) -> Vec<JobStep> {
    let late = &analysis.lateness;
    let of_view = |view: usize, at: u32| {
        let number = analysis.steps.get(view).and_then(|steps| number(steps, at));
        (number, (view, at))
    };
    if !late.steps.is_empty() {
        let last = |(places, waits): (&Vec<u32>, &Vec<i64>)| {
            let (view, _) = waits.iter().enumerate().min_by_key(|(view, wait)| (**wait, *view))?;
            Some(of_view(view, *places.get(view)?))
        };
        return late.steps.iter().zip(&late.waits).filter_map(last).collect();
    }
    let slowest = analysis
        .means
        .iter()
        .enumerate()
        .max_by_key(|(view, mean)| (mean.length_ns, std::cmp::Reverse(*view)));
    let Some((view, _)) = slowest else { return Vec::new() };
    let usual = analysis.steps.get(view).map_or(&[][..], |steps| &steps.usual);
    usual.iter().map(|at| of_view(view, *at)).collect()
}

/// StepChange of the job's step and its parts, and who is waited for.
fn job(there: &Analysis<'_>, here: &Analysis<'_>) -> (StepChange, Vec<PartChange>, Vec<(u32, u32)>) {
    let (before, after) = (job_steps(there), job_steps(here));
    let pairs = by_number(&before, &after).unwrap_or_else(|| {
        before.iter().zip(&after).map(|((_, before), (_, after))| (*before, *after)).collect()
    });
    let part = |analysis: &Analysis<'_>, (view, at): (usize, u32), part: Option<Part>| {
        part_of(analysis, view, at, part)
    };
    let of = |wanted: Option<Part>| -> StepChange {
        let values: Vec<(i64, i64)> =
            pairs.iter().map(|(a, b)| (part(there, *a, wanted), part(here, *b, wanted))).collect();
        StepChange::of(&values)
    };
    let mut parts: Vec<PartChange> =
        Part::all().map(|part| PartChange { part, change: of(Some(part)) }).collect();
    parts.sort_by_key(|part| (std::cmp::Reverse(part.change.ns().abs()), part.part));
    let rank = |analysis: &Analysis<'_>, view: usize| analysis.views.get(view).map_or(0, |view| view.rank);
    let last_ranks = pairs.iter().map(|(a, b)| (rank(there, a.0), rank(here, b.0))).collect();
    (of(None), parts, last_ranks)
}

/// A part of a step of a view, or its whole length, ns.
fn part_of(analysis: &Analysis<'_>, view: usize, at: u32, part: Option<Part>) -> i64 {
    let Some(split) = analysis.splits.get(view).and_then(|splits| splits.get(at as usize)) else { return 0 };
    match part {
        None => split.length_ns,
        Some(part) => part.of(split, wait_ns(analysis, view, at)),
    }
}

/// Time in which a view waits for other ranks in a step, ns; 0 if it is unknown.
fn wait_ns(analysis: &Analysis<'_>, view: usize, at: u32) -> i64 {
    let late = &analysis.lateness;
    let is_it = |places: &Vec<u32>| places.get(view) == Some(&at);
    let step = late.steps.iter().position(is_it);
    step.and_then(|step| late.waits.get(step)?.get(view).copied()).unwrap_or(0)
}

fn rank_change(
    rank: u32,
    (there, a): (&Analysis<'_>, usize),
    (here, b): (&Analysis<'_>, usize),
    is_by_number: bool,
    pairs: &[(u32, u32)],
) -> RankChange {
    let of = |value: &dyn Fn(&Analysis<'_>, usize, u32) -> i64| -> StepChange {
        let values: Vec<(i64, i64)> =
            pairs.iter().map(|(at_a, at_b)| (value(there, a, *at_a), value(here, b, *at_b))).collect();
        StepChange::of(&values)
    };
    let hidden = |analysis: &Analysis<'_>, view: usize, at: u32| {
        analysis.splits.get(view).and_then(|s| s.get(at as usize)).map_or(0, |split| split.hidden_comm_ns)
    };
    let n_calls = |analysis: &Analysis<'_>, view: usize, places: &BTreeSet<u32>| {
        let (view, steps) = (analysis.views.get(view), analysis.steps.get(view));
        view.zip(steps).map_or([0.0; 4], |(view, steps)| calls(view, steps, places))
    };
    let calls_there = n_calls(there, a, &pairs.iter().map(|pair| pair.0).collect());
    let calls_here = n_calls(here, b, &pairs.iter().map(|pair| pair.1).collect());
    let mut both = [(0.0, 0.0); 4];
    for ((slot, there), here) in both.iter_mut().zip(calls_there).zip(calls_here) {
        *slot = (there, here);
    }
    let label = |analysis: &Analysis<'_>, view: usize, at: u32| {
        analysis.steps.get(view).and_then(|s| s.all.get(at as usize)).map_or(u64::from(at), |s| s.number)
    };
    RankChange {
        rank,
        steps: pairs.iter().map(|(at_a, at_b)| (label(there, a, *at_a), label(here, b, *at_b))).collect(),
        is_by_number,
        step: of(&|analysis, view, at| part_of(analysis, view, at, None)),
        parts: Part::all()
            .map(|part| PartChange {
                part,
                change: of(&|analysis, view, at| part_of(analysis, view, at, Some(part))),
            })
            .collect(),
        hidden_comm: of(&hidden),
        n_calls: both,
    }
}

/// Calls of each kind in these steps, mean of a step.
fn calls(view: &RankTimeline<'_>, steps: &Steps, places: &BTreeSet<u32>) -> [f64; 4] {
    let mut n = [0_usize; 4];
    for call in (0..view.runtime.len() as u32).filter_map(|place| view.call(place)) {
        let after = steps.all.partition_point(|step| step.host.0 <= call.start_ns);
        let Some(at) = after.checked_sub(1).map(|at| at as u32) else { continue };
        let SpanKind::Runtime(kind) = call.kind else { continue };
        let slot = CALLS.iter().position(|of| *of == kind).and_then(|slot| n.get_mut(slot));
        if let Some(slot) = slot.filter(|_| places.contains(&at)) {
            *slot += 1;
        }
    }
    n.map(|n| n as f64 / places.len().max(1) as f64)
}

fn collectives(there: &Analysis<'_>, here: &Analysis<'_>) -> Vec<CollectiveChange> {
    type Key = (Option<OpKind>, u64, u32);
    let sums = |analysis: &Analysis<'_>| -> BTreeMap<Key, InStep> {
        let mut all: BTreeMap<Key, InStep> = BTreeMap::new();
        for class in &analysis.sizes {
            let n = analysis.n_per_step(class);
            let found = in_step(class, n);
            all.entry((class.kind, class.size_bytes, class.n_ranks))
                .and_modify(|sum| {
                    // Groups of these sizes on other nodes: the larger share stands for the bandwidth.
                    if found.total_ns > sum.total_ns {
                        (sum.cost_ns, sum.busbw_gbs) = (found.cost_ns, found.busbw_gbs);
                    }
                    sum.n += found.n;
                    sum.total_ns += found.total_ns;
                    sum.is_lower_bound |= found.is_lower_bound;
                })
                .or_insert(found);
        }
        all
    };
    let (before, after) = (sums(there), sums(here));
    let keys: BTreeSet<Key> = before.keys().chain(after.keys()).copied().collect();
    let mut all: Vec<CollectiveChange> = keys
        .into_iter()
        .map(|key| CollectiveChange {
            kind: key.0,
            size_bytes: key.1,
            n_ranks: key.2,
            there: before.get(&key).copied(),
            here: after.get(&key).copied(),
        })
        .collect();
    all.sort_by_key(|class| std::cmp::Reverse(class.change_ns().abs()));
    all
}

fn in_step(class: &SizeClass, n: f64) -> InStep {
    InStep {
        n,
        cost_ns: class.cost_ns,
        total_ns: (class.cost_ns as f64 * n) as i64,
        busbw_gbs: class.busbw_gbs,
        is_lower_bound: class.is_lower_bound,
    }
}

/// Kernels of one name in the paired steps of a rank: time by step, and their number.
#[derive(Default)]
struct Kernels {
    by_step: BTreeMap<u32, i64>,
    n: usize,
}

/// Kernels of each name and kind.
fn named<'v>(
    analysis: &'v Analysis<'_>,
    view: usize,
    places: &BTreeSet<u32>,
) -> BTreeMap<(&'v str, WorkKind), Kernels> {
    let mut all: BTreeMap<(u32, WorkKind), Kernels> = BTreeMap::new();
    let (Some(view), Some(steps)) = (analysis.views.get(view), analysis.steps.get(view)) else {
        return BTreeMap::new();
    };
    for (work, step) in view.work().iter().zip(&steps.of_work).filter(|(_, step)| places.contains(step)) {
        let found = all.entry((work.name, work.kind)).or_default();
        *found.by_step.entry(*step).or_default() += work.end_ns - work.start_ns;
        found.n += 1;
    }
    let mut named: BTreeMap<(&str, WorkKind), Kernels> = BTreeMap::new();
    for ((name, kind), found) in all {
        // Two numbers may have one name.
        let sum = named.entry((view.timeline.name(name), kind)).or_default();
        for (step, ns) in found.by_step {
            *sum.by_step.entry(step).or_default() += ns;
        }
        sum.n += found.n;
    }
    named
}

fn kernels(
    there: &Analysis<'_>,
    here: &Analysis<'_>,
    both: &[(u32, usize, usize)],
    step_pairs: &[(bool, Vec<(u32, u32)>)],
) -> Vec<KernelChange> {
    let mut all: BTreeMap<(String, WorkKind), Vec<KernelChange>> = BTreeMap::new();
    for ((rank, a, b), (_, pairs)) in both.iter().zip(step_pairs).filter(|(_, (_, pairs))| !pairs.is_empty())
    {
        let before = named(there, *a, &pairs.iter().map(|pair| pair.0).collect());
        let after = named(here, *b, &pairs.iter().map(|pair| pair.1).collect());
        let nothing = Kernels::default();
        let keys: BTreeSet<(&str, WorkKind)> = before.keys().chain(after.keys()).copied().collect();
        for key in keys {
            // What communication takes on one rank is mostly waiting: it is compared by its cost.
            if key.1 == WorkKind::Comm {
                continue;
            }
            let (old, new) = (before.get(&key).unwrap_or(&nothing), after.get(&key).unwrap_or(&nothing));
            let time = |of: &Kernels, step: &u32| of.by_step.get(step).copied().unwrap_or(0);
            let values: Vec<(i64, i64)> = pairs.iter().map(|(a, b)| (time(old, a), time(new, b))).collect();
            let n = pairs.len() as f64;
            let mean = |of: &Kernels| of.by_step.values().sum::<i64>() / (of.n as i64).max(1);
            all.entry((key.0.to_owned(), key.1)).or_default().push(KernelChange {
                name: key.0.to_owned(),
                kind: key.1,
                rank: *rank,
                n_ranks: 1,
                n: (old.n as f64 / n, new.n as f64 / n),
                each_ns: (mean(old), mean(new)),
                change: StepChange::of(&values),
            });
        }
    }
    let most = |list: Vec<KernelChange>| -> Option<KernelChange> {
        let changes: Vec<i64> = list.iter().map(|one| one.change.ns()).collect();
        let mut most =
            list.into_iter().max_by_key(|one| (one.change.ns().abs(), std::cmp::Reverse(one.rank)))?;
        let ns = most.change.ns();
        most.n_ranks = changes
            .iter()
            .filter(|other| other.signum() == ns.signum() && other.abs() * 2 >= ns.abs())
            .count();
        (ns != 0).then_some(most)
    };
    let mut list: Vec<KernelChange> = all.into_values().filter_map(most).collect();
    list.sort_by(|a, b| b.change.ns().abs().cmp(&a.change.ns().abs()).then_with(|| a.name.cmp(&b.name)));
    list
}
