//! Which member of many is slow, in few rounds. A round measures disjoint groups at the same time.
//!
//! [`neighbours`] gives each member two independent partners in two rounds, and suspects a good partner in a third: slow
//! again means the member, fast means the pair. [`halves`] is for a fault that shows only in a large group: it cuts the slow
//! half until both halves are fast, in log2 n rounds. [`round_robin`] measures every pair of a few.

use std::collections::BTreeSet;

use ringleader_model::median;

/// A pair or a member is slow below this share of the median of its round: ordinary differences between links of one kind
/// are within 5 %, a lost lane or a wrong path costs a third and more.
pub const SLOW: f64 = 0.85;

/// What a hunt found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HuntResult {
    /// Members that are slow with every partner.
    pub members: Vec<usize>,
    /// Pairs that are slow although each of the two is fast with others.
    pub pairs: Vec<(usize, usize)>,
    /// Rounds that it took.
    pub n_rounds: usize,
}

/// Rounds in which every pair of `n` meets once, each in disjoint pairs (the circle method).
pub fn round_robin(n: usize) -> Vec<Vec<(usize, usize)>> {
    if n < 2 {
        return Vec::new();
    }
    // With an odd number one sits out in each round.
    let even = n + n % 2;
    (0..even - 1)
        .map(|round| {
            (0..even / 2)
                .map(|place| {
                    let at = |place: usize| if place == 0 { 0 } else { 1 + (place - 1 + round) % (even - 1) };
                    let (a, b) = (at(place), at(even - 1 - place));
                    (a.min(b), a.max(b))
                })
                .filter(|(_, b)| *b < n)
                .collect()
        })
        .collect()
}

/// Who is slow, given the bandwidth of every pair. With two members it is unknown which one is slow.
pub fn of_all_pairs(n: usize, rates: &[(usize, usize, f64)]) -> HuntResult {
    let usual = median::upper(rates.iter().map(|(_, _, rate)| *rate)).unwrap_or_default();
    let slow: Vec<(usize, usize)> =
        rates.iter().filter(|(_, _, rate)| *rate < SLOW * usual).map(|(a, b, _)| (*a, *b)).collect();
    let count = |member: usize, pairs: &[(usize, usize)]| {
        pairs.iter().filter(|(a, b)| *a == member || *b == member).count()
    };
    // Slow with more than half of its partners, of at least two.
    let all: Vec<(usize, usize)> = rates.iter().map(|(a, b, _)| (*a, *b)).collect();
    let members: Vec<usize> = (0..n)
        .filter(|member| {
            let met = count(*member, &all);
            met > 1 && count(*member, &slow) * 2 > met
        })
        .collect();
    let pairs = slow.into_iter().filter(|(a, b)| !members.contains(a) && !members.contains(b)).collect();
    HuntResult { members, pairs, n_rounds: round_robin(n).len() }
}

/// Finds slow members and pairs of `n` in three rounds, more if more than half are suspects. `measure` takes disjoint pairs
/// and gives a bandwidth for each.
///
/// # Errors
/// Those of `measure`.
pub fn neighbours<E>(
    n: usize,
    mut measure: impl FnMut(&[(usize, usize)]) -> Result<Vec<f64>, E>,
) -> Result<HuntResult, E> {
    let mut found = HuntResult::default();
    if n < 3 {
        return Ok(found);
    }
    let even: Vec<(usize, usize)> = (0..n / 2).map(|k| (2 * k, 2 * k + 1)).collect();
    let odd: Vec<(usize, usize)> =
        (0..n.div_ceil(2)).map(|k| (2 * k + 1, (2 * k + 2) % n)).filter(|(a, b)| *a < n && a != b).collect();
    // With an odd number the last pair of the second round would meet member 0, who is in no other: it is disjoint.
    let mut rates = Vec::new();
    for round in [even, odd] {
        let measured = measure(&round)?;
        found.n_rounds += 1;
        rates.extend(round.into_iter().zip(measured));
    }
    let usual = median::upper(rates.iter().map(|(_, rate)| *rate)).unwrap_or_default();
    let is_slow = |rate: f64| rate < SLOW * usual;
    let slow: Vec<(usize, usize)> =
        rates.iter().filter(|(_, rate)| is_slow(*rate)).map(|(pair, _)| *pair).collect();
    let suspects: BTreeSet<usize> = slow.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let good: Vec<usize> = (0..n).filter(|member| !suspects.contains(member)).collect();
    if good.is_empty() {
        // Every member has a slow neighbour: none is proven good.
        found.pairs = slow;
        return Ok(found);
    }
    let mut guilty = BTreeSet::new();
    let waiting: Vec<usize> = suspects.iter().copied().collect();
    for batch in waiting.chunks(good.len()) {
        let round: Vec<(usize, usize)> = batch.iter().copied().zip(good.iter().copied()).collect();
        let measured = measure(&round)?;
        found.n_rounds += 1;
        guilty.extend(
            round.iter().zip(measured).filter(|(_, rate)| is_slow(*rate)).map(|((suspect, _), _)| *suspect),
        );
    }
    found.pairs = slow.into_iter().filter(|(a, b)| !guilty.contains(a) && !guilty.contains(b)).collect();
    found.members = guilty.into_iter().collect();
    Ok(found)
}

