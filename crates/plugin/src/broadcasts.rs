//! Detects broadcasts after which NCCL reports kernels wrongly.
//!
//! NCCL and its kernels count the works of each channel, and a report is due when the two counts are equal. Since 2.29,
//! NCCL makes one launch of the broadcasts of a group that have different roots (PyTorch gathers parts of unequal size
//! this way). Its kernel counts each of them, and NCCL none (`src/scheduler/allgatherv_sched.cc`, 2.29 to 2.30). From
//! 2.31 on the same is observed after any broadcast. Afterwards an operation's kernel is reported when an earlier one
//! ran, or never, and with 2.30 `ncclCommDestroy` waits for that report forever (observed on two H200 with 2.30.7,
//! 2.31.2 and 2.32.3). So the plugin stops requesting kernels once it sees such a launch: it does not ask a release for
//! events that would make its counts diverge. `zoo/versions.py` tests the releases. `NCCL_ALLGATHERV_ENABLE=0` prevents
//! such launches.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

/// NCCL's own switch.
const SWITCH: &str = "NCCL_ALLGATHERV_ENABLE";
/// Groups that can be open at once, one for each thread that calls NCCL.
const GROUPS: usize = 64;

/// Which broadcasts make the counts diverge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Divergence {
    None,
    /// Those with several roots in one group.
    Several,
    Any,
}

#[derive(Debug)]
pub(crate) struct Broadcasts {
    kind: AtomicU8,
    have_parted: AtomicBool,
    /// The newest broadcast of some groups: group and communicator, hashed to 40 bits, and the root.
    newest: [AtomicU64; GROUPS],
}

impl Broadcasts {
    pub(crate) fn new() -> Self {
        Self {
            kind: AtomicU8::new(Divergence::None as u8),
            have_parted: AtomicBool::new(false),
            newest: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Sets the interface that NCCL has asked for: 6 since 2.29, 7 since 2.31.
    pub(crate) fn of_interface(&self, version: u8) {
        let is_off = || std::env::var(SWITCH).is_ok_and(|value| value.trim() == "0");
        let kind = match version {
            0..=5 => Divergence::None,
            _ if is_off() => Divergence::None,
            6 => Divergence::Several,
            _ => Divergence::Any,
        };
        // If two copies of NCCL are in one process, the worse one decides.
        self.kind.fetch_max(kind as u8, Relaxed);
    }

    pub(crate) fn have_parted(&self) -> bool {
        self.have_parted.load(Relaxed)
    }

    /// Records a broadcast by the handles of its communicator and group. Returns true once: when the counts
    /// diverge from here on.
    pub(crate) fn called(&self, comm: u64, group: u64, root: i32) -> bool {
        let kind = self.kind.load(Relaxed);
        if kind == Divergence::None as u8 || self.have_parted() {
            return false;
        }
        let parts = kind == Divergence::Any as u8 || {
            // Fibonacci hashing: the high bits are the mixed ones.
            let key = (comm ^ group.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
            let now = key << 24 | u64::from(root as u32 & 0xff_ffff);
            let before = self.newest.get((key >> 34) as usize % GROUPS).map_or(0, |at| at.swap(now, Relaxed));
            before >> 24 == key && before != now
        };
        parts && !self.have_parted.swap(true, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Broadcasts, Divergence};
    use std::sync::atomic::Ordering::Relaxed;

    fn of(kind: Divergence) -> Broadcasts {
        let broadcasts = Broadcasts::new();
        broadcasts.kind.store(kind as u8, Relaxed);
        broadcasts
    }

    #[test]
    fn those_of_several_roots_in_one_group() {
        let broadcasts = of(Divergence::Several);
        for group in 1..5_000 {
            // One root, and one root on each of two communicators.
            for comm in [1, 1 << 40] {
                assert!(!broadcasts.called(comm, group << 16, (group % 8) as i32 + (comm >> 40) as i32));
                assert!(!broadcasts.called(comm, group << 16, (group % 8) as i32 + (comm >> 40) as i32));
            }
        }
        assert!(!broadcasts.called(7, 7, 0));
        assert!(broadcasts.called(7, 7, 1));
        assert!(broadcasts.have_parted() && !broadcasts.called(7, 7, 2), "it is said once");
    }

    #[test]
    fn by_interface() {
        let broadcasts = Broadcasts::new();
        assert!(!broadcasts.called(7, 7, 0) && !broadcasts.called(7, 7, 1));
        broadcasts.of_interface(5);
        assert!(!broadcasts.called(7, 8, 0) && !broadcasts.called(7, 8, 1));
        broadcasts.of_interface(6);
        assert!(!broadcasts.called(7, 9, 0) && !broadcasts.called(7, 10, 1));
        broadcasts.of_interface(7);
        assert!(broadcasts.called(7, 11, 0));
    }
}
