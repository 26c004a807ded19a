//! What communication costs, by kind and size, and what these GPUs should reach.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{CommCall, OpKind, WorkKind, median};

use crate::expected::{Expected, References, bus_factor};
use crate::join::{Join, Joined};
use crate::steps::Steps;
use crate::view::{RankTimeline, is_one_node};

/// Operations of one kind and size.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeClass {
    /// Kind of the operations; None if it is unknown.
    pub kind: Option<OpKind>,
    /// Bytes of the message, as nccl-tests counts.
    pub size_bytes: u64,
    /// Number of ranks in the group.
    pub n_ranks: u32,
    /// Number of operations in all usual steps.
    pub n: usize,
    /// Median cost of one operation, ns.
    pub cost_ns: i64,
    /// Bus bandwidth at the median cost, GB/s (10^9 bytes); None if the size is unknown.
    pub busbw_gbs: Option<f64>,
    /// Blocks of the kernels, one for each channel of NCCL: median; None if it was not recorded.
    pub n_ctas: Option<u32>,
    /// Nodes that the group spans; None if it is not known.
    pub n_nodes: Option<u32>,
    /// Expected bandwidth; None if no reference covers such a group.
    pub expected: Option<Expected>,
    /// The computation after it needs its result, by the axis that its group is of.
    pub is_on_path: bool,
    /// Not all ranks were recorded, or their clocks disagree: the bandwidth is a lower bound.
    pub is_lower_bound: bool,
}

/// Bus bandwidth of one operation, GB/s.
pub fn busbw_gbs(op: &Joined, cost_ns: i64) -> Option<f64> {
    let kind = op.kind?;
    (op.size_bytes > 0 && cost_ns > 0)
        .then(|| op.size_bytes as f64 / cost_ns as f64 * bus_factor(kind, op.n_ranks))
}

/// Kind, bytes and ranks of an operation.
pub(crate) type Class = (Option<OpKind>, u64, u32);

/// Collectives without their other ranks. Cost and waiting cannot be separated: the shortest of a kind and size bounds
/// the cost.
#[derive(Debug)]
pub struct Alone {
    shortest: BTreeMap<Class, i64>,
}

