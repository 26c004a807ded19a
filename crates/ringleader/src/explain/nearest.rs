//! Names that are spelled like one that is not known.

/// Longer than any name.
const MAX_CHARS: usize = 80;
/// Names offered.
const MAX_NAMES: usize = 5;

/// The names closest to `query`, closest first; empty if none is close.
pub(super) fn nearest<'a>(query: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: Vec<char> = query.to_lowercase().chars().take(MAX_CHARS + 1).collect();
    if wanted.is_empty() || wanted.len() > MAX_CHARS {
        return Vec::new();
    }
    let allowed = (wanted.len() / 4).max(2).min(wanted.len().saturating_sub(1));
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let own: Vec<char> = name.to_lowercase().chars().collect();
            (own.len().abs_diff(wanted.len()) <= allowed).then(|| (distance(&wanted, &own), name))
        })
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MAX_NAMES).map(|(_, name)| name.to_owned()).collect()
}

/// Least number of letters to insert, leave out, change, or swap with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let at = |list: &[usize], n: usize| list.get(n).copied().unwrap_or(usize::MAX / 2);
            let changed = at(&last, j) + usize::from(x != y);
            let mut least = changed.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            if i > 0 && j > 0 && a.get(i - 1) == Some(&y) && b.get(j - 1) == Some(&x) {
                least = least.min(at(&before, j - 1) + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
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

    #[test]
    fn distances_count_single_mistakes() {
        let d = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(
            [d("ab", "ba"), d("abc", "ac"), d("ac", "abc"), d("abc", "adc"), d("", "ab")],
            [1, 1, 1, 1, 2]
        );
    }
}
