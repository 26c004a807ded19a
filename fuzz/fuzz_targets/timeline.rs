//! Arbitrary bytes for the readers of timelines, each after a beginning that opens it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(head: &[u8], data: &[u8]) {
    let bytes = [head, data].concat();
    let extract = ringleader_evidence::read("trace", &mut &*bytes, &mut Scratch::default(), &Limits::default());
    assert!(!extract.sources.is_empty());
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
