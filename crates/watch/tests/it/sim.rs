//! A small simulated job: hosts that run a program, GPUs that run streams in order, collectives that end when all have come.
//!
//! Time is nanoseconds from the start of the job. What an agent would read at any moment comes out as digests.

use std::collections::{BTreeMap, VecDeque};

use ringleader_ring::{CallArgs, Comm, Done, Op, Phase, ReadMoment, RingProcess, State, Wait};
use ringleader_watch::digest::{self, Digest, ProcessState, from_ring};

pub(crate) const S: i64 = 1_000_000_000;
pub(crate) const MS: i64 = 1_000_000;
const NEVER: i64 = i64::MAX / 4;
const HISTORY: usize = 512;
/// Calls that stay in flight where nobody tells of their end.
const UNSEEN: usize = 7;
/// The job starts here on the clock of the one who looks.
pub(crate) const START: i64 = 1_700_000_000 * S;

/// Numbers by seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn real(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.real() < p
    }

    /// `ns`, give or take a share.
    pub(crate) fn about(&mut self, ns: i64, share: f64) -> i64 {
        (ns as f64 * (1.0 + share * (2.0 * self.real() - 1.0))) as i64
    }
}

/// What a rank's program does next.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// The host is busy with something of its own.
    Host(i64),
    /// A kernel of the program is launched.
    Gpu(i64),
    /// A collective.
    Coll { comm: usize, function: &'static str, count: u64 },
    /// A send or receive.
    Pair { comm: usize, peer: u32, is_send: bool, count: u64 },
    /// Waits for its GPU.
    Sync,
    /// Its communicators are finalized and the process ends.
    End,
}

pub(crate) struct SimComm {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) ranks: Vec<usize>,
    /// Nanoseconds that a collective takes once all have come.
    pub(crate) takes_ns: i64,
    /// From then on nothing passes, and these ranks of it (from, to) are where.
    pub(crate) cut: Option<(i64, u32, u32)>,
}

#[derive(Clone, Debug)]
struct Job {
    number: u64,
    function: &'static str,
    count: u64,
    peer: Option<u32>,
    enqueued: i64,
    started: Option<i64>,
    ended: i64,
    /// It is among the ring's ended ones.
    is_told: bool,
    /// Of those between the same two in the same direction.
    nth: u64,
}

enum Item {
    Kernel(i64, i64),
    Op(usize),
}

/// One rank's program, one step a call; none when it is over.
pub(crate) type Program = Box<dyn FnMut(usize) -> Option<Vec<Act>>>;

pub(crate) struct Rank {
    pub(crate) node: usize,
    program: Program,
    step: usize,
    acts: VecDeque<Act>,
    host: i64,
    /// Streams: one for kernels and collectives in turn, or one for each communicator.
    streams: BTreeMap<usize, (i64, VecDeque<(usize, Item)>)>,
    jobs: Vec<Vec<Job>>,
    /// Collectives, and sends and receives, called in each communicator.
    counts: BTreeMap<usize, (u64, u64)>,
    nth: BTreeMap<(usize, u32, bool), u64>,
    /// In each communicator the first job that is not told.
    first: Vec<usize>,
    state: State,
    /// From then on its host does nothing; and what its process looks like.
    pub(crate) broken: Option<(i64, ProcessState)>,
    pub(crate) is_ended: Option<i64>,
    slot_of: BTreeMap<usize, u32>,
}

/// What came of a collective.
#[derive(Default)]
struct Meeting {
    calls: BTreeMap<u32, (i64, &'static str, u64, usize)>,
}

/// The send and the receive of a pair: when its kernel started, and its place among the jobs.
type Sides = (Option<(i64, usize)>, Option<(i64, usize)>);

pub(crate) struct Sim {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) groups: Vec<SimComm>,
    meetings: BTreeMap<(usize, u64), Meeting>,
    pairs: BTreeMap<(usize, u32, u32, u64), Sides>,
    pub(crate) own_streams: bool,
    pub(crate) n_nodes: usize,
    /// Of each node: error of its clock, phase of its digests, silent from then on.
    pub(crate) nodes: Vec<(i64, i64, i64)>,
    pub(crate) interval: i64,
    /// Interface of the profiler; below 3 no kernels are seen.
    /// Kernels are not reported: calls are all that a ring tells, the newest few of them as in flight.
    pub(crate) lacks_kernels: bool,
}

