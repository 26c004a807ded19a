//! Jobs with one planted fault: named in time, with the right ranks.

use ringleader_watch::digest::ProcessState;
use ringleader_watch::event::{Shape, Stall, What};

use crate::jobs::{Habits, Kind, engine, first_stall, follow, job};
use crate::sim::{Act, Dice, MS, S, Sim};

/// Time by which a stall has to be named after nothing moves any more: the floor of 5 s, twice the interval of the agents,
/// and the interval of the looks.
const BOUND: i64 = 5 * S + 2 * S;
const FOREVER: i64 = i64::MAX / 4;

struct Told {
    stall: Stall,
    delay: i64,
}

/// Follows until the first stall; how long after `fault` it was told.
fn watch(sim: &mut Sim, fault: i64) -> Option<Told> {
    let mut engine = engine();
    let stalls =
        |events: &[ringleader_watch::event::Event]| events.iter().any(|e| matches!(e.what, What::Stall(_)));
    let events = follow(sim, &mut engine, fault + 40 * S, stalls);
    first_stall(&events).map(|(t, stall)| Told { stall, delay: t - fault })
}

/// Job of 150 ms steps, its habits by seed; the rank and the step of the fault, and its time.
fn scene(seed: u64, kind: Kind, ranks: usize) -> (Habits, usize, usize, i64) {
    let mut dice = Dice::new(seed ^ 0x5eed);
    let habits = Habits {
        ranks,
        nodes: 2,
        kind,
        buckets: 1 + dice.below(4) as usize,
        checkpoint: dice.chance(0.5).then_some((20, 3.0)),
        ..Habits::plain()
    };
    let at = 90 + dice.below(40) as usize;
    (habits, dice.below(ranks as u64) as usize, at, 0)
}

/// When the last collective that everybody ended, ended.
fn last_end(sim: &mut Sim) -> i64 {
    sim.advance(200 * S);
    sim.newest_end()
}

/// Plants a change of a rank's program, and says what is told and how long after the last progress.
fn plant(
    seed: u64,
    kind: Kind,
    ranks: usize,
    change: impl Fn(&mut Vec<Act>) + Clone + 'static,
) -> (Option<Told>, usize) {
    let (habits, bad, at, _) = scene(seed, kind, ranks);
    let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
        if (rank, step) == (bad, at) {
            change(acts);
        }
    };
    let fault = last_end(&mut job(&habits, seed, twist.clone()));
    (watch(&mut job(&habits, seed, twist), fault), bad)
}

fn first_collective(acts: &[Act]) -> usize {
    acts.iter().position(|a| matches!(a, Act::Coll { .. })).unwrap()
}

/// Runs over seeds; the shape and the rank have to be right in all, and in time.
fn each(name: &str, shape: Shape, run: impl Fn(u64) -> (Option<Told>, Vec<u32>)) {
    let mut delays = Vec::new();
    for seed in 0..12 {
        let (told, suspects) = run(seed);
        let told = told.unwrap_or_else(|| panic!("{name} {seed}: nothing was told"));
        assert_eq!(
            (told.stall.shape, &told.stall.suspects),
            (shape, &suspects),
            "{name} {seed}: {:#?}",
            told.stall
        );
        assert!(told.delay <= BOUND, "{name} {seed}: {} ms, {}", told.delay / MS, told.stall.text);
        delays.push(told.delay);
    }
    delays.sort_unstable();
    eprintln!(
        "{name}: median {} ms, worst {} ms after the last progress",
        delays[delays.len() / 2] / MS,
        delays[delays.len() - 1] / MS
    );
}

const KINDS: [Kind; 3] = [Kind::Ddp, Kind::Fsdp, Kind::Mesh];

#[test]
fn a_host_that_is_stuck_outside() {
    each("stuck outside", Shape::NeverEntered, |seed| {
        let (told, bad) = plant(seed, KINDS[seed as usize % 3], 4, |acts| acts.insert(0, Act::Host(FOREVER)));
        (told, vec![bad as u32])
    });
}

#[test]
fn a_call_that_is_left_out() {
    // The last call of a kind: nothing differs, one rank is behind.
    each("skipped", Shape::NeverEntered, |seed| {
        let (told, bad) = plant(seed, Kind::Ddp, 4, |acts| {
            let at = first_collective(acts);
            acts.truncate(at);
            acts.push(Act::Host(FOREVER));
        });
        (told, vec![bad as u32])
    });
    // What follows differs.
    each("skipped, others follow", Shape::Mismatch, |seed| {
        let (habits, bad, at, _) = scene(seed, Kind::Ddp, 4);
        let habits = Habits { buckets: 3, checkpoint: None, ..habits };
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if (rank, step) == (bad, at) {
                acts.remove(first_collective(acts));
            }
        };
        let fault = last_end(&mut job(&habits, seed, twist));
        (watch(&mut job(&habits, seed, twist), fault), vec![bad as u32])
    });
}

