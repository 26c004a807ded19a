//! Ranks in a sentence.

/// `rank 3`, `ranks 0-2,5`.
pub(crate) fn list(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, crate::tree::ranges(ranks))
}

/// The verb for one or for several.
pub(crate) fn verb(ranks: &[u32], one: &'static str, several: &'static str) -> &'static str {
    if ranks.len() == 1 { one } else { several }
}

/// `rank 3 has`, `ranks 0-2,5 have`.
pub(crate) fn has(ranks: &[u32]) -> String {
    format!("{} {}", list(ranks), if ranks.len() == 1 { "has" } else { "have" })
}

/// `rank 3 is`, `ranks 0-2,5 are`.
pub(crate) fn are(ranks: &[u32]) -> String {
    format!("{} {}", list(ranks), if ranks.len() == 1 { "is" } else { "are" })
}

/// `rank 3 waits`, `ranks 0-2,5 wait`.
pub(crate) fn who_waits(ranks: &[u32]) -> String {
    format!("{} {}", list(ranks), if ranks.len() == 1 { "waits" } else { "wait" })
}
