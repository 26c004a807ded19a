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
}

impl Start {
    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self, has_ranks: bool) -> bool {
        if has_ranks {
            *self = Self::default();
            return false;
        }
        let Some(since) = self.since else {
            *self = Self { since: Some(Instant::now()), wait: Some(FIRST) };
            return false;
        };
        let Some(wait) = self.wait.filter(|wait| since.elapsed() >= *wait) else { return false };
        *self = Self { since: Some(Instant::now()), wait: Some((wait * TIMES).min(LONGEST)) };
        true
    }

    /// A verdict says so.
    pub(super) fn told(&mut self) {
        self.wait = None;
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
        start.told();
        ago(&mut start, LONGEST);
        assert!(!start.is_due(false) && !start.is_due(true));
        // An attempt that follows is another start.
        assert!(!start.is_due(false));
        ago(&mut start, FIRST);
        assert!(start.is_due(false));
    }
}