#[test]
fn a_call_of_another_size_or_kind() {
    each("size", Shape::Mismatch, |seed| {
        let (told, bad) = plant(seed, Kind::Ddp, 4, |acts| {
            let at = first_collective(acts);
            acts[at] = Act::Coll { comm: 0, function: "AllReduce", count: 77 };
        });
        (told, vec![bad as u32])
    });
    each("kind", Shape::Mismatch, |seed| {
        let (told, bad) = plant(seed, Kind::Ddp, 4, |acts| {
            let at = first_collective(acts);
            acts[at] = Act::Coll { comm: 0, function: "Broadcast", count: 1_000_000 };
        });
        (told, vec![bad as u32])
    });
}

#[test]
fn a_call_too_many() {
    each("extra", Shape::NeverEntered, |seed| {
        let (told, bad) = plant(seed, Kind::Ddp, 5, |acts| {
            // After its own step, alone; the others are held up by the host of nobody.
            acts.push(Act::Coll { comm: 0, function: "AllReduce", count: 3 });
            acts.push(Act::Sync);
        });
        // The others go on to their next call, which differs: then it is a mismatch, or they are not there yet.
        let told = told.map(|mut told| {
            assert!(matches!(told.stall.shape, Shape::Mismatch | Shape::NeverEntered), "{:?}", told.stall);
            told.stall.shape = Shape::NeverEntered;
            told
        });
        (told, vec![bad as u32])
    });
}

#[test]
fn a_kernel_without_end() {
    each("endless kernel", Shape::NotStarted, |seed| {
        let (told, bad) = plant(seed, KINDS[seed as usize % 3], 4, |acts| {
            let at = first_collective(acts);
            acts.insert(at, Act::Gpu(FOREVER));
        });
        (told, vec![bad as u32])
    });
}

#[test]
fn a_process_that_is_stopped_gone_or_hangs() {
    for state in
        [ProcessState::Stopped, ProcessState::Dead, ProcessState::Zombie, ProcessState::Uninterruptible]
    {
        each(&format!("{state:?}"), Shape::Process, |seed| {
            let (habits, bad, at, _) = scene(seed, KINDS[seed as usize % 3], 4);
            let mut sim = job(&habits, seed, |_, _, _| {});
            let when = at as i64 * 200 * MS;
            sim.ranks[bad].broken = Some((when, state));
            let told = watch(&mut sim, when);
            let early = told.as_ref().is_some_and(|t| t.delay < 5 * S);
            assert!(early || state == ProcessState::Uninterruptible, "sooner than by rhythm alone");
            (told, vec![bad as u32])
        });
    }
}

#[test]
fn a_stopped_process_needs_no_rhythm() {
    let habits = Habits { compile: 300 * S, ..Habits::plain() };
    let mut sim = job(&habits, 1, |_, _, _| {});
    // While the others have left the first step's compilation behind, it is stopped in it.
    sim.ranks[2].broken = Some((60 * S, ProcessState::Stopped));
    let mut engine = engine();
    let events = follow(&mut sim, &mut engine, 420 * S, |_| false);
    let (t, stall) = first_stall(&events).unwrap();
    assert_eq!((stall.shape, &*stall.suspects), (Shape::Process, &[2_u32][..]));
    assert!(t > 250 * S && t < 345 * S, "{t}");
}

#[test]
fn a_node_of_which_nothing_is_heard() {
    each("silent node", Shape::Silent, |seed| {
        let (habits, bad, at, _) = scene(seed, Kind::Ddp, 4);
        let mut sim = job(&habits, seed, |_, _, _| {});
        let when = at as i64 * 200 * MS;
        let node = sim.ranks[bad].node;
        let of_node: Vec<usize> = (0..4).filter(|r| sim.ranks[*r].node == node).collect();
        for rank in &of_node {
            sim.ranks[*rank].broken = Some((when, ProcessState::Alive));
        }
        sim.nodes[node].2 = when;
        (watch(&mut sim, when), of_node.into_iter().map(|r| r as u32).collect())
    });
}

#[test]
fn a_silent_agent_of_a_job_that_runs_is_no_stall() {
    let mut sim = job(&Habits::plain(), 3, |_, _, _| {});
    sim.nodes[1].2 = 20 * S;
    let mut engine = engine();
    let events = follow(&mut sim, &mut engine, 60 * S, |_| false);
    assert_eq!(first_stall(&events), None);
    assert!(
        engine.view().cannot_see.iter().any(|s| s.contains("node0001")),
        "{:?}",
        engine.view().cannot_see
    );
}

