//! Runs the programs under the blocking rules of NCCL and torch.
//!
//! * The host enqueues ahead and waits only at a `Sync`.
//! * Work of one rank on one group runs in order; a call with `wait` also holds back what the rank enqueues later in
//!   any group, because torch makes the compute stream wait for it.
//! * A collective begins when every member has reached its k-th collective of the group, and ends for all of them. If
//!   the members' k-th calls do not fit (kind, size, type, root) it never ends; on real GPUs it may also corrupt data.
//! * A send meets the receive with the same number between the same two ranks of the group; neither ends without the
//!   other.
//!
//! The result does not depend on the order in which ranks are simulated: times are maxima of earlier times.

use std::collections::BTreeMap;

use crate::job::{Act, CallKind, Halt, Job, ProcessFailure};
use crate::places::PlaceId;
use crate::plant::Plant;

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) group: u16,
    pub(crate) call: u16,
    pub(crate) place: PlaceId,
    /// Peer's rank within the group.
    pub(crate) peer: Option<u16>,
    /// Host time of the enqueue, ns since the job's start.
    pub(crate) at_ns: i64,
    /// GPU time at which its kernel began.
    pub(crate) started_ns: Option<i64>,
    /// GPU time of the end.
    pub(crate) done_ns: Option<i64>,
    /// This rank's collectives on the group so far, including this call if it is one.
    pub(crate) coll_seq: u32,
    pub(crate) p2p_seq: u32,
    pub(crate) step: u16,
}

/// Where a rank's host is at the end of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostEnd {
    /// It reached the end of its program.
    Finished,
    /// It waits for its GPU.
    Waiting(PlaceId),
    /// It is stopped outside any call.
    Standing(Halt, PlaceId),
    /// It ended early with status 0.
    Exited,
    /// It failed.
    Failed(ProcessFailure, PlaceId),
}

#[derive(Clone, Debug)]
pub(crate) struct RankRun {
    pub(crate) made: Vec<Made>,
    pub(crate) end: HostEnd,
    /// Host time when it ended or stopped, ns.
    pub(crate) end_ns: i64,
    /// Host time at which each step ended, ns.
    pub(crate) steps: Vec<i64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) ranks: Vec<RankRun>,
}

impl Run {
    /// Ranks with a call that never ended.
    pub(crate) fn hangs(&self) -> bool {
        self.ranks.iter().any(|r| r.made.iter().any(|m| m.done_ns.is_none()))
    }

    /// Time of the last event.
    pub(crate) fn last_ns(&self) -> i64 {
        let of = |r: &RankRun| {
            r.made.iter().map(|m| m.done_ns.unwrap_or(m.at_ns)).max().unwrap_or(0).max(r.end_ns)
        };
        self.ranks.iter().map(of).max().unwrap_or(0)
    }
}

enum Work {
    Gpu { us: u32 },
    Stuck,
    Join,
    Call { made: usize, meeting: usize },
}

struct Item {
    work: Work,
    after: Vec<usize>,
    at_ns: i64,
    done_ns: Option<i64>,
    reported: bool,
}

#[derive(Default)]
struct Meeting {
    wanted: usize,
    call: Option<u16>,
    misfit: bool,
    ready: usize,
    ready_ns: i64,
    members: Vec<(usize, usize)>,
}

struct HostState {
    pc: usize,
    host_ns: i64,
    items: Vec<Item>,
    open: Vec<usize>,
    compute: Option<usize>,
    last_of_group: BTreeMap<u16, usize>,
    collectives: BTreeMap<u16, u32>,
    transfers: BTreeMap<u16, u32>,
    pairs: BTreeMap<(u16, bool, u16), u32>,
    step: u16,
    ended: Option<HostEnd>,
    made: Vec<Made>,
    steps: Vec<i64>,
}

type MeetingKey = (u16, u32, u32, u32);

struct Sim<'a> {
    job: &'a Job,
    plant: &'a Plant,
    states: Vec<HostState>,
    meetings: Vec<Meeting>,
    by_key: BTreeMap<MeetingKey, usize>,
    todo: Vec<usize>,
}

