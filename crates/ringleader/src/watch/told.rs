//! What was told of the present stall, and what is worth telling of it still.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::incident::Judged;

/// Between two looks at whether a stall is over.
const NAP: Duration = Duration::from_millis(50);
/// Said where a later look finds no cause.
pub(super) const STANDS: &str = "another look at the same stall shows no more: the verdict before it stands";
/// [`Judged::worth`] of a verdict that nothing can better.
pub(super) const SUREST: u8 = 3;

/// Shared with the threads of incidents.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What the best verdict on the present stall was worth.
    best: AtomicU8,
    /// How often all that stalled went on by itself.
    n_recoveries: AtomicU32,
    last: Mutex<Option<Instant>>,
    is_over: AtomicBool,
}

impl Told {
    /// All that stalled goes on.
    pub(super) fn recovered(&self) {
        self.n_recoveries.fetch_add(1, Ordering::Relaxed);
        self.best.store(0, Ordering::Relaxed);
    }

    /// The job ends, or the watcher does: nothing is held back any more.
    pub(super) fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// What the best verdict on the present stall was worth.
    pub(super) fn best(&self) -> u8 {
        self.best.load(Ordering::Relaxed)
    }

    /// A verdict is told.
    pub(super) fn tell(&self, judged: &Judged) {
        self.best.fetch_max(judged.worth(), Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// A look at the same stall, within `same` of the verdict before it, sees less: its ranks are ending by then.
    pub(super) fn sees_less(&self, judged: &Judged, same: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        judged.worth() == 0 && self.best() > 0 && last.is_some_and(|at| at.elapsed() < same)
    }

    /// The number of recoveries so far, for [`Self::persists`].
    pub(super) fn n_recoveries(&self) -> u32 {
        self.n_recoveries.load(Ordering::Relaxed)
    }

    /// Waits for what a verdict names to end by itself, where it may; whether it did. As [`Self::persists`].
    pub(super) fn passes(&self, judged: &Judged, since: Instant, hold: Duration, before: u32) -> bool {
        judged.may_pass() && !self.persists(since, judged.hold(hold), before)
    }

    /// Waits until the stall is as old as `hold`, or the job ends; whether it still lasts. `before`: recoveries when it began.
    pub(super) fn persists(&self, since: Instant, hold: Duration, before: u32) -> bool {
        while since.elapsed() < hold && !self.is_over.load(Ordering::Relaxed) {
            if self.n_recoveries() != before {
                return false;
            }
            thread::sleep(NAP);
        }
        self.n_recoveries() == before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_millis(400);

    #[test]
    fn a_stall_that_lasts_is_told() {
        let told = Told::default();
        let since = Instant::now();
        assert!(told.persists(since, HOLD, told.n_recoveries()));
        assert!(since.elapsed() >= HOLD);
    }

    #[test]
    fn one_that_passes_is_not() {
        let told = Told::default();
        let before = told.n_recoveries();
        told.recovered();
        assert!(!told.persists(Instant::now(), HOLD, before));
    }

    #[test]
    fn at_the_end_nothing_is_held_back() {
        let told = Told::default();
        told.over();
        let since = Instant::now();
        assert!(told.persists(since, Duration::from_mins(1), told.n_recoveries()));
        assert!(since.elapsed() < HOLD);
    }
}
