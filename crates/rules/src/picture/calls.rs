//! Operations around the failure, and who waits for whom in them.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use ringleader_correlate::Scene;
use ringleader_correlate::calls::ledger::Ledger;
use ringleader_correlate::track::{Group, GroupRecorder, Origin, Track};
use ringleader_correlate::waits::graph::{Front, FrontKind, Waits};
use ringleader_model::{
    NamedCall, OpState, PicturedCall, Rank, RankSet, RingStage, SpanState, TimelineSpan, Wait, median,
};

/// The timeline reaches from this long before the failure to this long after it, ns: 60 s in all.
const BEFORE_NS: i64 = 45_000_000_000;
const AFTER_NS: i64 = 15_000_000_000;
/// Operations of one rank.
const MAX_SPANS: usize = 96;
/// Rows of ranks that made the same calls.
const MAX_LANES: usize = 48;
/// Newest collectives of a group by which ranks are compared.
const COMPARED: usize = 12;
/// Ranks of a row whose times make the median.
const SAMPLED: usize = 64;
/// Kinds of calls that are counted.
const MAX_CALLS: usize = 64;
/// Waits that are shown, and groups from which on they are folded.
const MAX_WAITS: usize = 48;
const FOLDED: usize = 3;

/// The waits that decide: of the first view that shows any.
pub(super) fn decisive<'s>(scene: &'s Scene<'_>) -> Option<&'s Waits> {
    let waits_for = |front: &Front| {
        !front.waiting.is_empty()
            && (!front.behind.is_empty() || !front.unseen.is_empty() || !front.held.is_empty())
    };
    let all = || scene.waits().iter();
    all()
        .find(|w| w.fronts.iter().any(waits_for))
        .or_else(|| all().find(|w| w.fronts.iter().any(|f| !f.waiting.is_empty())))
}

/// Who waits for whom. Groups of one kind that wait alike are one row, unless an accused rank is in it.
pub(super) fn waits(scene: &Scene<'_>, accused: &[Rank]) -> Vec<Wait> {
    let Some(decisive) = decisive(scene) else { return Vec::new() };
    let groups = scene.ledger().groups();
    let mut rows: BTreeMap<(bool, String), Vec<Wait>> = BTreeMap::new();
    for front in &decisive.fronts {
        let Some(group) = groups.get(front.group) else { continue };
        let set = |members: &[usize]| members.iter().filter_map(|at| group.rank(*at)).collect::<RankSet>();
        let from = set(&front.waiting);
        if from.is_empty() {
            continue;
        }
        let unseen = set(&front.unseen);
        let others = front.behind.iter().chain(&front.held).filter_map(|at| group.rank(*at));
        let to: RankSet = others.chain(unseen.ranks().iter().copied()).collect();
        let op = operation(scene.ledger(), group, front);
        let is_accused = accused.iter().any(|rank| to.contains(*rank) || from.contains(*rank));
        let key = if is_accused { op.to_string() } else { op.kind() };
        let (op, call) = (op.to_string(), op.named);
        let wait = Wait { from, to, unseen, op, call, since_ns: front.since_ns };
        rows.entry((!is_accused, key)).or_default().push(wait);
    }
    let mut waits: Vec<(bool, Wait)> = Vec::new();
    for ((is_other, _), rows) in rows {
        if rows.len() < FOLDED {
            waits.extend(rows.into_iter().map(|wait| (is_other, wait)));
        } else {
            waits.push((is_other, folded(&rows)));
        }
    }
    // What the accused hold up, then those that wait for the fewest: what is missing is visible.
    waits.sort_by_key(|(is_other, w)| {
        (*is_other, w.to.is_empty(), w.to.len(), std::cmp::Reverse(w.from.len()), w.op.clone())
    });
    waits.truncate(MAX_WAITS);
    waits.into_iter().map(|(_, wait)| wait).collect()
}

/// Waits of groups of one kind as one.
fn folded(rows: &[Wait]) -> Wait {
    let all = |of: fn(&Wait) -> &RankSet| rows.iter().flat_map(|w| of(w).ranks().iter().copied()).collect();
    let first = rows.iter().min_by_key(|w| w.op.as_str());
    Wait {
        from: all(|w| &w.from),
        to: all(|w| &w.to),
        unseen: all(|w| &w.unseen),
        op: format!(
            "{}, and in {} groups like it",
            first.map_or("", |w| w.op.as_str()),
            rows.len().saturating_sub(1)
        ),
        // Several groups have no one number.
        call: None,
        since_ns: rows.iter().filter_map(|w| w.since_ns).min(),
    }
}

