//! Claims of identity: which process each record, table and line says a rank is.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{
    Case, Fact, Host, NcclLog, Observation, Pid, Rank, RasReport, RingRecord, Socket, TorchEvent, WatchEvent,
    Who,
};

use super::{Member, hosts_agree, telling_host};

/// What a claim of identity rests on, the strongest first. What command lines and names of files say is weaker still:
/// [`weak`] reads it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// A record of the process itself: NCCL's log, a ring, RAS.
    Record,
    /// The launcher's table of failures.
    Table,
    /// The launcher saw a process end.
    Exit,
    /// It was started with its rank in its environment.
    Environment,
    /// A line was printed as a rank's.
    Spoken,
}

/// One source's statement of a process's identity.
#[derive(Clone, Debug)]
pub(super) struct IdentityClaim {
    pub(super) strength: Strength,
    /// Its place among those of one record.
    nth: usize,
    pub(super) member: Member,
}

impl IdentityClaim {
    /// An order that does not depend on that of the files: who names both rank and process first; of one process what
    /// its record has first.
    fn order(&self) -> impl Ord + '_ {
        let Member { rank, host, address, pid, local_rank, gpu, cuda_dev, nvml_dev, .. } = &self.member;
        let is_partial = rank.is_none() || pid.is_none();
        let identity = (rank.is_none(), rank, host.is_none(), host, pid);
        (self.strength, is_partial, identity, self.nth, (address, local_rank, gpu, cuda_dev, nvml_dev))
    }
}

/// What `who` says of itself.
pub(super) fn member_of(who: &Who) -> Member {
    Member {
        rank: who.rank,
        local_rank: who.local_rank,
        host: who.host.clone(),
        pid: who.pid,
        ..Member::default()
    }
}

/// The process that printed a statement of torch or a launcher, or that it is about.
fn of_statement(who: &Who, event: &TorchEvent) -> (Strength, Member) {
    let own = member_of(who);
    match event {
        TorchEvent::ChildFailure { host, .. } => {
            // `localhost` names no host: it would make two of one machine.
            let named = own.host.or_else(|| host.as_deref().map(Host::from));
            let host = telling_host(named.as_ref()).cloned();
            (Strength::Table, Member { host, ..member_of(who) })
        }
        TorchEvent::ChildExit { .. } | TorchEvent::Started if own.rank.is_none() => (Strength::Exit, own),
        TorchEvent::ChildExit { .. } | TorchEvent::Started => (Strength::Table, own),
        _ => (Strength::Spoken, Member { local_rank: None, ..own }),
    }
}

/// The ranks that are written above stacks, by the process of the stack.
struct StackNames<'a>(BTreeMap<(Pid, Option<&'a Host>), BTreeSet<Rank>>);

impl<'a> StackNames<'a> {
    fn new(case: &'a Case) -> Self {
        let mut names: BTreeMap<(Pid, Option<&Host>), BTreeSet<Rank>> = BTreeMap::new();
        for observation in &case.observations {
            if let (Fact::Stacks(_), Who { rank: Some(rank), pid: Some(pid), host, .. }) =
                (&observation.fact, &observation.who)
            {
                names.entry((*pid, host.as_ref())).or_default().insert(*rank);
            }
        }
        Self(names)
    }

    /// Whether the process of a stack has one rank: numbers of processes recur on other nodes.
    fn are_of_one_rank(&self, who: &Who) -> bool {
        let ranks = who.pid.and_then(|pid| self.0.get(&(pid, who.host.as_ref())));
        who.rank.is_some() && ranks.is_some_and(|ranks| ranks.len() == 1)
    }
}

/// All claims of a case but those of environments, the stronger first.
pub(super) fn all(case: &Case, world_size: Option<u32>) -> Vec<IdentityClaim> {
    let stacks = StackNames::new(case);
    let mut claims: Vec<IdentityClaim> = Vec::new();
    for observation in &case.observations {
        let who = &observation.who;
        let mut claim = |strength: Strength, found: Vec<Member>| {
            claims.extend((0..).zip(found).map(|(nth, member)| IdentityClaim { strength, nth, member }));
        };
        match &observation.fact {
            Fact::Nccl(log) => claim(Strength::Record, of_nccl(log, world_size)),
            Fact::Ras(report) => claim(Strength::Record, of_ras(report, world_size)),
            Fact::Ring(ring) => claim(Strength::Record, of_ring(who, ring, world_size)),
            Fact::Torch(event) => {
                let (strength, member) = of_statement(who, event);
                claim(strength, vec![member]);
            }
            Fact::Stacks(_) if stacks.are_of_one_rank(who) => {
                claim(Strength::Spoken, vec![member_of(who)]);
            }
            Fact::Said(_) | Fact::Progress(_) if who.rank.is_some() => {
                claim(Strength::Spoken, vec![Member { local_rank: None, ..member_of(who) }]);
            }
            _ => {}
        }
    }
    claims.sort_by(|a, b| a.order().cmp(&b.order()));
    claims
}

