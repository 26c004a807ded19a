//! What holds whatever comes.

use proptest::prelude::*;
use ringleader_watch::digest::{CommDigest, Digest, OpDigest, ProcessState, RankDigest, SeenBy, WaitDigest};
use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::{Event, Shape, What};
use ringleader_watch::view::{JobState, Sees};

use crate::jobs::{Habits, engine, first_stall, follow, job};
use crate::sim::{Dice, MS, S, START};

#[test]
fn the_order_of_digests_does_not_matter() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let habits = Habits { nodes: 4, ..Habits::by(&mut dice) };
        let mut sim = job(&habits, seed, |_, _, _| {});
        let mut rounds = Vec::new();
        for round in 0..20_u64 {
            let t = habits.compile + 10 * S + round as i64 * 700 * MS;
            sim.advance(t);
            let nodes = sim.n_nodes;
            rounds.push((t, (0..nodes).map(|n| sim.digest(n, t, round + 1)).collect::<Vec<Digest>>()));
        }
        let views = [false, true].map(|shuffled| {
            let mut engine = engine();
            let mut out = Vec::new();
            let mut old = Vec::new();
            for (t, digests) in &rounds {
                let mut digests = digests.clone();
                if shuffled {
                    digests.sort_by_key(|d| {
                        Dice::new(
                            seed ^ *t as u64
                                ^ d.node.len() as u64
                                ^ d.node.bytes().map(u64::from).sum::<u64>(),
                        )
                        .next()
                    });
                    // One that comes late, and one twice.
                    digests.extend(old.pop());
                    digests.push(digests[0].clone());
                }
                for digest in &digests {
                    engine.take(digest.clone(), START + t);
                }
                old.push(digests[0].clone());
                out.push((engine.look(START + t), engine.view().clone()));
            }
            out
        });
        assert_eq!(views[0], views[1], "seed {seed}");
    }
}

/// A communicator as RAS shows it.
fn counted(rank: u32, collectives: u64) -> RankDigest {
    RankDigest {
        rank: Some(rank),
        pid: 100 + rank,
        process: ProcessState::Alive,
        seen_by: SeenBy::Ras,
        comms: vec![CommDigest {
            id: "77".to_owned(),
            size: 4,
            rank: Some(rank),
            collectives,
            ..CommDigest::default()
        }],
        ..RankDigest::default()
    }
}

fn say(node: &str, sequence: u64, at_ns: i64, ranks: Vec<RankDigest>) -> Digest {
    Digest { node: node.to_owned(), agent: "a".to_owned(), sequence, at_ns, ranks, ..Digest::default() }
}

/// Looks twice a second; `counts` of each rank by the number of the look.
fn by_counts(looks: u64, counts: impl Fn(u32, u64) -> u64) -> (Engine, Vec<(i64, Event)>) {
    let mut engine = Engine::new(Settings::default());
    let mut out = Vec::new();
    for look in 0..looks {
        let t = look as i64 * 500 * MS;
        engine.take(
            say("n", look + 1, START + t, (0..4).map(|r| counted(r, counts(r, look))).collect()),
            START + t,
        );
        out.extend(engine.look(START + t).into_iter().map(|e| (t, e)));
    }
    (engine, out)
}

#[test]
fn counts_of_ras_alone() {
    // Rank 2 calls no more after a while; the others call once again and wait.
    let (engine, events) =
        by_counts(300, |rank, look| if look < 200 { look * 3 } else { 600 + u64::from(rank != 2) });
    let (t, stall) = first_stall(&events).unwrap();
    assert_eq!((stall.shape, &*stall.suspects), (Shape::NeverEntered, &[2_u32][..]), "{stall:?}");
    assert!(t > 104 * S && t < 108 * S, "{t}");
    assert_eq!(engine.view().sees, Sees::Ras);
    assert!(engine.view().cannot_see.iter().any(|s| s.contains("no plugin")));
    // Healthy, with ranks ahead of each other for a moment.
    let (_, events) = by_counts(400, |rank, look| look * 3 + u64::from(rank) % 2);
    assert_eq!(first_stall(&events), None);
    // All have called the same: whether they wait or are outside does not show.
    let (_, events) = by_counts(400, |_, look| look.min(200) * 3);
    assert_eq!(first_stall(&events), None);
}