/// An operation in which ranks wait.
pub(super) struct Operation {
    /// `all_reduce #45`, `message #3 from rank 1 to rank 2`.
    call: String,
    /// Its group, for people.
    group: String,
    /// Nobody gave the group a name.
    is_unnamed: bool,
    is_message: bool,
    /// A collective that has one number.
    named: Option<NamedCall>,
}

impl Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.call, self.group)
    }
}

impl Operation {
    /// In words, without what tells groups of one kind, and messages of one group, from each other.
    pub(super) fn kind(&self) -> String {
        let call = if self.is_message { "message" } else { &self.call };
        if self.is_unnamed {
            return format!("{call} of communicator");
        }
        let group: String = self.group.chars().filter(|c| !c.is_ascii_digit()).collect();
        format!("{call} of {group}")
    }
}

/// `all_reduce #45 of default_pg`.
pub(super) fn operation(ledger: &Ledger<'_>, group: &Group<'_>, front: &Front) -> Operation {
    match front.what {
        FrontKind::Collective(seq) => {
            let tracks = front.waiting.iter().filter_map(|at| group.tracks.get(*at)?.as_ref());
            let mut calls = tracks.filter_map(|t| ledger.get(t.call(seq)?));
            let kind = calls.next().map_or("collective", |call| call.kind.name());
            numbered(ledger, group, front, kind, seq.into())
        }
        FrontKind::P2p { from, to, nth } => {
            let name = |member: u32| {
                let unknown = || {
                    // A peer that no record names.
                    if member == u32::MAX {
                        "a peer that is not known".to_owned()
                    } else {
                        format!("member {member}")
                    }
                };
                group.rank(member as usize).map_or_else(unknown, |r| r.to_string())
            };
            Operation {
                call: format!("message #{nth} from {} to {}", name(from), name(to)),
                group: group.name.clone(),
                is_unnamed: group.is_unnamed,
                is_message: true,
                named: None,
            }
        }
        FrontKind::Count(kind, n) => numbered(ledger, group, front, kind.name(), n),
    }
}

/// `#45 of default_pg`: by the number and the name that PyTorch's recorder gives where it has seen the same call, so that a report
/// has one name for it. Where the numbers differ both are told.
fn numbered(ledger: &Ledger<'_>, group: &Group<'_>, front: &Front, kind: &str, number: u64) -> Operation {
    let collective = |number: u64, of: &Group<'_>, group: String, named: Option<NamedCall>| Operation {
        call: format!("{kind} #{number}"),
        group,
        is_unnamed: of.is_unnamed,
        is_message: false,
        named,
    };
    let plain = |group: &Group<'_>| {
        let named = NamedCall { group: group.name.clone(), number };
        collective(number, group, group.name.clone(), Some(named))
    };
    let Some(twin) = twin(ledger, group) else { return plain(group) };
    let track = |member: &usize| {
        let rank = group.rank(*member)?;
        let at = twin.ranks.iter().position(|other| *other == Some(rank))?;
        twin.tracks.get(at)?.as_ref()
    };
    let waiting: Option<Vec<&Track<'_>>> = front.waiting.iter().map(track).collect();
    let waiting = waiting.filter(|tracks| !tracks.is_empty()).unwrap_or_default();
    let makes = |track: &&Track<'_>, seq: u32| {
        track.call(seq).and_then(|call| ledger.get(call)).is_some_and(|call| call.kind.name() == kind)
    };
    let lacks = |seq: u32| front.behind.iter().filter_map(track).all(|track| track.call(seq).is_none());
    let is_it = |seq: u32| !waiting.is_empty() && waiting.iter().all(|t| makes(t, seq)) && lacks(seq);
    if u32::try_from(number).is_ok_and(is_it) {
        return plain(twin);
    }
    // RAS counts each kind by itself, and counts what was handed over last.
    let last = waiting.first().map(|track| track.last_seq()).filter(|last| {
        matches!(front.what, FrontKind::Count(..)) && waiting.iter().all(|t| t.last_seq() == *last)
    });
    match last.filter(|last| is_it(*last)) {
        Some(last) => {
            collective(last.into(), twin, format!("{} (#{number} of {})", twin.name, group.name), None)
        }
        None => collective(number, group, format!("{} ({} of PyTorch)", group.name, twin.name), None),
    }
}

