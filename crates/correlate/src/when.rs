//! When: the time that the job spans, whether and when it failed, and clocks that are of another zone.

pub mod clocks;
pub mod failure;
pub mod window;
pub mod year;
