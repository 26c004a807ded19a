//! Stacks of all ranks as one tree with counts, outliers first.

use serde::{Deserialize, Serialize};

/// A frame, and the ranks that stand in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Branch {
    /// The frame.
    pub frame: String,
    /// Ranks, ascending.
    pub ranks: Vec<u32>,
    /// What they called from there: the fewest ranks first.
    pub calls: Vec<Branch>,
}