/// What PyTorch's recorder has seen of the same group: the only one with these ranks on either side.
fn twin<'l, 'a>(ledger: &'l Ledger<'a>, group: &Group<'a>) -> Option<&'l Group<'a>> {
    if group.view == GroupRecorder::Flight {
        return None;
    }
    let ranks = |group: &Group<'a>| group.ranks.iter().flatten().copied().collect::<RankSet>();
    let own = ranks(group);
    if own.len() < 2 {
        return None;
    }
    let of = |view: GroupRecorder| {
        let alike = ledger.groups().iter().filter(move |other| other.view == view);
        alike.filter(|other| other.ranks.len() == group.ranks.len() && ranks(other) == own).take(2)
    };
    let is_alone = of(group.view).count() == 1;
    let mut seen = of(GroupRecorder::Flight);
    seen.next().filter(|_| is_alone && seen.next().is_none())
}

/// One rank's tracks in the chosen view.
type Tracks<'s, 'a> = Vec<(usize, &'s Track<'a>)>;

/// One operation of one rank.
#[derive(Clone, Copy)]
struct DrawnOp {
    group: usize,
    /// Number of a collective; 0 for a message.
    seq: u32,
    /// Index of the operation in its origin.
    at: u32,
    start_ns: i64,
}

/// Operations around the failure, and the moment of it; empty where no recorder kept times.
pub(super) fn timeline(scene: &Scene<'_>, accused: &[Rank]) -> (Vec<TimelineSpan>, Option<i64>) {
    let has_times = |view: GroupRecorder| {
        let groups = scene.ledger().groups().iter().filter(move |g| g.view == view);
        groups.flat_map(|g| g.tracks.iter().flatten()).any(|t| newest(t).is_some())
    };
    let Some(view) =
        [GroupRecorder::Flight, GroupRecorder::Ring, GroupRecorder::Nccl].into_iter().find(|v| has_times(*v))
    else {
        return (Vec::new(), None);
    };
    let mut by_rank: BTreeMap<Rank, Tracks<'_, '_>> = BTreeMap::new();
    for (at, group) in scene.ledger().groups().iter().enumerate().filter(|(_, g)| g.view == view) {
        for (member, track) in group.tracks.iter().enumerate() {
            let (Some(track), Some(rank)) = (track, group.rank(member)) else { continue };
            if !matches!(track.origin, Origin::Lines) {
                by_rank.entry(rank).or_default().push((at, track));
            }
        }
    }
    // A hang begins where the first rank began to wait; else the records end with the failure.
    let waited = scene
        .waits_of(view)
        .and_then(|w| w.fronts.iter().filter(|f| !f.waiting.is_empty()).filter_map(|f| f.since_ns).min());
    let last = || by_rank.values().flatten().filter_map(|(_, t)| newest(t)).max();
    let Some(failed_ns) = waited.or_else(last) else { return (Vec::new(), None) };
    let lanes = lanes(scene, &by_rank, accused);
    let mut spans = Vec::new();
    for ranks in lanes.into_iter().take(MAX_LANES) {
        let Some(tracks) = ranks.first().and_then(|first| by_rank.get(first)) else { continue };
        let set: RankSet = ranks.iter().copied().collect();
        let mut ops = operations(tracks, failed_ns);
        ops.sort_by_key(|op| (op.start_ns, op.group, op.seq, op.at));
        let from = ops.len().saturating_sub(MAX_SPANS);
        for op in ops.get(from..).unwrap_or_default() {
            spans.extend(span(scene, &by_rank, &ranks, &set, tracks, *op));
        }
    }
    (spans, Some(failed_ns))
}

