//! A simulated training job: it produces what the agents of its nodes would publish at any moment.

use ringleader_watch::digest::{
    CommDigest, Digest, DoneDigest, MAX_RECENT, MAX_STEPS, OpDigest, PeriodDigest, ProcessState, RankDigest,
    SCHEMA, SeenBy, StepDigest, WaitDigest,
};

/// A job of equal steps, until one rank omits a call.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) n_nodes: u32,
    pub(crate) ranks_per_node: u32,
    pub(crate) step_ns: i64,
    /// Nanoseconds since 1970.
    pub(crate) start_ns: i64,
    pub(crate) fault: Option<Fault>,
}

/// A rank that stops entering the all-reduce of all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) rank: u32,
    pub(crate) at_ns: i64,
}

/// Calls of one step in order: communicator and function.
const CALLS: [(usize, &str); 15] = [
    (TENSOR, "AllGather"),
    (TENSOR, "ReduceScatter"),
    (TENSOR, "AllGather"),
    (TENSOR, "ReduceScatter"),
    (STAGE, "AllReduce"),
    (TENSOR, "AllGather"),
    (TENSOR, "ReduceScatter"),
    (TENSOR, "AllGather"),
    (TENSOR, "ReduceScatter"),
    (STAGE, "AllReduce"),
    (DATA, "ReduceScatter"),
    (DATA, "ReduceScatter"),
    (DATA, "AllGather"),
    (DATA, "AllGather"),
    (WORLD, "AllReduce"),
];
const WORLD: usize = 0;
const TENSOR: usize = 1;
const DATA: usize = 2;
const STAGE: usize = 3;
/// Nodes whose equal GPUs share a communicator.
const STAGE_NODES: u32 = 4;

impl Job {
    pub(crate) fn n_ranks(&self) -> u32 {
        self.n_nodes * self.ranks_per_node
    }

    pub(crate) fn node(number: u32) -> String {
        format!("n{number:04}")
    }

    /// When the last call of the first step after the fault begins; the fault shows there.
    pub(crate) fn stuck_at_ns(&self) -> Option<i64> {
        let fault = self.fault?;
        let last = self.slot_ns() * (CALLS.len() as i64 - 1);
        let since = (fault.at_ns - self.start_ns - last).max(0);
        let step = (since + self.step_ns - 1) / self.step_ns;
        Some(self.start_ns + step * self.step_ns + last)
    }

    fn slot_ns(&self) -> i64 {
        self.step_ns / CALLS.len() as i64
    }

    /// The digest that the agent of a node publishes at `now_ns`.
    pub(crate) fn digest(&self, node: u32, sequence: u64, now_ns: i64) -> Digest {
        Digest {
            schema: SCHEMA.to_owned(),
            node: Self::node(node),
            sequence,
            agent: format!("sim-{}", self.start_ns),
            at_ns: now_ns,
            ranks: (0..self.ranks_per_node).map(|local| self.rank(node, local, now_ns)).collect(),
            notes: Vec::new(),
        }
    }

    fn rank(&self, node: u32, local: u32, now_ns: i64) -> RankDigest {
        let rank = node * self.ranks_per_node + local;
        // Time up to which this rank has progressed.
        let until = match (self.fault, self.stuck_at_ns()) {
            (Some(fault), Some(at)) if fault.rank == rank => at - 1,
            (_, Some(at)) => at + self.slot_ns() / 2,
            (_, None) => i64::MAX,
        };
        let then = now_ns.min(until);
        let comms = [
            ("6a01".to_owned(), "default_pg", self.n_ranks(), rank),
            (format!("7e{node:04x}"), "tensor", self.ranks_per_node, local),
            (format!("da{local:02x}"), "data", self.n_nodes, node),
            (
                format!("57{:04x}{local:02x}", node / STAGE_NODES),
                "stage",
                STAGE_NODES.min(self.n_nodes - node / STAGE_NODES * STAGE_NODES),
                node % STAGE_NODES,
            ),
        ];
        RankDigest {
            rank: Some(rank),
            local_rank: Some(local),
            pid: 40_000 + rank * 7 % 9_000,
            process: ProcessState::Alive,
            cpu_ms: Some(((now_ns - self.start_ns) / 1_000_000).cast_unsigned()),
            seen_by: SeenBy::Ring,
            world_size: Some(self.n_ranks()),
            comms: comms
                .into_iter()
                .enumerate()
                .map(|(which, (id, name, size, member))| CommDigest {
                    id,
                    name: name.to_owned(),
                    size,
                    rank: Some(member),
                    ..self.comm(which, size, rank, then)
                })
                .collect(),
            ..RankDigest::default()
        }
    }

    /// Time from the end of the previous call to the end of this one, nanoseconds.
    fn period_ns(&self, calls: &[(i64, &str)], number: i64) -> u64 {
        let at = (number % calls.len() as i64) as usize;
        let before =
            at.checked_sub(1).map_or(calls[calls.len() - 1].0 - self.step_ns, |before| calls[before].0);
        (calls[at].0 - before).cast_unsigned()
    }

