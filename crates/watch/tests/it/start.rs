//! Jobs that do not come to their first communicator, and those that merely take their time.

use ringleader_watch::digest::{CommDigest, Digest, OpDigest, ProcessState, RankDigest};
use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::{Event, Shape, Stall, What};

use crate::sim::{MS, S, START};

/// One rank as its agent sees it before it has a communicator.
#[derive(Clone, Debug)]
struct Rank {
    number: Option<u32>,
    local: u32,
    world: Option<u32>,
    local_world: Option<u32>,
    would_show: bool,
    /// Share of a processor that it uses, by the time in the job.
    cpu: fn(i64) -> f64,
    /// When it comes.
    comes: i64,
    stack: &'static [&'static str],
}

const IDLE: fn(i64) -> f64 = |_| 0.004;
const SPINS: fn(i64) -> f64 = |_| 0.99;
/// Imports for six seconds, then sleeps.
const IMPORTS: fn(i64) -> f64 = |t| if t < 6 * S { 0.9 } else { 0.002 };
const IN_NCCL: &[&str] = &[
    "<module> (train.py:90)",
    "init_process_group (torch/distributed/distributed_c10d.py:1764)",
    "_new_process_group_helper (torch/distributed/distributed_c10d.py:2024)",
];
const COMPILES: &[&str] = &["<module> (train.py:90)", "_compile (torch/_dynamo/convert_frame.py:1069)"];

fn rank(rank: u32, world: u32) -> Rank {
    Rank {
        number: Some(rank),
        local: rank,
        world: Some(world),
        local_world: Some(world),
        would_show: true,
        cpu: IMPORTS,
        comes: 0,
        stack: &[],
    }
}

fn ranks(world: u32) -> Vec<Rank> {
    (0..world).map(|r| rank(r, world)).collect()
}

/// Follows them for a time, with a patience of 60 s.
fn follow(ranks: &[Rank], until: i64, mut change: impl FnMut(i64, &mut Digest)) -> (Engine, Vec<Event>) {
    let mut engine = Engine::new(Settings { first_floor_ns: 60 * S, ..Settings::default() });
    let mut used = vec![0.0; ranks.len()];
    let mut events = Vec::new();
    let mut t = 0;
    while t < until {
        t += 500 * MS;
        let mut digest = Digest {
            node: "n0".to_owned(),
            agent: "a".to_owned(),
            sequence: (t / MS) as u64,
            at_ns: START + t,
            ..Digest::default()
        };
        for (index, rank) in ranks.iter().enumerate().filter(|(_, rank)| rank.comes <= t) {
            used[index] += (rank.cpu)(t) * 500.0;
            digest.ranks.push(RankDigest {
                rank: rank.number,
                local_rank: Some(rank.local),
                pid: 100 + index as u32,
                process: ProcessState::Alive,
                // As the kernel counts.
                cpu_ms: Some(used[index] as u64 / 10 * 10),
                world_size: rank.world,
                local_world_size: rank.local_world,
                would_show: rank.would_show,
                stack: rank.stack.iter().map(|frame| (*frame).to_owned()).collect(),
                ..RankDigest::default()
            });
        }
        change(t, &mut digest);
        engine.take(digest, START + t + 5 * MS);
        events.extend(engine.look(START + t + 10 * MS));
    }
    (engine, events)
}

fn stalls(events: &[Event]) -> Vec<Stall> {
    let of =
        |event: &Event| if let What::Stall(stall) = &event.what { Some((**stall).clone()) } else { None };
    events.iter().filter_map(of).collect()
}

/// The one stall that is called.
fn stall(ranks: &[Rank]) -> Stall {
    let (_, events) = follow(ranks, 100 * S, |_, _| {});
    let mut stalls = stalls(&events);
    assert_eq!(stalls.len(), 1, "{events:#?}");
    assert_eq!(stalls[0].shape, Shape::Start);
    stalls.remove(0)
}

fn silent(ranks: &[Rank]) {
    let (_, events) = follow(ranks, 400 * S, |_, _| {});
    assert_eq!(stalls(&events), [], "{ranks:#?}");
}

#[test]
fn a_rank_that_was_never_started() {
    let mut ranks = ranks(4);
    ranks.remove(1);
    let stall = stall(&ranks);
    assert_eq!(stall.suspects, [1]);
    assert_eq!(stall.text, "no communicator yet, and ranks 0,2-3 wait for it; rank 1 of 4 is not there");
    // The imports are over after six seconds.
    let since = stall.since - START as f64 / 1e9;
    assert!((5.0..10.0).contains(&since), "{since}");
    assert!(stall.after_s >= 60.0 && stall.after_s < 63.0, "{}", stall.after_s);
    assert_eq!(stall.states.len(), 3);
    assert!(stall.states[0].detail.starts_with("idle: 0."), "{}", stall.states[0].detail);
}

