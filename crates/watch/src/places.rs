//! A job in which no operation can be seen, and whose ranks stand still: who waits in a call, and what those do that have
//! not come to it. By stacks, processor time and whether the main thread has run.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{MAX_STATES, RankState, Shape, Stall, seconds};
use crate::ledger::{Group, Ledger, Member};
use crate::settings::Settings;
use crate::start;
use crate::waiting::{BlockingCall, RankPosition};
use crate::words::{has, who_waits};

/// Stacks are taken once the main thread of a rank has not run for this long: one that trains does.
const ASK_NS: i64 = 4_000_000_000;
/// As long as that is news, they are taken as often as they can be.
const NEWS_NS: i64 = 60_000_000_000;
/// A stand of this length is reported.
const WAITING_NS: i64 = 15_000_000_000;
/// One that does not end by itself is an alarm after this.
const STUCK_NS: i64 = 30_000_000_000;
/// The same in a job whose communicators are idle: what another program does for a rank may take a while.
const IDLE_STUCK_NS: i64 = 60_000_000_000;
/// Places that a sentence names.
const MAX_NAMED: usize = 4;

/// A wait that hangs or may hang.
pub(crate) struct Standstill {
    pub(crate) stall: Stall,
    /// It is an alarm; else it is said and waited for.
    pub(crate) is_alarm: bool,
}

/// Whether stacks would show where ranks wait, and if so, whether the wait has just begun.
pub(crate) fn asks_stacks(ledger: &Ledger<'_>) -> Option<bool> {
    let (members, _) = ranks(ledger)?;
    let asleep = |member: &&Member<'_>| member.word.waiting.asleep_ns(ledger.now_ns);
    let longest_ns = members.iter().filter_map(asleep).map(|since| ledger.now_ns - since).max()?;
    (longest_ns >= ASK_NS).then_some(longest_ns < NEWS_NS)
}

/// The live ranks of a job in which no operation can be seen, and whether that is because nothing is in flight in its communicators
/// rather than because it has none.
fn ranks<'t, 'a>(ledger: &'t Ledger<'a>) -> Option<(Vec<&'t Member<'a>>, bool)> {
    start::ranks(ledger).map(|members| (members, false)).or_else(|| Some((idle(ledger)?, true)))
}

/// The live ranks of a job with communicators in which nothing has moved for a while and nothing is in flight: its ranks may wait
/// for each other in another library, such as Gloo.
fn idle<'t, 'a>(ledger: &'t Ledger<'a>) -> Option<Vec<&'t Member<'a>>> {
    let mut open = ledger.groups.iter().filter(|group| !group.is_ended).peekable();
    open.peek()?;
    let rests = |group: &Group<'_>| {
        !group.is_inside && group.front.is_none() && ledger.now_ns - group.moved_ns > WAITING_NS
    };
    if !open.all(rests) {
        return None;
    }
    let live = ledger.members.iter().filter(|member| !member.is_over() && !member.is_silent);
    let members: Vec<_> = live.filter(|member| member.word.digest.rank.is_some()).collect();
    (members.len() > 1).then_some(members)
}

