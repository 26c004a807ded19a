//! The ranks among the processes of a job. Launchers, shells and workers of a data loader carry a rank's variables, too.

use std::collections::{BTreeMap, BTreeSet};

/// The parent of each process.
pub type Parents = BTreeMap<u32, u32>;

/// By what a process's environment makes it one of the job's ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankNumbers {
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Rank on its node.
    pub local_rank: Option<u32>,
}

/// These processes and all below them, as far as they are there.
pub fn with_descendants(parents: &Parents, roots: &[u32]) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, parent) in parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let mut chosen = BTreeSet::new();
    let mut open: Vec<u32> = roots.iter().copied().filter(|pid| parents.contains_key(pid)).collect();
    while let Some(pid) = open.pop() {
        if chosen.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    chosen
}

/// The processes to watch where nothing says which compute: those that were named, or what the only named one has started.
pub fn unnamed(parents: &Parents, roots: &[u32]) -> BTreeSet<u32> {
    let mut below = with_descendants(parents, roots);
    let above: BTreeSet<u32> = below.iter().filter_map(|pid| parents.get(pid)).copied().collect();
    below.retain(|pid| if roots.len() > 1 { roots.contains(pid) } else { !above.contains(pid) });
    below
}

/// The parent of a process, if that has the same number.
pub fn parent_of_same(parents: &Parents, numbers: &BTreeMap<u32, RankNumbers>, pid: u32) -> Option<u32> {
    let parent = parents.get(&pid)?;
    (numbers.get(parent)? == numbers.get(&pid)?).then_some(*parent)
}

/// Of the processes that carry a rank's variables those that compute. A launcher carries them, with other ranks below it; a
/// shell around the rank carries the same; and so do workers of its data loader, below it. Of several for one rank, each below
/// another, `pick` may say which are meant: it is given them outermost first. Else it is the outermost.
pub fn innermost(
    parents: &Parents,
    numbers: &BTreeMap<u32, RankNumbers>,
    pick: impl Fn(&[u32]) -> Vec<u32>,
) -> BTreeSet<u32> {
    // Nearest first.
    let above = |pid: u32| {
        let (mut at, mut seen, mut found) = (pid, BTreeSet::from([pid]), Vec::new());
        while let Some(parent) = parents.get(&at).filter(|parent| seen.insert(**parent)) {
            at = *parent;
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
        } else if numbers.get(&head).is_some_and(|number| number.local_rank.is_some()) {
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

    fn rank(rank: u32) -> RankNumbers {
        RankNumbers { rank: Some(rank), local_rank: Some(rank) }
    }

    #[test]
    fn a_launcher_and_its_ranks_and_their_workers() {
        // 10 srun's step, 11 a shell, 12 the rank, 13 a worker of its loader.
        let all = Parents::from([(10, 1), (11, 10), (12, 11), (13, 12), (20, 1)]);
        assert_eq!(with_descendants(&all, &[11, 99]), BTreeSet::from([11, 12, 13]));
        let ranks = BTreeMap::from([(12, rank(0)), (13, rank(0)), (20, rank(1))]);
        let nobody = |_: &[u32]| Vec::new();
        assert_eq!(innermost(&all, &ranks, nobody), BTreeSet::from([12, 20]));
        assert_eq!([12, 13].map(|pid| parent_of_same(&all, &ranks, pid)), [None, Some(12)]);
        // torchrun below srun carries the rank of its task, its children their own.
        let outer = RankNumbers { rank: Some(0), local_rank: None };
        let ranks = BTreeMap::from([(11, outer), (12, rank(0)), (13, rank(0))]);
        assert_eq!(innermost(&all, &ranks, nobody), BTreeSet::from([12]));
    }

    #[test]
    fn a_shell_around_a_rank_is_not_the_rank() {
        // 11 a shell, 12 the rank, 13 a worker of its loader, 14 what the shell pipes its output into.
        let all = Parents::from([(11, 1), (12, 11), (13, 12), (14, 11), (20, 1)]);
        let ranks = BTreeMap::from([11, 12, 13, 14].map(|pid| (pid, rank(0))));
        let pick = |family: &[u32]| {
            assert_eq!(family, [11, 12, 14, 13]);
            vec![12]
        };
        assert_eq!(innermost(&all, &ranks, pick), BTreeSet::from([12]));
        assert_eq!(innermost(&all, &ranks, |_| Vec::new()), BTreeSet::from([11]));
        // A launcher that is the first task of its step has the numbers of its own first rank.
        let ranks = BTreeMap::from([(11, rank(0)), (12, rank(0)), (13, rank(0)), (14, rank(1))]);
        assert_eq!(innermost(&all, &ranks, |_| Vec::new()), BTreeSet::from([12, 14]));
    }

    #[test]
    fn of_one_that_was_named_what_it_has_started() {
        let all = Parents::from([(11, 1), (12, 11), (13, 11), (20, 1)]);
        assert_eq!(unnamed(&all, &[11]), BTreeSet::from([12, 13]));
        assert_eq!(unnamed(&all, &[11, 20]), BTreeSet::from([11, 20]));
    }
}
