//! Why a rank is late: its GPU, its program, or what is not visible.

use super::RankHistory;
use crate::event::{Confidence, Lag};

/// What makes up this share of a rank's lateness is why it is late: the larger part.
const MAIN_SHARE: f32 = 0.5;
/// And this share, for certain. Chosen.
const CERTAIN_SHARE: f32 = 0.8;
/// The others' calls wait for their GPUs if they are queued for this share of the lateness. Chosen.
const QUEUED_SHARE: f32 = 0.2;

pub(super) fn because(of: Lag) -> &'static str {
    match of {
        Lag::Compute => "its GPU is still busy when the others come",
        Lag::Host => "its program calls late while its GPU is idle",
        Lag::Network | Lag::Unknown => "the cause is not visible",
    }
}

/// Why a rank is late, from the sums over the collectives for which it was.
pub(super) fn reason(standing: &RankHistory) -> (Lag, Confidence) {
    let late = standing.late_ms.max(f32::MIN_POSITIVE);
    let (host, busy) = (standing.host_ms / late, standing.busy_ms / late);
    if busy >= MAIN_SHARE && busy > host {
        return (Lag::Compute, if busy >= CERTAIN_SHARE { Confidence::High } else { Confidence::Medium });
    }
    if host < MAIN_SHARE {
        return (Lag::Unknown, Confidence::Low);
    }
    // Where the others' calls wait for their GPUs and this one's does not, the GPU ran dry. Where nobody's do, programs wait
    // for their GPUs before they call, and a slow GPU makes a late call.
    let others = standing.others_queued_ms / late;
    (
        Lag::Host,
        if host >= CERTAIN_SHARE && others >= QUEUED_SHARE { Confidence::High } else { Confidence::Medium },
    )
}
