//! When a rank that is late is looked into.

use super::{NextLook, SECOND_NS};
use crate::event::Straggler;

/// After the first event of it: a job's start is uneven.
const FIRST_NS: i64 = 15 * SECOND_NS;
/// Where whole seconds show it: they have shown it for long enough.
const SOON_NS: i64 = 2 * SECOND_NS;
/// Each next look comes after this many times the wait before it, and at most after the longest one.
const TIMES: i64 = 3;
const LONGEST_NS: i64 = 1_800 * SECOND_NS;

/// The late rank, and the next look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateRank {
    rank: u32,
    next: NextLook,
    /// A verdict says so.
    is_answered: bool,
    /// Whole seconds show it.
    by_seconds: bool,
}

impl LateRank {
    /// The engine says that this rank is late; `known` is what was known before.
    pub(super) fn seen(known: Option<Self>, late: &Straggler, now_ns: i64) -> Self {
        let by_seconds = late.over_s.is_some();
        let next = NextLook::new(now_ns, if by_seconds { SOON_NS } else { FIRST_NS });
        let new = Self { rank: late.rank, next, is_answered: false, by_seconds };
        match known {
            // Single steps say less than whole seconds of the job.
            Some(known) if known.by_seconds && !by_seconds => known,
            Some(known)
                if known.rank == late.rank && (known.by_seconds == by_seconds || known.is_answered) =>
            {
                known
            }
            // Ranks that cost little take turns: each turn is no reason for a look of its own.
            Some(known) if !late.persistent && !known.is_answered => Self { rank: late.rank, ..known },
            _ => new,
        }
    }

    /// Whether it is about this rank.
    pub(super) fn is_of(self, late: &Straggler) -> bool {
        self.rank == late.rank
    }

    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self, now_ns: i64) -> bool {
        !self.is_answered && self.next.is_due(now_ns, TIMES, LONGEST_NS)
    }

    /// Whether a verdict says so.
    pub(super) fn is_answered(self) -> bool {
        self.is_answered
    }

    /// A verdict says so: there is no need of another one.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_and_end_with_a_verdict() {
        let word = |rank, persistent| Straggler { rank, persistent, ..Straggler::default() };
        let mut late = LateRank::seen(None, &word(1, true), 0);
        assert!(!late.is_due(FIRST_NS - 1));
        assert!(late.is_due(FIRST_NS) && !late.is_due(2 * FIRST_NS));
        let at = FIRST_NS + FIRST_NS * TIMES;
        let mut answered = LateRank::seen(Some(late), &word(1, true), at);
        answered.answered();
        assert!(late.is_due(at) && !answered.is_due(at));
        // Another rank begins anew, but for one that costs little while there is no verdict.
        assert!(!LateRank::seen(Some(answered), &word(0, false), at).is_answered);
        assert_eq!(LateRank::seen(Some(late), &word(0, true), at).next, NextLook::new(at, FIRST_NS));
        let turn = LateRank::seen(Some(late), &word(0, false), at);
        assert_eq!((turn.rank, turn.next), (0, late.next));
        // Whole seconds say more, and at once.
        let seconds = LateRank::seen(Some(late), &Straggler { over_s: Some(24), ..word(0, true) }, at);
        assert_eq!((seconds.rank, seconds.next), (0, NextLook::new(at, SOON_NS)));
        assert_eq!(LateRank::seen(Some(seconds), &word(1, true), at).rank, 0);
    }
}
