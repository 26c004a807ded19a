//! Laws of the readers of timelines.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use ringleader_model::{
    Fact, NoteKind, OpKind, Recorder, RuntimeCall, SourceKind, SpanKind, Timeline, WorkKind,
};

use crate::{Extract, Limits, Scratch};

fn read(bytes: &[u8]) -> Extract {
    crate::read("trace", &mut &*bytes, &mut Scratch::default(), &Limits::default())
}

fn timeline(extract: &Extract) -> &Timeline {
    let found = extract.observations.iter().find_map(|o| match &o.fact {
        Fact::Timeline(timeline) => Some(&**timeline),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no timeline: {:?}", extract.notes))
}

/// A trace as PyTorch 2.3 and later write it: the job's description follows the events.
const NEW: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
  "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 10, "tid": 11,
    "ts": 1000.000, "dur": 90.500,
    "args": {
      "External id": 1
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 11,
    "ts": 1010.125, "dur": 5.000,
    "args": { "External id": 5, "cbid": 211, "correlation": 42 }
  },
  {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "pid": 0, "tid": 7,
    "ts": 1020.001, "dur": 10.002,
    "args": {
      "device": 0, "stream": 20, "correlation": 42, "grid": [2, 3, 1], "Collective name": "allreduce",
      "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2, "dtype": "Float",
      "Process Group Name": "0", "Process Group Ranks": "[0, 1]"
    }
  },
  {
    "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7,
    "ts": 1030.0, "dur": 1, "args": {"stream": 7, "bytes": 4096}
  }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": "[0, 1]"}]},
  "baseTimeNanoseconds": 1000000000000
}"#;

#[test]
fn what_the_job_is_may_follow_the_events() {
    let extract = read(NEW.as_bytes());
    assert_eq!(extract.sources[0].kinds, [SourceKind::Timeline]);
    assert!(extract.notes.is_empty(), "{:?}", extract.notes);
    let timeline = timeline(&extract);
    assert_eq!(timeline.rank.map(|r| r.0), Some(3));
    assert_eq!(timeline.device_name.as_deref(), Some("NVIDIA H200"));
    assert_eq!(timeline.groups[0].ranks, [0, 1]);
    assert_eq!(timeline.steps[0].number, 7);
    let kernel = &timeline.work[0];
    assert_eq!((kernel.start_ns, kernel.end_ns), (1_000_001_020_001, 1_000_001_030_003));
    assert_eq!((kernel.stream, kernel.kind, kernel.n_blocks), (20, WorkKind::Comm, 6));
    let call = timeline.call_of(kernel).unwrap();
    assert_eq!((call.kind, call.size_bytes()), (Some(OpKind::AllReduce), Some(4_000)));
    assert_eq!(timeline.work[1].kind, WorkKind::Copy { with_host: true, pageable: true });
    let launch = timeline.host_spans.iter().find(|s| s.link == 42).unwrap();
    assert_eq!(launch.kind, SpanKind::Runtime(RuntimeCall::Launch));
}

#[test]
fn events_behind_long_settings() {
    let settings = format!("{{\"metadata\": {{\"note\": \"{}\"}},", "x".repeat(9_000));
    let extract = read(NEW.replacen('{', &settings, 1).as_bytes());
    assert_eq!(timeline(&extract).work.len(), 2);
    assert_eq!(extract.sources[0].kinds, [SourceKind::Timeline]);
}

#[test]
fn old_traces_have_their_arguments_at_the_operator() {
    let old = br#"{"schemaVersion": 1, "traceEvents": [
      {"ph":"X","cat":"Operator","name":"record_param_comms","pid":1,"tid":1,"ts":5,"dur":9,"args":{"External id":77,"Collective name":"allreduce","In msg nelems":64,"dtype":"Half","Group size":4}},
      {"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":6,"dur":1,"args":{"correlation":9,"External id":77}},
      {"ph":"X","cat":"Kernel","name":"ncclKernel_AllReduce_RING_LL_Sum_half","pid":0,"tid":7,"ts":8,"dur":2,"args":{"correlation":9,"stream":7}}
    ]}"#;
    let extract = read(old);
    let timeline = timeline(&extract);
    let call = timeline.call_of(&timeline.work[0]).unwrap();
    assert_eq!((call.size_bytes(), call.group_size), (Some(128), 4));
}

