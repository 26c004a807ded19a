//! Steps: found by annotations, by the optimizer, by the forward pass, or by what repeats.

mod cut;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ringleader_model::{RuntimeCall, SpanKind, WorkKind};

use crate::view::RankTimeline;

/// Source of the steps of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSource {
    /// The profiler's own annotation.
    Annotated,
    /// Calls of the optimizer.
    Optimizer,
    /// Calls of the forward pass.
    Forward,
    /// The same kernels repeatedly.
    Repetition,
    /// Not at all: the whole timeline is one.
    Whole,
}

/// One step of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number: as annotated, else counted from 0.
    pub number: u64,
    /// Start and end on the host, ns.
    pub host: (i64, i64),
    /// From the end of the GPU's work of the step before to that of this one, ns. Steps follow one another without a gap.
    pub window: (i64, i64),
    /// Bytes of its annotation in the file.
    pub bytes: Option<(u64, u64)>,
}

impl Step {
    /// Length of the step, ns.
    pub fn length_ns(&self) -> i64 {
        self.window.1 - self.window.0
    }
}

/// The steps of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Source of the steps.
    pub found: StepSource,
    /// All steps of the rank in order of time.
    pub all: Vec<Step>,
    /// Step of each work, as an index into `all`; `NONE` for work before the first.
    pub of_work: Vec<u32>,
    /// Indices of the typical steps of the job: warm-up and outliers are left out.
    pub usual: Vec<u32>,
    /// The only step with work is one that the recorder did not finish.
    pub is_cut: bool,
}

impl Steps {
    /// Whether a whole step was found: else the whole recording counts as one, with the start of the program in it.
    pub fn has_whole(&self) -> bool {
        self.found != StepSource::Whole && !self.is_cut
    }
}

/// Usual steps that all ranks have, in order: for each, its place in each rank. By number where all are annotated; else those
/// that end at the same time on the common clock (`shift_ns` is added to each rank's times).
pub fn shared(steps: &[Steps], shift_ns: &[i64]) -> Vec<Vec<u32>> {
    let number = |of: &Steps, at: &u32| of.all.get(*at as usize).map(|step| step.number);
    let Some((first, others)) = steps.split_first() else { return Vec::new() };
    if steps.iter().all(|of| of.found == StepSource::Annotated) {
        let by_number = pairs(first, others, |_, of, at| {
            let wanted = number(first, at)?;
            of.usual.iter().copied().find(|at| number(of, at) == Some(wanted))
        });
        if !by_number.is_empty() {
            return by_number;
        }
    }
    let shift = |rank: usize| shift_ns.get(rank).copied().unwrap_or(0);
    let step = |of: &'_ Steps, at: u32| of.all.get(at as usize).map(|step| (step.window.1, step.length_ns()));
    pairs(first, others, |rank, of, at| {
        let (end, length) = step(first, *at)?;
        let distance = |at: &u32| {
            step(of, *at).map_or(i64::MAX, |(other, _)| (other + shift(rank) - end - shift(0)).abs())
        };
        of.usual.iter().copied().min_by_key(distance).filter(|at| distance(at) * 2 < length)
    })
}

/// For each usual step of the first rank that all others have: its place in each rank. `same` finds it in another one.
fn pairs(
    first: &Steps,
    others: &[Steps],
    same: impl Fn(usize, &Steps, &u32) -> Option<u32>,
) -> Vec<Vec<u32>> {
    let of_step = |at: &u32| {
        let rest = others.iter().enumerate().map(|(rank, of)| same(rank + 1, of, at));
        std::iter::once(Some(*at)).chain(rest).collect::<Option<Vec<u32>>>()
    };
    first.usual.iter().filter_map(of_step).collect()
}

/// Steps longer than this many medians are left out.
const OUTLIER: i64 = 3;

