//! Imbalance by axis of parallelism: the groups of one kind (data, tensor, pipeline, expert, context), what their ranks have
//! unequal amounts of, and how long they wait for one another.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{CommCall, OpKind, WorkKind};

use crate::intervals::Intervals;
use crate::join::{Join, Joined, is_pair};
use crate::split::Split;
use crate::steps::Steps;
use crate::view::RankTimeline;

/// Groups of ranks along one axis of parallelism.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// `dp`, `tp`, `pp`, `ep`, `cp`, several joined by `+`, `world`, `p2p`; else by members: `4 ranks, 2 apart`.
    pub name: String,
    /// The job itself names it: it is not inferred from members.
    pub is_named: bool,
    /// Global ranks of each group.
    pub groups: Vec<Vec<u32>>,
    /// The same groups as [`Join::groups`] has them.
    pub joined: Vec<u32>,
    /// A step has many of these operations and nothing computes beside them: the next computation waits for each.
    pub is_needed_at_once: bool,
    /// Mean time in a step that a rank waits in operations of these groups and computes nothing, ns.
    pub wait_ns: i64,
    /// The rank that most often comes last to operations of these groups, and in how many of its own, percent.
    pub last: Option<(u32, f64)>,
    /// Amounts that differ between ranks of one group, the largest excess first.
    pub unequal: Vec<Unequal>,
}

impl Axis {
    /// Whether the next computation needs the result of these operations, by the nature of the axis: then neither buckets nor
    /// prefetching hide them. For groups without a name this is an inference: shards of parameters without prefetching look
    /// the same.
    pub fn is_on_path(&self) -> bool {
        const ON_PATH: [&str; 4] = ["tp", "cp", "ep", "pp"];
        if self.is_named {
            return self.name.split('+').all(|part| ON_PATH.contains(&part));
        }
        self.name != WORLD && self.is_needed_at_once
    }
}

/// Groups of [`Join::groups`] whose operations cannot be hidden by starting them earlier.
pub fn on_path(axes: &[Axis]) -> BTreeSet<u32> {
    axes.iter().filter(|axis| axis.is_on_path()).flat_map(|axis| axis.joined.iter().copied()).collect()
}

/// An amount that differs between the ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unequal {
    /// The amount that differs.
    pub what: Amount,
    /// Excess of the largest rank over the mean of its group, percent: mean over steps and groups.
    pub excess_pct: f64,
    /// The same excess, ns, if the amount is a time.
    pub excess_ns: Option<i64>,
    /// The rank that has the largest excess in all.
    pub rank: u32,
    /// Steps in which it has most of its group, percent.
    pub steps_pct: f64,
}

/// A quantity of a rank in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    /// Time of kernels that compute.
    Computation,
    /// Blocks of kernels that compute: how much is computed, at whatever speed.
    Blocks,
    /// Time of attention kernels, which grows faster than the length of sequences.
    Attention,
    /// Elements that an uneven all-to-all brings to a rank, or takes back from it: the load of its experts.
    Tokens,
}

impl Amount {
    /// Stable name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::Blocks => "kernel-blocks",
            Self::Attention => "attention",
            Self::Tokens => "expert-tokens",
        }
    }

    /// The amount in words that follow `more`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::Blocks => "blocks of kernels",
            Self::Attention => "time in attention, as with longer sequences,",
            Self::Tokens => "tokens for its experts",
        }
    }
}

/// Axes that the analysis distinguishes.
const MAX_AXES: usize = 16;

/// A group while axes are made.
struct AxisGroup {
    name: Option<String>,
    ranks: Vec<u32>,
    is_pairs: bool,
}

