//! Arbitrary bytes for the reader of Flight Recorder dumps, after the magic of a pickle and within a list of
//! entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(bytes: &[u8]) {
    let extract = ringleader_evidence::read("fr_rank0", &mut &*bytes, &mut Scratch::default(), &Limits::default());
    assert!(extract.sources.len() == 1);
    assert!(!extract.notes.is_empty() || !extract.observations.is_empty(), "nothing was read and nothing said");
}

fuzz_target!(|data: &[u8]| {
    read(&[b"\x80\x02", data].concat());
    read(&[b"\x80\x02}(X\x07\x00\x00\x00entries](", data].concat());
});
