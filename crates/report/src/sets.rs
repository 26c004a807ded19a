//! Sets of ranks in words.

use ringleader_model::{Rank, RankSet};

/// Ranks in words: `rank 3`, `ranks 0-1,3`.
pub(crate) fn ranks(set: &str) -> String {
    let several = set.contains([',', '-']);
    format!("rank{} {set}", if several { "s" } else { "" })
}

/// Whether a set holds a rank.
pub(crate) fn holds(set: &str, rank: u32) -> bool {
    set.split(',').any(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let bounds = (first.trim().parse::<u32>(), last.trim().parse::<u32>());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&rank))
    })
}

/// A set that has room on two rows, or its rule: `1-10233 in steps of 8, 1280 ranks`.
pub(crate) fn in_short(set: &str) -> String {
    /// Longer sets are described by their rule.
    const MAX: usize = 100;
    if set.len() <= MAX {
        return set.to_owned();
    }
    let spans = set.split(',').filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some((first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?))
    });
    spans.flat_map(|(first, last)| (first..=last).map(Rank)).collect::<RankSet>().words()
}