#[test]
fn calls_whose_end_nobody_tells_of() {
    let rank = |rank: u32, calls: u64, missing: bool| {
        let mut digest = counted(rank, calls - u64::from(missing));
        let comm = &mut digest.comms[0];
        comm.collectives_done = Some(0);
        comm.moved_ns = START;
        comm.period = Some(ringleader_watch::digest::PeriodDigest {
            ops: 1,
            repeats: 50,
            step_ns: S / 5,
            span_ns: 10 * S,
            is_training: true,
        });
        let op = |number| OpDigest {
            number,
            function: "Broadcast".to_owned(),
            is_end_unseen: true,
            enqueued_ns: START,
            ..OpDigest::default()
        };
        comm.in_flight = (calls - 3..calls - u64::from(missing)).map(op).collect();
        comm.n_in_flight = comm.in_flight.len() as u32;
        RankDigest { seen_by: SeenBy::Ring, ..digest }
    };
    for bad in [None, Some(1)] {
        let mut engine = engine();
        let mut events = Vec::new();
        for look in 0..40_u64 {
            let t = look as i64 * 500 * MS;
            let ranks = (0..4).map(|r| rank(r, 9, bad == Some(r))).collect();
            engine.take(say("n", look + 1, START + t, ranks), START + t);
            events.extend(engine.look(START + t).into_iter().map(|e| (t, e)));
        }
        let suspects = first_stall(&events).map(|(_, s)| s.suspects);
        assert_eq!(suspects, bad.map(|r| vec![r]), "all have called: they may have gone through");
    }
}

#[test]
fn processes_alone() {
    let mut engine = engine();
    let mut events = Vec::new();
    for look in 0..120_u64 {
        let t = look as i64 * 500 * MS;
        let process = |rank: u32| RankDigest {
            rank: Some(rank),
            pid: rank + 1,
            process: if rank == 1 && look > 60 { ProcessState::Stopped } else { ProcessState::Alive },
            ..RankDigest::default()
        };
        engine.take(say("n", look + 1, START + t, (0..3).map(process).collect()), START + t);
        events.extend(engine.look(START + t).into_iter().map(|e| (t, e)));
    }
    let (_, stall) = first_stall(&events).unwrap();
    assert_eq!((stall.shape, &*stall.suspects), (Shape::Process, &[1_u32][..]));
    assert_eq!(engine.view().sees, Sees::Processes);
}

#[test]
fn a_hang_that_was_there_before_anybody_looked() {
    // The rings show what the rhythm was.
    let twist = |rank: usize, step: usize, acts: &mut Vec<crate::sim::Act>| {
        if rank == 2 && step == 150 {
            acts.insert(0, crate::sim::Act::Host(i64::MAX / 4));
        }
    };
    let mut sim = job(&Habits::plain(), 3, twist);
    sim.advance(120 * S);
    let mut engine = engine();
    let t = 120 * S;
    for node in 0..2 {
        let digest = sim.digest(node, t, 1);
        engine.take(digest, START + t);
    }
    let events: Vec<(i64, Event)> = engine.look(START + t).into_iter().map(|e| (t, e)).collect();
    let (_, stall) = first_stall(&events).unwrap();
    assert_eq!((stall.shape, &*stall.suspects), (Shape::NeverEntered, &[2_u32][..]));
    assert!(stall.after_s > 60.0, "{stall:?}");
    assert_eq!(engine.view().job, JobState::Stalled);
}

#[test]
fn events_are_json_as_the_contract_has_it() {
    let mut sim = job(&Habits::plain(), 3, |rank, step, acts| {
        if (rank, step) == (1, 100) {
            acts.insert(0, crate::sim::Act::Host(i64::MAX / 4));
        }
    });
    let events = follow(&mut sim, &mut engine(), 60 * S, |_| false);
    let mut names = std::collections::BTreeSet::new();
    for (_, event) in &events {
        let line = serde_json::to_value(event).unwrap();
        assert_eq!(line["schema"], "ringleader.watch.v1");
        assert!(line["at"].as_f64().unwrap() > 1.6e9);
        names.insert(line["event"].as_str().unwrap().to_owned());
        if line["event"] == "stall" {
            assert_eq!(line["op"]["kind"], "AllReduce");
            assert_eq!(line["suspects"], serde_json::json!([1]));
            let state = &line["states"][0];
            assert_eq!(
                (&state["rank"], &state["state"]),
                (&serde_json::json!(1), &serde_json::json!("never-entered"))
            );
            assert!(state["host"].is_string() && state["pid"].is_u64() && state["detail"].is_string());
            assert!(line["since"].is_f64() && line["after_s"].is_f64() && line["expected_s"].is_f64());
        }
        assert_eq!(serde_json::from_value::<Event>(line).unwrap(), *event);
    }
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["progress", "stall", "watching"]);
}

