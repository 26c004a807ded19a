//! Open groups of calls, for the writer only: which broadcasts were called in each.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::handle::{Handle, HandleKind};
use crate::slot;

/// Groups that can be open at once: one for each thread that calls NCCL.
const GROUPS: usize = 64;

/// One group: its tag, and the handle of its newest broadcast, which links to the others.
#[derive(Debug, Default)]
struct OpenGroup {
    tag: AtomicU64,
    newest: AtomicU64,
}

/// All groups.
#[derive(Debug)]
pub(crate) struct OpenGroups([OpenGroup; GROUPS]);

impl Default for OpenGroups {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OpenGroup::default()))
    }
}

impl OpenGroups {
    /// Opens a group; `NONE` if too many are open.
    pub(crate) fn begin(&self) -> Handle {
        for (index, group) in self.0.iter().enumerate() {
            if let Some(generation) = slot::claim(&group.tag) {
                group.newest.store(0, Relaxed);
                slot::publish(&group.tag, generation);
                return Handle::new(HandleKind::Group, index, generation, 0);
            }
        }
        Handle::NONE
    }

    fn of(&self, handle: Handle) -> Option<(&OpenGroup, u64)> {
        if handle.kind() != Some(HandleKind::Group) {
            return None;
        }
        let group = self.0.get(handle.index())?;
        let tag = group.tag.load(Relaxed);
        let same = slot::is_live(tag)
            && Handle::new(HandleKind::Group, handle.index(), slot::generation(tag), 0)
                == handle.following(true);
        same.then_some((group, slot::generation(tag)))
    }

    /// Adds a call to the front of the group's chain; `before` is the call's link to the previous one.
    pub(crate) fn add(&self, handle: Handle, call: Handle, before: &AtomicU64) {
        before.store(0, Relaxed);
        if let Some((group, _)) = self.of(handle) {
            // A group belongs to one thread, so nobody follows the chain between these two stores.
            before.store(group.newest.swap(call.0, AcqRel), Relaxed);
        }
    }

    /// Closes a group and returns its newest call.
    pub(crate) fn end(&self, handle: Handle) -> u64 {
        let Some((group, generation)) = self.of(handle) else { return 0 };
        let newest = group.newest.swap(0, AcqRel);
        slot::free(&group.tag, generation);
        newest
    }
}