impl Alone {
    /// Collects the operations of all ranks.
    pub fn new(views: &[RankTimeline<'_>], join: &Join) -> Self {
        let mut shortest: BTreeMap<Class, i64> = BTreeMap::new();
        for (place, view) in views.iter().enumerate() {
            for (at, class) in Self::of(place, view, join) {
                let time = view.work().get(at).map_or(0, |w| w.end_ns - w.start_ns);
                let least = shortest.entry(class).or_insert(time);
                *least = (*least).min(time);
            }
        }
        Self { shortest }
    }

    /// Work of a rank without its partners, and its class.
    fn of<'v>(
        place: usize,
        view: &'v RankTimeline<'_>,
        join: &'v Join,
    ) -> impl Iterator<Item = (usize, Class)> + 'v {
        let comm = view.work().iter().enumerate().filter(|(_, w)| w.kind == WorkKind::Comm);
        comm.filter(move |(at, _)| join.op_of(place, *at).is_none()).map(move |(at, work)| {
            let nothing = CommCall::default();
            let call = view.timeline.call_of(work).unwrap_or(&nothing);
            (at, (call.kind, call.size_bytes().unwrap_or(0), call.group_size.max(call.ranks.len() as u32)))
        })
    }

    /// Most that a work without partners can have cost, ns; None if its partners are recorded.
    pub fn cost_ns(&self, place: usize, view: &RankTimeline<'_>, at: usize, join: &Join) -> Option<i64> {
        if join.op_of(place, at).is_some() {
            return None;
        }
        let call = view.timeline.call_of(view.work().get(at)?)?;
        let class = (call.kind, call.size_bytes().unwrap_or(0), call.group_size.max(call.ranks.len() as u32));
        self.shortest.get(&class).copied()
    }

    /// Time a usual step beyond the shortest, on the rank that has most, ns.
    pub fn wait_ns(&self, views: &[RankTimeline<'_>], steps: &[Steps], join: &Join) -> i64 {
        let of_rank = |(place, (view, steps)): (usize, (&RankTimeline<'_>, &Steps))| {
            let usual = Self::of(place, view, join)
                .filter(|(at, _)| steps.of_work.get(*at).is_some_and(|step| steps.usual.contains(step)));
            let beyond = usual.map(|(at, class)| {
                let time = view.work().get(at).map_or(0, |w| w.end_ns - w.start_ns);
                time - self.shortest.get(&class).copied().unwrap_or(time)
            });
            beyond.sum::<i64>() / steps.usual.len().max(1) as i64
        };
        views.iter().zip(steps).enumerate().map(of_rank).max().unwrap_or(0)
    }
}

/// Operations of one kind and size, while they are collected.
#[derive(Default)]
struct Members {
    costs: Vec<i64>,
    ctas: Vec<i64>,
    is_lower_bound: bool,
}

/// Nodes that an operation's group spans, if all of its ranks are recorded; 0 if it is not known.
fn n_nodes(views: &[RankTimeline<'_>], op: &Joined) -> u32 {
    if op.members.len() < op.n_ranks as usize {
        return 0;
    }
    let members = || op.members.iter().filter_map(|(view, _)| views.get(*view as usize));
    let hosts: BTreeSet<&str> = members().filter_map(|view| view.timeline.host.as_deref()).collect();
    let all_named = members().all(|view| view.timeline.host.is_some());
    match (all_named, is_one_node(views)) {
        (true, _) => hosts.len() as u32,
        (false, true) => 1,
        (false, false) => 0,
    }
}

/// Costs by kind and size, largest share of time first.
pub fn sizes(
    views: &[RankTimeline<'_>],
    steps: &[Steps],
    join: &Join,
    alone: &Alone,
    references: &References<'_>,
    on_path: &BTreeSet<u32>,
) -> Vec<SizeClass> {
    let mut classes: BTreeMap<(Class, u32, bool), Members> = BTreeMap::new();
    for op in &join.ops {
        let is_usual = op.members.iter().any(|(view, work)| {
            let of = steps.get(*view as usize);
            of.is_some_and(|s| s.of_work.get(*work as usize).is_some_and(|step| s.usual.contains(step)))
        });
        if !is_usual {
            continue;
        }
        let key = ((op.kind, op.size_bytes, op.n_ranks), n_nodes(views, op), on_path.contains(&op.group));
        let class = classes.entry(key).or_default();
        class.costs.push(join.cost_ns(views, op));
        let works = op
            .members
            .iter()
            .filter_map(|(view, work)| views.get(*view as usize)?.work().get(*work as usize));
        class.ctas.extend(works.map(|work| i64::from(work.n_blocks)).filter(|n| *n > 0));
        class.is_lower_bound |= op.members.len() < op.n_ranks as usize || !join.is_aligned();
    }
    // If operations are joined, a few that are not add nothing.
    let is_alone = join.ops.is_empty();
    for (place, (view, steps)) in views.iter().zip(steps).enumerate().filter(|_| is_alone) {
        for (at, class) in Alone::of(place, view, join) {
            if steps.of_work.get(at).is_some_and(|step| steps.usual.contains(step)) {
                let class_of = classes.entry((class, 0, false)).or_default();
                class_of.costs.push(alone.shortest.get(&class).copied().unwrap_or(0));
                class_of
                    .ctas
                    .extend(view.work().get(at).map(|work| i64::from(work.n_blocks)).filter(|n| *n > 0));
                class_of.is_lower_bound = true;
            }
        }
    }
    let mut list: Vec<SizeClass> = classes
        .into_iter()
        .map(|(((kind, size_bytes, n_ranks), n_nodes, is_on_path), members)| {
            let n = members.costs.len();
            let cost_ns = median::lower(members.costs).unwrap_or(0);
            let factor = kind.map(|kind| bus_factor(kind, n_ranks));
            let busbw_gbs = factor
                .filter(|_| size_bytes > 0 && cost_ns > 0)
                .map(|factor| size_bytes as f64 / cost_ns as f64 * factor);
            let n_nodes = (n_nodes > 0).then_some(n_nodes);
            let expected = kind.and_then(|kind| references.at(kind, (n_ranks, n_nodes), size_bytes));
            SizeClass {
                kind,
                size_bytes,
                n_ranks,
                n,
                cost_ns,
                busbw_gbs,
                n_ctas: median::lower(members.ctas).map(|n| n as u32),
                n_nodes,
                expected,
                is_on_path,
                is_lower_bound: members.is_lower_bound,
            }
        })
        .collect();
    list.sort_by_key(|c| (std::cmp::Reverse(c.cost_ns.saturating_mul(c.n as i64)), c.kind, c.size_bytes));
    list
}