impl Sim {
    pub(crate) fn new(n_nodes: usize, programs: Vec<Program>, groups: Vec<SimComm>, dice: &mut Dice) -> Self {
        let per_node = programs.len().div_ceil(n_nodes);
        let world = programs.len() as u32;
        let interval = 500 * MS;
        let ranks: Vec<Rank> = programs
            .into_iter()
            .enumerate()
            .map(|(rank, program)| {
                let mut state = State {
                    process: RingProcess {
                        pid: 1000 + rank as u32,
                        rank: Some(rank as u32),
                        local_rank: Some((rank % per_node) as u32),
                        world_size: Some(world),
                        interface: 5,
                        ..RingProcess::default()
                    },
                    ..State::default()
                };
                let mut slot_of = BTreeMap::new();
                for (index, group) in groups.iter().enumerate() {
                    let Some(at) = group.ranks.iter().position(|r| *r == rank) else { continue };
                    slot_of.insert(index, state.comms.len() as u32);
                    state.comms.push(Comm {
                        slot: state.comms.len() as u32,
                        id: group.id,
                        name: group.name.clone(),
                        size: group.ranks.len() as u32,
                        rank: Some(at as u32),
                        ..Comm::default()
                    });
                }
                Rank {
                    node: rank / per_node,
                    program,
                    step: 0,
                    acts: VecDeque::new(),
                    host: 0,
                    streams: BTreeMap::new(),
                    jobs: vec![Vec::new(); groups.len()],
                    counts: BTreeMap::new(),
                    nth: BTreeMap::new(),
                    first: vec![0; groups.len()],
                    state,
                    broken: None,
                    is_ended: None,
                    slot_of,
                }
            })
            .collect();
        let nodes = (0..n_nodes)
            .map(|_| (dice.below(4 * S as u64) as i64 - 2 * S, dice.below(interval as u64) as i64, NEVER))
            .collect();
        Self {
            ranks,
            groups,
            meetings: BTreeMap::new(),
            pairs: BTreeMap::new(),
            own_streams: false,
            n_nodes,
            nodes,
            interval,
            lacks_kernels: false,
        }
    }

    /// Runs all hosts and streams past `t`.
    pub(crate) fn advance(&mut self, t: i64) {
        loop {
            let mut moved = false;
            for rank in 0..self.ranks.len() {
                moved |= self.run_host(rank, t);
                moved |= self.run_streams(rank);
            }
            if !moved {
                return;
            }
        }
    }

    /// When the newest operation ended that everybody ended.
    pub(crate) fn newest_end(&self) -> i64 {
        let jobs = self.ranks.iter().flat_map(|r| r.jobs.iter().flatten());
        jobs.map(|j| j.ended).filter(|t| *t < NEVER).max().unwrap_or(0)
    }

    fn run_host(&mut self, index: usize, t: i64) -> bool {
        let own_streams = self.own_streams;
        let rank = &mut self.ranks[index];
        let mut moved = false;
        loop {
            let until = rank.broken.map_or(t, |(at, _)| t.min(at));
            if rank.host > until || rank.is_ended.is_some() {
                return moved;
            }
            let Some(act) = rank.acts.front().cloned() else {
                match (rank.program)(rank.step) {
                    Some(acts) => rank.acts.extend(acts),
                    None => rank.acts.push_back(Act::End),
                }
                rank.step += 1;
                continue;
            };
            match act {
                Act::Host(ns) => rank.host = rank.host.saturating_add(ns).min(NEVER),
                Act::Gpu(ns) => {
                    let host = rank.host;
                    rank.streams.entry(0).or_default().1.push_back((0, Item::Kernel(host, ns)));
                }
                Act::Coll { comm, function, count } => {
                    let nth = 0;
                    let done = rank.counts.entry(comm).or_default();
                    let job = Job {
                        number: done.0,
                        function,
                        count,
                        peer: None,
                        enqueued: rank.host,
                        started: None,
                        ended: NEVER,
                        is_told: false,
                        nth,
                    };
                    done.0 += 1;
                    rank.push(comm, job, own_streams);
                }
                Act::Pair { comm, peer, is_send, count } => {
                    let done = rank.counts.entry(comm).or_default();
                    let function = if is_send { "Send" } else { "Recv" };
                    let of_pair = rank.nth.entry((comm, peer, is_send)).or_default();
                    let nth = *of_pair;
                    *of_pair += 1;
                    let job = Job {
                        number: done.1,
                        function,
                        count,
                        peer: Some(peer),
                        enqueued: rank.host,
                        started: None,
                        ended: NEVER,
                        is_told: false,
                        nth,
                    };
                    done.1 += 1;
                    rank.push(comm, job, own_streams);
                }
                Act::Sync => {
                    if rank.streams.values().any(|(_, items)| !items.is_empty()) {
                        return moved;
                    }
                    let free = rank.streams.values().map(|(t, _)| *t).max().unwrap_or(0);
                    rank.host = rank.host.max(free);
                }
                Act::End => {
                    if rank.streams.values().any(|(_, items)| !items.is_empty()) {
                        return moved;
                    }
                    rank.is_ended = Some(rank.host);
                }
            }
            rank.host += 5_000;
            rank.acts.pop_front();
            moved = true;
        }
    }

