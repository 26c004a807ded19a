//! The map that the plugin writes and an agent reads: one file for each process.

mod state;

pub use state::{Call, Comm, Done, Lost, Op, Phase, Process, State, Taken, Wait};
