use std::os::unix::fs::{MetadataExt, PermissionsExt};

use ringleader_ring::{CallDescriptor, Handle, NewComm, Phase, Writer, mono_ns, names};

use crate::{Ring, all_reduce, comm, options};

#[test]
fn a_new_ring_tells_its_process() {
    let ring = Ring::new();
    ring.writer.interface(6);
    let state = ring.state();
    let process = &state.process;
    assert_eq!(process.pid, std::process::id());
    assert_eq!((process.rank, process.local_rank, process.world_size), (Some(3), Some(1), Some(8)));
    assert_eq!(process.boot_id.len(), 32);
    assert!(!process.host.is_empty());
    assert_eq!(process.interface, 6);
    assert!(!process.is_ended);
    assert!(state.comms.is_empty() && state.recent.is_empty());
    assert_eq!(state.lost, ringleader_ring::Lost::default());
    let name = ring.writer.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(name, format!("ring-{}-{}", process.pid, process.start_ticks));
    let meta = std::fs::metadata(ring.writer.path()).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o600);
    assert_eq!(meta.size(), ringleader_ring::FILE_BYTES as u64);
    // All of its blocks are allocated: a full disk cannot kill the job later.
    assert!(meta.blocks() * 512 >= meta.size());
    assert_eq!(ringleader_ring::rings_in(ring.dir.path()), [ring.writer.path()]);
}

