//! When: the time that the job spans, and whether and when it failed.

pub mod course;
pub mod failure;
pub mod window;
pub mod year;
