//! Windows that begin and end anywhere in a step, as a recording of a given time does: which steps are whole, and, where the
//! GPU is so far behind its host that hardly any step has both its launches and its work in the window, steps by the GPU.

use std::collections::BTreeMap;

use ringleader_model::{RuntimeCall, SpanKind, WorkKind};

use super::{OPTIMIZER, Step, StepSource, Steps};
use crate::view::{NONE, RankTimeline};

/// A step at the edge of the window with fewer launches than this share of the others', percent, is cut.
const WHOLE_PCT: usize = 90;
/// Launches behind the last work that the recorder kept: so many, and so large a share of a step, are no accident.
const LEAST_LOST: usize = 8;
const LOST_PCT: usize = 5;
/// Share of the work, percent, whose launches came before the recording, from which the GPU is far behind.
const BEHIND_PCT: usize = 10;
/// A kernel is the optimizer's if this share of its launches are, percent.
const OWN_PCT: usize = 95;
/// Work of one run of the optimizer is closer together than this share of the longest pause, percent.
const PAUSE_PCT: i64 = 20;

/// Start of each launch, and whether its work is in the recording, by start.
fn launches(view: &RankTimeline<'_>) -> Vec<(i64, bool)> {
    let mut has_work = vec![false; view.runtime.len()];
    for place in view.launch_of.iter().filter(|place| **place != NONE) {
        if let Some(slot) = has_work.get_mut(*place as usize) {
            *slot = true;
        }
    }
    (0..)
        .zip(has_work)
        .filter_map(|(place, has_work)| {
            let call = view.call(place)?;
            (call.kind == SpanKind::Runtime(RuntimeCall::Launch)).then_some((call.start_ns, has_work))
        })
        .collect()
}

/// The part of these steps on the host that is wholly recorded: from the first to before the last, by place. Only steps at
/// the edges can be cut. `is_open` says that nothing marks where the recording began and ended.
pub(crate) fn whole(view: &RankTimeline<'_>, starts: &[i64], is_open: bool) -> (usize, usize) {
    let n = starts.len();
    let launches = launches(view);
    let mut counts = vec![0_usize; n];
    let step_of = |start: i64| starts.partition_point(|from| *from <= start).checked_sub(1);
    for (start, _) in &launches {
        if let Some(slot) = step_of(*start).and_then(|at| counts.get_mut(at)) {
            *slot += 1;
        }
    }
    let (mut from, mut to) = (0, n);
    // The GPU was still at earlier work when the recording ended.
    let lost = launches.iter().rev().take_while(|(_, has_work)| !has_work);
    let lost: Vec<i64> = lost.map(|(start, _)| *start).collect();
    let usual = counts.iter().max().copied().unwrap_or(0);
    if lost.len() >= LEAST_LOST && lost.len() * 100 > usual * LOST_PCT {
        to = lost.last().and_then(|start| step_of(*start)).unwrap_or(n);
    }
    if is_open && n >= 2 {
        let is_cut = |at: usize| counts.get(at).is_some_and(|count| count * 100 < usual * WHOLE_PCT);
        from = usize::from(is_cut(0));
        to = to.min(if is_cut(n - 1) { n - 1 } else { n });
    }
    (from.min(to), to)
}

/// Whether so much of the work was launched before the recording that its steps on the host say little.
pub(crate) fn is_behind(view: &RankTimeline<'_>) -> bool {
    let unlaunched = view.launch_of.iter().filter(|place| **place == NONE).count();
    unlaunched * 100 > view.launch_of.len() * BEHIND_PCT
}

