//! A job that is started again has had several processes for each rank. What is said of a rank now is said of the newest.

use crate::digest::ProcessState;
use crate::event::SeenRank;

/// A process has been dead for up to so much longer than was seen, seconds.
const SEEN_AFTER_S: f64 = 2.0;

/// A process with a rank, and what shows whether another one has taken its place.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The process.
    pub seen: SeenRank,
    /// Since when it is in its state, seconds since 1970.
    pub since: f64,
    /// It has written a ring.
    pub has_ring: bool,
}

/// Those that no later process of the same rank has followed.
pub fn current(all: &[Attempt]) -> Vec<SeenRank> {
    all.iter()
        .filter(|one| !all.iter().any(|other| follows(other, one)))
        .map(|one| one.seen.clone())
        .collect()
}

fn follows(new: &Attempt, old: &Attempt) -> bool {
    let is_gone = |one: &Attempt| matches!(one.seen.state, ProcessState::Dead | ProcessState::Zombie);
    let began = |one: &Attempt| one.seen.began.unwrap_or_default();
    // A worker of a data loader carries its rank's number and outlives it; it was there before.
    let is_after = new.has_ring || began(new) > old.since - SEEN_AFTER_S;
    new.seen.rank == old.seen.rank
        && new.seen.host == old.seen.host
        && is_gone(old)
        && began(new) > began(old)
        && is_after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(pid: u32, state: ProcessState, began: f64, since: f64, has_ring: bool) -> Attempt {
        let seen = SeenRank {
            rank: 1,
            local_rank: Some(1),
            host: "n".to_owned(),
            pid,
            state,
            began: Some(began),
            ..SeenRank::default()
        };
        Attempt { seen, since, has_ring }
    }

    fn of(all: &[Attempt]) -> Vec<u32> {
        current(all).into_iter().map(|seen| seen.pid).collect()
    }

    #[test]
    fn the_newest_of_a_rank_is_the_rank() {
        let (lives, dead) = (ProcessState::Alive, ProcessState::Dead);
        let mut all = vec![
            attempt(10, dead, 100.0, 150.5, true),
            // A pid may be smaller than an earlier one.
            attempt(9, dead, 150.1, 180.0, true),
            attempt(11, lives, 180.5, 180.5, false),
        ];
        assert_eq!(of(&all), [11]);
        // It died as well: it is still the newest.
        all[2].seen.state = dead;
        assert_eq!(of(&all), [11]);
        all[2].seen.rank = 2;
        assert_eq!(of(&all), [9, 11]);
    }

    #[test]
    fn a_helper_that_outlives_its_rank_does_not_follow_it() {
        let (lives, dead) = (ProcessState::Alive, ProcessState::Dead);
        let mut all = [attempt(10, dead, 100.0, 150.0, true), attempt(12, lives, 120.0, 120.0, false)];
        assert_eq!(of(&all), [10, 12]);
        // It has a ring of its own.
        all[1].has_ring = true;
        assert_eq!(of(&all), [12]);
    }
}
