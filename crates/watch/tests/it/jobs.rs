//! Kinds of job, and a run of the engine over one.

use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::{Event, Stall, What};

use crate::sim::{Act, Dice, MS, Program, S, START, Sim, SimComm};

/// How a healthy job behaves.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) ranks: usize,
    pub(crate) nodes: usize,
    /// Time of a step, and how much it varies.
    pub(crate) step: i64,
    pub(crate) jitter: f64,
    /// Collectives in a step.
    pub(crate) buckets: usize,
    /// The first step compiles for so long, and ranks differ by so much.
    pub(crate) compile: i64,
    pub(crate) spread: f64,
    /// Every so many steps rank 0 writes a checkpoint while the others wait: steps, times the step.
    pub(crate) checkpoint: Option<(usize, f64)>,
    /// Every so many steps all evaluate, each on its own: steps, time.
    pub(crate) evaluate: Option<(usize, i64)>,
    pub(crate) kind: Kind,
    pub(crate) steps: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ddp,
    Fsdp,
    /// Rows and columns.
    Mesh,
    Pipeline,
}

impl Habits {
    pub(crate) fn plain() -> Self {
        Self {
            ranks: 4,
            nodes: 2,
            step: 150 * MS,
            jitter: 0.1,
            buckets: 3,
            compile: 0,
            spread: 0.1,
            checkpoint: None,
            evaluate: None,
            kind: Kind::Ddp,
            steps: usize::MAX,
        }
    }

    pub(crate) fn by(dice: &mut Dice) -> Self {
        let kind = [Kind::Ddp, Kind::Fsdp, Kind::Mesh, Kind::Pipeline][dice.below(4) as usize];
        let step = [20 * MS, 150 * MS, 400 * MS, S, 3 * S, 8 * S][dice.below(6) as usize];
        Self {
            ranks: if kind == Kind::Mesh { 4 } else { 2 + dice.below(5) as usize },
            nodes: 1 + dice.below(2) as usize,
            step,
            jitter: [0.02, 0.1, 0.3][dice.below(3) as usize],
            buckets: 1 + dice.below(12) as usize,
            compile: if dice.chance(0.5) { dice.below(240) as i64 * S } else { 0 },
            spread: 0.3 * dice.real(),
            checkpoint: dice.chance(0.5).then(|| (12 + dice.below(30) as usize, 3.0)),
            evaluate: dice.chance(0.3).then(|| (20 + dice.below(30) as usize, dice.below(90) as i64 * S)),
            kind,
            steps: usize::MAX,
        }
    }
}

/// Makes the job.
pub(crate) fn job(
    habits: &Habits,
    seed: u64,
    twist: impl Fn(usize, usize, &mut Vec<Act>) + Clone + 'static,
) -> Sim {
    let mut dice = Dice::new(seed);
    let h = habits.clone();
    let all: Vec<usize> = (0..h.ranks).collect();
    let takes = (h.step / 50 / h.buckets as i64).max(20_000);
    let group = |id: u64, name: &str, ranks: Vec<usize>| SimComm {
        id,
        name: name.to_owned(),
        ranks,
        takes_ns: takes,
        cut: None,
    };
    let mut groups = vec![group(0xabc0, "world", all)];
    if h.kind == Kind::Mesh {
        groups.push(group(0xabc1, "row", vec![0, 1]));
        groups.push(group(0xabc2, "row", vec![2, 3]));
        groups.push(group(0xabc3, "col", vec![0, 2]));
        groups.push(group(0xabc4, "col", vec![1, 3]));
    }
    let programs = (0..h.ranks)
        .map(|rank| {
            let h = h.clone();
            let twist = twist.clone();
            let mut dice = Dice::new(seed ^ (rank as u64 + 1) << 32);
            let program: Program = Box::new(move |step| {
                if step >= h.steps {
                    return None;
                }
                let mut acts = acts(&h, rank, step, &mut dice);
                twist(rank, step, &mut acts);
                Some(acts)
            });
            program
        })
        .collect();
    Sim::new(h.nodes.min(h.ranks), programs, groups, &mut dice)
}

