//! The job replayed with one thing changed.

use std::collections::BTreeMap;

use ringleader_model::{OpKind, WorkKind, median};

use crate::Analysis;
use crate::bandwidth::Class;
use crate::replay::{self, Act, Host, Model, Played};
use crate::split::Split;
use crate::steps::Steps;
use crate::view::NONE;

/// Replays of one job.
pub(crate) struct Replays {
    models: Vec<Model>,
    n_ops: usize,
    /// Step length as recorded, ns.
    pub(crate) recorded_ns: i64,
    /// Without the recorder's cost.
    pub(crate) base_ns: i64,
}

/// Copies below this size carry a value, not data.
pub(crate) const VALUE_BYTES: u64 = 64 << 10;
/// Length of a call without its waiting, ns.
const CALL_NS: i64 = 2_000;

impl Replays {
    pub(crate) fn new(analysis: &Analysis<'_>) -> Self {
        let models: Option<Vec<Model>> = (0..analysis.views.len())
            .map(|at| Model::new(&analysis.views, at, analysis.steps.get(at)?, &analysis.join))
            .collect();
        let n_ops = analysis.join.ops.len();
        // Without calls of the host nothing can be replayed; what communication costs can still be said.
        let Some(mut models) = models else {
            return Self {
                models: Vec::new(),
                n_ops,
                recorded_ns: analysis.step_ns,
                base_ns: analysis.step_ns,
            };
        };
        let recorded_ns = replay::play(&models, n_ops).step_ns(&analysis.steps);
        for model in &mut models {
            for host in &mut model.hosts {
                host.busy_ns = (host.busy_ns - host.recorder_ns).max(host.busy_ns / 5);
            }
        }
        let base_ns = replay::play(&models, n_ops).step_ns(&analysis.steps);
        Self { models, n_ops, recorded_ns, base_ns }
    }

    /// Whether there is a replay that is as long as the recording, within a fourth.
    pub(crate) fn explain(&self, analysis: &Analysis<'_>) -> bool {
        !self.models.is_empty() && crate::replay::is_explained(analysis.step_ns, self.recorded_ns)
    }

    /// Length of a step after a change, ns.
    pub(crate) fn after(&self, analysis: &Analysis<'_>, change: impl Fn(usize, &mut Model)) -> i64 {
        if self.models.is_empty() {
            return self.base_ns;
        }
        let mut models = self.models.clone();
        for (at, model) in models.iter_mut().enumerate() {
            change(at, model);
        }
        let played: Played = replay::play(&models, self.n_ops);
        played.step_ns(&analysis.steps)
    }
}

/// No time is spent on loading input.
pub(crate) fn without_loading(model: &mut Model) {
    model.hosts.iter_mut().for_each(|host| host.data_ns = 0);
}

/// No time is spent outside of the framework.
pub(crate) fn without_outside(model: &mut Model) {
    model.hosts.iter_mut().for_each(|host| host.outside_ns = 0);
}

/// Bytes that the work copies which a call waits for, if it is a copy.
fn copied(analysis: &Analysis<'_>, rank: usize, host: &Host) -> Option<u64> {
    let work = analysis.views.get(rank)?.work().get(host.waits_for as usize)?;
    matches!(work.kind, WorkKind::Copy { .. }).then_some(work.size_bytes)
}

/// A call beside which memory is allocated or freed.
fn allocates(model: &Model, at: usize) -> bool {
    let near = at.saturating_sub(2)..(at + 4).min(model.hosts.len());
    model.hosts.get(near).is_some_and(|hosts| hosts.iter().any(|h| h.act == Act::Alloc))
}

/// Nothing waits for the GPU but for large copies and for the allocator.
pub(crate) fn without_syncs(analysis: &Analysis<'_>, rank: usize, model: &mut Model) {
    for at in 0..model.hosts.len() {
        let Some(host) = model.hosts.get(at) else { continue };
        let is_large_copy = copied(analysis, rank, host).is_some_and(|bytes| bytes > VALUE_BYTES);
        let goes = match host.act {
            Act::Sync => host.waits_for != NONE && !is_large_copy && !allocates(model, at),
            Act::BlockingCopy => !is_large_copy,
            Act::BlockingLaunch => true,
            Act::Plain | Act::Alloc => false,
        };
        if let Some(host) = model.hosts.get_mut(at).filter(|_| goes) {
            (host.waits_for, host.own_ns) = (NONE, host.own_ns.min(CALL_NS));
        }
    }
}

