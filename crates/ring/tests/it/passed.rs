//! Calls that are not followed, as a reader sees them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringleader_ring::{CallDescriptor, Comm, Handle, State, Writer, mono_ns};

use crate::{Ring, all_reduce, comm};

/// Makes one call in a group of its own.
fn pass(writer: &Writer, comm: Handle, count: u64) {
    let group = writer.passing_begins();
    let call = writer.passing_call(comm, group, &told(writer, count), mono_ns());
    assert_eq!(call.is_followed(), Some(false));
    writer.passing_ends(group);
}

fn told(writer: &Writer, count: u64) -> CallDescriptor {
    CallDescriptor { algorithm: 0, protocol: 0, ..all_reduce(writer, count, 0) }
}

/// Makes a call that is followed to its end.
fn follow(writer: &Writer, comm: Handle) {
    let group = writer.group_begins();
    let call = writer.call(comm, group, &told(writer, 1));
    let op = writer.launch(comm, call, writer.plan_begins(comm), &all_reduce(writer, 1, 1));
    writer.handed_over(op);
    writer.group_ends(group);
    writer.kernel_stops(writer.kernel_starts(op, 0, 0));
}

fn numbers(comm: &Comm) -> Vec<u64> {
    comm.in_flight.iter().map(|op| op.number).collect()
}

#[test]
fn it_is_in_flight_until_a_later_one_is_seen_to_run() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let group = writer.passing_begins();
    let told = CallDescriptor { root: Some(5), ..told(writer, 10) };
    writer.passing_call(dp, group, &told, mono_ns());
    let state = ring.state();
    let (seen, op) = (&state.comms[0], &state.comms[0].in_flight[0]);
    assert_eq!((op.number, op.handed_over_ns, op.is_launched, op.is_end_visible), (0, None, false, false));
    assert_eq!((op.call.function.as_str(), op.call.datatype.as_str()), ("AllReduce", "ncclFloat32"));
    assert_eq!((op.call.count, op.call.root, op.call.peer), (10, Some(5), None));
    assert_eq!((seen.collectives, seen.collectives_done, seen.bytes_done), (1, 0, 0));
    assert_eq!(seen.progress_ns, op.enqueued_ns);

    writer.passing_ends(group);
    let state = ring.state();
    let op = &state.comms[0].in_flight[0];
    assert_eq!(op.handed_over_ns, Some(op.enqueued_ns));
    assert_eq!(state.comms[0].collectives_done, 0);

    follow(writer, dp);
    let state = ring.state();
    let seen = &state.comms[0];
    assert!(seen.in_flight.is_empty());
    assert_eq!((seen.collectives, seen.collectives_done, seen.bytes_done), (2, 2, 44));
    let ended: Vec<_> = state.recent.iter().map(|done| (done.number, done.is_end_seen)).collect();
    assert_eq!(ended, [(0, false), (1, true)]);
}

#[test]
fn of_many_the_newest_are_in_flight_and_what_is_not_handed_over_always_is() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let (dp, other) = (comm(writer, "dp"), comm(writer, "other"));
    let open = writer.passing_begins();
    writer.passing_call(dp, open, &told(writer, 1), mono_ns());
    for count in 0..20 {
        pass(writer, dp, count);
        pass(writer, other, count);
    }
    let state = ring.state();
    assert_eq!(numbers(&state.comms[0]), [0, 14, 15, 16, 17, 18, 19, 20]);
    assert_eq!(numbers(&state.comms[1]), [13, 14, 15, 16, 17, 18, 19]);
    assert_eq!((state.comms[0].collectives, state.comms[0].collectives_done), (21, 13));
    assert_eq!(state.recent.len(), 26);
    writer.passing_ends(open);
    assert_eq!(numbers(&ring.state().comms[0]), [14, 15, 16, 17, 18, 19, 20]);

    // A communicator that has ended has no calls in flight that were handed over.
    let late = writer.passing_begins();
    writer.passing_call(other, late, &CallDescriptor { is_p2p: true, ..told(writer, 1) }, mono_ns());
    writer.comm_ends(other);
    let state = ring.state();
    let (seen, op) = (&state.comms[1], &state.comms[1].in_flight[0]);
    assert_eq!((seen.in_flight.len(), op.number, op.is_p2p), (1, 0, true));
    assert_eq!((seen.collectives, seen.collectives_done, seen.p2p, seen.p2p_done), (20, 20, 1, 0));
    // It takes no more calls, and its entry may belong to another communicator.
    assert_eq!(writer.passing_call(other, late, &told(writer, 1), mono_ns()), Handle::NONE);
}

