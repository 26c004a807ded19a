//! Events of the guard in a training job (the Python package's `ringleader.torch.guard`).

use crate::Rank;

/// What a rank's guard saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardEvent {
    /// The rank whose guard it is.
    pub rank: Rank,
    /// Optimizer step, from 1 on.
    pub step: u64,
    /// What it saw.
    pub kind: GuardKind,
    /// First parameter concerned; may be empty.
    pub parameter: Box<str>,
    /// Its layer; may be empty.
    pub layer: Box<str>,
    /// The value, as `NaN`, `Inf` or a loss; for a disagreement `gradient` or `parameter`.
    pub value: Box<str>,
}

/// Kinds of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// Ranks that should hold the same bits do not.
    Disagreement {
        /// Ranks that differ from the majority; empty if there is none.
        odd: Vec<Rank>,
        /// The ranks that were compared, as `0-7`.
        group: Box<str>,
        /// Parameters that differ.
        n_differing: u64,
        /// Parameters that were compared.
        n_compared: u64,
        /// They differed when they were first compared.
        never_in_sync: bool,
    },
    /// A local gradient was no finite number before it was reduced.
    NotFinite,
    /// The loss jumped, or is no number.
    Spike,
}
