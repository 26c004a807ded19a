//! Which rank each Flight Recorder dump is of: the dump does not say.
//!
//! Torch names the file prefix + global rank, but files get renamed. Content comes first: a point-to-point entry names
//! its own rank, a thread handle is also in that rank's crash report, the watchdog printed where each rank was, a
//! rank's ring or NCCL log holds the same calls at the same times, and a rank can only be a member of groups that list
//! it. The name is a hint that fills what content leaves open.

use std::cmp::{Ordering, Reverse};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, FlightDump, GroupLabel, Observation, OpKind, Rank, TorchEvent, median};

use crate::prepare::rings::rings;
use crate::who::roster::Roster;

/// A dump with the rank it was given.
#[derive(Clone, Debug)]
pub struct OwnedDump<'a> {
    /// Its place in the evidence.
    pub observation: &'a Observation,
    /// The dump.
    pub dump: &'a FlightDump,
    /// Its global rank, if it is known.
    pub rank: Option<Rank>,
}

// What each sign weighs. Only their order matters, and that no sum of weaker signs reaches a stronger one: a dump has
// at most one name, one log and one ring (5 + 15 + 15 < 1000), and one contradiction undoes all positions that agree by
// chance (a rank prints one position for each group, few of them alike).

/// Content that proves the owner outweighs any number of hints.
const PROOF: i64 = 1_000;
/// The watchdog's printed position equals the dump's.
const POSITION: i64 = 20;
/// A position that contradicts the dump: the rank had enqueued more than the dump shows.
const CONTRADICTION: i64 = -200;
/// NCCL's own log of a rank stamps its calls with the same seconds at which the dump enqueued them, and no other
/// rank's log does as well.
const SAME_SECONDS: i64 = 15;
/// A rank's ring holds the same calls, handed over a moment after the dump says, and no other rank's ring does as well.
const SAME_CALLS: i64 = 15;
/// The file's name.
const HINT: i64 = 5;

/// Gives each dump its rank.
pub fn own<'a>(case: &'a Case, roster: &Roster) -> Vec<OwnedDump<'a>> {
    let mut dumps: Vec<OwnedDump<'a>> = case
        .observations
        .iter()
        .filter_map(|observation| match &observation.fact {
            Fact::Flight(dump) => Some(OwnedDump { observation, dump, rank: None }),
            _ => None,
        })
        .collect();
    if dumps.is_empty() {
        return dumps;
    }
    let crash_threads = crash_threads(case);
    let positions = positions(case);
    let world = roster.world_size.unwrap_or(0).max(dumps.len() as u32);
    let hints_are_usable = hints_are_usable(&dumps, world);
    let (stamps, rings) = if dumps.len() <= MAX_STAMPED {
        (call_seconds(case, roster), calls_of_rings(case, roster))
    } else {
        (BTreeMap::new(), BTreeMap::new())
    };

    // Score of every possible owner; only ranks that anything speaks for.
    let mut scored: Vec<(i64, usize, Rank)> = Vec::new();
    for (at, owned) in dumps.iter().enumerate() {
        let mut scores: BTreeMap<Rank, i64> = BTreeMap::new();
        if let Some(rank) = rank_by_p2p(owned.dump) {
            *scores.entry(rank).or_default() += PROOF;
        }
        for thread in &owned.dump.thread_ids {
            if let Some(rank) = crash_threads.get(thread) {
                *scores.entry(*rank).or_default() += PROOF;
            }
        }
        if hints_are_usable && let Some(rank) = owned.dump.name_hint {
            *scores.entry(rank).or_default() += HINT;
        }
        if let Some(rank) = same_seconds(owned.dump, &stamps) {
            *scores.entry(rank).or_default() += SAME_SECONDS;
        }
        if let Some(rank) = same_calls(owned.dump, &rings) {
            *scores.entry(rank).or_default() += SAME_CALLS;
        }
        for (rank, stated) in &positions {
            for (label, position) in stated {
                let score = position_score(owned.dump, label, *position);
                if score != 0 {
                    *scores.entry(*rank).or_default() += score;
                }
            }
        }
        for (rank, score) in scores {
            if score > 0 && is_member(owned.dump, rank) {
                scored.push((score, at, rank));
            }
        }
    }
    // Best claims first. A dump and a rank that could equally well be paired otherwise are still paired: dumps that
    // nothing distinguishes are alike in what they prove too.
    // Which file came first says nothing.
    let began = |at: usize| dumps.get(at).and_then(|owned| owned.dump.ops.first()).map(|op| op.created_ns);
    scored.sort_by_key(|(score, at, rank)| (Reverse(*score), *rank, began(*at), *at));
    let mut taken: BTreeSet<Rank> = BTreeSet::new();
    for (_, at, rank) in scored {
        if let Some(owned) = dumps.get_mut(at)
            && owned.rank.is_none()
            && taken.insert(rank)
        {
            owned.rank = Some(rank);
        }
    }
    // One dump and one member left over: they belong together.
    let unowned: Vec<usize> =
        dumps.iter().enumerate().filter(|(_, d)| d.rank.is_none()).map(|(at, _)| at).collect();
    if let [only] = unowned.as_slice()
        && let Some(owned) = dumps.get_mut(*only)
    {
        let dump = owned.dump;
        let smallest = dump.groups.iter().filter(|g| !g.ranks.is_empty()).min_by_key(|g| g.ranks.len());
        let mut free = smallest
            .iter()
            .flat_map(|g| g.ranks.iter().copied())
            .filter(|rank| !taken.contains(rank) && is_member(dump, *rank));
        if let (Some(rank), None) = (free.next(), free.next()) {
            owned.rank = Some(rank);
        }
    }
    dumps.sort_by_key(|d| (d.rank.is_none(), d.rank, d.observation.cite.source));
    dumps
}

