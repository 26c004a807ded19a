//! Whether the records can be of one moment.
//!
//! A running job may be examined too: its logs and dumps are copied rank after rank, and each copy ends a little later
//! than the one before. A rank that then seems to be behind was only copied first, and is not accused. Unless something
//! says that the job failed, records that contradict each other as one picture are taken to end before their ranks did.

use ringleader_model::{Case, OpKind};

use crate::calls::rhythm;
use crate::prepare::rings::Horizon;
use crate::said::watcher::StandStill;
use crate::track::{Call, Group, GroupRecorder, Track};
use crate::when::failure::JobFailure;

/// What the records show of the moment at which they were taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Something is stalled.
    pub is_stalled: bool,
    /// Records contradict each other as one picture, and nothing failed.
    pub may_run: bool,
}

/// Marks the records of a job that may still run as open at their end, where they contradict each other.
pub fn open_ends(
    groups: &mut [Group<'_>],
    calls: &[Call],
    case: &Case,
    failure: &JobFailure,
    stood_still: &[StandStill<'_>],
) -> Moment {
    let horizon = Horizon::new(case);
    let told = rhythm::told(case, stood_still, &horizon);
    let stalled = rhythm::stalled(groups, &horizon, told);
    if failure.is_stated() {
        return Moment { is_stalled: true, may_run: false };
    }
    let is_stalled = stalled.contains(&true);
    let n_open = |groups: &[Group<'_>]| {
        groups.iter().flat_map(|g| g.tracks.iter().flatten()).filter(|t| t.open_end).count()
    };
    let n_cut = n_open(groups);
    for (group, is_stalled) in groups.iter_mut().zip(stalled).filter(|(g, _)| g.view.knows_ends()) {
        open_older(group, calls);
        // Operations in flight of a job at work do not show which rank is behind.
        if group.view == GroupRecorder::Ring && !is_stalled {
            let unfinished = |t: &&Track<'_>| t.finished.is_some_and(|f| f < t.entered) || has_open_p2p(t);
            let is_apart = rhythm::ahead_ns(group, &horizon).is_some();
            if is_apart || group.tracks.iter().flatten().any(|t| unfinished(&t)) {
                group.tracks.iter_mut().flatten().for_each(|t| t.open_end = true);
            }
        }
    }
    let moved = |g: &Group<'_>| is_scattered(g) || is_steps_ahead(g) || went_on(g, groups);
    if groups.iter().any(|g| g.view == GroupRecorder::Nccl && moved(g)) {
        let logs = groups.iter_mut().filter(|g| g.view == GroupRecorder::Nccl);
        logs.flat_map(|g| g.tracks.iter_mut().flatten()).for_each(|t| t.open_end = true);
    }
    // What has ended does not run on, though its ring was held for a moment more.
    Moment { is_stalled, may_run: n_open(groups) > n_cut && !horizon.was_ended }
}

fn has_open_p2p(track: &Track<'_>) -> bool {
    track.p2p.iter().any(|p| p.done == Some(false))
}

/// Calls before the last finished one that are looked at for one that needs every rank: a pipeline sends some dozen
/// messages or broadcasts between two of them.
const LOOK_BACK: u32 = 64;

/// No rank finishes an all-reduce that another rank has not entered: that rank's record is the older one.
fn open_older(group: &mut Group<'_>, calls: &[Call]) {
    let needs_all = |track: &Track<'_>, seq: u32| {
        let kind = track.call(seq).and_then(|c| calls.get(c as usize)).map(|c| c.kind);
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
    };
    let finished = group.tracks.iter().flatten().filter_map(|track| {
        let last = track.finished?;
        (last.saturating_sub(LOOK_BACK)..=last).rev().find(|seq| needs_all(track, *seq))
    });
    let Some(finished) = finished.max() else { return };
    if group.tracks.iter().flatten().any(|t| t.entered < finished) {
        // A rank that has not finished it either may have done so since.
        let older = |t: &&mut Track<'_>| t.entered <= finished && t.finished.is_some_and(|f| f < finished);
        group.tracks.iter_mut().flatten().filter(older).for_each(|t| t.open_end = true);
    }
}

/// RAS, asked later, counts more launches of a rank than its log holds.
fn went_on(log: &Group<'_>, groups: &[Group<'_>]) -> bool {
    let Some(ras) = groups.iter().find(|g| g.view == GroupRecorder::Ras && g.name == log.name) else {
        return false;
    };
    log.tracks.iter().zip(&ras.tracks).any(|pair| match pair {
        // A log without calls was not asked for them.
        (Some(log), Some(ras)) => log.from_start && log.entered > 0 && ras.entered > log.entered,
        _ => false,
    })
}

