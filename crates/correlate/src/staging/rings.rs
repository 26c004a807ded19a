//! Rings made by hand for the tests of rules, from the scripts of `staging_jobs`. There `ar:9?` is an operation in flight
//! whose kernel runs, `ar:9!` one whose kernel has not started.

use ringleader_model::{
    Fact, Pid, Rank, RingCall, RingComm, RingOp, RingPhase, RingRecord, RingWait, SourceKind, Who,
};

use crate::staging::StagedCase;
use crate::staging::jobs::{START_NS, STEP_NS, WORLD, index_of, words};

/// How long after the last call the rings are read, ns.
const AFTER_NS: i64 = 60_000_000_000;

impl StagedCase {
    /// Rings of ranks 0, 1, … on one node, read a minute after the last call.
    pub fn rings(self, scripts: &[&str]) -> Self {
        let nodes = vec![1; scripts.len()];
        self.rings_on(scripts, &nodes)
    }

    /// The same with each rank's node.
    pub fn rings_on(self, scripts: &[&str], nodes: &[u32]) -> Self {
        let stage = (0..)
            .zip(scripts)
            .zip(nodes)
            .fold(self, |stage, ((rank, script), node)| stage.ring(rank, &format!("node{node}"), script));
        let newest = stage.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Ring(ring) => ring.ops.iter().map(|op| op.enqueued_ns).max(),
            _ => None,
        });
        let newest = newest.max().unwrap_or(START_NS);
        stage.each_ring(|ring| ring.taken_ns = newest + AFTER_NS)
    }

    fn ring(self, rank: u32, host: &str, script: &str) -> Self {
        let world_size = self.groups.first().map_or(0, |g| g.ranks.len()) as u32;
        let groups: Vec<_> = (0..).zip(&self.groups).filter(|(_, g)| g.ranks.contains(&Rank(rank))).collect();
        let mut ring = RingRecord {
            world_size: Some(world_size),
            boot_id: host.into(),
            start_ticks: 1_000,
            interface: 5,
            is_live: true,
            taken_ns: START_NS,
            ..RingRecord::default()
        };
        for (id, group) in &groups {
            ring.comms.push(RingComm {
                id: WORLD + id,
                name: group.desc.clone(),
                size: group.ranks.len() as u32,
                rank: group.ranks.iter().position(|r| r.0 == rank).map(|at| at as u32),
                created_ns: START_NS - STEP_NS,
                ..RingComm::default()
            });
        }
        for word in words(script) {
            let comm = groups.iter().position(|(_, g)| *g.desc == *word.group).unwrap_or_default();
            let p2p = word.kind.is_p2p();
            let call = RingCall {
                kind: word.kind,
                count: word.elements(),
                dtype: word.dtype.as_str().into(),
                root: (!p2p).then_some(0),
                peer: p2p.then_some(word.peer),
            };
            let call = index_of(&mut ring.calls, call);
            for _ in 0..word.times {
                let of_comm = &mut ring.comms[comm];
                let count = if p2p { &mut of_comm.p2p } else { &mut of_comm.collectives };
                *count += 1;
                let number = *count as u32;
                let enqueued_ns = START_NS + ring.ops.len() as i64 * STEP_NS;
                let started = if word.is_waiting { 0 } else { enqueued_ns + 1_000 };
                ring.ops.push(RingOp {
                    number,
                    comm: comm as u32,
                    call,
                    enqueued_ns,
                    started_ns: started,
                    ended_ns: if word.open { 0 } else { enqueued_ns + STEP_NS / 10 },
                    is_p2p: p2p,
                    is_launched: true,
                    is_end_visible: true,
                    channels: (u16::from(!word.is_waiting), 0),
                    ..RingOp::default()
                });
            }
        }
        let who = Who {
            rank: Some(Rank(rank)),
            local_rank: None,
            host: Some(host.into()),
            pid: Some(Pid(100 + rank)),
        };
        self.push(SourceKind::Ring, who, Fact::Ring(Box::new(ring)))
    }

    /// Changes every ring.
    pub fn each_ring(mut self, mut change: impl FnMut(&mut RingRecord)) -> Self {
        for observation in &mut self.case.observations {
            if let Fact::Ring(ring) = &mut observation.fact {
                change(ring);
            }
        }
        self
    }

    /// Changes the ring of one rank.
    pub fn change_ring(mut self, rank: u32, change: impl FnOnce(&mut RingRecord)) -> Self {
        let mine = self.case.observations.iter_mut().filter(|o| o.who.rank == Some(Rank(rank)));
        let ring = mine.into_iter().find_map(|o| match &mut o.fact {
            Fact::Ring(ring) => Some(ring),
            _ => None,
        });
        change(ring.unwrap_or_else(|| panic!("no ring of rank {rank}")));
        self
    }

    /// The processes are gone: their rings end with what they knew last.
    pub fn rings_gone(self) -> Self {
        self.each_ring(end)
    }

    /// The process of one rank is gone.
    pub fn ring_gone(self, rank: u32) -> Self {
        self.change_ring(rank, end)
    }

    /// The process of one rank called `exit` and is gone.
    pub fn ring_exited(self, rank: u32, code: u8) -> Self {
        self.change_ring(rank, |ring| {
            end(ring);
            ring.exit = Some((code, ring.taken_ns));
        })
    }

    /// The process of one rank closed its communicators and is gone.
    pub fn ring_ended(self, rank: u32) -> Self {
        self.change_ring(rank, |ring| {
            ring.is_ended = true;
            end(ring);
        })
    }

    /// All communicators were closed in order.
    pub fn each_ended(self) -> Self {
        self.each_ring(|ring| ring.is_ended = true).rings_gone()
    }

    /// The rings were read this long after the last call, ms.
    pub fn rings_read_after(self, ms: i64) -> Self {
        self.each_ring(|ring| ring.taken_ns += ms * 1_000_000 - AFTER_NS)
    }

    /// The rings know of nothing after that second.
    pub fn rings_until(self, s: i64) -> Self {
        self.each_ring(|ring| ring.taken_ns = s * 1_000_000_000)
    }

    /// What a proxy of the rank's last operation waits for.
    pub fn proxy(self, rank: u32, peer: u32, phase: RingPhase) -> Self {
        self.change_ring(rank, |ring| {
            let is_send = matches!(phase, RingPhase::SendGpu | RingPhase::SendPeer | RingPhase::SendNet);
            let op = ring.ops.len() as u32 - 1;
            let since_ns = ring.ops.last().map_or(0, |op| op.enqueued_ns);
            ring.waits.push(RingWait { op, peer, channel: 0, is_send, phase, since_ns, steps: (3, 16) });
        })
    }
}

fn end(ring: &mut RingRecord) {
    ring.is_live = false;
    ring.taken_ns = ring.ops.iter().map(|op| op.enqueued_ns.max(op.ended_ns)).max().unwrap_or(START_NS);
}