fn acts(h: &Habits, rank: usize, step: usize, dice: &mut Dice) -> Vec<Act> {
    let mut acts = Vec::new();
    let coll = |comm, function, count| Act::Coll { comm, function, count };
    if step == 0 {
        // Parameters are sent out.
        acts.push(Act::Host(dice.below(3 * S as u64) as i64));
        for i in 0..20 {
            acts.push(coll(0, "Broadcast", 1000 + i));
        }
        acts.push(Act::Sync);
        acts.push(Act::Host(dice.about(h.compile, h.spread)));
    }
    let layers = h.buckets as i64;
    let compute = |dice: &mut Dice| dice.about(h.step / layers, h.jitter);
    match h.kind {
        Kind::Ddp => {
            for bucket in 0..layers {
                acts.push(Act::Gpu(compute(dice)));
                acts.push(coll(0, "AllReduce", 1_000_000 + bucket as u64));
            }
        }
        Kind::Fsdp => {
            for _ in 0..layers {
                acts.push(coll(0, "AllGather", 500_000));
                acts.push(Act::Gpu(compute(dice) / 3));
            }
            for _ in 0..layers {
                acts.push(coll(0, "AllGather", 500_000));
                acts.push(Act::Gpu(compute(dice) * 2 / 3));
                acts.push(coll(0, "ReduceScatter", 500_000));
            }
        }
        Kind::Mesh => {
            let (row, col) = (1 + rank / 2, 3 + rank % 2);
            for bucket in 0..layers {
                acts.push(Act::Gpu(compute(dice)));
                acts.push(coll(row, "AllReduce", 40_000));
                acts.push(coll(col, "AllReduce", 1_000_000 + bucket as u64));
            }
        }
        Kind::Pipeline => {
            let (peer, n) = (rank as u32, h.ranks as u32);
            for micro in 0..layers {
                let pair =
                    |peer, is_send| Act::Pair { comm: 0, peer, is_send, count: 5000 + micro as u64 % 2 };
                if peer > 0 {
                    acts.push(pair(peer - 1, false));
                }
                acts.push(Act::Gpu(compute(dice)));
                if peer + 1 < n {
                    acts.push(pair(peer + 1, true));
                }
            }
            acts.push(coll(0, "AllReduce", 1));
        }
    }
    acts.push(Act::Sync);
    acts.push(Act::Host(dice.about(h.step / 20, h.jitter)));
    if let Some((every, times)) = h.checkpoint
        && step % every == every - 1
    {
        if rank == 0 {
            acts.push(Act::Host((h.step as f64 * times) as i64));
        }
        acts.push(coll(0, "AllReduce", 1));
        acts.push(Act::Sync);
    }
    if let Some((every, time)) = h.evaluate
        && step % every == every - 1
    {
        acts.push(Act::Host(dice.about(time, 0.2)));
        acts.push(coll(0, "AllReduce", 2));
        acts.push(Act::Sync);
    }
    acts
}

/// Follows a job until `end`, with looks twice a second; what came out, with the time in the job.
pub(crate) fn follow(
    sim: &mut Sim,
    engine: &mut Engine,
    until: i64,
    mut stop: impl FnMut(&[Event]) -> bool,
) -> Vec<(i64, Event)> {
    let mut out = Vec::new();
    let mut sequence = vec![0_u64; sim.n_nodes];
    let mut next: Vec<i64> = sim.nodes.iter().map(|(_, phase, _)| *phase).collect();
    let mut t = 0;
    while t < until {
        t += 500 * MS;
        sim.advance(t);
        for node in 0..sim.n_nodes {
            while next[node] <= t {
                let at = next[node];
                next[node] += sim.interval;
                if at >= sim.nodes[node].2 {
                    continue;
                }
                sequence[node] += 1;
                let digest = sim.digest(node, at, sequence[node]);
                engine.take(digest, START + at + 20 * MS);
            }
        }
        let events = engine.look(START + t + 30 * MS);
        let is_over = stop(&events);
        out.extend(events.into_iter().map(|e| (t, e)));
        if is_over {
            break;
        }
    }
    out
}

pub(crate) fn engine() -> Engine {
    Engine::new(Settings::default())
}

/// The first stall, with the time in the job.
pub(crate) fn first_stall(events: &[(i64, Event)]) -> Option<(i64, Stall)> {
    events.iter().find_map(|(t, e)| match &e.what {
        What::Stall(stall) => Some((*t, (**stall).clone())),
        _ => None,
    })
}
