//! The weakest claims of identity, used where nothing stronger speaks: numbers in command lines, the order in which a
//! launcher started its processes, and names of files.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::command::{LOCAL_RANK, RANK, WORLD, option};
use ringleader_knowledge::program::is_launch;
use ringleader_model::{
    Case, Fact, Host, LocalRank, Observation, Pid, ProcessRow, Rank, TorchEvent, Who, rank_in_path,
};

use super::claims::member_of;
use super::join::Processes;
use super::{Member, hosts_agree, last_rank, telling_host};

/// A claim and where it is from, the stronger first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Basis {
    /// `--rank 3` in its command line.
    Command,
    /// The name of the file that holds its stacks.
    FileName,
    /// It is one of several processes of one launcher: they are started in the order of their local ranks.
    Order,
}

/// Processes of one host whose order of starting is taken for that of their ranks.
const MAX_STACKS: usize = 64;
/// Options of launchers.
const PER_NODE: &[&str] = &["nproc_per_node", "num_gpus", "num_processes", "np", "n", "nprocs"];
const NODES: &[&str] = &["nnodes", "num_nodes", "num_machines"];

/// World sizes that command lines give.
pub(super) fn world_sizes(table: &[ProcessRow]) -> impl Iterator<Item = u32> + '_ {
    table.iter().filter_map(|row| {
        if is_launch(&row.command) {
            let per_node = option(&row.command, PER_NODE)?;
            Some(per_node.saturating_mul(option(&row.command, NODES).unwrap_or(1)))
        } else {
            option(&row.command, RANK)?;
            option(&row.command, WORLD)
        }
    })
}

/// Joins claims that are used where nothing stronger speaks, and what is left by elimination.
pub(super) fn join(
    processes: &mut Processes,
    case: &Case,
    launchers: &BTreeSet<Pid>,
    world_size: Option<u32>,
) {
    let hosts: BTreeSet<&Host> =
        processes.iter().filter_map(|(_, m)| telling_host(m.host.as_ref())).collect();
    let differs = |m: &Member| m.rank.zip(m.local_rank).is_some_and(|(rank, local)| rank.0 != local.0);
    let is_one_node = hosts.len() < 2 && !processes.iter().any(|(_, m)| differs(m));
    if is_one_node {
        let is_free = |rank: &Rank| processes.with_rank(*rank).next().is_none();
        let nameless = processes.iter().filter(|(_, m)| m.rank.is_none() && m.pid.is_some());
        let local = nameless.filter_map(|(at, m)| Some((at, Rank(m.local_rank?.0))));
        let named: Vec<(usize, Rank)> = local.filter(|(_, rank)| is_free(rank)).collect();
        for (at, rank) in named {
            processes.name(at, rank);
        }
    }
    for (_, who) in claims(case, is_one_node, world_size) {
        join_claim(processes, &who, launchers);
    }
    for who in order_of_ends(processes, case, world_size) {
        join_claim(processes, &who, launchers);
    }
    if let Some((at, rank)) = left_over(processes, launchers, world_size) {
        processes.name(at, rank);
    }
}

fn join_claim(processes: &mut Processes, who: &Who, launchers: &BTreeSet<Pid>) {
    let found = member_of(who);
    let Some(pid) = found.pid else {
        let is_known = |rank| processes.with_rank(rank).any(|(_, m)| m.pid.is_some());
        if found.rank.is_some_and(|rank| !is_known(rank)) {
            processes.add(found);
        }
        return;
    };
    if launchers.contains(&pid) {
        return;
    }
    let is_taken = found
        .rank
        .is_some_and(|rank| processes.with_rank(rank).any(|(_, m)| m.pid.is_some_and(|p| p != pid)));
    let known = processes.with_pid(pid).find(|(_, m)| hosts_agree(m.host.as_ref(), found.host.as_ref()));
    match known.map(|(at, m)| (at, m.rank)) {
        Some((at, None)) if !is_taken => processes.take_in(at, found),
        Some((at, rank)) if rank == found.rank => {
            processes.complete(at, |m| m.local_rank = m.local_rank.or(found.local_rank));
        }
        None if !is_taken && found.rank.is_some() => processes.add(found),
        _ => {}
    }
}

