//! Which GPU or link is faulty, from what the checks saw. Pure.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a fault is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Place")]
pub enum FaultSite {
    /// One GPU: its memory, its arithmetic, or what it receives from anywhere.
    Gpu(usize),
    /// What the second receives from the first; each of the two is right with others or with itself.
    Link(usize, usize),
    /// These disagree, and nothing shows who is right.
    OneOf(Vec<usize>),
}

/// What a trial of all ordered pairs saw, besides what each GPU does by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// GPUs.
    pub n: usize,
    /// GPUs whose own buffer was not what they had written.
    pub spoilt: BTreeSet<usize>,
    /// GPUs that fail in copying to themselves.
    pub alone: BTreeSet<usize>,
    /// Ordered pairs whose receiver got something else than the sender has.
    pub pairs: BTreeSet<(usize, usize)>,
}

/// The places that explain a trial, each fault once.
pub fn of_trial(trial: &Trial) -> Vec<FaultSite> {
    let mut guilty: BTreeSet<usize> = trial.spoilt.union(&trial.alone).copied().collect();
    let left: BTreeSet<(usize, usize)> = trial
        .pairs
        .iter()
        .filter(|(from, to)| !guilty.contains(from) && !guilty.contains(to))
        .copied()
        .collect();
    // With two GPUs each has one partner: a pair is all that can be said. With more, one that fails with all partners in one
    // direction is to blame itself.
    let mut places = Vec::new();
    if trial.n > 2 {
        for gpu in 0..trial.n {
            let others = (0..trial.n).filter(|other| *other != gpu && !guilty.contains(other));
            let others: Vec<usize> = others.collect();
            let all = |pair: &dyn Fn(usize) -> (usize, usize)| {
                others.len() > 1 && others.iter().all(|other| left.contains(&pair(*other)))
            };
            if all(&|other| (other, gpu)) || all(&|other| (gpu, other)) {
                guilty.insert(gpu);
            }
        }
    }
    places.extend(guilty.iter().map(|gpu| FaultSite::Gpu(*gpu)));
    places.extend(
        left.into_iter()
            .filter(|(from, to)| !guilty.contains(from) && !guilty.contains(to))
            .map(|(from, to)| FaultSite::Link(from, to)),
    );
    places
}

/// Who is odd among results that should be the same bits. A rank that disagrees with itself is odd whatever the others say;
/// then the majority counts. With two, or two equal halves, all are named.
///
/// `kinds` keeps apart GPUs whose results need not agree.
pub fn vote(results: &[u64], kinds: &[String], is_steady: &[bool]) -> Vec<FaultSite> {
    let unsteady: Vec<usize> =
        is_steady.iter().enumerate().filter(|(_, steady)| !**steady).map(|(rank, _)| rank).collect();
    if !unsteady.is_empty() {
        return unsteady.into_iter().map(FaultSite::Gpu).collect();
    }
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for rank in 0..results.len() {
        groups.entry(kinds.get(rank).map_or("", String::as_str)).or_default().push(rank);
    }
    let mut places = Vec::new();
    for ranks in groups.into_values() {
        let mut camps: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for rank in &ranks {
            camps.entry(results[*rank]).or_default().push(*rank);
        }
        let Some(most) = camps.values().map(Vec::len).max() else { continue };
        if camps.len() == 1 {
            continue;
        }
        if most * 2 > ranks.len() {
            places.extend(
                camps.values().filter(|camp| camp.len() < most).flatten().map(|rank| FaultSite::Gpu(*rank)),
            );
        } else {
            places.push(FaultSite::OneOf(ranks));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(n: usize, spoilt: &[usize], alone: &[usize], pairs: &[(usize, usize)]) -> Vec<FaultSite> {
        of_trial(&Trial {
            n,
            spoilt: spoilt.iter().copied().collect(),
            alone: alone.iter().copied().collect(),
            pairs: pairs.iter().copied().collect(),
        })
    }

    #[test]
    fn a_link_is_told_from_its_ends() {
        assert_eq!(trial(2, &[], &[], &[(0, 1)]), [FaultSite::Link(0, 1)]);
        assert_eq!(trial(2, &[], &[1], &[(0, 1)]), [FaultSite::Gpu(1)]);
        assert_eq!(trial(2, &[0], &[], &[(0, 1)]), [FaultSite::Gpu(0)]);
        assert_eq!(trial(8, &[], &[], &[(3, 5)]), [FaultSite::Link(3, 5)]);
        let into_five: Vec<(usize, usize)> = (0..8).filter(|n| *n != 5).map(|n| (n, 5)).collect();
        assert_eq!(trial(8, &[], &[], &into_five), [FaultSite::Gpu(5)]);
        let out_of_five: Vec<(usize, usize)> = (0..8).filter(|n| *n != 5).map(|n| (5, n)).collect();
        assert_eq!(trial(8, &[], &[], &out_of_five), [FaultSite::Gpu(5)]);
        assert_eq!(trial(4, &[], &[2], &[(0, 1), (0, 2)]), [FaultSite::Gpu(2), FaultSite::Link(0, 1)]);
        assert_eq!(trial(4, &[], &[], &[]), []);
    }

    #[test]
    fn the_odd_one_out_is_named_and_two_are_not_guessed() {
        let same = |n| vec!["H200".to_owned(); n];
        assert_eq!(vote(&[1, 1, 2, 1], &same(4), &[true; 4]), [FaultSite::Gpu(2)]);
        assert_eq!(vote(&[1, 1, 1], &same(3), &[true; 3]), []);
        assert_eq!(vote(&[1, 2], &same(2), &[true; 2]), [FaultSite::OneOf(vec![0, 1])]);
        assert_eq!(vote(&[1, 2], &same(2), &[true, false]), [FaultSite::Gpu(1)]);
        assert_eq!(vote(&[1, 1, 2, 2], &same(4), &[true; 4]), [FaultSite::OneOf(vec![0, 1, 2, 3])]);
        let mixed: Vec<String> = ["A", "A", "B", "B"].map(str::to_owned).to_vec();
        assert_eq!(vote(&[1, 1, 2, 2], &mixed, &[true; 4]), []);
    }
}
