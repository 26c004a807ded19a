//! Which dumps and which processes are of one job: those in one folder, or those that count the same calls.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, FlightDump, NcclLog, Rank, Source};

use super::{ProcessKey, processes_of};

/// Calls by which a log and a dump of one rank may differ: the dump may be taken while the last ones are made.
const SLACK: u32 = 2;
/// Fewest calls that a comparison rests on.
const FEWEST: u32 = 4;

/// For each part of the dumps, the part of the processes that it belongs with, if any.
pub(super) fn pairs(
    case: &Case,
    (dump_parts, n_dumps): (&BTreeMap<usize, usize>, usize),
    (process_parts, n_processes): (&BTreeMap<ProcessKey, usize>, usize),
) -> Vec<Option<usize>> {
    let mut beside: BTreeMap<&str, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
    let mut in_dumps: Vec<BTreeMap<Rank, u32>> = vec![BTreeMap::new(); n_dumps];
    let mut in_logs: Vec<BTreeMap<Rank, u32>> = vec![BTreeMap::new(); n_processes];
    for (at, observation) in case.observations.iter().enumerate() {
        let source = case.sources.get(observation.cite.source.0 as usize);
        let (dumps, processes) = beside.entry(source.map_or("", Source::folder)).or_default();
        match &observation.fact {
            Fact::Flight(dump) => {
                let part = dump_parts.get(&at).copied().unwrap_or(0);
                dumps.insert(part);
                if let (Some(rank), Some(counts)) = (dump.name_hint, in_dumps.get_mut(part)) {
                    counts.insert(rank, calls_of_dump(dump));
                }
            }
            Fact::Nccl(log) => {
                let part = |p: &ProcessKey| {
                    if process_parts.is_empty() { Some(0) } else { process_parts.get(p).copied() }
                };
                processes.extend(processes_of(log).filter_map(|p| part(&p)));
                for (process, rank, calls) in calls_of_log(log) {
                    if let Some(counts) = part(&process).and_then(|p| in_logs.get_mut(p)) {
                        counts.insert(rank, calls);
                    }
                }
            }
            _ => {}
        }
    }
    let mut taken = BTreeSet::new();
    (0..n_dumps)
        .map(|dump_part| {
            let near: BTreeSet<usize> = beside
                .values()
                .filter(|(dumps, processes)| {
                    dumps.len() == 1 && dumps.contains(&dump_part) && processes.len() == 1
                })
                .flat_map(|(_, processes)| processes.iter().copied())
                .collect();
            let alike = |part: usize| {
                let (dumps, logs) = (in_dumps.get(dump_part)?, in_logs.get(part)?);
                let same = dumps.iter().filter(|(rank, n)| {
                    **n >= FEWEST && logs.get(rank).is_some_and(|m| m.abs_diff(**n) <= SLACK)
                });
                Some(same.count()).filter(|n| *n > 0)
            };
            let most = (0..n_processes).filter_map(alike).max();
            let mut best = (0..n_processes).filter(|part| most.is_some() && alike(*part) == most);
            let by_calls = match (best.next(), best.next()) {
                (Some(one), None) => Some(one),
                _ => None,
            };
            let by_folder = near.first().copied().filter(|_| near.len() == 1);
            by_folder.or(by_calls).filter(|part| taken.insert(*part))
        })
        .collect()
}

/// Collectives of the largest group that a dump holds.
fn calls_of_dump(dump: &FlightDump) -> u32 {
    let largest =
        dump.groups.iter().enumerate().max_by_key(|(at, g)| (g.ranks.len(), std::cmp::Reverse(*at)));
    let Some((group, _)) = largest else { return 0 };
    let ops = dump.ops.iter().filter(|op| usize::from(op.group) == group && !op.is_p2p());
    ops.map(|op| op.seq).max().unwrap_or(0)
}

/// Collectives that each process made on its largest communicator, with its rank there.
fn calls_of_log(log: &NcclLog) -> Vec<(ProcessKey, Rank, u32)> {
    let mut calls = vec![0_u32; log.comms.len()];
    for call in log.calls.iter().filter(|c| !c.kind.is_p2p()) {
        if let Some(n) = calls.get_mut(call.comm as usize) {
            *n = n.saturating_add(1);
        }
    }
    let largest = log.comms.iter().map(|c| c.n_ranks).max();
    let comms = log.comms.iter().zip(calls).filter(|(comm, _)| Some(comm.n_ranks) == largest);
    comms
        .filter_map(|(comm, n)| {
            let process = log.processes.get(comm.process as usize)?;
            Some(((process.who.host.clone(), process.who.pid?), Rank(comm.rank.0), n))
        })
        .collect()
}