/// A shell shows how each of the processes that it started ended, by pid alone: if they are as many as there are
/// ranks, they were started in the order of their ranks.
fn order_of_ends(processes: &Processes, case: &Case, world_size: Option<u32>) -> Vec<Who> {
    if processes.iter().any(|(_, m)| m.rank.is_some() && m.pid.is_some()) {
        return Vec::new();
    }
    let pid_of_end = |o: &Observation| match &o.fact {
        Fact::Torch(TorchEvent::ChildExit { .. }) if o.who.rank.is_none() && o.who.local_rank.is_none() => {
            o.who.pid
        }
        _ => None,
    };
    let pids: BTreeSet<Pid> = case.observations.iter().filter_map(pid_of_end).collect();
    let n_spoken = processes.iter().filter_map(|(_, m)| m.rank).map(|r| r.0.saturating_add(1)).max();
    let world = world_size.max(n_spoken).unwrap_or(0);
    if pids.len() < 2 || pids.len() != world as usize {
        return Vec::new();
    }
    let named = (0..).map(Rank).zip(pids);
    named.map(|(rank, pid)| Who { rank: Some(rank), pid: Some(pid), ..Who::default() }).collect()
}

/// One process without a rank and one rank that nobody has are the same.
fn left_over(
    processes: &Processes,
    launchers: &BTreeSet<Pid>,
    world_size: Option<u32>,
) -> Option<(usize, Rank)> {
    let with_pid = processes.iter().filter(|(_, m)| m.pid.is_some()).filter_map(|(_, m)| m.rank).collect();
    let left = last_rank(world_size.unwrap_or(0), &with_pid)?;
    let is_nameless = |m: &Member| m.rank.is_none() && m.pid.is_some_and(|pid| !launchers.contains(&pid));
    let mut nameless = processes.iter().filter(|(_, m)| is_nameless(m)).map(|(at, _)| at);
    nameless.next().filter(|_| nameless.next().is_none()).map(|at| (at, left))
}

/// All weak claims of a case. `is_one_node`: a local rank is a rank.
fn claims(case: &Case, is_one_node: bool, world_size: Option<u32>) -> Vec<(Basis, Who)> {
    let mut found = Vec::new();
    for observation in &case.observations {
        match &observation.fact {
            Fact::Processes(table) => of_table(&table.rows, observation, is_one_node, &mut found),
            Fact::Stacks(stacks) => {
                let Some(pid) = stacks.pid else { continue };
                let who = |rank: Option<Rank>, local: Option<LocalRank>| Who {
                    rank,
                    local_rank: local,
                    pid: Some(pid),
                    host: observation.who.host.clone(),
                };
                if let Some(command) = &stacks.command {
                    found.extend(of_command(command, is_one_node).map(|(r, l)| (Basis::Command, who(r, l))));
                }
                let path = case.sources.get(observation.cite.source.0 as usize).map_or("", |s| &s.path);
                found.extend(rank_in_path(path).map(|rank| (Basis::FileName, who(Some(rank), None))));
            }
            Fact::Samples(samples) => {
                let path = case.sources.get(observation.cite.source.0 as usize).map_or("", |s| &s.path);
                let who = |rank| Who { rank: Some(rank), pid: samples.pid, ..observation.who.clone() };
                let named = rank_in_path(path).filter(|_| samples.pid.is_some());
                found.extend(named.map(|rank| (Basis::FileName, who(rank))));
            }
            _ => {}
        }
    }
    if is_one_node {
        found.extend(by_order_of_stacks(case, world_size));
    }
    found.sort_by(|a, b| (a.0, key(&a.1)).cmp(&(b.0, key(&b.1))));
    found.dedup();
    found
}

