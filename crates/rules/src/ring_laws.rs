//! Verdicts on rings alone, and on rings beside other evidence.

use ringleader_correlate::staging::jobs::{START_NS, STEP_NS};
use ringleader_model::{Cause, Rank, RingRecord};

use crate::diagnose;
use crate::trial::StagedCase;

#[track_caller]
fn says(stage: &StagedCase, expected: &str) {
    let verdict = diagnose(&stage.case);
    let ranks: ringleader_model::RankSet = verdict.culprits.iter().filter_map(|c| c.rank).collect();
    let said = format!("{} {ranks}, {}", verdict.cause, verdict.confidence);
    assert_eq!(said.replace(" ,", ","), expected, "{verdict:#?}");
}

const FETCH: (&str, u32, &str) = ("/srv/data.py", 31, "read_shard");

#[test]
fn collective_logic() {
    let job = |scripts: &[&str]| StagedCase::job(scripts.len() as u32).rings(scripts);
    // Rank 2 left out #13; its next call is another one.
    says(
        &job(&["ar:9*12 ar:4? ag:7!", "ar:9*12 ar:4? ag:7!", "ar:9*12 ag:7?"]),
        "skipped-collective 2, medium",
    );
    says(&job(&["ar:9*12 ar:4?", "ar:9*12 ar:4?", "ar:9*12 bc:1? ar:4!"]), "extra-collective 2, high");
    says(
        &job(&["ar:9*12 ar:4? ar:9!*3", "ar:9*12 ar:4? ar:9!*3", "ar:9*12 ar:5? ar:9!*3"]),
        "shape-mismatch 2, high",
    );
    says(
        &job(&["ar:9*12 ar:4? ar:9!", "ar:9*12 ar:4? ar:9!", "ar:9*12 ar:4:Half? ar:9!"]),
        "dtype-mismatch 2, high",
    );
    says(
        &job(&["ar:9*12 ar:4? ag:4!", "ar:9*12 ar:4? ag:4!", "ar:9*12 ag:4? ar:4!"]),
        "collective-order-mismatch 2, high",
    );
    says(&job(&["ar:9*12 ar:4? ar:9!", "ar:9*12 ar:4? ar:9!", "ar:9*12 rs:4? ar:9!"]), "op-mismatch 2, high");
}

#[test]
fn circles_and_messages() {
    let two = |scripts: &[&str]| StagedCase::job(2).group("a", 0..2).group("b", 0..2).rings(scripts);
    let step = "a/ar:8*9 b/ar:8*9";
    says(&two(&[&format!("{step} a/ar:8?"), &format!("{step} b/ar:8?")]), "deadlock-cycle 0-1, high");
    let pipe = |scripts: &[&str]| StagedCase::job(2).rings(scripts);
    says(&pipe(&["send>1:8*12 ar:9?", "recv<0:8*12 recv<0:8?"]), "unmatched-p2p 0, medium");
    says(&pipe(&["send>1:8*12", "recv<0:8*12 recv<0:8?"]), "stuck-outside-collective 0, low");
    // To a ring an all-to-all is messages to all ranks.
    let all: Vec<String> = (0..3).map(|p| format!("send>{p}:8? recv<{p}:8?")).collect();
    let entered = format!("ar:9*12 {}", all.join(" "));
    let at_once = |ring: &mut ringleader_model::RingRecord| {
        let first = ring.ops.iter().find(|op| op.is_p2p).map(|op| op.enqueued_ns);
        ring.ops.iter_mut().filter(|op| op.is_p2p).for_each(|op| op.enqueued_ns = first.unwrap_or_default());
    };
    let job =
        StagedCase::job(3).rings(&[&entered, &entered, "ar:9*12"]).stands(2, &[FETCH]).each_ring(at_once);
    says(&job, "stuck-outside-collective 2, high");
}

#[test]
fn who_is_not_there() {
    let waiting = || StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"]);
    says(&waiting(), "stuck-outside-collective 2, low");
    says(&waiting().stands(2, &[FETCH]), "stuck-outside-collective 2, high");
    says(&waiting().ring_gone(2), "peer-process-died 2, medium");
    says(&waiting().ps("R R T"), "process-stopped 2, high");
    says(&waiting().ps("R R D:nfs_wait_bit"), "process-uninterruptible 2, high");
    says(&waiting().ring_ended(2), "rank-exited-early 2, medium");
    // Its own word on how it ended.
    says(&waiting().ring_exited(2, 0), "rank-exited-early 2, medium");
    says(&waiting().ring_exited(2, 3), "application-exception 2, medium");
    says(&waiting().ring_exited(2, 1), "peer-process-died 2, medium");
    // It died within an operation that it had entered.
    let within = StagedCase::job(3).rings(&["ar:9*12 ar:9?"; 3]);
    says(&within.ring_gone(1), "peer-process-died 1, medium");
}

