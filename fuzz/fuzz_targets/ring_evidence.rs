//! Arbitrary bytes for the reader of rings: as they are, after the magic word, and over a whole ring at
//! scattered positions, so that its regions are reached, too. The result is diagnosed.
//!
//! Seeds: `cases/ring-*/evidence/ring-*`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch, merge, read};

fn look(bytes: &[u8]) {
    let extract = read("ring-1-1", &mut &*bytes, &mut Scratch::default(), &Limits::default());
    assert!(!extract.sources.is_empty());
    ringleader_rules::diagnose(&merge(vec![extract]));
}

const WHOLE: &[u8] =
    include_bytes!("../../cases/ring-network-silent/evidence/ring-4201-499001");

fuzz_target!(|data: &[u8]| {
    look(data);
    look(&[b"RLRING1\n", data].concat());
    let mut ring = WHOLE.to_vec();
    for change in data.chunks_exact(10) {
        let [low, high, word @ ..] = change else { continue };
        let at = usize::from(u16::from_le_bytes([*low, *high])) * 8 % ring.len();
        if let Some(place) = ring.get_mut(at..at + 8) {
            place.copy_from_slice(word);
        }
    }
    look(&ring);
});