/// The wait of this moment: a rank sleeps in a call that needs others, and has not run for a while.
pub(crate) fn look(ledger: &Ledger<'_>, settings: &Settings) -> Option<Standstill> {
    let (members, is_idle) = ranks(ledger)?;
    // What is stopped or gone is reported as that.
    let is_lost = |member: &Member<'_>| member.word.digest.rank.is_some() && member.is_broken(ledger.now_ns);
    if ledger.members.iter().any(is_lost) {
        return None;
    }
    let stand = |member: &&Member<'_>| member.word.waiting.stand(&member.word.digest, ledger.now_ns);
    let stands: Vec<RankPosition> = members.iter().map(stand).collect();
    // The first one to fall asleep in a call has waited for the others since then; all rest since the last one did.
    let in_call = stands.iter().filter(|stand| stand.call.is_some());
    let first_ns = in_call.filter_map(|stand| stand.asleep_ns).min()?;
    if ledger.now_ns - first_ns < WAITING_NS {
        return None;
    }
    let last_ns = stands.iter().filter_map(|stand| stand.asleep_ns).max()?;
    let ranked = || members.iter().zip(&stands).map(|(member, stand)| (rank(member), *member, stand));
    let absent: Vec<_> = ranked().filter(|(_, _, stand)| stand.call.is_none()).collect();
    let mut calls: BTreeMap<&BlockingCall, Vec<u32>> = BTreeMap::new();
    for (rank, _, stand) in ranked() {
        if let Some(call) = &stand.call {
            calls.entry(call).or_default().push(rank);
        }
    }
    let all_asleep = stands.iter().all(|stand| stand.asleep_ns.is_some());
    let functions: BTreeSet<&str> = calls.keys().map(|call| call.function.as_str()).collect();
    let in_calls: Vec<String> = calls.iter().take(MAX_NAMED).map(|(call, ranks)| told(call, ranks)).collect();
    let in_calls = in_calls.join(", ");
    let (shape, suspects, text, ends_not) = if !absent.is_empty() {
        let suspects: Vec<u32> = absent.iter().map(|(rank, ..)| *rank).collect();
        let does = absent.iter().take(MAX_NAMED).map(|(rank, member, _)| {
            format!("rank {rank}: {}", member.word.waiting.detail(&member.word.digest, ledger.now_ns))
        });
        let does = does.collect::<Vec<_>>().join("; ");
        let text = format!("{in_calls}; {} not come to it; {does}", has(&suspects));
        let ends_not = absent.iter().all(|(_, _, stand)| stand.is_stuck || stand.is_resting);
        (Shape::NeverEntered, suspects, text, ends_not)
    } else if functions.len() > 1 {
        let fewest = calls.values().map(Vec::len).min().unwrap_or_default();
        let is_clear = calls.values().any(|ranks| ranks.len() > fewest);
        let odd = calls.values().filter(|ranks| !is_clear || ranks.len() == fewest);
        let suspects: BTreeSet<u32> = odd.flatten().copied().collect();
        let text = format!("ranks wait in different calls: {in_calls}");
        (Shape::Mismatch, suspects.into_iter().collect(), text, all_asleep)
    } else {
        let (suspects, why) = start::suspects(ledger, &members);
        let text = if why.is_empty() {
            format!("{in_calls}, and none goes on")
        } else {
            format!("{in_calls}; {why}")
        };
        (Shape::Running, suspects, text, false)
    };
    // Whoever works may do what the others wait for; where all are in one call, a healthy job is, too, most of the time.
    let stands_still = if absent.is_empty() {
        all_asleep
    } else {
        stands.iter().all(|stand| stand.asleep_ns.is_some() || stand.call.is_some() || stand.is_resting)
    };
    let patience_ns = match (ends_not, is_idle) {
        (true, false) => STUCK_NS,
        (true, true) => IDLE_STUCK_NS,
        (false, _) => settings.first_floor_ns,
    };
    // A server without requests rests for hours, its ranks in one call or in several, or one of them at its input.
    let may_rest = is_idle && (absent.is_empty() || !ends_not);
    // Somebody out of sight may do what these wait for.
    let is_alarm = !may_rest && ledger.now_ns - last_ns >= patience_ns && is_whole(&members) && stands_still;
    let since_ns = if is_alarm { last_ns } else { first_ns };
    let states = ranked().take(MAX_STATES).map(|(rank, member, stand)| RankState {
        rank,
        host: ledger.nodes.get(member.node).map_or("", |node| node.name).to_owned(),
        pid: member.word.digest.pid,
        state: if stand.call.is_some() { "waits" } else { "absent" }.to_owned(),
        detail: member.word.waiting.detail(&member.word.digest, ledger.now_ns),
    });
    let mut states: Vec<RankState> = states.collect();
    states.sort_by_key(|state| (!suspects.contains(&state.rank), state.rank));
    let n_absent = absent.len() as u32;
    let n_states = [("waits", stands.len() as u32 - n_absent), ("absent", n_absent)];
    Some(Standstill {
        stall: Stall {
            since: seconds(since_ns),
            after_s: seconds(ledger.now_ns - since_ns),
            shape,
            text,
            states,
            n_states: n_states
                .into_iter()
                .filter(|(_, n)| *n > 0)
                .map(|(name, n)| (name.to_owned(), n))
                .collect(),
            suspects,
            ..Stall::default()
        },
        is_alarm,
    })
}

fn rank(member: &Member<'_>) -> u32 {
    member.word.digest.rank.unwrap_or_default()
}

/// `rank 0 waits in all_reduce at main (train.py:14)`.
fn told(call: &BlockingCall, ranks: &[u32]) -> String {
    let at = if call.from.is_empty() { String::new() } else { format!(" at {}", call.from) };
    format!("{} in {}{at}", who_waits(ranks), call.function)
}

/// Whether each rank of the job is there.
fn is_whole(members: &[&Member<'_>]) -> bool {
    let there: BTreeSet<u32> = members.iter().filter_map(|member| member.word.digest.rank).collect();
    let world = members.iter().filter_map(|member| member.word.digest.world_size).max();
    world.is_some_and(|world| there.len() == world as usize)
}
