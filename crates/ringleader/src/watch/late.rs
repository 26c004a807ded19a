//! When a rank that is persistently late is looked into.

use std::time::{Duration, Instant};

/// After the first word on it: a job's start is uneven.
const FIRST: Duration = Duration::from_secs(15);
/// Each next look comes after this many times the wait before it, and at most after the longest one.
const TIMES: u32 = 3;
const LONGEST: Duration = Duration::from_mins(30);

/// The late rank, and the next look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    rank: u32,
    since: Instant,
    wait: Duration,
    is_told: bool,
}

impl Late {
    /// A watcher says that this rank is late; `known` is what was known before.
    pub(super) fn seen(known: Option<Self>, rank: u32) -> Self {
        let new = Self { rank, since: Instant::now(), wait: FIRST, is_told: false };
        known.filter(|known| known.rank == rank).unwrap_or(new)
    }

    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = !self.is_told && self.since.elapsed() >= self.wait;
        if is_due {
            *self = Self { since: Instant::now(), wait: (self.wait * TIMES).min(LONGEST), ..*self };
        }
        is_due
    }

    /// Whether a verdict says so.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// A verdict says so: there is no need of another one.
    pub(super) fn told(&mut self) {
        self.is_told = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_and_end_with_a_verdict() {
        let mut late = Late::seen(None, 1);
        assert!(!late.is_due());
        late.since = late.since.checked_sub(FIRST).unwrap_or(late.since);
        assert!(late.is_due() && !late.is_due());
        late.since = late.since.checked_sub(FIRST).unwrap_or(late.since);
        assert!(!late.is_due());
        late.since = late.since.checked_sub(FIRST * TIMES).unwrap_or(late.since);
        let mut told = Late::seen(Some(late), 1);
        told.told();
        assert!(late.is_due() && !told.is_due());
        // Another rank begins anew.
        assert!(!Late::seen(Some(told), 0).is_told);
    }
}
