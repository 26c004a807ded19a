//! Estimated gains against true ones: made jobs are run with a fault and without it.

use ringleader_model::{Cause, OpKind};
use ringleader_trace::analyse;
use ringleader_trace::judge::EstimatedBy;

use crate::made::{COMM, Do, Job, MAIN};

const MIB: u64 = 1 << 20;
/// Estimates are this close to the truth.
const NEAR: f64 = 0.3;

/// The estimated gain of the advice on this cause is the true one; it is the first advice.
#[track_caller]
fn gains(cause: Cause, job: &Job, without: &Job) {
    let timelines = job.record();
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    let truth = (job.true_step_ns() - without.true_step_ns()) as f64 / job.true_step_ns() as f64 * 100.0;
    let first = analysis.advice.first().unwrap();
    let said = format!(
        "{cause:?}: true gain {truth:.1} % of {} ns; replayed {} ns; {:#?}",
        job.true_step_ns(),
        analysis.unrecorded_ns,
        analysis.advice
    );
    assert!(first.is_worth && first.cause == cause, "{said}");
    assert_eq!(first.estimated_by, EstimatedBy::Replay, "{said}");
    assert!((first.gain_pct / truth - 1.0).abs() <= NEAR, "{said}");
    // The job without the fault gets no such advice.
    let timelines = without.record();
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    assert!(!analysis.advice.iter().any(|one| one.is_worth && one.cause == cause), "{:#?}", analysis.advice);
}

/// Layers with their reductions, and an optimizer.
fn layers(n: usize, busy_ns: i64, kernel_ns: i64) -> Vec<Do> {
    let mut list = Vec::new();
    for _ in 0..n {
        list.extend([Do::Busy(busy_ns), Do::Kernel("gemm", kernel_ns)]);
        list.push(Do::Collective(OpKind::AllReduce, 32 * MIB, kernel_ns / 3));
    }
    list.extend([Do::WaitComm, Do::Kernel("adam", 300_000)]);
    list
}

fn with(program: &[Do], each: usize, what: &Do) -> Vec<Do> {
    let mut list = Vec::new();
    for (at, one) in program.iter().enumerate() {
        if at % each == 0 {
            list.push(what.clone());
        }
        list.push(one.clone());
    }
    list
}

#[test]
fn waiting_for_input() {
    let plain = layers(10, 30_000, 600_000);
    let mut list = plain.clone();
    list.insert(0, Do::Load(9_000_000));
    gains(Cause::DataLoadingBound, &Job::of(2, &list), &Job::of(2, &plain));
}

#[test]
fn values_that_are_read() {
    let plain = layers(20, 250_000, 300_000);
    gains(Cause::SyncStalls, &Job::of(2, &with(&plain, 3, &Do::Item)), &Job::of(2, &plain));
    gains(Cause::SyncStalls, &Job::of(2, &with(&plain, 3, &Do::Synchronize)), &Job::of(2, &plain));
}

#[test]
fn memory_that_is_allocated_within_the_step() {
    let plain = layers(20, 150_000, 300_000);
    gains(Cause::AllocatorStalls, &Job::of(2, &with(&plain, 6, &Do::Allocate(200_000))), &Job::of(2, &plain));
}

#[test]
fn copies_of_pageable_memory() {
    let plain = layers(10, 40_000, 600_000);
    let copy = |pageable, stream| Do::Copy { ns: 4_000_000, bytes: 100 * MIB, pageable, stream };
    let (mut slow, mut fast) = (plain.clone(), plain);
    slow.insert(0, copy(true, MAIN));
    fast.insert(0, copy(false, COMM + 1));
    gains(Cause::TransferBound, &Job::of(2, &slow), &Job::of(2, &fast));
}

#[test]
fn reductions_that_could_be_gathered() {
    // 20 us for each, and 300 GB/s.
    let cost = |bytes: u64| 20_000 + (bytes as f64 / 300.0) as i64;
    let mut slow = Vec::new();
    let mut fast = Vec::new();
    for layer in 0..96 {
        let compute = [Do::Busy(4_000), Do::Kernel("gemm", 20_000)];
        slow.extend(compute.clone());
        slow.push(Do::Collective(OpKind::AllReduce, MIB, cost(MIB) + 30_000));
        fast.extend(compute);
        if layer % 24 == 23 {
            fast.push(Do::Collective(OpKind::AllReduce, 24 * MIB, cost(24 * MIB)));
        }
    }
    for list in [&mut slow, &mut fast] {
        // The embedding has a large one of its own.
        list.push(Do::Collective(OpKind::AllReduce, 64 * MIB, cost(64 * MIB)));
        list.extend([Do::WaitComm, Do::Kernel("adam", 300_000)]);
    }
    gains(Cause::SmallMessages, &Job::of(2, &slow), &Job::of(2, &fast));
}