/// Memory of the GPU is neither allocated nor freed.
pub(crate) fn without_allocator(model: &mut Model) {
    for at in 0..model.hosts.len() {
        let goes = model.hosts.get(at).is_some_and(|host| match host.act {
            Act::Alloc => true,
            Act::Sync => allocates(model, at),
            _ => false,
        });
        if let Some(host) = model.hosts.get_mut(at).filter(|_| goes) {
            (host.waits_for, host.own_ns) = (NONE, host.own_ns.min(CALL_NS / 2));
        }
    }
}

/// Copies from and to the host are pinned, asynchronous and beside the computation.
pub(crate) fn without_copies(analysis: &Analysis<'_>, rank: usize, model: &mut Model) {
    for host in &mut model.hosts {
        let is_large_copy = copied(analysis, rank, host).is_some_and(|bytes| bytes > VALUE_BYTES);
        if matches!(host.act, Act::BlockingCopy | Act::Sync) && is_large_copy {
            (host.waits_for, host.own_ns) = (NONE, host.own_ns.min(CALL_NS));
        }
    }
    let work = analysis.views.get(rank).map_or(&[][..], |view| view.work());
    for (piece, work) in model.pieces.iter_mut().zip(work) {
        if matches!(work.kind, WorkKind::Copy { with_host: true, .. }) && work.size_bytes > VALUE_BYTES {
            piece.cost_ns = 0;
        }
    }
}

/// The host launches a recorded graph: nothing but the GPU's own time remains.
pub(crate) fn without_host(model: &mut Model) {
    for host in &mut model.hosts {
        host.busy_ns /= 10;
        if host.act == Act::Plain {
            host.own_ns /= 10;
        }
    }
}

/// Collectives below this size are gathered into buckets, bytes.
pub(crate) const SMALL_BYTES: u64 = 8 << 20;
/// PyTorch's usual bucket, bytes.
pub(crate) const BUCKET_BYTES: u64 = 25 << 20;

/// Whether calls of this kind and size can be gathered. Transfers between two ranks and exchanges of all cannot.
pub(crate) fn is_gatherable(kind: Option<OpKind>, size_bytes: u64) -> bool {
    (1..SMALL_BYTES).contains(&size_bytes)
        && matches!(kind, None | Some(OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter))
}

/// Small collectives are gathered into buckets: their bytes take the time that they take in large messages, and a call
/// is made for each bucket. `ns_per_byte` is that of large messages.
pub(crate) fn with_buckets(analysis: &Analysis<'_>, model: &mut Model, ns_per_byte: f64) {
    let (mut n_bytes, mut n_small, mut n_all): (u64, u64, u64) = (0, 0, 0);
    let on_path = crate::axes::on_path(&analysis.axes);
    for piece in model.pieces.iter_mut().filter(|piece| piece.kind == WorkKind::Comm) {
        n_all += 1;
        let op = (piece.op as usize).checked_sub(1).and_then(|at| analysis.join.ops.get(at));
        let Some(size) = op
            .filter(|op| is_gatherable(op.kind, op.size_bytes) && !on_path.contains(&op.group))
            .map(|op| op.size_bytes)
        else {
            continue;
        };
        piece.cost_ns = piece.cost_ns.min((size as f64 * ns_per_byte) as i64);
        n_bytes += size;
        n_small += 1;
    }
    // So many calls become one; the calls for large messages remain.
    let merged = (n_small * BUCKET_BYTES).checked_div(n_bytes).map_or(1, |n| n.clamp(1, 1_000)) as f64;
    let small = n_small as f64 / n_all.max(1) as f64;
    let left = 1.0 - small * (1.0 - 1.0 / merged);
    let mut kept = 0.0;
    for host in model.hosts.iter_mut().filter(|host| host.is_comm) {
        host.busy_ns = (host.busy_ns as f64 * left) as i64;
        host.own_ns = (host.own_ns as f64 * left) as i64;
        // A call that waits for the GPU (a barrier before it) goes with its waiting.
        if host.act == Act::Sync {
            kept += left;
            if kept < 1.0 {
                host.waits_for = NONE;
            } else {
                kept -= 1.0;
            }
        }
    }
}

/// Collectives reach the bandwidth expected of them: `shares` has what they reach now, by kind, bytes and ranks.
pub(crate) fn with_bandwidth(analysis: &Analysis<'_>, shares: &BTreeMap<Class, f64>, model: &mut Model) {
    for piece in &mut model.pieces {
        let op = (piece.op as usize).checked_sub(1).and_then(|at| analysis.join.ops.get(at));
        let share = op.and_then(|op| shares.get(&(op.kind, op.size_bytes, op.n_ranks)));
        if let Some(share) = share {
            piece.cost_ns = (piece.cost_ns as f64 * share) as i64;
        }
    }
}

