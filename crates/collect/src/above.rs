//! Whether a process that was named leads to ranks. A shell or a launcher that has started none leads to no job.

use std::path::Path;

use ringleader_knowledge::program;
use ringleader_watch::membership::ranks::{Parents, with_descendants};

use crate::follow;

/// Shells or launchers that have started no rank. Each process by its pid and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rankless {
    /// Those that were asked for.
    pub asked: Vec<(u32, Box<str>)>,
    /// What they have started, by pid.
    pub started: Vec<(u32, Box<str>)>,
}

/// Looks below these processes. None if something of a job may be there: one of them is no shell or launcher, or what they have
/// started has a rank or runs what trains.
pub fn without_ranks(proc: &Path, pids: &[u32]) -> Option<Rankless> {
    let all = follow::processes(proc);
    if pids.is_empty()
        || !pids.iter().all(|pid| all.get(pid).is_some_and(|stat| program::is_above(&stat.command)))
    {
        return None;
    }
    let parents: Parents = all.iter().map(|(pid, stat)| (*pid, stat.ppid)).collect();
    let found = with_descendants(&parents, pids);
    // What cannot be read may be one.
    let may_be_rank = |pid: &u32| {
        let trains = all.get(pid).is_some_and(|stat| program::trains(&stat.command));
        trains
            || follow::rank_env(proc, *pid).is_none_or(|env| env.rank.is_some())
            || follow::has_gpu_code(proc, *pid) != Some(false)
    };
    if found.iter().any(may_be_rank) {
        return None;
    }
    let named = |pid: &u32| (*pid, all.get(pid).map(|stat| (*stat.command).into()).unwrap_or_default());
    let started = found.iter().filter(|pid| !pids.contains(pid)).map(named).collect();
    Some(Rankless { asked: pids.iter().map(named).collect(), started })
}
