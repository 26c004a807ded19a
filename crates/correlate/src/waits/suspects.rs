//! Ranks that hold the others up: awaited by others and waiting for none. What several views show is joined.

use ringleader_model::{Evidence, Frame, NamedCall, OpState, Rank, RankSet, SourceKind, user_frame};

use crate::calls::ledger::Ledger;
use crate::calls::mismatch::Proof;
use crate::calls::pattern;
use crate::process::condition::Conditions;
use crate::process::fate::any_rank_timed_out;
use crate::said::watchdog::WatchdogLines;
use crate::track::{Group, GroupRecorder, RankOrSource, Track, node};
use crate::waits::graph::{Front, FrontKind, Root, Waits};
use crate::who::dumps::OwnedDump;

/// A rank that holds others up.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The rank, or the source of a record whose rank is not known.
    pub node: RankOrSource,
    /// Ranks that wait for it, directly or through others.
    pub victims: RankSet,
    /// Views that show it.
    pub views: Vec<GroupRecorder>,
    /// It left no record, and nothing else makes it a suspect.
    pub weak: bool,
    /// What the others wait in: `all_reduce #45 of default_pg`.
    pub awaited_in: String,
    /// The same as data, of a collective.
    pub awaited_call: Option<NamedCall>,
    /// It is awaited in a send or receive.
    pub in_p2p: bool,
    /// It waits inside operations of its own, for the ranks that it holds up.
    pub is_inside: bool,
    /// Place in the code where the others wait.
    pub waiters_place: Option<Frame>,
    /// Last call it made itself, and from where.
    pub last_place: Option<Frame>,
    /// Proofs.
    pub evidence: Vec<Evidence>,
    /// Since when the others wait, ns.
    pub since_ns: Option<i64>,
}

/// Joins the roots of all views. Views that know completion count before those that only count calls.
pub fn suspects(proof: Proof<'_, '_>, dumps: &[OwnedDump<'_>], all: &[Waits]) -> Vec<Suspect> {
    let ledger = proof.ledger;
    let mut found: Vec<Suspect> = Vec::new();
    // Where one rank has run ahead of all, those behind it are not at fault.
    for waits in all.iter().filter(|w| ran_ahead(ledger, proof.conditions, w).is_none()) {
        for root in &waits.roots {
            let fresh = describe(proof, dumps, waits, root);
            match found.iter_mut().find(|s| s.node == fresh.node) {
                Some(known) => {
                    known.views.extend(fresh.views);
                    known.evidence.extend(fresh.evidence);
                    known.weak &= fresh.weak;
                    known.in_p2p |= fresh.in_p2p;
                    known.since_ns = known.since_ns.or(fresh.since_ns);
                    known.waiters_place = known.waiters_place.take().or(fresh.waiters_place);
                    known.last_place = known.last_place.take().or(fresh.last_place);
                    let all = known.victims.ranks().iter().chain(fresh.victims.ranks()).copied().collect();
                    known.victims = all;
                }
                None => found.push(fresh),
            }
        }
    }
    for waits in all.iter().filter(|w| w.view.knows_ends()) {
        for root in waits.cycles.iter().filter_map(|cycle| owes_message(ledger, waits, cycle)) {
            match found.iter_mut().find(|s| s.node == root.node) {
                Some(known) => {
                    known.views.push(waits.view);
                    known.is_inside = true;
                }
                None => found.push(Suspect { is_inside: true, ..describe(proof, dumps, waits, &root) }),
            }
        }
    }
    // A rank that one view shows to be waiting itself is no root, even if a poorer view says so.
    let waiting_elsewhere = |s: &Suspect| {
        all.iter()
            .filter(|w| w.view.knows_ends())
            .any(|w| !s.views.iter().any(|v| v.knows_ends()) && waits_on_somebody(ledger, w, s.node))
    };
    found.retain(|s| !waiting_elsewhere(s));
    found.sort_by(|a, b| {
        (a.weak, std::cmp::Reverse(a.views.len()), std::cmp::Reverse(a.victims.len()), a.node).cmp(&(
            b.weak,
            std::cmp::Reverse(b.views.len()),
            std::cmp::Reverse(b.victims.len()),
            b.node,
        ))
    });
    found
}

/// The rank of a cycle that owes a message: it left one out, or it went on without one.
fn owes_message(ledger: &Ledger<'_>, waits: &Waits, cycle: &[RankOrSource]) -> Option<Root> {
    let Some((node, front)) = went_on(ledger, waits, cycle) else { return broken_pair(ledger, waits, cycle) };
    if !matches!(front.what, FrontKind::P2p { .. }) {
        return None;
    }
    let at = waits.fronts.iter().position(|f| std::ptr::eq(f, front))?;
    let victims = cycle.iter().copied().filter(|n| *n != node).collect();
    Some(Root { node, fronts: vec![at], victims, weak: false })
}

/// In a cycle of waits over a message whose other side was never posted, that side caused it: the message
/// cannot come any more, since its rank went on to wait in the cycle. The oldest such message counts.
pub fn broken_pair(ledger: &Ledger<'_>, waits: &Waits, cycle: &[RankOrSource]) -> Option<Root> {
    let in_cycle = |group: &Group<'_>, members: &[usize]| {
        members.iter().filter_map(|m| node(group, *m)).find(|n| cycle.contains(n))
    };
    let (_, at, node) = waits
        .fronts
        .iter()
        .enumerate()
        .filter(|(_, f)| matches!(f.what, FrontKind::P2p { .. }))
        .filter_map(|(at, front)| {
            let group = ledger.groups().get(front.group)?;
            in_cycle(group, &front.waiting)?;
            Some((front.since_ns, at, in_cycle(group, &front.behind)?))
        })
        .min_by_key(|(since, at, _)| (since.is_none(), *since, *at))?;
    let victims = cycle.iter().copied().filter(|n| *n != node).collect();
    Some(Root { node, fronts: vec![at], victims, weak: false })
}

