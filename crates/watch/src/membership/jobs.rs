//! Which ranks of a node belong together: two jobs on one node are two, and a job whose ranks each have a shell of their own
//! is one.

use std::collections::{BTreeMap, BTreeSet};

use super::ranks::Parents;

/// A live process that writes a ring, or carries a rank.
#[derive(Clone, Debug, Default)]
pub struct LiveProcess {
    /// Pid.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Rendezvous of its job, by its environment: master or coordinator, and what distinguishes two runs with the same
    /// rendezvous.
    pub meeting: Option<String>,
    /// Connections to other such processes, each named alike at both ends.
    pub links: BTreeSet<String>,
    /// Communicators of several ranks that it is or was in.
    pub comms: BTreeSet<String>,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Ranks of the job.
    pub world_size: Option<u32>,
    /// Job of Slurm.
    pub slurm_job: Option<String>,
    /// Session of the process.
    pub session: u32,
    /// Its parent.
    pub parent: u32,
    /// Start of the process, clock ticks since boot.
    pub started_ticks: u64,
}

/// What writers have in common that speak of one launcher, and whether it says so by itself.
type Tie = fn(&LiveProcess) -> Option<(String, bool)>;

/// The most telling first. A session may be that of a terminal, and process 1 adopts what others leave behind.
const TIES: [Tie; 4] = [
    |writer| Some((writer.meeting.clone()?, true)),
    |writer| Some((writer.slurm_job.clone()?, true)),
    |writer| (writer.session > 1).then(|| (writer.session.to_string(), false)),
    |writer| (writer.parent > 0).then(|| (writer.parent.to_string(), writer.parent > 1)),
];

/// Ranks of one job share communicators. Groups that share none, as those of a job that has only begun to make them, are one
/// job if one launcher has started them and they do not contradict each other: a job has each rank once.
pub fn jobs(writers: &[LiveProcess]) -> Vec<BTreeSet<u32>> {
    let groups = TIES.iter().fold(joined(writers), |groups, tie| tied(groups, *tie));
    groups.iter().map(|group| group.iter().map(|writer| writer.pid).collect()).collect()
}

/// The same by what is certain alone: communicators, connections, and the place where ranks meet.
pub fn akin(writers: &[LiveProcess]) -> Vec<BTreeSet<u32>> {
    let groups = TIES.iter().take(1).fold(joined(writers), |groups, tie| tied(groups, *tie));
    groups.iter().map(|group| group.iter().map(|writer| writer.pid).collect()).collect()
}

/// Processes above a rank that are looked at.
const MAX_ABOVE: usize = 64;

/// The process by which each job is known: the nearest above all of its ranks that is above no other job's, else its first
/// rank. Zero for a job without ranks.
pub fn roots(jobs: &[&BTreeSet<u32>], parents: &Parents) -> Vec<u32> {
    let line = |pid: u32| -> Vec<u32> {
        let parent = |pid: &u32| parents.get(pid).copied().filter(|parent| *parent > 1);
        std::iter::successors(Some(pid), parent).take(MAX_ABOVE).collect()
    };
    let lines: Vec<Vec<Vec<u32>>> =
        jobs.iter().map(|pids| pids.iter().map(|pid| line(*pid)).collect()).collect();
    lines
        .iter()
        .enumerate()
        .map(|(at, own)| {
            let is_foreign = |pid: &u32| {
                let others = lines.iter().enumerate().filter(|(other, _)| *other != at);
                others.flat_map(|(_, lines)| lines).any(|line| line.contains(pid))
            };
            let first = own.first().map_or(&[][..], Vec::as_slice);
            let above = first.iter().skip(usize::from(own.len() > 1));
            let common =
                above.copied().find(|pid| own.iter().all(|line| line.contains(pid)) && !is_foreign(pid));
            common.or_else(|| first.first().copied()).unwrap_or_default()
        })
        .collect()
}

