//! Learns the weights of `data/weighing.txt`: `cargo xtask weighing ROWS`.
//!
//! `ROWS` is what `cargo xtask blind --rows --verbose` printed: of each case its candidates with their features, as weighed with
//! words that had not seen the case. One logistic regression over all candidates, right or not, by Newton's method; it is
//! deterministic.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use ringleader_knowledge::weighing::Feature;
use serde_json::Value;

/// Strength of the pull towards 0.
const RIDGE: f64 = 1.0 / 0.3;
/// Most steps.
const STEPS: usize = 50;
/// A step that moves no weight further than this is the last.
const DONE: f64 = 1e-6;
/// Weight of a case that is no public one.
const MINOR: f64 = 0.3;

/// One candidate of one case.
struct Row {
    features: Vec<(usize, f64)>,
    is_right: bool,
    weight: f64,
}

/// Writes the table.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let path = args.first().context("usage: cargo xtask weighing ROWS")?;
    let text = fs::read_to_string(path).with_context(|| path.clone())?;
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        add(&serde_json::from_str(line)?, &mut rows)?;
    }
    anyhow::ensure!(!rows.is_empty(), "{path} has no row: was it written with --verbose?");
    let weights = learn(&rows).context("the weights do not settle")?;
    let mut out = String::from(
        "# Weights of what is known of a candidate cause. Written by `cargo xtask weighing`; see src/weighing.rs.\n",
    );
    for (feature, weight) in Feature::ALL.iter().zip(&weights) {
        let _ = writeln!(out, "{}\t{weight:.3}", feature.name());
    }
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/knowledge/data/weighing.txt"), out)?;
    Ok(())
}

fn add(case: &Value, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let right: BTreeSet<&str> =
        case["also"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_public = case["set"].as_str().is_some_and(|set| set.contains("round-"));
    for of in case["weighed"].as_array().into_iter().flatten() {
        let mut features = Vec::new();
        for pair in of["features"].as_array().into_iter().flatten() {
            let name = pair[0].as_str().unwrap_or_default();
            let at = Feature::ALL.iter().position(|feature| feature.name() == name);
            features.push((
                at.with_context(|| format!("no feature {name}"))?,
                pair[1].as_f64().unwrap_or_default(),
            ));
        }
        let is_right = of["cause"].as_str().is_some_and(|cause| right.contains(cause));
        rows.push(Row { features, is_right, weight: if is_public { 1.0 } else { MINOR } });
    }
    Ok(())
}

/// Newton's method; None if a system of equations has no solution.
fn learn(rows: &[Row]) -> Option<Vec<f64>> {
    let n = Feature::ALL.len();
    let mut weights = vec![0.0; n];
    for _ in 0..STEPS {
        let mut slope: Vec<f64> = weights.iter().map(|w| -RIDGE * w).collect();
        let mut curve = vec![vec![0.0; n]; n];
        for (at, row) in curve.iter_mut().enumerate() {
            row[at] = RIDGE;
        }
        for row in rows {
            let odds: f64 = row.features.iter().map(|(at, size)| weights[*at] * size).sum();
            let likely = 1.0 / (1.0 + (-odds).exp());
            let miss = row.weight * (f64::from(u8::from(row.is_right)) - likely);
            let bend = row.weight * likely * (1.0 - likely);
            for (at, size) in &row.features {
                slope[*at] += miss * size;
                for (other, other_size) in &row.features {
                    curve[*at][*other] += bend * size * other_size;
                }
            }
        }
        let step = solve(curve, slope)?;
        let most = step.iter().fold(0.0_f64, |most, s| most.max(s.abs()));
        weights.iter_mut().zip(&step).for_each(|(weight, step)| *weight += step);
        if most < DONE {
            return Some(weights);
        }
    }
    None
}

/// Solves a symmetric positive definite system by elimination.
fn solve(mut left: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for at in 0..n {
        let pivot = left[at].clone();
        if pivot[at] <= 0.0 {
            return None;
        }
        for below in at + 1..n {
            let factor = left[below][at] / pivot[at];
            if factor != 0.0 {
                left[below].iter_mut().zip(&pivot).skip(at).for_each(|(own, of)| *own -= factor * of);
                right[below] -= factor * right[at];
            }
        }
    }
    let mut found = vec![0.0; n];
    for at in (0..n).rev() {
        let rest: f64 = (at + 1..n).map(|other| left[at][other] * found[other]).sum();
        found[at] = (right[at] - rest) / left[at][at];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::{Row, learn, solve};

    #[test]
    fn a_system_is_solved() {
        let found = solve(vec![vec![4.0, 1.0], vec![1.0, 3.0]], vec![1.0, 2.0]).expect("it has a solution");
        assert!((found[0] - 1.0 / 11.0).abs() < 1e-9 && (found[1] - 7.0 / 11.0).abs() < 1e-9, "{found:?}");
        assert!(solve(vec![vec![0.0]], vec![1.0]).is_none());
    }

    #[test]
    fn what_goes_with_right_candidates_counts_for_them() {
        let row = |at: usize, is_right| Row { features: vec![(at, 1.0)], is_right, weight: 1.0 };
        let rows: Vec<Row> = (0..40).map(|n| row(n % 2, n % 2 == 0)).collect();
        let weights = learn(&rows).expect("the weights settle");
        assert!(weights[0] > 0.5 && weights[1] < -0.5 && weights[2].abs() < 1e-9, "{weights:?}");
    }
}
