//! When a job of which a rank is gone while others live is looked into. Nothing need wait for that rank: it may have failed before
//! its first collective, or between two.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringleader_watch::digest::ProcessState;
use ringleader_watch::view::{Process, View};

/// Ranks of one job end within less.
const FIRST: Duration = Duration::from_secs(6);
/// Each next look comes after this many times the wait before it.
const TIMES: u32 = 4;
/// Looks at one and the same loss.
const MOST: u32 = 3;

/// Ranks that are gone, and the next look.
#[derive(Debug, Default)]
pub(super) struct GoneRanks {
    ranks: BTreeSet<u32>,
    since: Option<Instant>,
    wait: Duration,
    n_looks: u32,
    /// `VerdictExcerpt::worth` of the verdict on it; 0 before there is one.
    worth: u8,
}

impl GoneRanks {
    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self, view: &View) -> bool {
        // At the end of a job all are gone: what was told of the first ones still holds.
        gone(&view.processes).is_some_and(|ranks| self.is_due_with(ranks))
    }

    fn is_due_with(&mut self, ranks: BTreeSet<u32>) -> bool {
        if ranks != self.ranks {
            let since = (!ranks.is_empty()).then(Instant::now);
            *self = Self { ranks, since, wait: FIRST, ..Self::default() };
        }
        let is_due = self.n_looks < MOST && self.since.is_some_and(|since| since.elapsed() >= self.wait);
        if is_due {
            (self.since, self.wait) = (Some(Instant::now()), self.wait * TIMES);
            self.n_looks += 1;
        }
        is_due
    }

    /// A verdict says so, which is worth as much.
    pub(super) fn told(&mut self, worth: u8) {
        (self.n_looks, self.worth) = (MOST, self.worth.max(worth));
    }

    /// What was told of them.
    pub(super) fn worth(&self) -> u8 {
        self.worth
    }
}

/// Ranks whose process did not end in order, of which none lives; none where no other rank lives.
fn gone(processes: &[Process]) -> Option<BTreeSet<u32>> {
    let lives = |p: &&Process| !matches!(p.state, ProcessState::Dead | ProcessState::Zombie) && !p.is_silent;
    let living: BTreeSet<u32> = processes.iter().filter(lives).filter_map(|p| p.rank).collect();
    if living.is_empty() {
        return None;
    }
    let dead = processes.iter().filter(|p| !lives(p) && !p.is_silent && !p.is_ended);
    Some(dead.filter_map(|p| p.rank).filter(|rank| !living.contains(rank)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(rank: u32, state: ProcessState) -> Process {
        Process { rank: Some(rank), state, ..Process::default() }
    }

    #[test]
    fn one_of_several_that_did_not_end_in_order() {
        let (alive, dead) = (ProcessState::Alive, ProcessState::Dead);
        let of = |processes: &[Process]| gone(processes).into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(of(&[process(0, alive), process(1, dead)]), [1]);
        // All are; it ended in order; it was started again; its agent is silent.
        assert_eq!(of(&[process(0, dead), process(1, dead)]), [] as [u32; 0]);
        assert_eq!(of(&[process(0, alive), Process { is_ended: true, ..process(1, dead) }]), [] as [u32; 0]);
        assert_eq!(of(&[process(0, alive), process(1, dead), process(1, alive)]), [] as [u32; 0]);
        assert_eq!(of(&[process(0, alive), Process { is_silent: true, ..process(1, dead) }]), [] as [u32; 0]);
    }

    #[test]
    fn a_few_looks_until_it_is_told() {
        let mut ranks = GoneRanks::default();
        let one = || BTreeSet::from([1]);
        let pass = |ranks: &mut GoneRanks, time| ranks.since = Instant::now().checked_sub(time);
        assert!(!ranks.is_due_with(BTreeSet::new()) && !ranks.is_due_with(one()));
        pass(&mut ranks, FIRST);
        assert!(ranks.is_due_with(one()) && !ranks.is_due_with(one()));
        pass(&mut ranks, FIRST * TIMES);
        assert!(ranks.is_due_with(one()));
        ranks.told(2);
        pass(&mut ranks, FIRST * 100);
        assert!(!ranks.is_due_with(one()));
        // Another one as well.
        assert!(!ranks.is_due_with(BTreeSet::from([1, 2])));
        pass(&mut ranks, FIRST);
        assert!(ranks.is_due_with(BTreeSet::from([1, 2])));
    }
}
