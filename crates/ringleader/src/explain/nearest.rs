//! Names that are spelled like one that is not known.

/// Longer than any name.
const MAX_CHARS: usize = 80;
/// Names offered.
const MAX_NAMES: usize = 5;

/// The names closest to `query`, closest first; empty if none is close.
pub(super) fn nearest<'a>(query: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: String = query.to_lowercase().chars().take(MAX_CHARS + 1).collect();
    let n_wanted = wanted.chars().count();
    if n_wanted == 0 || n_wanted > MAX_CHARS {
        return Vec::new();
    }
    // A mistake in four letters: one left out, put in, changed, or swapped with its neighbour.
    let allowed = (n_wanted / 4).max(2).min(n_wanted - 1);
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let own = name.to_lowercase();
            let is_alike = own.chars().count().abs_diff(n_wanted) <= allowed;
            is_alike.then(|| (strsim::osa_distance(&wanted, &own), name))
        })
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MAX_NAMES).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[&str]) {
        let names = ["NCCL_IB_TIMEOUT", "NCCL_IB_HCA", "NCCL_IB_TC", "skipped-collective", "ncclSystemError"];
        assert_eq!(nearest(query, names.into_iter()), expected);
    }

    #[test]
    fn close_names_are_offered_closest_first() {
        check("NCCL_IB_TIMOUT", &["NCCL_IB_TIMEOUT"]);
        check("nccl_ib_timeuot", &["NCCL_IB_TIMEOUT"]);
        check("NCCL_IB_HC", &["NCCL_IB_HCA", "NCCL_IB_TC"]);
        check("skiped-colective", &["skipped-collective"]);
        check("ncclSysError", &["ncclSystemError"]);
        check("", &[]);
        check("a", &[]);
        check("something else", &[]);
        check(&"x".repeat(1 << 20), &[]);
    }
}
