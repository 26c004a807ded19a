//! Collectives that end although ranks called different ones: nothing hangs, and the numbers are wrong.
//!
//! Digests carry some ended collectives whose numbers all agents choose alike. Of one communicator, the same number must be
//! the same function with as many bytes on every rank.

use std::collections::BTreeMap;

use crate::digest::DoneDigest;

/// So many calls that differ are no slip of a ring that was read while it was written. Chosen.
const LEAST: u32 = 3;
/// Numbers that are remembered: those of the newest digests of all ranks. Chosen.
const MAX_NUMBERS: usize = 256;

/// What the ranks of one communicator called, by number.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    known: BTreeMap<u64, (u32, String, u64)>,
    n: u32,
    first: Option<String>,
    is_told: bool,
}

impl Differing {
    /// Takes what a rank of the communicator has ended.
    pub(crate) fn take(&mut self, rank: u32, recent: &[DoneDigest]) {
        for done in recent.iter().filter(|done| done.bytes > 0 && is_same_on_all(&done.function)) {
            let Some((other, function, bytes)) = self.known.get(&done.number) else {
                if self.known.len() == MAX_NUMBERS {
                    self.known.pop_first();
                }
                self.known.insert(done.number, (rank, done.function.clone(), done.bytes));
                continue;
            };
            if *other == rank || (function, *bytes) == (&done.function, done.bytes) {
                continue;
            }
            self.n = self.n.saturating_add(1);
            self.first.get_or_insert_with(|| {
                format!(
                    "rank {rank} called {} of {} bytes where rank {other} called {function} of {bytes} bytes (number {}), and both ended: the numbers are wrong",
                    done.function, done.bytes, done.number
                )
            });
            self.known.remove(&done.number);
        }
    }

    /// What differs, in words, where that is certain.
    pub(crate) fn text(&self) -> Option<&str> {
        self.first.as_deref().filter(|_| self.n >= LEAST)
    }

    /// The same, once.
    pub(crate) fn news(&mut self) -> Option<String> {
        let text = self.text().filter(|_| !self.is_told)?.to_owned();
        self.is_told = true;
        Some(text)
    }
}

/// Whether every rank calls it with the same count.
fn is_same_on_all(function: &str) -> bool {
    matches!(function, "AllReduce" | "AllGather" | "ReduceScatter" | "Broadcast" | "Reduce")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(number: u64, function: &str, bytes: u64) -> DoneDigest {
        DoneDigest { number, bytes, function: function.to_owned(), ..DoneDigest::default() }
    }

    /// Two ranks whose calls differ, and in how many: those of the second are the odd ones.
    fn pair(n: u64, other: impl Fn(u64) -> DoneDigest) -> Differing {
        let mut differing = Differing::default();
        let usual: Vec<DoneDigest> = (0..20).map(|i| done(i, "Broadcast", 2048)).collect();
        differing.take(0, &usual);
        let own: Vec<DoneDigest> =
            usual.iter().map(|d| if d.number < n { other(d.number) } else { d.clone() }).collect();
        differing.take(1, &own);
        // The next digest has the same again.
        differing.take(1, &own);
        differing
    }

    #[test]
    fn sizes_and_functions_that_differ_are_told_once() {
        let mut sizes = pair(3, |n| done(n, "Broadcast", 2000));
        let text = sizes.news().expect("three differ");
        assert!(text.starts_with("rank 1 called Broadcast of 2000 bytes where rank 0 called"), "{text}");
        assert_eq!(sizes.news(), None);
        assert!(pair(3, |n| done(n, "AllReduce", 2048)).text().is_some());
    }

    #[test]
    fn what_is_alike_or_unknown_or_rare_is_not_told() {
        assert_eq!(pair(0, |n| done(n, "", 0)).text(), None);
        assert_eq!(pair(2, |n| done(n, "Broadcast", 2000)).text(), None);
        assert_eq!(pair(20, |n| done(n, "Broadcast", 0)).text(), None);
        assert_eq!(pair(20, |n| done(n, "Send", 7)).text(), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut differing = Differing::default();
        for number in 0..10 * MAX_NUMBERS as u64 {
            differing.take(0, &[done(number, "AllReduce", 4)]);
        }
        assert_eq!(differing.known.len(), MAX_NUMBERS);
    }
}
