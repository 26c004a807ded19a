//! How late each rank comes to the collectives of its group, without any clock in common.
//!
//! No rank leaves a collective that needs all ranks before the last one has come. Kernels of the same number therefore
//! end together, and how long each ran shows when it began: the one that ran shortest came last, by as much as the
//! others ran longer.

use ringleader_model::{OpKind, RingOp, median};

use crate::calls::ledger::Ledger;
use crate::track::{Group, Origin, Track};

/// First part of a record that is left out: warm-up steps take many times longer.
const WARM_UP_PERCENT: u32 = 15;
/// If its kernels wait for its GPU for less than one part in this many of its lateness, the host is late. Chosen: where they wait
/// longer, but less than all of it, host and GPU may both have a part.
const HOST_WAITS_ONE_IN: i64 = 4;
/// Lateness that counts, ns: kernels of one number differ by tens of microseconds anyway.
const MIN_LATE_NS: i64 = 200_000;

/// What one rank costs its group.
#[derive(Clone, Debug)]
pub struct Late {
    /// Place in the group.
    pub member: usize,
    /// Collectives to which it came last by more than chance.
    pub n_last: usize,
    /// Collectives to which any rank did.
    pub n_late: usize,
    /// Time that its peers have lost to it, ns.
    pub lost_ns: i64,
    /// Time that ranks have lost to any, ns.
    pub all_lost_ns: i64,
    /// Its longest waits that together make half of that time: how many.
    pub n_half: usize,
    /// Time from the first to the last collective that was looked at, ns.
    pub span_ns: i64,
    /// Median of its lateness where it was last, ns.
    pub late_ns: i64,
    /// Where the time goes, if the record shows it.
    pub of: Option<LatenessOf>,
    /// The collective to which it came latest.
    pub worst: u32,
}

/// Where a late rank loses its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatenessOf {
    /// Its GPU was still at work on what came before when the collective waited for its turn.
    Compute,
    /// Its program called late, and its GPU had nothing to do.
    Host,
}

/// A collective to which a rank came last: by how much, how long it had waited for its GPU, and its number.
type LastRow = (i64, i64, u32);

/// The rank that costs its group most, by the rings.
pub fn latest(ledger: &Ledger<'_>, group: &Group<'_>) -> Option<Late> {
    let tracks: Vec<(usize, &Track<'_>)> = group
        .tracks
        .iter()
        .enumerate()
        .filter_map(|(m, t)| Some((m, t.as_ref()?)))
        .filter(|(_, t)| matches!(t.origin, Origin::Ring(_)) && !t.calls.is_empty())
        .collect();
    if tracks.len() < 2 || tracks.len() < group.tracks.len() {
        return None;
    }
    let from = tracks.iter().map(|(_, t)| t.first_seq).max()?;
    let to = tracks.iter().map(|(_, t)| t.finished.unwrap_or(0).min(t.last_seq())).min()?;
    let from = from + to.checked_sub(from)? / 100 * WARM_UP_PERCENT;
    let mut sums: Vec<(usize, i64, Vec<LastRow>)> = vec![(0, 0, Vec::new()); tracks.len()];
    let mut n_late = 0;
    for seq in from..=to {
        let Some((last, late_ns, waited_ns)) = row(ledger, &tracks, seq) else { continue };
        n_late += 1;
        if let Some((n, lost, rows)) = sums.get_mut(last) {
            *n += 1;
            *lost = lost.saturating_add(late_ns);
            rows.push((late_ns, waited_ns, seq));
        }
    }
    let all_lost_ns = sums.iter().fold(0, |all: i64, (_, lost, _)| all.saturating_add(*lost));
    let (at, (n_last, lost_ns, rows)) =
        sums.into_iter().enumerate().max_by_key(|(at, (_, lost, _))| (*lost, std::cmp::Reverse(*at)))?;
    let worst = rows.iter().max()?.2;
    let n_half = of_half(rows.iter().map(|(late, ..)| *late).collect());
    let late_ns = median::upper(rows.iter().map(|(late, ..)| *late))?;
    let waited_ns = median::upper(rows.iter().map(|(_, waited, _)| *waited))?;
    let of = if waited_ns >= late_ns {
        Some(LatenessOf::Compute)
    } else if waited_ns < late_ns / HOST_WAITS_ONE_IN {
        Some(LatenessOf::Host)
    } else {
        None
    };
    let (member, track) = *tracks.get(at)?;
    let enqueued = |seq: u32| Some(op(track, seq)?.enqueued_ns);
    let span_ns = enqueued(to)? - enqueued(from)?;
    Some(Late { member, n_last, n_late, lost_ns, all_lost_ns, n_half, span_ns, late_ns, of, worst })
}

/// How many of the largest make half of the sum.
fn of_half(mut all: Vec<i64>) -> usize {
    all.sort_unstable_by_key(|ns| std::cmp::Reverse(*ns));
    let half = all.iter().fold(0, |all: i64, one| all.saturating_add(*one)) / 2;
    let sums = all.iter().scan(0_i64, |sum, ns| {
        let before = *sum;
        *sum = sum.saturating_add(*ns);
        Some(before)
    });
    sums.take_while(|before| *before < half).count()
}

/// Who came last to one collective, by how much, and how long it had waited for its GPU before its kernel began; None
/// if no rank came late, or the records do not show it.
fn row(ledger: &Ledger<'_>, tracks: &[(usize, &Track<'_>)], seq: u32) -> Option<(usize, i64, i64)> {
    let kind = ledger.get(tracks.first()?.1.call(seq)?)?.kind;
    let needs_all = matches!(
        kind,
        OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter | OpKind::AllToAll | OpKind::Barrier
    );
    let ops: Vec<&RingOp> = tracks.iter().map(|(_, t)| op(t, seq)).collect::<Option<_>>()?;
    if !needs_all || ops.iter().any(|op| op.is_captured || op.ended_ns == 0 || op.started_ns == 0) {
        return None;
    }
    // The GPU's own timer where all record it: the host sees kernels start and end a moment late.
    let by_gpu = ops.iter().all(|op| op.gpu_ns > 0);
    let ran = |op: &RingOp| {
        if by_gpu { i64::try_from(op.gpu_ns).unwrap_or(i64::MAX) } else { op.ended_ns - op.started_ns }
    };
    let (last, shortest) = ops.iter().enumerate().min_by_key(|(at, op)| (ran(op), *at))?;
    let others = ops.iter().enumerate().filter(|(at, _)| *at != last).map(|(_, op)| ran(op));
    let late_ns = median::upper(others)? - ran(shortest);
    (late_ns > MIN_LATE_NS.max(ran(shortest) / 2)).then_some((
        last,
        late_ns,
        shortest.started_ns - shortest.enqueued_ns,
    ))
}

/// How long the kernel of a collective ran on one rank, ns.
pub fn ran_ns(track: &Track<'_>, seq: u32) -> Option<i64> {
    let op = op(track, seq)?;
    let by_host = (op.started_ns > 0).then(|| op.ended_ns - op.started_ns);
    if op.gpu_ns > 0 { i64::try_from(op.gpu_ns).ok() } else { by_host }
}

fn op<'a>(track: &Track<'a>, seq: u32) -> Option<&'a RingOp> {
    let Origin::Ring(ring) = track.origin else { return None };
    ring.ops.get(track.op(seq)? as usize)
}