/// The axes on which at least two ranks of a group are recorded.
pub fn axes(views: &[RankTimeline<'_>], steps: &[Steps], splits: &[Vec<Split>], join: &Join) -> Vec<Axis> {
    let shared = crate::steps::shared(steps, &join.shift_ns);
    let groups: Vec<AxisGroup> = (0..join.groups.len() as u32).map(|at| group(views, join, at)).collect();
    let mut found: BTreeMap<Vec<Vec<u32>>, (String, bool, BTreeSet<u32>)> = BTreeMap::new();
    for ((name, _), (is_named, members)) in named(views, &groups) {
        let mut sets: Vec<Vec<u32>> =
            members.iter().filter_map(|at| groups.get(*at as usize)).map(|g| g.ranks.clone()).collect();
        if name == PAIRS {
            sets = connected(sets);
        }
        sets.sort();
        sets.dedup();
        // The same ranks under two names are one axis: the job's name counts, and any before `world`.
        let entry = found.entry(sets).or_insert_with(|| (name.clone(), is_named, BTreeSet::new()));
        if (is_named, name != WORLD) > (entry.1, entry.0 != WORLD) {
            (entry.0, entry.1) = (name, is_named);
        }
        entry.2.extend(members);
    }
    let amounts = amounts(views, steps, splits, join, &shared);
    let busy: Vec<Intervals> = views.iter().map(|view| view.busy(|kind| kind == WorkKind::Compute)).collect();
    let mut axes: Vec<Axis> = found
        .into_iter()
        .take(MAX_AXES)
        .map(|(sets, (name, is_named, members))| {
            let ops: Vec<&Joined> = join.ops.iter().filter(|op| members.contains(&op.group)).collect();
            let (wait_ns, last) = if join.is_aligned() {
                (wait(views, &busy, join, &members, (steps, &shared)), last(views, join, &ops))
            } else {
                (0, None)
            };
            let unequal = unequal(views, &sets, &amounts);
            let is_needed_at_once = is_needed_at_once(views, steps, &busy, &ops);
            Axis {
                name,
                is_named,
                groups: sets,
                joined: members.into_iter().collect(),
                is_needed_at_once,
                wait_ns,
                last,
                unequal,
            }
        })
        .collect();
    axes.sort_by(|a, b| b.wait_ns.cmp(&a.wait_ns).then(a.name.cmp(&b.name)));
    axes
}

const WORLD: &str = "world";
const PAIRS: &str = "p2p";

/// The groups by the name and size of their axis.
fn named(
    views: &[RankTimeline<'_>],
    groups: &[AxisGroup],
) -> BTreeMap<(String, usize), (bool, BTreeSet<u32>)> {
    let mut axes: BTreeMap<(String, usize), (bool, BTreeSet<u32>)> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        let recorded = views.iter().filter(|view| group.ranks.contains(&view.rank)).count();
        if recorded < 2 {
            continue;
        }
        let (name, is_named) = match &group.name {
            Some(name) => (name.clone(), true),
            None if group.is_pairs => (PAIRS.to_owned(), false),
            None => (by_members(views, &group.ranks), false),
        };
        let size = if name == PAIRS { 2 } else { group.ranks.len() };
        let axis = axes.entry((name, size)).or_default();
        axis.0 |= is_named;
        axis.1.insert(at as u32);
    }
    axes
}

/// Sets that share a rank, together.
fn connected(sets: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let mut whole: Vec<BTreeSet<u32>> = Vec::new();
    for set in sets {
        let set: BTreeSet<u32> = set.into_iter().collect();
        let (touching, mut apart): (Vec<_>, Vec<_>) =
            whole.into_iter().partition(|other| !other.is_disjoint(&set));
        apart.push(touching.into_iter().flatten().chain(set).collect());
        whole = apart;
    }
    whole.into_iter().map(|set| set.into_iter().collect()).collect()
}

fn group(views: &[RankTimeline<'_>], join: &Join, at: u32) -> AxisGroup {
    let mut ranks: Vec<u32> = Vec::new();
    let mut name = None;
    let mut is_pairs = false;
    let ops = || join.ops.iter().filter(|op| op.group == at);
    if let Some((view, work)) = ops().next().and_then(|op| op.members.first()).copied()
        && let Some(view_of) = views.get(view as usize)
        && let Some(work_of) = view_of.work().get(work as usize)
    {
        is_pairs = is_pair(view_of, work as usize);
        let nothing = CommCall::default();
        let call = view_of.timeline.call_of(work_of).unwrap_or(&nothing);
        let listed = view_of.timeline.groups.iter().find(|group| group.name == call.group);
        name = axis_name(&call.description).or_else(|| axis_name(&listed?.description));
        ranks.clone_from(&call.ranks);
        if let Some(listed) = listed.filter(|_| ranks.is_empty()) {
            ranks.clone_from(&listed.ranks);
        }
    }
    // Transfers within the group of all ranks are of no axis that it names.
    if is_pairs && name.as_deref() == Some(WORLD) {
        name = None;
    }
    if ranks.is_empty() || is_pairs && name.is_none() {
        let members: BTreeSet<u32> = ops().flat_map(|op| op.members.iter().map(|(view, _)| *view)).collect();
        ranks = members.iter().filter_map(|view| views.get(*view as usize)).map(|view| view.rank).collect();
    }
    ranks.sort_unstable();
    ranks.dedup();
    AxisGroup { name, ranks, is_pairs }
}

/// Words of descriptions of groups, and the axis that each means: of Megatron (`TENSOR_MODEL_PARALLEL_GROUP`), of PyTorch's
/// meshes (`mesh_dp_shard_cp`), of others.
const WORDS: [(&str, &str); 28] = [
    ("dp", "dp"),
    ("ddp", "dp"),
    ("fsdp", "dp"),
    ("hsdp", "dp"),
    ("data", "dp"),
    ("shard", "dp"),
    ("replicate", "dp"),
    ("batch", "dp"),
    ("tp", "tp"),
    ("tensor", "tp"),
    ("etp", "tp"),
    ("pp", "pp"),
    ("pipe", "pp"),
    ("pipeline", "pp"),
    ("stage", "pp"),
    ("ep", "ep"),
    ("expert", "ep"),
    ("experts", "ep"),
    ("moe", "ep"),
    ("cp", "cp"),
    ("sp", "cp"),
    ("context", "cp"),
    ("sequence", "cp"),
    ("seq", "cp"),
    ("ulysses", "cp"),
    ("ring", "cp"),
    ("world", WORLD),
    ("default", WORLD),
];

/// The axis that a description names.
fn axis_name(description: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for word in description.split(|c: char| !c.is_ascii_alphanumeric()) {
        let word = word.to_ascii_lowercase();
        if let Some((_, axis)) = WORDS.iter().find(|(known, _)| *known == word)
            && !parts.contains(axis)
        {
            parts.push(axis);
        }
    }
    // Replicas of experts are no group of experts.
    if parts == ["ep", "dp"] && !description.to_ascii_lowercase().contains("and") {
        return Some("expert-dp".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join("+"))
}

/// Name of an axis by its members: `4 ranks, 2 apart`.
fn by_members(views: &[RankTimeline<'_>], ranks: &[u32]) -> String {
    let world = views.iter().filter_map(|view| view.timeline.world_size).max().unwrap_or(0);
    if ranks.len() >= (world as usize).max(views.len()) {
        return WORLD.to_owned();
    }
    let mut gaps = ranks.windows(2).filter_map(|pair| pair.last()?.checked_sub(*pair.first()?));
    let n = ranks.len();
    match gaps.next() {
        Some(1) if gaps.all(|gap| gap == 1) => format!("{n} ranks side by side"),
        Some(first) if gaps.all(|gap| gap == first) => format!("{n} ranks, {first} apart"),
        _ => format!("{n} ranks"),
    }
}

/// Amounts of each view in each shared step.
struct Amounts {
    what: Amount,
    /// For each shared step, for each view.
    steps: Vec<Vec<f64>>,
}

/// Parts of names of attention kernels, in lower case.
const ATTENTION: [&str; 5] = ["flash", "fmha", "attention", "attn", "sdpa"];

fn amounts(
    views: &[RankTimeline<'_>],
    steps: &[Steps],
    splits: &[Vec<Split>],
    join: &Join,
    shared: &[Vec<u32>],
) -> Vec<Amounts> {
    // Of each view, the shared step that a step of its own is.
    let mut at_of: Vec<BTreeMap<u32, usize>> = vec![BTreeMap::new(); views.len()];
    for (at, places) in shared.iter().enumerate() {
        for (of, place) in at_of.iter_mut().zip(places) {
            of.insert(*place, at);
        }
    }
    let zeros = vec![vec![0.0; views.len()]; shared.len()];
    let (mut computation, mut blocks, mut attention, mut tokens) =
        (zeros.clone(), zeros.clone(), zeros.clone(), zeros);
    let step_of = |view: usize, work: usize| -> Option<usize> {
        at_of.get(view)?.get(steps.get(view)?.of_work.get(work)?).copied()
    };
    for (at, view) in views.iter().enumerate() {
        for (place, step) in at_of.get(at).into_iter().flatten() {
            if let (Some(slot), Some(split)) =
                (slot(&mut computation, *step, at), splits.get(at).and_then(|s| s.get(*place as usize)))
            {
                *slot = split.compute_ns as f64;
            }
        }
        let is_attention: Vec<bool> = view
            .timeline
            .names
            .iter()
            .map(|name| {
                let name = name.to_ascii_lowercase();
                ATTENTION.iter().any(|part| name.contains(part))
            })
            .collect();
        for (work_at, work) in view.work().iter().enumerate().filter(|(_, w)| w.kind == WorkKind::Compute) {
            let Some(step) = step_of(at, work_at) else { continue };
            if let Some(slot) = slot(&mut blocks, step, at) {
                *slot += f64::from(work.n_blocks);
            }
            if is_attention.get(work.name as usize) == Some(&true)
                && let Some(slot) = slot(&mut attention, step, at)
            {
                *slot += (work.end_ns - work.start_ns) as f64;
            }
        }
    }
    for op in join.ops.iter().filter(|op| op.kind == Some(OpKind::AllToAll) && op.is_uneven) {
        for (view, work, elements) in loads(views, op) {
            if let Some(step) = step_of(view as usize, work as usize)
                && let Some(slot) = slot(&mut tokens, step, view as usize)
            {
                *slot += elements as f64;
            }
        }
    }
    vec![
        Amounts { what: Amount::Computation, steps: computation },
        Amounts { what: Amount::Blocks, steps: blocks },
        Amounts { what: Amount::Attention, steps: attention },
        Amounts { what: Amount::Tokens, steps: tokens },
    ]
}

fn slot(table: &mut [Vec<f64>], step: usize, view: usize) -> Option<&mut f64> {
    table.get_mut(step)?.get_mut(view)
}

/// Elements of an all-to-all that are of the experts of each member: what it gets on the way there, what it gives on the way
/// back. That side differs more between ranks.
fn loads(views: &[RankTimeline<'_>], op: &Joined) -> Vec<(u32, u32, u64)> {
    let call = |(view, work): &(u32, u32)| {
        let timeline = views.get(*view as usize)?.timeline;
        timeline.call_of(timeline.work.get(*work as usize)?)
    };
    let sides: Vec<(u32, u32, [u64; 2])> = op
        .members
        .iter()
        .filter_map(|member| call(member).map(|c| (member.0, member.1, [c.out_elements, c.in_elements])))
        .collect();
    let range = |side: usize| {
        let of = || sides.iter().filter_map(|(_, _, elements)| elements.get(side).copied());
        of().max().unwrap_or(0) - of().min().unwrap_or(0)
    };
    let side = usize::from(range(1) > range(0));
    sides.iter().map(|(view, work, both)| (*view, *work, both.get(side).copied().unwrap_or(0))).collect()
}

/// An excess below this share is noise, percent.
const LEAST_PCT: f64 = 1.0;

fn unequal(views: &[RankTimeline<'_>], groups: &[Vec<u32>], amounts: &[Amounts]) -> Vec<Unequal> {
    let views_of = |ranks: &Vec<u32>| -> Vec<usize> {
        (0..views.len()).filter(|at| views.get(*at).is_some_and(|v| ranks.contains(&v.rank))).collect()
    };
    let groups: Vec<Vec<usize>> = groups.iter().map(views_of).filter(|views| views.len() >= 2).collect();
    let mut found = Vec::new();
    for amount in amounts {
        let (mut n, mut share, mut beyond) = (0_usize, 0.0, 0.0);
        let mut of_rank: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
        for values in &amount.steps {
            for group in &groups {
                let of = |view: &usize| values.get(*view).copied().unwrap_or(0.0);
                let mean = group.iter().map(of).sum::<f64>() / group.len() as f64;
                let Some(most) = group.iter().copied().max_by(|a, b| of(a).total_cmp(&of(b))) else {
                    continue;
                };
                if mean <= 0.0 {
                    continue;
                }
                n += 1;
                share += of(&most) / mean - 1.0;
                beyond += of(&most) - mean;
                let sums = of_rank.entry(most).or_default();
                sums.0 += of(&most) - mean;
                sums.1 += 1;
            }
        }
        let Some((view, (_, times))) = of_rank.into_iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0)) else {
            continue;
        };
        let excess_pct = share * 100.0 / n as f64;
        if excess_pct < LEAST_PCT {
            continue;
        }
        let is_time = matches!(amount.what, Amount::Computation | Amount::Attention);
        found.push(Unequal {
            what: amount.what,
            excess_pct,
            excess_ns: is_time.then_some((beyond / n as f64) as i64),
            rank: views.get(view).map_or(0, |v| v.rank),
            steps_pct: times as f64 * 100.0 / amount.steps.len().max(1) as f64,
        });
    }
    found.sort_by(|a, b| b.excess_pct.total_cmp(&a.excess_pct));
    found
}

/// Mean time in a shared step that a rank waits in operations of these groups and computes nothing.
fn wait(
    views: &[RankTimeline<'_>],
    busy: &[Intervals],
    join: &Join,
    groups: &BTreeSet<u32>,
    (steps, shared): (&[Steps], &[Vec<u32>]),
) -> i64 {
    let mut total = 0;
    for ((place, view), computes) in views.iter().enumerate().zip(busy) {
        let shift = join.shift_ns.get(place).copied().unwrap_or(0);
        let waits = view.work().iter().enumerate().filter(|(_, w)| w.kind == WorkKind::Comm).filter_map(
            |(at, work)| {
                let op = join.op_of(place, at).filter(|op| groups.contains(&op.group))?;
                let (last_start, _) = join.extent(views, op)?;
                Some((work.start_ns, (last_start - shift).min(work.end_ns)))
            },
        );
        let waits = Intervals::of(waits).without(computes);
        let windows = shared.iter().filter_map(|places| {
            let step = steps.get(place)?.all.get(*places.get(place)? as usize)?;
            Some(step.window)
        });
        total += windows.map(|(from, to)| waits.length_within(from, to)).sum::<i64>();
    }
    total / ((views.len() * shared.len()) as i64).max(1)
}

/// Operations in a step that are no longer a few buckets.
const MANY_OPS: usize = 4;
/// Largest part of an operation's time beside computation, percent; `NEARLY_ALL_PCT` of the operations must stay below it.
const BESIDE_PCT: i64 = 5;
const NEARLY_ALL_PCT: usize = 80;

/// Whether nothing computes beside nearly all of many operations in a step.
fn is_needed_at_once(
    views: &[RankTimeline<'_>],
    steps: &[Steps],
    busy: &[Intervals],
    ops: &[&Joined],
) -> bool {
    let (mut n, mut n_bare) = (0_usize, 0_usize);
    for (view, work) in ops.iter().flat_map(|op| &op.members) {
        let (Some(view), Some(computes)) = (views.get(*view as usize), busy.get(*view as usize)) else {
            continue;
        };
        let Some(work) = view.work().get(*work as usize).filter(|w| w.stream != view.main_stream) else {
            continue;
        };
        let beside = computes.length_within(work.start_ns, work.end_ns);
        n += 1;
        n_bare += usize::from(beside * 100 <= (work.end_ns - work.start_ns) * BESIDE_PCT);
    }
    let n_steps: usize = steps.iter().map(|steps| steps.all.len()).sum();
    n >= n_steps * MANY_OPS && n_bare * 100 >= n * NEARLY_ALL_PCT
}

/// A rank comes last if it starts this much after the next one, ns; or twice the clocks' residual.
const LAST_NS: i64 = 10_000;

/// The rank that most often starts last, and in what share of its own operations, percent.
fn last(views: &[RankTimeline<'_>], join: &Join, ops: &[&Joined]) -> Option<(u32, f64)> {
    let least = LAST_NS.max(join.residual_ns.unwrap_or(0) * 2);
    let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for op in ops {
        let mut starts: Vec<(i64, u32)> =
            op.members.iter().filter_map(|member| Some((join.times(views, *member)?.0, member.0))).collect();
        starts.sort_unstable();
        for (_, view) in &starts {
            counts.entry(*view).or_default().1 += 1;
        }
        if let [.., (before, _), (latest, view)] = starts.as_slice()
            && latest - before >= least
        {
            counts.entry(*view).or_default().0 += 1;
        }
    }
    let share = |(n, of): (usize, usize)| n as f64 * 100.0 / of.max(1) as f64;
    let (view, count) = counts.into_iter().max_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
    (count.0 > 0).then(|| Some((views.get(view as usize)?.rank, share(count))))?
}

/// The axis along which ranks are unequal, and of what they have most unequal amounts there: of the axes that show nearly as
/// much as any, the one with the smallest groups; the cause of longer computation before the computation itself.
pub fn culprit(axes: &[Axis]) -> Option<(&Axis, &Unequal)> {
    let of_computation = |axis: &Axis| {
        axis.unequal.iter().find(|u| u.what == Amount::Computation).map_or(0.0, |u| u.excess_pct)
    };
    let most = axes.iter().map(of_computation).fold(0.0, f64::max);
    if most < LEAST_SAID_PCT {
        return None;
    }
    let near = axes.iter().filter(|axis| of_computation(axis) >= most * NEAR_SHARE);
    let size = |axis: &Axis| axis.groups.iter().map(Vec::len).max().unwrap_or(0);
    let axis = near.min_by_key(|axis| (size(axis), axis.name == WORLD))?;
    let causes = [Amount::Tokens, Amount::Attention, Amount::Blocks, Amount::Computation];
    let least = |what: Amount| match what {
        // On a slower GPU attention takes longer in the same proportion; longer sequences show in it more than elsewhere.
        Amount::Attention => of_computation(axis) * ATTENTION_FACTOR,
        _ => most * CAUSE_SHARE,
    };
    let of = |what: &Amount| axis.unequal.iter().find(|u| u.what == *what && u.excess_pct >= least(*what));
    causes.iter().find_map(of).map(|unequal| (axis, unequal))
}

/// Whether ranks have unequal amounts of work, or who computes least changes from step to step. Else some GPUs are slower than
/// others at the same work, which distributing it differently does not mend.
pub(crate) fn has_unequal_work(analysis: &crate::Analysis<'_>) -> bool {
    let is_work = |unequal: &Unequal| {
        matches!(unequal.what, Amount::Blocks | Amount::Tokens) && unequal.excess_pct >= LEAST_WORK_PCT
    };
    if analysis.axes.iter().any(|axis| axis.unequal.iter().any(is_work)) {
        return true;
    }
    let mut n_least: BTreeMap<usize, usize> = BTreeMap::new();
    for places in &analysis.lateness.steps {
        let compute = |view: &usize| {
            let place = places.get(*view).map_or(0, |place| *place as usize);
            analysis
                .splits
                .get(*view)
                .and_then(|splits| splits.get(place))
                .map_or(0, |split| split.compute_ns)
        };
        if let Some(least) = (0..places.len()).min_by_key(compute) {
            *n_least.entry(least).or_default() += 1;
        }
    }
    let most = n_least.values().max().copied().unwrap_or(0);
    most * 100 < analysis.lateness.steps.len() * SAME_PCT
}

/// Work that differs by less is equal, percent.
const LEAST_WORK_PCT: f64 = 2.0;
/// Share of steps, percent, from which it is always the same rank.
const SAME_PCT: usize = 70;

/// Axes that show this share of the largest excess show nearly as much: groups of several axes overlap, so that one imbalance
/// shows along each. Chosen.
const NEAR_SHARE: f64 = 0.7;
/// An amount that has this share of the largest excess of computation is a cause of it. Chosen.
const CAUSE_SHARE: f64 = 0.5;
/// Attention must exceed the computation by this factor. Chosen.
const ATTENTION_FACTOR: f64 = 1.25;
/// Smallest reported excess, percent.
const LEAST_SAID_PCT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::{axis_name, connected};

    #[test]
    fn descriptions_name_axes() {
        for (description, axis) in [
            ("TENSOR_MODEL_PARALLEL_GROUP", Some("tp")),
            ("PIPELINE_MODEL_PARALLEL_GROUP", Some("pp")),
            ("DATA_PARALLEL_GROUP_WITH_CP", Some("dp+cp")),
            ("EXPERT_MODEL_PARALLEL_GROUP", Some("ep")),
            ("EXPERT_DATA_PARALLEL_GROUP", Some("expert-dp")),
            ("TENSOR_AND_EXPERT_PARALLEL_GROUP", Some("tp+ep")),
            ("CONTEXT_PARALLEL_GROUP", Some("cp")),
            ("mesh_dp_shard_cp", Some("dp+cp")),
            ("mesh_tp", Some("tp")),
            ("default_pg", Some("world")),
            ("undefined", None),
            ("POSITION_EMBEDDING_GROUP", None),
            ("", None),
        ] {
            assert_eq!(axis_name(description).as_deref(), axis, "{description}");
        }
    }

    #[test]
    fn pairs_of_a_pipeline_are_one_group() {
        let pairs = vec![vec![0, 1], vec![4, 5], vec![2, 3], vec![1, 2]];
        let mut whole = connected(pairs);
        whole.sort();
        assert_eq!(whole, [vec![0, 1, 2, 3], vec![4, 5]]);
    }
}
