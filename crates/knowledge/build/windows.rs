//! The windows that find a row in text. For each row the rarest stretch of one literal is chosen, with its grams at
//! four neighbouring places. A search that looks at every fourth place of a text meets one of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

#[path = "../src/message/hash.rs"]
mod hash;

use hash::{BITMAP_BITS, BUCKET_BITS, GRAM_BYTES, SHORT_GRAM_BYTES, STRIDE, hash};

/// Text whose digits do not count, as the search sees it.
pub(super) fn blind(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// A gram as a number, first byte lowest.
fn key(gram: &[u8]) -> u64 {
    gram.iter().rev().fold(0, |key, &byte| key << 8 | u64::from(byte))
}

/// Rows by gram, ordered by hash.
struct Grams {
    entries: Vec<(u64, u16)>,
}

pub(super) fn write(out: &mut String, ids: &[&str], rows: &[Vec<String>], ordinary: &str) {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|l| blind(l)).collect()).collect();
    let ordinary = blind(ordinary);
    let mut seen: BTreeMap<&[u8], u32> = BTreeMap::new();
    for literal in rows.iter().flatten() {
        for gram in literal.as_bytes().windows(GRAM_BYTES) {
            *seen.entry(gram).or_default() += 1;
        }
    }
    for gram in ordinary.as_bytes().windows(GRAM_BYTES) {
        if let Some(count) = seen.get_mut(gram) {
            *count += 50;
        }
    }
    let mut short: BTreeMap<&[u8], u32> = BTreeMap::new();
    for gram in ordinary.as_bytes().windows(SHORT_GRAM_BYTES) {
        *short.entry(gram).or_default() += 50;
    }
    let (mut long_grams, mut short_grams) = (Vec::new(), Vec::new());
    for (number, (id, literals)) in ids.iter().zip(&rows).enumerate() {
        let number = u16::try_from(number).expect("fewer than 65536 rows");
        if let Some(window) = rarest(literals, GRAM_BYTES, &seen) {
            long_grams.extend(window.windows(GRAM_BYTES).map(|gram| (key(gram), number)));
        } else if let Some(window) = rarest(literals, SHORT_GRAM_BYTES, &short) {
            short_grams.extend(window.windows(SHORT_GRAM_BYTES).map(|gram| (key(gram), number)));
        } else {
            panic!("message {id}: no literal of {} bytes to find it by", SHORT_GRAM_BYTES + STRIDE - 1);
        }
    }
    emit(out, "LONG", Grams { entries: long_grams });
    emit(out, "SHORT", Grams { entries: short_grams });
}

/// The stretch with the rarest grams; it has one gram at each of [`STRIDE`] places.
fn rarest<'a>(literals: &'a [String], gram: usize, seen: &BTreeMap<&[u8], u32>) -> Option<&'a [u8]> {
    let stretch = gram + STRIDE - 1;
    literals.iter().flat_map(|l| l.as_bytes().windows(stretch)).min_by_key(|window| {
        let common: u32 = window.windows(gram).map(|g| seen.get(g).copied().unwrap_or(0)).sum();
        let blank = window.iter().filter(|b| matches!(b, b' ' | b'0'..=b'9' | b'=' | b'-')).count();
        (common, blank)
    })
}

fn emit(out: &mut String, name: &str, mut grams: Grams) {
    grams.entries.sort_by_key(|&(key, row)| (hash(key), key, row));
    grams.entries.dedup();
    let mut bits = vec![0u64; 1 << (BITMAP_BITS - 6)];
    let mut starts = vec![0u16; (1 << BUCKET_BITS) + 1];
    for &(key, _) in &grams.entries {
        let bit = (hash(key) >> (64 - BITMAP_BITS)) as usize;
        bits[bit >> 6] |= 1 << (bit & 63);
        starts[(hash(key) >> (64 - BUCKET_BITS)) as usize + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    super::numbers(out, &format!("{name}_BITS"), "u64", &bits);
    super::numbers(out, &format!("{name}_STARTS"), "u16", &starts);
    let _ = writeln!(
        out,
        "pub(crate) static {name}_GRAMS: [(u64, u16); {}] = {:?};",
        grams.entries.len(),
        grams.entries
    );
}
