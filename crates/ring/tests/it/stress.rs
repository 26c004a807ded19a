//! Writers in several threads and a reader beside them: what it sees is consistent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringleader_ring::{CallDescriptor, Handle};

use crate::{Ring, all_reduce, comm};

/// Words of an operation that must fit together: the count determines sequence, root and channels.
fn told(ring: &Ring, number: u64) -> CallDescriptor {
    CallDescriptor {
        sequence: Some(number.wrapping_mul(3)),
        root: Some((number as u32) & 0xffff),
        channels: (number % 3) as u8 + 1,
        ..all_reduce(&ring.writer, number, 0)
    }
}

fn fits(call: &ringleader_ring::CallArgs) -> bool {
    call.sequence == Some(call.count.wrapping_mul(3))
        && call.root == Some((call.count as u32) & 0xffff)
        && u64::from(call.channels) == call.count % 3 + 1
}

#[test]
fn a_reader_beside_busy_writers_sees_whole_operations() {
    let ring = Ring::new();
    let stop = AtomicBool::new(false);
    let (mut readings, mut in_flight, mut ended) = (0, 0, 0);
    let written: u64 = thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (ring, stop) = (&ring, &stop);
                scope.spawn(move || {
                    let writer = &ring.writer;
                    let comm = comm(writer, &format!("c{thread}"));
                    let mut number = thread << 40;
                    let mut open = std::collections::VecDeque::new();
                    while !stop.load(Ordering::Relaxed) {
                        let told = told(ring, number);
                        let op = writer.launch(comm, Handle::NONE, writer.plan_begins(comm), &told);
                        writer.handed_over(op);
                        open.push_back((op, told.channels));
                        number += 1;
                        if open.len() > 5
                            && let Some((op, channels)) = open.pop_front()
                        {
                            let kernels: Vec<_> = (0..channels)
                                .map(|channel| writer.kernel_starts(op, channel, number))
                                .collect();
                            for kernel in kernels {
                                writer.kernel_stops(kernel);
                            }
                        }
                    }
                    number - (thread << 40)
                })
            })
            .collect();
        let reader = ring.reader();
        // Two seconds; on a slow machine, or an emulated one, until the reader has seen something.
        let started = std::time::Instant::now();
        let seen = |readings: i32, in_flight: usize, ended: i32| readings > 10 && in_flight > 0 && ended > 0;
        while started.elapsed().as_secs() < 2
            || !seen(readings, in_flight, ended) && started.elapsed().as_secs() < 60
        {
            let state = reader.state().unwrap();
            readings += 1;
            for comm in &state.comms {
                in_flight += comm.in_flight.len();
                for op in &comm.in_flight {
                    assert!(fits(&op.call), "{op:?}");
                    assert!(
                        op.channels_stopped <= op.channels_started && op.channels_started <= op.call.channels
                    );
                    assert!(
                        op.number < comm.collectives
                            || comm.collectives == 0
                            || op.number - comm.collectives < 1_000_000
                    );
                }
            }
            for done in &state.recent {
                ended += 1;
                assert!(fits(&done.call), "{done:?}");
                assert!(done.enqueued_ns <= done.started_ns && done.started_ns <= done.ended_ns, "{done:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert!(readings > 10 && in_flight > 0 && ended > 0, "{readings} {in_flight} {ended}");
    let state = ring.state();
    assert_eq!(state.comms.iter().map(|comm| comm.collectives).sum::<u64>(), written);
    let kept: u64 = state.comms.iter().map(|comm| comm.collectives_done + comm.in_flight.len() as u64).sum();
    assert_eq!(kept + state.lost.ops, written);
    assert_eq!((state.lost.torn, state.lost.faults), (0, 0));
}