/// Finds the steps of a rank.
pub fn find(view: &RankTimeline<'_>) -> Steps {
    let (found, marks) = boundaries(view);
    let mut of_work = Vec::with_capacity(view.work().len());
    // Streams whose launches the recording has not reached: their work was launched before it began.
    let mut unreached: BTreeSet<u32> = (0..view.work().len())
        .filter(|at| view.launch(*at).is_some())
        .filter_map(|at| stream(view, at))
        .collect();
    for (at, work) in view.work().iter().enumerate() {
        let launch = view.launch(at);
        if launch.is_some() {
            unreached.remove(&work.stream);
        } else if unreached.contains(&work.stream) {
            of_work.push(u32::MAX);
            continue;
        }
        let begun = launch.map_or(work.start_ns, |call| call.start_ns);
        let place = marks.partition_point(|mark| mark.start_ns <= begun);
        of_work.push(place.checked_sub(1).map_or(u32::MAX, |place| place as u32));
    }
    // What follows the last optimizer is a step that the recording does not finish.
    if found == StepSource::Optimizer {
        let end = marks.last().map_or(i64::MAX, |mark| mark.end_ns);
        for (at, step) in of_work.iter_mut().enumerate() {
            if view.launch(at).is_some_and(|call| call.start_ns >= end) {
                *step = u32::MAX;
            }
        }
    }
    let n = marks.len();
    let mut ends = vec![i64::MIN; n];
    let mut before = i64::MIN;
    let is_behind_all = |at: usize| {
        let last = marks.last().map_or(i64::MAX, |mark| mark.start_ns);
        view.launch(at).is_some_and(|call| call.start_ns >= last)
    };
    for (at, (work, step)) in view.work().iter().zip(&of_work).enumerate() {
        match ends.get_mut(*step as usize) {
            Some(end) => *end = (*end).max(work.end_ns),
            None if is_behind_all(at) => {}
            None => before = before.max(work.end_ns),
        }
    }
    let mut all = Vec::with_capacity(n);
    let mut from = marks.first().map_or(0, |mark| mark.start_ns).max(before);
    for (at, mark) in marks.iter().enumerate() {
        let end = ends.get(at).copied().unwrap_or(i64::MIN);
        let to = if end == i64::MIN { mark.end_ns } else { end }.max(from);
        let bytes = mark.bytes;
        all.push(Step { number: mark.number, host: (mark.start_ns, mark.end_ns), window: (from, to), bytes });
        from = to;
    }
    // Where a timeline is cut, a part of the last step with work is missing, and all work of those behind it.
    let last = ends.iter().rposition(|end| *end != i64::MIN).unwrap_or(0);
    let starts: Vec<i64> = marks.iter().map(|mark| mark.start_ns).collect();
    let is_open = matches!(found, StepSource::Optimizer | StepSource::Forward | StepSource::Repetition);
    let (from, to) = if found == StepSource::Whole { (0, n) } else { cut::whole(view, &starts, is_open) };
    let to = if view.timeline.is_damaged { last.max(1).min(to) } else { to };
    let is_cut = view.timeline.is_damaged && last == 0 || from >= to && n > 0;
    let usual = usual(&all, if from < to { from..to } else { 0..n });
    if found == StepSource::Optimizer && to.saturating_sub(from) < FEW && cut::is_behind(view) {
        let by_gpu = cut::by_gpu(view);
        if let Some(by_gpu) = by_gpu.filter(|by_gpu| by_gpu.all.len() + from + 1 > to) {
            return by_gpu;
        }
    }
    Steps { found, all, of_work, usual, is_cut }
}

/// Fewer whole steps than this show little.
const FEW: usize = 3;

fn stream(view: &RankTimeline<'_>, at: usize) -> Option<u32> {
    view.work().get(at).map(|work| work.stream)
}

