//! When a rank that is late is looked into.

use std::time::{Duration, Instant};

use ringleader_watch::event::Straggler;

/// After the first word on it: a job's start is uneven.
const FIRST: Duration = Duration::from_secs(15);
/// Where whole seconds show it: they have shown it for long enough.
const SOON: Duration = Duration::from_secs(2);
/// Each next look comes after this many times the wait before it, and at most after the longest one.
const TIMES: u32 = 3;
const LONGEST: Duration = Duration::from_mins(30);

/// The late rank, and the next look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateRank {
    rank: u32,
    since: Instant,
    wait: Duration,
    is_told: bool,
    /// Whole seconds show it.
    by_seconds: bool,
}

impl LateRank {
    /// A watcher says that this rank is late; `known` is what was known before.
    pub(super) fn seen(known: Option<Self>, late: &Straggler) -> Self {
        let by_seconds = late.over_s.is_some();
        let wait = if by_seconds { SOON } else { FIRST };
        let new = Self { rank: late.rank, since: Instant::now(), wait, is_told: false, by_seconds };
        match known {
            // Single steps say less than whole seconds of the job.
            Some(known) if known.by_seconds && !by_seconds => known,
            Some(known) if known.rank == late.rank && (known.by_seconds == by_seconds || known.is_told) => {
                known
            }
            // Ranks that cost little take turns: each turn is no reason for a look of its own.
            Some(known) if !late.persistent && !known.is_told => Self { rank: late.rank, ..known },
            _ => new,
        }
    }

    /// Whether it is about this rank.
    pub(super) fn is_of(self, late: &Straggler) -> bool {
        self.rank == late.rank
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
        let word = |rank, persistent| Straggler { rank, persistent, ..Straggler::default() };
        let mut late = LateRank::seen(None, &word(1, true));
        assert!(!late.is_due());
        late.since = late.since.checked_sub(FIRST).unwrap_or(late.since);
        assert!(late.is_due() && !late.is_due());
        late.since = late.since.checked_sub(FIRST).unwrap_or(late.since);
        assert!(!late.is_due());
        late.since = late.since.checked_sub(FIRST * TIMES).unwrap_or(late.since);
        let mut told = LateRank::seen(Some(late), &word(1, true));
        told.told();
        assert!(late.is_due() && !told.is_due());
        // Another rank begins anew, but for one that costs little while nothing is told.
        assert!(!LateRank::seen(Some(told), &word(0, false)).is_told);
        assert_eq!(LateRank::seen(Some(late), &word(0, true)).wait, FIRST);
        let turn = LateRank::seen(Some(late), &word(0, false));
        assert_eq!((turn.rank, turn.wait), (0, late.wait));
        // Whole seconds say more, and at once.
        let seconds = LateRank::seen(Some(late), &Straggler { over_s: Some(24), ..word(0, true) });
        assert_eq!((seconds.rank, seconds.wait), (0, SOON));
        assert_eq!(LateRank::seen(Some(seconds), &word(1, true)).rank, 0);
    }
}
