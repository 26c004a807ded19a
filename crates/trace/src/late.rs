//! Which rank is late at collectives, how much it costs the others, and why.

use std::collections::BTreeMap;

use ringleader_model::{OpKind, WorkKind, median};

use crate::bandwidth::Alone;
use crate::intervals::Intervals;
use crate::join::Join;
use crate::split::{Idle, Split};
use crate::steps::Steps;
use crate::view::RankTimeline;

/// Why a rank comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The same kernels take longer on its GPU.
    SlowerGpu,
    /// It computes larger pieces than the others.
    LargerWork,
    /// It computes more pieces than the others.
    MoreWork,
    /// Its host launches later.
    Host,
    /// Its host waits for input data.
    Data,
    /// Its timeline shows no difference from the others.
    Unknown,
}

impl Why {
    /// The reason as a phrase for reports.
    pub fn words(self) -> &'static str {
        match self {
            Self::SlowerGpu => "the same kernels take longer on its GPU",
            Self::LargerWork => "its kernels have larger shapes",
            Self::MoreWork => "it runs kernels that the others do not run",
            Self::Host => "its host launches later",
            Self::Data => "it waits for input",
            Self::Unknown => "its timeline does not show why",
        }
    }
}

/// Waiting of the ranks for one another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lateness {
    /// For each step, for each view: time in which it waited within collectives, and nothing computed, ns.
    pub waits: Vec<Vec<i64>>,
    /// For each step: the view that waited least, and how much less than the next one, ns.
    pub latest: Vec<Option<(u32, i64)>>,
    /// Views that share each step.
    pub steps: Vec<Vec<u32>>,
    /// Mean wait of a rank in a step, ns.
    pub mean_wait_ns: i64,
    /// The same of sends and receives alone.
    pub p2p_wait_ns: i64,
    /// The rank that is late in most steps.
    pub straggler: Option<Straggler>,
    /// Mean over steps of what the rank that computes longest computes more than the mean of all, ns.
    pub imbalance_ns: i64,
}

/// A rank that is persistently late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Straggler {
    /// Index of the rank's view.
    pub view: u32,
    /// Steps in which it is the last.
    pub n_steps: usize,
    /// Median time by which it is later than the next one, ns.
    pub lead_ns: i64,
    /// Reason for the lateness.
    pub why: Why,
}

/// Share of the steps in which a straggler is the last one.
const MOST_PCT: usize = 70;
/// The same where no other rank is ever late: two of three.
const ALONE_PCT: usize = 60;
/// Lead, in percent of a step, from which it counts.
const LEAD_PCT: i64 = 2;

