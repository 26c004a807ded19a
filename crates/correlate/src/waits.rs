//! Which rank waits for which, which ranks hold the others up, and how late each rank comes.

pub mod graph;
pub mod inside;
pub mod lateness;
pub mod posture;
pub mod suspects;
