//! Lateness by the rings' kernel times.

use ringleader_knowledge::remedy;
use ringleader_model::{Cause, Confidence, Evidence, Finding, Impact, Severity, SourceKind, Weight};

use super::{CLEAR_HABIT, CLEAR_LOST_SHARE, MIN_HABIT, MIN_LOST_SHARE, RULE};
use crate::drafting;
use crate::rule::Draft;
use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;
use ringleader_correlate::track::{Group, GroupRecorder, Origin, Track};
use ringleader_correlate::waits::lateness::{self, Late, LatenessOf};

/// Fewer late collectives than this are chance: one of two ranks is the last of all eight once in 128 groups.
pub(super) const MIN_LATE: usize = 8;
/// How far its share of the late collectives lies above that of chance, which is one half for two ranks. Of two healthy jobs of
/// two ranks that shared their GPUs with eleven others, one rank was the last in 71 % (two H100, 2026-11-24).
const OVER_CHANCE: f64 = 0.3;

// Chosen well above what a rank late by habit has to cost (MIN_LOST_SHARE), since how often it is late does not count here.
/// A rank that is late rarely costs at least this share of its peers' time,
const COSTLY: f64 = 0.3;
/// and this share of what ranks lose to one another,
const COSTLY_OF_ALL: f64 = 0.85;
/// by so many waits that half of it is theirs: a few long ones are checkpoints.
const COSTLY_WAITS: usize = 5;
// Chosen: as much as a habit must cost to be sure (CLEAR_LOST_SHARE, CLEAR_HABIT), for longer than one checkpoint takes.
/// Beyond all of these it is sure: the peers lose this share of their time to it, of what is lost at all this share, over a time
/// of this length, ns.
const SURE_COST: f64 = 0.4;
const SURE_OF_ALL: f64 = 0.9;
const SURE_NS: i64 = 20_000_000_000;

// Chosen: far above the microseconds by which kernels of one stream overlap where the host sees them end late.
/// An operation that begins by this much within another one, ns, runs beside it,
const BESIDE_NS: i64 = 1_000_000;
/// and a communicator does so with this share of its collectives.
const BESIDE: f64 = 0.1;

/// The late rank of each group, if one is late by habit.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let groups = scene.ledger().groups().iter().filter(|g| g.view == GroupRecorder::Ring);
    groups.filter_map(|group| finding(scene, group, &lateness::latest(scene.ledger(), group)?)).collect()
}

fn finding(scene: &Scene<'_>, group: &Group<'_>, late: &Late) -> Option<Finding> {
    let habit = late.n_last as f64 / late.n_late.max(1) as f64;
    let lost = late.lost_ns as f64 / late.span_ns.max(1) as f64;
    let n_seen = group.tracks.iter().flatten().count().max(2);
    let least = MIN_HABIT.max(1.0 / n_seen as f64 + OVER_CHANCE);
    let of_all = late.lost_ns as f64 / late.all_lost_ns.max(1) as f64;
    let is_costly = lost >= COSTLY && of_all >= COSTLY_OF_ALL && late.n_half >= COSTLY_WAITS;
    let is_habit = habit >= least && lost >= MIN_LOST_SHARE;
    if late.n_late < MIN_LATE || !is_habit && !is_costly {
        return None;
    }
    let is_sure = lost > CLEAR_LOST_SHARE && habit > CLEAR_HABIT
        || is_costly && lost > SURE_COST && of_all > SURE_OF_ALL && late.span_ns > SURE_NS;
    let track = group.tracks.get(late.member)?.as_ref()?;
    if group.tracks.iter().flatten().any(runs_beside) {
        return None;
    }
    let rank = group.rank(late.member);
    let node = rank.map_or(RankOrSource::Source(track.cite.source), RankOrSource::Rank);
    let (because, advice) = match late.of {
        Some(LatenessOf::Compute) => (
            ", its GPU is still busy with earlier work",
            "compare its GPU's clocks, power and amount of work with its peers'",
        ),
        Some(LatenessOf::Host) => (
            ", its program calls late",
            "look at its host: the data path, other processes, the program's own branches on the rank",
        ),
        None => ("", "compare its GPU, its data path and amount of work per step with its peers'"),
    };
    let others = group.tracks.iter().flatten().filter(|t| t.rank != track.rank).take(3);
    let ran = [track].into_iter().chain(others).filter_map(|t| kernel_time(t, late.worst));
    Draft::new(
        RULE.id,
        Cause::Straggler,
        format!(
            "{} comes {:.1} ms late to {:.0} % of late collectives of {}{because}; peers lose {:.0} % to it",
            drafting::who(&[node]),
            late.late_ns as f64 / 1e6,
            habit * 100.0,
            group.name,
            lost * 100.0
        ),
    )
    .severity(Severity::Warning)
    .weight(Weight::Derived)
    .confidence(if is_sure { Confidence::High } else { Confidence::Medium })
    .culprits(drafting::culprits(scene, &[node], None))
    .victims(group.ranks.iter().copied().flatten().filter(|r| Some(*r) != rank).collect())
    .evidence(ran)
    .advise_command(
        Impact::Harmless,
        "compare its GPU with the others: clocks, power, throttle reasons",
        remedy::SHOW_CLOCKS,
    )
    .advise(Impact::Harmless, advice)
    .build()
}

