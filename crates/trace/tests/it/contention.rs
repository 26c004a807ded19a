//! What computation loses beside communication: made timelines of two ranks.

use ringleader_model::{
    Cause, CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, StepMark, Timeline,
    WorkKind,
};
use ringleader_trace::analyse;

const N_LAYERS: i64 = 20;
const N_STEPS: i64 = 5;
/// A layer's matrix product, ns.
const GEMM_NS: i64 = 400_000;

/// Layers one after the other; beside the last `n_beside` of them runs communication, and theirs take `beside` times as long.
/// `of_layer` is the time of a layer's product by its number.
fn timeline(
    rank: u32,
    n_sms: Option<u32>,
    (n_beside, beside): (i64, f64),
    of_layer: impl Fn(i64) -> i64,
) -> Timeline {
    let mut timeline = Timeline::new(Recorder::Torch);
    (timeline.rank, timeline.device, timeline.n_sms) = (Some(Rank(rank)), Some(rank), n_sms);
    timeline.names = ["gemm", "norm", "ncclDevKernel_Generic", "cudaLaunchKernel"].map(Into::into).to_vec();
    let mut now = 50_000_000;
    for step in 0..N_STEPS {
        let start_ns = now - 20_000_000;
        timeline.steps.push(StepMark {
            number: step as u64,
            start_ns,
            end_ns: start_ns + 1_000_000,
            bytes: (1, 2),
        });
        let mut works: Vec<(u32, u32, WorkKind, i64, i64)> = Vec::new();
        let mut begun = now;
        for layer in 0..N_LAYERS {
            if layer == N_LAYERS - n_beside {
                begun = now;
            }
            let factor = if layer >= N_LAYERS - n_beside { beside } else { 1.0 };
            for (name, ns) in [(0, of_layer(layer)), (1, 30_000)] {
                let end = now + (ns as f64 * factor) as i64;
                works.push((name, 7, WorkKind::Compute, now, end));
                now = end;
            }
        }
        works.push((2, 20, WorkKind::Comm, begun, now + 5_000));
        now += 20_000;
        works.sort_by_key(|work| work.3);
        for (at, (name, stream, kind, start_ns, end_ns)) in works.into_iter().enumerate() {
            let launched = timeline.steps.last().unwrap().start_ns + at as i64 * 6_000;
            let link = timeline.work.len() as u32 + 1;
            timeline.host_spans.push(HostSpan {
                start_ns: launched,
                end_ns: launched + 5_000,
                name: 3,
                thread: 1,
                kind: SpanKind::Runtime(RuntimeCall::Launch),
                link,
            });
            let is_comm = kind == WorkKind::Comm;
            if is_comm {
                timeline.calls.push(CommCall {
                    kind: Some(OpKind::AllReduce),
                    group: "0".into(),
                    group_size: 2,
                    in_elements: 1 << 25,
                    out_elements: 1 << 25,
                    element_bytes: 4,
                    ..CommCall::default()
                });
            }
            timeline.work.push(DeviceWork {
                start_ns,
                end_ns,
                name,
                stream,
                kind,
                correlation: link,
                call: if is_comm { timeline.calls.len() as u32 } else { 0 },
                size_bytes: 0,
                n_blocks: if is_comm { 32 } else { 132 },
            });
        }
    }
    timeline
}

fn both(n_sms: Option<u32>, beside: (i64, f64), of_layer: impl Fn(i64) -> i64 + Copy) -> [Timeline; 2] {
    [0, 1].map(|rank| timeline(rank, n_sms, beside, of_layer))
}

#[test]
fn equal_kernels_show_what_communication_takes() {
    let timelines = both(Some(132), (8, 1.35), |_| GEMM_NS);
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    let found = analysis.contention.unwrap();
    assert_eq!((found.n_ctas, found.n_sms), (32, 132));
    assert!((found.slowdown - 1.35).abs() < 0.01, "{found:?}");
    // Eight layers of 430 us each lose 35 %.
    assert!((found.lost_ns - 1_204_000).abs() < 100_000, "{found:?}");
    // 32 of 132 SMs alone explain 1.32, 16 explain 1.14: half of the loss.
    assert!((found.yield_of_half() - 0.52).abs() < 0.02, "{}", found.yield_of_half());
    let advice = analysis.advice.first().unwrap();
    assert_eq!((advice.cause, advice.is_worth), (Cause::NoComputeOverlap, true), "{advice:?}");
    assert!(advice.seen.ends_with("NCCL's kernels hold 32 of 132 SMs"), "{}", advice.seen);
    assert!((5.0..8.0).contains(&advice.gain_pct), "{advice:?}");
    // Communication for more than half of the computation would not be hidden with half of its channels.
    let timelines = both(Some(132), (12, 1.35), |_| GEMM_NS);
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    assert!((analysis.contention.unwrap().slowdown - 1.35).abs() < 0.01);
    assert!(!analysis.advice.iter().any(|one| one.is_worth), "{:?}", analysis.advice.first());
}

#[test]
fn what_is_not_measured_is_not_said() {
    // Nothing is slower.
    let even = both(Some(132), (8, 1.0), |_| GEMM_NS);
    // The GPU's SMs are unknown.
    let unknown = both(None, (8, 1.35), |_| GEMM_NS);
    // One name and grid are of several sizes, so those beside communication may be of another.
    let sizes = both(Some(132), (8, 1.35), |layer| GEMM_NS + layer % 3 * 100_000);
    for (timelines, is_measured) in [(even, true), (unknown, false), (sizes, false)] {
        let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
        assert_eq!(analysis.contention.is_some(), is_measured, "{:?}", analysis.contention);
        assert!(analysis.contention.is_none_or(|found| found.lost_ns < 10_000), "{:?}", analysis.contention);
        assert!(!analysis.advice.iter().any(|one| one.is_worth), "{:?}", analysis.advice.first());
    }
}
