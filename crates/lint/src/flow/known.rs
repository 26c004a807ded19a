//! Values of names and attributes that are not being executed, found once for all runs.
//!
//! What the methods of a class assign to an attribute is the same whoever asks, but for the conditions of the run that decide
//! it. So it is found without the calls under way, and kept with the answers that it asked for, for all functions under test.
//! A run pays for it in steps as if it had found it itself: how far a run gets does not depend on what others found before.

use std::sync::{Mutex, PoisonError};

use super::machine::Machine;
use super::trace::{Answer, Oracle};
use super::value::{Val, hash};
use crate::lookup::LookupMap;

/// Steps that one value may take.
const MAX_STEPS: usize = 4_000;
/// Parts of the map, each with a lock of its own.
const N_SHARDS: usize = 64;
/// Levels of names looked up through each other at which values are kept.
const MAX_LEVEL: usize = 1;
/// Sets of answers under which one value is kept.
const MAX_WAYS: usize = 8;

/// A value under some answers.
#[derive(Clone, Debug)]
struct Found {
    /// Their depth is that above the calls under way.
    answers: Vec<Answer>,
    value: Option<Val>,
    steps: usize,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Known {
    shards: Vec<Mutex<LookupMap<u64, Vec<Found>>>>,
}

impl Default for Known {
    fn default() -> Self {
        Self { shards: (0..N_SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Known {
    fn get(&self, key: u64, oracle: &Oracle) -> Option<Found> {
        let shard = self.shards.get(key as usize % N_SHARDS)?;
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |found: &&Found| found.answers.iter().all(|answer| oracle.would_answer(answer));
        shard.get(&key)?.iter().find(fits).cloned()
    }

    fn add(&self, key: u64, found: Found) {
        let Some(shard) = self.shards.get(key as usize % N_SHARDS) else { return };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = shard.entry(key).or_default();
        if ways.len() < MAX_WAYS {
            ways.push(found);
        }
    }
}

impl Machine<'_, '_, '_> {
    /// The value with this number, found by `find` if it is not known.
    pub(super) fn known_value(
        &mut self,
        number: u64,
        find: &mut dyn FnMut(&mut Self) -> Option<Val>,
    ) -> Option<Val> {
        if self.muted > MAX_LEVEL {
            return self.quietly(find);
        }
        let facts = self.facts;
        let flags =
            u64::from(self.is_survey) | u64::from(self.with_local) << 1 | u64::from(self.has_overrides) << 2;
        let key = hash(&[number, self.muted as u64, flags, self.max_frames as u64, self.place_number]);
        if let Some(found) = facts.known.get(key, self.oracle) {
            let depth = self.depth();
            for answer in &found.answers {
                self.oracle.choose(Answer { depth: answer.depth + depth, ..*answer });
            }
            self.pay(key, found.steps);
            return found.value;
        }
        let (found, is_pure) = self.alone(find);
        self.pay(key, found.steps);
        let value = found.value.clone();
        if is_pure {
            facts.known.add(key, found);
        }
        value
    }

    /// Each run pays once.
    fn pay(&mut self, key: u64, steps: usize) {
        if self.paid.insert(key) {
            self.steps = self.steps.saturating_sub(steps);
        }
    }

    fn quietly(&mut self, find: &mut dyn FnMut(&mut Self) -> Option<Val>) -> Option<Val> {
        self.muted += 1;
        let value = find(self);
        self.muted -= 1;
        value
    }

    /// Finds a value as if nothing were under way, and tells whether only the answers decide it.
    fn alone(&mut self, find: &mut dyn FnMut(&mut Self) -> Option<Val>) -> (Found, bool) {
        let below = self.below;
        self.below += self.frames.len();
        let frames = std::mem::take(&mut self.frames);
        let known = std::mem::take(&mut self.known);
        let (loops, order) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.order));
        let counts = [self.no_sync, self.joined, self.endless, self.guessing, self.open_arms];
        [self.no_sync, self.joined, self.endless, self.guessing, self.open_arms] = [0; 5];
        let state = (self.steps, self.lowest, self.is_over, self.in_background.take(), self.trace.is_over);
        (self.steps, self.is_over) = (MAX_STEPS, false);
        let logs = (self.settled.len(), self.entered.len(), self.oracle.answers.len(), self.n_overridden);

        let value = self.quietly(find);

        let mut answers: Vec<Answer> = Vec::new();
        for answer in self.oracle.answers.get(logs.2..).unwrap_or_default() {
            if !answers.iter().any(|known| known.key == answer.key) {
                answers.push(Answer { depth: answer.depth.saturating_sub(self.below), ..*answer });
            }
        }
        let is_pure = self.n_overridden == logs.3;
        let steps = MAX_STEPS.saturating_sub(self.steps);
        self.settled.truncate(logs.0);
        self.entered.truncate(logs.1);
        (self.steps, self.lowest, self.is_over, self.in_background, self.trace.is_over) = state;
        [self.no_sync, self.joined, self.endless, self.guessing, self.open_arms] = counts;
        (self.loops, self.order) = (loops, order);
        (self.known, self.frames, self.below) = (known, frames, below);
        (Found { answers, value, steps }, is_pure)
    }
}
