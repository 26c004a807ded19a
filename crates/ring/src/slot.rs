//! One entry of a region: claimed, filled, published and freed without a lock, while another process reads it.
//!
//! The tag holds a generation and a state. `FREE` (all zeros in a new file) becomes `CLAIMED` by compare-and-swap, the
//! words are filled, and a release store of `LIVE` publishes them. Freeing raises the generation. Words that are
//! constant within a generation are consistent for a reader that finds the same `LIVE` tag before and after reading
//! them; each word that changes within a generation is consistent only by itself.

use crate::sync::{AtomicU64, Ordering, fence};

const STATE: u64 = 3;
const FREE: u64 = 0;
const CLAIMED: u64 = 1;
pub(crate) const LIVE: u64 = 2;

/// The generation in a tag; handles contain its lowest 24 bits.
pub(crate) const fn generation(tag: u64) -> u64 {
    tag >> 2
}

pub(crate) const fn is_live(tag: u64) -> bool {
    tag & STATE == LIVE
}

pub(crate) const fn is_free(tag: u64) -> bool {
    tag & STATE == FREE
}

/// A reference from one entry to another: one more than the index in the low 16 bits, the generation above. 0 is none.
pub(crate) const fn reference(index: usize, generation: u64) -> u64 {
    (generation << 16) | (index as u64 + 1)
}

/// Index and generation of a reference.
pub(crate) const fn referred(reference: u64) -> Option<(usize, u64)> {
    match reference & 0xffff {
        0 => None,
        at => Some((at as usize - 1, reference >> 16)),
    }
}

/// Generations in references have 48 bits.
pub(crate) const fn same_generation(tag: u64, generation_48: u64) -> bool {
    generation(tag) & 0xffff_ffff_ffff == generation_48
}

/// Claims a free entry and returns its generation. Its words may be filled afterwards.
pub(crate) fn claim(tag: &AtomicU64) -> Option<u64> {
    let seen = tag.load(Ordering::Relaxed);
    if !is_free(seen) {
        return None;
    }
    tag.compare_exchange(seen, seen | CLAIMED, Ordering::Acquire, Ordering::Relaxed).ok()?;
    // A reader that sees a word of this generation must also see that the tag has moved on.
    fence(Ordering::Release);
    Some(generation(seen))
}

/// Takes a live entry from its owner, who is gone, and returns the new generation.
pub(crate) fn reclaim(tag: &AtomicU64, seen: u64) -> Option<u64> {
    let next = (generation(seen) + 1) << 2 | CLAIMED;
    tag.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).ok()?;
    fence(Ordering::Release);
    Some(generation(next))
}

/// Publishes a filled entry.
pub(crate) fn publish(tag: &AtomicU64, generation: u64) {
    tag.store(generation << 2 | LIVE, Ordering::Release);
}

/// Frees a live entry; false if it no longer had this generation.
pub(crate) fn free(tag: &AtomicU64, generation: u64) -> bool {
    let next = (generation + 1) << 2 | FREE;
    tag.compare_exchange(generation << 2 | LIVE, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Reads an entry in the same process and returns its tag if it was live and unchanged.
///
/// The reader in another process uses three copies of the file in place of three loads: see `reader`.
#[cfg(all(test, loom))]
pub(crate) fn read(tag: &AtomicU64, words: &[AtomicU64], into: &mut [u64]) -> Option<u64> {
    let before = tag.load(Ordering::Acquire);
    if !is_live(before) {
        return None;
    }
    for (to, word) in into.iter_mut().zip(words) {
        *to = word.load(Ordering::Relaxed);
    }
    fence(Ordering::Acquire);
    (tag.load(Ordering::Relaxed) == before).then_some(before)
}
