//! The machines of the job: kernel logs, faults, links that went down, and clocks of another time zone.

pub mod clocks;
pub mod faults;
pub mod kernel;
pub mod links;