/// Launches of the optimizer in a usual step, on the rank that has most.
pub(crate) fn n_updates(analysis: &Analysis<'_>, replays: &Replays) -> usize {
    let of = |(model, steps): (&Model, &Steps)| {
        let updates = |h: &&Host| h.is_optimizer && h.act == Act::Plain && steps.usual.contains(&h.step);
        model.hosts.iter().filter(updates).count() / steps.usual.len().max(1)
    };
    replays.models.iter().zip(&analysis.steps).map(of).max().unwrap_or(0)
}

/// The optimizer is launched as a few kernels.
pub(crate) fn with_fused_optimizer(model: &mut Model) {
    for host in model.hosts.iter_mut().filter(|host| host.is_optimizer) {
        host.busy_ns /= 10;
        if host.act == Act::Plain {
            host.own_ns /= 10;
        }
    }
}

/// A rank computes as much as the mean of all, step by step.
pub(crate) fn with_equal_work(analysis: &Analysis<'_>, rank: usize, model: &mut Model) {
    for places in &analysis.lateness.steps {
        let of = |(at, splits): (&u32, &Vec<Split>)| splits.get(*at as usize).map(|split| split.compute_ns);
        let compute: Vec<i64> = places.iter().zip(&analysis.splits).filter_map(of).collect();
        let (Some(mine), Some(step)) = (compute.get(rank), places.get(rank)) else { continue };
        let mean = compute.iter().sum::<i64>() / (compute.len() as i64).max(1);
        if *mine > 0 {
            for piece in model.pieces.iter_mut().filter(|p| p.step == *step && p.kind == WorkKind::Compute) {
                piece.cost_ns = (piece.cost_ns as f64 * mean as f64 / *mine as f64) as i64;
            }
        }
    }
}

/// Reductions of a step from here on, bytes, are those of gradients.
const GRADIENT_BYTES: u64 = 1 << 20;

/// Work that reduces gradients which a later one of the same step reduces again, for each rank; and how often. The sizes of a
/// step's reductions are then the same sequence repeatedly.
pub(crate) fn repeated(analysis: &Analysis<'_>) -> Option<(usize, Vec<Vec<u32>>)> {
    let on_path = crate::axes::on_path(&analysis.axes);
    let mut n_times = usize::MAX;
    let mut all = Vec::new();
    for (place, steps) in analysis.steps.iter().enumerate() {
        let mut of_rank = Vec::new();
        for step in &steps.usual {
            let mut sequences: BTreeMap<u32, Vec<(u32, OpKind, u64)>> = BTreeMap::new();
            for (at, _) in steps.of_work.iter().enumerate().filter(|(_, of)| *of == step) {
                let Some(op) = analysis.join.op_of(place, at).filter(|op| !on_path.contains(&op.group))
                else {
                    continue;
                };
                if let Some(kind @ (OpKind::AllReduce | OpKind::ReduceScatter)) = op.kind
                    && op.size_bytes >= GRADIENT_BYTES
                {
                    sequences.entry(op.group).or_default().push((at as u32, kind, op.size_bytes));
                }
            }
            let longest = sequences.into_values().max_by_key(Vec::len)?;
            let n = longest.len();
            let same = |a: usize, b: usize| match (longest.get(a), longest.get(b)) {
                (Some(a), Some(b)) => (a.1, a.2) == (b.1, b.2),
                _ => false,
            };
            // One size alone repeats in any case.
            let is_period = |p: &usize| {
                n % p == 0 && (*p..n).all(|at| same(at, at - p)) && (1..*p).any(|at| !same(at, 0))
            };
            let period = (2..=n / 2).find(is_period)?;
            n_times = n_times.min(n / period);
            of_rank.extend(longest.into_iter().take(n - period).map(|(at, ..)| at));
        }
        all.push(of_rank);
    }
    (2..usize::MAX).contains(&n_times).then_some((n_times, all))
}

/// These reductions are left out, with their calls.
pub(crate) fn without(pieces: &[u32], model: &mut Model) {
    for at in pieces {
        let Some(piece) = model.pieces.get_mut(*at as usize) else { continue };
        (piece.cost_ns, piece.op) = (0, 0);
        // All that the framework does for the call.
        let launch = piece.launch as usize;
        let until = launch.saturating_add(1).min(model.hosts.len());
        let (before, after) = model.hosts.split_at_mut(until);
        let calls = before.iter_mut().rev().take_while(|host| host.is_comm);
        let rest = after.iter_mut().take_while(|host| host.is_comm);
        for host in calls.chain(rest) {
            (host.busy_ns, host.own_ns) = (0, 0);
        }
    }
}