#[test]
fn the_same_process_goes_on_with_its_ring() {
    let ring = Ring::new();
    let first = comm(&ring.writer, "a");
    ring.writer.comm_ends(first);
    let Ring { dir, writer } = ring;
    assert!(crate::Reader::open(writer.path()).unwrap().is_held());
    drop(writer);
    let writer = Writer::create(&options(dir.path())).unwrap();
    comm(&writer, "b");
    let reader = crate::Reader::open(writer.path()).unwrap();
    let state = reader.state().unwrap();
    assert_eq!(state.comms.iter().map(|comm| comm.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(reader.is_held());
    drop(writer);
    assert!(!reader.is_held());
}

#[test]
fn an_operation_from_the_call_to_its_end() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let told = CallDescriptor { algorithm: 0, protocol: 0, channels: 0, ..all_reduce(writer, 1000, 0) };
    let before = mono_ns();
    let call = writer.call(dp, Handle::NONE, &told);

    let state = ring.state();
    let op = &state.comms[0].in_flight[0];
    assert_eq!((op.number, op.is_launched, op.handed_over_ns, op.started_ns), (0, false, None, None));
    assert_eq!(
        (op.call.function.as_str(), op.call.count, op.call.datatype.as_str()),
        ("AllReduce", 1000, "ncclFloat32")
    );
    assert!(op.enqueued_ns >= before && op.enqueued_ns <= state.taken.mono_ns);

    let plan = writer.plan_begins(dp);
    let op =
        writer.launch(dp, call, plan, &CallDescriptor { sequence: Some(7), ..all_reduce(writer, 4000, 2) });
    let zero = writer.kernel_starts(op, 0, 5_000);
    writer.handed_over(op);
    let one = writer.kernel_starts(op, 1, 5_100);
    writer.kernel_tells_stop(zero, 9_000);
    writer.kernel_stops(zero);

    let state = ring.state();
    let op_seen = &state.comms[0].in_flight[0];
    assert_eq!(state.comms[0].in_flight.len(), 1);
    assert!(op_seen.is_launched && op_seen.is_end_visible && op_seen.handed_over_ns.is_some());
    assert_eq!((op_seen.channels_started, op_seen.channels_stopped, op_seen.open_channels), (2, 1, 0b10));
    assert_eq!(op_seen.call.algorithm, "RING");
    assert_eq!(op_seen.call.protocol, "LL128");
    // The program's own count, not NCCL's.
    assert_eq!((op_seen.call.count, op_seen.call.channels, op_seen.call.sequence), (1000, 2, Some(7)));

    writer.kernel_tells_stop(one, 9_500);
    writer.kernel_stops(one);
    let state = ring.state();
    let seen = &state.comms[0];
    assert!(seen.in_flight.is_empty());
    assert_eq!((seen.collectives, seen.collectives_done, seen.bytes_done), (1, 1, 4000));
    let done = &state.recent[0];
    assert_eq!(
        (done.number, done.gpu_ns, done.gpu_started_ns, done.is_end_seen),
        (0, Some(4_500), Some(5_000), true)
    );
    assert!(done.enqueued_ns <= done.started_ns && done.started_ns <= done.ended_ns);
    assert_eq!(done.longest_wait, None);
    let offset = seen.gpu_offset_ns.unwrap();
    assert_eq!(done.gpu_started_ns.unwrap().wrapping_add_signed(offset), done.started_ns);
    // Events that are late, repeated or without an operation change nothing.
    for handle in [op, zero, one, call, plan, dp, Handle::NONE, Handle(u64::MAX), Handle(5 << 60)] {
        writer.kernel_stops(handle);
        writer.handed_over(handle);
        writer.proxy_stops(handle);
        writer.step_stops(handle);
        writer.step_waits(handle, Phase::RecvNet);
        assert_eq!(writer.kernel_starts(handle, 0, 1), Handle::NONE);
        assert_eq!(writer.step_starts(handle, 1), Handle::NONE);
    }
    assert_eq!(ring.state().comms, state.comms);
}

#[test]
fn a_proxy_tells_what_its_oldest_step_waits_for() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let op = writer.launch(dp, Handle::NONE, Handle::NONE, &all_reduce(writer, 1, 1));
    let kernel = writer.kernel_starts(op, 0, 1);
    let proxy = writer.proxy_starts(op, None, 5, 3, 70_000, true);
    writer.handed_over(op);
    let mut steps = Vec::new();
    for step in 0..69_999 {
        let step = writer.step_starts(proxy, step);
        writer.step_waits(step, Phase::SendGpu);
        if steps.len() == 3 {
            writer.step_stops(steps.remove(0));
        }
        steps.push(step);
    }
    // Repeated while NCCL polls: the time of the first report remains.
    writer.step_waits(steps[0], Phase::SendNet);
    let first = ring.state().comms[0].in_flight[0].waits[0].since_ns;
    writer.step_waits(steps[0], Phase::SendNet);
    let state = ring.state();
    let wait = &state.comms[0].in_flight[0].waits[0];
    assert_eq!((wait.peer, wait.channel, wait.is_send, wait.phase), (5, 3, true, Phase::SendNet));
    assert_eq!((wait.steps_done, wait.steps, wait.since_ns), (69_996, 70_000, first));

    for step in steps {
        writer.step_stops(step);
    }
    let wait = ring.state().comms[0].in_flight[0].waits[0].clone();
    assert_eq!((wait.phase, wait.steps_done), (Phase::Unknown, 69_999));
    assert!(wait.since_ns >= first);
    writer.kernel_stops(kernel);
    assert_eq!(ring.state().comms[0].in_flight.len(), 1, "a proxy is still open");
    writer.proxy_stops(proxy);
    let state = ring.state();
    assert!(state.comms[0].in_flight.is_empty());
    let (_, peer, longest) = state.recent[0].longest_wait.unwrap();
    assert_eq!(peer, 5);
    assert!(longest > 0);
}

#[test]
fn a_proxy_for_another_process_stands_apart() {
    let ring = Ring::new();
    let proxy = ring.writer.proxy_starts(Handle(u64::MAX), Some(4711), 2, 1, 4, false);
    ring.writer.step_waits(ring.writer.step_starts(proxy, 0), Phase::RecvNet);
    let state = ring.state();
    assert_eq!(state.foreign.len(), 1);
    assert_eq!((state.foreign[0].pid, state.foreign[0].wait.phase), (4711, Phase::RecvNet));
    ring.writer.proxy_stops(proxy);
    assert!(ring.state().foreign.is_empty());
}

