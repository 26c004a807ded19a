//! The processes of the ranks: alive and where in the program, stopped, or dead and how.

pub mod closed;
pub mod condition;
pub mod fate;
pub mod looks;
pub mod samples;
pub mod thrown;
