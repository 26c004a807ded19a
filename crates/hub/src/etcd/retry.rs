//! Pauses between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(5);

/// Doubles from 0.2 s to 5 s. Thousands of agents lose etcd at the same moment: each waits for a random time between
/// half and all of the pause, so that they do not return at the same moment.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(10)).min(LAST);
        self.failures = self.failures.saturating_add(1);
        full / 2 + chance(full / 2)
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random duration between zero and `most`.
pub(super) fn chance(most: Duration) -> Duration {
    // The standard library's only source of randomness: every new state hashes differently.
    let share = RandomState::new().hash_one(0u8) as f64 / u64::MAX as f64;
    most.mul_f64(share)
}
