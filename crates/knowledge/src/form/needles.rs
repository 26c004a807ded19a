//! Searches whole blocks for the needles without which no line reports a failure.
//!
//! The build chooses five rare bytes of each needle. A search that looks at every second place of a text,
//! four bytes at a time, meets one of their two grams. A bitmap rejects nearly all places; the rest are
//! compared with the whole needle, so the search stops only at lines that contain one.

use super::needle_hash::{BITS, GRAM_BYTES, place};
use crate::blind::{blind, blind_word};
use crate::tables::{FORM_BITS, FORM_GRAMS, FORM_NEEDLES};

/// Folds the case of letters; the effect on other bytes does not matter, because both sides are folded.
const FOLD: u8 = 0x20;

/// The first place at or after `from` that belongs to a needle, in a line or a block of many lines; the
/// needle itself may begin a few bytes before it. None if there is no needle in the rest.
pub fn wanted(block: &[u8], from: usize) -> Option<usize> {
    search::<false>(block, from)
}

/// Whether a needle may be in a text whose digits were all replaced by 0: false only if none is in any text that
/// becomes this one.
pub fn wanted_blind(blind: &[u8]) -> bool {
    search::<true>(blind, 0).is_some()
}

/// Bytes at either end of a line that a needle with the end of a line in it may cover.
const END_BYTES: usize = 15;

/// Whether a needle is in a line that stands without its line feed: `step 812 loss nan` ends with one.
pub fn wanted_in_line(line: &[u8]) -> bool {
    in_line::<false>(line)
}

/// The same for a line whose digits were all replaced by 0, see [`wanted_blind`].
pub fn wanted_blind_in_line(blind: &[u8]) -> bool {
    in_line::<true>(blind)
}

fn in_line<const BLIND: bool>(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    if search::<BLIND>(line, 0).is_some() {
        return true;
    }
    // Such needles are short.
    let mut end = [b'\n'; END_BYTES + 1];
    let n_bytes = line.len().min(END_BYTES);
    for (to, from) in end.iter_mut().zip(line.get(line.len() - n_bytes..).unwrap_or_default()) {
        *to = *from;
    }
    let mut start = [b'\n'; END_BYTES + 1];
    for (to, from) in start.iter_mut().skip(1).zip(line) {
        *to = *from;
    }
    let is_in = |part: &[u8]| search::<BLIND>(part, 0).is_some();
    is_in(end.get(..=n_bytes).unwrap_or_default()) || is_in(start.get(..=n_bytes).unwrap_or_default())
}

fn search<const BLIND: bool>(block: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(Ok(bytes)) = block.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let text = blind_word(u64::from_le_bytes(bytes) | 0x2020_2020_2020_2020);
        let (first, second) = (text as u32, (text >> 16) as u32);
        if marked(first) && stands::<BLIND>(block, at, first)
            || marked(second) && stands::<BLIND>(block, at + 2, second)
        {
            return Some(at);
        }
        at += 4;
    }
    while let Some(Ok(bytes)) = block.get(at..at + GRAM_BYTES).map(<[u8; GRAM_BYTES]>::try_from) {
        let gram = blind_word(u64::from(u32::from_le_bytes(bytes) | 0x2020_2020)) as u32;
        if marked(gram) && stands::<BLIND>(block, at, gram) {
            return Some(at);
        }
        at += 2;
    }
    None
}

#[inline]
fn marked(gram: u32) -> bool {
    let bit = place(gram);
    FORM_BITS[bit >> 6 & ((1 << (BITS - 6)) - 1)] >> (bit & 63) & 1 == 1
}

/// Whether a needle with this gram is around `at`; if `BLIND`, whatever its digits are. The end of a block ends a line.
#[cold]
fn stands<const BLIND: bool>(block: &[u8], at: usize, gram: u32) -> bool {
    let start = FORM_GRAMS.partition_point(|&(g, _, _)| g < gram);
    let grams = FORM_GRAMS.get(start..).unwrap_or_default().iter().take_while(|&&(g, _, _)| g == gram);
    for &(_, needle, offset) in grams {
        let Some(needle) = FORM_NEEDLES.get(usize::from(needle)) else { continue };
        let text =
            at.checked_sub(usize::from(offset)).and_then(|start| block.get(start..start + needle.len()));
        let is = |(a, b): (&u8, &u8)| {
            if BLIND { blind(a | FOLD) == blind(b | FOLD) } else { a | FOLD == b | FOLD }
        };
        if text.is_some_and(|text| text.iter().zip(needle.as_bytes()).all(is)) {
            return true;
        }
    }
    false
}
