//! The step of a job, from the calls of one communicator: a training loop makes the same calls repeatedly.

use std::collections::BTreeMap;

use ringleader_model::median;

/// Share of the calls that have to repeat those one step before, and of the steps that have to consist of the same calls.
/// Less, for a checkpoint or an evaluation every few steps brings calls of its own; more, for half of a step may repeat
/// itself too: layer after layer.
const LEAST_SHARE: f64 = 0.9;
/// Times that the pattern has to be seen.
const LEAST_REPEATS: usize = 3;

/// Calls that repeat themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    /// Calls in a step.
    pub(crate) calls: usize,
    /// Steps seen.
    pub(crate) repeats: usize,
    /// The first call that belongs to one.
    pub(crate) first: usize,
}

/// The shortest step that the calls repeat. Each call is one number, oldest first; equal calls have equal numbers.
pub(crate) fn period(calls: &[u64]) -> Option<Period> {
    (1..=calls.len() / LEAST_REPEATS).find_map(|p| with(calls, p))
}

fn with(calls: &[u64], p: usize) -> Option<Period> {
    let is_repeated = || calls.iter().zip(calls.get(p..).unwrap_or_default()).map(|(a, b)| a == b);
    // What came before the first step, and differs in itself, is left out.
    let mut run = 0;
    let first = is_repeated().position(|same| {
        run = if same { run + 1 } else { 0 };
        run == p
    })? + 1
        - p;
    let own = calls.get(first..).unwrap_or_default();
    let n = own.len() - p;
    let same = is_repeated().skip(first).filter(|same| *same).count();
    if n < (LEAST_REPEATS - 1) * p || (same as f64) < LEAST_SHARE * n as f64 {
        return None;
    }
    if !sums_alike(own, p) {
        return None;
    }
    // Several times a shorter pattern, which was refused for what came before: part of a step, not the step.
    let repeats = |q: usize| {
        let same = own.iter().zip(own.get(q..).unwrap_or_default()).filter(|(a, b)| a == b).count();
        same as f64 >= LEAST_SHARE * (own.len() - q) as f64
    };
    if (1..=p / 2).any(|q| p.is_multiple_of(q) && repeats(q) && sums_alike(own, q)) {
        return None;
    }
    Some(Period { calls: p, repeats: same / p + 1, first })
}

/// Whether stretches of this length consist of the same calls, wherever they begin.
fn sums_alike(own: &[u64], p: usize) -> bool {
    let mut sums: BTreeMap<u64, usize> = BTreeMap::new();
    let mut sum = own.iter().take(p).fold(0_u64, |sum, c| sum.wrapping_add(*c));
    *sums.entry(sum).or_insert(0) += 1;
    for (old, new) in own.iter().zip(own.get(p..).unwrap_or_default()) {
        sum = sum.wrapping_sub(*old).wrapping_add(*new);
        *sums.entry(sum).or_insert(0) += 1;
    }
    let most = sums.values().max().copied().unwrap_or(0);
    most as f64 >= LEAST_SHARE * (own.len() + 1 - p) as f64
}

/// Time of one step, from the ends of the calls (any unit, oldest first) and the length of the pattern.
pub(crate) fn step(ends: &[i64], period: usize) -> Option<i64> {
    let spans =
        ends.iter().zip(ends.iter().skip(period)).map(|(a, b)| b.saturating_sub(*a)).filter(|ns| *ns >= 0);
    median::upper(spans)
}

#[cfg(test)]
mod tests {
    use super::{period, step};

    fn repeat(pattern: &[u64], n: usize) -> Vec<u64> {
        pattern.iter().copied().cycle().take(n).collect()
    }

    fn found(calls: &[u64]) -> Option<(usize, usize)> {
        period(calls).map(|p| (p.calls, p.repeats))
    }

    #[test]
    fn a_loop_shows_after_its_first_steps() {
        assert_eq!(found(&repeat(&[1, 2, 3], 30)), Some((3, 10)));
        // Cut in the middle of a step.
        assert_eq!(found(&repeat(&[1, 1, 1, 1, 2], 33)), Some((5, 6)));
        // Parameters are sent out first.
        let mut calls: Vec<u64> = (100..108).collect();
        assert_eq!(found(&calls), None);
        calls.extend(repeat(&[1, 2, 3, 4], 12));
        assert_eq!(period(&calls).map(|p| (p.calls, p.repeats, p.first)), Some((4, 3, 8)));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[1, 2, 3, 4, 5, 6]), None);
    }

    #[test]
    fn a_checkpoint_now_and_then_is_not_the_step() {
        let mut steps = repeat(&[1, 2, 3], 60);
        steps.push(9);
        assert_eq!(found(&repeat(&steps, 400)).map(|f| f.0), Some(3));
    }

    #[test]
    fn layers_are_not_the_step() {
        // Parameters are gathered layer by layer, and gathered and reduced in the second half.
        let mut step = repeat(&[1], 32);
        step.extend(repeat(&[1, 2], 64));
        assert_eq!(found(&repeat(&step, 96)), None, "one step alone");
        assert_eq!(found(&repeat(&step, 500)).map(|f| f.0), Some(96));
    }

    #[test]
    fn time_of_a_step() {
        let ends: Vec<i64> = (0..30).map(|i| i / 3 * 100 + i % 3).collect();
        assert_eq!(step(&ends, 3), Some(100));
        assert_eq!(step(&[], 1), None);
    }
}
