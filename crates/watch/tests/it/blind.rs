//! Jobs of which calls are all that is seen: NCCL before 2.26 within one node, and whoever had to give kernels up.

use ringleader_watch::digest::ProcessState;
use ringleader_watch::event::{Shape, What};

use crate::jobs::{Habits, Kind, engine, first_stall, follow, job};
use crate::sim::{Act, Dice, MS, S, Sim};

const KINDS: [Kind; 3] = [Kind::Ddp, Kind::Fsdp, Kind::Mesh];

fn blind(mut sim: Sim) -> Sim {
    sim.lacks_kernels = true;
    sim
}

#[test]
fn no_alarm_in_healthy_jobs() {
    let mut ready = 0;
    for seed in 0..30 {
        let habits = Habits::by(&mut Dice::new(seed));
        let mut sim = blind(job(&habits, seed, |_, _, _| {}));
        let mut engine = engine();
        let events = follow(&mut sim, &mut engine, habits.compile + 60 * S + habits.step * 40, |_| false);
        assert_eq!(first_stall(&events), None, "seed {seed}: {habits:?}");
        ready += usize::from(engine.view().comms.iter().any(|c| c.usual_ns.is_some()));
    }
    assert!(ready * 10 >= 30 * 9, "only {ready} of 30 have shown a rhythm");
}

#[test]
fn whoever_does_not_call_is_named() {
    let mut delays = Vec::new();
    for seed in 0..24 {
        let mut dice = Dice::new(seed ^ 0xb11d);
        let habits = Habits {
            ranks: 4,
            nodes: 2,
            kind: KINDS[seed as usize % 3],
            buckets: 1 + dice.below(4) as usize,
            ..Habits::plain()
        };
        let (bad, at) = (dice.below(4) as usize, 90 + dice.below(40) as usize);
        let is_stopped = seed % 2 == 1;
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if (rank, step) == (bad, at) && !is_stopped {
                acts.insert(0, Act::Host(i64::MAX / 4));
            }
        };
        let mut sim = blind(job(&habits, seed, twist));
        let mut fault = at as i64 * 200 * MS;
        if is_stopped {
            sim.ranks[bad].broken = Some((fault, ProcessState::Stopped));
        } else {
            let mut same = job(&habits, seed, twist);
            same.advance(200 * S);
            fault = same.newest_end();
        }
        let is_told = |events: &[ringleader_watch::event::Event]| {
            events.iter().any(|e| matches!(e.what, What::Stall(_)))
        };
        let events = follow(&mut sim, &mut engine(), fault + 40 * S, is_told);
        let (t, stall) = first_stall(&events).unwrap_or_else(|| panic!("seed {seed}: nothing: {habits:?}"));
        let shape = if is_stopped { Shape::Process } else { Shape::NeverEntered };
        assert_eq!((stall.shape, &*stall.suspects), (shape, &[bad as u32][..]), "seed {seed}: {stall:#?}");
        delays.push(t - fault);
    }
    delays.sort_unstable();
    eprintln!("median {} ms, worst {} ms", delays[12] / MS, delays[23] / MS);
    assert!(delays[23] <= 8 * S, "{delays:?}");
}
