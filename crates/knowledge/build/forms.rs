//! The tables that find forms of failure: see `src/form/needles.rs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

#[path = "../src/form/needle_hash.rs"]
mod needle_hash;
#[path = "../src/form/needle_list.rs"]
#[expect(unreachable_pub, reason = "public in the library")]
mod needle_list;

use needle_hash::{BITS, GRAM_BYTES, place};
use needle_list::NEEDLES;

/// Bytes chosen from a needle: two grams.
const CHOSEN: usize = GRAM_BYTES + 1;

pub(super) fn write(out: &mut String, ordinary: &str) {
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    for gram in ordinary.as_bytes().windows(GRAM_BYTES) {
        *seen.entry(folded(gram)).or_default() += 1;
    }
    let mut needles: Vec<String> = NEEDLES.iter().map(|n| (*n).to_owned()).collect();
    needles.extend(heads());
    let (mut bits, mut grams) = (vec![0u64; 1 << (BITS - 6)], Vec::new());
    for (number, needle) in needles.iter().enumerate() {
        let bytes = needle.as_bytes();
        assert!(bytes.len() >= CHOSEN, "needle {needle:?} is too short");
        let common = |at: usize| -> u32 {
            let chosen = &bytes[at..at + CHOSEN];
            chosen.windows(GRAM_BYTES).map(|g| seen.get(&folded(g)).copied().unwrap_or(0)).sum()
        };
        let start = (0..=bytes.len() - CHOSEN).min_by_key(|&at| common(at)).unwrap_or(0);
        for offset in start..=start + CHOSEN - GRAM_BYTES {
            let gram = folded(&bytes[offset..offset + GRAM_BYTES]);
            bits[place(gram) >> 6] |= 1 << (place(gram) & 63);
            grams.push((gram, number as u16, offset as u8));
        }
    }
    grams.sort_unstable();
    super::numbers(out, "FORM_BITS", "u64", &bits);
    let _ = writeln!(out, "pub(crate) static FORM_GRAMS: [(u32, u16, u8); {}] = {grams:?};", grams.len());
    let _ = writeln!(out, "pub(crate) static FORM_NEEDLES: [&str; {}] = {needles:?};", needles.len());
}

/// `E1120 …` and `F0101 …` at the start of a line, in brackets or after a blank.
fn heads() -> impl Iterator<Item = String> {
    let days = (1..=12).flat_map(|month| (0..=3).map(move |tens| format!("{month:02}{tens}")));
    days.flat_map(|day| {
        ["e", "f"].into_iter().flat_map(move |letter| {
            let day = day.clone();
            ["\n", "[", " "].into_iter().map(move |before| format!("{before}{letter}{day}"))
        })
    })
}

/// A gram as the search sees it: without case, every digit a 0.
fn folded(gram: &[u8]) -> u32 {
    let seen = |byte: u8| if (byte | 0x20).is_ascii_digit() { b'0' } else { byte | 0x20 };
    gram.iter().rev().fold(0, |key, &byte| key << 8 | u32::from(seen(byte)))
}
