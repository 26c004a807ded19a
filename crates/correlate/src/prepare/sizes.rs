//! Sizes of communicators, which NCCL before 2.27 does not report to its profilers (interfaces 1 to 3): where the rings
//! of all ranks are there, the members that are seen are all of them.
//!
//! A communicator has its number from its first operation on. So one that all ranks of the job have used is the world.
//! A smaller one is known if the world is, and no other rank holds a communicator that has no number yet: that may be
//! the same one, of a rank that has called nothing on it.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, Pid, Rank, RingRecord, Who};

use crate::prepare::rings::rings;

/// A process and a rank of it within a communicator.
type MemberKey = (usize, u32);

/// The case with the sizes that follow; none if nothing does.
pub fn completed(case: &Case) -> Option<Case> {
    let is_untold = |ring: &RingRecord| ring.comms.iter().any(|comm| comm.size == 0);
    if !case.observations.iter().any(|o| matches!(&o.fact, Fact::Ring(ring) if is_untold(ring))) {
        return None;
    }
    let sizes = sizes(case);
    if sizes.is_empty() {
        return None;
    }
    let mut case = case.clone();
    for observation in &mut case.observations {
        let Fact::Ring(ring) = &mut observation.fact else { continue };
        for comm in ring.comms.iter_mut().filter(|comm| comm.size == 0) {
            comm.size = sizes.get(&comm.id).copied().unwrap_or(0);
        }
    }
    Some(case)
}

fn sizes(case: &Case) -> BTreeMap<u64, u32> {
    let rings: Vec<(&Who, &RingRecord)> =
        rings(case).into_iter().map(|(observation, ring)| (&observation.who, ring)).collect();
    let mut members: BTreeMap<u64, BTreeSet<MemberKey>> = BTreeMap::new();
    for (at, (_, ring)) in rings.iter().enumerate() {
        for comm in ring.comms.iter().filter(|comm| comm.size == 0 && comm.id != 0) {
            if let Some(rank) = comm.rank {
                members.entry(comm.id).or_default().insert((at, rank));
            }
        }
    }
    // Processes of one job are those of a communicator that all of its ranks have used.
    let mut jobs: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for of in members.values() {
        let processes: BTreeSet<usize> = of.iter().map(|(process, _)| *process).collect();
        if is_whole(of) && is_job(&rings, &processes) {
            for process in &processes {
                jobs.insert(*process, processes.clone());
            }
        }
    }
    let is_nameless = |process: &usize| {
        let ring = rings.get(*process).map(|(_, ring)| *ring);
        ring.is_some_and(|ring| ring.comms.iter().any(|comm| comm.id == 0 && comm.ended_ns == 0))
    };
    let known = members.iter().filter(|(_, of)| {
        let processes: BTreeSet<usize> = of.iter().map(|(process, _)| *process).collect();
        let job = processes.first().and_then(|process| jobs.get(process));
        let is_complete = |job: &BTreeSet<usize>| !job.difference(&processes).any(is_nameless);
        is_whole(of) && job.is_some_and(|job| processes.is_subset(job) && is_complete(job))
    });
    known.map(|(id, of)| (*id, of.len() as u32)).collect()
}

/// One process for each rank from 0 on.
fn is_whole(members: &BTreeSet<MemberKey>) -> bool {
    let ranks: BTreeSet<u32> = members.iter().map(|(_, rank)| *rank).collect();
    ranks.len() == members.len() && ranks.last().is_some_and(|last| *last as usize + 1 == ranks.len())
}

/// As many processes as all of them say that the job has, each another rank.
fn is_job(rings: &[(&Who, &RingRecord)], processes: &BTreeSet<usize>) -> bool {
    let of: Vec<_> = processes.iter().filter_map(|process| rings.get(*process)).collect();
    let ranks: BTreeSet<Option<Rank>> = of.iter().map(|(who, _)| who.rank).collect();
    let pids: BTreeSet<(_, Option<Pid>)> = of.iter().map(|(who, _)| (who.host.as_ref(), who.pid)).collect();
    let n = of.len();
    ranks.len() == n
        && pids.len() == n
        && !ranks.contains(&None)
        && of.iter().all(|(_, ring)| ring.world_size.map(|size| size as usize) == Some(n))
}

#[cfg(test)]
mod tests {
    use super::completed;
    use crate::staging::StagedCase;
    use ringleader_model::{Case, Fact, RingRecord};

    /// As NCCL 2.26 reports it: no sizes, and no number before the first operation.
    fn old(stage: StagedCase) -> StagedCase {
        stage.each_ring(|ring| {
            ring.interface = 3;
            for at in 0..ring.comms.len() {
                let is_used = ring.ops.iter().any(|op| op.comm as usize == at);
                if let Some(comm) = ring.comms.get_mut(at) {
                    comm.size = 0;
                    if !is_used {
                        (comm.id, comm.rank) = (0, None);
                    }
                }
            }
        })
    }

    fn sizes(case: &Case) -> Vec<Vec<u32>> {
        let rings = case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Ring(ring) => Some(&**ring),
            _ => None,
        });
        rings.map(|ring: &RingRecord| ring.comms.iter().map(|comm| comm.size).collect()).collect()
    }

    #[test]
    fn what_is_not_known_stays_so() {
        // All have used both.
        let two = || StagedCase::job(3).group("b", 0..2);
        let job = old(two().rings(&["ar:9*9 b/ar:8*3", "ar:9*9 b/ar:8*3", "ar:9*9"]));
        assert_eq!(completed(&job.case).as_ref().map(sizes), Some(vec![vec![3, 2], vec![3, 2], vec![3]]));
        // Rank 2 has not called anything on `b`, and may be a member of it.
        let of_all = || StagedCase::job(3).group("b", 0..3);
        let job = old(of_all().rings(&["ar:9*9 b/ar:8?", "ar:9*9 b/ar:8?", "ar:9*9"]));
        assert_eq!(completed(&job.case).as_ref().map(sizes), Some(vec![vec![3, 0], vec![3, 0], vec![3, 0]]));
        // Nor on `a`: the job's ranks are not known to be all there.
        let job = old(StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9?", ""]));
        assert!(completed(&job.case).is_none());
        // Of one node alone the ring is there.
        let mut job = old(StagedCase::job(3).rings(&["ar:9*12", "ar:9*12", "ar:9*12"]));
        job.case.observations.pop();
        assert!(completed(&job.case).is_none());
    }
}
