//! What a rank outside of any collective does, from its stack.

use serde::{Deserialize, Serialize};

/// What a rank does, and the frame that shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outside {
    /// `data-loader`, `storage`, `lock`, `gil`, `compilation`, `checkpoint`, `logging`, `cuda-call`, `driver`, ...
    pub label: String,
    /// For people: `in the data loader`.
    pub text: String,
    /// The frame.
    pub frame: String,
}

/// What a stack (outermost frame first) and the kernel's function say.
pub fn outside(stack: &[String], wchan: Option<&str>) -> Option<Outside> {
    let _ = (stack, wchan);
    None
}
