//! Decides which operations are followed to their end.
//!
//! Reports of kernels and proxies cost the program time, whatever a plugin does with them. Measured on H200 with NCCL
//! 2.28.9, a single operation takes about 4 us longer with one channel and 12 us with 24, and an operation of 256 KiB
//! in an unbroken row takes 34 us instead of 9. So each followed operation is paid for from a credit that grows with
//! the elapsed time. Programs that pause between their calls, as training does, are followed completely; of a flood of
//! calls only some are. The others are recorded when they are called and handed over.
//!
//! NCCL reads the mask when it takes a call, and reports the call right afterwards (2.28 and later), so a mask stored
//! here applies from the next call on, also within a group. There it must not change: NCCL makes one work of a send and
//! a receive, takes the receive's mask for the kernel and each one's own for its report (`addP2pToPlan` in
//! `src/enqueue.cc`, 2.26 to 2.30). If only the send asks for a report, the kernel never makes it, and `ncclCommDestroy`
//! waits for it forever (seen on two H200 with 2.28.9). So the mask is switched when no group is open. Threads may open
//! groups at once, and NCCL reads the mask a moment before it reports a group: once groups of two threads have been open
//! at the same time in a process that sends and receives, the mask stays as it is. NCCL does not report the end of a group
//! that fails: such a group counts as open from then on, and nothing is switched any more.
//!
//! Graphs end the switching. NCCL and the kernels both count the works of each channel, and a report is due when the
//! two counts are equal. A call that is captured without reports counts once in NCCL, and in the kernels each time the
//! graph runs (`incWorkCounter` and `src/device/common.h`, 2.26.3 to 2.30): the counts diverge for good. A followed
//! operation after that is reported too early, or never, and then `ncclCommDestroy` waits for its report forever. So
//! the mask stays as it was when the first call was captured. Interfaces 3 and 4 report kernels but not capturing: with
//! them the mask is never switched.

use std::ffi::c_int;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};

/// Share of the time that following may cost, in thousandths: below 0.5 % together with what is always recorded.
const SHARE_MILLI: u64 = 2;
/// Largest credit that a pause can earn, ns: enough for a burst of hundreds of spaced calls, or of tens in a row.
const MOST_NS: i64 = 4_000_000;
/// Cost of following an operation, ns: mostly waking the proxy thread. Rounded up from the measurements, as below.
const FOLLOWED_NS: i64 = 5_000;
/// Additional cost of each channel, ns: for a single operation, and in a row, in which the proxy thread has no rest.
const CHANNEL_NS: i64 = 500;
const CHANNEL_IN_A_ROW_NS: i64 = 1_250;
/// Time after reports were switched on during which a call may still have been taken without them in another thread,
/// ns.
const SETTLING_NS: u64 = 1_000;
/// Calls closer together than this are a row, ns.
const ROW_NS: u64 = 100_000;

/// Credit of one process. Threads may overwrite each other's updates: it is an estimate.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Whether switching has ended, or never began: because of the environment or a graph.
    is_fixed: AtomicBool,
    /// Bits of the mask that are switched.
    bits: AtomicI32,
    /// Bits that are always set; without them the mask was not set by us, or was reset.
    kept: AtomicI32,
    /// NCCL's mask: one for all communicators of the process.
    mask: AtomicPtr<AtomicI32>,
    follows: AtomicBool,
    credit_ns: AtomicI64,
    last_ns: AtomicU64,
    /// Whether the last call came in a row.
    is_row: AtomicBool,
    /// When reports were last switched.
    on_ns: AtomicU64,
    /// Groups of calls that are open, in all threads.
    n_open: AtomicI32,
    /// Groups of two threads were open at once.
    is_shared: AtomicBool,
    /// The program sends or receives.
    has_pairs: AtomicBool,
}

impl Pace {
    /// `fixed` disables switching: everything is followed (true) or nothing (false).
    pub(crate) fn new(fixed: Option<bool>) -> Self {
        Self {
            is_fixed: AtomicBool::new(fixed.is_some()),
            bits: AtomicI32::new(0),
            kept: AtomicI32::new(0),
            mask: AtomicPtr::new(std::ptr::null_mut()),
            follows: AtomicBool::new(fixed.unwrap_or(true)),
            credit_ns: AtomicI64::new(MOST_NS),
            last_ns: AtomicU64::new(0),
            is_row: AtomicBool::new(false),
            on_ns: AtomicU64::new(0),
            n_open: AtomicI32::new(0),
            is_shared: AtomicBool::new(false),
            has_pairs: AtomicBool::new(false),
        }
    }