#[test]
fn groups_of_several_threads_end_apart_and_a_whole_round_of_calls_is_survived() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let (a, b) = (comm(writer, "a"), comm(writer, "b"));
    let (first, second) = (writer.passing_begins(), writer.passing_begins());
    for _ in 0..3 {
        writer.passing_call(a, first, &told(writer, 1), mono_ns());
        writer.passing_call(b, second, &told(writer, 1), mono_ns());
    }
    writer.passing_ends(second);
    let handed = |state: &State| -> Vec<usize> {
        let is_handed = |comm: &Comm| comm.in_flight.iter().filter(|op| op.handed_over_ns.is_some()).count();
        state.comms.iter().map(is_handed).collect()
    };
    assert_eq!(handed(&ring.state()), [0, 3]);

    // A group that ends after all of its calls were overwritten marks none of the calls that replaced them.
    let open = writer.passing_begins();
    for _ in 0..20_000 {
        writer.passing_call(b, open, &told(writer, 1), mono_ns());
    }
    for wild in [first, first, Handle(first.0 | 0xffff_ffff), Handle(11 << 60), Handle::PASSED] {
        writer.passing_ends(wild);
    }
    let state = ring.state();
    assert_eq!(handed(&state), [0, 0]);
    assert_eq!(state.lost.overwritten, 20_006 - 8192);
    assert_eq!((state.lost.records, state.lost.torn), (0, 0));
    assert_eq!((state.comms[1].collectives, state.comms[1].in_flight.len()), (20_003, 8192));
    writer.passing_ends(open);
    assert_eq!(ring.state().comms[1].in_flight.len(), 7);
}

#[test]
fn the_newest_call_of_a_quiet_communicator_stays_however_much_others_call() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let (quiet, busy, open) = (comm(writer, "quiet"), comm(writer, "busy"), comm(writer, "open"));
    for count in 0..10 {
        pass(writer, quiet, count);
    }
    let group = writer.passing_begins();
    writer.passing_call(open, group, &told(writer, 3), mono_ns());
    for count in 0..9000 {
        pass(writer, busy, count);
    }
    let state = ring.state();
    let (quiet, open) = (&state.comms[0], &state.comms[2]);
    assert_eq!((numbers(quiet), quiet.collectives, quiet.collectives_done), (vec![9], 10, 9));
    let op = &quiet.in_flight[0];
    assert_eq!((op.call.count, op.handed_over_ns), (9, Some(op.enqueued_ns)));
    assert_eq!(
        (numbers(open), open.in_flight[0].call.count, open.in_flight[0].handed_over_ns),
        (vec![0], 3, None)
    );
}

#[test]
fn a_ring_of_format_1_0_has_none() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    follow(writer, dp);
    pass(writer, dp, 1);
    let mut image = ring.reader().image().unwrap();
    image[8..16].copy_from_slice(&(1_u64 << 32).to_le_bytes());
    image[52 * 8..55 * 8].fill(0);
    let state = State::parse(&image).unwrap();
    assert!(state.comms[0].in_flight.is_empty());
    assert_eq!(state.recent.len(), 1);
}

#[test]
fn a_reader_beside_busy_callers_sees_whole_calls() {
    let ring = Ring::new();
    let stop = AtomicBool::new(false);
    let (mut readings, mut seen) = (0, 0);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (ring, stop) = (&ring, &stop);
            scope.spawn(move || {
                let writer = &ring.writer;
                let dp = comm(writer, &format!("c{thread}"));
                let mut number = 0;
                // At least one call, however late the machine starts this thread.
                loop {
                    let told = CallDescriptor { root: Some(number as u32 & 0xffff), ..told(writer, number) };
                    let group = writer.passing_begins();
                    writer.passing_call(dp, group, &told, mono_ns());
                    writer.passing_ends(group);
                    number += 1;
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let reader = ring.reader();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
        let mut wrong = Vec::new();
        while std::time::Instant::now() < until && wrong.is_empty() {
            let state = reader.state().unwrap();
            readings += 1;
            let open = state.comms.iter().flat_map(|comm| &comm.in_flight).map(|op| (op.number, &op.call));
            let ended = state.recent.iter().map(|done| (done.number, &done.call));
            for (number, call) in open.chain(ended) {
                seen += 1;
                if (call.count, call.root) != (number, Some(number as u32 & 0xffff)) {
                    wrong.push(format!("{number} {call:?}"));
                }
            }
            for comm in &state.comms {
                let handed = comm.in_flight.iter().filter(|op| op.handed_over_ns.is_some()).count();
                if handed > 7 || comm.collectives_done > comm.collectives {
                    wrong.push(format!("{comm:?}"));
                }
            }
        }
        // Stops the callers first: after a panic they would run forever.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, Vec::<String>::new());
    });
    assert!(readings > 5 && seen > 0);
    let state = ring.state();
    // The last calls of one communicator may be overwritten by those of the other, all but one.
    let of_each: Vec<_> = state.comms.iter().map(|comm| (comm.in_flight.len(), comm.collectives)).collect();
    assert!(of_each.iter().all(|(in_flight, _)| (1..=7).contains(in_flight)), "{of_each:?}");
    assert!(
        state
            .comms
            .iter()
            .all(|comm| { comm.collectives_done + comm.in_flight.len() as u64 == comm.collectives })
    );
    assert_eq!(state.lost.torn, 0);
}
