//! The wait-for graph over all groups of one view.
//!
//! A rank waits in its oldest unfinished operation (later ones are consequences), for every member of that group that
//! has not entered it. A rank that others wait for and that waits for nobody is a root; if there is none, the waiting
//! is a cycle. Ranks that left no record are awaited too, but weakly: only their file may be missing.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{OpKind, Rank};

use crate::calls::ledger::Ledger;
use crate::track::{Group, GroupRecorder, Origin, P2pCall, RankOrSource, Track, node};

/// Where a group is stalled: the same operation, seen from all members.
#[derive(Clone, Debug)]
pub struct Front {
    /// Index into [`Ledger::groups`].
    pub group: usize,
    /// What is unfinished.
    pub what: FrontKind,
    /// Group ranks that have entered and not finished it.
    pub waiting: Vec<usize>,
    /// Group ranks that have not entered it, by their own record.
    pub behind: Vec<usize>,
    /// Group ranks that have entered it, but have an older operation elsewhere to finish first.
    pub held: Vec<usize>,
    /// Group ranks that have finished it already.
    pub ahead: Vec<usize>,
    /// Group ranks without any record in this group.
    pub unseen: Vec<usize>,
    /// Group ranks whose record was cut before it: nothing follows for them.
    pub unknown: Vec<usize>,
    /// Earliest time at which a waiting rank enqueued it, ns.
    pub since_ns: Option<i64>,
}

/// The operation that a front waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontKind {
    /// Collective number.
    Collective(u32),
    /// A send or receive: the pair's number from `from` to `to`.
    P2p {
        /// Sender's group rank.
        from: u32,
        /// Receiver's group rank.
        to: u32,
        /// n-th of this pair, from 1.
        nth: u32,
    },
    /// RAS: launches of one function.
    Count(OpKind, u64),
}

/// A rank that others wait for and that waits for no rank.
#[derive(Clone, Debug)]
pub struct Root {
    /// The rank, or the source of a record whose rank is not known.
    pub node: RankOrSource,
    /// Fronts in which it is awaited.
    pub fronts: Vec<usize>,
    /// Everyone who waits for it, directly or through others.
    pub victims: Vec<RankOrSource>,
    /// It left no record, and nothing else makes it a root.
    pub weak: bool,
}

/// The wait-for graph of one view.
#[derive(Clone, Debug)]
pub struct Waits {
    /// View.
    pub view: GroupRecorder,
    /// Fronts.
    pub fronts: Vec<Front>,
    /// Roots, most awaited first.
    pub roots: Vec<Root>,
    /// Ranks that wait for each other in a closed loop that no other rank holds up.
    pub cycles: Vec<Vec<RankOrSource>>,
    /// Ranks with an unfinished operation that every member has entered.
    pub all_in: Vec<usize>,
}

impl Waits {
    /// Ranks wait, each for a message of nobody knows whom.
    pub fn is_mute(&self) -> bool {
        let is_blank = |front: &Front| {
            let names = [&front.behind, &front.held, &front.unseen, &front.unknown, &front.ahead];
            matches!(front.what, FrontKind::P2p { from, to, .. } if from.max(to) == u32::MAX)
                && names.iter().all(|members| members.is_empty())
        };
        !self.fronts.is_empty() && self.fronts.iter().all(is_blank)
    }
}

