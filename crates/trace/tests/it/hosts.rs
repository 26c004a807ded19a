//! Jobs that their hosts bound: made timelines of two ranks, whose recorder slows them down.

use ringleader_model::{
    Cause, CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, StepMark, Timeline,
    WorkKind,
};
use ringleader_trace::{Analysis, analyse};

const N_STEPS: i64 = 6;
/// Operators of a step; each launches a kernel of 10 us.
const N_OPS: i64 = 200;
const KERNEL_NS: i64 = 10_000;
/// An operator takes this long on the host, and its own first operator begins this long after it.
const OP_NS: i64 = 60_000;
const NESTED_NS: i64 = 1_200;

/// Two ranks. The host of the first one takes `slower_ns` longer for each operator; the second one runs ahead by
/// `ahead_ns`, and waits in the collective at the end of each step.
fn ranks(slower_ns: i64, ahead_ns: i64) -> [Timeline; 2] {
    let mut timelines = [0_u32, 1].map(|rank| {
        let mut timeline = Timeline::new(Recorder::Torch);
        (timeline.rank, timeline.device) = (Some(Rank(rank)), Some(rank));
        timeline.names = ["aten::mul", "aten::inner", "cudaLaunchKernel", "gemm", "ncclDevKernel_AllReduce"]
            .map(Into::into)
            .to_vec();
        timeline
    });
    let mut begun = [0_i64, -ahead_ns];
    let mut free = [0_i64; 2];
    for number in 0..N_STEPS {
        let mut called = [0; 2];
        for (rank, timeline) in timelines.iter_mut().enumerate() {
            let op_ns = OP_NS + if rank == 0 { slower_ns } else { 0 };
            let start_ns = begun[rank];
            for at in 0..=N_OPS {
                let from = start_ns + at * op_ns;
                let link = timeline.work.len() as u32 + 1;
                let mut push = |name, kind, from, to| {
                    timeline.host_spans.push(HostSpan {
                        start_ns: from,
                        end_ns: to,
                        name,
                        thread: 1,
                        kind,
                        link,
                    });
                };
                push(0, SpanKind::Operator, from, from + op_ns);
                push(1, SpanKind::Operator, from + NESTED_NS, from + op_ns - 2_000);
                push(2, SpanKind::Runtime(RuntimeCall::Launch), from + op_ns - 8_000, from + op_ns - 3_000);
                if at == N_OPS {
                    called[rank] = (from + op_ns).max(free[rank]);
                    break;
                }
                let start_ns = (from + op_ns).max(free[rank]);
                free[rank] = start_ns + KERNEL_NS;
                timeline.work.push(work(3, WorkKind::Compute, (start_ns, free[rank]), link, 0));
            }
            begun[rank] = start_ns + (N_OPS + 1) * op_ns;
            timeline.steps.push(StepMark {
                number: number as u64,
                start_ns,
                end_ns: begun[rank],
                bytes: (number as u64, number as u64 + 1),
            });
        }
        let end_ns = called[0].max(called[1]) + 200_000;
        for (rank, timeline) in timelines.iter_mut().enumerate() {
            timeline.calls.push(CommCall {
                kind: Some(OpKind::AllReduce),
                group: "0".into(),
                group_size: 2,
                in_elements: 16 << 20,
                out_elements: 16 << 20,
                element_bytes: 4,
                ..CommCall::default()
            });
            let (link, call) = (timeline.work.len() as u32 + 1, timeline.calls.len() as u32);
            timeline.work.push(work(4, WorkKind::Comm, (called[rank], end_ns), link, call));
            free[rank] = end_ns;
        }
    }
    timelines
}

fn work(
    name: u32,
    kind: WorkKind,
    (start_ns, end_ns): (i64, i64),
    correlation: u32,
    call: u32,
) -> DeviceWork {
    let stream = if kind == WorkKind::Comm { 20 } else { 7 };
    DeviceWork { start_ns, end_ns, name, stream, kind, correlation, call, size_bytes: 0, n_blocks: 1 }
}

fn is_late(analysis: &Analysis<'_>) -> bool {
    analysis.advice.iter().any(|advice| advice.cause == Cause::Straggler && advice.is_worth)
}

#[test]
fn of_two_equal_hosts_none_is_late() {
    // The second one is two steps ahead, so that it waits for most of each step.
    let timelines = ranks(1_500, 2 * N_OPS * OP_NS);
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    let straggler = analysis.lateness.straggler.expect("the second rank waits for the first");
    assert!(straggler.lead_ns > 0, "{straggler:?}");
    assert!(!is_late(&analysis), "{:?}", analysis.advice);
}

#[test]
fn a_host_that_does_more_is_late() {
    let timelines = ranks(OP_NS, 0);
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    assert!(is_late(&analysis), "{:?}", analysis.advice);
    assert_eq!(analysis.advice[0].culprits, [0]);
}

#[test]
fn the_recorder_costs_what_nested_operators_show() {
    let timelines = ranks(0, 0);
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    let cost = analysis.views[0].record_ns;
    assert!((2 * NESTED_NS..3 * NESTED_NS).contains(&cost), "{cost}");
    assert!(analysis.unrecorded_ns < analysis.replayed_ns, "three events for each operator");
}

/// Long launches; of every `each`-th one the kernel has ended before the launch has.
fn with_long_launches(each: usize) -> [Timeline; 2] {
    let mut timelines = ranks(0, 0);
    for timeline in &mut timelines {
        for span in timeline.host_spans.iter_mut().filter(|span| span.name == 2) {
            span.start_ns -= 45_000;
        }
        let launches: Vec<HostSpan> =
            timeline.host_spans.iter().filter(|span| span.name == 2).copied().collect();
        for work in timeline.work.iter_mut().filter(|w| w.kind == WorkKind::Compute).step_by(each) {
            let Some(launch) = launches.iter().find(|launch| launch.link == work.correlation) else {
                continue;
            };
            (work.start_ns, work.end_ns) = (launch.end_ns - 39_000, launch.end_ns - 1_000);
        }
        timeline.work.sort_by_key(|work| work.start_ns);
    }
    timelines
}

fn gain_of(timelines: &[Timeline; 2], cause: Cause) -> f64 {
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    analysis
        .advice
        .iter()
        .filter(|advice| advice.cause == cause)
        .map(|advice| advice.gain_pct)
        .fold(0.0, f64::max)
}

#[test]
fn only_launches_that_all_wait_block() {
    let (some, all) = (with_long_launches(2), with_long_launches(1));
    assert!(gain_of(&some, Cause::SyncStalls) < 1.0, "a slow host is behind the GPU in some");
    assert!(gain_of(&all, Cause::SyncStalls) > 10.0, "{}", gain_of(&all, Cause::SyncStalls));
}

#[test]
fn windows_that_begin_apart_are_joined_by_steady_ends() {
    let mut timelines = ranks(0, 0);
    for timeline in &mut timelines {
        timeline.steps.clear();
    }
    // The second recorder begins two steps later, and its clock is off by a tenth of a second.
    let cut = timelines[0].work.iter().filter(|w| w.kind == WorkKind::Comm).nth(1).map_or(0, |w| w.end_ns);
    timelines[1].work.retain(|w| w.start_ns >= cut);
    for work in &mut timelines[1].work {
        (work.start_ns, work.end_ns) = (work.start_ns + 100_000_000, work.end_ns + 100_000_000);
    }
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    assert_eq!(analysis.join.ops.len() as i64, N_STEPS - 2);
    assert_eq!(analysis.join.shift_ns[1], -100_000_000);
}
