//! Arbitrary bytes for the readers of timelines, each after a beginning that opens it, and what was read for the analysis.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};
use ringleader_model::{Fact, Timeline};

/// Most events of a timeline that is analysed.
const MAX_EVENTS: usize = 5_000;
/// Most timelines that are analysed together.
const MAX_TIMELINES: usize = 8;

fn read(head: &[u8], data: &[u8]) {
    let bytes = [head, data].concat();
    let extract = ringleader_evidence::read("trace", &mut &*bytes, &mut Scratch::default(), &Limits::default());
    assert!(!extract.sources.is_empty());
    let case = ringleader_evidence::merge(vec![extract]);
    let timelines: Vec<(&Timeline, Option<u32>)> = case
        .observations
        .iter()
        .filter_map(|o| match &o.fact {
            Fact::Timeline(timeline) => Some((&**timeline, o.who.rank.map(|rank| rank.0))),
            _ => None,
        })
        // More teach nothing new, and a run is to see many inputs.
        .filter(|(timeline, _)| timeline.work.len() + timeline.host_spans.len() <= MAX_EVENTS)
        .take(MAX_TIMELINES)
        .collect();
    let analysis = ringleader_trace::analyse(timelines);
    for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
        for (step, split) in steps.all.iter().zip(splits) {
            assert_eq!(split.sum_ns(), step.length_ns(), "the parts are the step");
        }
    }
    let report = ringleader_report::trace::TraceReport::new(&analysis, &case);
    assert!(report.to_json().is_ok());
    let same = ringleader_trace::compare::compare(&analysis, &analysis);
    assert_eq!(same.step.ns(), 0, "a recording does not differ from itself");
}

fuzz_target!(|data: &[u8]| {
    read(b"{\"schemaVersion\": 1, \"traceEvents\": [", data);
    read(b"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1, \"args\": {", data);
    read(b"SQLite format 3\0", data);
    read(b"\x0a\x7f\x12\x0d/device:GPU:0", data);
    // A packet of Perfetto with its sequence and the end of a slice.
    read(b"\x0a\x06\x50\x01\x5a\x02\x48\x02", data);
    read(b"[{\"ph\": \"b\", \"cat\": \"COLL\", \"ts\": 1, \"id\": 1, \"args\": {", data);
    read(b"{\"metadata\":{\"inspector_output_format_version\":\"v4.0\"},\"coll_perf\":{", data);
});
