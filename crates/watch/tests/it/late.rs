//! Ranks that are late, and why.

use ringleader_watch::event::{Event, Lag, Straggler, What};

use crate::jobs::{Habits, Kind, engine, first_stall, follow, job};
use crate::sim::{Act, MS, S};

fn told(events: &[(i64, Event)]) -> Vec<(i64, Straggler)> {
    let straggler = |(t, e): &(i64, Event)| match &e.what {
        What::Straggler(s) => Some((*t, s.clone())),
        _ => None,
    };
    events.iter().filter_map(straggler).collect()
}

/// Who is told first, and why.
fn first(
    habits: &Habits,
    twist: impl Fn(usize, usize, &mut Vec<Act>) + Clone + 'static,
) -> Option<Straggler> {
    let mut engine = engine();
    let events = follow(&mut job(habits, 11, twist), &mut engine, 60 * S, |_| false);
    assert_eq!(first_stall(&events), None, "late is not stalled");
    told(&events).into_iter().next().map(|(_, s)| s)
}

#[test]
fn a_slow_gpu() {
    for kind in [Kind::Ddp, Kind::Fsdp, Kind::Mesh] {
        let slow = |rank: usize, _: usize, acts: &mut Vec<Act>| {
            for act in acts {
                if let (2, Act::Gpu(ns)) = (rank, act) {
                    *ns = *ns * 13 / 10;
                }
            }
        };
        let late = first(&Habits { kind, ..Habits::plain() }, slow).unwrap();
        assert_eq!((late.rank, late.of, late.persistent), (2, Lag::Compute, true), "{late:?}");
        assert!(late.late_ms > 2.0 && late.late_ms < 60.0, "{late:?}");
    }
}

#[test]
fn a_slow_host() {
    for kind in [Kind::Ddp, Kind::Fsdp] {
        let slow = |rank: usize, _: usize, acts: &mut Vec<Act>| {
            if rank == 1 {
                acts.insert(0, Act::Host(40 * MS));
            }
        };
        // It is late for the first collective of a step, of 5 or 15.
        let late = first(&Habits { kind, buckets: 5, ..Habits::plain() }, slow).unwrap();
        assert!(late.persistent, "{late:?}");
        assert_eq!((late.rank, late.of), (1, Lag::Host), "{late:?}");
        assert!((late.late_ms - 40.0).abs() < 15.0, "{late:?}");
    }
}

/// A job has run well for a while; the memory of it must not hide what goes on now for long. Late kernels are told once they have cost the
/// others a share of their time, of the last 512 collectives: ranks that take turns on a shared GPU are late in runs, too.
#[test]
fn late_since_a_moment_ago() {
    for (kind, before) in [(Kind::Ddp, 35), (Kind::Fsdp, 35), (Kind::Ddp, 400), (Kind::Fsdp, 400)] {
        let slow = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if rank == 0 && step >= before {
                acts.insert(0, Act::Gpu(250 * MS));
            }
        };
        let habits = Habits { kind, step: 100 * MS, buckets: 4, ..Habits::plain() };
        let onset = before as i64 * 120 * MS;
        let mut engine = engine();
        let events = follow(&mut job(&habits, 5, slow), &mut engine, onset + 16 * S, |_| false);
        let (at, late) = told(&events).into_iter().find(|(_, s)| s.persistent).unwrap();
        assert_eq!((late.rank, late.of), (0, Lag::Compute), "{late:?}");
        assert!(at < onset + 14 * S, "{kind:?}, {} s after {before} steps", (at - onset) / S);
    }
}

#[test]
fn late_now_and_then() {
    let slow = |rank: usize, step: usize, acts: &mut Vec<Act>| {
        if rank == 3 && step % 5 == 2 {
            acts.insert(0, Act::Host(300 * MS));
        }
    };
    let late = first(&Habits { buckets: 1, ..Habits::plain() }, slow).unwrap();
    assert_eq!((late.rank, late.of, late.persistent), (3, Lag::Host, false), "{late:?}");
    assert!(late.share > 0.1 && late.share < 0.4, "{late:?}");
}

#[test]
fn jitter_accuses_nobody() {
    for seed in 0..30 {
        let habits = Habits {
            jitter: 0.3,
            buckets: 1 + seed as usize % 4,
            ranks: 2 + seed as usize % 5,
            ..Habits::plain()
        };
        let mut engine = engine();
        let events = follow(&mut job(&habits, seed, |_, _, _| {}), &mut engine, 60 * S, |_| false);
        assert_eq!(told(&events), [], "{seed}");
        let late: Vec<f64> = engine.view().processes.iter().filter_map(|p| p.late_ms).collect();
        assert_eq!(late.len(), habits.ranks, "lateness is measured all the same");
        let busbw = engine.view().comms[0].busbw_gbs.unwrap();
        assert!(busbw > 0.1 && busbw < 1000.0, "{busbw}");
    }
}
