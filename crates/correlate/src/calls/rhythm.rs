//! Whether operations in the rings have been in flight for longer than the job's own rhythm explains.
//!
//! A ring is read from a running job. An operation in flight then means nothing by itself; one that has been so for
//! several times as long as the job ever paused does. If NCCL reports only calls, the time is how long a rank has been
//! behind. Only times of one boot are compared with each other.

use std::collections::BTreeSet;

use ringleader_model::{Case, RingOp};

use crate::prepare::rings::{Horizon, rings};
use crate::said::watcher::{self, StandStill};
use crate::track::{Group, GroupRecorder, Origin, Track};

/// Nothing that lasts less is a stall, however fast the job was, ns.
const FLOOR_NS: i64 = 3_000_000_000;
/// The same for a group that has shown no rhythm yet: a first step that compiles takes minutes, ns.
const UNKNOWN_NS: i64 = 120_000_000_000;
/// The same for a job whose processes all ended, none in order: users end a job that hangs this long, ns.
const WAITED_NS: i64 = 30_000_000_000;
/// Fewer pauses than this show no rhythm.
const MIN_PAUSES: usize = 8;
/// Ranks of one group make the same calls: this many show its rhythm.
const MAX_TRACKS: usize = 32;
/// How many usual pauses make a stall.
const USUAL_TIMES: i64 = 5;
/// One pause in this many is longer than the usual one. Chosen: calls of a step come in bursts, so the usual pause is one of the
/// long ones, and checkpoints, which are rarer, do not set it.
const LONG_ONE_IN: usize = 20;
/// How much longer than the longest recent pause a stall is, percent.
const LONGEST_PERCENT: i64 = 150;

/// How long the oldest operation in flight of a track has been in flight, at least, ns.
pub fn age_ns(track: &Track<'_>, horizon: &Horizon<'_>) -> Option<i64> {
    let Origin::Ring(ring) = track.origin else { return None };
    let until = horizon.of(ring);
    let of = |op: u32| ring.ops.get(op as usize).map(|op| op.enqueued_ns);
    let collective = track.finished.and_then(|f| of(track.op(f.saturating_add(1))?));
    let p2p = track.p2p.iter().find(|p| p.done == Some(false)).and_then(|p| of(p.op));
    collective.into_iter().chain(p2p).min().map(|since| until - since)
}

/// How long some rank of a group whose ends cannot be seen has been ahead of another one, ns: it has called what that
/// one has not. None if no rank is ahead.
pub fn ahead_ns<'a>(group: &Group<'a>, horizon: &Horizon<'_>) -> Option<i64> {
    let tracks = || group.tracks.iter().flatten();
    if group.view != GroupRecorder::Ring || tracks().any(|t| t.finished.is_some()) {
        return None;
    }
    let next = tracks().map(|t| t.entered).min()?.saturating_add(1);
    let ring_of = |track: &Track<'a>| match track.origin {
        Origin::Ring(ring) => Some(ring),
        _ => None,
    };
    // Rings of several nodes are not taken at one moment: of those behind nothing is known after theirs.
    let behind = tracks().filter(|t| t.entered < next).filter_map(|t| Some(horizon.of(ring_of(t)?)));
    let until = behind.min()?;
    let ages = tracks().filter(|t| t.entered >= next).filter_map(|track| {
        // What the ring no longer holds is older than what it does.
        let op = track.op(next).or_else(|| track.ops.first().copied())?;
        Some(until - ring_of(track)?.ops.get(op as usize)?.enqueued_ns)
    });
    ages.max()
}

