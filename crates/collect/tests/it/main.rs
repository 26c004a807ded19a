//! Probes in processes of their own, as they run on a node.

mod reach;
