//! Simulated jobs, healthy ones and such with a planted fault, watched from their digests.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests: they take the time, and say what they measured"
)]

mod big;
mod blind;
mod faults;
mod healthy;
mod jobs;
mod late;
mod laws;
mod links;
mod places;
mod sim;
mod start;
