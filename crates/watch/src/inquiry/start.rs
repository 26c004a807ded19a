//! When a job of which no rank is there is looked into: its launcher may wait for nodes that do not come.

use super::{NextLook, SECOND_NS};

/// Nodes of one job start within less.
const FIRST_NS: i64 = 30 * SECOND_NS;
/// Each next look comes after this many times the wait before it, and at most after the longest one.
const TIMES: i64 = 3;
const LONGEST_NS: i64 = 1_800 * SECOND_NS;

/// A job that has not started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NotStarted {
    is_seen: bool,
    /// None once a verdict was reported.
    next: Option<NextLook>,
    /// `VerdictExcerpt::worth` of the verdict on it; 0 before there is one.
    worth: u8,
}

impl NotStarted {
    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self, has_started: bool, now_ns: i64) -> bool {
        if has_started {
            *self = Self::default();
            return false;
        }
        if !self.is_seen {
            *self = Self { is_seen: true, next: Some(NextLook::new(now_ns, FIRST_NS)), worth: 0 };
            return false;
        }
        self.next.as_mut().is_some_and(|next| next.is_due(now_ns, TIMES, LONGEST_NS))
    }

    /// A verdict says so, which is worth as much.
    pub(super) fn answered(&mut self, worth: u8) {
        (self.next, self.worth) = (None, self.worth.max(worth));
    }

    /// `VerdictExcerpt::worth` of the verdict on it; 0 before there is one, and once a rank has come.
    pub(super) fn worth(&self) -> u8 {
        self.worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_until_a_rank_is_there_or_a_verdict_says_so() {
        let mut start = NotStarted::default();
        assert!(!start.is_due(true, 0) && !start.is_due(false, 0) && !start.is_due(false, 1));
        assert!(start.is_due(false, FIRST_NS) && !start.is_due(false, 2 * FIRST_NS));
        let at = FIRST_NS + FIRST_NS * TIMES;
        assert!(start.is_due(false, at));
        start.answered(2);
        assert!(!start.is_due(false, at + LONGEST_NS) && start.worth() == 2);
        assert!(!start.is_due(true, at + LONGEST_NS));
        assert_eq!(start.worth(), 0);
        // An attempt that follows is another start.
        let again = at + 2 * LONGEST_NS;
        assert!(!start.is_due(false, again) && start.is_due(false, again + FIRST_NS));
    }
}