#[test]
fn an_empty_job_is_none() {
    let mut engine = engine();
    assert_eq!(engine.look(START), []);
    assert_eq!(engine.view().job, JobState::Unseen);
    engine.take(say("n", 1, START, Vec::new()), START);
    assert_eq!(engine.look(START + S), []);
}

prop_compose! {
    fn op()(number in 0..6_u64, kind in 0..4_usize, count in 0..3_u64, peer in 0..5_u32, started in any::<bool>(), visible in any::<bool>(), wait in proptest::option::of((0..5_u32, any::<bool>()))) -> OpDigest {
        OpDigest {
            number,
            function: ["AllReduce", "Send", "Recv", "Broadcast"][kind].to_owned(),
            count,
            peer: (kind == 1 || kind == 2).then_some(peer),
            enqueued_ns: START + number as i64 * S,
            started_ns: started.then_some(START + number as i64 * S),
            is_start_visible: visible,
            waits: wait.map(|(peer, is_send)| WaitDigest { peer, is_send, phase: "recv-net".to_owned(), ..WaitDigest::default() }).into_iter().collect(),
            ..OpDigest::default()
        }
    }
}

prop_compose! {
    fn comm()(id in 0..3_u64, size in 0..4_u32, rank in proptest::option::of(0..5_u32), collectives in 0..7_u64, done in proptest::option::of(0..7_u64), moved in 0..9_i64, ended in any::<bool>(), ops in proptest::collection::vec(op(), 0..4)) -> CommDigest {
        CommDigest {
            id: if id == 0 { String::new() } else { id.to_string() },
            size,
            rank,
            collectives,
            collectives_done: done,
            moved_ns: if moved == 0 { 0 } else { START + moved * S },
            is_ended: ended,
            n_in_flight: ops.len() as u32,
            in_flight: ops,
            ..CommDigest::default()
        }
    }
}

prop_compose! {
    fn process()(rank in proptest::option::of(0..5_u32), pid in 0..6_u32, state in 0..6_usize, seen in 0..3_usize, ended in any::<bool>(), comms in proptest::collection::vec(comm(), 0..4)) -> RankDigest {
        use ProcessState::{Alive, Dead, Stopped, Uninterruptible, Unknown, Zombie};
        RankDigest {
            rank,
            pid,
            process: [Unknown, Alive, Stopped, Uninterruptible, Zombie, Dead][state],
            seen_by: [SeenBy::Process, SeenBy::Ras, SeenBy::Ring][seen],
            is_ended: ended,
            comms,
            ..RankDigest::default()
        }
    }
}

proptest! {
    /// Whatever agents say, the engine answers, the same each time, and what it says can be printed and read again.
    #[test]
    fn nonsense_is_survived(
        said in proptest::collection::vec((0..4_usize, 0..20_u64, 0..40_i64, proptest::collection::vec(process(), 0..4)), 0..12),
    ) {
        let run = || {
            let mut engine = engine();
            let mut events = Vec::new();
            for (node, sequence, at, ranks) in &said {
                engine.take(say(&format!("n{node}"), *sequence, START + at * S, ranks.clone()), START + at * S);
                events.extend(engine.look(START + at * S));
            }
            events.extend(engine.look(START + 2000 * S));
            (events, engine.view().clone())
        };
        let (events, view) = run();
        prop_assert_eq!((&events, &view), (&run().0, &run().1));
        for event in &events {
            let line = serde_json::to_string(event).unwrap();
            let read = serde_json::from_str::<Event>(&line).unwrap();
            prop_assert_eq!(std::mem::discriminant(&read.what), std::mem::discriminant(&event.what));
            if let What::Stall(stall) = &event.what {
                prop_assert!(stall.states.len() <= ringleader_watch::event::MAX_STATES);
            }
        }
        let line = serde_json::to_string(&view).unwrap();
        let read = serde_json::from_str::<ringleader_watch::view::View>(&line).unwrap();
        prop_assert_eq!((read.comms.len(), read.processes.len()), (view.comms.len(), view.processes.len()));
    }
}