    fn run_streams(&mut self, index: usize) -> bool {
        let mut moved = false;
        let keys: Vec<usize> = self.ranks[index].streams.keys().copied().collect();
        for key in keys {
            loop {
                let rank = &mut self.ranks[index];
                let (free, items) = rank.streams.get_mut(&key).unwrap();
                let Some((comm, item)) = items.front() else { break };
                match item {
                    Item::Kernel(enqueued, ns) => {
                        *free = (*free).max(*enqueued).saturating_add(*ns).min(NEVER);
                        items.pop_front();
                        moved = true;
                    }
                    Item::Op(at) => {
                        let (comm, at, free) = (*comm, *at, *free);
                        let job = &mut rank.jobs[comm][at];
                        if job.started.is_none() {
                            let started = job.enqueued.max(free);
                            if started >= NEVER {
                                break;
                            }
                            job.started = Some(started);
                            let job = job.clone();
                            self.meet(index, comm, at, &job, started);
                            moved = true;
                        }
                        let rank = &mut self.ranks[index];
                        let ended = rank.jobs[comm][at].ended;
                        if ended >= NEVER {
                            break;
                        }
                        let (free, items) = rank.streams.get_mut(&key).unwrap();
                        *free = ended;
                        items.pop_front();
                        moved = true;
                    }
                }
            }
        }
        moved
    }

    fn meet(&mut self, index: usize, comm: usize, at: usize, job: &Job, started: i64) {
        let group = &self.groups[comm];
        let own = group.ranks.iter().position(|r| *r == index).unwrap() as u32;
        if let Some(peer) = job.peer {
            let is_send = job.function == "Send";
            let (from, to) = if is_send { (own, peer) } else { (peer, own) };
            // The k-th send meets the k-th receive.
            let slot = self.pairs.entry((comm, from, to, job.nth)).or_default();
            if is_send {
                slot.0 = Some((started, at));
            } else {
                slot.1 = Some((started, at));
            }
            if let (Some((a, a_at)), Some((b, b_at))) = *slot {
                let ended = self.end_of(comm, a.max(b));
                let (from, to) =
                    (self.groups[comm].ranks[from as usize], self.groups[comm].ranks[to as usize]);
                self.ranks[from].jobs[comm][a_at].ended = ended;
                self.ranks[to].jobs[comm][b_at].ended = ended;
            }
            return;
        }
        let meeting = self.meetings.entry((comm, job.number)).or_default();
        meeting.calls.insert(own, (started, job.function, job.count, at));
        let same = meeting.calls.values().all(|c| (c.1, c.2) == (job.function, job.count));
        if meeting.calls.len() == group.ranks.len() && same {
            let calls: Vec<(u32, usize, i64)> = meeting.calls.iter().map(|(r, c)| (*r, c.3, c.0)).collect();
            self.meetings.remove(&(comm, job.number));
            let ended = self.end_of(comm, calls.iter().map(|c| c.2).max().unwrap());
            for (own, at, _) in calls {
                let rank = self.groups[comm].ranks[own as usize];
                self.ranks[rank].jobs[comm][at].ended = ended;
            }
        }
    }

    fn end_of(&self, comm: usize, started: i64) -> i64 {
        let group = &self.groups[comm];
        match group.cut {
            Some((at, ..)) if started + group.takes_ns > at => NEVER,
            _ => started + group.takes_ns,
        }
    }

    /// What the agent of a node says at `t`, which must have been reached.
    pub(crate) fn digest(&mut self, node: usize, t: i64, sequence: u64) -> Digest {
        let (skew, ..) = self.nodes[node];
        let at_ns = START + t + skew;
        let mut out = Digest {
            schema: digest::SCHEMA.to_owned(),
            node: format!("node{node:04}"),
            agent: "a".to_owned(),
            sequence,
            at_ns,
            ..Digest::default()
        };
        for index in 0..self.ranks.len() {
            if self.ranks[index].node == node {
                self.read(index, t);
                let rank = &mut self.ranks[index];
                let unix_ns = (at_ns + interrupted(t, index)) as u64;
                rank.state.taken = ReadMoment { mono_ns: t as u64, unix_ns, is_held: None };
                let mut digest = from_ring(&rank.state);
                digest.process = match rank.broken {
                    Some((at, state)) if at <= t => state,
                    _ if rank.is_ended.is_some_and(|at| at <= t) => ProcessState::Dead,
                    _ => ProcessState::Alive,
                };
                digest.cpu_ms = Some((t / MS) as u64);
                out.ranks.push(digest);
            }
        }
        out
    }