#[test]
fn an_operation_without_an_end_is_over_when_a_later_launch_runs() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let told = all_reduce(writer, 1, 4);
    // A group of two: the second has fewer channels than announced.
    let plan = writer.plan_begins(dp);
    let silent = writer.launch(dp, Handle::NONE, plan, &told);
    let fewer = writer.launch(dp, Handle::NONE, plan, &told);
    writer.handed_over(silent);
    writer.handed_over(fewer);
    writer.kernel_stops(writer.kernel_starts(fewer, 0, 0));
    assert_eq!(ring.state().comms[0].in_flight.len(), 2, "within one launch nothing follows from the other");
    let plan = writer.plan_begins(dp);
    let next = writer.launch(dp, Handle::NONE, plan, &told);
    writer.handed_over(next);
    assert_eq!(ring.state().comms[0].in_flight.len(), 3);
    writer.kernel_starts(next, 0, 0);
    let state = ring.state();
    let comm = &state.comms[0];
    assert_eq!(comm.in_flight.iter().map(|op| op.number).collect::<Vec<_>>(), [2]);
    assert_eq!((comm.collectives, comm.collectives_done), (3, 2));
    let mut over: Vec<_> = state.recent.iter().map(|done| (done.number, done.is_end_seen)).collect();
    over.sort_unstable();
    assert_eq!(over, [(0, false), (1, true)]);
}

#[test]
fn without_kernels_the_newest_few_stay_in_flight() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = writer.comm_begins(&NewComm { size: 2, rank: Some(0), ..NewComm::default() });
    for _ in 0..100 {
        writer.handed_over(writer.launch(dp, Handle::NONE, Handle::NONE, &all_reduce(writer, 1, 8)));
    }
    let state = ring.state();
    let comm = &state.comms[0];
    assert_eq!(comm.in_flight.iter().map(|op| op.number).collect::<Vec<_>>(), (93..100).collect::<Vec<_>>());
    assert!(comm.in_flight.iter().all(|op| !op.is_end_visible));
    assert_eq!((comm.collectives, comm.collectives_done), (100, 93));
    assert!(state.recent.iter().all(|done| !done.is_end_seen));
    writer.comm_ends(dp);
    let state = ring.state();
    assert!(state.comms[0].in_flight.is_empty() && state.process.is_ended);
}

#[test]
fn a_broadcast_that_is_not_reported_is_handed_over_with_its_group() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let told = CallDescriptor {
        function: writer.code(names::NameKind::Function, b"Broadcast"),
        root: Some(0),
        ..CallDescriptor::default()
    };
    let group = writer.group_begins();
    let calls: Vec<Handle> = (0..3).map(|_| writer.call(dp, group, &told)).collect();
    let state = ring.state();
    assert!(state.comms[0].in_flight.iter().all(|op| op.is_end_visible && op.handed_over_ns.is_none()));
    // One of them is reported after all.
    let launched =
        writer.launch(dp, calls[1], writer.plan_begins(dp), &CallDescriptor { channels: 1, ..told });
    writer.group_ends(group);
    let state = ring.state();
    let seen: Vec<_> =
        state.comms[0].in_flight.iter().map(|op| (op.is_launched, op.handed_over_ns.is_some())).collect();
    assert_eq!(seen, [(false, true), (true, false), (false, true)]);
    assert!(!state.comms[0].in_flight[0].is_end_visible && state.comms[0].in_flight[1].is_end_visible);
    writer.handed_over(launched);
    writer.group_ends(group);
    writer.kernel_stops(writer.kernel_starts(launched, 0, 0));
    assert_eq!(
        ring.state().comms[0].in_flight.len(),
        2,
        "called in the same group: its kernel tells nothing of these"
    );

    let group = writer.group_begins();
    let next = writer.call(dp, group, &all_reduce(writer, 1, 1));
    let next = writer.launch(dp, next, writer.plan_begins(dp), &all_reduce(writer, 1, 1));
    writer.handed_over(next);
    writer.group_ends(group);
    assert_eq!(ring.state().comms[0].in_flight.len(), 3);
    writer.kernel_starts(next, 0, 0);
    let state = ring.state();
    assert_eq!(state.comms[0].in_flight.iter().map(|op| op.number).collect::<Vec<_>>(), [3]);
    assert_eq!((state.comms[0].collectives, state.comms[0].collectives_done), (4, 3));
    // Groups in many threads at once, and more than fit.
    let groups: Vec<Handle> = (0..65).map(|_| writer.group_begins()).collect();
    assert_eq!(groups[64], Handle::NONE);
    writer.call(dp, groups[64], &told);
    writer.group_ends(groups[64]);
    writer.group_ends(groups[3]);
    assert_ne!(writer.group_begins(), groups[3]);
}

