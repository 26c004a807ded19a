//! Efficiency of a run: mean time to failure and effective training time ratio.

use serde::{Deserialize, Serialize};

/// Times and steps of one attempt. Times are seconds since 1970; steps are as the program prints them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptSpan {
    /// When its launcher was started.
    pub began: f64,
    /// When its launcher ended, or now.
    pub ended: f64,
    /// Time and number of its first printed step.
    pub first: Option<(f64, u64)>,
    /// Time and number of its last printed step.
    pub last: Option<(f64, u64)>,
    /// Step of the checkpoint that it was started from.
    pub resumed_from: Option<u64>,
    /// Its step numbers start again, for example with every epoch: they measure nothing.
    pub resets: bool,
    /// It ended because of a failure.
    pub has_failed: bool,
}

impl AttemptSpan {
    /// The last printed step; None if step numbers start again.
    pub fn step(&self) -> Option<u64> {
        self.last.filter(|_| !self.resets).map(|(_, step)| step)
    }
}

/// The numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// From the first start to the end, seconds.
    pub wall_s: f64,
    /// Attempts.
    pub n_attempts: u32,
    /// Failed attempts.
    pub n_failures: u32,
    /// Total running time of launchers divided by the number of failures; None without a failure.
    pub mean_time_to_failure_s: Option<f64>,
    /// Steps computed more than once, over all attempts; None if no attempt printed steps, or if their numbers start again.
    pub steps_repeated: Option<u64>,
    /// Share of the wall time spent on steps that were not repeated; None as for the steps.
    pub ratio: Option<f64>,
}

/// The numbers of these attempts, oldest first.
pub fn of(spans: &[AttemptSpan]) -> Effective {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Effective::default() };
    let wall_s = (last.ended - first.began).max(0.0);
    let n_failures = spans.iter().filter(|span| span.has_failed).count() as u32;
    let ran_s: f64 = spans.iter().map(|span| (span.ended - span.began).max(0.0)).sum();
    let mut effective = Effective {
        wall_s,
        n_attempts: spans.len() as u32,
        n_failures,
        mean_time_to_failure_s: (n_failures > 0).then(|| ran_s / f64::from(n_failures)),
        ..Effective::default()
    };
    if spans.iter().any(|span| span.resets) {
        return effective;
    }
    let (mut useful_s, mut repeated, mut seen) = (0.0, 0, false);
    for (at, span) in spans.iter().enumerate() {
        let (Some((first_at, first_step)), Some((last_at, last_step))) = (span.first, span.last) else {
            continue;
        };
        seen = true;
        // A later attempt that started below the last step of this one repeats steps.
        let next = spans
            .get(at + 1..)
            .unwrap_or_default()
            .iter()
            .filter_map(|later| later.first)
            .map(|(_, step)| step);
        let kept = next.min().map_or(last_step, |again| last_step.min(again.saturating_sub(1)));
        let n_steps = last_step.saturating_sub(first_step);
        let n_kept = kept.saturating_sub(first_step);
        repeated += last_step.saturating_sub(kept.max(first_step.saturating_sub(1)));
        if n_steps > 0 {
            useful_s += (last_at - first_at).max(0.0) * n_kept as f64 / n_steps as f64;
        }
    }
    if seen {
        effective.steps_repeated = Some(repeated);
        effective.ratio = (wall_s > 0.0).then(|| (useful_s / wall_s).clamp(0.0, 1.0));
    }
    effective
}

/// The best interval between checkpoints, seconds, and the resulting ratio: Young's formula as in arXiv 2410.21680.
/// `failures_per_s` is for the whole job, `restart_s` from failure to first step, `write_s` the time that a checkpoint
/// blocks training.
pub fn best_interval(failures_per_s: f64, restart_s: f64, write_s: f64) -> (f64, f64) {
    let interval = (2.0 * write_s / failures_per_s.max(1e-12)).sqrt();
    let ratio = (1.0 - failures_per_s * (restart_s + interval / 2.0)) / (1.0 + write_s / interval.max(1e-9));
    (interval, ratio.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(began: f64, first: (f64, u64), last: (f64, u64), ended: f64, has_failed: bool) -> AttemptSpan {
        AttemptSpan {
            began,
            ended,
            first: Some(first),
            last: Some(last),
            has_failed,
            ..AttemptSpan::default()
        }
    }

    #[test]
    fn two_attempts() {
        // 100 steps in 100 s, the last 20 repeated; 10 s to start, 20 s in between.
        let spans = [
            span(0.0, (10.0, 0), (110.0, 100), 110.0, true),
            span(130.0, (140.0, 81), (259.0, 200), 260.0, false),
        ];
        let effective = of(&spans);
        assert_eq!((effective.n_attempts, effective.n_failures), (2, 1));
        assert_eq!(effective.steps_repeated, Some(20));
        assert_eq!(effective.mean_time_to_failure_s, Some(240.0));
        let ratio = effective.ratio.unwrap();
        assert!((ratio - (80.0 + 119.0) / 260.0).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn without_steps_there_is_no_ratio() {
        let effective =
            of(&[AttemptSpan { began: 0.0, ended: 9.0, has_failed: true, ..AttemptSpan::default() }]);
        assert_eq!((effective.ratio, effective.steps_repeated), (None, None));
        assert_eq!(effective.mean_time_to_failure_s, Some(9.0));
        assert_eq!(of(&[]), Effective::default());
        // Numbers of batches within an epoch.
        let mut batches = span(0.0, (1.0, 1), (9.0, 20), 9.0, false);
        assert!(of(&[batches.clone()]).ratio.is_some());
        batches.resets = true;
        assert_eq!((of(&[batches.clone()]).ratio, of(&[batches]).steps_repeated), (None, None));
    }

    #[test]
    fn young() {
        // 16,384 GPUs: one failure in 3.09 h; restart 10 min, write 10 s.
        let (interval, ratio) = best_interval(1.0 / 11_124.0, 600.0, 10.0);
        assert!((interval - 471.7).abs() < 0.1, "{interval}");
        assert!((0.90..0.92).contains(&ratio), "{ratio}");
    }
}
