//! The machines under the job: what their kernels say, links that went down, and clocks that are of another zone.

pub mod clocks;
pub mod faults;
pub mod kernel;
pub mod links;