/// By communicators and connections.
fn joined(writers: &[LiveProcess]) -> Vec<Vec<&LiveProcess>> {
    let mut groups: Vec<Vec<&LiveProcess>> = Vec::new();
    for writer in writers {
        let shares =
            |group: &Vec<&LiveProcess>| group.iter().any(|other| !other.comms.is_disjoint(&writer.comms));
        let (mut joined, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(shares);
        joined.push(vec![writer]);
        groups = apart;
        groups.push(joined.concat());
    }
    groups.sort_by_key(|group| group.iter().map(|writer| writer.pid).min());
    linked(groups)
}

/// Ranks of one job are connected to each other, or to the one at which they meet.
fn linked(groups: Vec<Vec<&LiveProcess>>) -> Vec<Vec<&LiveProcess>> {
    let mut out: Vec<Vec<&LiveProcess>> = Vec::new();
    for mut group in groups {
        let is_linked = |other: &Vec<&LiveProcess>, group: &[&LiveProcess]| {
            let share = |a: &LiveProcess| group.iter().any(|b| !a.links.is_disjoint(&b.links));
            other.iter().any(|writer| share(writer)) && fit(other, group, true)
        };
        // One that is connected to several joins them all.
        while let Some(at) = out.iter().position(|other| is_linked(other, &group)) {
            let mut other = out.remove(at);
            other.append(&mut group);
            group = other;
        }
        out.push(group);
    }
    out.sort_by_key(|group| group.iter().map(|writer| writer.pid).min());
    out
}

fn tied(groups: Vec<Vec<&LiveProcess>>, tie: Tie) -> Vec<Vec<&LiveProcess>> {
    let mut out: Vec<Vec<&LiveProcess>> = Vec::new();
    for group in groups {
        let ties: BTreeMap<String, bool> = group.iter().filter_map(|writer| tie(writer)).collect();
        let is_tied = |other: &[&LiveProcess]| {
            other
                .iter()
                .filter_map(|writer| tie(writer))
                .any(|(key, _)| ties.get(&key).is_some_and(|is_sure| fit(other, &group, *is_sure)))
        };
        match out.iter_mut().find(|other| is_tied(other)) {
            Some(other) => other.extend(group),
            None => out.push(group),
        }
    }
    out
}

/// Whether two groups may be one job. Those that do not tell their ranks may, if what ties them is sure.
fn fit(a: &[&LiveProcess], b: &[&LiveProcess], is_sure: bool) -> bool {
    let ranks = |group: &[&LiveProcess]| group.iter().filter_map(|w| w.rank).collect::<BTreeSet<u32>>();
    let worlds =
        |group: &[&LiveProcess]| group.iter().filter_map(|w| w.world_size).collect::<BTreeSet<u32>>();
    let tells = |group: &[&LiveProcess]| group.iter().all(|writer| writer.rank.is_some());
    let worlds = &worlds(a) | &worlds(b);
    let meetings: BTreeSet<&str> = a.iter().chain(b).filter_map(|writer| writer.meeting.as_deref()).collect();
    let users: BTreeSet<u32> = a.iter().chain(b).map(|writer| writer.uid).collect();
    if meetings.len() > 1 || users.len() > 1 {
        return false;
    }
    ranks(a).is_disjoint(&ranks(b)) && worlds.len() < 2 && (is_sure || tells(a) && tells(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(pid: u32, rank: u32, comms: &[&str]) -> LiveProcess {
        LiveProcess {
            pid,
            comms: comms.iter().map(|comm| (*comm).to_owned()).collect(),
            rank: Some(rank),
            world_size: Some(4),
            // A shell for each.
            parent: 1000 + pid,
            session: 1000 + pid,
            slurm_job: None,
            started_ticks: u64::from(pid),
            ..LiveProcess::default()
        }
    }

    fn of(writers: &[LiveProcess]) -> Vec<Vec<u32>> {
        jobs(writers).into_iter().map(|job| job.into_iter().collect()).collect()
    }

    #[test]
    fn communicators_join_whatever_the_parents() {
        let all =
            [writer(1, 0, &["a"]), writer(2, 0, &["b"]), writer(3, 1, &["a", "c"]), writer(4, 2, &["c"])];
        assert_eq!(of(&all), [vec![1, 3, 4], vec![2]]);
    }

    #[test]
    fn one_launcher_joins_what_does_not_contradict() {
        // Pairs whose common communicator is not made yet.
        let pairs = |session: [u32; 4]| {
            let comms = ["a", "a", "b", "b"];
            let all = (0..4).map(|at| LiveProcess {
                session: session[at as usize],
                ..writer(at + 1, at, &[comms[at as usize]])
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(of(&pairs([7; 4])), [[1, 2, 3, 4]]);
        assert_eq!(of(&pairs([7, 7, 8, 8])), [[1, 2], [3, 4]]);
        let mut twice = pairs([7; 4]);
        twice[2].rank = Some(0);
        assert_eq!(of(&twice), [[1, 2], [3, 4]], "rank 0 is in each");
        let mut sizes = pairs([7; 4]);
        sizes[2].world_size = Some(2);
        assert_eq!(of(&sizes), [[1, 2], [3, 4]]);
        // Nobody knows: one terminal may have started both, one parent rather not.
        let mut unknown = pairs([7; 4]);
        for writer in &mut unknown {
            writer.rank = None;
        }
        assert_eq!(of(&unknown), [[1, 2], [3, 4]]);
        for writer in &mut unknown {
            writer.parent = 77;
        }
        assert_eq!(of(&unknown), [[1, 2, 3, 4]]);
        for writer in &mut unknown {
            writer.parent = 1;
        }
        assert_eq!(of(&unknown), [[1, 2], [3, 4]]);
        for writer in &mut unknown {
            writer.slurm_job = Some("9".to_owned());
        }
        assert_eq!(of(&unknown), [[1, 2, 3, 4]]);
    }

    #[test]
    fn a_job_is_known_by_what_started_its_ranks_alone() {
        // Shell 10 has started the launchers 20 and 30; 40 and 41 are ranks of a loop in the shell.
        let parents =
            Parents::from([(10, 1), (20, 10), (30, 10), (21, 20), (22, 20), (31, 30), (40, 10), (41, 10)]);
        let jobs = [BTreeSet::from([21, 22]), BTreeSet::from([31]), BTreeSet::from([40, 41])];
        assert_eq!(roots(&jobs.iter().collect::<Vec<_>>(), &parents), [20, 31, 40]);
        assert_eq!(roots(&[&jobs[2]], &parents), [10]);
        assert_eq!(roots(&[&BTreeSet::new()], &parents), [0]);
    }

    /// Nothing of NCCL is there yet: the environment and the connections tell.
    #[test]
    fn ranks_that_meet_or_are_connected_are_one_job_and_those_that_meet_elsewhere_are_not() {
        let at = |pid, rank, meeting: &str| LiveProcess {
            meeting: Some(meeting.to_owned()),
            session: 7,
            parent: 7,
            world_size: Some(2),
            ..writer(pid, rank, &[])
        };
        let all = [at(1, 0, "a:1"), at(2, 1, "b:1"), at(3, 0, "b:1"), at(4, 1, "a:1")];
        assert_eq!(of(&all), [[1, 4], [2, 3]], "one parent, two jobs");
        let again = [at(1, 0, "a:1"), at(2, 0, "a:1"), at(3, 1, "a:1")];
        assert_eq!(of(&again), [vec![1, 3], vec![2]], "one is left over by a run before");
        let mut other_user = [at(1, 0, "a:1"), at(2, 1, "a:1")];
        other_user[1].uid = 1000;
        assert_eq!(of(&other_user), [[1], [2]]);
        // Started by hand, without any variable: each is connected to the one at which all meet.
        let link = |pid, links: &[&str]| LiveProcess {
            links: links.iter().map(|link| (*link).to_owned()).collect(),
            rank: None,
            world_size: None,
            ..writer(pid, 0, &[])
        };
        let all = [link(1, &["x"]), link(2, &["y"]), link(3, &["x", "y"]), link(4, &["z"])];
        assert_eq!(of(&all), [vec![1, 2, 3], vec![4]]);
    }
}