/// Compares the ranks, step by step.
pub fn lateness(views: &[RankTimeline<'_>], steps: &[Steps], splits: &[Vec<Split>], join: &Join) -> Lateness {
    let mut late = Lateness::default();
    if !join.is_aligned() || views.len() < 2 {
        return late;
    }
    let alone = Alone::new(views, join);
    let waiting: Vec<(Intervals, Intervals)> =
        views.iter().enumerate().map(|(place, view)| waiting(views, place, view, join, &alone)).collect();
    let mut p2p = 0;
    for places in crate::steps::shared(steps, &join.shift_ns) {
        let mut waits = Vec::new();
        for ((place, step), (all, pairs)) in places.iter().zip(steps).zip(&waiting) {
            let (from, to) = step.all.get(*place as usize).map_or((0, 0), |s| s.window);
            waits.push(all.length_within(from, to));
            p2p += pairs.length_within(from, to);
        }
        let mut order: Vec<(i64, u32)> = waits.iter().copied().zip(0..).collect();
        order.sort_unstable();
        late.latest.push(match order.as_slice() {
            [(least, who), (next, _), ..] => Some((*who, next - least)),
            _ => None,
        });
        late.waits.push(waits);
        late.steps.push(places);
    }
    let n_waits = (late.waits.iter().map(Vec::len).sum::<usize>() as i64).max(1);
    late.mean_wait_ns = late.waits.iter().flatten().sum::<i64>() / n_waits;
    late.p2p_wait_ns = p2p / n_waits;
    late.imbalance_ns = imbalance(splits, &late);
    // Tokens that go to experts, in unequal numbers.
    let exchanges = join.ops.iter().filter(|op| op.kind == Some(OpKind::AllToAll));
    let (n, n_uneven) = exchanges.fold((0, 0), |(n, uneven), op| (n + 1, uneven + usize::from(op.is_uneven)));
    late.straggler = straggler(views, steps, splits, &late, n_uneven * 2 > n);
    late
}

/// Excess computation of the slowest rank over the mean: mean over the steps.
fn imbalance(splits: &[Vec<Split>], late: &Lateness) -> i64 {
    let of_step = |places: &Vec<u32>| -> i64 {
        let parts = places.iter().zip(splits).filter_map(|(at, splits)| splits.get(*at as usize));
        let compute: Vec<i64> = parts.map(|split| split.compute_ns).collect();
        let most = compute.iter().max().copied().unwrap_or(0);
        most - compute.iter().sum::<i64>() / (compute.len() as i64).max(1)
    };
    late.steps.iter().map(of_step).sum::<i64>() / (late.steps.len() as i64).max(1)
}

/// Times at which a rank waits in a collective for one that has not come, and computes nothing: in all, and in sends and
/// receives alone.
fn waiting(
    views: &[RankTimeline<'_>],
    place: usize,
    view: &RankTimeline<'_>,
    join: &Join,
    alone: &Alone,
) -> (Intervals, Intervals) {
    let compute = view.busy(|kind| kind == WorkKind::Compute);
    let shift = join.shift_ns.get(place).copied().unwrap_or(0);
    let mut all = Vec::new();
    let mut pairs = Vec::new();
    for (at, work) in view.work().iter().enumerate().filter(|(_, w)| w.kind == WorkKind::Comm) {
        let Some(op) = join.op_of(place, at) else {
            // The peer is unknown; time beyond the shortest of its size is waiting for one of them.
            let cost = alone.cost_ns(place, view, at, join);
            if let Some(cost) = cost.filter(|_| crate::join::is_pair(view, at)) {
                let wait = (work.start_ns, (work.end_ns - cost).max(work.start_ns));
                all.push(wait);
                pairs.push(wait);
            }
            continue;
        };
        let Some((last_start, _)) = join.extent(views, op) else { continue };
        let wait = (work.start_ns, (last_start - shift).min(work.end_ns));
        all.push(wait);
        if crate::join::is_pair(view, at) {
            pairs.push(wait);
        }
    }
    (Intervals::of(all).without(&compute), Intervals::of(pairs).without(&compute))
}

fn straggler(
    views: &[RankTimeline<'_>],
    steps: &[Steps],
    splits: &[Vec<Split>],
    late: &Lateness,
    is_uneven: bool,
) -> Option<Straggler> {
    let mut n_last: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    let mut n_steps = 0;
    for (latest, places) in late.latest.iter().zip(&late.steps) {
        let (who, lead) = (*latest)?;
        let step = steps.get(who as usize)?.all.get(*places.get(who as usize)? as usize)?;
        n_steps += 1;
        if lead * 100 > step.length_ns() * LEAD_PCT {
            n_last.entry(who).or_default().push(lead);
        }
    }
    let most_pct = if n_last.len() == 1 { ALONE_PCT } else { MOST_PCT };
    let (who, leads) =
        n_last.into_iter().max_by_key(|(who, leads)| (leads.len(), std::cmp::Reverse(*who)))?;
    if leads.len() * 100 < n_steps * most_pct {
        return None;
    }
    let lead_ns = median::lower(leads.iter().copied())?;
    let why = why(views, steps, splits, late, (who, lead_ns), is_uneven);
    Some(Straggler { view: who, n_steps: leads.len(), lead_ns, why })
}

/// Amounts that are larger on the late rank than on the others.
fn why(
    views: &[RankTimeline<'_>],
    steps: &[Steps],
    splits: &[Vec<Split>],
    late: &Lateness,
    (who, lead_ns): (u32, i64),
    is_uneven: bool,
) -> Why {
    let more = |part: &dyn Fn(&Split) -> i64| -> i64 {
        let of = |view: usize| -> i64 {
            let parts: Vec<i64> = late
                .steps
                .iter()
                .filter_map(|places| Some(part(splits.get(view)?.get(*places.get(view)? as usize)?)))
                .collect();
            median::lower(parts).unwrap_or(0)
        };
        let others = (0..views.len()).filter(|view| *view != who as usize).map(of);
        of(who as usize) - median::lower(others).unwrap_or(0)
    };
    let compute = more(&|s| s.compute_ns);
    let data = more(&|s| s.idle(Idle::Data));
    let host = more(&|s| s.all_idle_ns() + s.exposed_copy_ns) - data;
    let (most, _) = [compute, data, host].into_iter().zip(0..).max().unwrap_or((0, 0));
    if most * 3 < lead_ns || !views.iter().any(RankTimeline::computes) {
        return Why::Unknown;
    }
    if most == compute {
        shapes(views, steps, late, who, is_uneven)
    } else if most == data {
        Why::Data
    } else {
        Why::Host
    }
}

/// Whether the kernels of the late rank are more, larger, or slower than those of another.
fn shapes(views: &[RankTimeline<'_>], steps: &[Steps], late: &Lateness, who: u32, is_uneven: bool) -> Why {
    let other = (0..views.len() as u32).find(|view| *view != who).unwrap_or(0);
    if is_uneven {
        return Why::LargerWork;
    }
    let kernels = |place: u32| -> Vec<(usize, i64, u64)> {
        let (Some(view), Some(steps)) = (views.get(place as usize), steps.get(place as usize)) else {
            return Vec::new();
        };
        let wanted: Vec<u32> = late.steps.iter().filter_map(|s| s.get(place as usize).copied()).collect();
        let of_step = |at: usize| steps.of_work.get(at).is_some_and(|step| wanted.contains(step));
        view.work()
            .iter()
            .enumerate()
            .filter(|(at, w)| w.kind == WorkKind::Compute && of_step(*at))
            .map(|(_, w)| (view.timeline.name(w.name).len(), w.end_ns - w.start_ns, u64::from(w.n_blocks)))
            .collect()
    };
    let (mine, theirs) = (kernels(who), kernels(other));
    let blocks = |list: &[(usize, i64, u64)]| list.iter().map(|k| k.2).sum::<u64>();
    let (n_mine, n_theirs) = (mine.len(), theirs.len());
    if n_mine.abs_diff(n_theirs) * 200 > n_theirs {
        return Why::MoreWork;
    }
    if blocks(&mine).abs_diff(blocks(&theirs)) * 50 > blocks(&theirs) {
        Why::LargerWork
    } else {
        Why::SlowerGpu
    }
}
