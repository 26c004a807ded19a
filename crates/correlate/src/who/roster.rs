//! Identities: rank, host, process, local rank and GPU, joined from any evidence that names two of them together.
//!
//! NCCL's INIT lines tie host and pid to a rank and a GPU, torchrun's table ties rank, local rank and pid, RAS ties
//! pid, address and rank, a launcher's prefix ties a line to a rank. None of them is complete in real evidence.
//!
//! The process that uses NCCL is the rank. Children that inherit its environment are not.

use std::collections::{BTreeMap, BTreeSet};

mod claims;
mod join;
mod weak;

use self::claims::{Strength, started};
use self::join::Processes;

use ringleader_knowledge::program::is_launch;
use ringleader_model::address::{is_loopback_name, same_host};
use ringleader_model::{
    Case, Culprit, Fact, Host, LocalRank, Observation, PciAddress, Pid, Rank, StoreEvent, TorchEvent,
    WatchEvent, Who,
};

/// One process of the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Global rank.
    pub rank: Option<Rank>,
    /// Host as logs name it.
    pub host: Option<Host>,
    /// Address, as RAS names hosts.
    pub address: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
    /// Rank within its node.
    pub local_rank: Option<LocalRank>,
    /// GPU.
    pub gpu: Option<PciAddress>,
    /// CUDA device number.
    pub cuda_dev: Option<u32>,
    /// NVML index: the row of nvidia-smi.
    pub nvml_dev: Option<u32>,
    /// GPUs that it runs on by the driver's list, else those whose device files it has open.
    pub holds: Vec<PciAddress>,
    /// Its number on the node, where its container starts counting at 0.
    pub outer_pid: Option<Pid>,
    /// It was this rank in an earlier attempt, and another process has taken its place.
    pub is_followed: bool,
}

impl Member {
    /// Of several processes of one rank, the current one comes first.
    fn order(&self) -> impl Ord + use<> {
        (self.rank.is_none(), self.rank, self.is_followed, self.host.clone(), self.pid)
    }
}

/// All members of the job.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// Members, ordered by rank, unknown ranks last.
    pub members: Vec<Member>,
    /// World size, if it is known.
    pub world_size: Option<u32>,
    /// Pids that are launchers (agents), not ranks.
    pub launchers: BTreeSet<Pid>,
    /// Members of each pid, of the container and of the node, by their places in `members`: snapshots of many nodes ask
    /// by the row.
    places: BTreeMap<Pid, BTreeSet<usize>>,
}

/// A host, unless many hosts share its name.
pub(crate) fn telling_host(host: Option<&Host>) -> Option<&Host> {
    host.filter(|h| !h.is_empty() && !is_loopback_name(h))
}