/// Steps by the GPU alone: from the end of the optimizer's kernels to their end in the next step. None if there are no two.
pub(crate) fn by_gpu(view: &RankTimeline<'_>) -> Option<Steps> {
    let is_own = own_names(view);
    let runs = runs(view, &is_own);
    let ends: Vec<i64> = runs.into_iter().map(|(_, end)| end).collect();
    let mut all = Vec::new();
    for pair in ends.windows(2) {
        if let [from, to] = pair {
            all.push(Step {
                number: all.len() as u64,
                host: (*from, *to),
                window: (*from, *to),
                bytes: None,
            });
        }
    }
    if all.is_empty() {
        return None;
    }
    // Work of the step is what begins in it.
    let of_work: Vec<u32> = view
        .work()
        .iter()
        .map(|work| {
            let place = ends.partition_point(|end| *end <= work.start_ns);
            place.checked_sub(1).filter(|at| *at < all.len()).map_or(u32::MAX, |at| at as u32)
        })
        .collect();
    // The host is ahead: a step begins there with its first launch.
    for (at, step) in (0_u32..).zip(&mut all) {
        let launches = of_work.iter().enumerate().filter(|(_, of)| **of == at);
        let first = launches.filter_map(|(work, _)| view.launch(work)).map(|call| call.start_ns).min();
        step.host.0 = first.unwrap_or(step.host.0).min(step.host.0);
    }
    for at in 1..all.len() {
        let start = all.get(at).map_or(0, |step| step.host.0);
        if let Some(before) = all.get_mut(at - 1) {
            before.host.1 = start.max(before.host.0);
        }
    }
    let usual = super::alike(&all, (0..all.len() as u32).collect());
    Some(Steps { found: StepSource::Optimizer, all, of_work, usual, is_cut: false })
}

/// Which names are of kernels that only the optimizer launches; if none of its launches is recorded, those that say so.
fn own_names(view: &RankTimeline<'_>) -> Vec<bool> {
    let timeline = view.timeline;
    let mut spans: Vec<(i64, i64)> = timeline
        .host_spans
        .iter()
        .filter(|span| {
            span.kind == SpanKind::Annotation && timeline.name(span.name).starts_with("Optimizer.step")
        })
        .map(|span| (span.start_ns, span.end_ns))
        .collect();
    spans.sort_unstable();
    let is_within = |start: i64| {
        let at = spans.partition_point(|span| span.0 <= start);
        at.checked_sub(1).and_then(|at| spans.get(at)).is_some_and(|span| start < span.1)
    };
    let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (at, work) in view.work().iter().enumerate().filter(|(_, work)| work.kind == WorkKind::Compute) {
        if let Some(call) = view.launch(at) {
            let (n, n_within) = counts.entry(work.name).or_default();
            *n += 1;
            *n_within += usize::from(is_within(call.start_ns));
        }
    }
    let by_launch: Vec<bool> = (0..timeline.names.len() as u32)
        .map(|name| counts.get(&name).is_some_and(|(n, within)| *within * 100 >= n * OWN_PCT))
        .collect();
    if by_launch.iter().any(|is| *is) {
        return by_launch;
    }
    let says_so = |name: &str| OPTIMIZER.iter().any(|part| name.to_ascii_lowercase().contains(part));
    timeline.names.iter().map(|name| says_so(name)).collect()
}

/// Start and end of each run of the optimizer's kernels.
fn runs(view: &RankTimeline<'_>, is_own: &[bool]) -> Vec<(i64, i64)> {
    let own: Vec<(i64, i64)> = view
        .work()
        .iter()
        .filter(|work| work.kind == WorkKind::Compute && is_own.get(work.name as usize) == Some(&true))
        .map(|work| (work.start_ns, work.end_ns))
        .collect();
    let longest = own.windows(2).map(pause).max().unwrap_or(0);
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for (start, end) in own {
        match runs.last_mut() {
            Some(run) if (start - run.1) * 100 <= longest * PAUSE_PCT => run.1 = run.1.max(end),
            _ => runs.push((start, end)),
        }
    }
    runs
}

fn pause(pair: &[(i64, i64)]) -> i64 {
    match pair {
        [before, next] => next.0 - before.1,
        _ => 0,
    }
}
