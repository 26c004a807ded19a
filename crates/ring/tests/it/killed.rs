//! A process that dies during a collective leaves its last state.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use ringleader_ring::{Handle, Phase, Reader, State, Writer, rings_in};

use crate::{all_reduce, comm, options};

const DIRECTORY: &str = "RING_TEST_CHILD";

/// The child process: it runs in the same test binary, selected by name.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let writer = Writer::create(&options(dir.as_ref())).unwrap();
    writer.interface(5);
    let dp = comm(&writer, "dp");
    let told = all_reduce(&writer, 1 << 20, 2);
    for _ in 0..10 {
        let op = writer.launch(dp, Handle::NONE, writer.plan_begins(dp), &told);
        writer.handed_over(op);
        let kernels = [writer.kernel_starts(op, 0, 1), writer.kernel_starts(op, 1, 1)];
        for kernel in kernels {
            writer.kernel_stops(kernel);
        }
    }
    let op = writer.launch(dp, Handle::NONE, writer.plan_begins(dp), &told);
    let proxy = writer.proxy_starts(op, None, 6, 1, 4, false);
    writer.handed_over(op);
    writer.kernel_stops(writer.kernel_starts(op, 0, 1));
    writer.kernel_starts(op, 1, 1);
    writer.step_waits(writer.step_starts(proxy, 0), Phase::RecvNet);
    writeln!(std::io::stderr(), "ready").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn the_last_state_outlives_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed::child_that_is_killed", "--exact", "--nocapture"])
        .env(DIRECTORY, dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    let path = rings_in(dir.path()).remove(0);
    let reader = Reader::open(&path).unwrap();
    assert!(reader.is_held());
    let alive = reader.state().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!reader.is_held());

    let dead = State::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(dead.process.pid, child.id());
    assert_eq!(dead.process.interface, 5);
    assert!(!dead.process.is_ended);
    assert_eq!(dead.comms, alive.comms);
    assert_eq!(dead.recent, alive.recent);
    let dp = &dead.comms[0];
    assert_eq!((dp.collectives, dp.collectives_done, dp.in_flight.len()), (11, 10, 1));
    let op = &dp.in_flight[0];
    assert_eq!((op.number, op.open_channels, op.call.function.as_str()), (10, 0b10, "AllReduce"));
    assert_eq!((op.waits[0].peer, op.waits[0].phase), (6, Phase::RecvNet));
    // In a later reading, its newest time is the time of its death.
    assert!(dead.taken.mono_ns <= alive.taken.mono_ns);
    assert!(dead.taken.unix_ns.abs_diff(alive.taken.unix_ns) < 60_000_000_000);
}