fn hosts_agree(a: Option<&Host>, b: Option<&Host>) -> bool {
    match (telling_host(a), telling_host(b)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

impl Roster {
    /// The job's rank of a ring's process.
    pub fn rank_of_ring(&self, observation: &Observation) -> Option<Rank> {
        observation.who.rank.or_else(|| self.find(&observation.who)?.rank)
    }

    /// Hosts of the job, each once.
    pub fn hosts(&self) -> BTreeSet<&Host> {
        self.members.iter().filter_map(|m| m.host.as_ref()).collect()
    }

    /// Whether a host is none of the job's, the hosts of all ranks being known.
    pub fn is_elsewhere(&self, host: &Host) -> bool {
        let placed = self.members.iter().filter(|m| m.rank.is_some() && m.host.is_some());
        let ranks: BTreeSet<_> = placed.clone().filter_map(|m| m.rank).collect();
        !host.is_empty()
            && self.world_size.is_some_and(|n| n > 0 && ranks.len() >= n as usize)
            && !placed.filter_map(|m| m.host.as_ref()).any(|own| same_host(own, host))
    }

    /// Joins what the case says. The order of its files decides nothing: claims are joined the stronger first, and
    /// those of one strength in an order of their own.
    pub fn new(case: &Case) -> Self {
        let world_size = world_size(case);
        let launchers = launchers(case);
        let mut processes = Processes::default();
        let mut spoken = claims::all(case, world_size);
        let stronger = spoken.partition_point(|claim| claim.strength < Strength::Spoken);
        for claim in spoken.drain(..stronger) {
            processes.join(claim);
        }
        let of_environments = claims::of_environments(case, &processes.iter().map(|(_, m)| m));
        for claim in of_environments {
            processes.join(claim);
        }
        for claim in spoken {
            processes.join(claim);
        }
        if let Some(world) = world_size {
            // No communicator is larger than the world; ranks past its end are leftovers of another job.
            processes.retain(|m| m.rank.is_none_or(|r| r.0 < world));
        }
        weak::join(&mut processes, case, &launchers, world_size);
        let mut roster = Self { members: processes.into_members(), world_size, launchers, ..Self::default() };
        roster.mark_followed(case);
        roster.members.sort_by_key(Member::order);
        roster.index();
        roster.join_snapshots(case);
        roster
    }

    /// The rank that speaks in an observation: its own word, else its process.
    pub fn speaker(&self, observation: &Observation) -> Option<Rank> {
        observation.who.rank.or_else(|| self.find(&observation.who)?.rank)
    }

    fn index(&mut self) {
        self.places.clear();
        for (at, member) in self.members.iter().enumerate() {
            for pid in [member.pid, member.outer_pid].into_iter().flatten() {
                self.places.entry(pid).or_default().insert(at);
            }
        }
    }

    /// Members with this pid, of the container or of the node.
    fn with_pid(&self, pid: Pid) -> impl Iterator<Item = (usize, &Member)> {
        let places = self.places.get(&pid).into_iter().flatten();
        places.filter_map(|at| Some((*at, self.members.get(*at)?)))
    }

    /// What snapshots of nodes and lists of the driver know of the members' processes.
    fn join_snapshots(&mut self, case: &Case) {
        let mut runs_on: BTreeSet<(usize, PciAddress)> = BTreeSet::new();
        let mut opened: BTreeSet<(usize, PciAddress)> = BTreeSet::new();
        for observation in &case.observations {
            let host = observation.who.host.as_ref();
            match &observation.fact {
                Fact::Processes(table) => {
                    for row in &table.rows {
                        let (Some(pid), Some(picked)) = (row.pid, row.picked.as_deref()) else { continue };
                        let Some(at) = self.place_of(pid, host) else { continue };
                        if let Some(member) = self.members.get_mut(at) {
                            member.outer_pid = member.outer_pid.or(picked.outer_pid);
                            let outer = member.outer_pid.unwrap_or(pid);
                            self.places.entry(outer).or_default().insert(at);
                        }
                        opened.extend(picked.gpus.iter().map(|gpu| (at, *gpu)));
                    }
                }
                Fact::Gpus(table) => {
                    for (index, pid) in &table.processes {
                        let row = table.gpus.iter().find(|row| row.index == Some(*index));
                        let gpu = row.and_then(|row| row.pci);
                        runs_on.extend(self.place_of(*pid, host).zip(gpu));
                    }
                }
                _ => {}
            }
        }
        let runs: BTreeSet<usize> = runs_on.iter().map(|(at, _)| *at).collect();
        let opened = opened.into_iter().filter(|(at, _)| !runs.contains(at));
        for (at, gpu) in runs_on.into_iter().chain(opened) {
            if let Some(member) = self.members.get_mut(at) {
                member.holds.push(gpu);
            }
        }
    }

    /// The only member with this process.
    fn place_of(&self, pid: Pid, host: Option<&Host>) -> Option<usize> {
        let mut found = self.with_pid(pid).filter(|(_, m)| hosts_agree(m.host.as_ref(), host));
        let (at, _) = found.next()?;
        found.next().is_none().then_some(at)
    }

    /// A job that is started again leaves the rings and the output of its earlier attempts. A rank is the process that
    /// the watcher says it is (it names only the newest); else the one that began last of those whose rings are there,
    /// if the other is gone.
    fn mark_followed(&mut self, case: &Case) {
        // Whether its process lives, when it began, and in which boot.
        type Life<'a> = (bool, u64, &'a str);
        let mut named: BTreeMap<Option<Rank>, Vec<&Who>> = BTreeMap::new();
        let mut rings: BTreeMap<Pid, Vec<(Option<&Host>, Life<'_>)>> = BTreeMap::new();
        for observation in &case.observations {
            match &observation.fact {
                Fact::Watch(WatchEvent::Ranks(all)) => {
                    for who in all {
                        named.entry(who.rank).or_default().push(who);
                    }
                }
                Fact::Ring(ring) => {
                    if let Some(pid) = observation.who.pid {
                        let facts = (ring.is_live, ring.start_ticks, &*ring.boot_id);
                        rings.entry(pid).or_default().push((observation.who.host.as_ref(), facts));
                    }
                }
                _ => {}
            }
        }
        let agree = |m: &Member, host: Option<&Host>| hosts_agree(m.host.as_ref(), host);
        let is_named = |m: &Member| {
            let of_rank = named.get(&m.rank).map(Vec::as_slice).unwrap_or_default();
            of_rank.iter().any(|who| who.pid == m.pid && agree(m, who.host.as_ref()))
        };
        // Its newest line.
        let ring = |m: &Member| {
            let of_pid = rings.get(&m.pid?).map(Vec::as_slice).unwrap_or_default();
            of_pid.iter().filter(|(host, _)| agree(m, *host)).map(|(_, facts)| *facts).max()
        };
        let follows = |new: &Member, old: &Member| {
            if new.pid == old.pid || is_named(old) || !agree(new, old.host.as_ref()) {
                return false;
            }
            match (ring(new), ring(old)) {
                (_, Some((true, ..))) => false,
                (Some((_, began, boot)), Some((_, before, same_boot)))
                    if boot == same_boot && began > before =>
                {
                    true
                }
                _ => is_named(new),
            }
        };
        let mut by_rank: BTreeMap<Rank, Vec<usize>> = BTreeMap::new();
        for (at, member) in self.members.iter().enumerate() {
            if let (Some(rank), Some(_)) = (member.rank, member.pid) {
                by_rank.entry(rank).or_default().push(at);
            }
        }
        let mut followed = Vec::new();
        for all in by_rank.values().filter(|all| all.len() > 1) {
            let member = |at: &usize| self.members.get(*at);
            let is_followed = |old: &Member| all.iter().filter_map(member).any(|new| follows(new, old));
            followed.extend(all.iter().copied().filter(|at| member(at).is_some_and(is_followed)));
        }
        for at in followed {
            if let Some(member) = self.members.get_mut(at) {
                member.is_followed = true;
            }
        }
    }

    /// Everything known of `who`.
    pub fn culprit(&self, who: &Who) -> Culprit {
        let member = self.find(who);
        Culprit {
            rank: who.rank.or(member.and_then(|m| m.rank)),
            host: member
                .and_then(|m| m.host.clone().or_else(|| m.address.clone()))
                .or_else(|| who.host.clone()),
            pid: who.pid.or(member.and_then(|m| m.pid)),
            local_rank: who.local_rank.or(member.and_then(|m| m.local_rank)),
            gpu: member.and_then(|m| m.gpu),
            place: None,
        }
    }

    /// Everything known of a global rank.
    pub fn culprit_rank(&self, rank: Rank) -> Culprit {
        self.culprit(&Who { rank: Some(rank), ..Who::default() })
    }

    /// The member that `who` means.
    pub fn find(&self, who: &Who) -> Option<&Member> {
        if let Some(rank) = who.rank {
            return self.by_rank(rank);
        }
        let pid = who.pid?;
        let matches = |m: &&Member| {
            m.pid == Some(pid)
                && (hosts_agree(m.host.as_ref(), who.host.as_ref())
                    || m.address.is_some() && m.address == who.host)
        };
        let mut found = self.with_pid(pid).map(|(_, m)| m).filter(matches);
        match (found.next(), found.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    }

    /// The member that has this number for the kernel of a host.
    pub fn by_kernel(&self, pid: Pid, host: Option<&Host>) -> Option<&Member> {
        let is_it = |m: &&Member| m.outer_pid == Some(pid) && hosts_agree(m.host.as_ref(), host);
        let mut found = self.with_pid(pid).map(|(_, m)| m).filter(is_it);
        if let (Some(one), None) = (found.next(), found.next()) {
            return Some(one);
        }
        // A member whose number on the node is known is not meant by another number.
        let who = Who { pid: Some(pid), host: host.cloned(), ..Who::default() };
        self.find(&who).filter(|m| m.outer_pid.is_none())
    }

    /// The member with this global rank.
    pub fn by_rank(&self, rank: Rank) -> Option<&Member> {
        let at = self.members.partition_point(|m| m.rank.is_some_and(|own| own < rank));
        self.members.get(at).filter(|m| m.rank == Some(rank))
    }

    /// The global rank of a process, by pid and (if given) host or address.
    pub fn rank_of(&self, pid: Pid, host: Option<&Host>) -> Option<Rank> {
        self.find(&Who { pid: Some(pid), host: host.cloned(), ..Who::default() }).and_then(|m| m.rank)
    }

    /// Ranks `0..world_size` that no member has.
    pub fn unseen_ranks(&self) -> Vec<Rank> {
        let seen: BTreeSet<Rank> = self.members.iter().filter_map(|m| m.rank).collect();
        (0..self.world_size.unwrap_or(0)).map(Rank).filter(|r| !seen.contains(r)).collect()
    }
}

/// Elimination: the rank of a job of this size that is left when all others are known.
pub(crate) fn last_rank(world_size: u32, known: &BTreeSet<Rank>) -> Option<Rank> {
    // A rank may be called by any number: only as many are gone through as are known.
    if world_size < 2 || known.len() + 1 != world_size as usize {
        return None;
    }
    (0..world_size).map(Rank).find(|rank| !known.contains(rank))
}

fn launchers(case: &Case) -> BTreeSet<Pid> {
    let mut found = BTreeSet::new();
    for observation in &case.observations {
        match &observation.fact {
            Fact::Torch(TorchEvent::ClosingSignal { .. } | TorchEvent::LauncherKilled { .. }) => {
                found.extend(observation.who.pid);
            }
            Fact::Processes(table) => {
                found.extend(
                    table.rows.iter().filter(|row| is_launch(&row.command)).filter_map(|row| row.pid),
                );
            }
            _ => {}
        }
    }
    found
}

/// The world size that ranks were started with.
pub fn told_size(case: &Case) -> Option<u32> {
    let told = case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Environment(environment) if o.who.rank.is_some() => {
            environment.get("WORLD_SIZE")?.trim().parse().ok()
        }
        _ => None,
    });
    told.filter(|n| *n <= MAX_WORLD).max()
}

/// No job is larger; a number beyond it is torn or made up, and must not cost memory.
const MAX_WORLD: u32 = 1 << 20;

/// The size of the job: the largest default group, communicator, or "n clients" that anything states; failing that one
/// more than the largest rank of a launcher's table.
fn world_size(case: &Case) -> Option<u32> {
    // How often each size is stated: a stray file of another job must not decide.
    let mut stated: BTreeMap<u32, u32> = BTreeMap::new();
    let mut table_max = None;
    let mut started_max = None;
    let mut in_commands = None;
    for observation in &case.observations {
        match &observation.fact {
            Fact::Flight(dump) => {
                if let Some(size) = dump.groups.iter().map(|g| g.ranks.len() as u32).max().filter(|n| *n > 0)
                {
                    *stated.entry(size).or_default() += 1;
                }
            }
            Fact::Nccl(log) => {
                if let Some(size) = log.comms.iter().map(|c| c.n_ranks).max() {
                    *stated.entry(size).or_default() += 1;
                }
            }
            Fact::Ras(report) => {
                if let Some(size) = report.comms.iter().map(|c| c.size).max() {
                    *stated.entry(size).or_default() += 1;
                }
            }
            Fact::Processes(table) => {
                for size in weak::world_sizes(&table.rows) {
                    in_commands = in_commands.max(Some(size));
                }
            }
            Fact::Ring(ring) => {
                let sizes = ring.comms.iter().map(|c| c.size).chain(ring.world_size);
                if let Some(size) = sizes.max().filter(|n| *n > 0) {
                    *stated.entry(size).or_default() += 1;
                }
            }
            Fact::Torch(TorchEvent::Store(StoreEvent::ClientsMissing { expected, .. })) => {
                *stated.entry(*expected).or_default() += 1;
            }
            Fact::Torch(TorchEvent::ChildFailure { .. }) => {
                table_max = table_max.max(observation.who.rank.map(|r| r.0.saturating_add(1)));
            }
            _ => {}
        }
        started_max = started_max.max(started(observation).iter().filter_map(|who| who.rank).max());
        if let (Fact::Torch(_) | Fact::Said(_) | Fact::Progress(_) | Fact::Stacks(_), Some(rank)) =
            (&observation.fact, observation.who.rank)
        {
            table_max = table_max.max(Some(rank.0.saturating_add(1)));
        }
    }
    // Those that printed something need not be all.
    let table_max = table_max.map(|n| n.max(started_max.map_or(0, |rank: Rank| rank.0.saturating_add(1))));
    let table_max = table_max.max(in_commands);
    stated.into_keys().chain(table_max).filter(|n| *n <= MAX_WORLD).max()
}

#[cfg(test)]
mod tests;
