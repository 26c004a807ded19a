//! The state of the kernel's clock, which no file shows: adjtimex(2).

/// What the kernel says of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// A daemon keeps it in step: `STA_UNSYNC` is not set.
    pub(crate) is_kept: bool,
    /// Largest error, microseconds; grows by 500 ppm while nothing synchronises it.
    pub(crate) max_error_us: u64,
}

/// Reads the kernel's clock state; changes nothing. None if the kernel refuses (some sandboxes do).
pub(crate) fn kernel_clock() -> Option<Clock> {
    // SAFETY: `timex` is a C struct of integers, for which all zeroes is a value; `modes` 0 asks to read alone.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, aligned and exclusively borrowed `timex`; the kernel writes within it.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    (answer >= 0).then(|| Clock {
        is_kept: state.status & libc::STA_UNSYNC == 0,
        max_error_us: u64::try_from(state.maxerror).unwrap_or_default(),
    })
}