/// `batch_isend_irecv`: the calls only gather, and the kernel is launched behind them.
#[test]
fn old_releases_call_the_marks_of_the_profiler_operators() {
    let event = |name: &str, at: u32| {
        format!(
            r#"{{"ph": "X", "cat": "Operator", "name": "{name}", "pid": 1, "tid": "2", "ts": {at}, "dur": 50, "args": {{}}}}"#
        )
    };
    let marks = [
        "ProfilerStep#3",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Optimizer.step#SGD.step",
    ];
    let events: Vec<String> =
        marks.iter().chain(&["aten::add"]).zip([1, 2, 60, 70]).map(|(name, at)| event(name, at)).collect();
    let extract =
        read(format!(r#"{{"schemaVersion": 1, "traceEvents": [{}]}}"#, events.join(",")).as_bytes());
    let timeline = timeline(&extract);
    let kinds: Vec<SpanKind> = timeline.host_spans.iter().map(|span| span.kind).collect();
    assert_eq!(kinds, [SpanKind::Annotation, SpanKind::Annotation, SpanKind::Annotation, SpanKind::Operator]);
    assert_eq!(timeline.steps.len(), 1);
}

#[test]
fn one_launch_of_several_calls() {
    let call = |id: u32, at: u32, name: &str, key: &str| {
        format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":{at},"dur":2,"args":{{"External id":{id},"Collective name":"{name}","In msg nelems":64,"dtype":"Half","Group size":4,"Process Group Name":"7","{key}":2}}}},"#
        )
    };
    let kernel = |link: u32, at: u32| {
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernelExC","pid":1,"tid":1,"ts":{at},"dur":1,"args":{{"correlation":{link},"External id":99}}}},
            {{"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv","pid":0,"tid":20,"ts":{at},"dur":9,"args":{{"correlation":{link},"stream":20}}}},"#
        )
    };
    let text = format!(
        r#"{{"traceEvents": [{}{}{}{}{}{{"ph":"M"}}]}}"#,
        call(1, 10, "send", "Dst Rank"),
        kernel(5, 14),
        call(2, 30, "send", "Dst Rank"),
        call(3, 33, "recv", "Src Rank"),
        kernel(6, 36),
    );
    let extract = read(text.as_bytes());
    let timeline = timeline(&extract);
    let calls: Vec<_> = timeline.work.iter().filter_map(|w| timeline.call_of(w)).collect();
    assert_eq!(
        (calls[0].kind, calls[0].peer, calls[0].size_bytes()),
        (Some(OpKind::Send), Some(2), Some(128))
    );
    // A send and a receive with the same peer.
    assert_eq!((calls[1].kind, calls[1].peer, calls[1].size_bytes()), (None, Some(2), Some(256)));
    assert_eq!((&*calls[1].group, calls[1].group_size), ("7", 4));
}

#[test]
fn quotes_that_nobody_escaped() {
    let text = NEW.replace("cudaLaunchKernel\"", "cuda\"Launch\"Kernel x\"");
    let extract = read(text.as_bytes());
    let timeline = timeline(&extract);
    assert_eq!(timeline.work.len(), 2, "{:?}", extract.notes);
    assert!(timeline.names.iter().any(|name| &**name == "cuda\"Launch\"Kernel x"), "{:?}", timeline.names);
}

#[test]
fn a_log_line_between_events() {
    let at = NEW.find("  {\n    \"ph\": \"X\", \"cat\": \"kernel\"").unwrap();
    let text =
        format!("{}INFO:2026-11-23 08:00:00 1:1 Profiler.cpp:12] {{busy}} \"x\n{}", &NEW[..at], &NEW[at..]);
    let extract = read(text.as_bytes());
    assert_eq!(timeline(&extract).work.len(), 2);
    assert!(extract.notes.iter().any(|n| n.kind == NoteKind::Malformed), "{:?}", extract.notes);
}