#[test]
fn numbers_that_contradict_each_other() {
    let mut twice = ranks(4);
    twice[3].number = Some(2);
    assert_eq!(stall(&twice).suspects, [2]);
    let mut larger = ranks(4);
    larger[1].world = Some(5);
    assert_eq!(stall(&larger).suspects, [1]);
    // One against one: either may be wrong.
    let mut two = ranks(2);
    two[1].world = Some(3);
    assert_eq!(stall(&two).suspects, [0, 1]);
}

/// Each rank is alone on its node, and three nodes of four are in sight.
#[test]
fn a_node_that_never_joins_is_named() {
    let mut nodes = ranks(4);
    nodes.remove(2);
    for rank in &mut nodes {
        (rank.local, rank.local_world) = (0, Some(1));
    }
    let seen = stall(&nodes);
    assert_eq!(seen.suspects, [2]);
    assert!(seen.text.ends_with("rank 2 of 4 is on no node that is watched"), "{}", seen.text);
    // Half of them may be anywhere.
    nodes.truncate(2);
    assert_eq!(stall(&nodes).suspects, Vec::<u32>::new());
}

#[test]
fn ranks_of_another_node_are_not_missing_here() {
    let mut half = ranks(4);
    for rank in &mut half {
        rank.world = Some(8);
    }
    let stall = stall(&half);
    assert_eq!(stall.suspects, Vec::<u32>::new());
    assert!(stall.text.ends_with("ranks 4-7 of 8 are on no node that is watched"), "{}", stall.text);
}

#[test]
fn waiting_in_nccl_spins() {
    let mut ranks = ranks(4);
    for rank in &mut ranks {
        (rank.cpu, rank.stack) = (SPINS, IN_NCCL);
    }
    let stall = stall(&ranks);
    assert!(stall.states[2].detail.contains("init_process_group"), "{}", stall.states[2].detail);
    // One of them still compiles, or does something of which nothing is known.
    ranks[2].stack = COMPILES;
    silent(&ranks);
    ranks[2].stack = &[];
    silent(&ranks);
    // It sleeps, whatever it waits for.
    ranks[2].cpu = IDLE;
    assert_eq!(self::stall(&ranks).suspects, Vec::<u32>::new());
}

#[test]
fn stacks_are_asked_for_only_where_they_tell() {
    let asks = |ranks: &[Rank], until| follow(ranks, until, |_, _| {}).0.asks_stacks();
    assert!(!asks(&ranks(4), 10 * S));
    assert!(asks(&ranks(4), 20 * S));
    let mut unseen = ranks(4);
    for rank in &mut unseen {
        rank.would_show = false;
    }
    assert!(asks(&unseen, 20 * S));
    // It may well train.
    assert!(!asks(&unseen, 200 * S));
    assert!(!asks(&ranks(1), 20 * S));
}

#[test]
fn whoever_works_or_comes_late_is_waited_for() {
    let mut loads = ranks(4);
    loads[0].cpu = |_| 0.3;
    silent(&loads);
    // Wakes now and then for a piece of work.
    loads[0].cpu = |t| if t / S % 20 == 0 { 0.8 } else { 0.0 };
    silent(&loads);
    let mut late = ranks(4);
    late[3].comes = 55 * S;
    let (_, events) = follow(&late, 110 * S, |_, _| {});
    assert_eq!(stalls(&events), []);
    let (_, events) = follow(&late, 130 * S, |_, _| {});
    assert_eq!(stalls(&events).len(), 1);
}

#[test]
fn jobs_that_meet_nobody() {
    // A single process; one without a rank; a launcher alone; of which nothing says how many there are.
    silent(&ranks(1));
    let nobody = Rank { number: None, ..rank(0, 4) };
    silent(&[nobody.clone(), nobody]);
    silent(&[Rank { world: None, ..rank(0, 4) }]);
    // Without plugin nobody sees whether they have a communicator: asleep they may train.
    let unseen: Vec<Rank> = ranks(4).into_iter().map(|rank| Rank { would_show: false, ..rank }).collect();
    silent(&unseen);
}

