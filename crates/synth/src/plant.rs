//! A planted fault: whom it strikes, where, and the calls that it changes.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::job::{Act, Job};
use crate::places::PlaceId;

/// A planted fault.
#[derive(Clone, Debug)]
pub(crate) struct Plant {
    pub(crate) fault: Fault,
    pub(crate) changed: BTreeMap<usize, Vec<Act>>,
    /// The rank that it strikes, or the first one.
    pub(crate) rank: u32,
    pub(crate) culprits: Vec<u32>,
    pub(crate) step: u16,
    /// Group and position (from 1 among the rank's collectives of the group) of the changed call.
    pub(crate) at: Option<(u16, u32)>,
    pub(crate) place: Option<PlaceId>,
    /// Place of the call that it was swapped with.
    pub(crate) other_place: Option<PlaceId>,
    pub(crate) story: String,
    /// Extra output of the faulty rank before the fault.
    pub(crate) print: Option<String>,
}

impl Plant {
    pub(crate) fn nothing(fault: Fault) -> Self {
        Self {
            fault,
            changed: BTreeMap::new(),
            rank: 0,
            culprits: Vec::new(),
            step: 0,
            at: None,
            place: None,
            other_place: None,
            story: String::new(),
            print: None,
        }
    }

    pub(crate) fn programs<'a>(&'a self, job: &'a Job, rank: usize) -> &'a [Act] {
        self.changed.get(&rank).unwrap_or(&job.programs[rank])
    }
}
