//! Jobs in which no operation can be seen: who stands where, by stacks, processor time and whether the main thread runs.

use ringleader_watch::digest::{CommDigest, Digest, ProcessState, RankDigest, SeenBy};
use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::{Event, Shape, Stall, What};

use crate::sim::{MS, S, START};

/// When the job comes to rest.
const REST: i64 = 20 * S;
/// Between two looks at the stacks.
const LOOK: i64 = 3 * S;

const REDUCE: &[&str] = &[
    "<module> (train.py:19)",
    "main (train.py:14)",
    "wrapper (torch/distributed/c10d_logger.py:83)",
    "all_reduce (torch/distributed/distributed_c10d.py:3075)",
];
const BARRIER: &[&str] =
    &["<module> (train.py:19)", "save (train.py:40)", "barrier (torch/distributed/distributed_c10d.py:4100)"];
const INIT: &[&str] =
    &["<module> (train.py:19)", "init_process_group (torch/distributed/distributed_c10d.py:1764)"];
const LOADS: &[&str] = &["<module> (train.py:19)", "main (train.py:11)", "load_batch (train.py:18)"];
const FETCHES: &[&str] = &["<module> (train.py:19)", "get (queue.py:171)", "wait (threading.py:327)"];

/// What a rank does once the job has come to rest.
#[derive(Clone)]
struct Rest {
    stack: &'static [&'static str],
    wchan: &'static str,
    /// Its main thread wakes now and then.
    wakes: bool,
    /// Share of a processor that it uses, and what it has started.
    cpu: (f64, f64),
}

fn waits(stack: &'static [&'static str]) -> Rest {
    Rest { stack, wchan: "futex_do_wait", wakes: false, cpu: (0.0, 0.0) }
}

fn sleeps() -> Rest {
    Rest { stack: LOADS, wchan: "hrtimer_nanosleep", ..waits(LOADS) }
}

/// Follows two ranks that train until they come to rest. `world`: how many ranks each says there are.
fn follow(ranks: &[Rest], world: u32, until: i64) -> Vec<Event> {
    follow_with(ranks, world, until, false)
}

/// The same; the ranks may have a communicator, in which nothing is in flight.
fn follow_with(ranks: &[Rest], world: u32, until: i64, has_comm: bool) -> Vec<Event> {
    let mut engine = Engine::new(Settings { first_floor_ns: 120 * S, ..Settings::default() });
    let mut events = Vec::new();
    let (mut used, mut below) = (vec![0.0; ranks.len()], vec![0.0; ranks.len()]);
    let mut switches = vec![0_u64; ranks.len()];
    let (mut stacks_ns, mut t) = (0, 0);
    while t < until {
        t += 500 * MS;
        let rests = t > REST;
        if !engine.asks_stacks() {
            stacks_ns = 0;
        } else if stacks_ns == 0 || t - stacks_ns >= LOOK {
            stacks_ns = t;
        }
        let mut digest = Digest {
            node: "n0".to_owned(),
            agent: "a".to_owned(),
            sequence: (t / MS) as u64,
            at_ns: START + t,
            ..Digest::default()
        };
        for (index, rest) in ranks.iter().enumerate() {
            let cpu = if rests { rest.cpu } else { (0.4, 0.0) };
            used[index] += cpu.0 * 500.0;
            below[index] += cpu.1 * 500.0;
            switches[index] += u64::from(!rests || rest.wakes);
            let has_stack = stacks_ns > 0;
            digest.ranks.push(RankDigest {
                rank: Some(index as u32),
                local_rank: Some(index as u32),
                pid: 100 + index as u32,
                process: ProcessState::Alive,
                cpu_ms: Some(used[index] as u64 / 10 * 10),
                below_cpu_ms: Some(below[index] as u64 / 10 * 10),
                switches: Some(switches[index]),
                wchan: rests.then(|| rest.wchan.to_owned()),
                world_size: Some(world),
                local_world_size: Some(world),
                stack: if has_stack {
                    rest.stack.iter().map(|frame| (*frame).to_owned()).collect()
                } else {
                    Vec::new()
                },
                stack_ns: if has_stack { START + stacks_ns } else { 0 },
                comms: has_comm.then(|| idle(index as u32)).into_iter().collect(),
                seen_by: if has_comm { SeenBy::Ring } else { SeenBy::Process },
                ..RankDigest::default()
            });
        }
        engine.take(digest, START + t + 5 * MS);
        events.extend(engine.look(START + t + 10 * MS));
    }
    events
}

