//! The processes of the ranks: alive and where, stopped, dead and how.

pub mod condition;
pub mod fate;
pub mod looks;
