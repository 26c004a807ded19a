//! Evidence of two jobs, or of two attempts of one, in one folder: separated before anything is joined. Evidence that
//! nothing ties to one of them is in all of them.
//!
//! Old dumps and logs often are beside new ones. Two jobs are in the evidence if two records claim the same rank: two
//! dumps of rank 3, two processes that are rank 3 of communicators that share no member, or default groups of different
//! sizes. Time alone shows nothing: the clocks of one job's nodes may differ by minutes. So are bundles, each of which was
//! collected for one job.

use std::collections::{BTreeMap, BTreeSet};

mod bundles;
mod pairs;

use ringleader_model::{Case, Fact, FlightDump, Host, NcclLog, Observation, PciAddress, Pid, Rank, Source};

/// A process, as logs name it.
type ProcessKey = (Option<Host>, Pid);

/// One job's share of the evidence.
#[derive(Debug)]
pub struct JobShare {
    /// Its evidence; statements that could belong to any job are in all of them.
    pub case: Case,
    /// Its own records, for people; empty if it shares all of them with other jobs.
    pub label: String,
    /// Time of its newest record, ns; older jobs come first.
    pub newest_ns: i64,
}

/// Splits a case; None if it is all of one job, as it nearly always is.
pub fn split(case: &Case) -> Option<Vec<JobShare>> {
    if let Some(jobs) = bundles::split(case) {
        return Some(jobs);
    }
    let parts = Parts::new(case)?;
    let mut jobs: Vec<JobShare> = parts.shares().into_iter().map(|share| parts.job(share)).collect();
    label(&mut jobs);
    jobs.retain(|j| j.newest_ns > 0 || !j.label.is_empty());
    jobs.sort_by_key(|j| j.newest_ns);
    (jobs.len() > 1).then_some(jobs)
}

/// A job is labelled by the records that are its alone: dumps that fit several jobs do not identify one.
fn label(jobs: &mut [JobShare]) {
    let records: Vec<BTreeSet<String>> = jobs.iter().map(|job| records(&job.case)).collect();
    for (at, job) in jobs.iter_mut().enumerate() {
        let others = || records.iter().enumerate().filter(|(other, _)| *other != at);
        let is_own = |path: &&String| !others().any(|(_, paths)| paths.contains(*path));
        let own: Vec<&String> = records.get(at).into_iter().flatten().filter(is_own).collect();
        job.label = match own.as_slice() {
            [] => String::new(),
            [only] => (*only).clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        };
    }
}

/// Paths of dumps and NCCL logs.
fn records(case: &Case) -> BTreeSet<String> {
    let records = case.observations.iter().filter(|o| matches!(o.fact, Fact::Flight(_) | Fact::Nccl(_)));
    records.filter_map(|o| case.sources.get(o.cite.source.0 as usize).map(|s| s.path.clone())).collect()
}

/// The parts of a case of several jobs: dumps and NCCL's processes are divided separately, then paired.
struct Parts<'a> {
    case: &'a Case,
    /// By index of the observation; empty if all are of one job.
    of_dumps: BTreeMap<usize, usize>,
    n_dumps: usize,
    /// Empty if all are of one job.
    of_processes: BTreeMap<ProcessKey, usize>,
    n_processes: usize,
    /// Attempts are often kept in folders of their own: parts of the dumps and of the processes in each folder.
    beside: BTreeMap<&'a str, (BTreeSet<usize>, BTreeSet<usize>)>,
}

/// What one job has: a part of the dumps, a part of the processes, or both.
#[derive(Clone, Copy)]
struct Share {
    dumps: Option<usize>,
    processes: Option<usize>,
}

impl<'a> Parts<'a> {
    /// None if neither dumps nor processes are of several jobs.
    fn new(case: &'a Case) -> Option<Self> {
        let of_dumps = parts_of_dumps(case);
        let mut of_processes = parts_of_processes(case);
        add_unjoined(case, &mut of_processes);
        let n_dumps = of_dumps.values().copied().max().map_or(0, |n| n + 1);
        let n_processes = of_processes.values().copied().max().map_or(0, |n| n + 1);
        if n_dumps < 2 && n_processes < 2 {
            return None;
        }
        let any = |is: fn(&Fact) -> bool| usize::from(case.observations.iter().any(|o| is(&o.fact)));
        let n_dumps = n_dumps.max(any(|f| matches!(f, Fact::Flight(_))));
        let n_processes = n_processes.max(any(|f| matches!(f, Fact::Nccl(_))));
        let mut parts = Self { case, of_dumps, n_dumps, of_processes, n_processes, beside: BTreeMap::new() };
        let mut beside: BTreeMap<&str, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
        for (at, observation) in case.observations.iter().enumerate() {
            let (dumps, processes) = beside.entry(parts.folder(observation)).or_default();
            match &observation.fact {
                Fact::Flight(_) => drop(dumps.insert(parts.of_dump(at))),
                Fact::Nccl(log) => {
                    processes.extend(processes_of(log).filter_map(|p| parts.of_process(&p)));
                }
                _ => {}
            }
        }
        parts.beside = beside;
        Some(parts)
    }