    /// Brings the ring's state of a rank up to `t`.
    fn read(&mut self, index: usize, t: i64) {
        let lacks_kernels = self.lacks_kernels;
        let (head, groups) = (&mut self.ranks[index], &self.groups);
        let rank = head;
        let mut dones: Vec<(i64, Done)> = Vec::new();
        for (comm, slot) in &rank.slot_of {
            let group = &groups[*comm];
            let target = &mut rank.state.comms[*slot as usize];
            target.in_flight.clear();
            let call = |j: &Job| CallArgs {
                function: j.function.to_owned(),
                count: j.count,
                datatype: "ncclFloat32".to_owned(),
                peer: j.peer,
                channels: 1,
                ..CallArgs::default()
            };
            target.lacks_kernels = lacks_kernels;
            let first = &mut rank.first[*comm];
            while rank.jobs[*comm].get(*first).is_some_and(|j| j.is_told) {
                *first += 1;
            }
            let called = rank.jobs[*comm][*first..].iter().take_while(|j| j.enqueued <= t).count();
            for (at, job) in rank.jobs[*comm][*first..].iter_mut().enumerate() {
                if job.enqueued > t {
                    break;
                }
                if job.is_told {
                    continue;
                }
                let is_over = if lacks_kernels { at + UNSEEN < called } else { job.ended <= t };
                let calls = if job.peer.is_none() { &mut target.collectives } else { &mut target.p2p };
                *calls = (*calls).max(job.number + 1);
                target.progress_ns = target.progress_ns.max(job.enqueued as u64);
                if is_over {
                    job.is_told = true;
                    if job.peer.is_none() {
                        target.collectives_done += 1;
                    } else {
                        target.p2p_done += 1;
                    }
                    target.bytes_done += job.count * 4;
                    let seen = |ns: i64| if lacks_kernels { job.enqueued as u64 } else { ns as u64 };
                    dones.push((
                        seen(job.ended) as i64,
                        Done {
                            comm: *slot,
                            number: job.number,
                            call: call(job),
                            enqueued_ns: job.enqueued as u64,
                            started_ns: seen(job.started.unwrap_or(0)),
                            ended_ns: seen(job.ended),
                            is_end_seen: !lacks_kernels,
                            is_p2p: job.peer.is_some(),
                            ..Done::default()
                        },
                    ));
                    continue;
                }
                let started = job.started.filter(|s| *s <= t && !lacks_kernels);
                let own = target.rank.unwrap();
                let waits = group.cut.filter(|(at, ..)| *at <= t && started.is_some()).into_iter().flat_map(
                    |(at, from, to)| {
                        let n = group.ranks.len() as u32;
                        // A ring: each receives from the one before and sends to the one after.
                        let (before, after) = ((own + n - 1) % n, (own + 1) % n);
                        let send = if (own, after) == (from, to) { Phase::SendNet } else { Phase::SendGpu };
                        let since_ns = at.max(started.unwrap_or(0)) as u64;
                        [
                            Wait { peer: after, is_send: true, phase: send, since_ns, ..Wait::default() },
                            Wait { peer: before, phase: Phase::RecvNet, since_ns, ..Wait::default() },
                        ]
                    },
                );
                target.in_flight.push(Op {
                    number: job.number,
                    call: call(job),
                    enqueued_ns: job.enqueued as u64,
                    started_ns: started.map(|s| s as u64),
                    channels_started: u16::from(started.is_some()),
                    waits: waits.collect(),
                    handed_over_ns: Some(job.enqueued as u64),
                    is_end_visible: !lacks_kernels,
                    is_launched: true,
                    is_p2p: job.peer.is_some(),
                    ..Op::default()
                });
            }
            if rank.is_ended.is_some_and(|at| at <= t) {
                target.ended_ns = rank.is_ended.map(|at| at as u64);
                rank.state.process.is_ended = true;
            }
        }
        dones.sort_by_key(|(ended, _)| *ended);
        rank.state.recent.extend(dones.into_iter().map(|(_, done)| done));
        let surplus = rank.state.recent.len().saturating_sub(HISTORY);
        rank.state.recent.drain(..surplus);
    }
}

/// The two clocks of a ring are read one after the other: how much later the second one is.
fn interrupted(t: i64, index: usize) -> i64 {
    let mut dice = Dice::new(t as u64 ^ (index as u64) << 48);
    if dice.chance(0.03) { dice.below(40) as i64 * MS } else { dice.below(2_000) as i64 }
}

impl Rank {
    fn push(&mut self, comm: usize, job: Job, own_streams: bool) {
        let at = self.jobs[comm].len();
        self.jobs[comm].push(job);
        let key = if own_streams { comm + 1 } else { 0 };
        self.streams.entry(key).or_default().1.push_back((comm, Item::Op(at)));
    }
}