/// Calls entered by the ranks of a group whose log is whole.
fn entered(group: &Group<'_>) -> Vec<u32> {
    group.tracks.iter().flatten().filter(|t| t.from_start && !t.open_end).map(|t| t.entered).collect()
}

/// Ranks that wait are at the same call; those of a running job were copied wherever they were.
fn is_scattered(group: &Group<'_>) -> bool {
    let entered = entered(group);
    let Some(least) = entered.iter().min() else { return false };
    let ahead: Vec<u32> = entered.iter().filter(|n| *n > least).copied().collect();
    let same = |n: u32| ahead.iter().filter(|m| **m == n).count();
    ahead.len() > 1 && ahead.iter().map(|n| same(*n)).max().is_some_and(|n| n * 2 < ahead.len())
}

/// Whole steps that no rank runs ahead of one that has stopped: its queue of launches fills (CUDA holds about a
/// thousand), or it reads a result, as nearly every program does in each step.
const STEPS: u32 = 2;
/// The same in calls, where the program shows no steps: chosen, above the calls of one step in the recorded cases.
const CALLS: u32 = 128;
/// Calls at the end of a log in which its steps are looked for: three steps of a large model, and little enough to
/// search.
const TAIL: usize = 512;

/// A rank is further ahead of another one than it could be if that one had stopped.
fn is_steps_ahead(group: &Group<'_>) -> bool {
    let entered = entered(group);
    let (Some(least), Some(most)) = (entered.iter().min(), entered.iter().max()) else { return false };
    if most == least {
        return false;
    }
    let leader = group.tracks.iter().flatten().find(|t| t.entered == *most && !t.open_end);
    let step = leader.and_then(|t| period(t.calls.get(t.calls.len().saturating_sub(TAIL)..)?));
    most - least > step.map_or(CALLS, |calls| calls.saturating_mul(STEPS))
}

/// The number of calls after which the calls repeat, by the borders of the reversed sequence (Knuth, Morris, Pratt);
/// None if it does not repeat three times, or is the same call all over.
fn period(calls: &[u32]) -> Option<u32> {
    let at = |i: usize| calls.len().checked_sub(i + 1).and_then(|i| calls.get(i));
    let mut borders = vec![0_usize];
    for i in 1..calls.len() {
        let mut k = borders.last().copied()?;
        while k > 0 && at(i) != at(k) {
            k = borders.get(k - 1).copied()?;
        }
        borders.push(if at(i) == at(k) { k + 1 } else { 0 });
    }
    // The longest stretch from the end that repeats; what came before it was another phase.
    let found = borders.iter().enumerate().filter_map(|(i, border)| {
        let period = i + 1 - border;
        (period > 1 && period * 3 <= i + 1).then_some((i, period))
    });
    found.max_by_key(|(i, _)| *i).and_then(|(_, period)| u32::try_from(period).ok())
}

#[cfg(test)]
mod tests {
    use super::period;

    #[test]
    fn steps_are_the_stretch_that_repeats_at_the_end() {
        assert_eq!(period(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 3]), Some(3));
        assert_eq!(period(&[1, 2, 3, 1, 2, 3, 1, 2]), None, "less than three times");
        assert_eq!(period(&[5, 5, 5, 5, 5, 5]), None, "one call all over shows no steps");
        assert_eq!(period(&[]), None);
        assert_eq!(period(&[7, 7, 8, 7, 7, 8, 7, 7, 8, 7]), Some(3));
    }
}