    /// Which parts make up one job. Dumps that nothing ties to processes are judged apart: a pid of another job would
    /// be worse than none.
    fn shares(&self) -> Vec<Share> {
        let pairs =
            pairs::pairs(self.case, (&self.of_dumps, self.n_dumps), (&self.of_processes, self.n_processes));
        let with_processes = (0..self.n_processes).map(|part| Share {
            dumps: pairs.iter().position(|pair| *pair == Some(part)),
            processes: Some(part),
        });
        let alone = pairs.iter().enumerate().filter(|(_, pair)| pair.is_none());
        let alone = alone.map(|(part, _)| Share { dumps: Some(part), processes: None });
        with_processes.chain(alone).collect()
    }

    fn folder(&self, observation: &Observation) -> &'a str {
        self.case.sources.get(observation.cite.source.0 as usize).map_or("", Source::folder)
    }

    fn of_dump(&self, at: usize) -> usize {
        self.of_dumps.get(&at).copied().unwrap_or(0)
    }

    fn of_process(&self, process: &ProcessKey) -> Option<usize> {
        if self.of_processes.is_empty() { Some(0) } else { self.of_processes.get(process).copied() }
    }

    /// Evidence that names no process belongs with the records of its folder.
    fn is_near(&self, share: Share, observation: &Observation) -> bool {
        let Some((dumps, processes)) = self.beside.get(self.folder(observation)) else { return true };
        dumps.is_empty() && processes.is_empty()
            || share.dumps.is_some_and(|part| dumps.contains(&part))
            || share.processes.is_some_and(|part| processes.contains(&part))
    }

    /// Whether an observation, by its index, may be of this job.
    fn is_of(&self, share: Share, at: usize, observation: &Observation) -> bool {
        // A report, stack or statement that names a process belongs to that process's job.
        let by_pid = |pids: &mut dyn Iterator<Item = Pid>| {
            belongs(pids, &self.of_processes, share.processes)
                .unwrap_or_else(|| self.is_near(share, observation))
        };
        match &observation.fact {
            Fact::Flight(_) => share.dumps == Some(self.of_dump(at)),
            Fact::Nccl(log) => {
                let parts: BTreeSet<usize> = processes_of(log).filter_map(|p| self.of_process(&p)).collect();
                if parts.is_empty() {
                    self.is_near(share, observation)
                } else {
                    share.processes.is_some_and(|part| parts.contains(&part))
                }
            }
            Fact::Ras(report) => {
                by_pid(&mut report.comms.iter().flat_map(|c| &c.ranks).filter_map(|r| r.peer.pid))
            }
            Fact::Stacks(stacks) => by_pid(&mut stacks.pid.into_iter()),
            Fact::Samples(samples) => by_pid(&mut samples.pid.into_iter()),
            Fact::Torch(_) => by_pid(&mut observation.who.pid.into_iter()),
            _ => self.is_near(share, observation),
        }
    }

    /// The evidence of one job, not labelled yet.
    fn job(&self, share: Share) -> JobShare {
        let all = self.case.observations.iter().enumerate();
        let observations: Vec<Observation> =
            all.filter(|(at, o)| self.is_of(share, *at, o)).map(|(_, o)| o.clone()).collect();
        let newest_ns = observations.iter().filter_map(newest).max().unwrap_or(0);
        // A note about damage applies to every job that it may belong to.
        let (sources, notes) = (self.case.sources.clone(), self.case.notes.clone());
        JobShare { case: Case { sources, observations, notes }, label: String::new(), newest_ns }
    }
}

/// Whether the named processes are of this part; None if no part knows them.
fn belongs(
    pids: impl Iterator<Item = Pid>,
    parts: &BTreeMap<ProcessKey, usize>,
    part: Option<usize>,
) -> Option<bool> {
    let named: BTreeSet<usize> = pids
        .flat_map(|pid| parts.iter().filter(move |((_, p), _)| *p == pid).map(|(_, part)| *part))
        .collect();
    (!named.is_empty()).then(|| part.is_some_and(|p| named.contains(&p)))
}