#[test]
fn a_network_path_that_goes_silent() {
    each("network", Shape::Network, |seed| {
        let (habits, _, at, _) = scene(seed, Kind::Ddp, 4);
        let mut sim = job(&habits, seed, |_, _, _| {});
        let when = at as i64 * 200 * MS;
        // Ranks 0 and 1 are on one host, 2 and 3 on the other: two ways lead across.
        let (from, to) = if seed % 2 == 0 { (1, 2) } else { (3, 0) };
        sim.groups[0].cut = Some((when, from, to));
        let told = watch(&mut sim, when);
        if let Some(told) = &told {
            assert!(
                told.stall.text.contains("node0000") && told.stall.text.contains("node0001"),
                "{}",
                told.stall.text
            );
        }
        (told, if seed % 2 == 0 { vec![1, 2] } else { vec![0, 3] })
    });
}

#[test]
fn a_host_that_is_stuck_in_the_first_seconds() {
    for seed in 0..12 {
        let (habits, bad, ..) = scene(seed, KINDS[seed as usize % 3], 4);
        let compile = seed as i64 * S;
        let habits = Habits { checkpoint: None, compile, buckets: 2 + seed as usize % 3, ..habits };
        // Not three seconds of training.
        let at = 17 + seed as usize % 3;
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if (rank, step) == (bad, at) {
                acts.insert(0, Act::Host(FOREVER));
            }
        };
        let fault = last_end(&mut job(&habits, seed, twist));
        let told = watch(&mut job(&habits, seed, twist), fault)
            .unwrap_or_else(|| panic!("{seed}: nothing was told"));
        assert_eq!(
            (told.stall.shape, &told.stall.suspects),
            (Shape::NeverEntered, &vec![bad as u32]),
            "{seed}"
        );
        // A young rhythm has half as much patience again; how long the first step took does not matter.
        assert!(told.delay <= BOUND + 5 * S / 2, "{seed}: {} ms", told.delay / MS);
    }
}

#[test]
fn slow_first_steps_are_no_habit() {
    for seed in 0..6 {
        let (habits, bad, ..) = scene(seed, KINDS[seed as usize % 3], 4);
        let habits = Habits { checkpoint: None, buckets: 2 + seed as usize % 3, ..habits };
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            let is_first = (1..5).contains(&step) && rank == (bad + 1) % 4;
            if is_first {
                acts.insert(0, Act::Host(2 * S));
            }
            if (rank, step) == (bad, 45) {
                acts.insert(0, Act::Host(FOREVER));
            }
        };
        let fault = last_end(&mut job(&habits, seed, twist));
        let told = watch(&mut job(&habits, seed, twist), fault)
            .unwrap_or_else(|| panic!("{seed}: nothing was told"));
        assert_eq!(told.stall.suspects, [bad as u32], "{seed}");
        assert!(
            told.delay <= BOUND,
            "{seed}: {} ms, {:.1} s expected",
            told.delay / MS,
            told.stall.expected_s
        );
    }
}

#[test]
fn a_circle_over_two_groups() {
    // Ranks 0 and 3 call row then column, 1 and 2 column then row.
    for own_streams in [false, true] {
        let habits = Habits { kind: Kind::Mesh, buckets: 2, ..Habits::plain() };
        let twist = |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if step == 100 && (rank == 1 || rank == 2) {
                acts.retain(|a| !matches!(a, Act::Gpu(_)));
                acts.swap(0, 1);
            }
            if step == 100 {
                // One after the other: each waits for its end.
                let at = first_collective(acts);
                acts.insert(at + 1, Act::Sync);
            }
        };
        let mut sim = job(&habits, 5, twist);
        sim.own_streams = own_streams;
        let fault = last_end(&mut job(&habits, 5, twist));
        let told = watch(&mut sim, fault).unwrap();
        assert_eq!(
            (told.stall.shape, &*told.stall.suspects),
            (Shape::Cycle, &[0_u32, 1, 2, 3][..]),
            "{:#?}",
            told.stall
        );
        assert!(told.delay <= BOUND);
    }
}

/// Calls of a server: each step has other sizes and another number of them, and pauses of its own.
fn irregular(step: usize, acts: &mut Vec<Act>) {
    let dice = |n: usize| (step * 7 + n).wrapping_mul(2_654_435_761) >> 7;
    let Some(at) = acts.iter().position(|act| matches!(act, Act::Coll { .. })) else { return };
    let call = acts[at].clone();
    for n in 0..=dice(0) % 9 {
        let mut call = call.clone();
        if let Act::Coll { count, .. } = &mut call {
            *count = (1 + dice(n + 1) % 5_000) as u64;
        }
        acts.insert(at, call);
    }
    acts.insert(0, Act::Host((dice(99) % 1_500) as i64 * MS));
}