/// A small number that differs between calls but is the same in every run.
fn jitter(a: u64, b: u64, below: i64) -> i64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xd134_2543_de82_ef95);
    z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((z >> 33) as i64) % below
}

pub(crate) fn run(job: &Job, plant: &Plant) -> Run {
    let states = (0..job.n)
        .map(|r| HostState {
            pc: 0,
            host_ns: jitter(u64::from(r), 77, 30_000_000),
            items: Vec::new(),
            open: Vec::new(),
            compute: None,
            last_of_group: BTreeMap::new(),
            collectives: BTreeMap::new(),
            transfers: BTreeMap::new(),
            pairs: BTreeMap::new(),
            step: 0,
            ended: None,
            made: Vec::new(),
            steps: Vec::new(),
        })
        .collect();
    let mut sim = Sim {
        job,
        plant,
        states,
        meetings: Vec::new(),
        by_key: BTreeMap::new(),
        todo: (0..job.n as usize).rev().collect(),
    };
    while let Some(rank) = sim.todo.pop() {
        sim.advance(rank);
    }
    let ranks = sim
        .states
        .into_iter()
        .enumerate()
        .map(|(rank, s)| {
            let end = s.ended.unwrap_or_else(|| match plant.programs(job, rank).get(s.pc) {
                Some(Act::Sync(place)) => HostEnd::Waiting(*place),
                _ => HostEnd::Finished,
            });
            RankRun { made: s.made, end, end_ns: s.host_ns, steps: s.steps }
        })
        .collect();
    Run { ranks }
}