#[test]
fn without_the_plugin_the_stack_must_say_it() {
    let waits = |stack| -> Vec<Rank> {
        ranks(4).into_iter().map(|rank| Rank { would_show: false, stack, ..rank }).collect()
    };
    assert_eq!(stall(&waits(IN_NCCL)).shape, Shape::Start);
    // In a collective of a communicator that cannot be seen.
    silent(&waits(&["<module> (train.py:90)", "all_reduce (torch/distributed/distributed_c10d.py:3068)"]));
}

/// A rank of the stall ends, at once or a second after something seemed to move: nothing moves again.
#[test]
fn ranks_that_end_have_not_recovered() {
    let ends = |moves: bool, state: ProcessState| {
        move |t: i64, digest: &mut Digest| {
            for rank in digest.ranks.iter_mut().filter(|_| moves && t > 80 * S) {
                let comm =
                    CommDigest { id: "c0".to_owned(), size: 4, rank: rank.rank, ..CommDigest::default() };
                rank.comms.push(CommDigest { progress_ns: START + 80 * S, ..comm });
            }
            if t > 81 * S {
                digest.ranks[2].process = state;
            }
            if t > 82 * S {
                digest.ranks.retain(|rank| rank.rank != Some(2));
            }
        }
    };
    for (moves, state) in
        [(false, ProcessState::Dead), (true, ProcessState::Dead), (true, ProcessState::Zombie)]
    {
        let (_, events) = follow(&ranks(4), 90 * S, ends(moves, state));
        assert_eq!(stalls(&events)[0].shape, Shape::Start);
        let how: Vec<&What> = events
            .iter()
            .map(|event| &event.what)
            .filter(|what| matches!(what, What::Recovered { .. } | What::Over { .. }))
            .collect();
        // Where nothing moved the stall stands: its rank is gone.
        assert!(matches!((moves, &how[..]), (true, [What::Over { .. }]) | (false, [])), "{moves} {how:?}");
    }
}

#[test]
fn a_communicator_ends_the_wait() {
    let give = |t: i64, digest: &mut Digest| {
        if t > 80 * S {
            for rank in &mut digest.ranks {
                let comm =
                    CommDigest { id: "c0".to_owned(), size: 4, rank: rank.rank, ..CommDigest::default() };
                rank.comms.push(CommDigest { progress_ns: START + 80 * S, ..comm });
            }
        }
    };
    let (engine, events) = follow(&ranks(4), 90 * S, give);
    assert_eq!(stalls(&events).len(), 1);
    let recovered = events.iter().filter(|e| matches!(e.what, What::Recovered { .. })).count();
    assert_eq!(recovered, 1, "{events:#?}");
    assert!(!engine.asks_stacks());
    // All ended it and have something else to do: that is no start.
    let ends = |t: i64, digest: &mut Digest| {
        give(t + 70 * S, digest);
        if t > 20 * S {
            digest.ranks.iter_mut().for_each(|rank| {
                rank.is_ended = true;
                rank.comms.iter_mut().for_each(|comm| comm.is_ended = true);
            });
        }
    };
    let (_, events) = follow(&ranks(4), 300 * S, ends);
    assert_eq!(stalls(&events), []);
}

/// Ranks that are gone before the first operation: the others wait in vain.
#[test]
fn a_rank_that_ends_before_the_first_operation() {
    let gone = |t: i64, digest: &mut Digest| {
        if t > 10 * S {
            digest.ranks[1].process = ProcessState::Dead;
        }
    };
    let (_, events) = follow(&ranks(4), 20 * S, gone);
    let told = stalls(&events);
    assert_eq!(told.len(), 1, "{events:#?}");
    assert_eq!((told[0].shape, &told[0].suspects), (Shape::Process, &vec![1]));
    assert!(told[0].after_s < 6.5, "{}", told[0].after_s);
    // Reading a large file is state D for a while.
    let reads = |t: i64, digest: &mut Digest| {
        if t > 10 * S {
            digest.ranks[1].process = ProcessState::Uninterruptible;
        }
    };
    let (_, events) = follow(&ranks(4), 40 * S, reads);
    assert_eq!(stalls(&events), []);
    // Where no operation would show, the job may just end.
    let unseen: Vec<Rank> = ranks(4).into_iter().map(|rank| Rank { would_show: false, ..rank }).collect();
    let (_, events) = follow(&unseen, 20 * S, gone);
    assert_eq!(stalls(&events), []);
}

