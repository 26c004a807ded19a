//! Figures that the unit tests of HolisticTraceAnalysis assert of public traces, and that are equal here (docs/trace.md has
//! the table): the same definitions, on a small trace written for this test.

use std::fmt::Write as _;

use ringleader_evidence::{Limits, Scratch};
use ringleader_model::{Case, Fact, OpKind, SpanKind, Timeline, WorkKind};
use ringleader_trace::view::RankTimeline;

const STEP_US: i64 = 1_000;
/// The GPU is this far behind the host.
const BEHIND_US: i64 = 1_500;

/// Four annotated steps of 5 kernels and a copy each, an all-reduce beside them, and one kernel without a launch.
fn written(distributed: &str) -> String {
    let mut events = Vec::new();
    let mut correlation = 100;
    for step in 0..4_i64 {
        let start = 5_000 + step * STEP_US;
        events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{}","pid":9,"tid":9,"ts":{start}.5,"dur":{STEP_US}}}"#,
            step + 7
        ));
        for n in 0..7_i64 {
            correlation += 1;
            let launched = start + 10 + n * 20;
            let (category, name, stream, call) = match n {
                0 => ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, "cudaMemcpyAsync"),
                6 => ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, "cudaLaunchKernelExC"),
                _ => ("kernel", "gemm", 7, "cudaLaunchKernel"),
            };
            events.push(format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"{call}","pid":9,"tid":9,"ts":{launched},"dur":5,
                 "args":{{"External id":1,"correlation":{correlation}}}}}"#
            ));
            let nccl = if n == 6 {
                r#","Collective name":"allreduce","In msg nelems":2049000,"Out msg nelems":2049000,"Group size":2,
                 "dtype":"Float","Process Group Name":"0","Process Group Description":"default_pg","Process Group Ranks":"[0, 1]""#
            } else {
                ""
            };
            events.push(format!(
                r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{},"dur":13,
                 "args":{{"device":0,"stream":{stream},"correlation":{correlation},"grid":[24,1,1]{nccl}}}}}"#,
                launched + BEHIND_US
            ));
        }
    }
    events.push(
        r#"{"ph":"X","cat":"kernel","name":"orphan","pid":0,"tid":7,"ts":4000,"dur":3,"args":{"device":0,"stream":7,"correlation":1}}"#
            .to_owned(),
    );
    let mut text = String::from("{\"schemaVersion\":1,");
    let _ = write!(
        text,
        "{distributed}\"deviceProperties\":[{{\"id\":0,\"name\":\"NVIDIA A100\",\"numSms\":108}}],\
         \"baseTimeNanoseconds\":1727743122000000000,\"traceEvents\":[{}]}}",
        events.join(",\n")
    );
    text
}

fn read(name: &str, text: &str) -> Case {
    let mut input = text.as_bytes();
    let extract = ringleader_evidence::read(name, &mut input, &mut Scratch::default(), &Limits::default());
    ringleader_evidence::merge(vec![extract])
}

fn timeline(case: &Case) -> &Timeline {
    let found = case.observations.iter().find_map(|o| match &o.fact {
        Fact::Timeline(timeline) => Some(&**timeline),
        _ => None,
    });
    found.unwrap()
}

const RANKED: &str = r#""distributedInfo":{"backend":"nccl","rank":1,"world_size":2},"#;

#[test]
fn work_is_of_the_step_that_launched_it() {
    let case = read("a.pt.trace.json", &written(RANKED));
    let analysis = crate::look(&case);
    let steps = &analysis.steps[0];
    assert_eq!(steps.all.iter().map(|step| step.number).collect::<Vec<_>>(), [7, 8, 9, 10]);
    // The GPU is one and a half steps behind: by time, the last steps would lack theirs.
    let n = |step: u32| steps.of_work.iter().filter(|of| **of == step).count();
    assert_eq!([n(0), n(1), n(2), n(3)], [7, 7, 7, 7]);
}

#[test]
fn launches_delays_and_gaps() {
    let case = read("a.pt.trace.json", &written(RANKED));
    let timeline = timeline(&case);
    let view = RankTimeline::new(1, timeline);
    let at =
        |correlation: u32| timeline.work.iter().position(|work| work.correlation == correlation).unwrap();
    let (first, second) = (&timeline.work[at(101)], &timeline.work[at(102)]);
    let launch = view.launch(at(101)).unwrap();
    assert_eq!((timeline.name(launch.name), launch.end_ns - launch.start_ns), ("cudaMemcpyAsync", 5_000));
    assert_eq!(
        (first.end_ns - first.start_ns, first.start_ns - launch.start_ns),
        (13_000, BEHIND_US * 1_000)
    );
    assert_eq!(second.start_ns - first.end_ns, 7_000);
    assert!(view.launch(at(1)).is_none());
    // A kernel without a launch leaves no stream with fewer than no launches outstanding.
    for stream in [7, 20] {
        let mut changes: Vec<(i64, i64)> = (0..timeline.work.len())
            .filter(|work| timeline.work[*work].stream == stream)
            .filter_map(|work| Some([(view.launch(work)?.start_ns, 1), (timeline.work[work].start_ns, -1)]))
            .flatten()
            .collect();
        changes.sort_by_key(|(time, change)| (*time, -change));
        let mut outstanding = 0;
        assert!(changes.iter().all(|(_, change)| {
            outstanding += change;
            outstanding >= 0
        }));
        assert_eq!(outstanding, 0);
    }
}

#[test]
fn arguments_of_a_collective() {
    let case = read("a.pt.trace.json", &written(RANKED));
    let timeline = timeline(&case);
    let comm: Vec<_> = timeline.work.iter().filter(|work| work.kind == WorkKind::Comm).collect();
    assert_eq!(comm.len(), 4);
    let call = timeline.call_of(comm[0]).unwrap();
    assert_eq!(
        (call.kind, call.in_elements, call.out_elements),
        (Some(OpKind::AllReduce), 2_049_000, 2_049_000)
    );
    assert_eq!((&*call.group, &*call.description, call.has_splits), ("0", "default_pg", false));
    assert_eq!(call.ranks, [0, 1]);
}

#[test]
fn a_step_on_the_host_and_its_time() {
    let case = read("a.pt.trace.json", &written(RANKED));
    let timeline = timeline(&case);
    let step = timeline.steps.iter().find(|step| step.number == 9).unwrap();
    // To the nanosecond: 7,000.5 us after the base.
    assert_eq!((step.start_ns, step.end_ns - step.start_ns), (1_727_743_122_007_000_500, 1_000_000));
    let within = |start: i64| (step.start_ns..step.end_ns).contains(&start);
    let calls =
        timeline.host_spans.iter().filter(|s| matches!(s.kind, SpanKind::Runtime(_)) && within(s.start_ns));
    assert_eq!(calls.count(), 7);
}

#[test]
fn ranks_are_stated_or_counted() {
    let rank = |distributed: &str, name: &str| {
        let case = read(name, &written(distributed));
        let analysis = crate::look(&case);
        (analysis.views[0].rank, analysis.views[0].is_rank_stated)
    };
    assert_eq!(rank(RANKED, "a.pt.trace.json"), (1, true));
    assert_eq!(rank("", "a.pt.trace.json"), (0, false));
    assert_eq!(
        rank(r#""distributedInfo":{"backend":"nccl","world_size":2},"#, "a.pt.trace.json"),
        (0, false)
    );
}