/// How long an operation is in flight at least, ns, to be what a watcher has seen; None if none is for so long. Where the watcher saw
/// a process end for which others wait, any that is in flight counts.
pub fn told(case: &Case, stood_still: &[StandStill<'_>], horizon: &Horizon<'_>) -> Option<i64> {
    let of_processes: Vec<StandStill<'_>> =
        stood_still.iter().filter(|s| s.is_of_process()).copied().collect();
    let is_seen = |of: &[StandStill<'_>], least_ns: i64| {
        is_in_flight(case, &watcher::communicators(of), horizon, least_ns).then_some(least_ns)
    };
    is_seen(stood_still, FLOOR_NS).or_else(|| is_seen(&of_processes, 0))
}

fn is_in_flight(case: &Case, comms: &BTreeSet<u64>, horizon: &Horizon<'_>, least_ns: i64) -> bool {
    !comms.is_empty()
        && rings(case).iter().any(|(_, ring)| {
            let is_meant = |comm: u32| ring.comms.get(comm as usize).is_some_and(|c| comms.contains(&c.id));
            let until = horizon.of(ring);
            let own = || ring.ops.iter().filter(|op| is_meant(op.comm));
            let is_old = |op: &RingOp| until.saturating_sub(op.enqueued_ns) > least_ns;
            // Where ends cannot be seen, nothing has been called since either.
            let is_blind = || own().any(|op| !op.is_end_visible && op.ended_ns == 0);
            own().any(|op| op.is_open() && is_old(op)) || is_blind() && own().all(is_old)
        })
}

/// Which groups are stalled; those of other views are not. `told`: a watcher, which saw the job's rhythm, says that
/// one is, see [`told`].
pub fn stalled(groups: &[Group<'_>], horizon: &Horizon<'_>, told: Option<i64>) -> Vec<bool> {
    let in_flight = |g: &Group<'_>| g.tracks.iter().flatten().filter_map(|t| age_ns(t, horizon)).max();
    let oldest: Vec<Option<i64>> =
        groups.iter().map(|g| in_flight(g).or_else(|| ahead_ns(g, horizon))).collect();
    let limits: Vec<Option<i64>> = groups.iter().map(limit_ns).collect();
    // A barely used group gets the patience of the other groups of its job.
    let patience = if horizon.was_ended { WAITED_NS } else { UNKNOWN_NS };
    let known = limits.iter().flatten().max().copied().unwrap_or(patience);
    let beyond = |limit: i64, age: &Option<i64>| age.is_some_and(|age| age > limit);
    let by_itself = |(age, limit): (&Option<i64>, &Option<i64>)| beyond(limit.unwrap_or(known), age);
    if told.is_none() && !oldest.iter().zip(&limits).any(by_itself) {
        return vec![false; groups.len()];
    }
    // Where one group is stalled, operations in flight in others for a while are stalled with it.
    oldest.iter().map(|age| beyond(told.unwrap_or(FLOOR_NS), age)).collect()
}

/// How long an operation of this group may be in flight before that is a stall, ns; None where the group has shown no
/// rhythm yet.
fn limit_ns(group: &Group<'_>) -> Option<i64> {
    if group.view != GroupRecorder::Ring {
        return None;
    }
    group.tracks.iter().flatten().take(MAX_TRACKS).filter_map(limit_of_track).max()
}

/// The rhythm of one rank: its pauses between calls of the group, and how long calls took.
fn limit_of_track(track: &Track<'_>) -> Option<i64> {
    let Origin::Ring(ring) = track.origin else { return None };
    let ops = track.ops.iter().chain(track.p2p.iter().map(|p| &p.op)).filter(|op| **op != Track::GAP);
    let mut times: Vec<(i64, i64)> = ops
        .filter_map(|op| ring.ops.get(*op as usize))
        .map(|op| (op.enqueued_ns, if op.ended_ns > 0 { op.ended_ns - op.enqueued_ns } else { 0 }))
        .collect();
    times.sort_unstable();
    let mut pauses: Vec<i64> = times
        .windows(2)
        .filter_map(|pair| match pair {
            [(a, took), (b, _)] => Some((b - a).max(*took)),
            _ => None,
        })
        .collect();
    if pauses.len() < MIN_PAUSES {
        return None;
    }
    // The recent half: the first one may hold the warm-up.
    let longest = pauses.iter().skip(pauses.len() / 2).copied().max()?;
    pauses.sort_unstable();
    let usual = *pauses.get(pauses.len() - 1 - pauses.len() / LONG_ONE_IN)?;
    Some(FLOOR_NS.max(usual.saturating_mul(USUAL_TIMES)).max((longest / 100).saturating_mul(LONGEST_PERCENT)))
}
