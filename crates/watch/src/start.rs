//! A job that does not come to its first communicator: its ranks are there, and all of them wait.
//!
//! No operation can be seen yet. What shows is how much processor time each rank takes, and where its stack is: who
//! waits for the others sleeps, or spins in a call of torch.distributed. Who compiles or loads data does neither.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{MAX_STATES, RankState, Shape, Stall, seconds};
use crate::ledger::{Ledger, Member};
use crate::settings::Settings;
use crate::words::{list, verb};

/// Stacks are asked for after this share of the patience: a rank that waits in NCCL's startup spins, and only its stack
/// distinguishes it from a working one.
const ASK_AFTER: i64 = 4;
/// Of jobs whose communicators would not show anyway, stacks are asked for no longer than this many times the patience.
const ASK_UNTIL: i64 = 2;
/// What a rank that waits to meet the others is called in a list of states.
const WAITS: &str = "waits-at-start";
/// Larger worlds are not searched for ranks that are not there.
const MAX_WORLD: u32 = 1 << 20;

/// The live ranks of a job of several in which no live rank has had a communicator; none if it is no such job.
pub(crate) fn ranks<'t, 'a>(ledger: &'t Ledger<'a>) -> Option<Vec<&'t Member<'a>>> {
    let live = || ledger.members.iter().filter(|member| !member.is_over() && !member.is_silent);
    if ledger.groups.iter().any(|group| !group.is_ended)
        || live().any(|member| member.word.digest.is_ended || !member.word.digest.comms.is_empty())
    {
        return None;
    }
    let members: Vec<&Member<'_>> = live().filter(|member| member.word.digest.rank.is_some()).collect();
    let world = members.iter().filter_map(|member| member.word.digest.world_size).max();
    let is_of_several = world.map_or(members.len() > 1, |world| world > 1);
    (is_of_several && !members.is_empty()).then_some(members)
}

/// Whether stacks of the ranks would show whether they wait.
pub(crate) fn asks_stacks(ledger: &Ledger<'_>, settings: &Settings) -> bool {
    let Some(members) = ranks(ledger) else { return false };
    let newest = members.iter().map(|member| member.word.waiting.seen_ns).max().unwrap_or(ledger.now_ns);
    let for_ns = ledger.now_ns - newest;
    let would_show = members.iter().all(|member| member.word.digest.would_show);
    for_ns > settings.first_floor_ns / ASK_AFTER
        && (would_show || for_ns < settings.first_floor_ns.saturating_mul(ASK_UNTIL))
}

/// All ranks that are there have waited for too long.
pub(crate) fn stall(ledger: &Ledger<'_>, settings: &Settings) -> Option<Stall> {
    let members = ranks(ledger)?;
    let since: Option<Vec<i64>> =
        members.iter().map(|member| member.word.waiting.since_ns(&member.word.digest)).collect();
    // The last one to come, or to do something, counts.
    let since_ns = since?.into_iter().max()?;
    if ledger.now_ns - since_ns <= settings.first_floor_ns {
        return None;
    }
    let (suspects, why) = suspects(ledger, &members);
    let there: BTreeSet<u32> = members.iter().filter_map(|member| member.word.digest.rank).collect();
    let there: Vec<u32> = there.into_iter().collect();
    let mut text =
        format!("no communicator yet, and {} {} for it", list(&there), verb(&there, "waits", "wait"));
    if !why.is_empty() {
        text = format!("{text}; {why}");
    }
    let states = members.iter().take(MAX_STATES).map(|member| RankState {
        rank: member.word.digest.rank.unwrap_or_default(),
        host: ledger.nodes.get(member.node).map_or("", |n| n.name).to_owned(),
        pid: member.word.digest.pid,
        state: WAITS.to_owned(),
        detail: member.word.waiting.detail(&member.word.digest, ledger.now_ns),
    });
    Some(Stall {
        since: seconds(since_ns),
        after_s: seconds(ledger.now_ns - since_ns),
        expected_s: seconds(settings.first_floor_ns),
        shape: Shape::Start,
        text,
        states: states.collect(),
        n_states: vec![(WAITS.to_owned(), members.len() as u32)],
        suspects,
        ..Stall::default()
    })
}