/// A user who had waited ended all ranks at once, and the watcher saw when.
#[test]
fn all_were_ended_while_they_waited() {
    use ringleader_model::{Fact, Rank, SourceKind, WatchEvent, WatchedEnd, Who};
    let ended_after = |seconds: i64, job: ringleader_correlate::staging::StagedCase| {
        let mut at_ns = 0;
        let job =
            job.rings_gone().each_ring(|ring| at_ns = ring.taken_ns.max(at_ns) + seconds * 1_000_000_000);
        let end = |rank| WatchedEnd { rank: Rank(rank), at_ns, exit_code: Some(-9) };
        let gone = WatchEvent::Gone((0..3).map(end).collect(), true);
        job.push(SourceKind::Watch, Who::default(), Fact::Watch(gone))
    };
    let scripts = ["ar:9*20 ar:9?", "ar:9*20 ar:9?", "ar:9*20"];
    says(&ended_after(45, StagedCase::job(3).rings(&scripts)), "stuck-outside-collective 2, low");
    says(&ended_after(0, StagedCase::job(3).rings(&scripts)), "undecided, low");
    // Killed in the middle of its work, one of them held its ring for a moment more.
    let mut at_ns = 0;
    let live = StagedCase::job(3).rings(&scripts).rings_read_after(300);
    let live = live.each_ring(|ring| at_ns = ring.taken_ns.max(at_ns));
    says(&live, "none, low");
    let end = |rank| WatchedEnd { rank: Rank(rank), at_ns, exit_code: Some(-9) };
    let gone = WatchEvent::Gone((0..3).map(end).collect(), true);
    says(&live.push(SourceKind::Watch, Who::default(), Fact::Watch(gone)), "undecided, low");
    // No rhythm is known yet: a start may take long, but somebody had waited.
    let scripts = ["ar:9*3 ar:9?", "ar:9*3 ar:9?", "ar:9*3"];
    says(&ended_after(45, StagedCase::job(3).rings(&scripts)), "stuck-outside-collective 2, low");
    says(&ended_after(5, StagedCase::job(3).rings(&scripts)), "undecided, low");
}

#[test]
fn a_job_at_work_accuses_nobody() {
    let scripts = ["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"];
    says(&StagedCase::job(3).rings(&scripts).rings_read_after(300), "none, low");
    // Read rank after rank, each a little later.
    says(
        &StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*15 ar:9?", "ar:9*19"]).rings_read_after(300),
        "none, low",
    );
    // A first step that compiles for a minute.
    says(&StagedCase::job(3).rings(&["ar:9?", "ar:9?", ""]), "none, low");
    // It ended in order.
    says(&StagedCase::job(3).rings(&["ar:9*12"; 3]).each_ended(), "none, medium");
    // Nothing in flight, not closed: the program ended silently.
    says(&StagedCase::job(3).rings(&["ar:9*12"; 3]).rings_gone(), "none, low");
}

#[test]
fn a_pause_that_the_job_has_shown_before() {
    // Every tenth call comes a minute after its predecessor, as for a checkpoint.
    let job = StagedCase::job(3).rings(&["ar:9*40 ar:9?", "ar:9*40 ar:9?", "ar:9*40"]).each_ring(|ring| {
        let mut shift = 0;
        for op in &mut ring.ops {
            shift += if op.number % 10 == 0 { 60_000_000_000 } else { 0 };
            op.enqueued_ns += shift;
            op.started_ns += shift;
            op.ended_ns += if op.ended_ns > 0 { shift } else { 0 };
        }
        ring.taken_ns += shift;
    });
    says(&job, "none, low");
    says(&job.rings_read_after(400_000), "stuck-outside-collective 2, low");
}