#[test]
fn a_trace_that_ends_early() {
    let at = NEW.find("gpu_memcpy").unwrap();
    let extract = read(&NEW.as_bytes()[..at]);
    assert_eq!(timeline(&extract).work.len(), 1);
    assert!(timeline(&extract).is_damaged);
    assert!(extract.notes.iter().any(|n| n.kind == NoteKind::Truncated));
}

#[test]
fn records_of_the_inspector() {
    let line = |sn: u32, us: f64| {
        format!(
            r#"{{"header":{{"id":"0xab","rank":1,"n_ranks":2,"nnodes":1}},"metadata":{{"inspector_output_format_version":"v4.0","hostname":"n1","pid":7}},"coll_perf":{{"coll":"AllReduce","coll_sn":{sn},"coll_msg_size_bytes":1048576,"coll_exec_time_us":{us},"coll_busbw_gbs":10.5}}}}"#
        )
    };
    let text = format!("{}\n{}\nnot json\n", line(1, 100.0), line(2, 120.5));
    let extract = read(text.as_bytes());
    let timeline = timeline(&extract);
    assert_eq!((timeline.rank.map(|r| r.0), timeline.work.len()), (Some(1), 2));
    assert_eq!(timeline.work[1].end_ns - timeline.work[1].start_ns, 120_500);
    assert_eq!(timeline.calls[1].seq, Some(2));
    assert_eq!(extract.notes.len(), 1);
}