#[test]
fn what_is_in_flight_at_the_end_of_a_communicator_stays() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let op = writer.launch(dp, Handle::NONE, writer.plan_begins(dp), &all_reduce(writer, 1, 2));
    writer.handed_over(op);
    writer.kernel_starts(op, 1, 0);
    writer.comm_ends(dp);
    writer.comm_ends(dp);
    let state = ring.state();
    assert!(state.comms[0].ended_ns.is_some() && state.process.is_ended);
    assert_eq!(state.comms[0].in_flight[0].open_channels, 0b10);
    assert_eq!(writer.launch(dp, Handle::NONE, Handle::NONE, &all_reduce(writer, 1, 2)), Handle::NONE);
}

#[test]
fn thousands_of_communicators_take_turns() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let lasting = comm(writer, "lasting");
    for number in 0..5000 {
        let handle = comm(writer, &format!("c{number}"));
        let op = writer.launch(handle, Handle::NONE, writer.plan_begins(handle), &all_reduce(writer, 1, 1));
        writer.handed_over(op);
        if number % 2 == 0 {
            writer.kernel_stops(writer.kernel_starts(op, 0, 0));
        }
        writer.comm_ends(handle);
    }
    let state = ring.state();
    assert_eq!(state.lost.comms, 0);
    assert_eq!(state.lost.ops, 0);
    assert_eq!(state.comms.len(), 512);
    assert_eq!(state.comms[0].name, "lasting");
    let names: Vec<_> = state.comms[1..].iter().map(|comm| comm.name.clone()).collect();
    assert_eq!(names, (4489..5000).map(|number| format!("c{number}")).collect::<Vec<_>>());
    assert!(!state.process.is_ended);
    writer.comm_ends(lasting);
    assert!(ring.state().process.is_ended);
    // All live at once: the 513th has no entry, and that is counted.
    let all: Vec<_> = (0..513).map(|_| comm(writer, "x")).collect();
    assert_eq!(all[512], Handle::NONE);
    assert_eq!(ring.state().lost.comms, 1);
}

#[test]
fn communicators_made_at_once_in_a_full_table_all_find_a_place() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let make_and_end = |count: usize| (0..count).for_each(|_| writer.comm_ends(comm(writer, "split")));
    make_and_end(512);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| make_and_end(5000));
        }
    });
    let state = ring.state();
    assert_eq!(state.lost.comms, 0);
    assert_eq!(state.comms.len(), 512);
}

#[test]
fn a_full_table_drops_and_counts_and_goes_on_when_there_is_room() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let told = all_reduce(writer, 1, 1);
    let ops: Vec<_> = (0..6000).map(|_| writer.launch(dp, Handle::NONE, Handle::NONE, &told)).collect();
    let state = ring.state();
    let kept = state.comms[0].in_flight.len();
    assert_eq!(state.comms[0].collectives, 6000);
    assert_eq!(kept as u64 + state.lost.ops, 6000);
    assert!(kept > 4000, "{kept}");
    for op in ops {
        writer.handed_over(op);
        writer.kernel_stops(writer.kernel_starts(op, 0, 0));
    }
    let op = writer.launch(dp, Handle::NONE, Handle::NONE, &told);
    assert_ne!(op, Handle::NONE);
    let proxies: Vec<_> = (0..4095).map(|_| writer.proxy_starts(op, None, 1, 0, 1, true)).collect();
    assert!(proxies.iter().all(|proxy| *proxy != Handle::NONE));
    assert_eq!(writer.proxy_starts(op, None, 1, 0, 1, true), Handle::NONE);
    let state = ring.state();
    assert_eq!(state.comms[0].in_flight[0].waits.len(), 4095);
    assert_eq!(state.comms[0].in_flight[0].number, 6000);
}

