//! Pipelines of four stages, and jobs of two nodes: made jobs whose truth is known.

use ringleader_model::{Cause, OpKind, Timeline};
use ringleader_trace::{Analysis, analyse};

use crate::made::{Do, Job};

const MIB: u64 = 1 << 20;
/// A forward pass of a stage and microbatch; backward takes twice as long.
const FORWARD_NS: i64 = 1_000_000;

fn look(timelines: &[Timeline]) -> Analysis<'_> {
    analyse(timelines.iter().map(|timeline| (timeline, None)))
}

/// A schedule of all forward, then all backward passes in slots of time: in each slot a stage computes one microbatch, then
/// hands it on. `slow` is a stage that takes `factor` times as long.
fn pipeline(n_stages: u32, n_microbatches: u32, slow: Option<(u32, f64)>) -> Job {
    let n_slots = n_microbatches + n_stages - 1;
    let mut programs: Vec<Vec<Do>> = vec![Vec::new(); n_stages as usize];
    for is_forward in [true, false] {
        for slot in 0..n_slots {
            // The microbatch of a stage in this slot.
            let has = |stage: u32| {
                let depth = if is_forward { stage } else { n_stages - 1 - stage };
                slot.checked_sub(depth).is_some_and(|microbatch| microbatch < n_microbatches)
            };
            for stage in 0..n_stages {
                let factor = slow.filter(|(which, _)| *which == stage).map_or(1.0, |(_, factor)| factor);
                let ns = (if is_forward { FORWARD_NS } else { 2 * FORWARD_NS }) as f64 * factor;
                let name = if is_forward { "forward" } else { "backward" };
                let program = &mut programs[stage as usize];
                if has(stage) {
                    program.extend([Do::Busy(20_000), Do::Kernel(name, ns as i64)]);
                } else {
                    program.extend([Do::Nothing, Do::Nothing]);
                }
            }
            // Each border between two stages has its own place, so that the ends of a transfer meet.
            for border in 0..n_stages - 1 {
                let (from, to) = if is_forward { (border, border + 1) } else { (border + 1, border) };
                for stage in 0..n_stages {
                    let transfer =
                        |peer, is_send| Do::Transfer { peer, is_send, bytes: 16 * MIB, ns: 60_000 };
                    programs[stage as usize].push(match stage {
                        _ if !has(from) => Do::Nothing,
                        _ if stage == from => transfer(to, true),
                        _ if stage == to => transfer(from, false),
                        _ => Do::Nothing,
                    });
                }
            }
        }
    }
    for program in &mut programs {
        program.push(Do::Kernel("adam", 200_000));
    }
    Job { programs, ..Job::of(0, &[]) }
}

#[test]
fn a_pipeline_of_four_stages_is_explained_by_the_replay() {
    for n_microbatches in [4, 8, 16] {
        let job = pipeline(4, n_microbatches, None);
        let timelines = job.record();
        let analysis = look(&timelines);
        let truth = job.true_step_ns();
        assert!((analysis.step_ns - truth).abs() * 20 < truth, "{} of {truth}", analysis.step_ns);
        let share = analysis.replayed_ns as f64 / analysis.step_ns as f64;
        assert!((0.97..1.03).contains(&share), "{n_microbatches}: {share}");
    }
}

#[test]
fn few_microbatches_leave_a_bubble_and_many_do_not() {
    let timelines = pipeline(4, 4, None).record();
    let analysis = look(&timelines);
    let first = analysis.advice.first().unwrap();
    assert_eq!(
        (first.cause, first.is_worth, first.culprits.len()),
        (Cause::PipelineBubble, true, 0),
        "{first:?}"
    );
    // 3 of 7 slots are empty on each stage.
    let share = analysis.lateness.p2p_wait_ns as f64 / analysis.step_ns as f64;
    assert!((0.3..0.5).contains(&share), "{share}");
    let timelines = pipeline(4, 48, None).record();
    let analysis = look(&timelines);
    assert!(analysis.advice.iter().all(|one| !one.is_worth), "{:#?}", analysis.advice);
}

#[test]
fn a_slow_stage_of_four_is_replayed() {
    let (slow, even) = (pipeline(4, 16, Some((2, 1.5))), pipeline(4, 16, None));
    let timelines = slow.record();
    let analysis = look(&timelines);
    let share = analysis.replayed_ns as f64 / analysis.step_ns as f64;
    assert!((0.97..1.03).contains(&share), "{share}");
    assert!(slow.true_step_ns() > even.true_step_ns() * 13 / 10);
    let first = analysis.advice.first().unwrap();
    assert!(first.is_worth, "{:#?}", analysis.advice);
    assert!(
        matches!(first.cause, Cause::PipelineBubble | Cause::Straggler | Cause::LoadImbalance),
        "{:#?}",
        analysis.advice
    );
}

/// Two nodes of two ranks; the second node's clock is off by much more than a step.
fn two_nodes(slow: Option<u32>) -> Job {
    let mut list = Vec::new();
    for _ in 0..10 {
        list.extend([Do::Busy(20_000), Do::Kernel("gemm", 800_000)]);
        list.push(Do::Collective(OpKind::AllReduce, 32 * MIB, 300_000));
    }
    list.extend([Do::WaitComm, Do::Kernel("adam", 200_000)]);
    let mut job = Job { per_host: Some((2, 7_300_000_000)), ..Job::of(4, &list) };
    if let Some(rank) = slow {
        for what in &mut job.programs[rank as usize] {
            if let Do::Kernel("gemm", ns) = what {
                *ns += 400_000;
            }
        }
    }
    job
}

#[test]
fn ranks_of_two_nodes_are_paired_and_their_clocks_aligned() {
    for is_annotated in [true, false] {
        let job = Job { is_annotated, ..two_nodes(None) };
        let timelines = job.record();
        let analysis = look(&timelines);
        assert_eq!(analysis.views.iter().map(|view| view.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(analysis.join.is_aligned(), "{:?}", analysis.join.residual_ns);
        let shifts = &analysis.join.shift_ns;
        assert!((shifts[2] - shifts[0] + 7_300_000_000).abs() < 10_000, "{shifts:?}");
        assert!((shifts[3] - shifts[2]).abs() < 10_000, "{shifts:?}");
        // Every all-reduce of all four ranks, and no other.
        assert_eq!(analysis.join.ops.len(), 10 * job.n_steps);
        assert!(analysis.join.ops.iter().all(|op| op.members.len() == 4));
        assert_eq!(analysis.join.n_alone, 0);
        assert!(analysis.sizes.iter().all(|class| class.n_nodes == Some(2)), "{:?}", analysis.sizes);
        assert!(analysis.advice.iter().all(|one| !one.is_worth), "{:#?}", analysis.advice);
    }
}

#[test]
fn a_late_rank_of_the_other_node_is_named() {
    let (job, without) = (two_nodes(Some(3)), two_nodes(None));
    let timelines = job.record();
    let analysis = look(&timelines);
    let first = analysis.advice.first().unwrap();
    assert_eq!((first.cause, first.culprits.as_slice()), (Cause::Straggler, &[3][..]), "{first:?}");
    let truth = 100.0 * (1.0 - without.true_step_ns() as f64 / job.true_step_ns() as f64);
    assert!((first.gain_pct / truth - 1.0).abs() < 0.3, "{truth} {first:?}");
}
