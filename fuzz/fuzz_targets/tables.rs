//! Arbitrary bytes to the reader of process lists, nvidia-smi tables and limits, alone and after a beginning that opens it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(path: &str, bytes: &[u8]) {
    // Small caps, so that a packed bomb costs the fuzzer little.
    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 100, ..Limits::default() };
    let extract = ringleader_evidence::read(path, &mut &*bytes, &mut Scratch::default(), &limits);
    assert!(!extract.sources.is_empty());
}

fuzz_target!(|data: &[u8]| {
    read("ps.txt", data);
    read("ps.txt", &[b"PID STAT ELAPSED STARTED CMD\n", data].concat());
    read("nvidia-smi.txt", &[b"| NVIDIA-SMI 1 Driver Version: 1 |\n", data].concat());
});