/// Builds the graph of a view; None if the view recorded nothing.
pub fn waits(ledger: &Ledger<'_>, view: GroupRecorder) -> Option<Waits> {
    let groups: Vec<(usize, &Group<'_>)> =
        ledger.groups().iter().enumerate().filter(|(_, g)| g.view == view).collect();
    if groups.is_empty() {
        return None;
    }
    let mut fronts = Vec::new();
    match view {
        GroupRecorder::Flight | GroupRecorder::Ring => {
            let oldest = oldest_unfinished(&groups);
            let talkers = talkers(ledger);
            for (at, group) in &groups {
                fronts.extend(flight_fronts(*at, group, &oldest, &talkers));
                // A ring that cannot see operations end counts them all the same.
                if view == GroupRecorder::Ring && group.tracks.iter().flatten().all(|t| t.finished.is_none())
                {
                    fronts.extend(count_front(*at, group));
                    fronts.extend(pair_fronts(*at, group));
                }
            }
        }
        GroupRecorder::Nccl => {
            for (at, group) in &groups {
                fronts.extend(count_front(*at, group));
                fronts.extend(pair_fronts(*at, group));
            }
        }
        GroupRecorder::Ras => {
            for (at, group) in &groups {
                fronts.extend(ras_fronts(*at, group));
            }
        }
    }
    Some(solve(ledger, view, fronts))
}

/// One rank's oldest unfinished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Oldest {
    /// Position in time within the rank: entry index of its dump, or start time of its watchdog line.
    order: i64,
    group: usize,
    seq: u32,
    is_p2p: bool,
    /// Index into `p2p` of the track.
    p2p_at: usize,
}

