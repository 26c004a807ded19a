//! The only module with unsafe code: calls into C that no crate wraps.
//!
//! Each function takes and gives plain values; nothing unsafe is left to its callers.
#![allow(unsafe_code, reason = "calls into C, each with the reason why it is sound")]

mod clock;
pub(crate) mod nvml;

pub(crate) use clock::kernel_clock;