/// Typical steps of the job, of those that are whole: the first one warms up, and some are far longer than the others.
fn usual(all: &[Step], whole: Range<usize>) -> Vec<u32> {
    let length = |at: &u32| all.get(*at as usize).map_or(0, Step::length_ns);
    let begins = whole.start;
    let places: Vec<u32> = (whole.start as u32..whole.end as u32).collect();
    // Steps in which the GPU did nothing were not recorded.
    let worked: Vec<u32> = places.iter().copied().filter(|at| length(at) > 0).collect();
    let places = if worked.is_empty() { places } else { worked };
    // In a window that begins within a step the first whole one is like any other.
    let is_warm = begins > 0 || places.len() < 3;
    alike(all, if is_warm { places } else { places.into_iter().skip(1).collect() })
}

/// Those of these steps that are not far longer than the others. Long ones that come again belong to the job: a new epoch,
/// or a checkpoint, every few steps.
pub(crate) fn alike(all: &[Step], places: Vec<u32>) -> Vec<u32> {
    let length = |at: &u32| all.get(*at as usize).map_or(0, Step::length_ns);
    let Some(median) = ringleader_model::median::lower(places.iter().map(length)) else { return places };
    let is_usual = |at: &u32| length(at) <= median.saturating_mul(OUTLIER);
    let kept: Vec<u32> = places.iter().copied().filter(is_usual).collect();
    let n_long = places.len() - kept.len();
    let come_again = n_long >= 2 && n_long * RARE > places.len();
    if kept.is_empty() || come_again { places } else { kept }
}

/// Long steps are rare up to one in this many.
const RARE: usize = 5;

/// Start of a step on the host.
struct Mark {
    number: u64,
    start_ns: i64,
    end_ns: i64,
    bytes: Option<(u64, u64)>,
}

fn boundaries(view: &RankTimeline<'_>) -> (StepSource, Vec<Mark>) {
    let timeline = view.timeline;
    if !timeline.steps.is_empty() {
        let mut marks: Vec<Mark> = Vec::new();
        for step in &timeline.steps {
            // One process may annotate a step twice (several profilers, nested ranges).
            if marks.last().is_none_or(|last| step.start_ns >= last.end_ns) {
                marks.push(Mark {
                    number: step.number,
                    start_ns: step.start_ns,
                    end_ns: step.end_ns,
                    bytes: Some(step.bytes),
                });
            }
        }
        return (StepSource::Annotated, marks);
    }
    let Some((begin, end)) = view.span() else { return (StepSource::Whole, Vec::new()) };
    // Of a program with several optimizers those of the name that is called most often; of equals the one that is called last
    // in a step.
    let spans_of = |is: &dyn Fn(&str) -> bool| -> Vec<(i64, i64)> {
        let wanted: Vec<bool> = timeline.names.iter().map(|name| is(name)).collect();
        let mut by_name: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        let annotations = timeline.host_spans.iter().filter(|s| {
            matches!(s.kind, SpanKind::Annotation | SpanKind::Operator)
                && wanted.get(s.name as usize).copied().unwrap_or(false)
        });
        for span in annotations {
            let spans = by_name.entry(span.name).or_default();
            if spans.last().is_none_or(|last| span.start_ns >= last.1) {
                spans.push((span.start_ns, span.end_ns));
            }
        }
        by_name
            .into_values()
            .map(together)
            .max_by_key(|spans| (spans.len(), spans.first().copied()))
            .unwrap_or_default()
    };
    let steps = in_backward(view, spans_of(&|name| name.starts_with("Optimizer.step")));
    if steps.len() >= 2 {
        // A step ends with its optimizer.
        let starts = std::iter::once(begin).chain(steps.iter().map(|s| s.1));
        return (
            StepSource::Optimizer,
            marks(starts.take(steps.len()).collect(), steps.last().map_or(end, |s| s.1)),
        );
    }
    let forward = spans_of(&|name| {
        name.contains("DistributedDataParallel.forward")
            || name.contains("FullyShardedDataParallel.forward")
            || name == "FSDP::root_pre_forward"
    });
    if forward.len() >= 2 {
        return (StepSource::Forward, marks(forward.iter().map(|s| s.0).collect(), end));
    }
    match repetition(view) {
        Some(starts) => (StepSource::Repetition, marks(starts, end)),
        None => (StepSource::Whole, marks(vec![begin], end)),
    }
}

