//! Which operations are followed to their end.
//!
//! That NCCL reports kernels and proxies costs the program, whatever a plugin then does with the reports: measured on
//! H200 with NCCL 2.28.9, an operation alone takes about 4 us longer where it has one channel, 12 where it has 24, and one
//! of 256 KiB in an unbroken row 34 us in place of 9. So each followed operation is paid for from a credit that grows with
//! time. Programs that pause between their calls, as training does, are followed wholly; of a flood of calls some are. The
//! others are recorded when they are called and handed over.
//!
//! NCCL reads the mask when it takes up a call, and tells us of the call right after that (2.28 and later), so what is
//! stored here holds from the next call on, also within a group.
//!
//! Graphs end the switching. NCCL and the kernels both count the works of each channel, and a report is due when the two
//! counts meet. A call that is recorded without reports counts once with NCCL, and with the kernels each time the graph
//! runs (`incWorkCounter` and `src/device/common.h`, 2.26.3 to 2.30): the counts part for good, and a followed operation
//! after that is reported too early, or never, and then `ncclCommDestroy` waits for its report for ever. So the mask stays
//! as it was when the first call was recorded. Interfaces 3 and 4 report kernels and do not tell of recording: there it is
//! never switched.

use std::ffi::c_int;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};

/// Share of the time that may go into following, in thousandths: with what is recorded anyway below 0.5 %.
const SHARE_MILLI: u64 = 2;
/// Most credit that a pause can give, ns: a burst of hundreds of spaced calls, or of tens in a row.
const MOST_NS: i64 = 4_000_000;
/// What following costs an operation, ns: waking the proxy thread above all. Rounded up from the measurements, as below.
const FOLLOWED_NS: i64 = 5_000;
/// What each of its channels adds if it came alone, and in a row, where the proxy thread has no rest, ns.
const CHANNEL_NS: i64 = 500;
const CHANNEL_IN_A_ROW_NS: i64 = 1_250;
/// So long after reports were switched on a call may still have been taken up without them, in another thread, ns.
const SETTLING_NS: u64 = 1_000;
/// Calls closer than this are a row, ns.
const ROW_NS: u64 = 100_000;

/// Credit of one process. Threads may lose each other's updates; it is an estimate.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Switching is over, or never began: what the environment says, or a graph.
    is_fixed: AtomicBool,
    /// Bits of the mask that are switched.
    bits: AtomicI32,
    /// Bits without which the mask was not set by us, or was taken back.
    kept: AtomicI32,
    /// NCCL's mask: one for all communicators of the process.
    mask: AtomicPtr<AtomicI32>,
    follows: AtomicBool,
    credit_ns: AtomicI64,
    last_ns: AtomicU64,
    /// The last call came in a row.
    is_row: AtomicBool,
    /// When reports were switched on.
    on_ns: AtomicU64,
}

impl Pace {
    /// With whether everything is followed, or nothing, if it is not to be switched.
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
        }
    }

    /// NCCL's place for the mask, as `init` got it, with the bits that are switched and those that always stand. It is
    /// a variable of NCCL's own, so it is there as long as NCCL calls.
    ///
    /// A second NCCL in the process has a mask of its own, and one switch would have to serve both: there is none then.
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

    /// Whether the call that is told of at `now_ns` is: of one that is said to be, NCCL must report.
    pub(crate) fn follows_at(&self, now_ns: u64) -> bool {
        self.follows() && now_ns.saturating_sub(self.on_ns.load(Relaxed)) >= SETTLING_NS
    }

    /// The mask for a new communicator: as for the others.
    pub(crate) fn now(&self, mask: c_int) -> c_int {
        if self.follows() { mask } else { mask & !self.bits.load(Relaxed) }
    }

    /// An operation was called at `now_ns`.
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

    /// Of the last call, which is followed, it is told now over how many channels it goes.
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
        let follows = credit > 0;
        if follows != self.follows.load(Relaxed) {
            self.on_ns.store(now_ns, Relaxed);
            self.follows.store(follows, Relaxed);
            self.switch(follows);
        }
    }

    /// From here on the mask stays: as it was for the group of a call that is being recorded.
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
        // Those that another thread took out meanwhile.
        mask.fetch_and(!(bits & !self.bits.load(SeqCst)), SeqCst);
    }

    /// These bits are asked for no more, whether the mask is switched or not.
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

    /// Calls over `channels` every `gap_ns`: how many of `n` were followed.
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
        // A hundred big ones a second: 17 us each, of 2 ms a second.
        assert_eq!(spread(&pace, 24, 10_000_000, 6_000, 160_000_000_000), 6_000);
        // A flood: every 9 us for ten seconds. 6.25 us each out of 0.2 % is one in three milliseconds, and 35 us one in 17.
        let n = followed(&pace, 9_000, 1_111_111, 300_000_000_000);
        assert!((3_200..3_900).contains(&n), "{n}");
        let n = spread(&pace, 24, 9_000, 1_111_111, 400_000_000_000);
        assert!((550..700).contains(&n), "{n}");
        // One of 128 MiB after the other: 17 us each, of 1.3 that each earns.
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