/// Dumps that are compared call by call with logs; beyond that names and positions have to do.
const MAX_STAMPED: usize = 64;
/// Fewest calls that such a comparison rests on.
const MIN_STAMPED: usize = 8;

/// Seconds of each rank's collective calls on the communicator of the whole job, from logs that stamp them.
fn call_seconds(case: &Case, roster: &Roster) -> BTreeMap<Rank, Vec<i64>> {
    let mut seconds: BTreeMap<Rank, Vec<i64>> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Nccl(log) = &observation.fact else { continue };
        // The first such communicator of each rank; a log may hold those of all ranks, so its calls are gone through
        // once.
        let mut ranks: BTreeMap<usize, Rank> = BTreeMap::new();
        for (at, comm) in log.comms.iter().enumerate() {
            if roster.world_size == Some(comm.n_ranks)
                && let Entry::Vacant(vacant) = seconds.entry(Rank(comm.rank.0))
            {
                vacant.insert(Vec::new());
                ranks.insert(at, Rank(comm.rank.0));
            }
        }
        for call in log.calls.iter().filter(|c| !c.kind.is_p2p() && c.at_s > 0) {
            if let Some(of_rank) = ranks.get(&(call.comm as usize)).and_then(|rank| seconds.get_mut(rank)) {
                of_rank.push(i64::from(call.at_s));
            }
        }
    }
    seconds.retain(|_, s| s.len() >= MIN_STAMPED);
    seconds
}

