//! The order in which one rank calls all its groups: a step repeats itself, so a rank that breaks its own
//! pattern shows which call it left out.

use crate::track::{Origin, Track};

/// Repetitions that make a pattern.
const REPEATS: usize = 3;
/// Newest calls that are looked at.
const MOST_CALLS: usize = 4096;
/// Earlier calls that may begin the last whole repetition.
const MOST_PERIODS: usize = 64;
/// Newest calls of the group that may end the pattern.
const MOST_LAST: usize = 8;

/// What distinguishes one call of a rank from another: group and signature within its own record.
type CallKey = (u32, u32);

/// Whether the rank went on without the call of this track's group that was next in its own pattern: after repetitions
/// that are all alike it made the calls that follow that one, and finished the first of them or made several.
///
/// Groups that are merely called in another order do not show this: the rank is in the first call that is out of order.
pub fn left_out(track: &Track<'_>) -> bool {
    let Some(calls) = calls(track) else { return false };
    let of_group = |at: usize| calls.get(at).is_some_and(|c| c.is_own);
    let own: Vec<usize> = (0..calls.len()).rev().filter(|at| of_group(*at)).take(MOST_PERIODS).collect();
    own.iter()
        .enumerate()
        .take(MOST_LAST)
        .any(|(n, last)| own.iter().skip(n + 1).any(|earlier| is_left_out(&calls, *last, last - earlier)))
}

struct Made {
    key: CallKey,
    is_own: bool,
    is_done: bool,
}

/// Whether the calls repeat every `period` up to `last` and some way on, and then one of the group's is missing.
fn is_left_out(calls: &[Made], last: usize, period: usize) -> bool {
    let key = |at: usize| calls.get(at).map(|c| c.key);
    let repeats = |at: usize| at >= period && key(at) == key(at - period);
    let Some(start) = (last + 1).checked_sub(period * (REPEATS - 1)).filter(|s| *s >= period) else {
        return false;
    };
    if !(start..=last).all(repeats) {
        return false;
    }
    let Some(broken) = (last + 1..calls.len()).find(|at| !repeats(*at)) else { return false };
    let after = calls.get(broken..).unwrap_or_default();
    let pattern = calls.get(broken - period..broken).unwrap_or_default();
    let went_on = after.len() > 1 || after.first().is_some_and(|c| c.is_done);
    let next = |by: usize| pattern.iter().cycle().skip(by).take(after.len()).map(|c| c.key);
    let shift = (1..period).find(|by| next(*by).eq(after.iter().map(|c| c.key)));
    // Only one call of the group is missing, and nothing else is.
    went_on && shift == Some(1) && pattern.first().is_some_and(|c| c.is_own)
}

/// The newest calls of the rank in all its groups, oldest first. None where the record has no order over groups, or
/// lost some of them.
fn calls(track: &Track<'_>) -> Option<Vec<Made>> {
    let own = track.op(track.last_seq())? as usize;
    match track.origin {
        Origin::Ring(ring) if ring.n_lost == 0 && ring.n_torn == 0 => {
            let comm = ring.ops.get(own)?.comm;
            let skip = ring.ops.len().saturating_sub(MOST_CALLS);
            let made = ring.ops.iter().skip(skip).map(|op| Made {
                key: (op.comm, op.call),
                is_own: op.comm == comm,
                is_done: op.ended_ns > 0,
            });
            Some(made.collect())
        }
        Origin::Dump(dump) => {
            let group = dump.ops.get(own)?.group;
            let skip = dump.ops.len().saturating_sub(MOST_CALLS);
            let made = dump.ops.iter().skip(skip).map(|op| Made {
                key: (op.group.into(), op.signature),
                is_own: op.group == group,
                is_done: op.state == ringleader_model::OpState::Completed,
            });
            Some(made.collect())
        }
        _ => None,
    }
}
