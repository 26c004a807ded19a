//! Arbitrary bytes for the parser of rings: alone, as words written into header and regions of an empty ring,
//! and truncated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_ring::{FILE_BYTES, State};

/// Header of an empty ring of format 1.0: without it nothing passes the first word.
fn empty() -> Vec<u8> {
    let mut ring = vec![0; FILE_BYTES];
    let words = [u64::from_le_bytes(*b"RLRING1\n"), 1 << 32, FILE_BYTES as u64];
    let tables: [[u64; 3]; 5] =
        [[1024, 8, 64], [1536, 32, 512], [17_920, 20, 4096], [99_840, 16, 8192], [230_912, 16, 8192]];
    for (at, word) in words.into_iter().chain(tables.into_iter().flatten()).enumerate() {
        ring[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    ring
}

fuzz_target!(|data: &[u8]| {
    let _any = State::parse(data);
    let mut ring = empty();
    assert!(State::parse(&ring).is_ok());
    // Runs of words, each after two bytes for its position; positions are scaled so that all regions are
    // reached.
    let mut rest = data;
    while let [high, low, tail @ ..] = rest {
        let (run, after) = tail.split_at(tail.len().min(64));
        let at = usize::from(u16::from_be_bytes([*high, *low])) * (FILE_BYTES / 65_536 / 8 * 8);
        ring[at..at + run.len()].copy_from_slice(run);
        rest = after;
    }
    if let Ok(state) = State::parse(&ring) {
        assert!(state.comms.len() <= FILE_BYTES / 64);
    }
    let cut = data.first().map_or(0, |byte| usize::from(*byte) * FILE_BYTES / 256);
    ring.truncate(cut);
    let _cut = State::parse(&ring);
});