/// Cuts a slow whole into halves until it is known where the slowness is: a group of at most two, or two fast halves that
/// are slow together, that is what joins them. `is_slow` judges disjoint groups that are measured at the same time.
///
/// # Errors
/// Those of `is_slow`.
pub fn halves<E>(
    members: &[usize],
    mut is_slow: impl FnMut(&[Vec<usize>]) -> Result<Vec<bool>, E>,
) -> Result<(Vec<Vec<usize>>, usize), E> {
    let mut n_rounds = 0;
    let mut slow = vec![members.to_vec()];
    let mut found = Vec::new();
    while !slow.is_empty() {
        let halves: Vec<Vec<usize>> = slow
            .iter()
            .filter(|group| group.len() > 2)
            .flat_map(|group| {
                let (a, b) = group.split_at(group.len() / 2);
                [a.to_vec(), b.to_vec()]
            })
            .collect();
        found.extend(slow.iter().filter(|group| group.len() <= 2).cloned());
        if halves.is_empty() {
            break;
        }
        // A group of one has no partner to measure with.
        let testable: Vec<Vec<usize>> = halves.iter().filter(|group| group.len() > 1).cloned().collect();
        let judged = is_slow(&testable)?;
        n_rounds += 1;
        let verdict = |group: &Vec<usize>| {
            testable.iter().position(|one| one == group).is_some_and(|at| judged.get(at) == Some(&true))
        };
        let mut next = Vec::new();
        for two in halves.chunks(2) {
            let bad: Vec<Vec<usize>> = two.iter().filter(|half| verdict(half)).cloned().collect();
            if bad.is_empty() {
                // Each half is fast by itself.
                found.push(two.concat());
            }
            next.extend(bad);
        }
        slow = next;
    }
    Ok((found, n_rounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn every_pair_meets_once_and_rounds_are_disjoint() {
        for n in 2..=17 {
            let rounds = round_robin(n);
            let mut all = BTreeSet::new();
            for round in &rounds {
                let mut busy = BTreeSet::new();
                for (a, b) in round {
                    assert!(a < b && *b < n && busy.insert(*a) && busy.insert(*b), "{n} {round:?}");
                    assert!(all.insert((*a, *b)));
                }
            }
            assert_eq!(all.len(), n * (n - 1) / 2, "{n}");
            assert_eq!(rounds.len(), n - 1 + n % 2);
        }
    }

    /// A fabric with slow members and slow pairs.
    fn rate(members: &[usize], pairs: &[(usize, usize)], a: usize, b: usize) -> f64 {
        let is_slow = members.contains(&a)
            || members.contains(&b)
            || pairs.iter().any(|pair| *pair == (a, b) || *pair == (b, a));
        if is_slow { 200.0 } else { 340.0 + ((a * 7 + b * 13) % 10) as f64 }
    }

    #[track_caller]
    fn hunt(n: usize, members: &[usize], pairs: &[(usize, usize)]) -> HuntResult {
        let mut n_rounds = 0;
        let found = neighbours(n, |round| {
            n_rounds += 1;
            let mut busy = BTreeSet::new();
            for (a, b) in round {
                assert!(busy.insert(*a) && busy.insert(*b), "{round:?}");
            }
            Ok::<_, Infallible>(round.iter().map(|(a, b)| rate(members, pairs, *a, *b)).collect())
        })
        .unwrap();
        assert_eq!(found.n_rounds, n_rounds);
        found
    }

    #[test]
    fn slow_nodes_and_links_are_told_apart_in_three_rounds() {
        for n in [8, 9, 64, 512] {
            for bad in 0..n {
                let found = hunt(n, &[bad], &[]);
                assert_eq!((found.members, found.pairs, found.n_rounds), (vec![bad], vec![], 3), "{n}");
            }
            let found = hunt(n, &[], &[(2, 3)]);
            assert_eq!((found.members, found.pairs), (vec![], vec![(2, 3)]));
            assert_eq!(hunt(n, &[], &[]), HuntResult { n_rounds: 2, ..HuntResult::default() });
        }
        let found = hunt(512, &[7, 9, 300], &[(100, 101)]);
        assert_eq!((found.members, found.pairs, found.n_rounds), (vec![7, 9, 300], vec![(100, 101)], 3));
    }

    #[test]
    fn all_pairs_of_a_few_name_the_one_that_all_are_slow_with() {
        let all = |members: &[usize], pairs: &[(usize, usize)]| {
            let rates: Vec<(usize, usize, f64)> = round_robin(8)
                .concat()
                .into_iter()
                .map(|(a, b)| (a, b, rate(members, pairs, a, b)))
                .collect();
            let found = of_all_pairs(8, &rates);
            (found.members, found.pairs)
        };
        assert_eq!(all(&[3], &[]), (vec![3], vec![]));
        assert_eq!(all(&[], &[(1, 6)]), (vec![], vec![(1, 6)]));
        assert_eq!(all(&[], &[]), (vec![], vec![]));
        assert_eq!(of_all_pairs(2, &[(0, 1, 5.0)]).members, Vec::<usize>::new());
    }

    #[test]
    fn halving_takes_log_n_rounds() {
        for (n, bad) in [(512, 77), (64, 0), (10, 9)] {
            let members: Vec<usize> = (0..n).collect();
            let (found, n_rounds) = halves(&members, |groups| {
                Ok::<_, Infallible>(groups.iter().map(|group| group.contains(&bad)).collect())
            })
            .unwrap();
            assert_eq!(found.len(), 1);
            assert!(found[0].contains(&bad) && found[0].len() <= 3, "{found:?}");
            assert!(n_rounds <= (n as f64).log2().ceil() as usize, "{n}: {n_rounds}");
        }
        // What joins two halves: slow only where both are.
        let members: Vec<usize> = (0..16).collect();
        let (found, n_rounds) = halves(&members, |groups| {
            Ok::<_, Infallible>(groups.iter().map(|group| group.contains(&3) && group.contains(&4)).collect())
        })
        .unwrap();
        assert_eq!((found, n_rounds), (vec![(0..8).collect::<Vec<_>>()], 2));
    }
}