/// A communicator of two ranks that have done ten collectives.
fn idle(rank: u32) -> CommDigest {
    CommDigest {
        id: "7e".to_owned(),
        size: 2,
        rank: Some(rank),
        collectives: 10,
        collectives_done: Some(10),
        ..CommDigest::default()
    }
}

/// When something was told, seconds, and what.
type Told = (f64, Stall);

/// The waits and the alarms, with their time since the job came to rest.
fn told(ranks: &[Rest], world: u32, until: i64) -> (Vec<Told>, Vec<Told>) {
    sorted(follow(ranks, world, REST + until))
}

fn sorted(events: Vec<Event>) -> (Vec<Told>, Vec<Told>) {
    let (mut waits, mut stalls) = (Vec::new(), Vec::new());
    for event in events {
        let at_s = event.at - (START + REST) as f64 / 1e9;
        match event.what {
            What::Waiting(wait) => waits.push((at_s, *wait)),
            What::Stall(stall) => stalls.push((at_s, *stall)),
            _ => {}
        }
    }
    (waits, stalls)
}

#[test]
fn one_that_sleeps_while_the_others_wait_is_told_and_then_an_alarm() {
    let (waits, stalls) = told(&[waits(REDUCE), sleeps()], 2, 60 * S);
    let (at_s, wait) = &waits[0];
    assert!((15.0..18.0).contains(at_s), "{at_s}");
    assert_eq!(wait.suspects, [1]);
    let text = "rank 0 waits in all_reduce at main (train.py:14); rank 1 has not come to it; rank 1: in the data \
                loader: load_batch (train.py:18), in a deliberate sleep (hrtimer_nanosleep of the kernel); idle: ";
    assert!(wait.text.starts_with(text), "{}", wait.text);
    assert_eq!((waits.len(), stalls.len()), (1, 1), "no flood");
    let (at_s, stall) = &stalls[0];
    assert!((30.0..33.0).contains(at_s), "{at_s}");
    assert_eq!((stall.shape, &stall.suspects), (Shape::NeverEntered, &vec![1]));
    assert_eq!((&*stall.states[0].state, stall.states[0].rank), ("absent", 1));
    assert!((30.0..33.0).contains(&stall.after_s) && stall.expected_s == 0.0, "{stall:?}");
}

/// Nothing is in flight in NCCL, and one waits for the other in another library: later, since programs of its own may take a while.
#[test]
fn one_that_sleeps_in_a_job_whose_communicators_are_idle() {
    let of = |ranks: &[Rest], until| sorted(follow_with(ranks, 2, REST + until, true));
    let (waits_seen, stalls) = of(&[waits(REDUCE), sleeps()], 55 * S);
    assert!(stalls.is_empty(), "{stalls:#?}");
    // At 15 s, and once more before the alarm.
    assert_eq!((waits_seen.len(), &waits_seen[0].1.suspects), (2, &vec![1]));
    let (_, stalls) = of(&[waits(REDUCE), sleeps()], 80 * S);
    let [(at_s, stall)] = &stalls[..] else { panic!("{stalls:#?}") };
    assert!((60.0..64.0).contains(at_s), "{at_s}");
    assert_eq!((stall.shape, &stall.suspects), (Shape::NeverEntered, &vec![1]));
    let works = Rest { cpu: (0.9, 0.0), wakes: true, ..sleeps() };
    assert!(of(&[waits(REDUCE), works], 100 * S).1.is_empty());
    // A server without requests: one rank at its queue, or all in calls.
    for rests in [FETCHES, REDUCE, BARRIER] {
        assert!(of(&[waits(REDUCE), waits(rests)], 400 * S).1.is_empty(), "{rests:?}");
    }
}