/// The one rank that, by NCCL's own count, made more calls than any other in every group that differs, while others
/// time out: it left out a call that they wait in, and the count of that group hides it behind a later call.
pub fn ran_ahead(ledger: &Ledger<'_>, conditions: &Conditions, waits: &Waits) -> Option<RankOrSource> {
    if waits.view != GroupRecorder::Nccl || waits.fronts.is_empty() || !any_rank_timed_out(conditions) {
        return None;
    }
    let mut leader = None;
    for front in &waits.fronts {
        let group = ledger.groups().get(front.group)?;
        let [only] = front.waiting.as_slice() else { return None };
        let who = node(group, *only)?;
        if *leader.get_or_insert(who) != who {
            return None;
        }
    }
    let leader = leader?;
    // Those behind wait too: they say so themselves. A rank that is gone is behind for a reason of its own.
    let all_wait = waits.fronts.iter().all(|front| {
        ledger.groups().get(front.group).is_some_and(|group| {
            front.behind.iter().all(|m| {
                let condition = group.rank(*m).and_then(|r| conditions.get(r));
                condition.is_some_and(|c| c.timed_out.is_some())
            })
        })
    });
    if !all_wait {
        return None;
    }
    // Further on by a whole stretch of the program, not by one message that no rank received.
    let collective = waits.fronts.iter().any(|f| matches!(f.what, FrontKind::Collective(_)));
    let both_ways = {
        let toward = |send: bool| {
            waits.fronts.iter().any(|f| {
                let FrontKind::P2p { from, .. } = f.what else { return false };
                f.waiting.first().is_some_and(|w| (*w == from as usize) == send)
            })
        };
        toward(true) && toward(false)
    };
    (collective || both_ways).then_some(leader)
}

