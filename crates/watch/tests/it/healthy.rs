//! Healthy jobs raise no alarm.

use ringleader_watch::event::What;

use crate::jobs::{Habits, Kind, engine, first_stall, follow, job};
use crate::sim::{Act, Dice, S};

/// Seeds that are run: more, or a single one, by the environment.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    match number("RINGLEADER_SEED") {
        Some(one) => vec![one],
        None => (0..number("RINGLEADER_SEEDS").unwrap_or(60)).collect(),
    }
}

#[test]
fn no_alarm_in_healthy_jobs() {
    let mut alarms = Vec::new();
    let mut ready = 0;
    let seeds = seeds();
    let n = seeds.len();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let habits = Habits::by(&mut dice);
        let mut sim = job(&habits, seed, |_, _, _| {});
        let mut engine = engine();
        // Long enough for the compilation, some checkpoints and evaluations.
        let until = habits.compile + 60 * S + habits.step * 40;
        let events = follow(&mut sim, &mut engine, until, |_| false);
        ready += usize::from(engine.view().comms.iter().any(|c| c.usual_ns.is_some()));
        if let Some((t, stall)) = first_stall(&events) {
            alarms.push(format!(
                "seed {seed} at {:.1} s: {:?} {} expected {:.1}\n    {habits:?}",
                t as f64 / 1e9,
                stall.shape,
                stall.text,
                stall.expected_s
            ));
        }
    }
    eprintln!("{n} healthy jobs, {ready} with a rhythm at the end, {} alarms", alarms.len());
    assert!(alarms.is_empty(), "{} of {n}:\n{}", alarms.len(), alarms.join("\n"));
    assert!(ready * 10 >= n * 9, "only {ready} of {n} have shown a rhythm");
}

/// Young jobs: a slow first step that is uneven, or a shape that is compiled again after some steps.
#[test]
fn no_alarm_in_the_first_steps() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed ^ 0xf1257);
        let kind = [Kind::Ddp, Kind::Fsdp, Kind::Mesh, Kind::Pipeline][seed as usize % 4];
        let habits = Habits {
            kind,
            step: [60, 120, 250][dice.below(3) as usize] * S / 1000,
            buckets: 1 + dice.below(4) as usize,
            compile: 20 * S,
            spread: 0.4,
            ..Habits::plain()
        };
        // Again: all at once, each for as long as it takes.
        let again = 2 + dice.below(40) as usize;
        let lasts = 5 * S + dice.below(40) as i64 * S;
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if step == again {
                acts.insert(0, Act::Host(lasts + rank as i64 * lasts / 12));
            }
        };
        let mut sim = job(&habits, seed, twist);
        let events = follow(&mut sim, &mut engine(), 130 * S, |_| false);
        assert_eq!(
            first_stall(&events),
            None,
            "seed {seed}: again at step {again} for {} s: {habits:?}",
            lasts / S
        );
    }
}

/// One rank compiles once more in one of the first steps, for longer than the others wait in a rhythm.
#[test]
fn no_alarm_where_one_rank_compiles_again_early() {
    for seed in 0..24 {
        let mut dice = Dice::new(seed ^ 0xc0de);
        let habits = Habits {
            kind: [Kind::Ddp, Kind::Fsdp, Kind::Mesh][seed as usize % 3],
            step: [120, 250, 400][dice.below(3) as usize] * S / 1000,
            buckets: 1 + dice.below(4) as usize,
            compile: 10 * S,
            ..Habits::plain()
        };
        let again = 2 + dice.below(5) as usize;
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if (rank, step) == (1, again) {
                acts.insert(0, Act::Host(20 * S));
            }
        };
        let mut sim = job(&habits, seed, twist);
        let events = follow(&mut sim, &mut engine(), 60 * S, |_| false);
        assert_eq!(first_stall(&events), None, "seed {seed}: again at step {again}: {habits:?}");
    }
}

#[test]
fn the_end_of_a_job_is_no_stall() {
    for kind in [Kind::Ddp, Kind::Fsdp, Kind::Pipeline] {
        let habits = Habits { steps: 100, kind, ..Habits::plain() };
        let mut sim = job(&habits, 7, |_, _, _| {});
        let events = follow(&mut sim, &mut engine(), 60 * S, |_| false);
        assert_eq!(first_stall(&events), None);
        let ended = events.iter().filter(|(_, e)| matches!(e.what, What::Ended { .. })).count();
        assert_eq!(ended, 1, "{events:#?}");
    }
}
