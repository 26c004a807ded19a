//! Arbitrary bytes for the reader of RAS reports and events, alone and after a beginning that opens one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(path: &str, bytes: &[u8]) {
    // Small caps, so that a decompression bomb costs the fuzzer little.
    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 100, ..Limits::default() };
    let extract = ringleader_evidence::read(path, &mut &*bytes, &mut Scratch::default(), &limits);
    assert!(!extract.sources.is_empty());
}

fuzz_target!(|data: &[u8]| {
    read("ras.txt", data);
    // After the answers to TIMEOUT and SET FORMAT, and within an open report.
    read("ras.json", &[b"OK\n{\n  \"nccl_version\": ", data].concat());
    read("ras.txt", &[b"Job summary\n#0-0 (ab) MISMATCH\n", data].concat());
});
