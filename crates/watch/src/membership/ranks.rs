//! Which of the processes that carry a rank's variables is the rank. A launcher carries them, with other ranks below it; a
//! shell around the rank carries the same; and so do workers of its data loader, below it.

use std::collections::{BTreeMap, BTreeSet};

/// A rank by a process's variables: in the job, and on its node.
pub type Number = (Option<u32>, Option<u32>);

/// Those that compute. Of several for one rank, each below another, those with a ring are meant; else the first that has loaded
/// what computes on GPUs, since workers of a loader have loaded the same; else the outermost.
pub fn computing(
    numbers: &BTreeMap<u32, Number>,
    parent: impl Fn(u32) -> Option<u32>,
    has_ring: impl Fn(u32) -> bool,
    has_gpu_code: impl Fn(u32) -> bool,
) -> BTreeSet<u32> {
    innermost(numbers, parent, |family| {
        let rings: Vec<u32> = family.iter().copied().filter(|pid| has_ring(*pid)).collect();
        if rings.is_empty() {
            family.iter().copied().find(|pid| has_gpu_code(*pid)).into_iter().collect()
        } else {
            rings
        }
    })
}

/// Whom to watch where nothing says who computes: the processes that were named, if they are several; else what the one has
/// started that has started nothing. `below` holds all of these, each with its parent.
pub fn stand_ins(named: &[u32], below: &BTreeMap<u32, Option<u32>>) -> BTreeSet<u32> {
    let parents: BTreeSet<u32> = below.values().filter_map(|parent| *parent).collect();
    let is_one = |pid: &u32| if named.len() > 1 { named.contains(pid) } else { !parents.contains(pid) };
    below.keys().copied().filter(is_one).collect()
}

/// Of several for one rank, each below another, `pick` may say which are meant: it is given them outermost first. Else it is
/// the outermost.
fn innermost(
    numbers: &BTreeMap<u32, Number>,
    parent: impl Fn(u32) -> Option<u32>,
    pick: impl Fn(&[u32]) -> Vec<u32>,
) -> BTreeSet<u32> {
    // Nearest first.
    let above = |pid: u32| {
        let (mut at, mut seen, mut found) = (pid, BTreeSet::from([pid]), Vec::new());
        while let Some(parent) = parent(at).filter(|parent| seen.insert(*parent)) {
            at = parent;
            found.extend(numbers.get_key_value(&at));
        }
        found
    };
    let mut launchers = BTreeSet::new();
    let mut lines = Vec::new();
    for (pid, number) in numbers {
        let above = above(*pid);
        launchers.extend(above.iter().filter(|(_, outer)| *outer != number).map(|(pid, _)| **pid));
        lines.push((*pid, number, above));
    }
    let mut families: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
    let mut outer = BTreeSet::new();
    for (pid, number, above) in lines.iter().filter(|(pid, ..)| !launchers.contains(pid)) {
        let own: Vec<u32> = above
            .iter()
            .take_while(|(pid, outer)| outer == number && !launchers.contains(pid))
            .map(|(pid, _)| **pid)
            .collect();
        families.entry(own.last().copied().unwrap_or(*pid)).or_default().push((own.len(), *pid));
        outer.extend(own);
    }
    let mut chosen = BTreeSet::new();
    for (head, mut family) in families {
        family.sort_unstable();
        let family: Vec<u32> = family.into_iter().map(|(_, pid)| pid).collect();
        let picked = if family.len() > 1 { pick(&family) } else { Vec::new() };
        if !picked.is_empty() {
            chosen.extend(picked);
        } else if numbers.get(&head).is_some_and(|(_, local_rank)| local_rank.is_some()) {
            chosen.insert(head);
        } else {
            // Such as srun's shell with a number for the task alone.
            chosen.extend(family.into_iter().filter(|pid| !outer.contains(pid)));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32) -> Number {
        (Some(rank), Some(rank))
    }

    fn parent(of: &[(u32, u32)]) -> impl Fn(u32) -> Option<u32> {
        let of: BTreeMap<u32, u32> = of.iter().copied().collect();
        move |pid| of.get(&pid).copied()
    }

    #[test]
    fn a_launcher_and_its_ranks_and_their_workers() {
        // 10 srun's step, 11 a shell, 12 the rank, 13 a worker of its loader.
        let parent = parent(&[(10, 1), (11, 10), (12, 11), (13, 12), (20, 1)]);
        let numbers = BTreeMap::from([(12, rank(0)), (13, rank(0)), (20, rank(1))]);
        let nobody = |_: &[u32]| Vec::new();
        assert_eq!(innermost(&numbers, &parent, nobody), BTreeSet::from([12, 20]));
        // torchrun below srun carries the rank of its task, its children their own.
        let numbers = BTreeMap::from([(11, (Some(0), None)), (12, rank(0)), (13, rank(0))]);
        assert_eq!(innermost(&numbers, &parent, nobody), BTreeSet::from([12]));
    }

    #[test]
    fn a_shell_around_a_rank_is_not_the_rank() {
        // 11 a shell, 12 the rank, 13 a worker of its loader, 14 what the shell pipes its output into.
        let parent = parent(&[(11, 1), (12, 11), (13, 12), (14, 11), (20, 1)]);
        let numbers = BTreeMap::from([11, 12, 13, 14].map(|pid| (pid, rank(0))));
        let pick = |family: &[u32]| {
            assert_eq!(family, [11, 12, 14, 13]);
            vec![12]
        };
        assert_eq!(innermost(&numbers, &parent, pick), BTreeSet::from([12]));
        assert_eq!(innermost(&numbers, &parent, |_| Vec::new()), BTreeSet::from([11]));
        // A launcher that is the first task of its step has the numbers of its own first rank.
        let numbers = BTreeMap::from([(11, rank(0)), (12, rank(0)), (13, rank(0)), (14, rank(1))]);
        assert_eq!(innermost(&numbers, &parent, |_| Vec::new()), BTreeSet::from([12, 14]));
    }

    #[test]
    fn a_ring_says_more_than_loaded_code() {
        let parent = parent(&[(11, 1), (12, 11), (13, 12)]);
        let numbers = BTreeMap::from([11, 12, 13].map(|pid| (pid, rank(0))));
        let chosen = |ring: u32, code: &[u32]| {
            computing(&numbers, &parent, |pid| pid == ring, |pid| code.contains(&pid))
        };
        assert_eq!(chosen(13, &[12]), BTreeSet::from([13]));
        assert_eq!(chosen(0, &[12, 13]), BTreeSet::from([12]), "the outer one: the other is its worker");
        assert_eq!(chosen(0, &[]), BTreeSet::from([11]));
    }

    #[test]
    fn without_any_sign_the_leaves_of_what_was_named_are_watched() {
        let below = BTreeMap::from([(10, Some(1)), (11, Some(10)), (12, Some(10))]);
        assert_eq!(stand_ins(&[10], &below), BTreeSet::from([11, 12]));
        assert_eq!(stand_ins(&[10, 12], &below), BTreeSet::from([10, 12]));
    }
}
