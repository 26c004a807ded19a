//! Finds the rows that a text may contain, by looking once at every fourth place of it.
//!
//! Each row is found by one stretch of its literal text that the build chose because it is rare. The grams at four
//! neighbouring places of that stretch are in a static table, so a search in steps of four bytes meets one of them. A
//! bitmap of 32 KB rejects most places; no table is built at run time. In grams each digit counts as a 0, so the same
//! tables show which lines no row can match whatever their numbers are ([`wanted_blind`]).

use super::MessageRow;
use super::hash::{BITMAP_BITS, BUCKET_BITS, GRAM_BYTES, SHORT_GRAM_BYTES, STRIDE, hash};
use super::pattern::PatternPart;
use crate::blind::{blind, blind_word};
use crate::tables::{LONG_BITS, LONG_GRAMS, LONG_STARTS, SHORT_BITS, SHORT_GRAMS, SHORT_STARTS};

/// Bytes that are examined at once.
const HEAD: usize = GRAM_BYTES;

/// Rows that a text may contain.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    rows: Vec<MessageRow>,
}

impl Candidates {
    /// Adds the rows that `text` may contain.
    pub fn look(&mut self, text: &[u8]) {
        places::<false>(text, |at, key, long| {
            for &(_, row) in grams(key, long) {
                if !self.rows.contains(&MessageRow(row))
                    && MessageRow(row).stands_around::<false>(text, at, long)
                {
                    self.rows.push(MessageRow(row));
                }
            }
            true
        });
    }

    /// The rows, in the order in which they were found.
    pub fn rows(&self) -> impl Iterator<Item = MessageRow> {
        self.rows.iter().copied()
    }
}

/// The first place at or after `from` near which a row may match, in a line or a block of many lines. The match itself
/// begins before it. None if the rest contains nothing of any row.
///
/// A reader calls this for a whole block and classifies only the lines that it finds.
pub fn wanted(block: &[u8], from: usize) -> Option<usize> {
    search::<false>(block, from)
}

/// Whether a row may match a text in which each digit was replaced by a 0: false only if no row matches any text that
/// becomes this one.
pub fn wanted_blind(blind: &[u8]) -> bool {
    search::<true>(blind, 0).is_some()
}

fn search<const BLIND: bool>(block: &[u8], from: usize) -> Option<usize> {
    // Places are counted from the start of the block, so that a stretch is found wherever the search begins.
    let start = from - from % STRIDE;
    let text = block.get(start..)?;
    let place = places::<BLIND>(text, |at, key, long| {
        !grams(key, long)
            .iter()
            .any(|&(_, row)| MessageRow(row).stands_around::<BLIND>(block, start + at, long))
    })?;
    Some(start + place)
}

/// Calls `visit` for each place whose gram may belong to a row, until it returns false, and returns that place. If
/// `IS_BLIND`, each digit of the text is a 0 already.
#[inline]
fn places<const IS_BLIND: bool>(
    text: &[u8],
    mut visit: impl FnMut(usize, u64, bool) -> bool,
) -> Option<usize> {
    let seen = |word: u64| if IS_BLIND { word } else { blind_word(word) };
    let mut at = 0;
    while let Some(Ok(head)) = text.get(at..at + HEAD).map(<[u8; HEAD]>::try_from) {
        let key = seen(u64::from_le_bytes(head));
        let short = key & ((1 << (8 * SHORT_GRAM_BYTES)) - 1);
        if bit(&LONG_BITS, key) && !visit(at, key, true)
            || bit(&SHORT_BITS, short) && !visit(at, short, false)
        {
            return Some(at);
        }
        at += STRIDE;
    }
    // The last bytes are too few for a long gram.
    while let Some(Ok(head)) = text.get(at..at + SHORT_GRAM_BYTES).map(<[u8; SHORT_GRAM_BYTES]>::try_from) {
        let short = seen(u64::from(u32::from_le_bytes(head)));
        if bit(&SHORT_BITS, short) && !visit(at, short, false) {
            return Some(at);
        }
        at += STRIDE;
    }
    None
}

impl MessageRow {
    /// Whether a whole literal of the row is where one of its grams was found; if `BLIND`, whatever its digits are.
    #[cold]
    fn stands_around<const BLIND: bool>(self, text: &[u8], at: usize, long: bool) -> bool {
        let n = if long { GRAM_BYTES } else { SHORT_GRAM_BYTES };
        let Some(gram) = text.get(at..at + n) else { return false };
        let is = |a: &[u8], b: &[u8]| {
            if BLIND {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| blind(*a) == blind(*b))
            } else {
                a == b
            }
        };
        self.parts().any(|part| {
            let PatternPart::Literal(literal) = part else { return false };
            let literal = literal.as_bytes();
            literal.windows(n).enumerate().filter(|(_, window)| is(window, gram)).any(|(offset, _)| {
                let start = at.checked_sub(offset);
                start.and_then(|start| text.get(start..start + literal.len())).is_some_and(|t| is(t, literal))
            })
        })
    }
}

#[inline]
fn bit(bits: &[u64; 1 << (BITMAP_BITS - 6)], key: u64) -> bool {
    let bit = (hash(key) >> (64 - BITMAP_BITS)) as usize;
    bits[bit >> 6] >> (bit & 63) & 1 == 1
}

/// The rows with exactly this gram.
fn grams(key: u64, long: bool) -> &'static [(u64, u16)] {
    let bucket = (hash(key) >> (64 - BUCKET_BITS)) as usize;
    let (starts, entries) =
        if long { (&LONG_STARTS[..], &LONG_GRAMS[..]) } else { (&SHORT_STARTS[..], &SHORT_GRAMS[..]) };
    let range = match (starts.get(bucket), starts.get(bucket + 1)) {
        (Some(&start), Some(&end)) => usize::from(start)..usize::from(end),
        _ => return &[],
    };
    let entries = entries.get(range).unwrap_or_default();
    let first = entries.iter().position(|(k, _)| *k == key);
    let n = entries.iter().filter(|(k, _)| *k == key).count();
    first.and_then(|first| entries.get(first..first + n)).unwrap_or_default()
}