fn newest(observation: &Observation) -> Option<i64> {
    match &observation.fact {
        Fact::Flight(dump) => dump.ops.iter().map(|op| op.created_ns.max(op.completed_ns)).max(),
        Fact::Nccl(log) => {
            log.processes.iter().filter_map(|p| p.last_at).filter(|t| t.has_year).map(|t| t.ns).max()
        }
        _ => None,
    }
}

/// Part of each dump, by index of its observation; empty if all are of one job.
fn parts_of_dumps(case: &Case) -> BTreeMap<usize, usize> {
    let dumps: Vec<(usize, &FlightDump)> = case
        .observations
        .iter()
        .enumerate()
        .filter_map(|(at, o)| match &o.fact {
            Fact::Flight(dump) => Some((at, &**dump)),
            _ => None,
        })
        .collect();
    // Default groups of different sizes are different jobs.
    let world = |dump: &FlightDump| dump.groups.iter().map(|g| g.ranks.len()).max().unwrap_or(0);
    let mut by_world: BTreeMap<usize, Vec<(usize, &FlightDump)>> = BTreeMap::new();
    for (at, dump) in dumps {
        by_world.entry(world(dump)).or_default().push((at, dump));
    }
    let unknown = by_world.remove(&0).unwrap_or_default();
    let mut parts = BTreeMap::new();
    let mut next = 0;
    for (size, mut members) in by_world {
        let hints: Vec<Rank> = members.iter().filter_map(|(_, d)| d.name_hint).collect();
        let distinct: BTreeSet<Rank> = hints.iter().copied().collect();
        let doubled = members.len() > size || distinct.len() < hints.len() && times_apart(&members);
        if doubled {
            // Two attempts: one before the longest silence, one after it.
            members.sort_by_key(|(_, d)| span(d).0);
            let gap = widest_gap(&members);
            for (place, (at, _)) in members.iter().enumerate() {
                parts.insert(*at, next + usize::from(place >= gap));
            }
            next += 2;
        } else {
            for (at, _) in &members {
                parts.insert(*at, next);
            }
            next += 1;
        }
    }
    for (at, _) in unknown {
        parts.insert(at, next.max(1) - 1);
    }
    if next < 2 { BTreeMap::new() } else { parts }
}

fn span(dump: &FlightDump) -> (i64, i64) {
    let first = dump.ops.first().map_or(0, |op| op.created_ns);
    let last = dump.ops.last().map_or(first, |op| op.created_ns.max(op.completed_ns));
    (first.min(last), first.max(last))
}

/// Two dumps that claim the same rank cover times that do not overlap.
fn times_apart(members: &[(usize, &FlightDump)]) -> bool {
    let mut spans: Vec<(Rank, (i64, i64))> =
        members.iter().filter_map(|(_, dump)| Some((dump.name_hint?, span(dump)))).collect();
    spans.sort_unstable();
    // Of one rank by their start: two do not overlap if one begins after the earliest end.
    spans.chunk_by(|a, b| a.0 == b.0).any(|of_rank| {
        let first_end = of_rank.iter().map(|(_, (_, end))| *end).min();
        of_rank.last().zip(first_end).is_some_and(|((_, (last_start, _)), end)| end < *last_start)
    })
}

/// Index of the first dump after the longest silence between one dump's end and the next one's start.
fn widest_gap(members: &[(usize, &FlightDump)]) -> usize {
    let mut end = i64::MIN;
    let mut widest = (i64::MIN, members.len());
    for (place, (_, dump)) in members.iter().enumerate() {
        let (start, stop) = span(dump);
        if place > 0 && start.saturating_sub(end) > widest.0 {
            widest = (start.saturating_sub(end), place);
        }
        end = end.max(stop);
    }
    widest.1
}

fn processes_of(log: &NcclLog) -> impl Iterator<Item = ProcessKey> + '_ {
    log.processes.iter().filter_map(|p| Some((p.who.host.clone(), p.who.pid?)))
}