/// The one rank whose log fits this dump's times best.
fn same_seconds(dump: &FlightDump, stamps: &BTreeMap<Rank, Vec<i64>>) -> Option<Rank> {
    /// Logs are written in local time: whole quarters of an hour from UTC.
    const ZONE_S: i64 = 900;
    let mut best: Option<(usize, Rank)> = None;
    let mut tied = false;
    for (rank, seconds) in stamps {
        let world = dump
            .groups
            .iter()
            .position(|g| g.ranks.len() == stamps.len() || g.desc.as_ref() == "default_pg")?;
        let pairs: Vec<i64> = dump
            .ops
            .iter()
            .filter(|op| usize::from(op.group) == world && !op.is_p2p() && op.seq > 0)
            .filter_map(|op| {
                Some(seconds.get(op.seq as usize - 1)? - op.created_ns.div_euclid(1_000_000_000))
            })
            .collect();
        if pairs.len() < MIN_STAMPED {
            return None;
        }
        // The zone is what most pairs agree on.
        let mut zones: BTreeMap<i64, usize> = BTreeMap::new();
        for pair in pairs.iter().filter(|d| *d % ZONE_S == 0) {
            *zones.entry(*pair).or_default() += 1;
        }
        let Some((zone, _)) = zones.into_iter().max_by_key(|(_, n)| *n) else { continue };
        let misses = pairs.iter().filter(|d| **d != zone).count();
        match best {
            Some((least, _)) if misses > least => {}
            Some((least, _)) if misses == least => tied = true,
            _ => {
                best = Some((misses, *rank));
                tied = false;
            }
        }
    }
    best.filter(|_| !tied).map(|(_, rank)| rank)
}

/// Calls at the end of a record that are compared.
const LATEST: usize = 512;

/// A call of a ring: kind, elements, when it was handed over.
type Handed = (OpKind, u64, i64);

/// Latest calls of each rank, by number, on the communicator of the whole job, from rings.
fn calls_of_rings(case: &Case, roster: &Roster) -> BTreeMap<Rank, BTreeMap<u32, Handed>> {
    let mut all = BTreeMap::new();
    for (observation, ring) in rings(case) {
        let Some(rank) = roster.rank_of_ring(observation) else { continue };
        // One that was created again goes on from the number 1: the one that was used most is meant.
        let worlds = (0..).zip(&ring.comms).filter(|(_, comm)| roster.world_size == Some(comm.size));
        let Some((world, _)) = worlds.max_by_key(|(_, comm)| comm.collectives) else { continue };
        let ops = ring.ops.iter().rev().filter(|op| op.comm == world && !op.is_p2p && op.enqueued_ns > 0);
        let calls = ops.take(LATEST).filter_map(|op| {
            let call = ring.calls.get(op.call as usize)?;
            Some((op.number, (call.kind, call.count, op.enqueued_ns)))
        });
        all.insert(rank, calls.collect());
    }
    all
}

/// The one rank whose ring fits this dump's calls best: fewest that differ, then handed over after the dump's times by
/// most nearly the same. Clocks and numbers of the same process are the same.
fn same_calls(dump: &FlightDump, rings: &BTreeMap<Rank, BTreeMap<u32, Handed>>) -> Option<Rank> {
    /// How much more regular the best has to be than the next.
    const TIMES: i64 = 4;
    if rings.len() < 2 {
        return None;
    }
    let world = dump.groups.iter().position(|g| &*g.desc == "default_pg")?;
    let of_world = || dump.ops.iter().rev().filter(|op| usize::from(op.group) == world && !op.is_p2p());
    let mut fits: Vec<(usize, i64, Rank)> = Vec::new();
    for (rank, calls) in rings {
        let mut n_different = 0;
        let mut delays: Vec<i64> = Vec::new();
        for op in of_world().take(LATEST) {
            let Some((kind, count, at_ns)) = calls.get(&op.seq) else { continue };
            let Some(signature) = dump.signatures.get(op.signature as usize) else { continue };
            let is_sized = signature.kind == OpKind::AllReduce;
            let differs = signature.kind != *kind || is_sized && signature.input_elements() != *count;
            n_different += usize::from(differs);
            delays.push(at_ns.saturating_sub(op.created_ns));
        }
        if delays.len() < MIN_STAMPED {
            return None;
        }
        let usual = median::upper(delays.iter().copied())?;
        let off = delays.iter().map(|delay| delay.saturating_sub(usual).saturating_abs());
        fits.push((n_different, median::upper(off)?, *rank));
    }
    fits.sort_unstable();
    let (first, second) = (fits.first()?, fits.get(1)?);
    let is_clear = first.0 < second.0 || first.1.saturating_mul(TIMES) < second.1;
    is_clear.then_some(first.2)
}

