//! What each rank called, per group, and where the ranks of a group differ.

pub mod align;
pub mod ledger;
pub mod mismatch;
pub mod moments;
pub mod pattern;
pub mod rhythm;