/// Whom to look at first, and why: numbers that contradict each other, then ranks that ought to be there and are not.
pub(crate) fn suspects(ledger: &Ledger<'_>, members: &[&Member<'_>]) -> (Vec<u32>, String) {
    let digests = || members.iter().map(|member| &member.word.digest);
    let mut by_rank: BTreeMap<u32, u32> = BTreeMap::new();
    let mut by_world: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for digest in digests() {
        let Some(rank) = digest.rank else { continue };
        *by_rank.entry(rank).or_default() += 1;
        if let Some(world) = digest.world_size {
            by_world.entry(world).or_default().insert(rank);
        }
    }
    let twice: Vec<u32> = by_rank.iter().filter(|(_, n)| **n > 1).map(|(rank, _)| *rank).collect();
    if !twice.is_empty() {
        let why = format!("several processes claim to be {}", list(&twice));
        return (twice, why);
    }
    if by_world.len() > 1 {
        let most = by_world.values().map(BTreeSet::len).max().unwrap_or_default();
        let is_clear = by_world.values().filter(|ranks| ranks.len() == most).count() == 1;
        let odd: BTreeSet<u32> =
            by_world.values().filter(|ranks| !is_clear || ranks.len() < most).flatten().copied().collect();
        let told: Vec<String> = by_world
            .iter()
            .map(|(world, ranks)| format!("{world} on {}", list(&ranks.iter().copied().collect::<Vec<_>>())))
            .take(4)
            .collect();
        return (odd.into_iter().collect(), format!("the number of ranks is {}", told.join(", ")));
    }
    let world = by_world.keys().next().copied().unwrap_or_default().min(MAX_WORLD);
    let absent: BTreeSet<u32> = (0..world).filter(|rank| !by_rank.contains_key(rank)).collect();
    let (due, knows) = due(ledger, members);
    let missing: Vec<u32> = if knows {
        absent.intersection(&due).copied().collect()
    } else if ledger.nodes.len() == 1 {
        // Nothing says how many belong on a node, and there is no other one in sight.
        absent.iter().copied().collect()
    } else {
        Vec::new()
    };
    if !missing.is_empty() {
        let why = format!("{} of {world} {} not there", list(&missing), verb(&missing, "is", "are"));
        return (missing, why);
    }
    if absent.is_empty() {
        return (Vec::new(), String::new());
    }
    let absent: Vec<u32> = absent.into_iter().collect();
    let why =
        format!("{} of {world} {} on no node that is watched", list(&absent), verb(&absent, "is", "are"));
    // Most of the job is in sight, on several nodes: what is not has more likely not come than not been looked at.
    let sees_most = n_places(members) > 1 && absent.len() * 2 < world as usize;
    (if sees_most { absent } else { Vec::new() }, why)
}

/// How many nodes the ranks in sight are on, by what each says of its place on its own.
fn n_places(members: &[&Member<'_>]) -> usize {
    let first = |member: &&Member<'_>| member.word.digest.rank?.checked_sub(member.word.digest.local_rank?);
    members.iter().filter_map(first).collect::<BTreeSet<u32>>().len()
}

/// Ranks that belong on the nodes in sight, by what each process says of its place on its node; and whether any says so.
fn due(ledger: &Ledger<'_>, members: &[&Member<'_>]) -> (BTreeSet<u32>, bool) {
    let (mut due, mut knows) = (BTreeSet::new(), false);
    for node in 0..ledger.nodes.len() {
        for member in members.iter().filter(|member| member.node == node) {
            let digest = &member.word.digest;
            let (Some(rank), Some(local), Some(size)) = (
                digest.rank,
                digest.local_rank,
                digest.local_world_size.filter(|size| *size <= MAX_STATES as u32),
            ) else {
                continue;
            };
            // Ranks of a node follow each other.
            let Some(first) = rank.checked_sub(local) else { continue };
            knows = true;
            due.extend(first..first.saturating_add(size));
        }
    }
    (due, knows)
}
