//! When a job of which a rank is gone while others live is looked into. Nothing need wait for that rank: it may have failed before
//! its first collective, or between two.

use std::collections::BTreeSet;

use super::{NextLook, SECOND_NS};
use crate::digest::ProcessState;
use crate::view::Process;

/// Ranks of one job end within less.
const FIRST_NS: i64 = 6 * SECOND_NS;
/// Each next look comes after this many times the wait before it.
const TIMES: i64 = 4;
/// Looks at one and the same loss.
const MOST: u32 = 3;

/// Ranks that are gone, and the next look.
#[derive(Debug, Default)]
pub(super) struct LostRanks {
    ranks: BTreeSet<u32>,
    next: Option<NextLook>,
    n_looks: u32,
    /// `VerdictExcerpt::worth` of the verdict on it; 0 before there is one.
    worth: u8,
}

impl LostRanks {
    /// Whether it is time for a look; if so the next one is set.
    pub(super) fn is_due(&mut self, processes: &[Process], now_ns: i64) -> bool {
        // At the end of a job all are gone: what was reported of the first ones still holds.
        lost(processes).is_some_and(|ranks| self.is_due_with(ranks, now_ns))
    }

    fn is_due_with(&mut self, ranks: BTreeSet<u32>, now_ns: i64) -> bool {
        if ranks != self.ranks {
            let next = (!ranks.is_empty()).then(|| NextLook::new(now_ns, FIRST_NS));
            *self = Self { ranks, next, ..Self::default() };
        }
        let is_due = self.n_looks < MOST
            && self.next.as_mut().is_some_and(|next| next.is_due(now_ns, TIMES, i64::MAX));
        self.n_looks += u32::from(is_due);
        is_due
    }

    /// A verdict says so, which is worth as much.
    pub(super) fn answered(&mut self, worth: u8) {
        (self.n_looks, self.worth) = (MOST, self.worth.max(worth));
    }

    /// What the verdict on them was worth.
    pub(super) fn worth(&self) -> u8 {
        self.worth
    }
}

/// Ranks that have no process left and did not end in order; None where no rank lives.
fn lost(processes: &[Process]) -> Option<BTreeSet<u32>> {
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
        let of = |processes: &[Process]| lost(processes).into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(of(&[process(0, alive), process(1, dead)]), [1]);
        // All are; it ended in order; it was started again; its agent is silent.
        assert_eq!(of(&[process(0, dead), process(1, dead)]), [] as [u32; 0]);
        assert_eq!(of(&[process(0, alive), Process { is_ended: true, ..process(1, dead) }]), [] as [u32; 0]);
        assert_eq!(of(&[process(0, alive), process(1, dead), process(1, alive)]), [] as [u32; 0]);
        assert_eq!(of(&[process(0, alive), Process { is_silent: true, ..process(1, dead) }]), [] as [u32; 0]);
    }

    #[test]
    fn a_few_looks_until_a_verdict_names_them() {
        let mut ranks = LostRanks::default();
        let one = || BTreeSet::from([1]);
        assert!(!ranks.is_due_with(BTreeSet::new(), 0) && !ranks.is_due_with(one(), 0));
        assert!(ranks.is_due_with(one(), FIRST_NS) && !ranks.is_due_with(one(), 2 * FIRST_NS));
        let at = FIRST_NS + FIRST_NS * TIMES;
        assert!(ranks.is_due_with(one(), at));
        ranks.answered(2);
        assert!(!ranks.is_due_with(one(), 100 * FIRST_NS));
        // Another one as well.
        let both = || BTreeSet::from([1, 2]);
        assert!(!ranks.is_due_with(both(), 100 * FIRST_NS));
        assert!(ranks.is_due_with(both(), 101 * FIRST_NS));
        // Of one loss no more than a few.
        let later = (102..1_000).filter(|n| ranks.is_due_with(both(), n * FIRST_NS)).count();
        assert_eq!(later, MOST as usize - 1);
    }
}