/// Stacks of all processes of one host that nothing else identifies: taken as started in the order of their ranks. With
/// one missing, all after it would be counted wrong.
fn by_order_of_stacks(case: &Case, world_size: Option<u32>) -> Vec<(Basis, Who)> {
    let mut pids: BTreeSet<Pid> = BTreeSet::new();
    let mut hosts: BTreeSet<Option<&Host>> = BTreeSet::new();
    let mut named: BTreeSet<Option<Rank>> = BTreeSet::new();
    for observation in &case.observations {
        if let Fact::Stacks(stacks) = &observation.fact {
            named.insert(observation.who.rank);
            let path = case.sources.get(observation.cite.source.0 as usize).map_or("", |s| &s.path);
            if rank_in_path(path).is_some() {
                return Vec::new();
            }
            pids.extend(stacks.pid);
            hosts.insert(observation.who.host.as_ref());
        }
    }
    // Where ranks are written above stacks, their order says nothing.
    if named.iter().flatten().count() > 1 {
        return Vec::new();
    }
    let is_whole = world_size.is_none_or(|n| n as usize == pids.len());
    let is_job = is_whole && pids.len() > 1 && pids.len() <= MAX_STACKS && hosts.len() == 1;
    let claim = |(rank, pid)| {
        let host = hosts.first().copied().flatten().cloned();
        (Basis::Order, Who { rank: Some(Rank(rank)), pid: Some(pid), host, ..Who::default() })
    };
    if is_job { (0u32..).zip(pids).map(claim).collect() } else { Vec::new() }
}

fn key(who: &Who) -> (Option<Rank>, Option<&Host>, Option<Pid>) {
    (who.rank, who.host.as_ref(), who.pid)
}

fn of_command(command: &str, is_one_node: bool) -> Option<(Option<Rank>, Option<LocalRank>)> {
    let local = option(command, LOCAL_RANK).map(LocalRank);
    let rank = option(command, RANK).map(Rank).or(local.filter(|_| is_one_node).map(|l| Rank(l.0)));
    (rank.is_some() || local.is_some()).then_some((rank, local))
}

fn of_table(
    rows: &[ProcessRow],
    observation: &Observation,
    is_one_node: bool,
    found: &mut Vec<(Basis, Who)>,
) {
    let by_pid: BTreeMap<Pid, &ProcessRow> = rows.iter().filter_map(|r| Some((r.pid?, r))).collect();
    // A child with its parent's command line is a helper of it: a worker of a data loader.
    let is_helper = |row: &ProcessRow| {
        row.ppid.and_then(|parent| by_pid.get(&parent)).is_some_and(|parent| parent.command == row.command)
    };
    let mut siblings: BTreeMap<Pid, Vec<&ProcessRow>> = BTreeMap::new();
    for row in rows.iter().filter(|r| !is_helper(r) && !is_launch(&r.command)) {
        let who =
            |rank, local_rank| Who { rank, local_rank, pid: row.pid, host: observation.who.host.clone() };
        if let Some((rank, local)) = of_command(&row.command, is_one_node) {
            found.push((Basis::Command, who(rank, local)));
        } else if let Some(parent) = row.ppid.filter(|p| by_pid.get(p).is_some_and(|p| is_launch(&p.command)))
        {
            siblings.entry(parent).or_default().push(row);
        }
    }
    for (parent, mut ranks) in siblings {
        let command = by_pid.get(&parent).map_or("", |p| &*p.command);
        let commands: BTreeSet<&str> = ranks.iter().map(|r| &*r.command).collect();
        let n_wanted = option(command, PER_NODE);
        // One that has ended is missing from the list, and all after it would be counted wrong.
        if commands.len() != 1 || n_wanted.is_some_and(|n| n as usize != ranks.len()) || !is_one_node {
            continue;
        }
        ranks.sort_by_key(|r| r.pid);
        for (local, row) in (0u32..).zip(ranks) {
            let who = Who {
                rank: Some(Rank(local)),
                local_rank: Some(LocalRank(local)),
                pid: row.pid,
                host: observation.who.host.clone(),
            };
            found.push((Basis::Order, who));
        }
    }
}