/// Part of each process; empty if all are of one job. Processes that share a communicator are of one job; two jobs it
/// is only if each has a process with the same rank of a largest communicator, or on the same GPU.
fn parts_of_processes(case: &Case) -> BTreeMap<ProcessKey, usize> {
    // commId -> its processes, with what only one process of a job can have.
    let mut comms: BTreeMap<u64, Vec<(ProcessKey, u32, Vec<Seat>)>> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Nccl(log) = &observation.fact else { continue };
        for comm in &log.comms {
            let process =
                log.processes.get(comm.process as usize).and_then(|p| Some((p.who.host.clone(), p.who.pid?)));
            if let (Some(id), Some(process)) = (comm.comm_id, process) {
                let gpu = comm.gpu.map(|gpu| Seat::Gpu(process.0.clone(), gpu));
                let seats = gpu.into_iter().chain([Seat::Rank(comm.rank.0)]).collect();
                comms.entry(id).or_default().push((process, comm.n_ranks, seats));
            }
        }
    }
    let largest = comms.values().flatten().map(|(_, n, _)| *n).max().unwrap_or(0);
    let mut part_of: BTreeMap<ProcessKey, usize> = BTreeMap::new();
    let mut seats: Vec<BTreeSet<Seat>> = Vec::new();
    for members in comms.values() {
        let known: BTreeSet<usize> = members.iter().filter_map(|(p, ..)| part_of.get(p).copied()).collect();
        let part = known.first().copied().unwrap_or_else(|| {
            seats.push(BTreeSet::new());
            seats.len() - 1
        });
        for part_to_join in known.into_iter().skip(1) {
            part_of.values_mut().filter(|p| **p == part_to_join).for_each(|p| *p = part);
            let moved = seats.get_mut(part_to_join).map(std::mem::take).unwrap_or_default();
            if let Some(all) = seats.get_mut(part) {
                all.extend(moved);
            }
        }
        for (process, n_ranks, taken) in members {
            part_of.insert(process.clone(), part);
            if let Some(all) = seats.get_mut(part) {
                // A rank is unique in the communicator of the whole job; smaller ones repeat the same numbers.
                let counts = |seat: &&Seat| *n_ranks == largest || matches!(seat, Seat::Gpu(..));
                all.extend(taken.iter().filter(counts).cloned());
            }
        }
    }
    // Parts that share no rank and no GPU may well be one job whose logs are incomplete.
    let mut first: BTreeMap<&Seat, usize> = BTreeMap::new();
    let mut contested: BTreeSet<usize> = BTreeSet::new();
    for (part, taken) in seats.iter().enumerate() {
        for seat in taken {
            let before = *first.entry(seat).or_insert(part);
            if before != part {
                contested.extend([before, part]);
            }
        }
    }
    if contested.is_empty() {
        return BTreeMap::new();
    }
    let is_whole = |taken: &BTreeSet<Seat>| taken.iter().any(|s| matches!(s, Seat::Rank(_)));
    let numbering: BTreeMap<usize, usize> = seats
        .iter()
        .enumerate()
        .filter(|(part, taken)| contested.contains(part) || is_whole(taken))
        .enumerate()
        .map(|(new, (old, _))| (old, new))
        .collect();
    part_of.into_iter().filter_map(|(process, part)| Some((process, *numbering.get(&part)?))).collect()
}

/// Processes whose logs hold no communicator, in a folder where none does, while elsewhere communicators came up: an
/// attempt of its own, which did not get that far.
fn add_unjoined(case: &Case, parts: &mut BTreeMap<ProcessKey, usize>) {
    let mut folders: BTreeMap<&str, (bool, BTreeSet<ProcessKey>)> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Nccl(log) = &observation.fact else { continue };
        let folder = case.sources.get(observation.cite.source.0 as usize).map_or("", Source::folder);
        let (joined, processes) = folders.entry(folder).or_default();
        *joined |= log.comms.iter().any(|c| c.completed.is_some());
        // A log that was cut, or begins late, may have lost its communicators.
        if log.comms.is_empty() && log.calls.is_empty() && !log.truncated {
            processes.extend(processes_of(log));
        }
    }
    let unjoined: BTreeSet<ProcessKey> =
        folders.values().filter(|(joined, _)| !joined).flat_map(|(_, p)| p.iter().cloned()).collect();
    let joined: Vec<ProcessKey> = case
        .observations
        .iter()
        .filter_map(|o| if let Fact::Nccl(log) = &o.fact { Some(log) } else { None })
        .filter(|log| log.comms.iter().any(|c| c.completed.is_some()))
        .flat_map(|log| processes_of(log))
        .filter(|p| !unjoined.contains(p))
        .collect();
    if unjoined.is_empty() || joined.is_empty() {
        return;
    }
    if parts.is_empty() {
        parts.extend(joined.into_iter().map(|p| (p, 0)));
    }
    let next = parts.values().copied().max().map_or(0, |n| n + 1);
    parts.extend(unjoined.into_iter().map(|p| (p, next)));
}

/// What only one process of a job can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seat {
    /// A rank of the communicator of the whole job.
    Rank(u32),
    /// A GPU of a host. (Two ranks that share one fail at once, within one communicator.)
    Gpu(Option<Host>, PciAddress),
}
