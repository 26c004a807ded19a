//! Laws of the analysis on arbitrary timelines: whatever was recorded, the parts are the step and nothing panics.

use proptest::prelude::*;
use ringleader_model::{
    CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, StepMark, Timeline,
    WorkKind,
};
use ringleader_trace::{Analysis, analyse, compare};

const NAMES: [&str; 8] = [
    "ProfilerStep#1",
    "Optimizer.step#Adam.step",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "FSDP::pre_forward (layers.0)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "gemm",
    "record_param_comms",
    "DistributedDataParallel.forward",
];

/// A time: within a millisecond, within minutes, or as far away as readers let it be.
fn time() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0_i64..1_000_000, 2 => 0_i64..100_000_000_000, 1 => -(1_i64 << 49)..(1_i64 << 49)]
}

fn duration() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0_i64..100_000, 2 => 0_i64..50_000_000, 1 => 0_i64..(1_i64 << 42)]
}

fn work() -> impl Strategy<Value = DeviceWork> {
    let kinds = prop_oneof![
        4 => Just(WorkKind::Compute),
        2 => Just(WorkKind::Comm),
        1 => any::<(bool, bool)>().prop_map(|(with_host, pageable)| WorkKind::Copy { with_host, pageable }),
        1 => Just(WorkKind::Fill),
    ];
    (time(), duration(), 0..9_u32, 0..3_u32, kinds, 0..40_u32, 0..6_u32, any::<u64>(), any::<u32>()).prop_map(
        |(start_ns, ns, name, stream, kind, correlation, call, size_bytes, n_blocks)| DeviceWork {
            start_ns,
            end_ns: start_ns + ns,
            name,
            stream,
            kind,
            correlation,
            call,
            size_bytes,
            n_blocks,
        },
    )
}

fn span() -> impl Strategy<Value = HostSpan> {
    let kinds = prop_oneof![
        Just(SpanKind::Operator),
        Just(SpanKind::Annotation),
        Just(SpanKind::Python),
        Just(SpanKind::Overhead),
        Just(SpanKind::Runtime(RuntimeCall::Launch)),
        Just(SpanKind::Runtime(RuntimeCall::Copy)),
        Just(SpanKind::Runtime(RuntimeCall::Synchronize)),
        Just(SpanKind::Runtime(RuntimeCall::Allocate)),
        Just(SpanKind::Runtime(RuntimeCall::Other)),
    ];
    (time(), duration(), 0..9_u32, 0..3_u32, kinds, 0..40_u32).prop_map(
        |(start_ns, ns, name, thread, kind, link)| HostSpan {
            start_ns,
            end_ns: start_ns + ns,
            name,
            thread,
            kind,
            link,
        },
    )
}

fn call() -> impl Strategy<Value = CommCall> {
    let kinds = prop_oneof![
        Just(None),
        Just(Some(OpKind::AllReduce)),
        Just(Some(OpKind::AllToAll)),
        Just(Some(OpKind::Send)),
        Just(Some(OpKind::Recv)),
    ];
    (kinds, 0..3_u32, any::<Option<u64>>(), any::<u64>(), any::<u32>(), any::<Option<u32>>(), any::<bool>())
        .prop_map(|(kind, group_size, seq, elements, element_bytes, peer, has_splits)| CommCall {
            kind,
            group: "0".into(),
            group_size,
            seq,
            in_elements: elements,
            out_elements: elements / 2,
            element_bytes,
            peer,
            has_splits,
            ..CommCall::default()
        })
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let steps = prop::collection::vec((0..9_u64, time(), duration()), 0..6);
    let lists = (
        prop::collection::vec(work(), 0..40),
        prop::collection::vec(span(), 0..60),
        prop::collection::vec(call(), 0..5),
        steps,
    );
    (lists, any::<Option<u8>>(), any::<bool>()).prop_map(
        |((mut work, mut host_spans, calls, steps), rank, is_damaged)| {
            work.sort_by_key(|w| (w.start_ns, w.end_ns, w.stream));
            host_spans.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns), s.thread));
            let mut steps: Vec<StepMark> = steps
                .into_iter()
                .map(|(number, start_ns, ns)| StepMark {
                    number,
                    start_ns,
                    end_ns: start_ns + ns,
                    bytes: (0, 1),
                })
                .collect();
            steps.sort_by_key(|s| (s.start_ns, s.number));
            Timeline {
                rank: rank.map(|rank| Rank(u32::from(rank) % 4)),
                names: NAMES.map(Into::into).to_vec(),
                work,
                host_spans,
                calls,
                steps,
                is_damaged,
                ..Timeline::new(Recorder::Torch)
            }
        },
    )
}

fn parts_are_the_step(analysis: &Analysis<'_>) {
    for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
        assert_eq!(steps.all.len(), splits.len());
        for (step, split) in steps.all.iter().zip(splits) {
            assert_eq!(split.sum_ns(), step.length_ns(), "{split:?}");
            assert!(split.hidden_comm_ns <= split.compute_ns && split.idle_ns.iter().all(|ns| *ns >= 0));
        }
    }
    for mean in &analysis.means {
        assert_eq!(mean.sum_ns(), mean.length_ns);
    }
    for advice in &analysis.advice {
        assert!(advice.gain_pct > 0.0 && advice.gain_pct.is_finite(), "{advice:?}");
    }
}

proptest! {
    #[test]
    fn the_parts_are_the_step_whatever_was_recorded(timelines in prop::collection::vec(timeline(), 1..4)) {
        let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
        parts_are_the_step(&analysis);
        // Neither does a comparison panic, and its parts are the change.
        let alone = analyse(timelines.iter().take(1).map(|timeline| (timeline, None)));
        let found = compare::compare(&analysis, &alone);
        let sum: i64 = found.parts.iter().map(|part| part.change.ns()).sum();
        prop_assert!((sum - found.step.ns()).abs() <= 2 * found.parts.len() as i64);
    }
}
