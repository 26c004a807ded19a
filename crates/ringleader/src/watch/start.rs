//! When a job of which no rank is there is looked into: its launcher may wait for nodes that do not come.

use std::time::{Duration, Instant};

/// Nodes of one job start within less.
const FIRST: Duration = Duration::from_secs(30);
/// Each next look comes after this many times the wait before it, and at most after the longest one.
const TIMES: u32 = 3;
const LONGEST: Duration = Duration::from_mins(30);

/// A job without ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    /// Since when, or since the last look.
    since: Option<Instant>,
    /// Until the next look; none once it was told of.
    wait: Option<Duration>,
    /// `Answer::worth` of the verdict on it; 0 before there is one.
    worth: u8,
}

impl Start {
    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self, has_ranks: bool) -> bool {
        if has_ranks {
            *self = Self::default();
            return false;
        }
        let Some(since) = self.since else {
            *self = Self { since: Some(Instant::now()), wait: Some(FIRST), ..Self::default() };
            return false;
        };
        let Some(wait) = self.wait.filter(|wait| since.elapsed() >= *wait) else { return false };
        *self = Self { since: Some(Instant::now()), wait: Some((wait * TIMES).min(LONGEST)), ..*self };
        true
    }

    /// A verdict says so, which is worth as much.
    pub(super) fn told(&mut self, worth: u8) {
        (self.wait, self.worth) = (None, self.worth.max(worth));
    }

    /// What was told of a job of which no rank has come since.
    pub(super) fn worth(&self) -> u8 {
        self.worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_until_a_rank_is_there_or_it_is_told() {
        let mut start = Start::default();
        let ago = |start: &mut Start, time| start.since = Instant::now().checked_sub(time);
        assert!(!start.is_due(true) && !start.is_due(false) && !start.is_due(false));
        ago(&mut start, FIRST);
        assert!(start.is_due(false) && !start.is_due(false));
        ago(&mut start, FIRST);
        assert!(!start.is_due(false));
        ago(&mut start, FIRST * TIMES);
        assert!(start.is_due(false));
        start.told(2);
        ago(&mut start, LONGEST);
        assert!(!start.is_due(false) && start.worth() == 2 && !start.is_due(true));
        assert_eq!(start.worth(), 0);
        // An attempt that follows is another start.
        assert!(!start.is_due(false));
        ago(&mut start, FIRST);
        assert!(start.is_due(false));
    }
}