#[test]
fn ranks_in_different_calls_are_an_alarm() {
    let (_, stalls) = told(&[waits(REDUCE), waits(BARRIER)], 2, 60 * S);
    assert_eq!(stalls.len(), 1, "{stalls:#?}");
    let (at_s, stall) = &stalls[0];
    assert!((30.0..33.0).contains(at_s), "{at_s}");
    assert_eq!((stall.shape, &stall.suspects), (Shape::Mismatch, &vec![0, 1]));
    assert!(stall.text.contains("rank 0 waits in all_reduce at main (train.py:14)"), "{}", stall.text);
    assert!(stall.text.contains("barrier at save (train.py:40)"), "{}", stall.text);
    // Of three, the odd one.
    let (_, stalls) = told(&[waits(REDUCE), waits(BARRIER), waits(REDUCE)], 3, 60 * S);
    assert_eq!(stalls[0].1.suspects, [1]);
}

/// What works, wakes, or waits for somebody out of sight is said, and no alarm before its time.
#[test]
fn patience_with_whatever_may_end_by_itself() {
    for (what, absent, world) in [
        ("it computes", Rest { cpu: (0.9, 0.0), wakes: true, ..sleeps() }, 2),
        ("a process that it has started does", Rest { cpu: (0.0, 0.9), ..sleeps() }, 2),
        ("its loader may fill the queue", waits(FETCHES), 2),
        ("ranks elsewhere may do what it waits for", sleeps(), 4),
    ] {
        let (waits, stalls) = told(&[waits(REDUCE), absent], world, 100 * S);
        assert!(!waits.is_empty() && waits[0].0 < 18.0, "{what}: {waits:#?}");
        assert_eq!(waits[0].1.suspects, [1], "{what}");
        assert!(stalls.is_empty(), "{what}: {stalls:#?}");
    }
    // One that looks for something each time it wakes, and finds nothing for a minute.
    let looks =
        Rest { wakes: true, stack: &["<module> (train.py:19)", "wait_for_file (train.py:30)"], ..sleeps() };
    let (_, stalls) = told(&[waits(REDUCE), looks], 2, 100 * S);
    let [(at_s, stall)] = &stalls[..] else { panic!("{stalls:#?}") };
    assert!((60.0..66.0).contains(at_s), "{at_s}");
    assert_eq!(stall.suspects, [1]);
    // A queue that stays empty for as long as any start may take is none that anybody fills.
    let (_, stalls) = told(&[waits(REDUCE), waits(FETCHES)], 2, 140 * S);
    assert_eq!(stalls.len(), 1);
}

#[test]
fn a_job_that_runs_is_quiet() {
    // Both are in the same call whenever they are looked at, and go on.
    let trains = Rest { wakes: true, cpu: (0.02, 0.0), ..waits(REDUCE) };
    let (told, stalls) = told(&[trains.clone(), trains], 2, 200 * S);
    assert!(told.is_empty() && stalls.is_empty(), "{told:#?} {stalls:#?}");
}

#[test]
fn whom_ranks_at_the_start_wait_for_is_told() {
    let (waits, stalls) = told(&[waits(INIT), waits(INIT)], 3, 60 * S);
    let (at_s, wait) = &waits[0];
    assert!((15.0..18.0).contains(at_s), "{at_s}");
    assert_eq!(wait.suspects, [2]);
    let text = "ranks 0-1 wait in init_process_group at <module> (train.py:19); rank 2 of 3 is not there";
    assert_eq!(wait.text, text);
    assert!(stalls.is_empty());
}