/// If kernels are reported without the number of channels, a call is not over because later calls were made.
#[test]
fn what_has_not_started_yet_stays_in_flight_however_many_come_after_it() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let new = NewComm { id: 5, rank: Some(0), sees_kernels: true, ..NewComm::default() };
    let dp = writer.comm_begins(&new);
    let told = all_reduce(writer, 1, 1);
    let begin = || {
        let op = writer.launch(dp, Handle::NONE, writer.plan_begins(dp), &told);
        writer.handed_over(op);
        op
    };
    let ops: Vec<_> = (0..40).map(|_| begin()).collect();
    assert_eq!(ring.state().comms[0].in_flight.len(), 40);
    // The proxy thread is late and reports all of them.
    for op in &ops[..20] {
        writer.kernel_stops(writer.kernel_starts(*op, 0, 0));
    }
    let state = ring.state();
    assert_eq!((state.comms[0].in_flight.len(), state.comms[0].collectives_done), (20, 20));
    assert!(state.recent.iter().all(|done| done.is_end_seen));
    // Or only one of them: the earlier ones are over, too.
    writer.kernel_stops(writer.kernel_starts(ops[39], 0, 0));
    assert_eq!(ring.state().comms[0].in_flight, []);
}

/// Hundreds in flight that end in order, each with proxies: their entries are adjacent, and new operations
/// find free entries beyond them.
#[test]
fn many_in_flight_at_once_lose_nothing() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let told = all_reduce(writer, 1, 1);
    let mut in_flight = std::collections::VecDeque::new();
    for number in 0..20_000 {
        let op = writer.launch(dp, Handle::NONE, writer.plan_begins(dp), &told);
        let proxies = [true, false].map(|is_send| writer.proxy_starts(op, None, 1, 0, 1, is_send));
        writer.handed_over(op);
        in_flight.push_back((op, proxies));
        // They end in bursts, as a proxy thread reports them.
        while in_flight.len() > 300 + number % 700 {
            let Some((op, proxies)) = in_flight.pop_front() else { return };
            for proxy in proxies {
                writer.proxy_stops(proxy);
            }
            writer.kernel_stops(writer.kernel_starts(op, 0, 0));
        }
    }
    let lost = ring.state().lost;
    assert_eq!((lost.ops, lost.waits, lost.records), (0, 0, 0));
}

#[test]
fn the_journal_keeps_the_newest() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    for _ in 0..10_000 {
        let op = writer.launch(dp, Handle::NONE, Handle::NONE, &all_reduce(writer, 2, 1));
        writer.handed_over(op);
        writer.kernel_stops(writer.kernel_starts(op, 0, 0));
    }
    let state = ring.state();
    assert_eq!(
        state.recent.iter().map(|done| done.number).collect::<Vec<_>>(),
        (1808..10_000).collect::<Vec<_>>()
    );
    assert_eq!(state.lost.overwritten, 1808);
    assert_eq!(state.comms[0].bytes_done, 80_000);
}

#[test]
fn names_that_nobody_knows_are_kept_up_to_a_bound() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let first = writer.code(names::NameKind::Function, b"AllMagic");
    assert!(first >= 128);
    assert_eq!(writer.code(names::NameKind::Function, b"AllMagic"), first);
    let long = [b'x'; 100];
    let cut = writer.code(names::NameKind::Algorithm, &long);
    writer.launch(
        dp,
        Handle::NONE,
        Handle::NONE,
        &CallDescriptor { function: first, algorithm: cut, ..CallDescriptor::default() },
    );
    let codes: Vec<u8> =
        (0..100).map(|at| writer.code(names::NameKind::Function, format!("F{at}").as_bytes())).collect();
    assert_eq!(codes.iter().filter(|code| **code != 0).count(), 62);
    let call = ring.state().comms[0].in_flight[0].call.clone();
    assert_eq!(call.function, "AllMagic");
    assert_eq!(call.algorithm, "x".repeat(31));
}