    /// A group of calls begins; a call by itself is one.
    #[inline]
    pub(crate) fn group_begins(&self) {
        if self.n_open.fetch_add(1, SeqCst) > 0 && !self.is_shared.swap(true, Relaxed) {
            self.look_at_pairs();
        }
    }

    /// A group of calls ends.
    #[inline]
    pub(crate) fn group_ends(&self) {
        if self.n_open.fetch_sub(1, SeqCst) == 1 && !self.is_fixed.load(Relaxed) {
            self.turn(self.last_ns.load(Relaxed));
        }
    }

    /// A group begins whose end will not be seen: nothing is switched any more.
    #[cold]
    pub(crate) fn group_is_lost(&self) {
        self.settle(self.follows());
    }

    /// The program sends or receives.
    #[inline]
    pub(crate) fn pairs(&self) {
        if !self.has_pairs.load(Relaxed) && !self.has_pairs.swap(true, Relaxed) {
            self.look_at_pairs();
        }
    }

    #[cold]
    fn look_at_pairs(&self) {
        if self.has_pairs.load(Relaxed) && self.is_shared.load(Relaxed) {
            self.settle(self.follows());
        }
    }

    /// Sets the address of NCCL's mask, as `init` got it, the bits that are switched and those that are always set. The
    /// mask is a variable of NCCL's own, so it exists as long as NCCL calls.
    ///
    /// A second NCCL in the process has its own mask, and one switch would have to serve both: switching ends then.
    pub(crate) fn at(&self, mask: *mut c_int, bits: c_int, kept: c_int) {
        let before = self.mask.load(Relaxed);
        if !before.is_null() && before != mask.cast() {
            self.settle(self.follows());
        }
        self.bits.store(bits, Relaxed);
        self.kept.store(kept, Relaxed);
        self.mask.store(mask.cast(), Relaxed);
    }

