//! The step of a job, from the calls of one communicator: a training loop makes the same calls again and again.

/// Share of the history that has to repeat itself before a period is believed: the first step and what came before it
/// differ from the rest.
const LEAST_COVER: f64 = 0.7;
/// Times that the pattern has to be seen.
const LEAST_REPEATS: usize = 3;

/// Length of the shortest pattern that the newest calls repeat, and how often they do. Each call is one number, oldest
/// first; equal calls have equal numbers.
pub(crate) fn period(calls: &[u64]) -> Option<(usize, usize)> {
    let n = calls.len();
    let newest_first: Vec<u64> = calls.iter().rev().copied().collect();
    let matches = z(&newest_first);
    // A suffix with period `p` matches itself `p` further on.
    let covered = |p: usize| p + matches.get(p).copied().unwrap_or(0);
    let p = (1..=n / LEAST_REPEATS)
        .find(|p| covered(*p) as f64 >= LEAST_COVER * n as f64 && covered(*p) >= LEAST_REPEATS * p)?;
    Some((p, covered(p) / p))
}

/// For each place, how many items from there on equal those from the start (the Z function).
fn z(items: &[u64]) -> Vec<usize> {
    let n = items.len();
    let mut out = vec![0; n];
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        let mut len = if i < right { out.get(i - left).copied().unwrap_or(0).min(right - i) } else { 0 };
        while i + len < n && items.get(len) == items.get(i + len) {
            len += 1;
        }
        if i + len > right {
            (left, right) = (i, i + len);
        }
        if let Some(slot) = out.get_mut(i) {
            *slot = len;
        }
    }
    out
}

/// Time of one step, from the ends of the calls (any unit, oldest first) and the length of the pattern.
pub(crate) fn step(ends: &[i64], period: usize) -> Option<i64> {
    let mut spans: Vec<i64> = ends
        .iter()
        .zip(ends.iter().skip(period))
        .map(|(a, b)| b.saturating_sub(*a))
        .filter(|ns| *ns >= 0)
        .collect();
    spans.sort_unstable();
    // Equal calls may come in bursts, one burst a step: then the longest time that recurs is the step.
    let from_top = if period == 1 { (spans.len() / 50).max(2) } else { spans.len() / 2 };
    spans.iter().rev().nth(from_top).copied()
}

#[cfg(test)]
mod tests {
    use super::{period, step};

    fn repeat(pattern: &[u64], n: usize) -> Vec<u64> {
        pattern.iter().copied().cycle().take(n).collect()
    }

    #[test]
    fn a_loop_shows_after_its_first_step() {
        assert_eq!(period(&repeat(&[1, 2, 3], 30)), Some((3, 10)));
        // Cut in the middle of a step.
        assert_eq!(period(&repeat(&[1, 1, 1, 1, 2], 33)), Some((5, 6)));
        // Parameters are sent out first.
        let mut calls = repeat(&[9], 8);
        assert_eq!(period(&calls), Some((1, 8)));
        calls.extend(repeat(&[1, 2, 3, 4], 12));
        assert_eq!(period(&calls), None);
        calls.extend(repeat(&[1, 2, 3, 4], 12));
        assert_eq!(period(&calls), Some((4, 6)));
        assert_eq!(period(&[]), None);
        assert_eq!(period(&[1, 2, 3, 4, 5, 6]), None);
    }

    #[test]
    fn time_of_a_step() {
        let ends: Vec<i64> = (0..30).map(|i| i / 3 * 100 + i % 3).collect();
        assert_eq!(step(&ends, 3), Some(100));
        // The same call all the time, in bursts of three.
        assert_eq!(step(&ends, 1), Some(98));
        assert_eq!(step(&[], 1), None);
    }
}
