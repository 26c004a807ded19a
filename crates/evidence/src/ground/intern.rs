//! A small hash for interning short byte strings while reading. Not for anything an attacker gains from: a flood of
//! collisions costs time within one dump, whose size is bounded.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Fast multiply-and-rotate hasher (the Fx scheme of rustc).
#[derive(Default, Clone, Copy)]
pub(crate) struct FxHasher(u64);

const SEED: u64 = 0x51_7c_c1_b7_27_22_0a_95;

impl FxHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SEED);
    }
}

impl Hasher for FxHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.add(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        }
        let mut tail = [0_u8; 8];
        for (to, from) in tail.iter_mut().zip(chunks.remainder()) {
            *to = *from;
        }
        self.add(u64::from_le_bytes(tail) ^ (bytes.len() as u64) << 56);
    }
    fn write_u8(&mut self, n: u8) {
        self.add(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.add(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }
    fn finish(&self) -> u64 {
        // A product's high bits are the good ones, and the table takes the low ones.
        self.0.rotate_left(26)
    }
}

/// Hash of one value.
pub(crate) fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Map for look-ups only: it is never iterated, since its order means nothing.
#[expect(clippy::disallowed_types, reason = "looked up, never iterated: its order cannot reach the output")]
pub(crate) type LookupMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Finds equal items of a table that somebody else holds, so that nothing is stored twice.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Hash and place + 1; 0 = vacant. A power of two long, at most half full.
    slots: Vec<(u64, u32)>,
    n_taken: usize,
}

impl Index {
    /// Slots looked at. Honest hashes never get there; hostile ones cost this much and no more, at the price of an
    /// item stored twice.
    const MAX_PROBES: usize = 32;

    /// Place of an item whose hash is `hash` and that `is_same`; else `next`, which is where the caller then puts it.
    #[inline]
    pub(crate) fn place(&mut self, hash: u64, next: u32, mut is_same: impl FnMut(u32) -> bool) -> u32 {
        if self.n_taken * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        for probe in 0..Self::MAX_PROBES {
            let Some(slot) = self.slots.get_mut((hash as usize).wrapping_add(probe) & mask) else { break };
            if slot.1 == 0 {
                *slot = (hash, next.saturating_add(1));
                self.n_taken += 1;
                break;
            }
            if slot.0 == hash && is_same(slot.1 - 1) {
                return slot.1 - 1;
            }
        }
        next
    }

    /// Place of an equal item, if there is one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_same: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        for probe in 0..Self::MAX_PROBES {
            let slot = self.slots.get((hash as usize).wrapping_add(probe) & mask)?;
            if slot.1 == 0 {
                return None;
            }
            if slot.0 == hash && is_same(slot.1 - 1) {
                return Some(slot.1 - 1);
            }
        }
        None
    }

    #[cold]
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots.resize((old.len() * 2).max(64), (0, 0));
        self.n_taken = 0;
        for (hash, place) in old.into_iter().filter(|slot| slot.1 != 0) {
            self.place(hash, place - 1, |_| false);
        }
    }
}