    /// Whether the next call is followed.
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Relaxed)
    }

    /// Whether the call reported at `now_ns` is followed: only if NCCL is certain to report on it.
    pub(crate) fn follows_at(&self, now_ns: u64) -> bool {
        self.follows() && now_ns.saturating_sub(self.on_ns.load(Relaxed)) >= SETTLING_NS
    }

    /// The mask for a new communicator: the same as for the others.
    pub(crate) fn now(&self, mask: c_int) -> c_int {
        if self.follows() { mask } else { mask & !self.bits.load(Relaxed) }
    }

    /// Accounts for an operation called at `now_ns`.
    pub(crate) fn called(&self, now_ns: u64, was_followed: bool) {
        if self.is_fixed.load(Relaxed) {
            return;
        }
        let last = self.last_ns.load(Relaxed);
        self.last_ns.store(now_ns, Relaxed);
        let gap = if last == 0 { 0 } else { now_ns.saturating_sub(last) };
        let earned = i64::try_from(gap.saturating_mul(SHARE_MILLI) / 1000).unwrap_or(MOST_NS);
        self.is_row.store(gap < ROW_NS, Relaxed);
        self.spend(earned - if was_followed { FOLLOWED_NS } else { 0 }, now_ns);
    }

    /// Accounts for the channels of the last call, which is followed, once they are known.
    pub(crate) fn spread(&self, channels: u8) {
        if self.is_fixed.load(Relaxed) {
            return;
        }
        let each = if self.is_row.load(Relaxed) { CHANNEL_IN_A_ROW_NS } else { CHANNEL_NS };
        self.spend(-each * i64::from(channels), self.last_ns.load(Relaxed));
    }

    #[inline]
    fn spend(&self, earned: i64, now_ns: u64) {
        let credit = self.credit_ns.load(Relaxed).saturating_add(earned).min(MOST_NS);
        self.credit_ns.store(credit, Relaxed);
        if self.n_open.load(SeqCst) == 0 {
            self.turn(now_ns);
        }
    }

    /// Switches if the credit says so. Only while no group is open.
    #[inline]
    fn turn(&self, now_ns: u64) {
        let follows = self.credit_ns.load(Relaxed) > 0;
        if follows != self.follows.load(Relaxed) {
            self.on_ns.store(now_ns, Relaxed);
            self.follows.store(follows, Relaxed);
            self.switch(follows);
        }
    }

    /// Fixes the mask from here on: as it was for the group of a call that is being captured.
    #[cold]
    pub(crate) fn settle(&self, was_followed: bool) {
        if self.is_fixed.swap(true, Relaxed) {
            return;
        }
        if self.follows.swap(was_followed, Relaxed) != was_followed {
            self.switch(was_followed);
        }
    }

    #[cold]
    fn switch(&self, on: bool) {
        let Some(mask) = self.place() else { return };
        let (old, kept, bits) = (mask.load(Relaxed), self.kept.load(Relaxed), self.bits.load(SeqCst));
        if old & kept == kept {
            mask.store(if on { old | bits } else { old & !bits }, SeqCst);
        }
        // Bits that another thread removed meanwhile.
        mask.fetch_and(!(bits & !self.bits.load(SeqCst)), SeqCst);
    }

    /// Stops requesting these bits, whether the mask is switched or not.
    #[cold]
    pub(crate) fn without(&self, bits: c_int) {
        self.bits.fetch_and(!bits, SeqCst);
        if let Some(mask) = self.place() {
            mask.fetch_and(!bits, SeqCst);
        }
    }

    fn place(&self) -> Option<&AtomicI32> {
        // SAFETY: null, or NCCL's variable, which is aligned, outlives the callbacks, and is read atomically by NCCL.
        unsafe { self.mask.load(Relaxed).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: c_int = 0x58;
    const KEPT: c_int = 0x6;

    /// Makes `n` calls over `channels`, one every `gap_ns`; returns how many were followed.
    fn spread(pace: &Pace, channels: u8, gap_ns: u64, n: u64, from_ns: u64) -> u64 {
        (1..=n)
            .filter(|at| {
                let was = pace.follows();
                pace.called(from_ns + at * gap_ns, was);
                if was {
                    pace.spread(channels);
                }
                was
            })
            .count() as u64
    }

    fn followed(pace: &Pace, gap_ns: u64, n: u64, from_ns: u64) -> u64 {
        spread(pace, 1, gap_ns, n, from_ns)
    }

    #[test]
    fn training_is_followed_wholly_and_floods_in_part() {
        let mut mask: c_int = BITS | KEPT;
        let pace = Pace::new(None);
        pace.at(&raw mut mask, BITS, KEPT);
        // 300 calls a second for a minute.
        assert_eq!(followed(&pace, 3_333_333, 18_000, 1), 18_000);
        // 100 calls, 200 us apart, once every half second.
        for step in 0..20 {
            assert_eq!(followed(&pace, 200_000, 100, 100_000_000_000 + step * 500_000_000), 100);
        }
        // A hundred large ones per second: 17 us each, of 2 ms per second.
        assert_eq!(spread(&pace, 24, 10_000_000, 6_000, 160_000_000_000), 6_000);
        // A flood: one every 9 us for ten seconds. At 6.25 us each out of 0.2 % it is one in three milliseconds; at 35
        // us, one in 17.
        let n = followed(&pace, 9_000, 1_111_111, 300_000_000_000);
        assert!((3_200..3_900).contains(&n), "{n}");
        let n = spread(&pace, 24, 9_000, 1_111_111, 400_000_000_000);
        assert!((550..700).contains(&n), "{n}");
        // Operations of 128 MiB in a row: 17 us each, of the 1.3 us that each earns.
        let n = spread(&pace, 24, 636_000, 10_000, 500_000_000_000);
        assert!((750..1_000).contains(&n), "{n}");
        let at = pace.mask.load(Relaxed);
        // SAFETY: `mask` above lives.
        let mask = unsafe { &*at }.load(Relaxed);
        assert_eq!(mask & KEPT, KEPT);
        assert_eq!(mask & BITS == BITS, pace.follows());
    }

    #[test]
    fn a_mask_that_was_taken_back_stays_so() {
        let mut mask: c_int = 0;
        let pace = Pace::new(None);
        pace.at(&raw mut mask, BITS, KEPT);
        followed(&pace, 9_000, 100_000, 1);
        assert!(!pace.follows() || pace.credit_ns.load(Relaxed) > 0);
        assert_eq!(mask, 0);
    }

    #[test]
    fn within_a_group_nothing_is_switched() {
        let mut mask: c_int = BITS | KEPT;
        let pace = Pace::new(None);
        pace.at(&raw mut mask, BITS, KEPT);
        let asked = || pace.place().is_some_and(|mask| mask.load(Relaxed) & BITS != 0);
        pace.group_begins();
        followed(&pace, 9_000, 2_000, 1);
        assert!(pace.credit_ns.load(Relaxed) < 0 && pace.follows() && asked());
        // One of another thread begins and ends in between.
        pace.group_begins();
        pace.group_ends();
        assert!(pace.follows() && asked());
        pace.group_ends();
        assert!(!pace.follows() && !asked());
        // And on again, after a pause within a group.
        pace.group_begins();
        pace.called(60_000_000_000, false);
        assert!(!pace.follows() && !asked());
        pace.group_ends();
        assert!(pace.follows() && asked());
    }

    #[test]
    fn pairs_beside_groups_of_other_threads_end_the_switching() {
        for pairs_first in [true, false] {
            let mut mask: c_int = BITS | KEPT;
            let pace = Pace::new(None);
            pace.at(&raw mut mask, BITS, KEPT);
            if pairs_first {
                pace.pairs();
            }
            pace.group_begins();
            pace.group_begins();
            pace.pairs();
            pace.group_ends();
            pace.group_ends();
            followed(&pace, 9_000, 2_000, 1);
            assert!(pace.follows());
            assert_eq!(mask, BITS | KEPT);
        }
        // Without pairs, or without other threads, it goes on.
        for has_pairs in [true, false] {
            let pace = Pace::new(None);
            pace.group_begins();
            if has_pairs {
                pace.pairs();
            } else {
                pace.group_begins();
                pace.group_ends();
            }
            pace.group_ends();
            followed(&pace, 9_000, 2_000, 1);
            assert!(!pace.follows());
        }
    }

    #[test]
    fn a_group_whose_end_is_not_seen_ends_the_switching() {
        let pace = Pace::new(None);
        pace.group_is_lost();
        followed(&pace, 9_000, 2_000, 1);
        assert!(pace.follows());
    }

    #[test]
    fn a_call_right_after_the_switch_counts_as_not_followed() {
        let pace = Pace::new(None);
        assert!(pace.follows_at(1_000));
        followed(&pace, 9_000, 1_000, 1);
        while pace.follows() {
            followed(&pace, 9_000, 1, pace.last_ns.load(Relaxed));
        }
        let now = pace.last_ns.load(Relaxed) + 1_000_000_000;
        assert!(!pace.follows_at(now));
        pace.called(now, false);
        assert!(pace.follows() && !pace.follows_at(now + 999) && pace.follows_at(now + 1_000));
    }

    #[test]
    fn a_graph_ends_the_switching() {
        for was_followed in [true, false] {
            let mut mask: c_int = BITS | KEPT;
            let pace = Pace::new(None);
            pace.at(&raw mut mask, BITS, KEPT);
            // Whatever it was a moment before.
            pace.settle(was_followed);
            pace.settle(!was_followed);
            followed(&pace, 9_000, 100_000, 1);
            followed(&pace, 2_000_000, 10_000, 10_000_000_000);
            assert_eq!(pace.follows(), was_followed);
            assert_eq!(pace.now(BITS | KEPT), if was_followed { BITS | KEPT } else { KEPT });
            assert_eq!(mask, if was_followed { BITS | KEPT } else { KEPT });
        }
    }

    #[test]
    fn bits_that_were_given_up_stay_so() {
        for fixed in [None, Some(true)] {
            let mut mask: c_int = BITS | KEPT;
            let pace = Pace::new(fixed);
            pace.at(&raw mut mask, BITS, KEPT);
            pace.without(0x40);
            assert_eq!(mask, 0x1e);
            followed(&pace, 9_000, 100_000, 1);
            followed(&pace, 2_000_000, 10_000, 10_000_000_000);
            assert_eq!((pace.follows(), mask), (true, 0x1e));
        }
    }

    #[test]
    fn two_of_nccl_in_one_process_are_not_switched() {
        let (mut first, mut second): (c_int, c_int) = (BITS | KEPT, 0);
        let pace = Pace::new(None);
        pace.at(&raw mut first, BITS, KEPT);
        pace.at(&raw mut first, BITS, KEPT);
        assert!(followed(&pace, 9_000, 100_000, 1) < 100_000, "of one it is");
        let follows = pace.follows();
        pace.at(&raw mut second, BITS, KEPT);
        second = pace.now(BITS | KEPT);
        assert_eq!(followed(&pace, 9_000, 100_000, 2_000_000_000), if follows { 100_000 } else { 0 });
        assert_eq!(first & BITS == BITS, follows);
        assert_eq!(second & BITS == BITS, follows);
    }

    #[test]
    fn what_the_environment_fixes_is_not_switched() {
        assert_eq!(followed(&Pace::new(Some(true)), 1_000, 100_000, 1), 100_000);
        assert_eq!(followed(&Pace::new(Some(false)), 1_000_000_000, 1_000, 1), 0);
    }
}
