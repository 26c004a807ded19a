//! Who waits for whom, who holds the others up, and how late each rank comes.

pub mod graph;
pub mod inside;
pub mod lateness;
pub mod posture;
pub mod suspects;
