//! The journal of ended operations: a ring of entries, the newest over the oldest.
//!
//! Place `p` belongs to entry `p` modulo the length. Its sequence is `2p + 1` while it is written and `2p + 2` after.
//! A writer that finds its entry still being written by one a whole round behind drops its own and counts it.

use crate::sync::{AtomicU64, Ordering, fence};

/// Takes the entry for place `place`; false if it is busy or has been overtaken.
pub(crate) fn begin(sequence: &AtomicU64, place: u64) -> bool {
    let mine = place * 2 + 1;
    let seen = sequence.load(Ordering::Relaxed);
    if seen % 2 == 1 || seen > mine {
        return false;
    }
    if sequence.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    // A reader that sees one of the new words must also see that the sequence has moved on.
    fence(Ordering::Release);
    true
}

/// Shows the entry.
pub(crate) fn end(sequence: &AtomicU64, place: u64) {
    sequence.store(place * 2 + 2, Ordering::Release);
}

/// What a word of the entry says until `mark`: twice the place.
pub(crate) const fn unmarked(place: u64) -> u64 {
    place << 1
}

/// What it says afterwards.
pub(crate) const fn marked(place: u64) -> u64 {
    place << 1 | 1
}

/// Marks the entry of this place; false if another place has taken it meanwhile, or it was marked before.
pub(crate) fn mark(word: &AtomicU64, place: u64) -> bool {
    word.compare_exchange(unmarked(place), marked(place), Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The place that a sequence shows, if it is not being written.
pub(crate) const fn place(sequence: u64) -> Option<u64> {
    if sequence == 0 || sequence % 2 == 1 { None } else { Some(sequence / 2 - 1) }
}
