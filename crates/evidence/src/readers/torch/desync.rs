//! The desync report (`TORCH_NCCL_DESYNC_DEBUG=1`), which torch appends to a timeout.
//!
//! ```text
//!  - [2] Timeout at collective: ALLREDUCE, #45
//!  - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
//!    - [2] finished collective #44, but didn't join collective #45 (count from 1)
//! ```
//! Written by pytorch/pytorch `torch/csrc/distributed/c10d/TraceUtils.h`.

use ringleader_model::{Rank, RankSet, TorchEvent};

use super::scan::{between, count_after};

/// Whether a line begins or goes on with a report.
pub(super) fn is_line(text: &str) -> bool {
    let bare = text.trim_start();
    begins(text)
        || bare.starts_with("- [")
        || bare.starts_with("- ranks")
        || bare.starts_with("- Snapshot of ranks")
        || (bare.starts_with('#') && bare.contains(" ranks:"))
        || (bare.starts_with('[') && (bare.contains("] finished ") || bare.contains("] started ")))
}

/// Whether a line begins a report.
pub(super) fn begins(text: &str) -> bool {
    text.contains("- To our best knowledge, ")
        || (text.contains("] Timeout at collective: ") && text.trim_start().starts_with("- ["))
}

/// Reads a whole report.
pub(super) fn read(report: &str) -> Option<TorchEvent> {
    let mut unfinished = Vec::new();
    let mut not_joined = Vec::new();
    let mut never_joined = RankSet::default();
    for line in report.lines().take(256) {
        let ranks = || between(line, "[", "]").map(rank_list).filter(|r| !r.is_empty());
        if line.contains("joined but didn't finish collective") {
            unfinished.extend(ranks().zip(count_after(line, "finish collective #")));
        } else if line.contains("but didn't join collective") {
            not_joined.extend(ranks().zip(count_after(line, "join collective #")));
        } else if line.contains("never joined any collectives") {
            never_joined = ranks().unwrap_or(never_joined);
        }
    }
    let says_something = !(unfinished.is_empty() && not_joined.is_empty() && never_joined.is_empty());
    says_something.then_some(TorchEvent::Desync { unfinished, not_joined, never_joined })
}

/// `0, 1, 3`.
pub(super) fn rank_list(text: &str) -> RankSet {
    text.split(',').map_while(|word| word.trim().parse().ok()).map(Rank).take(1 << 16).collect()
}