/// The calls of the lowest rank that a recorder saw, the most frequent first.
pub(super) fn calls(scene: &Scene<'_>) -> Vec<PicturedCall> {
    let groups = || scene.ledger().groups().iter();
    let views = [GroupRecorder::Flight, GroupRecorder::Ring, GroupRecorder::Nccl];
    let Some(view) = views.into_iter().find(|view| groups().any(|g| g.view == *view)) else {
        return Vec::new();
    };
    let of_view = || groups().filter(|g| g.view == view);
    let ranks = of_view().flat_map(|g| g.tracks.iter().flatten()).filter(|t| !t.calls.is_empty());
    let Some(lowest) = ranks.filter_map(|t| t.rank).min() else { return Vec::new() };
    let mut found: BTreeMap<(&str, u32), (usize, Vec<i64>)> = BTreeMap::new();
    for group in of_view() {
        for track in group.tracks.iter().flatten().filter(|t| t.rank == Some(lowest)) {
            for (call, op) in track.calls.iter().zip(&track.ops).filter(|(call, _)| **call != Track::GAP) {
                let known = found.entry((&group.name, *call)).or_default();
                known.0 += 1;
                let took = ended_ns(track, *op).zip(track.created_ns(*op)).map(|(end, start)| end - start);
                known.1.extend(took.filter(|ns| *ns >= 0));
            }
        }
    }
    let mut calls: Vec<PicturedCall> = found
        .into_iter()
        .filter_map(|((group, call), (n, took))| {
            let op = scene.ledger().get(call)?.describe();
            Some(PicturedCall { group: group.to_owned(), op, n, median_ns: median::upper(took) })
        })
        .collect();
    calls.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| (&a.group, &a.op).cmp(&(&b.group, &b.op))));
    calls.truncate(MAX_CALLS);
    calls
}

/// When a track's newest operation was called.
fn newest(track: &Track<'_>) -> Option<i64> {
    let collective = track.ops.iter().rev().find_map(|op| track.created_ns(*op));
    let message = track.p2p.iter().rev().find_map(|p| track.created_ns(p.op));
    collective.max(message)
}

/// The newest calls of a rank, by group: kind of group, its size, its newest calls, its open messages.
type DrawnKey = Vec<(String, usize, Vec<(u32, u32, SpanState)>, usize)>;

/// Ranks that made the same newest calls and got as far in them, together; the accused, then those with the fewest
/// others, first.
fn lanes(scene: &Scene<'_>, by_rank: &BTreeMap<Rank, Tracks<'_, '_>>, accused: &[Rank]) -> Vec<Vec<Rank>> {
    let groups = scene.ledger().groups();
    let mut folded: BTreeMap<(Option<Rank>, DrawnKey), Vec<Rank>> = BTreeMap::new();
    for (rank, tracks) in by_rank {
        let mut key: DrawnKey = Vec::with_capacity(tracks.len());
        for (at, track) in tracks {
            let Some(group) = groups.get(*at) else { continue };
            // Groups of one kind differ by a number in their names.
            let name: String = group.name.chars().filter(|c| !c.is_ascii_digit()).collect();
            let n = track.calls.len();
            let newest = (n.saturating_sub(COMPARED)..n).filter_map(|i| {
                let call = track.calls.get(i).copied()?;
                Some((track.first_seq + i as u32, call, state(track, track.ops.get(i).copied()?)))
            });
            let n_open = track.p2p.iter().filter(|p| p.done == Some(false)).count();
            key.push((name, group.ranks.len(), newest.collect(), n_open));
        }
        key.sort();
        let own = accused.contains(rank).then_some(*rank);
        folded.entry((own, key)).or_default().push(*rank);
    }
    let mut lanes: Vec<(bool, Vec<Rank>)> =
        folded.into_iter().map(|((own, _), ranks)| (own.is_none(), ranks)).collect();
    lanes.sort_by_key(|(is_other, ranks)| (*is_other, ranks.len(), ranks.first().copied()));
    lanes.into_iter().map(|(_, ranks)| ranks).collect()
}