/// Calls that follow one another at once are one: several optimizers of one kind update parts of the weights.
fn together(spans: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    let pauses = spans.windows(2).filter_map(|pair| match pair {
        [before, next] => Some(next.0 - before.1),
        _ => None,
    });
    let mut pauses: Vec<i64> = pauses.collect();
    pauses.sort_unstable();
    // Up to eight calls in a step: then one pause in eight is as long as the rest of the step.
    let long = pauses.get(pauses.len().saturating_sub(1) * 7 / 8).copied().unwrap_or(0);
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (start, end) in spans {
        match joined.last_mut() {
            Some(last) if (start - last.1) * 100 < long * AT_ONCE_PCT => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Optimizers that the backward pass calls, one for each weight, are one for each step: between two of them little is
/// launched, and much between the last of a step and the first of the next one. Long pauses in which nothing more is
/// launched than in others (a checkpoint every few steps) separate nothing.
fn in_backward(view: &RankTimeline<'_>, spans: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    if spans.len() < 2 * MANY_CALLS {
        return spans;
    }
    let is_launch = |s: &&ringleader_model::HostSpan| s.kind == SpanKind::Runtime(RuntimeCall::Launch);
    let launches: Vec<i64> =
        view.timeline.host_spans.iter().filter(is_launch).map(|span| span.start_ns).collect();
    let n_until = |at: i64| launches.partition_point(|start| *start < at);
    let between: Vec<usize> = spans
        .windows(2)
        .map(|pair| match pair {
            [before, next] => n_until(next.0) - n_until(before.1).min(n_until(next.0)),
            _ => 0,
        })
        .collect();
    let mut sorted = between.clone();
    sorted.sort_unstable();
    // Where the counts jump most, in the part that can be one of `MANY_CALLS`.
    let from = sorted.len() - sorted.len() / MANY_CALLS;
    let jump = (from.max(1)..sorted.len().saturating_sub(1)).max_by(|a, b| {
        let ratio = |at: usize| match (sorted.get(at.wrapping_sub(1)), sorted.get(at)) {
            (Some(below), Some(above)) => *above as f64 / (*below).max(1) as f64,
            _ => 0.0,
        };
        ratio(*a).total_cmp(&ratio(*b)).then(b.cmp(a))
    });
    let least = jump.and_then(|at| sorted.get(at.checked_sub(1)?).zip(sorted.get(at)));
    let Some((_, least)) = least.filter(|(below, above)| **above >= MUCH * (**below).max(1)) else {
        return spans;
    };
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for ((start, end), n) in spans.into_iter().zip(std::iter::once(usize::MAX).chain(between)) {
        match joined.last_mut() {
            Some(last) if n < *least => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// So many calls of the optimizer in a step are those of single weights.
const MANY_CALLS: usize = 8;
/// A forward pass launches so many times as much as lies between two weights' optimizers.
const MUCH: usize = 3;

/// A pause of less than this share of the long ones, percent, is none.
const AT_ONCE_PCT: i64 = 3;

fn marks(starts: Vec<i64>, end: i64) -> Vec<Mark> {
    let ends: Vec<i64> = starts.iter().skip(1).copied().chain([end]).collect();
    starts
        .into_iter()
        .zip(ends)
        .enumerate()
        .map(|(number, (start_ns, end_ns))| Mark { number: number as u64, start_ns, end_ns, bytes: None })
        .collect()
}

/// Kernels that are looked at for what repeats.
const MAX_SEQUENCE: usize = 200_000;
/// Share of kernels that must be the same one period later.
const SAME: f64 = 0.92;
/// A period is a step if no other repeats better by this share: the steps' own repeats nearly always.
const NEARLY: f64 = 0.005;
/// Distances that are tried: the most frequent, and the longest.
const MAX_CANDIDATES: usize = 24;
/// Parts of names of kernels that update parameters, in lower case.
pub(crate) const OPTIMIZER: [&str; 4] = ["multi_tensor_apply", "adam", "sgd", "optimizer"];

/// Starts of what repeats, where at least three rounds of the same kernels follow one another.
fn repetition(view: &RankTimeline<'_>) -> Option<Vec<i64>> {
    let kind = if view.computes() { WorkKind::Compute } else { WorkKind::Comm };
    let kernels: Vec<(usize, u32)> = view
        .work()
        .iter()
        .enumerate()
        .filter(|(_, w)| w.stream == view.main_stream && w.kind == kind)
        .map(|(at, w)| (at, w.name))
        .take(MAX_SEQUENCE)
        .collect();
    let names: Vec<u32> = kernels.iter().map(|(_, name)| *name).collect();
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, name) in names.iter().enumerate() {
        places.entry(*name).or_default().push(at);
    }
    // The distances at which rare kernels come again are the candidates.
    let mut candidates: BTreeMap<usize, usize> = BTreeMap::new();
    for list in places.values().filter(|list| (3..=64).contains(&list.len())) {
        for pair in list.windows(2) {
            if let [a, b] = pair {
                *candidates.entry(b - a).or_default() += 1;
            }
        }
    }
    let mut frequent: Vec<(usize, usize)> = candidates.into_iter().filter(|(_, n)| *n >= 2).collect();
    frequent.sort_by_key(|(period, n)| (std::cmp::Reverse(*n), *period));
    // Layers repeat within a step: the longest distances are of kernels that run once a step.
    let mut longest = frequent.clone();
    longest.sort_unstable_by_key(|(period, _)| std::cmp::Reverse(*period));
    frequent.truncate(MAX_CANDIDATES);
    frequent.extend(longest.into_iter().take(MAX_CANDIDATES));
    let periods: BTreeSet<usize> = frequent.into_iter().map(|(period, _)| period).collect();
    let tail = names.len() / 3;
    let alike: Vec<(usize, f64)> = periods
        .into_iter()
        .filter_map(|period| {
            // The last two thirds: the first may be warm-up.
            let pairs = names.iter().skip(tail).zip(names.iter().skip(tail + period));
            let (n, same) =
                pairs.fold((0_usize, 0_usize), |(n, same), (a, b)| (n + 1, same + usize::from(a == b)));
            (n >= period && period > 1).then(|| (period, same as f64 / n as f64))
        })
        .collect();
    let best = alike.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    let is_step = |share: f64| share >= SAME && share >= best - NEARLY;
    let period = alike.iter().find(|(_, share)| is_step(*share)).map(|(period, _)| *period)?;
    // A step begins behind the optimizer's kernels, else where the GPU waited longest within a period.
    let gap = |at: usize| -> i64 {
        let (Some(before), Some(now)) = (at.checked_sub(1).and_then(|b| kernels.get(b)), kernels.get(at))
        else {
            return 0;
        };
        let start = |place: usize| view.work().get(place).map_or((0, 0), |w| (w.start_ns, w.end_ns));
        start(now.0).0 - start(before.0).1
    };
    let is_optimizer = |at: usize| {
        let name = names.get(at).map_or("", |name| view.timeline.name(*name)).to_ascii_lowercase();
        OPTIMIZER.iter().any(|part| name.contains(part))
    };
    let last = names.len();
    let first_of_last = last.checked_sub(period)?;
    let behind = (first_of_last.max(1)..last).filter(|at| is_optimizer(at - 1) && !is_optimizer(*at));
    let phase =
        behind.max_by_key(|at| gap(*at)).or_else(|| (first_of_last..last).max_by_key(|at| gap(*at)))?;
    let mut starts = Vec::new();
    let mut at = phase % period;
    while let Some((place, _)) = kernels.get(at) {
        let work = view.work().get(*place)?;
        starts.push(view.launch(*place).map_or(work.start_ns, |call| call.start_ns));
        at += period;
    }
    starts.sort_unstable();
    (starts.len() >= 3).then_some(starts)
}