#[test]
fn all_are_inside_where_no_rhythm_shows() {
    let habits = Habits { kind: Kind::Ddp, ..Habits::plain() };
    let twist = |_: usize, step: usize, acts: &mut Vec<Act>| irregular(step, acts);
    let fault = 12 * S;
    let mut sim = job(&habits, 5, twist);
    sim.groups[0].cut = Some((fault, 1, 2));
    let told = watch(&mut sim, fault).unwrap();
    assert!(told.delay <= 25 * S, "{} s", told.delay / S);
    assert!(told.stall.expected_s >= 20.0, "a rhythm was seen: {:#?}", told.stall);
}

#[test]
fn a_send_that_is_missing() {
    // A rank leaves out one send, and goes to the collective at the end of the step.
    for seed in 0..6 {
        let culprit = seed as usize % 2;
        let habits = Habits { kind: Kind::Pipeline, buckets: 4, ..Habits::plain() };
        let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
            if (rank, step) == (culprit, 100) {
                let at = acts.iter().rposition(|a| matches!(a, Act::Pair { is_send: true, .. })).unwrap();
                acts.remove(at);
            }
        };
        let fault = last_end(&mut job(&habits, seed, twist));
        let told = watch(&mut job(&habits, seed, twist), fault).unwrap();
        assert_eq!(
            (told.stall.shape, &*told.stall.suspects),
            (Shape::UnmatchedP2p, &[culprit as u32][..]),
            "{:#?}",
            told.stall
        );
        assert!(told.delay <= BOUND);
    }
}

#[test]
fn a_stage_of_a_pipeline() {
    for (shape, act) in [(Shape::NeverEntered, Act::Host(FOREVER)), (Shape::NotStarted, Act::Gpu(FOREVER))] {
        for seed in 0..6 {
            let act = act.clone();
            let habits = Habits { kind: Kind::Pipeline, buckets: 4, ..Habits::plain() };
            let twist = move |rank: usize, step: usize, acts: &mut Vec<Act>| {
                if (rank, step) == (1, 100) {
                    acts.insert(0, act.clone());
                }
            };
            let fault = last_end(&mut job(&habits, seed, twist.clone()));
            let told = watch(&mut job(&habits, seed, twist), fault).unwrap();
            assert_eq!((told.stall.shape, &*told.stall.suspects), (shape, &[1_u32][..]), "{:#?}", told.stall);
            assert!(told.delay <= BOUND);
        }
    }
}

#[test]
fn a_communicator_that_is_seldom_used() {
    // All come together for a checkpoint for the first time, and one does not.
    let habits = Habits { kind: Kind::Mesh, checkpoint: Some((100, 0.0)), ..Habits::plain() };
    let twist = |rank: usize, step: usize, acts: &mut Vec<Act>| {
        if (rank, step) == (2, 99) {
            let at = acts.iter().rposition(|a| matches!(a, Act::Coll { comm: 0, .. })).unwrap();
            acts.insert(at, Act::Host(FOREVER));
        }
    };
    let fault = last_end(&mut job(&habits, 1, twist));
    let told = watch(&mut job(&habits, 1, twist), fault).unwrap();
    assert_eq!(
        (told.stall.shape, &*told.stall.suspects, &*told.stall.comm),
        (Shape::NeverEntered, &[2_u32][..], "abc0")
    );
    assert!(told.delay <= 2 * BOUND, "{}", told.delay);
}

#[test]
fn it_moves_again() {
    // Stopped for 20 s, then goes on: told, and told that it is over; the same again is told again.
    let habits = Habits::plain();
    let twist = |rank: usize, step: usize, acts: &mut Vec<Act>| {
        if rank == 3 && (step == 100 || step == 300) {
            acts.insert(0, Act::Host(20 * S));
        }
    };
    let events = follow(&mut job(&habits, 2, twist), &mut engine(), 150 * S, |_| false);
    let names: Vec<&str> = events
        .iter()
        .filter_map(|(_, e)| match &e.what {
            What::Stall(s) => Some(if s.suspects == [3] { "stall" } else { "wrong" }),
            What::Recovered { .. } => Some("recovered"),
            _ => None,
        })
        .collect();
    // The second time such a pause is known.
    assert_eq!(names, ["stall", "recovered"], "{events:#?}");
}
