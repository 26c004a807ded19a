//! Maps that are asked and never walked through: their order reaches nothing.

use std::hash::{BuildHasherDefault, Hasher};

/// The multiply-and-fold scheme of `flow::value::hash`, for keys that nobody chooses to collide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Folding(u64);

impl Folding {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, byte) in last.iter_mut().zip(rest) {
            *to = *byte;
        }
        self.add(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
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

#[expect(clippy::disallowed_types, reason = "asked only; nothing is listed in its order")]
pub(crate) type LookupMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Folding>>;
#[expect(clippy::disallowed_types, reason = "asked only; nothing is listed in its order")]
pub(crate) type LookupSet<K> = std::collections::HashSet<K, BuildHasherDefault<Folding>>;
