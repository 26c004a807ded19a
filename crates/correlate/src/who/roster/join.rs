//! Joins claims of identity into processes: claims are the elements of a union-find structure, and two that share a
//! process or a rank and contradict each other in nothing are of one set. What the stronger claim says counts.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Pid, Rank};

use super::claims::{IdentityClaim, Strength};
use super::{Member, hosts_agree, telling_host};

impl Member {
    fn agrees_with(&self, other: &Member) -> bool {
        let same = |a: Option<u32>, b: Option<u32>| a.is_none() || b.is_none() || a == b;
        let hosts = hosts_agree(self.host.as_ref(), other.host.as_ref());
        let addresses = match (&self.address, &other.address) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        hosts
            && addresses
            && same(self.rank.map(|r| r.0), other.rank.map(|r| r.0))
            && same(self.pid.map(|p| p.0), other.pid.map(|p| p.0))
    }

    fn take_in(&mut self, other: &Member) {
        self.rank = self.rank.or(other.rank);
        if telling_host(self.host.as_ref()).is_none() {
            self.host = telling_host(other.host.as_ref()).cloned().or_else(|| self.host.take());
        }
        self.address = self.address.take().or_else(|| other.address.clone());
        self.pid = self.pid.or(other.pid);
        self.local_rank = self.local_rank.or(other.local_rank);
        self.gpu = self.gpu.or(other.gpu);
        self.cuda_dev = self.cuda_dev.or(other.cuda_dev);
        self.nvml_dev = self.nvml_dev.or(other.nvml_dev);
    }
}

/// One claim, or all of a set if it is the set's root.
struct Element {
    /// The claim that it was joined with; None of a root.
    under: Option<usize>,
    /// What is known.
    member: Member,
}

/// Claims, joined so far.
#[derive(Default)]
pub(super) struct Processes {
    elements: Vec<Element>,
    by_pid: BTreeMap<Pid, Vec<usize>>,
    by_rank: BTreeMap<Rank, Vec<usize>>,
}

impl Processes {
    /// Processes and ranks, in the order of their strongest claims.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Member)> + Clone {
        let roots = self.elements.iter().enumerate().filter(|(_, element)| element.under.is_none());
        roots.map(|(at, element)| (at, &element.member))
    }

    /// Those with this process, on any host.
    pub(super) fn with_pid(&self, pid: Pid) -> impl Iterator<Item = (usize, &Member)> {
        self.roots(self.by_pid.get(&pid))
    }

    /// Those with this rank.
    pub(super) fn with_rank(&self, rank: Rank) -> impl Iterator<Item = (usize, &Member)> {
        self.roots(self.by_rank.get(&rank))
    }

    fn roots(&self, elements: Option<&Vec<usize>>) -> impl Iterator<Item = (usize, &Member)> {
        let roots: BTreeSet<usize> = elements.into_iter().flatten().map(|at| self.root(*at)).collect();
        roots.into_iter().filter_map(|at| Some((at, &self.elements.get(at)?.member)))
    }

    fn root(&self, mut at: usize) -> usize {
        while let Some(under) = self.elements.get(at).and_then(|element| element.under) {
            at = under;
        }
        at
    }

    /// Joins a claim with what is known.
    pub(super) fn join(&mut self, claim: IdentityClaim) {
        let found = claim.member;
        match claim.strength {
            Strength::Record | Strength::Table | Strength::Environment => self.add(found),
            // Local rank and pid only; joined by pid if anything else names it. In pods all ranks may have one pid:
            // then nothing is joined.
            Strength::Exit => {
                let Some(pid) = found.pid else { return };
                let same: Vec<usize> = self.with_pid(pid).map(|(at, _)| at).take(2).collect();
                match same.as_slice() {
                    [] => _ = self.push(found),
                    [one] => self.complete(*one, |m| m.local_rank = m.local_rank.or(found.local_rank)),
                    _ => {}
                }
            }
            Strength::Spoken => {
                if found.rank.is_some_and(|rank| self.with_rank(rank).next().is_none()) {
                    self.push(found);
                }
            }
        }
    }

    /// Adds a claim of one process, and joins it with the one that it agrees with.
    pub(super) fn add(&mut self, found: Member) {
        if found.rank.is_none() && found.pid.is_none() {
            return;
        }
        let agrees = |(at, m): (usize, &Member)| m.agrees_with(&found).then_some(at);
        let by_pid = found.pid.and_then(|pid| self.with_pid(pid).find_map(agrees));
        let same = by_pid.or_else(|| found.rank.and_then(|rank| self.with_rank(rank).find_map(agrees)));
        let at = self.push(found);
        if let Some(same) = same {
            self.unite(same, at);
        }
    }

    /// A process has this rank.
    pub(super) fn name(&mut self, at: usize, rank: Rank) {
        self.complete(at, |m| m.rank = Some(rank));
        self.by_rank.entry(rank).or_default().push(at);
        self.find_its_rank(at);
    }

    /// Adds what a claim has beside rank and process.
    pub(super) fn complete(&mut self, at: usize, with: impl FnOnce(&mut Member)) {
        if let Some(element) = self.elements.get_mut(at) {
            with(&mut element.member);
        }
    }

    /// Joins a claim with a process.
    pub(super) fn take_in(&mut self, at: usize, found: Member) {
        let new = self.push(found);
        self.unite(at, new);
    }

    /// Leaves those out that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&Member) -> bool) {
        let kept: Vec<Member> = self.iter().map(|(_, m)| m).filter(|m| keep(m)).cloned().collect();
        *self = Self::default();
        for member in kept {
            self.push(member);
        }
    }

    pub(super) fn into_members(self) -> Vec<Member> {
        self.elements.into_iter().filter(|e| e.under.is_none()).map(|e| e.member).collect()
    }

    fn push(&mut self, member: Member) -> usize {
        let at = self.elements.len();
        if let Some(pid) = member.pid {
            self.by_pid.entry(pid).or_default().push(at);
        }
        if let Some(rank) = member.rank {
            self.by_rank.entry(rank).or_default().push(at);
        }
        self.elements.push(Element { under: None, member });
        at
    }

    /// Joins two roots; what the first says counts.
    fn unite(&mut self, root: usize, other: usize) {
        let Some(element) = self.elements.get_mut(other).filter(|_| root != other) else { return };
        element.under = Some(root);
        let member = element.member.clone();
        self.complete(root, |m| m.take_in(&member));
        self.find_its_rank(root);
    }

    /// A rank that was heard of before its process, and the process that is later seen to be it, are one.
    fn find_its_rank(&mut self, at: usize) {
        let Some(process) = self.elements.get(at).map(|element| &element.member) else { return };
        let Some(rank) = process.rank.filter(|_| process.pid.is_some()) else { return };
        let heard = self.with_rank(rank).filter(|(_, m)| m.pid.is_none() && m.agrees_with(process));
        let heard: Vec<usize> = heard.map(|(other, _)| other).collect();
        for other in heard {
            self.unite(at, other);
        }
    }
}