fn oldest_unfinished(groups: &[(usize, &Group<'_>)]) -> BTreeMap<RankOrSource, Oldest> {
    let mut oldest: BTreeMap<RankOrSource, Oldest> = BTreeMap::new();
    for (at, group) in groups {
        for (member, track) in group.tracks.iter().enumerate() {
            let (Some(track), Some(node)) = (track, node(group, member)) else { continue };
            let mut offer = |candidate: Oldest| {
                oldest.entry(node).and_modify(|o| *o = (*o).min(candidate)).or_insert(candidate);
            };
            // A ring that cannot see operations end.
            if track.finished.is_none() && group.view == GroupRecorder::Ring {
                continue;
            }
            let next = track.finished.unwrap_or(0).saturating_add(1);
            if track.entered >= next {
                let order = track.op(next).map_or(i64::MIN / 2, i64::from);
                offer(Oldest { order, group: *at, seq: next, is_p2p: false, p2p_at: 0 });
            }
            if let Some((p2p_at, p2p)) = first_open(group, member, track) {
                let order = if p2p.op == Track::GAP { i64::MIN / 2 } else { i64::from(p2p.op) };
                offer(Oldest { order, group: *at, seq: 0, is_p2p: true, p2p_at });
            }
        }
    }
    oldest
}

/// The send or receive in which a rank waits: its first one that is not done. To a ring an all-to-all is messages to
/// all peers at once; of these the one whose other side is not there.
fn first_open<'t>(group: &Group<'_>, me: usize, track: &'t Track<'_>) -> Option<(usize, &'t P2pCall)> {
    let open = || track.p2p.iter().enumerate().filter(|(_, p)| p.done == Some(false));
    let has_partner = |p: &P2pCall| {
        let Some(Some(peer)) = group.tracks.get(p.peer as usize) else { return false };
        peer.p2p.iter().any(|o| o.peer as usize == me && o.is_send != p.is_send && o.done == Some(false))
    };
    let first = open().next()?;
    if group.view != GroupRecorder::Ring {
        return Some(first);
    }
    let since = track.created_ns(first.1.op)?;
    let at_once = |p: &P2pCall| track.created_ns(p.op).is_some_and(|at| at - since < AT_ONCE_NS);
    let alone = open().find(|(_, p)| at_once(p) && p.peer as usize != me && !has_partner(p));
    alone.or(Some(first))
}

/// Messages of one group call are handed over within this, ns.
const AT_ONCE_NS: i64 = 1_000_000;

/// Pairs of ranks where any record shows that the first sends to the second.
fn talkers(ledger: &Ledger<'_>) -> BTreeSet<(Rank, Rank)> {
    let mut talkers = BTreeSet::new();
    for group in ledger.groups() {
        for (member, track) in group.tracks.iter().enumerate() {
            let (Some(track), Some(me)) = (track, group.rank(member)) else { continue };
            for p2p in &track.p2p {
                if let Some(peer) = group.rank(p2p.peer as usize) {
                    talkers.insert(if p2p.is_send { (me, peer) } else { (peer, me) });
                }
            }
        }
    }
    talkers
}

fn flight_fronts(
    at: usize,
    group: &Group<'_>,
    oldest: &BTreeMap<RankOrSource, Oldest>,
    talkers: &BTreeSet<(Rank, Rank)>,
) -> Vec<Front> {
    let mut by_what: BTreeMap<FrontKind, Front> = BTreeMap::new();
    let fresh = |what| Front {
        group: at,
        what,
        waiting: Vec::new(),
        behind: Vec::new(),
        held: Vec::new(),
        ahead: Vec::new(),
        unseen: Vec::new(),
        unknown: Vec::new(),
        since_ns: None,
    };
    for (member, track) in group.tracks.iter().enumerate() {
        let (Some(track), Some(node)) = (track, node(group, member)) else { continue };
        let Some(wait) = oldest.get(&node).filter(|o| o.group == at) else { continue };
        let (what, op) = if wait.is_p2p {
            let Some(p2p) = track.p2p.get(wait.p2p_at) else { continue };
            let nth = track
                .p2p
                .iter()
                .take(wait.p2p_at + 1)
                .filter(|p| p.peer == p2p.peer && p.is_send == p2p.is_send)
                .count();
            let (from, to) = if p2p.is_send { (member as u32, p2p.peer) } else { (p2p.peer, member as u32) };
            (FrontKind::P2p { from, to, nth: nth as u32 }, Some(p2p.op))
        } else {
            (FrontKind::Collective(wait.seq), track.op(wait.seq))
        };
        let front = by_what.entry(what).or_insert_with(|| fresh(what));
        front.waiting.push(member);
        if let Some(ns) = op.and_then(|op| track.created_ns(op)) {
            front.since_ns = Some(front.since_ns.map_or(ns, |old| old.min(ns)));
        }
    }
    let mut fronts: Vec<Front> = by_what.into_values().collect();
    for front in &mut fronts {
        match front.what {
            FrontKind::Collective(seq) => {
                for (member, track) in group.tracks.iter().enumerate() {
                    match track {
                        None => front.unseen.push(member),
                        // A record that was cut: nothing is known of what followed.
                        Some(t) if t.entered < seq && t.open_end => front.unknown.push(member),
                        Some(t) if t.entered < seq && has_collectives_or_none(t) => front.behind.push(member),
                        Some(t) if t.finished.unwrap_or(0) >= seq => front.ahead.push(member),
                        // In ascending order, as they were met.
                        Some(_) if front.waiting.binary_search(&member).is_err() => front.held.push(member),
                        Some(_) => {}
                    }
                }
            }
            FrontKind::P2p { from, to, nth } => settle_pair(group, front, (from, to, nth), oldest, talkers),
            FrontKind::Count(..) => {}
        }
    }
    fronts
}

/// A track that knows only a point-to-point timeout shows nothing of collectives.
fn has_collectives_or_none(track: &Track<'_>) -> bool {
    !(matches!(track.origin, Origin::Lines) && track.p2p.iter().any(|p| p.op == Track::GAP))
}

/// The other side of a send or receive: not there yet, or there and held up by something older.
fn settle_pair(
    group: &Group<'_>,
    front: &mut Front,
    (from, to, nth): (u32, u32, u32),
    oldest: &BTreeMap<RankOrSource, Oldest>,
    talkers: &BTreeSet<(Rank, Rank)>,
) {
    let waiter = front.waiting.first().copied().unwrap_or(usize::MAX);
    let other = if waiter == to as usize { from } else { to };
    if other == u32::MAX {
        // The watchdog names no peer: it may be any rank that left no trace in this group.
        // Records of others may show who talks to the waiter at all.
        let silent: Vec<usize> =
            group.tracks.iter().enumerate().filter(|(_, t)| t.is_none()).map(|(m, _)| m).collect();
        let pair = |m: usize| {
            let (Some(me), Some(other)) = (group.rank(waiter), group.rank(m)) else { return false };
            if waiter == to as usize {
                talkers.contains(&(other, me))
            } else {
                talkers.contains(&(me, other))
            }
        };
        let known: Vec<usize> = silent.iter().copied().filter(|m| pair(*m)).collect();
        front.unseen.extend(if known.is_empty() { silent } else { known });
        return;
    }
    let other_sends = other == from;
    match group.tracks.get(other as usize) {
        Some(Some(track)) => {
            let pair = || {
                track
                    .p2p
                    .iter()
                    .filter(|p| p.is_send == other_sends && p.peer == if other_sends { to } else { from })
            };
            // Numbers mean nothing once a ring has lost its start. Sends and receives of a pair finish together,
            // so the first unfinished ones on both sides belong to each other.
            let rolled = !track.from_start || track_rolled(group, waiter);
            let made = if rolled {
                pair().find(|p| p.done == Some(false))
            } else {
                pair().nth(nth.saturating_sub(1) as usize)
            };
            match made {
                None if track.open_end || track.p2p_open => front.unknown.push(other as usize),
                // The job was at work at that moment: what is older was about to end.
                Some(_) if track.open_end && group.view == GroupRecorder::Ring => {
                    front.unknown.push(other as usize);
                }
                // Entered, but the other has an older operation to finish first.
                Some(p2p) => {
                    let older = node(group, other as usize)
                        .and_then(|n| oldest.get(&n))
                        .is_some_and(|o| o.order < i64::from(p2p.op));
                    if older && p2p.done == Some(false) {
                        front.held.push(other as usize);
                    }
                }
                None => front.behind.push(other as usize),
            }
        }
        Some(None) => front.unseen.push(other as usize),
        None => {}
    }
}

fn track_rolled(group: &Group<'_>, at: usize) -> bool {
    group.tracks.get(at).and_then(Option::as_ref).is_some_and(|t| !t.from_start)
}

/// NCCL logs: a rank that made fewer calls on a communicator is behind.
fn count_front(at: usize, group: &Group<'_>) -> Option<Front> {
    // A ring numbers its calls, however far back it reaches.
    let counts = |t: &&Track<'_>| (t.from_start || group.view == GroupRecorder::Ring) && !t.open_end;
    let seen =
        || group.tracks.iter().enumerate().filter_map(|(m, t)| t.as_ref().filter(counts).map(|t| (m, t)));
    let most = seen().map(|(_, t)| t.entered).max().filter(|n| *n > 0)?;
    let behind: Vec<usize> = seen().filter(|(_, t)| t.entered < most).map(|(m, _)| m).collect();
    let least = seen().map(|(_, t)| t.entered).min()?;
    let unseen: Vec<usize> =
        group.tracks.iter().enumerate().filter(|(_, t)| t.is_none()).map(|(m, _)| m).collect();
    // A rank without a log is no sign of trouble: logs are often kept of one rank only.
    if behind.is_empty() {
        return None;
    }
    let seq = least.saturating_add(1);
    let behind: Vec<usize> = seen().filter(|(_, t)| t.entered < seq).map(|(m, _)| m).collect();
    let waiting: Vec<usize> = seen().filter(|(_, t)| t.entered >= seq).map(|(m, _)| m).collect();
    let since_ns = seen().filter_map(|(_, t)| t.created_ns(t.op(seq)?)).min();
    Some(Front {
        group: at,
        what: FrontKind::Collective(seq),
        waiting,
        behind,
        held: Vec::new(),
        ahead: Vec::new(),
        unseen,
        unknown: Vec::new(),
        since_ns,
    })
}

/// NCCL logs: pairs with more receives than sends, or the reverse.
fn pair_fronts(at: usize, group: &Group<'_>) -> Vec<Front> {
    let mut sends: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut recvs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for (member, track) in group.tracks.iter().enumerate() {
        let Some(track) = track.as_ref().filter(|t| t.from_start && !t.open_end) else { continue };
        for p2p in &track.p2p {
            let counts = if p2p.is_send { &mut sends } else { &mut recvs };
            let key = if p2p.is_send { (member as u32, p2p.peer) } else { (p2p.peer, member as u32) };
            *counts.entry(key).or_default() += 1;
        }
    }
    let seen = |m: u32| {
        group.tracks.get(m as usize).and_then(Option::as_ref).is_some_and(|t| t.from_start && !t.open_end)
    };
    let pairs: BTreeSet<(u32, u32)> = sends.keys().chain(recvs.keys()).copied().collect();
    let mut fronts = Vec::new();
    for (from, to) in pairs {
        if from == to || !seen(from) || !seen(to) {
            continue;
        }
        let (sent, received) =
            (sends.get(&(from, to)).copied().unwrap_or(0), recvs.get(&(from, to)).copied().unwrap_or(0));
        if sent == received {
            continue;
        }
        let (waiting, behind) = if sent < received { (to, from) } else { (from, to) };
        fronts.push(Front {
            group: at,
            what: FrontKind::P2p { from, to, nth: sent.min(received) + 1 },
            waiting: vec![waiting as usize],
            behind: vec![behind as usize],
            held: Vec::new(),
            ahead: Vec::new(),
            unseen: Vec::new(),
            unknown: Vec::new(),
            since_ns: None,
        });
    }
    fronts
}

/// RAS: a rank that launched fewer of a function is behind.
fn ras_fronts(at: usize, group: &Group<'_>) -> Vec<Front> {
    let kinds: BTreeSet<OpKind> = group.counts.iter().flatten().flatten().map(|(kind, _)| *kind).collect();
    let count = |m: usize, kind: OpKind| -> Option<u64> {
        let counts = group.counts.get(m)?.as_ref()?;
        Some(counts.iter().find(|(k, _)| *k == kind).map_or(0, |(_, n)| *n))
    };
    let mut unseen: Vec<usize> = group.silent.clone();
    unseen.sort_unstable();
    unseen.dedup();
    let mut fronts = Vec::new();
    for kind in kinds {
        let all: Vec<(usize, u64)> =
            (0..group.counts.len()).filter_map(|m| Some((m, count(m, kind)?))).collect();
        let (Some(most), Some(least)) =
            (all.iter().map(|(_, n)| *n).max(), all.iter().map(|(_, n)| *n).min())
        else {
            continue;
        };
        if most == least && unseen.is_empty() {
            continue;
        }
        let need = if most == least { most } else { least.saturating_add(1) };
        if need == 0 {
            continue;
        }
        fronts.push(Front {
            group: at,
            what: FrontKind::Count(kind, need),
            waiting: all.iter().filter(|(_, n)| *n >= need).map(|(m, _)| *m).collect(),
            behind: all.iter().filter(|(_, n)| *n < need).map(|(m, _)| *m).collect(),
            held: Vec::new(),
            ahead: Vec::new(),
            unseen: unseen.clone(),
            unknown: Vec::new(),
            since_ns: None,
        });
    }
    fronts
}

fn solve(ledger: &Ledger<'_>, view: GroupRecorder, fronts: Vec<Front>) -> Waits {
    let nodes_of = |front: &Front, members: &[usize]| -> Vec<RankOrSource> {
        let Some(group) = ledger.groups().get(front.group) else { return Vec::new() };
        members.iter().filter_map(|m| node(group, *m)).collect()
    };
    // Bipartite: a rank waits in a front; a front waits for ranks. Edges stay linear in the size of the groups.
    let mut waits_in: BTreeMap<RankOrSource, Vec<usize>> = BTreeMap::new();
    let mut awaited: Vec<Vec<RankOrSource>> = Vec::new();
    let mut weak: Vec<Vec<RankOrSource>> = Vec::new();
    let mut all_in = Vec::new();
    let mut waits_for_unknown = Vec::new();
    for (at, front) in fronts.iter().enumerate() {
        let mut behind = nodes_of(front, &front.behind);
        behind.extend(nodes_of(front, &front.held));
        let unseen = nodes_of(front, &front.unseen);
        if behind.is_empty() && unseen.is_empty() {
            if front.unknown.is_empty() {
                all_in.push(at);
            } else if view == GroupRecorder::Ring {
                // It waits; for which ranks is not known.
                waits_for_unknown.extend(nodes_of(front, &front.waiting));
            }
        } else {
            for waiter in nodes_of(front, &front.waiting) {
                waits_in.entry(waiter).or_default().push(at);
            }
        }
        awaited.push(behind);
        weak.push(unseen);
    }
    // A rank in a front that all have entered waits for the GPU or the network, not for a rank: it is no root.
    let in_all_in: BTreeSet<RankOrSource> =
        all_in.iter().filter_map(|at| fronts.get(*at)).flat_map(|f| nodes_of(f, &f.waiting)).collect();
    let in_all_in: BTreeSet<RankOrSource> = in_all_in.into_iter().chain(waits_for_unknown).collect();
    let mut roots: BTreeMap<RankOrSource, Root> = BTreeMap::new();
    for (at, nodes) in awaited.iter().enumerate() {
        for node in nodes.iter().filter(|n| !waits_in.contains_key(n) && !in_all_in.contains(n)) {
            let root = roots.entry(*node).or_insert_with(|| Root {
                node: *node,
                fronts: Vec::new(),
                victims: Vec::new(),
                weak: false,
            });
            root.fronts.push(at);
        }
    }
    for (at, nodes) in weak.iter().enumerate() {
        for node in nodes.iter().filter(|n| !waits_in.contains_key(n)) {
            let root = roots.entry(*node).or_insert_with(|| Root {
                node: *node,
                fronts: Vec::new(),
                victims: Vec::new(),
                weak: true,
            });
            root.fronts.push(at);
        }
    }
    let mut awaited_in: BTreeMap<RankOrSource, Vec<usize>> = BTreeMap::new();
    for (at, (strong, faint)) in awaited.iter().zip(&weak).enumerate() {
        for node in strong.iter().chain(faint) {
            awaited_in.entry(*node).or_default().push(at);
        }
    }
    // Ranks that left no record are awaited in the same fronts, by the thousand.
    let mut known: BTreeMap<Vec<usize>, Vec<RankOrSource>> = BTreeMap::new();
    for root in roots.values_mut() {
        let reached = known
            .entry(root.fronts.clone())
            .or_insert_with(|| victims_of(&root.fronts, &fronts, &awaited_in, &nodes_of));
        root.victims = reached.iter().copied().filter(|node| *node != root.node).collect();
    }
    let cycles = if roots.values().any(|r| !r.weak) { Vec::new() } else { cycles(&waits_in, &awaited) };
    let mut roots: Vec<Root> = roots.into_values().collect();
    roots.sort_by(|a, b| {
        a.weak.cmp(&b.weak).then(b.victims.len().cmp(&a.victims.len())).then(a.node.cmp(&b.node))
    });
    Waits { view, fronts, roots, cycles, all_in }
}

/// All ranks that reach these fronts by waiting.
fn victims_of(
    in_fronts: &[usize],
    fronts: &[Front],
    awaited_in: &BTreeMap<RankOrSource, Vec<usize>>,
    nodes_of: &impl Fn(&Front, &[usize]) -> Vec<RankOrSource>,
) -> Vec<RankOrSource> {
    let mut reached: BTreeSet<RankOrSource> = BTreeSet::new();
    let mut open = in_fronts.to_vec();
    let mut seen: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(at) = open.pop() {
        let Some(front) = fronts.get(at) else { continue };
        for waiter in nodes_of(front, &front.waiting) {
            if !reached.insert(waiter) {
                continue;
            }
            let next = awaited_in.get(&waiter).into_iter().flatten();
            open.extend(next.copied().filter(|at| seen.insert(*at)));
        }
    }
    reached.into_iter().collect()
}

/// Closed loops among ranks that each wait for another: strongly connected parts that nothing leaves. Tarjan's
/// algorithm without recursion, over ranks and fronts (a rank waits in a front, a front waits for ranks), so that a
/// world of ten thousand ranks costs ten thousand steps.
fn cycles(
    waits_in: &BTreeMap<RankOrSource, Vec<usize>>,
    awaited: &[Vec<RankOrSource>],
) -> Vec<Vec<RankOrSource>> {
    const UNSEEN: usize = usize::MAX;
    let nodes: Vec<RankOrSource> = waits_in
        .keys()
        .chain(awaited.iter().flatten())
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let place = |node: &RankOrSource| nodes.binary_search(node).unwrap_or(UNSEEN);
    let n = nodes.len();
    let edges: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| waits_in.get(node).into_iter().flatten().map(|front| n + front).collect())
        .chain(awaited.iter().map(|list| list.iter().map(place).collect()))
        .collect();
    let mut index = vec![UNSEEN; edges.len()];
    let mut low = vec![0_usize; edges.len()];
    let mut part = vec![UNSEEN; edges.len()];
    let (mut next, mut n_parts) = (0, 0);
    let mut stack: Vec<usize> = Vec::new();
    for start in 0..edges.len() {
        if index.get(start) != Some(&UNSEEN) {
            continue;
        }
        let mut work: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((at, edge)) = work.pop() {
            if edge == 0 {
                set(&mut index, at, next);
                set(&mut low, at, next);
                next += 1;
                stack.push(at);
            }
            if let Some(to) = edges.get(at).and_then(|list| list.get(edge)).copied() {
                work.push((at, edge + 1));
                if index.get(to) == Some(&UNSEEN) {
                    work.push((to, 0));
                } else if part.get(to) == Some(&UNSEEN) {
                    let best = get(&low, at).min(get(&index, to));
                    set(&mut low, at, best);
                }
                continue;
            }
            if get(&low, at) == get(&index, at) {
                while let Some(member) = stack.pop() {
                    set(&mut part, member, n_parts);
                    if member == at {
                        break;
                    }
                }
                n_parts += 1;
            }
            if let Some((parent, _)) = work.last().copied() {
                let best = get(&low, parent).min(get(&low, at));
                set(&mut low, parent, best);
            }
        }
    }
    let mut is_open = vec![false; n_parts];
    for (at, list) in edges.iter().enumerate() {
        if list.iter().any(|to| get(&part, *to) != get(&part, at))
            && let Some(open) = is_open.get_mut(get(&part, at))
        {
            *open = true;
        }
    }
    let mut loops: Vec<Vec<RankOrSource>> = vec![Vec::new(); n_parts];
    for (at, node) in nodes.iter().enumerate() {
        if let Some(members) = loops.get_mut(get(&part, at)) {
            members.push(*node);
        }
    }
    let closed = loops.into_iter().zip(is_open).filter(|(members, open)| members.len() > 1 && !open);
    let mut cycles: Vec<Vec<RankOrSource>> = closed.map(|(members, _)| members).collect();
    cycles.sort();
    cycles
}

fn get(values: &[usize], at: usize) -> usize {
    values.get(at).copied().unwrap_or(usize::MAX)
}

fn set(values: &mut [usize], at: usize, to: usize) {
    if let Some(value) = values.get_mut(at) {
        *value = to;
    }
}
