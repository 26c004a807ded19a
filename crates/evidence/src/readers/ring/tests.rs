#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;

use proptest::prelude::*;
use ringleader_model::{Fact, NoteKind, OpKind, RingRecord, RingStage, SourceKind};
use ringleader_ring::{CallArgs, Comm, Done, Op, Phase, ReadMoment, RingProcess, State, Wait};

use crate::Extract;
use crate::tell::read;

/// Rank 1 of 2: an all-reduce that ended, one in flight that waits for the network, a send not yet started.
fn state() -> State {
    let call = |function: &str, peer| CallArgs {
        function: function.to_owned(),
        count: 4096,
        datatype: "ncclBfloat16".to_owned(),
        peer,
        algorithm: "RING".to_owned(),
        channels: 2,
        ..CallArgs::default()
    };
    let wait = Wait {
        peer: 0,
        channel: 1,
        is_send: false,
        phase: Phase::RecvNet,
        since_ns: 2_500_000_000,
        steps_done: 3,
        steps: 8,
        net_open: 0,
    };
    let open = Op {
        number: 1,
        call: call("AllReduce", None),
        enqueued_ns: 2_000_000_000,
        handed_over_ns: Some(2_000_001_000),
        started_ns: Some(2_100_000_000),
        channels_started: 2,
        waits: vec![wait],
        is_end_visible: true,
        is_launched: true,
        ..Op::default()
    };
    let send = Op {
        number: 0,
        call: call("Send", Some(0)),
        enqueued_ns: 2_200_000_000,
        is_end_visible: true,
        is_p2p: true,
        ..Op::default()
    };
    let done = Done {
        comm: 0,
        number: 0,
        call: call("AllReduce", None),
        enqueued_ns: 1_500_000_000,
        started_ns: 1_600_000_000,
        ended_ns: 1_700_000_000,
        gpu_ns: Some(90_000_000),
        is_end_seen: true,
        ..Done::default()
    };
    let comm = Comm {
        id: 0xc0de,
        name: "default_pg".to_owned(),
        size: 2,
        rank: Some(1),
        created_ns: 1_000_000_000,
        collectives: 2,
        collectives_done: 1,
        p2p: 1,
        progress_ns: 2_600_000_000,
        in_flight: vec![open, send],
        ..Comm::default()
    };
    State {
        process: RingProcess {
            pid: 1234,
            start_ticks: 567,
            boot_id: "00112233445566778899aabbccddeeff".to_owned(),
            host: "node1.cluster.example".to_owned(),
            rank: Some(1),
            local_rank: Some(1),
            world_size: Some(2),
            interface: 5,
            is_ended: false,
            kernels_ended_ns: None,
            exit: None,
        },
        taken: ReadMoment { mono_ns: 9_000_000_000, unix_ns: 1_763_000_009_000_000_000, is_held: Some(true) },
        comms: vec![comm],
        recent: vec![done],
        ..State::default()
    }
}

fn ring(extract: &Extract) -> &RingRecord {
    match &extract.observations.first().unwrap().fact {
        Fact::Ring(ring) => ring,
        other => panic!("no ring: {other:?}"),
    }
}

/// In few words a line.
fn tell(extract: &Extract) -> String {
    let mut out = String::new();
    for observation in &extract.observations {
        let Fact::Ring(ring) = &observation.fact else { continue };
        let who = &observation.who;
        writeln!(
            out,
            "{:?} of {:?}, {:?} {:?}, live {}, ended {}, interface {}, taken {}",
            who.rank,
            ring.world_size,
            who.host,
            who.pid,
            ring.is_live,
            ring.is_ended,
            ring.interface,
            ring.taken_ns
        )
        .unwrap();
        for comm in &ring.comms {
            writeln!(
                out,
                "  {:x} {} rank {:?} of {}: {}/{} collectives, {}/{} messages",
                comm.id,
                comm.name,
                comm.rank,
                comm.size,
                comm.collectives_done,
                comm.collectives,
                comm.p2p_done,
                comm.p2p
            )
            .unwrap();
        }
        let first = ring.ops.iter().position(|op| op.ended_ns == 0).unwrap_or(ring.ops.len());
        for (at, op) in ring.ops.iter().enumerate().skip(first.saturating_sub(1)) {
            let call = &ring.calls[op.call as usize];
            writeln!(
                out,
                "  {} #{} of {}, {} {} peer {:?}: {:?} enqueued {} took {}",
                call.kind.name(),
                op.number,
                op.comm,
                call.count,
                call.dtype,
                call.peer,
                op.stage(),
                op.enqueued_ns,
                op.gpu_ns
            )
            .unwrap();
            for wait in ring.waits.iter().filter(|w| w.op as usize == at) {
                let way = if wait.is_send { "send to" } else { "receive from" };
                writeln!(
                    out,
                    "    {way} {} channel {}: {:?} since {}, {:?}",
                    wait.peer, wait.channel, wait.phase, wait.since_ns, wait.steps
                )
                .unwrap();
            }
        }
    }
    for note in &extract.notes {
        writeln!(out, "  note {:?}: {}", note.kind, note.text).unwrap();
    }
    out
}

