//! A small hash for interning short byte strings while reading. Not for anything an attacker gains from: a flood of
//! collisions costs time within one dump, whose size is bounded.

use std::hash::{BuildHasherDefault, Hasher};

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
        self.0
    }
}

/// Map for look-ups only: it is never iterated, since its order means nothing.
#[expect(clippy::disallowed_types, reason = "looked up, never iterated: its order cannot reach the output")]
pub(crate) type LookupMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;