    /// Sums over the newest complete steps.
    fn steps(&self, n: i64, done: i64, slot: i64, jitter: &dyn Fn(i64, u64) -> u64) -> Vec<StepDigest> {
        let ops = (n as u64).next_power_of_two().cast_signed();
        let whole = done / ops;
        ((whole - MAX_STEPS as i64).max(0)..whole)
            .map(|at| StepDigest {
                first: (at * ops).cast_unsigned(),
                ops: ops as u32,
                step: n as u32,
                queued_ns: (slot / 10 * ops).cast_unsigned() + jitter(at, 6),
                ran_ns: (slot / 10 * 7 * ops).cast_unsigned() + jitter(at, 7),
                gap_ns: (slot / 10 * ops).cast_unsigned() + jitter(at, 8),
                period_ns: (self.step_ns / n * ops).cast_unsigned() + jitter(at, 9),
            })
            .collect()
    }

    /// The state of a communicator at a moment. Each call has an equal slot of the step: the call is made when its
    /// slot begins, its kernel starts after a tenth of the slot and ends after nine tenths.
    fn comm(&self, which: usize, size: u32, rank: u32, then: i64) -> CommDigest {
        let slot = self.slot_ns();
        let calls: Vec<(i64, &str)> = CALLS
            .iter()
            .enumerate()
            .filter(|(_, (comm, _))| *comm == which)
            .map(|(at, (_, function))| (at as i64 * slot, *function))
            .collect();
        let n = calls.len() as i64;
        let elapsed = (then - self.start_ns).max(0);
        let (step, within) = (elapsed / self.step_ns, elapsed % self.step_ns);
        let count_by =
            |after: i64| step * n + calls.iter().filter(|(at, _)| at + after <= within).count() as i64;
        let (called, done) = (count_by(0), count_by(slot / 10 * 9));
        let call = |number: i64| {
            let (at, function) = calls[(number % n) as usize];
            (self.start_ns + number / n * self.step_ns + at, function)
        };
        // Differs between ranks and calls by up to an eighth of the slot.
        let jitter = |number: i64, salt: u64| {
            let mut x = (number.cast_unsigned() << 20 | u64::from(rank)) ^ salt << 56;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x >> 33) % (slot / 8).max(1).cast_unsigned()
        };
        let bytes = 1u64 << (20 + which);
        let in_flight: Vec<OpDigest> = (done..called)
            .map(|number| {
                let (at, function) = call(number);
                let started = at + slot / 10;
                let is_started = started <= then;
                let wait = WaitDigest {
                    peer: (rank + 1) % size,
                    phase: "recv-net".to_owned(),
                    since_ns: started,
                    ..WaitDigest::default()
                };
                OpDigest {
                    number: number.cast_unsigned(),
                    function: function.to_owned(),
                    count: bytes / 2,
                    datatype: "ncclBfloat16".to_owned(),
                    enqueued_ns: at,
                    started_ns: is_started.then_some(started),
                    is_start_visible: true,
                    channels: [if is_started { 16 } else { 0 }, 0, 16],
                    waits: if is_started && which != TENSOR { vec![wait] } else { Vec::new() },
                    ..OpDigest::default()
                }
            })
            .collect();
        let recent = ((done - MAX_RECENT as i64).max(0)..done).map(|number| {
            let waited = 1000 + jitter(number, 4);
            DoneDigest {
                number: number.cast_unsigned(),
                bytes,
                queued_ns: (slot / 10).cast_unsigned() + jitter(number, 1),
                ran_ns: (slot / 10 * 7).cast_unsigned() + jitter(number, 2),
                gap_ns: (slot / 10).cast_unsigned() + jitter(number, 3),
                longest_wait: (which != TENSOR).then(|| ("recv-net".to_owned(), (rank + 1) % size, waited)),
                period_ns: self.period_ns(&calls, number) + jitter(number, 5),
                function: call(number).1.to_owned(),
            }
        });
        let newest_end = if done > 0 { call(done - 1).0 + slot / 10 * 9 } else { 0 };
        let newest_start = in_flight.iter().filter_map(|op| op.started_ns).max().unwrap_or(0);
        let repeats = step.min(500);
        CommDigest {
            collectives: called.cast_unsigned(),
            collectives_done: Some(done.cast_unsigned()),
            p2p_done: Some(0),
            bytes_done: bytes * done.cast_unsigned(),
            progress_ns: newest_end.max(in_flight.last().map_or(0, |op| op.enqueued_ns)),
            moved_ns: newest_end.max(newest_start),
            n_in_flight: in_flight.len() as u32,
            in_flight,
            recent: recent.collect(),
            period: (repeats >= 3).then(|| PeriodDigest {
                ops: n as u32,
                repeats: repeats as u32,
                step_ns: self.step_ns,
                span_ns: repeats * self.step_ns,
                is_training: true,
            }),
            steps: self.steps(n, done, slot, &jitter),
            ..CommDigest::default()
        }
    }
}
