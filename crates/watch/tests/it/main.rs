//! Simulated jobs, healthy ones and such with a planted fault, watched from their digests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod big;
mod faults;
mod healthy;
mod jobs;
mod late;
mod laws;
mod sim;