#[test]
fn graph_runs_are_operations_and_recording_is_none() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let told = all_reduce(writer, 1, 1);
    let call = writer.call(dp, Handle::NONE, &CallDescriptor { is_captured: true, ..told });
    assert_ne!(call, Handle::NONE);
    assert_eq!(ring.state().comms[0].collectives, 0);
    for run in 0..3 {
        let op = writer.launch(dp, call, writer.plan_begins(dp), &told);
        writer.handed_over(op);
        let kernel = writer.kernel_starts(op, 0, 0);
        let state = ring.state();
        assert_eq!(
            (state.comms[0].in_flight[0].number, state.comms[0].in_flight[0].call.is_captured),
            (run, true)
        );
        writer.kernel_stops(kernel);
    }
    assert_eq!(ring.state().comms[0].collectives_done, 3);
}

#[test]
fn old_files_of_dead_processes_go_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(2);
    let place = |name: &str, content: &[u8], is_old: bool| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        if is_old {
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }
    };
    place("ring-999999999-1", b"", true);
    place("ring-999999998-1", b"", false);
    place("ring-x-1", b"", true);
    place("note.txt", b"", true);
    // A ring that was written a minute ago, whatever the time of its file: writes through a mapping do not
    // change that.
    let fresh = Ring::new();
    comm(&fresh.writer, "dp");
    place("ring-999999997-1", &std::fs::read(fresh.writer.path()).unwrap(), true);
    let writer = Writer::create(&options(dir.path())).unwrap();
    let mut left: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let own = writer.path().file_name().unwrap().to_str().unwrap().to_owned();
    let mut wanted = vec![
        own,
        "ring-999999997-1".to_owned(),
        "ring-999999998-1".to_owned(),
        "ring-x-1".to_owned(),
        "note.txt".to_owned(),
    ];
    wanted.sort();
    assert_eq!(left, wanted);
}

#[test]
fn no_ring_where_none_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    for bad in [link, dir.path().join("a/b/c"), "/proc".into(), "/dev/null".into()] {
        assert!(Writer::create(&options(&bad)).is_err(), "{}", bad.display());
    }
    // Another file under our name is not touched.
    let name = Ring::new().writer.path().file_name().unwrap().to_owned();
    std::fs::write(dir.path().join(&name), b"mine").unwrap();
    assert!(Writer::create(&options(dir.path())).is_err());
    assert_eq!(std::fs::read(dir.path().join(&name)).unwrap(), b"mine");
    // The second directory is tried when the first fails; a new one is created like /tmp.
    let second = dir.path().join("rings");
    let mut both = options(std::path::Path::new("/proc"));
    both.directories.push(second.clone());
    let writer = Writer::create(&both).unwrap();
    assert!(writer.path().starts_with(&second));
    assert_eq!(std::fs::metadata(&second).unwrap().permissions().mode() & 0o7777, 0o1777);
}

#[test]
fn a_call_that_is_passed_over_is_handed_over_with_its_group_and_over_with_the_next() {
    let ring = Ring::new();
    let writer = &ring.writer;
    let dp = comm(writer, "dp");
    let group = writer.group_begins().following(false);
    assert_eq!(group.is_followed(), Some(false));
    let passed = CallDescriptor { is_passed_over: true, ..all_reduce(writer, 1, 0) };
    writer.call(dp, group, &passed);
    assert!(!ring.state().comms[0].in_flight[0].is_end_visible);
    writer.group_ends(group);
    let state = ring.state();
    let op = &state.comms[0].in_flight[0];
    assert!(op.handed_over_ns.is_some() && !op.is_launched && !op.is_end_visible);

    // A reported launch does not turn it into an operation whose end is awaited.
    let group = writer.group_begins().following(true);
    assert_eq!(group.is_followed(), Some(true));
    let next = writer.call(dp, group, &all_reduce(writer, 1, 1));
    let next = writer.launch(dp, next, writer.plan_begins(dp), &all_reduce(writer, 1, 1));
    writer.handed_over(next);
    writer.group_ends(group);
    let state = ring.state();
    let seen: Vec<_> = state.comms[0].in_flight.iter().map(|op| (op.number, op.is_end_visible)).collect();
    assert_eq!(seen, [(0, false), (1, true)]);
    writer.kernel_stops(writer.kernel_starts(next, 0, 0));
    let state = ring.state();
    assert!(state.comms[0].in_flight.is_empty());
    assert_eq!(state.comms[0].collectives_done, 2);
}