/// Whether every group that lists its ranks lists this one.
fn is_member(dump: &FlightDump, rank: Rank) -> bool {
    // Lists are in ascending order nearly always; a list of ten thousand is not searched from its start.
    let lists =
        |ranks: &[Rank]| ranks.is_empty() || ranks.binary_search(&rank).is_ok() || ranks.contains(&rank);
    dump.groups.iter().all(|g| lists(&g.ranks))
}

/// The rank that a send or receive names as its own.
fn rank_by_p2p(dump: &FlightDump) -> Option<Rank> {
    // Few dumps hold a send or receive, and no entry need be looked at to know.
    if dump.signatures.iter().all(|s| s.me.is_none()) {
        return None;
    }
    let op = dump
        .ops
        .iter()
        .find(|op| dump.signatures.get(op.signature as usize).is_some_and(|s| s.me.is_some()))?;
    let me = dump.signatures.get(op.signature as usize)?.me?;
    let group = dump.groups.get(op.group as usize)?;
    if group.ranks.is_empty() { Some(Rank(me.0)) } else { group.ranks.get(me.0 as usize).copied() }
}

/// Names are used if they are all different and could be ranks. `a1, a2, a7` of three renamed files could be too:
/// then content, where it speaks, overrules them.
fn hints_are_usable(dumps: &[OwnedDump<'_>], world: u32) -> bool {
    let hints: Vec<Rank> = dumps.iter().filter_map(|d| d.dump.name_hint).collect();
    let distinct: BTreeSet<Rank> = hints.iter().copied().collect();
    hints.len() == dumps.len() && distinct.len() == hints.len() && distinct.iter().all(|r| r.0 < world)
}

/// Thread handles of crash reports whose rank is known.
fn crash_threads(case: &Case) -> BTreeMap<u64, Rank> {
    let mut threads = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for observation in &case.observations {
        if let (Fact::Torch(TorchEvent::Crash { threads: stacks, .. }), Some(rank)) =
            (&observation.fact, observation.who.rank)
        {
            for tid in stacks.iter().filter_map(|t| t.tid) {
                if threads.insert(tid, rank).is_some_and(|other| other != rank) {
                    shared.insert(tid);
                }
            }
        }
    }
    threads.retain(|tid, _| !shared.contains(tid));
    threads
}

#[derive(Clone, Copy)]
struct Position {
    last_enqueued: i64,
    last_completed: i64,
}

/// Where the watchdog of each rank said it was.
fn positions(case: &Case) -> BTreeMap<Rank, Vec<(GroupLabel, Position)>> {
    let mut positions: BTreeMap<Rank, Vec<(GroupLabel, Position)>> = BTreeMap::new();
    for observation in &case.observations {
        if let (
            Fact::Torch(TorchEvent::WatchdogPosition { last_enqueued, last_completed, group, .. }),
            Some(rank),
        ) = (&observation.fact, observation.who.rank)
        {
            let position = Position { last_enqueued: *last_enqueued, last_completed: *last_completed };
            positions.entry(rank).or_default().push((group.clone(), position));
        }
    }
    positions
}

fn position_score(dump: &FlightDump, label: &GroupLabel, position: Position) -> i64 {
    let found = dump.groups.iter().find(|g| match (&label.guid, &label.desc) {
        (Some(guid), _) => g.name == *guid,
        (None, Some(desc)) => g.desc == *desc,
        (None, None) => label.id.as_ref().is_some_and(|id| g.id == *id),
    });
    let Some(enqueued) = found.and_then(|g| g.last_enqueued) else { return 0 };
    let completed = found.and_then(|g| g.last_completed).unwrap_or(-1);
    match enqueued.cmp(&position.last_enqueued) {
        // The completed count goes on being updated after the line was printed; equality is a further sign only.
        Ordering::Equal => POSITION + i64::from(completed == position.last_completed),
        Ordering::Less => CONTRADICTION,
        Ordering::Greater => 0,
    }
}