impl Sim<'_> {
    fn advance(&mut self, rank: usize) {
        loop {
            self.settle(rank);
            let Some(act) = self.plant.programs(self.job, rank).get(self.states[rank].pc).copied() else {
                return;
            };
            let state = &mut self.states[rank];
            if state.ended.is_some() {
                return;
            }
            match act {
                Act::StepStart(step) => state.step = step,
                Act::StepEnd(_) => {
                    state.host_ns += 200_000;
                    state.steps.push(state.host_ns);
                }
                Act::Host { us } => {
                    let spread = i64::from(us) * 100;
                    state.host_ns +=
                        i64::from(us) * 1_000 + jitter(rank as u64, state.pc as u64, spread.max(1));
                }
                Act::Gpu { us } => self.enqueue(rank, Work::Gpu { us }),
                Act::GpuStuck => self.enqueue(rank, Work::Stuck),
                Act::Join => self.enqueue(rank, Work::Join),
                Act::Sync(_) => {
                    if !state.open.is_empty() {
                        return;
                    }
                    let last = state.items.iter().filter_map(|i| i.done_ns).max().unwrap_or(0);
                    state.host_ns = state.host_ns.max(last) + 15_000;
                    state.items.clear();
                    state.compute = None;
                    state.last_of_group.clear();
                }
                Act::Call { group, call, place, peer, wait } => {
                    self.make(rank, group, call, place, peer, wait);
                }
                Act::Stand(how, place) => state.ended = Some(HostEnd::Standing(how, place)),
                Act::Exit => state.ended = Some(HostEnd::Exited),
                Act::Fail(how, place) => state.ended = Some(HostEnd::Failed(how, place)),
            }
            self.states[rank].pc += 1;
        }
    }

    fn enqueue(&mut self, rank: usize, work: Work) {
        let state = &mut self.states[rank];
        let after = match work {
            Work::Join => state.open.clone(),
            _ => state.compute.into_iter().collect(),
        };
        let at = state.items.len();
        state.items.push(Item { work, after, at_ns: state.host_ns, done_ns: None, reported: false });
        state.open.push(at);
        state.compute = Some(at);
        state.host_ns += 5_000;
    }

    fn make(&mut self, rank: usize, group: u16, call: u16, place: PlaceId, peer: Option<u16>, wait: bool) {
        let kind = self.job.calls[usize::from(call)].kind;
        let me = self.job.group(group).rank_of(rank as u32).unwrap_or(0);
        let state = &mut self.states[rank];
        let key: MeetingKey = if let Some(peer) = peer {
            let sends = kind == CallKind::Send;
            let nth = state.pairs.entry((group, sends, peer)).or_default();
            *nth += 1;
            *state.transfers.entry(group).or_default() += 1;
            let (from, to) = if sends { (me, u32::from(peer)) } else { (u32::from(peer), me) };
            (group, from + 1, to + 1, *nth)
        } else {
            let nth = state.collectives.entry(group).or_default();
            *nth += 1;
            (group, 0, 0, *nth)
        };
        state.host_ns += 25_000 + jitter(rank as u64, 1_000 + state.pc as u64, 20_000);
        let made = state.made.len();
        state.made.push(Made {
            group,
            call,
            place,
            peer,
            at_ns: state.host_ns,
            started_ns: None,
            done_ns: None,
            coll_seq: state.collectives.get(&group).copied().unwrap_or(0),
            p2p_seq: state.transfers.get(&group).copied().unwrap_or(0),
            step: state.step,
        });
        let wanted = if peer.is_some() { 2 } else { self.job.group(group).ranks.len() };
        let meetings = &mut self.meetings;
        let meeting = *self.by_key.entry(key).or_insert_with(|| {
            meetings.push(Meeting { wanted, ..Meeting::default() });
            meetings.len() - 1
        });
        let item = state.items.len();
        let mut after: Vec<usize> = state.compute.into_iter().collect();
        after.extend(state.last_of_group.get(&group).copied());
        state.items.push(Item {
            work: Work::Call { made, meeting },
            after,
            at_ns: state.host_ns,
            done_ns: None,
            reported: false,
        });
        state.open.push(item);
        state.last_of_group.insert(group, item);
        if wait {
            state.compute = Some(item);
        }
        let met = &mut self.meetings[meeting];
        match met.call {
            None => met.call = Some(call),
            Some(first) => {
                let (a, b) = (&self.job.calls[usize::from(first)], &self.job.calls[usize::from(call)]);
                let fits = if a.kind.is_p2p() {
                    a.numel_in() == b.numel_in() && a.dtype == b.dtype
                } else {
                    a.fits(b)
                };
                met.misfit |= !fits;
            }
        }
        met.members.push((rank, item));
    }

    /// Ends every call on `rank` that can end.
    fn settle(&mut self, rank: usize) {
        loop {
            let mut progress = false;
            let open = std::mem::take(&mut self.states[rank].open);
            for item in &open {
                progress |= self.try_end(rank, *item);
            }
            let items = &self.states[rank].items;
            self.states[rank].open = open.into_iter().filter(|i| items[*i].done_ns.is_none()).collect();
            if !progress {
                return;
            }
        }
    }

    fn try_end(&mut self, rank: usize, index: usize) -> bool {
        let items = &self.states[rank].items;
        let item = &items[index];
        if item.done_ns.is_some() || item.reported {
            return false;
        }
        let mut ready = item.at_ns;
        for before in &item.after {
            match items[*before].done_ns {
                Some(done) => ready = ready.max(done),
                None => return false,
            }
        }
        let meeting = match item.work {
            Work::Gpu { us } => {
                let spread = i64::from(us) * 20 + 1;
                let busy = i64::from(us) * 1_000 + jitter(rank as u64, index as u64, spread);
                self.states[rank].items[index].done_ns = Some(ready + busy);
                return true;
            }
            Work::Stuck => return false,
            Work::Join => {
                self.states[rank].items[index].done_ns = Some(ready);
                return true;
            }
            Work::Call { meeting, .. } => meeting,
        };
        self.states[rank].items[index].reported = true;
        if let Work::Call { made, .. } = self.states[rank].items[index].work {
            self.states[rank].made[made].started_ns = Some(ready);
        }
        let met = &mut self.meetings[meeting];
        met.ready += 1;
        met.ready_ns = met.ready_ns.max(ready);
        if met.ready < met.wanted || met.misfit {
            return false;
        }
        let numel = met.call.map_or(0, |c| self.job.calls[usize::from(c)].numel_in());
        let done = met.ready_ns + 30_000 + (numel / 100) as i64;
        for (other, item) in std::mem::take(&mut met.members) {
            self.states[other].items[item].done_ns = Some(done);
            if let Work::Call { made, .. } = self.states[other].items[item].work {
                self.states[other].made[made].done_ns = Some(done);
            }
            if other != rank {
                self.todo.push(other);
            }
        }
        true
    }
}
