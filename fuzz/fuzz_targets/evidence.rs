//! Any bytes are read without a panic and within bounds, with the same result twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch, merge, read};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { max_expanded_bytes: 16 << 20, max_dump_bytes: 16 << 20, ..Limits::default() };
    let mut scratch = Scratch::default();
    let first = merge(vec![read("input", &mut &bytes[..], &mut scratch, &limits)]);
    // The second time with buffers left over from the first.
    let second = merge(vec![read("input", &mut &bytes[..], &mut scratch, &limits)]);
    assert!(first == second, "one input, two readings");
});