#[test]
fn hosts_that_launch_small_kernels() {
    let mut slow = Vec::new();
    let mut graph = Vec::new();
    for _ in 0..600 {
        slow.extend([Do::Busy(30_000), Do::Kernel("add", 6_000)]);
        graph.push(("add", 6_000));
    }
    let fast = vec![Do::Busy(30_000), Do::Graph(graph)];
    gains(Cause::HostBound, &Job::of(1, &slow), &Job::of(1, &fast));
}

#[test]
fn a_rank_with_a_slow_gpu() {
    let plain = layers(10, 30_000, 600_000);
    let mut slow = Job::of(4, &plain);
    for what in &mut slow.programs[1] {
        if let Do::Kernel(_, ns) = what {
            *ns = *ns * 3 / 2;
        }
    }
    gains(Cause::Straggler, &slow, &Job::of(4, &plain));
}

#[test]
fn a_rank_with_a_slow_host() {
    let plain = layers(10, 30_000, 600_000);
    let mut slow = Job::of(4, &plain);
    for (rank, program) in slow.programs.iter_mut().enumerate() {
        program.insert(0, if rank == 1 { Do::Busy(5_000_000) } else { Do::Nothing });
    }
    slow.programs[1].push(Do::Synchronize);
    let mut others = Job::of(4, &plain);
    others.programs[1].push(Do::Synchronize);
    gains(Cause::Straggler, &slow, &others);
}

#[test]
fn larger_work_on_one_rank() {
    let of = |ns: [i64; 4]| {
        let mut job = Job::of(4, &layers(10, 30_000, 600_000));
        for (program, ns) in job.programs.iter_mut().zip(ns) {
            for what in program {
                if let Do::Kernel("gemm", _) = what {
                    *what = Do::Blocks("gemm", ns, (ns / 10_000) as u32);
                }
            }
        }
        job
    };
    gains(Cause::LoadImbalance, &of([400_000, 400_000, 1_200_000, 400_000]), &of([600_000; 4]));
}

#[test]
fn a_slow_transport() {
    let of = |ns: i64| {
        let mut list = Vec::new();
        for _ in 0..10 {
            list.extend([Do::Busy(20_000), Do::Kernel("gemm", 500_000)]);
            list.push(Do::Collective(OpKind::AllReduce, 64 * MIB, ns));
        }
        list.extend([Do::WaitComm, Do::Kernel("adam", 300_000)]);
        let mut job = Job::of(2, &list);
        job.gpu = Some("NVIDIA H200");
        job
    };
    // 29 GB/s of bus bandwidth beside the 310 of the rule.
    gains(Cause::BandwidthBelowExpected, &of(2_300_000), &of(215_000));
}

#[test]
fn what_gains_nothing_is_not_advised() {
    let timelines = Job::of(2, &layers(10, 30_000, 600_000)).record();
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    assert!(analysis.n_tried > analysis.advice.len(), "{} tried: {:#?}", analysis.n_tried, analysis.advice);
    assert!(analysis.advice.iter().all(|one| !one.is_worth && format!("{:.0}", one.gain_pct) != "0"));
    // Reductions of which next to nothing is hidden, though the step waits for its host: hiding them gains nothing.
    let mut list = vec![Do::Busy(20_000_000), Do::Synchronize];
    for _ in 0..4 {
        list.extend([Do::Kernel("gemm", 10_000), Do::CollectiveInMain(OpKind::AllReduce, 32 * MIB, 20_000)]);
    }
    let timelines = Job::of(2, &list).record();
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    assert!(
        analysis.advice.iter().all(|one| format!("{:.0}", one.gain_pct) != "0"),
        "{:#?}",
        analysis.advice
    );
}

#[test]
fn the_line_that_reads_a_value_is_named_if_stacks_were_recorded() {
    use ringleader_model::{HostSpan, RuntimeCall, SpanKind};
    let mut timelines = Job::of(2, &with(&layers(20, 250_000, 300_000), 3, &Do::Item)).record();
    let seen = |timelines: &[ringleader_model::Timeline]| {
        let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
        assert_eq!(analysis.advice[0].cause, Cause::SyncStalls);
        analysis.advice[0].seen.clone()
    };
    assert!(!seen(&timelines).contains("train.py"));
    for timeline in &mut timelines {
        let first = timeline.names.len() as u32;
        timeline
            .names
            .extend(["train.py(31): log_loss", "torch/_tensor.py(9): wrapped", "aten::item"].map(Into::into));
        let syncs = timeline.host_spans.clone().into_iter();
        for sync in syncs.filter(|span| span.kind == SpanKind::Runtime(RuntimeCall::Synchronize)) {
            for (at, kind) in [SpanKind::Python, SpanKind::Python, SpanKind::Operator].into_iter().enumerate()
            {
                let (start_ns, end_ns) = (sync.start_ns - 30 + at as i64, sync.end_ns);
                timeline.host_spans.push(HostSpan {
                    start_ns,
                    end_ns,
                    name: first + at as u32,
                    kind,
                    link: 0,
                    ..sync
                });
            }
        }
        timeline.host_spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
    }
    let said = seen(&timelines);
    assert!(said.contains("(most of it in aten::item at train.py(31): log_loss)"), "{said}");
}