#[test]
fn a_ring_of_an_earlier_job_beside_it() {
    let earlier = StagedCase::job(3)
        .rings(&["ar:9*5 ar:9?", "ar:9*5 ar:9?", "ar:9*5"])
        .rings_gone()
        .each_ring(|ring| {
            ring.taken_ns -= 3_600_000_000_000;
            ring.start_ticks = 7;
            ring.comms.iter_mut().for_each(|comm| comm.id += 99);
        });
    let mut both = StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9!", "ar:9*12 ar:9?"]);
    let n_sources = both.case.sources.len() as u32;
    both.case.sources.extend(earlier.case.sources);
    both.case.observations.extend(earlier.case.observations.into_iter().map(|mut o| {
        o.cite.source.0 += n_sources;
        o
    }));
    says(&both, "gpu-kernel-stuck 1, medium");
    assert!(diagnose(&both.case).needs.iter().any(|n| n.question.starts_with("3 rings are of earlier jobs")));
}

#[test]
fn a_killed_job() {
    let scripts = ["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"];
    says(&StagedCase::job(3).rings(&scripts).rings_gone(), "undecided, low");
    // With a launcher's account of it.
    let killed = StagedCase::job(3).rings(&scripts).rings_gone().failed(1, -9, true).failed(0, -15, false);
    says(&killed, "process-killed 1, high");
}

#[test]
fn views_agree() {
    let scripts = ["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"];
    let job = || StagedCase::job(3).logs().rings(&scripts);
    says(&job().dumps(&scripts).stands(2, &[FETCH]), "stuck-outside-collective 2, high");
    says(&job().ras(&["ar:13", "ar:13", "ar:12"]).stands(2, &[FETCH]), "stuck-outside-collective 2, high");
    says(
        &job().dumps(&scripts).timed_out(0, "ar:9", 13, 13).stands(2, &[FETCH]),
        "stuck-outside-collective 2, high",
    );
}

/// When the last of 30 calls was made.
const LAST_NS: i64 = START_NS + 29 * STEP_NS;

/// NCCL reports only calls (kernels are not reported, and nothing goes over the network): the newest few are in flight.
fn calls_alone(ring: &mut RingRecord) {
    for op in ring.ops.iter_mut().rev().take(7) {
        (op.is_end_visible, op.channels, op.started_ns, op.ended_ns) = (false, (0, 0), 0, 0);
    }
}

fn names(stage: &StagedCase) -> (Cause, Vec<Rank>) {
    let verdict = diagnose(&stage.case);
    (verdict.cause, verdict.culprits.iter().filter_map(|c| c.rank).collect())
}

#[test]
fn calls_alone_name_a_rank_that_has_been_behind_for_long() {
    let job = |scripts: &[&str], after_ns: i64, is_cut: bool| {
        names(&StagedCase::job(3).rings(scripts).each_ring(|ring| {
            ring.taken_ns = LAST_NS + after_ns;
            calls_alone(ring);
            // Overwritten since.
            ring.ops.drain(..if is_cut { 9 } else { 0 });
        }))
    };
    let late = ["ar:9*30", "ar:9*30", "ar:9*29"];
    for is_cut in [false, true] {
        assert_eq!(job(&late, 4_000_000_000, is_cut), (Cause::StuckOutsideCollective, vec![Rank(2)]));
        assert_eq!(job(&late, 5_000_000, is_cut), (Cause::None, vec![]), "a moment is no stall");
        assert_eq!(job(&["ar:9*30"; 3], 60_000_000_000, is_cut), (Cause::None, vec![]));
    }
}

#[test]
fn of_a_ring_that_was_copied_earlier_nothing_later_is_known() {
    let job = |behind_after_ns: i64| {
        names(&StagedCase::job(2).rings_on(&["ar:9*30", "ar:9*29"], &[1, 2]).each_ring(|ring| {
            let is_behind = ring.ops.len() == 29;
            ring.taken_ns = LAST_NS + if is_behind { behind_after_ns } else { 6_000_000_000 };
            calls_alone(ring);
        }))
    };
    assert_eq!(job(6_000_000_000), (Cause::StuckOutsideCollective, vec![Rank(1)]));
    assert_eq!(job(50_000_000), (Cause::None, vec![]));
}

/// As NCCL 2.26 reports it: no sizes.
fn without_sizes(ring: &mut RingRecord) {
    ring.interface = 3;
    ring.comms.iter_mut().for_each(|comm| comm.size = 0);
}

#[test]
fn a_rank_that_did_not_enter_is_named_whatever_the_release() {
    let stage = || StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"]);
    for stage in [stage(), stage().each_ring(without_sizes)] {
        assert_eq!(names(&stage), (Cause::StuckOutsideCollective, vec![Rank(2)]));
    }
}
