//! The journal of ended operations: a ring of entries in which the newest overwrites the oldest.
//!
//! Place `p` belongs to entry `p` modulo the length. Its sequence is `2p + 1` while it is written and `2p + 2`
//! afterwards. A writer that finds its entry still being written by a writer one round behind drops its own record
//! and counts it.

use crate::sync::{AtomicU64, Ordering, fence};

/// Takes the entry for place `place`; false if it is busy or a later place has taken it.
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

/// Publishes the entry.
pub(crate) fn end(sequence: &AtomicU64, place: u64) {
    sequence.store(place * 2 + 2, Ordering::Release);
}

/// The unmarked value of an entry's word: twice the place.
pub(crate) const fn unmarked(place: u64) -> u64 {
    place << 1
}

/// The marked value.
pub(crate) const fn marked(place: u64) -> u64 {
    place << 1 | 1
}

/// Marks the entry of this place; false if another place has taken it meanwhile, or if it was marked before.
pub(crate) fn mark(word: &AtomicU64, place: u64) -> bool {
    word.compare_exchange(unmarked(place), marked(place), Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The place that a sequence belongs to; None while it is being written.
pub(crate) const fn place(sequence: u64) -> Option<u64> {
    if sequence == 0 || sequence % 2 == 1 { None } else { Some(sequence / 2 - 1) }
}