fn of_nccl(log: &NcclLog, world_size: Option<u32>) -> Vec<Member> {
    let processes = log.processes.iter().map(|process| Member {
        rank: process.who.rank,
        local_rank: process.who.local_rank,
        host: process.who.host.clone(),
        pid: process.who.pid,
        address: process.meets_at().and_then(address_of).map(Host::from),
        ..Member::default()
    });
    let comms = log.comms.iter().filter_map(|comm| {
        let process = log.processes.get(comm.process as usize)?;
        let is_world = Some(comm.n_ranks) == world_size;
        Some(Member {
            rank: if is_world { Some(Rank(comm.rank.0)) } else { process.who.rank },
            host: process.who.host.clone(),
            pid: process.who.pid,
            gpu: comm.gpu,
            cuda_dev: comm.cuda_dev,
            nvml_dev: comm.nvml_dev,
            ..Member::default()
        })
    });
    processes.chain(comms).collect()
}

fn of_ring(who: &Who, ring: &RingRecord, world_size: Option<u32>) -> Vec<Member> {
    // Without RANK in the environment the communicator of the whole job has it; a process with several GPUs is
    // several ranks of it.
    let world = ring.comms.iter().filter(|c| c.size > 0 && Some(c.size) == world_size);
    let ranks: BTreeSet<u32> = world.filter_map(|c| c.rank).collect();
    let mut ranks: Vec<Option<Rank>> = ranks.into_iter().map(|rank| Some(Rank(rank))).collect();
    if who.rank.is_some() || ranks.is_empty() {
        ranks = vec![who.rank];
    }
    ranks.into_iter().map(|rank| Member { rank, ..member_of(who) }).collect()
}

fn of_ras(report: &RasReport, world_size: Option<u32>) -> Vec<Member> {
    let mut found = Vec::new();
    for comm in &report.comms {
        let is_world = Some(comm.size) == world_size;
        let peers = comm.ranks.iter().map(|r| &r.peer).chain(&comm.missing);
        found.extend(peers.map(|peer| Member {
            rank: peer.rank.filter(|_| is_world).map(|r| Rank(r.0)),
            address: peer.host.clone(),
            pid: peer.pid,
            cuda_dev: peer.cuda_dev,
            ..Member::default()
        }));
    }
    found
}

/// Processes that one observation says were started as ranks.
pub(super) fn started(observation: &Observation) -> &[Who] {
    match &observation.fact {
        Fact::Environment(_) => std::slice::from_ref(&observation.who),
        Fact::Watch(WatchEvent::Ranks(all)) => all,
        _ => &[],
    }
}

/// Processes that were started with their rank in their environment, and are named, by listings or by a watcher,
/// which also saw those that have ended. Children inherit it, and outlive a rank that is gone: where processes of
/// this job are known to use NCCL, only they are its ranks.
pub(super) fn of_environments<'m>(
    case: &Case,
    known: &(impl Iterator<Item = &'m Member> + Clone),
) -> Vec<IdentityClaim> {
    let named = || {
        let all = case.observations.iter().flat_map(started);
        all.filter(|who| who.rank.is_some() && who.pid.is_some())
    };
    let speakers = speakers(case);
    let speaks = |who: &Who| {
        speakers.iter().any(|(pid, host)| Some(*pid) == who.pid && hosts_agree(*host, who.host.as_ref()))
    };
    // Those that speak may be of an earlier attempt that does not run any more.
    let is_of_now = named().any(speaks);
    let mut fresh: Vec<IdentityClaim> = Vec::new();
    for who in named() {
        let has_speaker = |m: &Member| {
            m.rank == who.rank
                && hosts_agree(m.host.as_ref(), who.host.as_ref())
                && m.pid.is_some_and(|pid| {
                    Some(pid) != who.pid && speakers.iter().any(|(speaker, _)| *speaker == pid)
                })
        };
        if !(is_of_now && !speaks(who) && known.clone().any(has_speaker)) {
            fresh.push(IdentityClaim { strength: Strength::Environment, nth: 0, member: member_of(who) });
        }
    }
    fresh.sort_by(|a, b| a.order().cmp(&b.order()));
    fresh
}

/// Processes that NCCL itself ran in, by ring, log or RAS.
fn speakers(case: &Case) -> Vec<(Pid, Option<&Host>)> {
    let mut found = Vec::new();
    for observation in &case.observations {
        let host = observation.who.host.as_ref();
        match &observation.fact {
            Fact::Ring(_) => found.extend(observation.who.pid.map(|pid| (pid, host))),
            Fact::Nccl(log) => found
                .extend(log.processes.iter().filter_map(|p| p.who.pid.map(|pid| (pid, p.who.host.as_ref())))),
            Fact::Ras(report) => {
                let peers = report.comms.iter().flat_map(|c| &c.ranks).map(|r| &r.peer);
                // RAS names hosts by address.
                found.extend(peers.filter_map(|p| p.pid.map(|pid| (pid, None))));
            }
            _ => {}
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The address of an interface, that of IPv6 without brackets.
pub(super) fn address_of(socket: Socket<'_>) -> Option<&str> {
    Some(socket.address.trim_matches(['[', ']'])).filter(|address| !address.is_empty())
}
