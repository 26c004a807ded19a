//! The same operation on all of its ranks, and the clocks of the ranks.

use std::collections::BTreeMap;

use ringleader_model::{CommCall, DeviceWork, OpKind, WorkKind, median};

use crate::steps::Steps;
use crate::view::{RankTimeline, is_one_node};

/// One operation over its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Kind of the operation; None if no rank states it.
    pub kind: Option<OpKind>,
    /// Bytes of the message, as nccl-tests counts; 0 if unknown.
    pub size_bytes: u64,
    /// Number of ranks in the group.
    pub n_ranks: u32,
    /// Group, as an index into [`Join::groups`].
    pub group: u32,
    /// Each recorded rank: index of its view, index of its work.
    pub members: Vec<(u32, u32)>,
    /// Ranks state unequal sizes.
    pub is_uneven: bool,
}

/// Operations joined over ranks, and the clocks of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// Operations with at least two ranks recorded.
    pub ops: Vec<Joined>,
    /// For each view and work, the operation plus 1; 0 for none.
    pub of_work: Vec<Vec<u32>>,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Offset to add to each view's times, ns.
    pub shift_ns: Vec<i64>,
    /// Half of the ends lie this close after the shift, ns; None if nothing synchronises two ranks.
    pub residual_ns: Option<i64>,
    /// All ranks are of one host, whose clock they share.
    pub is_one_host: bool,
    /// Communication kernels that have no partner.
    pub n_alone: usize,
    /// Largest residual with which starts on different ranks may be compared, ns.
    pub max_residual_ns: i64,
}

/// If clocks disagree by more, the late rank is unknown, unless steps are so long that it does not matter.
const MAX_RESIDUAL_NS: i64 = 50_000;
/// Part of a step that does not matter: a rank counts as late from an eighth of that part on.
const STEP_PART: i64 = 400;

impl Join {
    /// Whether the order of starts on different ranks means something.
    pub fn is_aligned(&self) -> bool {
        let of_one_host = self.is_one_host && !self.ops.is_empty();
        self.residual_ns.map_or(of_one_host, |ns| ns <= self.max_residual_ns)
    }