/// In a cycle of waits, a rank that all others of a group wait for went on without the call: no other rank of that
/// group is missing, and the rank waits elsewhere for one of them.
pub fn went_on<'w>(
    ledger: &Ledger<'_>,
    waits: &'w Waits,
    cycle: &[RankOrSource],
) -> Option<(RankOrSource, &'w Front)> {
    if !waits.view.knows_ends() {
        return None;
    }
    // A rank's own history says more than who waits for whom.
    if let Some(broke) = broke_pattern(ledger, waits, cycle) {
        return Some(broke);
    }
    let mut found =
        waits.fronts.iter().filter(|f| matches!(f.what, FrontKind::Collective(_))).filter_map(|front| {
            let group = ledger.groups().get(front.group)?;
            let mut awaited = front.behind.iter().chain(&front.held).filter_map(|m| node(group, *m));
            let (Some(one), None) = (awaited.next(), awaited.next()) else { return None };
            let all_others = front.waiting.len() > 1 && front.waiting.len() + 1 == group.tracks.len();
            (all_others && cycle.contains(&one) && leads(ledger, one, front.group)).then_some((one, front))
        });
    match (found.next(), found.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// The one rank of a cycle that broke its own order of calls, without a call or message that others of the cycle wait in. Where
/// several did, the program calls its groups in another order there.
fn broke_pattern<'w>(
    ledger: &Ledger<'_>,
    waits: &'w Waits,
    cycle: &[RankOrSource],
) -> Option<(RankOrSource, &'w Front)> {
    let mut found: Option<(RankOrSource, &'w Front)> = None;
    for front in &waits.fronts {
        let Some(group) = ledger.groups().get(front.group) else { continue };
        if !front.waiting.iter().filter_map(|m| node(group, *m)).any(|n| cycle.contains(&n)) {
            continue;
        }
        // With its calls queued on the GPU it may have made the next step's already.
        for member in front.behind.iter().chain(&front.held) {
            let Some(who) = node(group, *member).filter(|n| cycle.contains(n)) else { continue };
            let Some(Some(track)) = group.tracks.get(*member) else { continue };
            if !pattern::left_out(track) {
                continue;
            }
            match found {
                Some((known, _)) if known != who => return None,
                Some(_) => {}
                None => found = Some((who, front)),
            }
        }
    }
    found
}

/// Whether a rank is further on than its peers in some group but this one: it made calls there that none of them has
/// made yet. A rank that is merely kept waiting by one message is not.
fn leads(ledger: &Ledger<'_>, who: RankOrSource, but: usize) -> bool {
    let groups = ledger.groups().iter().enumerate().filter(|(at, g)| *at != but && g.view.knows_ends());
    groups.into_iter().any(|(_, group)| {
        let Some(me) = (0..group.tracks.len()).find(|m| node(group, *m) == Some(who)) else { return false };
        let Some(Some(mine)) = group.tracks.get(me) else { return false };
        let others = || {
            group
                .tracks
                .iter()
                .enumerate()
                .filter(|(m, _)| *m != me)
                .filter_map(|(m, t)| Some((m, t.as_ref()?)))
        };
        let most = others().map(|(_, t)| t.entered).max();
        if most.is_some_and(|most| mine.entered > most) {
            return true;
        }
        // Messages: more sent and more asked for than the peer has asked for and sent.
        let count = |track: &Track<'_>, peer: usize, is_send: bool| {
            track.p2p.iter().filter(|p| p.is_send == is_send && p.peer as usize == peer).count()
        };
        others().any(|(m, t)| {
            mine.from_start
                && t.from_start
                && count(mine, m, true) > count(t, me, false)
                && count(mine, m, false) > count(t, me, true)
        })
    })
}

fn waits_on_somebody(ledger: &Ledger<'_>, waits: &Waits, who: RankOrSource) -> bool {
    waits.fronts.iter().any(|front| {
        let Some(group) = ledger.groups().get(front.group) else { return false };
        !(front.behind.is_empty() && front.held.is_empty())
            && front.waiting.iter().any(|m| node(group, *m) == Some(who))
    })
}

fn describe(proof: Proof<'_, '_>, dumps: &[OwnedDump<'_>], waits: &Waits, root: &Root) -> Suspect {
    let mut suspect = Suspect {
        node: root.node,
        victims: root.victims.iter().filter_map(|n| n.rank()).collect(),
        views: vec![waits.view],
        weak: root.weak,
        awaited_in: String::new(),
        awaited_call: None,
        in_p2p: false,
        is_inside: false,
        waiters_place: None,
        last_place: None,
        evidence: Vec::new(),
        since_ns: None,
    };
    for at in &root.fronts {
        let Some(front) = waits.fronts.get(*at) else { continue };
        let Some(group) = proof.ledger.groups().get(front.group) else { continue };
        suspect.since_ns = match (suspect.since_ns, front.since_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let waiter = front.waiting.first().and_then(|m| group.tracks.get(*m)).and_then(Option::as_ref);
        let awaited = match front.what {
            FrontKind::Collective(seq) => suspect.awaits_call(proof, group, waiter, seq),
            FrontKind::P2p { from, to, nth } => {
                suspect.awaits_message(proof, group, waiter, (from, to, nth), waits.view)
            }
            FrontKind::Count(kind, need) => {
                let first = front.waiting.first().copied();
                suspect.evidence.extend(count_text(group, first, root.node, kind, need));
                format!("{} #{need} of {}", kind.name(), group.name)
            }
        };
        if suspect.waiters_place.is_none() {
            suspect.waiters_place = waiter.and_then(|t| place_of_waiter(dumps, proof.watchdog, t.rank?));
        }
        if suspect.awaited_in.is_empty() {
            suspect.awaited_in = awaited;
            let number = match front.what {
                FrontKind::Collective(seq) => Some(u64::from(seq)),
                FrontKind::Count(_, need) => Some(need),
                FrontKind::P2p { .. } => None,
            };
            suspect.awaited_call = number.map(|number| NamedCall { group: group.name.clone(), number });
        }
        if waits.view != GroupRecorder::Ras {
            suspect.add_own_record(group, matches!(front.what, FrontKind::Collective(_)));
        }
    }
    suspect.evidence.dedup();
    suspect
}

impl Suspect {
    /// Describes the call in which the first waiter waits; its evidence and place go to the suspect.
    fn awaits_call(
        &mut self,
        proof: Proof<'_, '_>,
        group: &Group<'_>,
        waiter: Option<&Track<'_>>,
        seq: u32,
    ) -> String {
        let call = waiter.and_then(|t| proof.ledger.get(t.call(seq)?));
        if let Some(track) = waiter {
            self.evidence.extend(proof.evidence_of(track, seq).or_else(|| lines_of(track)));
            self.waiters_place =
                self.waiters_place.take().or_else(|| proof.place_near(track, &group.name, seq));
        }
        format!("{} #{seq} of {}", call.map_or("collective", |c| c.kind.name()), group.name)
    }

    /// The same for the message that it waits for: from, to, which one.
    fn awaits_message(
        &mut self,
        proof: Proof<'_, '_>,
        group: &Group<'_>,
        waiter: Option<&Track<'_>>,
        (from, to, nth): (u32, u32, u32),
        view: GroupRecorder,
    ) -> String {
        self.in_p2p = true;
        if let Some(track) = waiter {
            let mut open = track.p2p.iter().filter(|p| p.done != Some(true));
            if let Some(p2p) = open.find(|p| p.peer == u32::MAX || p.peer == from || p.peer == to) {
                let frames = track.frames(p2p.op);
                let by_watchdog =
                    || user_frame(&proof.watchdog.stand(&group.name, track.rank?)?.frames).cloned();
                // A ring keeps no stacks: there it is where the waiter is.
                self.waiters_place = self
                    .waiters_place
                    .take()
                    .or_else(|| user_frame(&frames).cloned())
                    .or_else(by_watchdog)
                    .or_else(|| proof.standing(track).cloned());
            }
            let text = pair_text(group, from, to, nth, view);
            self.evidence.push(Evidence { cite: track.cite, text, kind: track.kind });
        }
        if from == u32::MAX || to == u32::MAX {
            format!("send or receive of {}", group.name)
        } else {
            format!("message {nth} from {} to {} of {}", name(group, from), name(group, to), group.name)
        }
    }

    /// What its own record of this group holds: where its last call was made, and how many it entered.
    fn add_own_record(&mut self, group: &Group<'_>, is_collective: bool) {
        let own = (0..group.tracks.len()).find(|m| node(group, *m) == Some(self.node));
        let Some(Some(track)) = own.and_then(|m| group.tracks.get(m)) else { return };
        if let Some(op) = track.op(track.last_seq()) {
            self.last_place = self.last_place.take().or_else(|| user_frame(&track.frames(op)).cloned());
        }
        if is_collective {
            let text = format!(
                "{} entered {} collectives of {}; the others entered more",
                self.node.rank().map_or_else(|| "this rank".to_owned(), |r| format!("rank {}", r.0)),
                track.entered,
                group.name
            );
            self.evidence.push(Evidence { cite: track.cite, text, kind: track.kind });
        }
    }
}

/// Where a rank waits, from its own dump's oldest unfinished operation or its watchdog.
fn place_of_waiter(dumps: &[OwnedDump<'_>], watchdog: &WatchdogLines, rank: Rank) -> Option<Frame> {
    let owned = dumps.iter().find(|d| d.rank == Some(rank));
    let from_dump = owned.and_then(|owned| {
        let op = owned.dump.ops.iter().find(|op| op.state != OpState::Completed)?;
        let stack = owned.dump.stacks.get(op.stack as usize)?;
        let frames: Vec<Frame> =
            stack.iter().filter_map(|f| owned.dump.frames.get(*f as usize)).cloned().collect();
        user_frame(&frames).cloned()
    });
    from_dump.or_else(|| user_frame(watchdog.frames_of(rank)?).cloned())
}

fn lines_of(track: &crate::track::Track<'_>) -> Option<Evidence> {
    let (_, cite, text) = track.lines.first()?;
    Some(Evidence { cite: *cite, text: text.clone(), kind: SourceKind::TorchLog })
}

fn name(group: &Group<'_>, member: u32) -> String {
    group.rank(member as usize).map_or_else(|| format!("member {member}"), |r| format!("rank {}", r.0))
}

fn pair_text(group: &Group<'_>, from: u32, to: u32, nth: u32, view: GroupRecorder) -> String {
    if from == u32::MAX || to == u32::MAX {
        return format!("a send or receive of {} does not finish", group.name);
    }
    let count = |member: u32, is_send: bool, peer: u32| {
        let track = group.tracks.get(member as usize).and_then(Option::as_ref);
        track.map(|t| t.p2p.iter().filter(|p| p.is_send == is_send && p.peer == peer).count())
    };
    let (sent, received) = (count(from, true, to), count(to, false, from));
    let number = |n: Option<usize>| n.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
    let unit = if view == GroupRecorder::Nccl { "calls" } else { "entries" };
    format!(
        "{} posted {} sends to {}, which posted {} receives ({unit}); number {nth} has no partner",
        name(group, from),
        number(sent),
        name(group, to),
        number(received)
    )
}

fn count_text(
    group: &Group<'_>,
    waiter: Option<usize>,
    root: RankOrSource,
    kind: ringleader_model::OpKind,
    need: u64,
) -> Option<Evidence> {
    let cite = group.tracks.iter().flatten().map(|t| t.cite).next()?;
    let own = (0..group.counts.len()).find(|m| node(group, *m) == Some(root));
    let launched = own
        .and_then(|m| group.counts.get(m)?.as_ref())
        .and_then(|c| c.iter().find(|(k, _)| *k == kind))
        .map(|(_, n)| *n);
    let who = root.rank().map_or_else(|| "a rank".to_owned(), |r| format!("rank {}", r.0));
    let other =
        waiter.and_then(|w| group.rank(w)).map_or_else(|| "others".to_owned(), |r| format!("rank {}", r.0));
    let text = match launched {
        Some(n) => format!("RAS: {who} has launched {n} {}, {other} at least {need}", kind.name()),
        None => format!("RAS has no data of {who}; {other} has launched {need} {}", kind.name()),
    };
    Some(Evidence { cite, text, kind: SourceKind::Ras })
}
