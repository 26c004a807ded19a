//! The two clocks of a ring. Both come from the vDSO: no system call.

use rustix::time::{ClockId, Timespec, clock_gettime};

fn nanoseconds(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// CLOCK_MONOTONIC in nanoseconds; never 0.
pub fn mono_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic)).max(1)
}

/// CLOCK_REALTIME in nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Both clocks at one moment: (monotonic, since 1970). Reads again if it was interrupted between the two.
pub(crate) fn both_ns() -> (u64, u64) {
    let read = || {
        let before = mono_ns();
        let unix = unix_ns();
        (mono_ns() - before, before, unix)
    };
    let (_, mono, unix) = [read(), read(), read()].into_iter().min().unwrap_or_default();
    (mono, unix)
}
