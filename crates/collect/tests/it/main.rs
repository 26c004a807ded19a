//! Probes in processes of their own, as they run on a node.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod reach;