    /// Start and end of a member on the common clock.
    pub fn times(&self, views: &[RankTimeline<'_>], member: (u32, u32)) -> Option<(i64, i64)> {
        let work = views.get(member.0 as usize)?.work().get(member.1 as usize)?;
        let shift = self.shift_ns.get(member.0 as usize).copied().unwrap_or(0);
        Some((work.start_ns + shift, work.end_ns + shift))
    }

    /// The last start and the last end of an operation on the common clock.
    pub fn extent(&self, views: &[RankTimeline<'_>], op: &Joined) -> Option<(i64, i64)> {
        let times = op.members.iter().filter_map(|m| self.times(views, *m));
        times.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    /// From the last start to the last end: what the operation costs once all ranks are in it. Never more than the
    /// shortest member took.
    pub fn cost_ns(&self, views: &[RankTimeline<'_>], op: &Joined) -> i64 {
        let shortest = op
            .members
            .iter()
            .filter_map(|m| views.get(m.0 as usize)?.work().get(m.1 as usize))
            .map(|w| w.end_ns - w.start_ns)
            .min()
            .unwrap_or(0);
        match self.extent(views, op) {
            Some((start, end)) if self.is_aligned() => (end - start).clamp(0, shortest),
            _ => shortest,
        }
    }

    /// The joined operation of a view's work; None if it has no partner.
    pub fn op_of(&self, view: usize, work: usize) -> Option<&Joined> {
        let place = *self.of_work.get(view)?.get(work)?;
        self.ops.get((place as usize).checked_sub(1)?)
    }
}

/// The group, kind and peers of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Group(String),
    /// All traffic of two ranks: NCCL runs it in the order of the calls, the same on both.
    Pair {
        low: u32,
        high: u32,
        group: String,
    },
}

/// One call in a rank's sequence.
#[derive(Clone, Copy)]
struct CallEntry {
    work: u32,
    step: Option<u64>,
    seq: Option<u64>,
    kind: Option<OpKind>,
    size: u64,
    end_ns: i64,
}

/// Joins the operations of all ranks and aligns their clocks.
pub fn join(views: &[RankTimeline<'_>], steps: &[Steps]) -> Join {
    let mut sequences: BTreeMap<Key, BTreeMap<u32, Vec<CallEntry>>> = BTreeMap::new();
    let mut sizes: BTreeMap<Key, u32> = BTreeMap::new();
    let mut n_comm = 0;
    for (place, view) in views.iter().enumerate() {
        let of_work = steps.get(place);
        let unlabelled = unlabelled(view);
        for (at, work) in view.work().iter().enumerate().filter(|(_, w)| w.kind == WorkKind::Comm) {
            n_comm += 1;
            let nothing = CommCall::default();
            let call = view.timeline.call_of(work).unwrap_or(&nothing);
            let Some(key) = key(view, call, work, &unlabelled, views.len()) else { continue };
            let size = sizes.entry(key.clone()).or_default();
            *size = (*size).max(call.group_size).max(call.ranks.len() as u32);
            let step = of_work.and_then(|s| {
                let step = s.all.get(*s.of_work.get(at)? as usize)?;
                step.bytes.map(|_| step.number)
            });
            sequences.entry(key).or_default().entry(place as u32).or_default().push(CallEntry {
                work: at as u32,
                step,
                // Sends and receives are counted per peer.
                seq: call.seq.filter(|_| !is_pair(view, at)),
                kind: call.kind,
                size: call.in_elements,
                end_ns: work.end_ns,
            });
        }
    }
    let is_one_host = is_one_node(views);
    let mut join = Join { shift_ns: vec![0; views.len()], is_one_host, ..Join::default() };
    join.of_work = views.iter().map(|view| vec![0; view.work().len()]).collect();
    for (key, of_rank) in &sequences {
        let group = join.groups.len() as u32;
        join.groups.push(match key {
            Key::Group(name) => name.clone(),
            Key::Pair { low, high, .. } => format!("{low}<->{high}"),
        });
        for members in matched(of_rank) {
            let op = joined(views, group, sizes.get(key).copied().unwrap_or(0), &members);
            join.ops.push(op);
            for (view, work) in members {
                if let Some(slot) = join.of_work.get_mut(view as usize).and_then(|w| w.get_mut(work as usize))
                {
                    *slot = join.ops.len() as u32;
                }
            }
        }
    }
    let n_joined: usize = join.ops.iter().map(|op| op.members.len()).sum();
    join.n_alone = n_comm - n_joined;
    let lengths = steps.iter().flat_map(|s| s.usual.iter().filter_map(|at| s.all.get(*at as usize)));
    let step_ns = median::lower(lengths.map(crate::steps::Step::length_ns)).unwrap_or(0);
    join.max_residual_ns = MAX_RESIDUAL_NS.max(step_ns / STEP_PART);
    align(views, &mut join);
    join
}

/// Communication streams without a known group, by their first work: a communicator has one.
fn unlabelled(view: &RankTimeline<'_>) -> Vec<u32> {
    let mut streams = Vec::new();
    for work in view.work().iter().filter(|w| w.kind == WorkKind::Comm) {
        let is_labelled = view.timeline.call_of(work).is_some_and(is_labelled);
        if !is_labelled && !streams.contains(&work.stream) {
            streams.push(work.stream);
        }
    }
    streams
}

fn is_labelled(call: &CommCall) -> bool {
    !call.group.is_empty() || !call.ranks.is_empty() || call.group_size > 0
}

/// Whether a work sends to single ranks, or receives from them.
pub(crate) fn is_pair(view: &RankTimeline<'_>, work: usize) -> bool {
    let nothing = CommCall::default();
    view.work()
        .get(work)
        .is_some_and(|work| sends(view, view.timeline.call_of(work).unwrap_or(&nothing), work))
}

/// Several sends and receives in one kernel have no kind in common. If nothing is known about such a kernel, it may as
/// well be an all-to-all.
fn sends(view: &RankTimeline<'_>, call: &CommCall, work: &DeviceWork) -> bool {
    call.kind.is_some_and(OpKind::is_p2p)
        || call.kind.is_none() && is_labelled(call) && view.timeline.name(work.name).contains("SendRecv")
}

/// The group whose calls these are counted with; None if unknown.
fn key(
    view: &RankTimeline<'_>,
    call: &CommCall,
    work: &DeviceWork,
    unlabelled: &[u32],
    n_views: usize,
) -> Option<Key> {
    let group = if !is_labelled(call) {
        let place = unlabelled.iter().position(|stream| *stream == work.stream).unwrap_or(0);
        format!("?{place}")
    } else if call.ranks.is_empty() {
        format!("{}/{}", call.group, call.group_size)
    } else {
        format!("{:?}", call.ranks)
    };
    let is_pair = sends(view, call, work);
    match call.peer {
        Some(peer) if is_pair => {
            // Peers are counted within the group.
            let peer = call.ranks.get(peer as usize).copied().unwrap_or(peer);
            Some(Key::Pair { low: view.rank.min(peer), high: view.rank.max(peer), group })
        }
        // The peer is not recorded; with two ranks it is the other one.
        None if is_pair && n_views > 2 => None,
        _ => Some(Key::Group(group)),
    }
}

/// The k-th call of each rank: by sequence number, by step, else by order.
fn matched(of_rank: &BTreeMap<u32, Vec<CallEntry>>) -> Vec<Vec<(u32, u32)>> {
    if of_rank.len() < 2 {
        return Vec::new();
    }
    let mut buckets: BTreeMap<(u64, u64), Vec<(u32, u32)>> = BTreeMap::new();
    let has_seq = of_rank.values().flatten().all(|e| e.seq.is_some());
    let has_step = of_rank.values().flatten().filter(|e| e.step.is_some()).count() * 2
        > of_rank.values().flatten().count();
    let shifts = if has_seq || has_step { BTreeMap::new() } else { shifts(of_rank) };
    for (view, entries) in of_rank {
        let mut nth: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let place = if let (true, Some(seq)) = (has_seq, entry.seq) {
                let again = nth.entry(seq).or_default();
                *again += 1;
                (seq, *again)
            } else if has_step {
                let Some(step) = entry.step else { continue };
                let n = nth.entry(step).or_default();
                *n += 1;
                (step, *n)
            } else {
                (0, (at as i64 + shifts.get(view).copied().unwrap_or(0) + MAX_SHIFT) as u64)
            };
            buckets.entry(place).or_default().push((*view, entry.work));
        }
    }
    buckets.into_values().filter(|members| members.len() >= 2).collect()
}

/// Calls by which one recorder may have begun earlier than another.
const MAX_SHIFT: i64 = 400;
/// Pairs of calls that are compared for each shift.
const MAX_PAIRS: usize = 512;
/// Differences of ends that vary by less are equal, ns.
const STEADY_NS: i64 = 20_000;

/// Clocks of two nodes that are farther apart are not set by one source, ns.
const SET_NS: i64 = 1_000_000_000;

/// How far the sequence of each rank is moved so that kinds and sizes agree with the longest one. Steps repeat: of those that
/// agree nearly as well as the best one, the one whose ends differ by the same time throughout, then by the least time.
fn shifts(of_rank: &BTreeMap<u32, Vec<CallEntry>>) -> BTreeMap<u32, i64> {
    let Some((_, longest)) =
        of_rank.iter().max_by_key(|(view, list)| (list.len(), std::cmp::Reverse(**view)))
    else {
        return BTreeMap::new();
    };
    let mut shifts = BTreeMap::new();
    for (view, list) in of_rank {
        let (n, half) = (longest.len() as i64, list.len() as i64 / 2);
        let tried = (-half).max(-MAX_SHIFT)..=(n - half - 1).clamp(0, MAX_SHIFT);
        let compared: Vec<(i64, usize, (i64, i64))> = tried
            .map(|shift| (shift, agreement(list, longest, shift), spread(list, longest, shift)))
            .collect();
        let most = compared.iter().map(|(_, n, _)| *n).max().unwrap_or(0);
        let near = compared.iter().filter(|(_, n, _)| *n * 10 >= most * 9);
        let steadiest = near.clone().map(|(.., spread)| *spread).min();
        // Clocks that are not set alike say nothing of steps that are: as many calls as possible are paired.
        let are_set = steadiest.is_none_or(|(_, apart_ns)| apart_ns < SET_NS);
        let best = near.min_by_key(|(shift, n, (varies, apart_ns))| {
            (*varies, if are_set { *apart_ns } else { 0 }, std::cmp::Reverse(*n), shift.abs())
        });
        shifts.insert(*view, best.map_or(0, |(shift, ..)| *shift));
    }
    shifts
}

/// Calls of a rank and those of the longest sequence at this shift.
fn moved<'a>(
    list: &'a [CallEntry],
    longest: &'a [CallEntry],
    shift: i64,
) -> impl Iterator<Item = (&'a CallEntry, &'a CallEntry)> {
    list.iter()
        .enumerate()
        .filter_map(move |(at, mine)| Some((mine, longest.get(usize::try_from(at as i64 + shift).ok()?)?)))
}

fn agreement(list: &[CallEntry], longest: &[CallEntry], shift: i64) -> usize {
    moved(list, longest, shift).filter(|(a, b)| a.kind == b.kind && a.size == b.size).count()
}

/// How much the differences of ends vary, in units of [`STEADY_NS`], and the median difference, ns.
fn spread(list: &[CallEntry], longest: &[CallEntry], shift: i64) -> (i64, i64) {
    let each = list.len() / MAX_PAIRS + 1;
    let ends: Vec<i64> =
        moved(list, longest, shift).step_by(each).map(|(mine, theirs)| theirs.end_ns - mine.end_ns).collect();
    let Some(middle) = median::lower(ends.iter().copied()) else { return (i64::MAX, i64::MAX) };
    let varies = median::lower(ends.iter().map(|ns| (ns - middle).abs())).unwrap_or(0);
    (varies / STEADY_NS, middle.abs())
}

fn joined(views: &[RankTimeline<'_>], group: u32, n_ranks: u32, members: &[(u32, u32)]) -> Joined {
    let calls: Vec<&CommCall> = members
        .iter()
        .filter_map(|(view, work)| {
            let timeline = views.get(*view as usize)?.timeline;
            timeline.call_of(timeline.work.get(*work as usize)?)
        })
        .collect();
    let sizes: Vec<u64> = calls.iter().filter_map(|call| call.size_bytes()).collect();
    let (least, most) = (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
    Joined {
        kind: calls.iter().find_map(|call| call.kind),
        size_bytes: most,
        n_ranks: n_ranks.max(members.len() as u32),
        group,
        members: members.to_vec(),
        is_uneven: calls.iter().any(|call| call.has_splits)
            || least.saturating_mul(10) < most.saturating_mul(9),
    }
}

/// Ends of these agree on all ranks.
fn synchronises(kind: Option<OpKind>) -> bool {
    matches!(
        kind,
        Some(
            OpKind::AllReduce
                | OpKind::AllGather
                | OpKind::ReduceScatter
                | OpKind::AllToAll
                | OpKind::Barrier
        )
    )
}

/// Aligns clocks on the ends of synchronising operations.
fn align(views: &[RankTimeline<'_>], join: &mut Join) {
    let end = |member: &(u32, u32)| {
        views.get(member.0 as usize)?.work().get(member.1 as usize).map(|work| work.end_ns)
    };
    // Differences between two views, from operations that both are in.
    let mut differences: BTreeMap<(u32, u32), Vec<i64>> = BTreeMap::new();
    for op in join.ops.iter().filter(|op| synchronises(op.kind)) {
        let Some((first, others)) = op.members.split_first() else { continue };
        for other in others {
            if let (Some(a), Some(b)) = (end(first), end(other)) {
                differences.entry((first.0, other.0)).or_default().push(a - b);
            }
        }
    }
    let mut known: BTreeMap<u32, i64> = BTreeMap::new();
    let mut residuals = Vec::new();
    // Each round reaches the views that share an operation with those already aligned.
    for _ in 0..views.len().min(16) {
        for ((a, b), list) in &differences {
            let Some(median) = median::lower(list.iter().copied()) else { continue };
            match (known.get(a).copied(), known.get(b).copied()) {
                (None, None) if known.is_empty() => {
                    known.insert(*a, 0);
                    known.insert(*b, median);
                }
                (Some(shift), None) => {
                    known.insert(*b, shift + median);
                }
                (None, Some(shift)) => {
                    known.insert(*a, shift - median);
                }
                _ => {}
            }
        }
    }
    for list in differences.values() {
        if let Some(median) = median::lower(list.iter().copied()) {
            residuals.extend(list.iter().map(|d| (d - median).abs()));
        }
    }
    for (view, shift) in known {
        if let Some(slot) = join.shift_ns.get_mut(view as usize) {
            *slot = shift;
        }
    }
    join.residual_ns = median::lower(residuals);
}
