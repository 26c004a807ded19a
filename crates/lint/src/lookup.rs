//! Maps that are asked and never walked through: their order reaches nothing.

use std::hash::{BuildHasherDefault, Hasher};

/// The multiply-and-fold scheme of `flow::value::hash`, for keys without an attacker who forces collisions.
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

/// A table by name that most questions miss: a look at the first letter and the length answers those.
#[derive(Debug)]
pub(crate) struct NameTable<V> {
    map: LookupMap<&'static str, V>,
    /// Lengths of the names with each first byte; the longest share a bit.
    lengths: [u64; 256],
}

impl<V: Copy> NameTable<V> {
    /// The first row of each name counts.
    pub(crate) fn first_of(rows: impl Iterator<Item = (&'static str, V)>) -> Self {
        let mut names = Self { map: LookupMap::default(), lengths: [0; 256] };
        for (name, value) in rows {
            if let Some(first) = name.as_bytes().first() {
                names.lengths[usize::from(*first)] |= length(name);
                names.map.entry(name).or_insert(value);
            }
        }
        names
    }

    pub(crate) fn get(&self, name: &str) -> Option<V> {
        let first = *name.as_bytes().first()?;
        if self.lengths[usize::from(first)] & length(name) == 0 {
            return None;
        }
        self.map.get(name).copied()
    }
}

fn length(name: &str) -> u64 {
    1 << name.len().min(63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_are_not() {
        let long = "a_name_that_is_longer_than_sixty_three_bytes_and_shares_its_bit_with_others";
        let names = NameTable::first_of([("rank", 1), ("rang", 2), ("rank", 3), (long, 4)].into_iter());
        assert_eq!(names.get("rank"), Some(1));
        assert_eq!(names.get("rang"), Some(2));
        assert_eq!(names.get(long), Some(4));
        assert_eq!(names.get(&long.replace("others", "another")), None);
        assert_eq!(["", "r", "rant", "bank", "ranks"].map(|name| names.get(name)), [None; 5]);
    }
}