/// The newest operations of a rank within the window.
fn operations(tracks: &[(usize, &Track<'_>)], failed_ns: i64) -> Vec<DrawnOp> {
    let within = |at: i64| at >= failed_ns - BEFORE_NS && at <= failed_ns + AFTER_NS;
    let mut ops = Vec::new();
    for (group, track) in tracks {
        let numbered = track.ops.iter().enumerate().rev();
        let collectives = numbered.filter_map(|(n, at)| {
            let seq = track.first_seq.saturating_add(n as u32);
            Some(DrawnOp { group: *group, seq, at: *at, start_ns: track.created_ns(*at)? })
        });
        ops.extend(
            collectives
                .skip_while(|op| op.start_ns > failed_ns + AFTER_NS)
                .take_while(|op| within(op.start_ns))
                .take(MAX_SPANS),
        );
        let messages = track.p2p.iter().rev().filter_map(|p| {
            Some(DrawnOp { group: *group, seq: 0, at: p.op, start_ns: track.created_ns(p.op)? })
        });
        ops.extend(
            messages
                .skip_while(|op| op.start_ns > failed_ns + AFTER_NS)
                .take_while(|op| within(op.start_ns))
                .take(MAX_SPANS),
        );
    }
    ops
}

/// One operation of the ranks of a row, with the median of their times.
fn span(
    scene: &Scene<'_>,
    by_rank: &BTreeMap<Rank, Tracks<'_, '_>>,
    ranks: &[Rank],
    set: &RankSet,
    tracks: &[(usize, &Track<'_>)],
    op: DrawnOp,
) -> Option<TimelineSpan> {
    let group = scene.ledger().groups().get(op.group)?;
    let place = tracks.iter().position(|(at, _)| *at == op.group)?;
    let (_, track) = tracks.get(place)?;
    let state = state(track, op.at);
    let (mut starts, mut ends) = (vec![op.start_ns], Vec::from_iter(ended_ns(track, op.at)));
    // Messages of several ranks are with different peers: the first rank's represent all.
    if op.seq > 0 {
        for rank in ranks.iter().skip(1).take(SAMPLED) {
            let Some((_, track)) = by_rank.get(rank).and_then(|t| t.get(place)) else { continue };
            let Some(at) = track.op(op.seq) else { continue };
            starts.extend(track.created_ns(at));
            ends.extend(ended_ns(track, at));
        }
    }
    let (text, seq) = match (op.seq, track.call(op.seq).and_then(|call| scene.ledger().get(call))) {
        (0, _) => {
            let p2p = track.p2p.iter().find(|p| p.op == op.at)?;
            let peer = group.rank(p2p.peer as usize).map_or_else(|| "?".to_owned(), |r| r.0.to_string());
            let way = if p2p.is_send { "send to" } else { "recv from" };
            (format!("{way} rank {peer}, {} elements", p2p.elements), None)
        }
        (seq, Some(call)) => (call.describe(), Some(seq)),
        (seq, None) => ("collective".to_owned(), Some(seq)),
    };
    let start_ns = median::upper(starts)?;
    let end_ns = median::upper(ends).filter(|end| *end >= start_ns);
    Some(TimelineSpan {
        ranks: set.clone(),
        group: group.name.clone(),
        op: text,
        seq,
        start_ns,
        end_ns,
        state,
    })
}

/// How far an operation got.
pub(super) fn state(track: &Track<'_>, op: u32) -> SpanState {
    match track.origin {
        Origin::Dump(dump) => match dump.ops.get(op as usize).map(|o| o.state) {
            Some(OpState::Completed) => SpanState::Finished,
            Some(OpState::Started) => SpanState::Running,
            Some(OpState::Scheduled) => SpanState::Waiting,
            None => SpanState::Called,
        },
        Origin::Ring(ring) => match ring.ops.get(op as usize) {
            Some(op) if !op.is_end_visible => SpanState::Called,
            Some(op) => match op.stage() {
                RingStage::Finished => SpanState::Finished,
                RingStage::Started => SpanState::Running,
                RingStage::Launched | RingStage::Entered => SpanState::Waiting,
            },
            None => SpanState::Called,
        },
        Origin::Log(_) | Origin::Lines => SpanState::Called,
    }
}

/// When an operation ended; None if it has not, or its recorder does not tell.
fn ended_ns(track: &Track<'_>, op: u32) -> Option<i64> {
    let at = match track.origin {
        Origin::Dump(dump) => dump.ops.get(op as usize).map(|o| o.completed_ns),
        Origin::Ring(ring) => ring.ops.get(op as usize).map(|o| o.ended_ns),
        Origin::Log(_) | Origin::Lines => None,
    };
    at.filter(|at| *at > 0)
}
