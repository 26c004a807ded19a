//! When: the time that the job spans, whether and when it failed, and what it got over.

pub mod course;
pub mod failure;
pub mod trail;
pub mod window;
pub mod year;