#[test]
fn a_trace_of_nccls_example_profiler() {
    // Its array has no end, and a comma behind the last event.
    let one = |id: u32, at: u32| {
        format!(
            r#"{{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": {id}, "pid": 9, "tid": 1, "ts": {at}.000000, "args": {{"SeqNum": {id}, "CommHash": 1234, "Rank": 1, "Count": 1024, "Datatype": "ncclFloat32", "Algorithm": "RING", "Protocol": "LL", "nChannels": 2}}}},
{{"name": "KernelCh", "cat": "GPU", "ph": "b", "id": {id}, "pid": 9, "tid": 1, "ts": {at}.500000}},
{{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": {id}, "pid": 9, "tid": 1, "ts": {at}.750000}},
"#
        )
    };
    let extract = read(format!("[\n{}{}", one(1, 100), one(2, 200)).as_bytes());
    let timeline = timeline(&extract);
    assert_eq!((timeline.recorder, timeline.rank.map(|r| r.0)), (Recorder::NcclExample, Some(1)));
    let found: Vec<_> = timeline.work.iter().map(|w| (w.start_ns, w.end_ns, w.kind)).collect();
    assert_eq!(found, [(100_000, 100_750, WorkKind::Comm), (200_000, 200_750, WorkKind::Comm)]);
    let call = timeline.call_of(&timeline.work[1]).unwrap();
    assert_eq!((call.kind, call.size_bytes(), call.seq), (Some(OpKind::AllReduce), Some(4_096), Some(2)));
}

/// A field of a message with bytes. Numbers above 15 take two bytes, and so do lengths above 127.
fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = number_bytes(u64::from(number << 3 | 2));
    out.extend(number_bytes(value.len() as u64));
    out.extend(value);
    out
}

/// A field of a message with a number.
fn varint(number: u32, value: u64) -> Vec<u8> {
    [number_bytes(u64::from(number << 3)), number_bytes(value)].concat()
}

fn number_bytes(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A trace of Perfetto: a stream's track with a kernel and its arguments, a thread's with its launch.
fn packets() -> Vec<u8> {
    let packet = |parts: &[Vec<u8>]| field(1, &[varint(10, 1), parts.concat()].concat());
    let track = |id: u64, name: &[u8], parent: u64| {
        packet(&[field(60, &[varint(1, id), field(2, name), varint(5, parent)].concat())])
    };
    let name = field(2, &[varint(1, 5), field(2, b"ncclDevKernel_AllReduce_Sum")].concat());
    let argument = |name: &[u8], value: Vec<u8>| field(4, &[field(10, name), value].concat());
    let begin = |at: u64, track: u64, parts: &[Vec<u8>]| {
        packet(&[varint(8, at), field(11, &[varint(9, 1), varint(11, track), parts.concat()].concat())])
    };
    let end = |at: u64, track: u64| {
        packet(&[varint(8, at), field(11, &[varint(9, 2), varint(11, track)].concat())])
    };
    let link = || argument(b"correlation", varint(4, 42));
    [
        packet(&[field(60, &[varint(1, 1), field(3, &varint(1, 0))].concat())]),
        track(2, b"stream 7", 1),
        track(3, b"thread 11", 1),
        packet(&[varint(13, 1), field(12, &name)]),
        begin(900, 3, &[field(22, b"cuda_runtime"), field(23, b"cudaLaunchKernel"), link()]),
        end(1_100, 3),
        begin(
            2_000,
            2,
            &[
                field(22, b"kernel"),
                varint(10, 5),
                link(),
                argument(b"Collective name", field(6, b"allreduce")),
            ],
        ),
        end(5_000, 2),
    ]
    .concat()
}

#[test]
fn packets_of_perfetto() {
    let bytes = packets();
    let extract = read(&bytes);
    let timeline = timeline(&extract);
    assert_eq!(timeline.recorder, Recorder::Perfetto);
    let work = timeline.work[0];
    assert_eq!((work.start_ns, work.end_ns, work.kind, work.stream), (2_000, 5_000, WorkKind::Comm, 7));
    assert_eq!(timeline.call_of(&work).unwrap().kind, Some(OpKind::AllReduce));
    let launch = timeline.host_spans.iter().find(|s| s.link == 42).unwrap();
    assert_eq!((launch.start_ns, launch.kind), (900, SpanKind::Runtime(RuntimeCall::Launch)));
    let cut = read(&bytes[..bytes.len() - 3]);
    assert!(cut.notes.iter().any(|n| n.kind == NoteKind::Truncated), "{:?}", cut.notes);
}

/// A file of XLA: a host with a step and the launch of a kernel, and a GPU with streams and a line that repeats them.
fn planes() -> Vec<u8> {
    let meta = |number: u32, id: u64, name: &[u8]| {
        field(number, &[varint(1, id), field(2, &[varint(1, id), field(2, name)].concat())].concat())
    };
    let stat = |id: u64, value: Vec<u8>| field(4, &[varint(1, id), value].concat());
    let event = |id: u64, start_ps: u64, ns: u64, stats: &[Vec<u8>]| {
        field(4, &[varint(1, id), varint(2, start_ps), varint(3, ns * 1_000), stats.concat()].concat())
    };
    let line = |id: u64, name: &[u8], events: &[Vec<u8>]| {
        field(3, &[varint(1, id), field(2, name), varint(3, 1_000_000), events.concat()].concat())
    };
    let correlation = |number: u64| stat(1, varint(4, number));
    let host = [
        field(2, b"/host:CPU"),
        meta(4, 1, b"train"),
        meta(4, 2, b"cuLaunchKernel"),
        meta(4, 3, b"$module.py:12 step"),
        meta(4, 4, b"ThunkExecutor::Execute"),
        meta(5, 1, b"correlation_id"),
        meta(5, 2, b"step_num"),
        line(
            11,
            b"python",
            &[
                event(1, 0, 90_000, &[stat(2, varint(4, 7))]),
                event(3, 1_000_000, 80_000, &[]),
                event(2, 2_000_000, 3_000, &[correlation(42)]),
                event(4, 6_000_000, 1_000, &[]),
            ],
        ),
    ];
    let device = [
        field(2, b"/device:GPU:1 (NVIDIA H200)"),
        meta(4, 1, b"loop_add_fusion"),
        meta(4, 2, b"ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        meta(4, 3, b"MemcpyH2D"),
        meta(4, 4, b"fusion.1"),
        meta(5, 1, b"correlation_id"),
        meta(5, 3, b"memcpy_details"),
        line(1, b"Stream #13(Compute)", &[event(1, 9_000_000, 20_000, &[correlation(42)])]),
        line(2, b"Stream #21(AllReduce)", &[event(2, 30_000_000, 15_000, &[])]),
        line(
            3,
            b"Stream #5(MemcpyH2D)",
            &[event(3, 1_000_000, 4_000, &[stat(3, field(5, b"kind_src:pageable size:65536 dest:0"))])],
        ),
        line(4, b"XLA Ops", &[event(4, 9_000_000, 20_000, &[])]),
    ];
    let space = [field(1, &host.concat()), field(1, &device.concat()), field(4, b"node-3")];
    space.concat()
}

/// A timeline as a table, for golden tests.
fn table(timeline: &Timeline) -> String {
    use std::fmt::Write as _;
    let mut out = format!(
        "{} host {:?} rank {:?} device {:?} {:?}\n",
        timeline.recorder.name(),
        timeline.host,
        timeline.rank,
        timeline.device,
        timeline.device_name
    );
    for step in &timeline.steps {
        let _ = writeln!(out, "step {} {}..{}", step.number, step.start_ns, step.end_ns);
    }
    for work in &timeline.work {
        let _ = writeln!(
            out,
            "work {}..{} stream {} {:?} {} bytes, correlation {}, {:?}: {}",
            work.start_ns,
            work.end_ns,
            work.stream,
            work.kind,
            work.size_bytes,
            work.correlation,
            timeline.call_of(work).map(|call| (call.kind, call.group_size)),
            timeline.name(work.name)
        );
    }
    for span in &timeline.host_spans {
        let _ = writeln!(
            out,
            "host {}..{} thread {} {:?} link {}: {}",
            span.start_ns,
            span.end_ns,
            span.thread,
            span.kind,
            span.link,
            timeline.name(span.name)
        );
    }
    out
}

#[test]
fn planes_of_xla() {
    let bytes = planes();
    let extract = read(&bytes);
    insta::assert_snapshot!(table(timeline(&extract)));
    let cut = read(&bytes[..bytes.len() - 3]);
    assert!(cut.notes.iter().any(|n| n.kind == NoteKind::Truncated), "{:?}", cut.notes);
}

/// Made by `nsight.py` beside it: two kernels, one of NCCL with its NVTX payload, a copy, their calls, a step.
const EXPORT: &[u8] = include_bytes!("nsight.sqlite");

#[test]
fn an_export_of_nsight() {
    let extract = read(EXPORT);
    let timeline = timeline(&extract);
    assert_eq!(timeline.device_name.as_deref(), Some("NVIDIA H200"));
    assert_eq!(timeline.work.len(), 3 + 400);
    let comm = timeline.work.iter().find(|w| w.kind == WorkKind::Comm).unwrap();
    let call = timeline.call_of(comm).unwrap();
    assert_eq!(
        (call.kind, call.size_bytes(), &*call.group),
        (Some(OpKind::AllReduce), Some(4_194_304), "0xabcdef")
    );
    assert_eq!(timeline.steps.len(), 1);
    assert!(timeline.host_spans.iter().any(|s| s.kind == SpanKind::Runtime(RuntimeCall::Synchronize)));
}

/// Events in the layout of PyTorch's profiler.
const LAID: &str = r#"{"schemaVersion": 1, "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 4, "tid": 4,
    "ts": 1.000, "dur": 90.000,
    "args": {
      "External id": 1, "Ev Idx": 0
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4, "tid": 4,
    "ts": 5.000, "dur": 31.250,
    "args": {
      "External id": 7,"Record function id": 0, "Input Dims": [[2, 3], [3, 4]], "Module": {"a": "b } \" ] c"}, "Ev Idx": 7
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 4, "tid": 4,
    "ts": 40.000, "dur": 20.000,
    "args": {
      "External id": 8, "Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10, "Group size": 2, "dtype": "Float",
      "Process Group Name": "0"
    }
  },
  {
    "ph": "X", "cat": "python_function", "name": "train.py(3): step", "pid": 4, "tid": 4,
    "ts": 2.000, "dur": 80.000,
    "args": {
      "Python parent id": 3, "Python id": 4, "Ev Idx": 8
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4, "tid": 4,
    "ts": 42.000, "dur": 5.125,
    "args": {
      "External id": 8, "cbid": 211, "correlation": 9
    }
  },
  {
    "ph": "s", "id": 9, "pid": 4, "tid": 4, "ts": 42.000,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20,
    "ts": 50.000, "dur": 28.001,
    "args": {
      "External id": 8, "device": 0, "stream": 20, "correlation": 9, "grid": [24, 1, 1]
    }
  },
  {
    "ph": "f", "id": 9, "pid": 0, "tid": 20, "ts": 50.000,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }
]}
"#;

#[test]
fn the_usual_layout_is_read_as_any_other() {
    let laid = read(LAID.as_bytes());
    let compact = serde_json::from_str::<serde_json::Value>(LAID).unwrap().to_string();
    let mut plain = timeline(&read(compact.as_bytes())).clone();
    let found = timeline(&laid);
    // Places in the file differ.
    plain.steps[0].bytes = found.steps[0].bytes;
    assert_eq!(*found, plain);
    assert_eq!(
        (found.n_events, found.work.len(), found.host_spans.len(), found.is_damaged),
        (8, 1, 5, false)
    );
    let (from, to) = found.steps[0].bytes;
    let event = &LAID[from as usize..to as usize];
    assert!(
        event.starts_with("{\n    \"ph\": \"X\", \"cat\": \"user_annotation\"") && event.ends_with("}\n  }")
    );
}

/// Made by `nsight.py`, too: five launches of a CUDA graph, which nsys records as a whole.
const GRAPHS: &[u8] = include_bytes!("nsight_graph.sqlite");

#[test]
fn whole_graphs_in_an_export_of_nsight() {
    let extract = read(GRAPHS);
    let timeline = timeline(&extract);
    assert_eq!(timeline.work.len(), 5);
    for (work, launch) in timeline.work.iter().zip(&timeline.host_spans) {
        assert_eq!(
            (work.kind, timeline.name(work.name), work.end_ns - work.start_ns),
            (WorkKind::Compute, "CUDA graph 3", 950_000)
        );
        assert_eq!((launch.kind, launch.link), (SpanKind::Runtime(RuntimeCall::Launch), work.correlation));
    }
}

proptest! {
    #[test]
    fn nothing_panics_wherever_a_trace_is_damaged(at in 0..NEW.len(), byte: u8, cut in 0..NEW.len()) {
        let mut bytes = NEW.as_bytes().to_vec();
        bytes[at] = byte;
        read(&bytes);
        read(&bytes[..cut]);
    }

    #[test]
    fn nothing_panics_wherever_an_export_is_damaged(at in 0..EXPORT.len(), byte: u8, cut in 0..EXPORT.len()) {
        let mut bytes = EXPORT.to_vec();
        bytes[at] = byte;
        read(&bytes);
        read(&bytes[..cut]);
    }

    #[test]
    fn nothing_panics_wherever_packets_are_damaged(at in 0..200_usize, byte: u8, cut in 0..200_usize) {
        let mut bytes = packets();
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        read(&bytes);
        read(&bytes[..cut.min(bytes.len())]);
    }

    #[test]
    fn nothing_panics_on_planes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut plane = b"\x0a\x7f\x12\x0d/device:GPU:0".to_vec();
        plane.extend(bytes);
        read(&plane);
    }
}