/// From six seconds on rank 0 waits in the first call, and rank 1 has not come to it: it stands there.
fn first_call(stack: &'static [&'static str], cpu: fn(i64) -> f64) -> Vec<Event> {
    let ranks = [rank(0, 2), Rank { cpu, stack, ..rank(1, 2) }];
    let (_, events) = follow(&ranks, 70 * S, |t, digest| {
        if t < 6 * S {
            return;
        }
        for (index, rank) in digest.ranks.iter_mut().enumerate() {
            let op = OpDigest {
                function: "AllReduce".to_owned(),
                count: 8,
                enqueued_ns: START + 6 * S,
                started_ns: Some(START + 6 * S),
                is_start_visible: true,
                ..OpDigest::default()
            };
            let is_inside = index == 0;
            rank.comms = vec![CommDigest {
                id: "beef".to_owned(),
                size: 2,
                rank: Some(index as u32),
                collectives: u64::from(is_inside),
                collectives_done: Some(0),
                progress_ns: START + 6 * S,
                moved_ns: START + 6 * S,
                n_in_flight: u32::from(is_inside),
                in_flight: if is_inside { vec![op] } else { Vec::new() },
                ..CommDigest::default()
            }];
            rank.seen_by = ringleader_watch::digest::SeenBy::Ring;
        }
    });
    events
}

fn at_s(event: &Event) -> f64 {
    event.at - START as f64 / 1e9
}

#[test]
fn who_waits_for_whom_is_told_long_before_the_alarm() {
    const LOADS: &[&str] = &[
        "<module> (train.py:90)",
        "_next_data (torch/utils/data/dataloader.py:788)",
        "wait (threading.py:327)",
    ];
    for (stack, cpu) in [(COMPILES, SPINS), (LOADS, IDLE)] {
        let events = first_call(stack, cpu);
        let told: Vec<&Event> = events.iter().filter(|e| matches!(e.what, What::Waiting(_))).collect();
        let What::Waiting(first) = &told[0].what else { panic!() };
        assert!((15.0..26.0).contains(&at_s(told[0])), "{}", at_s(told[0]));
        assert_eq!(first.suspects, [1]);
        let does = stack[1].split(' ').next().unwrap();
        assert!(first.text.contains("rank 1") && first.text.contains(does), "{}", first.text);
        // Once, and again when it has lasted twice as long: no flood.
        assert!((1..=3).contains(&told.len()), "{told:#?}");
        // It works, or somebody may for it: the alarm has its time.
        assert!(stalls(&events).iter().all(|stall| stall.after_s >= 60.0), "{:#?}", stalls(&events));
    }
}

#[test]
fn one_that_sleeps_where_nothing_ends_by_itself_is_an_early_alarm() {
    const LOCKED: &[&str] = &["<module> (train.py:90)", "sync (train.py:41)", "acquire (threading.py:327)"];
    let events = first_call(LOCKED, IDLE);
    let stalls = stalls(&events);
    assert_eq!(stalls.len(), 1, "{events:#?}");
    assert_eq!(stalls[0].suspects, [1]);
    assert!((30.0..45.0).contains(&stalls[0].after_s), "{}", stalls[0].after_s);
}

/// The root of a broadcast leaves it without the others, and waits in the next call for the rank that came to neither.
#[test]
fn a_root_that_has_gone_on_waits() {
    let comm = |rank: u32, collectives: u64, done: u64, in_flight: Vec<OpDigest>| CommDigest {
        id: "a".to_owned(),
        size: 2,
        rank: Some(rank),
        collectives,
        collectives_done: Some(done),
        progress_ns: START + S,
        moved_ns: START + S,
        n_in_flight: in_flight.len() as u32,
        in_flight,
        ..CommDigest::default()
    };
    let reduces = || OpDigest {
        number: 6,
        function: "AllReduce".to_owned(),
        count: 2,
        datatype: "ncclFloat32".to_owned(),
        enqueued_ns: START + S,
        started_ns: Some(START + S),
        is_start_visible: true,
        ..OpDigest::default()
    };
    let (_, events) = follow(&ranks(2), 100 * S, |_, digest| {
        for (rank, digest) in (0..).zip(&mut digest.ranks) {
            digest.seen_by = ringleader_watch::digest::SeenBy::Ring;
            digest.comms =
                vec![if rank == 0 { comm(0, 7, 6, vec![reduces()]) } else { comm(1, 4, 4, vec![]) }];
        }
    });
    let waits = events.iter().find_map(|event| match &event.what {
        What::Waiting(wait) => Some((wait.suspects.clone(), wait.op.number)),
        _ => None,
    });
    assert_eq!(waits, Some((vec![1], 6)), "{events:#?}");
    assert_eq!(stalls(&events).iter().map(|stall| stall.suspects.clone()).collect::<Vec<_>>(), [vec![1]]);
}
