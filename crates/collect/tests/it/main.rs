//! Probes as they run on a node: of this very machine, of stand-ins, and in namespaces of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod gpus;
mod reach;
