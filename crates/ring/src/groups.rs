//! Groups of calls that are open, for the writer alone: which broadcasts were called in each.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::handle::{Handle, HandleKind};
use crate::slot;

/// Groups that may be open at once: one for each thread that calls NCCL.
const GROUPS: usize = 64;

/// One group: its tag, and the handle of the newest broadcast in it, from which the others follow.
#[derive(Debug, Default)]
struct OpenGroup {
    tag: AtomicU64,
    newest: AtomicU64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct OpenGroups([OpenGroup; GROUPS]);

impl Default for OpenGroups {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OpenGroup::default()))
    }
}

impl OpenGroups {
    /// `NONE` if too many are open.
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

    /// Puts a call before those that the group has; `before` is the call's word for the one that was newest.
    pub(crate) fn add(&self, handle: Handle, call: Handle, before: &AtomicU64) {
        before.store(0, Relaxed);
        if let Some((group, _)) = self.of(handle) {
            // A group belongs to one thread, so nobody follows the chain between the two.
            before.store(group.newest.swap(call.0, AcqRel), Relaxed);
        }
    }

    /// The newest call of a group, which is gone afterwards.
    pub(crate) fn end(&self, handle: Handle) -> u64 {
        let Some((group, generation)) = self.of(handle) else { return 0 };
        let newest = group.newest.swap(0, AcqRel);
        slot::free(&group.tag, generation);
        newest
    }
}
