//! Whether the records can be of one moment.
//!
//! A job that runs is looked at too: its logs and dumps are copied rank after rank, and each copy ends a little later
//! than the one before. Who then seems to be behind was only copied first. Unless something says that the job failed,
//! records that contradict each other as one picture are taken to end before their ranks did.

use ringleader_model::{Case, Fact, OpKind, TorchEvent};

use super::ledger::{Call, Group, Ledger, Track, View};

/// The first statement that something failed, in words.
pub fn stated_failure(case: &Case) -> Option<&'static str> {
    let of_torch = case.observations.iter().find_map(|o| match &o.fact {
        Fact::Torch(event) => match event {
            TorchEvent::WatchdogTimeout { .. } => Some("a collective timed out"),
            TorchEvent::WatchdogStuck { .. } => Some("a watchdog is stuck"),
            TorchEvent::AsyncError { .. } | TorchEvent::WatchdogDied { .. } => {
                Some("an NCCL error was reported")
            }
            TorchEvent::Exception(_) => Some("an exception was raised"),
            TorchEvent::Crash { .. } => Some("a process crashed"),
            TorchEvent::ChildFailure { .. } | TorchEvent::LauncherFailed { .. } => {
                Some("the launcher reports failed ranks")
            }
            _ => None,
        },
        _ => None,
    });
    let of_nccl = || {
        case.observations.iter().any(|o| match &o.fact {
            Fact::Nccl(log) => log.messages.iter().any(|m| m.is_warn && m.result.is_some_and(|r| r != 0)),
            _ => false,
        })
    };
    of_torch.or_else(|| of_nccl().then_some("NCCL reports an error"))
}

/// Marks the records of a job that may still run as open at their end, where they contradict each other.
pub fn open_ends(ledger: &mut Ledger<'_>, case: &Case) {
    if stated_failure(case).is_some() {
        return;
    }
    let Ledger { groups, calls, may_run } = ledger;
    let n_open = |groups: &[Group<'_>]| {
        groups.iter().flat_map(|g| g.tracks.iter().flatten()).filter(|t| t.open_end).count()
    };
    let n_cut = n_open(groups);
    for group in groups.iter_mut().filter(|g| g.view == View::Flight) {
        open_older(group, calls);
    }
    if groups.iter().any(|g| g.view == View::Nccl && is_scattered(g)) {
        let logs = groups.iter_mut().filter(|g| g.view == View::Nccl);
        logs.flat_map(|g| g.tracks.iter_mut().flatten()).for_each(|t| t.open_end = true);
    }
    *may_run = n_open(groups) > n_cut;
}

/// Calls before the last finished one that are looked at for one that needs every rank.
const LOOK_BACK: u32 = 64;

/// Nobody finishes an all-reduce that another rank has not entered: that rank's record is the older one.
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
        // Then whoever has not finished it either may have done so since.
        let older = |t: &&mut Track<'_>| t.entered <= finished && t.finished.is_some_and(|f| f < finished);
        group.tracks.iter_mut().flatten().filter(older).for_each(|t| t.open_end = true);
    }
}

/// Ranks that wait stand still at the same call; those of a running job were copied wherever they were.
fn is_scattered(group: &Group<'_>) -> bool {
    let entered: Vec<u32> =
        group.tracks.iter().flatten().filter(|t| t.from_start && !t.open_end).map(|t| t.entered).collect();
    let Some(least) = entered.iter().min() else { return false };
    let ahead: Vec<u32> = entered.iter().filter(|n| *n > least).copied().collect();
    let same = |n: u32| ahead.iter().filter(|m| **m == n).count();
    ahead.len() > 1 && ahead.iter().map(|n| same(*n)).max().is_some_and(|n| n * 2 < ahead.len())
}