/// Other operations of the communicator begin while its collectives run: a rank does other things while one of them waits, so
/// that a wait is no loss, or the ends of its kernels are told wrongly.
fn runs_beside(track: &Track<'_>) -> bool {
    let Origin::Ring(ring) = track.origin else { return false };
    let spans = |ops: &mut dyn Iterator<Item = u32>| -> Vec<(i64, i64)> {
        let ended = ops.filter_map(|op| ring.ops.get(op as usize)).filter(|op| op.ended_ns > 0);
        ended.map(|op| (op.started_ns.max(op.enqueued_ns), op.ended_ns)).collect()
    };
    let collectives = spans(&mut track.ops.iter().copied());
    let mut starts: Vec<i64> = spans(&mut track.p2p.iter().map(|p2p| p2p.op)).iter().map(|s| s.0).collect();
    starts.extend(collectives.iter().map(|span| span.0));
    starts.sort_unstable();
    let is_beside = |(start, end): &&(i64, i64)| {
        let next = starts.partition_point(|other| *other <= start.saturating_add(BESIDE_NS));
        starts.get(next).is_some_and(|other| *other < end.saturating_sub(BESIDE_NS))
    };
    collectives.iter().filter(is_beside).count() as f64 > BESIDE * collectives.len() as f64
}

fn kernel_time(track: &Track<'_>, seq: u32) -> Option<Evidence> {
    let ms = lateness::ran_ns(track, seq)? as f64 / 1e6;
    let who = track.rank.map_or_else(|| "this rank".to_owned(), |r| format!("rank {}", r.0));
    let text = format!("{who} #{seq}: its kernel ran {ms:.2} ms");
    Some(Evidence { cite: track.cite_op(track.op(seq)?), text, kind: SourceKind::Ring })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_model::RingOp;

    /// 40 collectives, 10 ms apart; `late` says by how much a rank comes late to a number, and whether its GPU had had
    /// it in its queue all the time.
    fn job(late: impl Fn(u32, u32) -> (i64, bool)) -> StagedCase {
        (0..3).fold(StagedCase::job(3).rings(&["ar:9*40"; 3]), |job, rank| {
            job.change_ring(rank, |ring| {
                for op in &mut ring.ops {
                    let worst = (0..3).map(|r| late(r, op.number).0).max().unwrap_or(0);
                    let (mine, queued) = late(rank, op.number);
                    set(op, mine, worst, queued);
                }
            })
        })
    }

    fn set(op: &mut RingOp, mine: i64, worst: i64, queued: bool) {
        let due = op.enqueued_ns + 1_000_000;
        op.started_ns = due + mine;
        op.enqueued_ns = if queued { due - 1_000_000 } else { op.started_ns - 20_000 };
        op.ended_ns = due + worst + 300_000;
        op.gpu_ns = (op.ended_ns - op.started_ns) as u64;
    }

    /// What waits beside other operations holds nobody up.
    #[test]
    fn operations_that_run_beside_one_another() {
        let late = || job(|rank, _| (if rank == 1 { 3_000_000 } else { 50_000 }, false));
        assert_eq!(late().findings(&RULE).len(), 1);
        let beside = (0..3).fold(late(), |job, rank| {
            job.change_ring(rank, |ring| {
                for op in &mut ring.ops {
                    op.ended_ns += 15_000_000;
                }
            })
        });
        beside.silent(&RULE);
    }

    #[test]
    fn a_gpu_and_a_host_that_are_slow() {
        let slow = |queued: bool| job(move |rank, _| (if rank == 1 { 3_000_000 } else { 50_000 }, queued));
        let of_gpu = slow(true).finding(&RULE);
        assert!(
            of_gpu.title.contains("rank 1") && of_gpu.title.contains("GPU is still busy"),
            "{}",
            of_gpu.title
        );
        assert!(slow(false).finding(&RULE).title.contains("its program calls late"));
        slow(true).concludes(&RULE, "straggler 1, medium");
        slow(true).rings_gone().concludes(&RULE, "straggler 1, medium");
    }

    #[test]
    fn of_two_ranks_each_is_last_by_chance() {
        // `among` of twelve late collectives are rank 0's.
        let pair = |among: u32| {
            (0..2).fold(StagedCase::job(2).rings(&["ar:9*40"; 2]), |job, rank| {
                job.change_ring(rank, |ring| {
                    for op in &mut ring.ops {
                        let last = u32::from(op.number % 12 >= among);
                        set(op, if rank == last { 3_000_000 } else { 50_000 }, 3_000_000, false);
                    }
                })
            })
        };
        pair(8).silent(&RULE);
        pair(11).concludes(&RULE, "straggler 0, medium");
    }

    #[test]
    fn occasional_lateness_and_noise() {
        job(|rank, n| (if rank == 1 && n % 12 == 0 { 30_000_000 } else { 0 }, true)).silent(&RULE);
        job(|rank, n| (if rank == n % 3 { 4_000_000 } else { 0 }, true)).silent(&RULE);
        job(|rank, n| (i64::from(rank * 31 + n * 17) % 90 * 1_000, true)).silent(&RULE);
    }
}