#[test]
fn a_ring_in_full() {
    let extract = read("any-name", &state().to_bytes(Some(true)));
    assert_eq!(extract.sources[0].kinds, [SourceKind::Ring]);
    assert_eq!(
        tell(&extract),
        "Some(Rank(1)) of Some(2), Some(\"node1\") Some(Pid(1234)), live true, ended false, interface 5, taken 1763000009000000000
  c0de default_pg rank Some(1) of 2: 1/2 collectives, 0/1 messages
  all_reduce #1 of 0, 4096 BFloat16 peer None: Finished enqueued 1763000001500000000 took 90000000
  all_reduce #2 of 0, 4096 BFloat16 peer None: Started enqueued 1763000002000000000 took 0
    receive from 0 channel 1: RecvNet since 1763000002500000000, (3, 8)
  send #1 of 0, 4096 BFloat16 peer Some(0): Entered enqueued 1763000002200000000 took 0
"
    );
    // A kind of its own among calls, and each kind once.
    assert_eq!(ring(&extract).calls.len(), 2);
    assert_eq!(ring(&extract).calls[0].kind, OpKind::AllReduce);
}

#[test]
fn a_dead_process_ends_with_what_it_knew_last() {
    let newest = 1_763_000_002_600_000_000;
    // The file as it is there, and an image that was made of it long after.
    for read_as in [None, Some(false)] {
        let extract = read("ring", &state().to_bytes(read_as));
        assert!(!ring(&extract).is_live);
        assert_eq!(ring(&extract).taken_ns, newest);
        assert_eq!(ring(&extract).ops[1].stage(), RingStage::Started);
    }
}

#[test]
fn times_beyond_reason_leave_room_to_reckon_with() {
    let mut state = state();
    state.comms[0].in_flight[0].enqueued_ns = u64::MAX;
    state.recent[0].ended_ns = u64::MAX - 1;
    let extract = read("ring", &state.to_bytes(Some(true)));
    let times: Vec<i64> = ring(&extract).ops.iter().flat_map(|op| [op.enqueued_ns, op.ended_ns]).collect();
    assert!(times.iter().all(|at| (0..=i64::MAX / 2).contains(at)), "{times:?}");
    assert_eq!(times.iter().filter(|at| **at == i64::MAX / 2).count(), 2, "{times:?}");
}

#[test]
fn what_the_ring_could_not_keep_is_a_note() {
    let mut state = state();
    state.lost.ops = 3;
    state.lost.faults = 1;
    state.comms[0].id = 0;
    let told = tell(&read("ring", &state.to_bytes(Some(true))));
    assert!(told.contains("note LimitReached: the ring had no room for 3 operations"), "{told}");
    assert!(told.contains("note Truncated: the plugin had an internal fault"), "{told}");
    assert!(told.contains("note Remark: 1 communicators are unknown"), "{told}");
}

#[test]
fn recorded_cases() {
    let ring = include_bytes!("../../../../../cases/ring-network-silent/evidence/ring-4201-499001");
    insta::assert_snapshot!(tell(&read("ring-4201-499001", ring)));
}

proptest! {
    #[test]
    fn a_cut_ring_is_a_note(cut in 8_usize..8_000) {
        let bytes = state().to_bytes(Some(true));
        let extract = read("ring", bytes.get(..cut).unwrap());
        prop_assert_eq!(&extract.sources[0].kinds[..], &[SourceKind::Ring][..]);
        prop_assert!(extract.notes.iter().any(|n| n.kind == NoteKind::Unreadable));
    }

    #[test]
    fn any_words_are_survived(changes in prop::collection::vec((0_usize..4_000, any::<u64>()), 1..40)) {
        let mut bytes = state().to_bytes(Some(true));
        for (word, value) in changes {
            let at = word * 8 % bytes.len() / 8 * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let extract = read("ring", &bytes);
        for observation in &extract.observations {
            prop_assert!(observation.cite.end <= bytes.len() as u64);
            if let Fact::Ring(ring) = &observation.fact {
                prop_assert!(ring.ops.iter().all(|op| (op.call as usize) < ring.calls.len()));
                prop_assert!(ring.ops.iter().all(|op| (op.comm as usize) < ring.comms.len()));
                prop_assert!(ring.waits.iter().all(|w| (w.op as usize) < ring.ops.len()));
            }
        }
    }
}
