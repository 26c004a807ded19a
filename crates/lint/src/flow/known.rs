//! Values of names and attributes that are not being executed, found once for all runs.
//!
//! The values that the methods of a class assign to an attribute depend only on the conditions of the run that decide them. So
//! they are found without the calls under way, and kept with the results of the evaluated conditions, for all functions under
//! test. A run pays steps for them as if it had found them itself, so that its end does not depend on earlier runs.

use std::sync::{Mutex, PoisonError};

use super::trace::{ConditionValue, Oracle};
use super::value::Val;
use crate::lookup::LookupMap;

/// Steps that one value may take.
pub(super) const MAX_STEPS: usize = 4_000;
/// Parts of the map, each with a lock of its own.
const N_SHARDS: usize = 64;
/// Levels of names looked up through each other at which values are kept.
pub(super) const MAX_LEVEL: usize = 1;
/// Sets of answers under which one value is kept.
const MAX_WAYS: usize = 8;

/// A value under some answers.
#[derive(Clone, Debug)]
pub(super) struct KnownValue {
    /// Their depth is that above the calls under way.
    pub(super) answers: Vec<ConditionValue>,
    pub(super) value: Option<Val>,
    pub(super) steps: usize,
}

/// Values of attributes and names, found once.
#[derive(Debug)]
pub(crate) struct KnownValues {
    shards: Vec<Mutex<LookupMap<u64, Vec<KnownValue>>>>,
}

impl Default for KnownValues {
    fn default() -> Self {
        Self { shards: (0..N_SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl KnownValues {
    pub(super) fn get(&self, key: u64, oracle: &Oracle) -> Option<KnownValue> {
        let shard = self.shards.get(key as usize % N_SHARDS)?;
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |found: &&KnownValue| found.answers.iter().all(|answer| oracle.would_answer(answer));
        shard.get(&key)?.iter().find(fits).cloned()
    }

    pub(super) fn add(&self, key: u64, found: KnownValue) {
        let Some(shard) = self.shards.get(key as usize % N_SHARDS) else { return };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = shard.entry(key).or_default();
        if ways.len() < MAX_WAYS {
            ways.push(found);
        }
    }
}