/// Waits for the GPU in a usual step, on the rank that has most: calls that [`without_syncs`] would take away.
pub(crate) fn n_syncs(analysis: &Analysis<'_>, replays: &Replays) -> usize {
    let of = |(rank, model): (usize, &Model)| {
        let usual = analysis.steps.get(rank).map_or(&[][..], |s| &s.usual);
        let is_value = |h: &Host| copied(analysis, rank, h).is_none_or(|bytes| bytes <= VALUE_BYTES);
        let waits = |h: &&Host| {
            usual.contains(&h.step)
                && match h.act {
                    Act::Sync => h.waits_for != NONE && is_value(h),
                    Act::BlockingCopy => is_value(h),
                    Act::BlockingLaunch => true,
                    Act::Plain | Act::Alloc => false,
                }
        };
        model.hosts.iter().filter(waits).count() / usual.len().max(1)
    };
    replays.models.iter().enumerate().map(of).max().unwrap_or(0)
}

/// Time of a rank's own host work in a step, ns: input, outside of the framework, the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "all are times, and units come last")]
pub(crate) struct HostWork {
    data_ns: i64,
    outside_ns: i64,
    busy_ns: i64,
}

impl HostWork {
    fn all_ns(&self) -> i64 {
        self.data_ns + self.outside_ns + self.busy_ns
    }
}

/// Whether the host of a rank does more than the others': two equal hosts differ by up to a third while they are recorded.
pub(crate) fn does_more(work: &[HostWork], rank: usize) -> bool {
    let others = work.iter().enumerate().filter(|(at, _)| *at != rank).map(|(_, work)| work.all_ns());
    let mine = work.get(rank).map_or(0, HostWork::all_ns);
    median::lower(others).is_some_and(|theirs| mine * 100 > theirs * MORE_PCT)
}

/// Work of a host that is more than another's, percent.
const MORE_PCT: i64 = 135;

/// The same of each rank, mean over its usual steps. Waiting for the GPU is no work.
pub(crate) fn host_work(analysis: &Analysis<'_>, replays: &Replays) -> Vec<HostWork> {
    let of = |(rank, model): (usize, &Model)| {
        let usual = analysis.steps.get(rank).map_or(&[][..], |s| &s.usual);
        let mut sum = HostWork::default();
        for host in model.hosts.iter().filter(|host| usual.contains(&host.step)) {
            sum.data_ns += host.data_ns;
            sum.outside_ns += host.outside_ns;
            sum.busy_ns += host.busy_ns + host.own_ns;
        }
        let n = (usual.len() as i64).max(1);
        HostWork { data_ns: sum.data_ns / n, outside_ns: sum.outside_ns / n, busy_ns: sum.busy_ns / n }
    };
    replays.models.iter().enumerate().map(of).collect()
}

/// One rank computes as fast as the median of the others, step by step, and its host does no more than theirs.
pub(crate) fn like_the_others(analysis: &Analysis<'_>, rank: usize, work: &[HostWork], model: &mut Model) {
    let compute = |view: usize, places: &[u32]| -> Option<i64> {
        Some(analysis.splits.get(view)?.get(*places.get(view)? as usize)?.compute_ns)
    };
    for places in &analysis.lateness.steps {
        let others = (0..analysis.views.len()).filter(|v| *v != rank).filter_map(|v| compute(v, places));
        let (Some(mine), Some(theirs), Some(step)) =
            (compute(rank, places), median::lower(others), places.get(rank))
        else {
            continue;
        };
        if mine > theirs && mine > 0 {
            for piece in model.pieces.iter_mut().filter(|p| p.step == *step && p.kind == WorkKind::Compute) {
                piece.cost_ns = (piece.cost_ns as f64 * theirs as f64 / mine as f64) as i64;
            }
        }
    }
    let share = |part: &dyn Fn(&HostWork) -> i64| -> f64 {
        let mine = work.get(rank).map_or(0, part);
        let others = work.iter().enumerate().filter(|(at, _)| *at != rank).map(|(_, work)| part(work));
        match median::lower(others) {
            Some(theirs) if theirs < mine => theirs as f64 / mine as f64,
            _ => 1.0,
        }
    };
    let (data, outside, busy) = (share(&|w| w.data_ns), share(&|w| w.outside_ns), share(&|w| w.busy_ns));
    let less = |ns: i64, share: f64| (ns as f64 * share) as i64;
    for host in &mut model.hosts {
        host.data_ns = less(host.data_ns, data);
        host.outside_ns = less(host.outside_ns, outside);
        (host.busy_ns, host.own_ns) = (less(host.busy_ns, busy), less(host.own_ns, busy));
    }
}
