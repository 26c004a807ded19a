//! Prints the state of rings: `cargo run -p ringleader-ring --example dump -- /dev/shm/ringleader/ring-*`.
//!
//! Rings of running processes are read as the agent reads them. `--json` prints one line per ring with the fields of
//! `State`. `--freeze DIR` writes the image into DIR under the ring's name: it is evidence like the ring itself.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::{Path, PathBuf};

use ringleader_ring::{CallArgs, Comm, Done, Op, Reader, State, Wait};
use serde_json::{Value, json};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut as_json, mut folder, mut has_failed) = (false, None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => as_json = true,
            "--freeze" => folder = arguments.next().map(PathBuf::from),
            path => match read(Path::new(path), folder.as_deref()) {
                Ok(state) if as_json => println!("{}", of_state(path, &state)),
                Ok(state) => println!("{path}: {state:#?}"),
                Err(why) => {
                    eprintln!("{path}: {why}");
                    has_failed = true;
                }
            },
        }
    }
    if has_failed {
        std::process::exit(1);
    }
}

/// The state of a ring, or of an image of one, which contains the time when it was taken.
fn read(path: &Path, folder: Option<&Path>) -> Result<State, String> {
    let bytes = std::fs::read(path).map_err(|why| why.to_string())?;
    let state = State::parse(&bytes).map_err(|why| why.to_string())?;
    if state.taken.is_held.is_some() {
        return Ok(state);
    }
    let image = Reader::open(path).and_then(|reader| reader.image()).map_err(|why| why.to_string())?;
    if let (Some(folder), Some(name)) = (folder, path.file_name()) {
        std::fs::write(folder.join(name), &image).map_err(|why| why.to_string())?;
    }
    State::parse(&image).map_err(|why| why.to_string())
}

fn of_state(path: &str, state: &State) -> Value {
    let (process, lost) = (&state.process, &state.lost);
    json!({
        "path": path,
        "pid": process.pid,
        "rank": process.rank,
        "interface": process.interface,
        "is_ended": process.is_ended,
        "kernels_ended_ns": process.kernels_ended_ns,
        "exit": process.exit.map(|exit| json!([exit.code, exit.at_ns])),
        "is_held": state.taken.is_held,
        "taken_ns": state.taken.mono_ns,
        "comms": state.comms.iter().map(of_comm).collect::<Vec<_>>(),
        "recent": state.recent.iter().map(of_done).collect::<Vec<_>>(),
        "lost": {
            "comms": lost.comms,
            "ops": lost.ops,
            "waits": lost.waits,
            "records": lost.records,
            "overwritten": lost.overwritten,
            "faults": lost.faults,
            "torn": lost.torn,
        },
    })
}

fn of_comm(comm: &Comm) -> Value {
    json!({
        "slot": comm.slot,
        "id": format!("{:#x}", comm.id),
        "name": comm.name,
        "size": comm.size,
        "rank": comm.rank,
        "nodes": comm.nodes,
        "is_ended": comm.ended_ns.is_some(),
        "collectives": comm.collectives,
        "collectives_done": comm.collectives_done,
        "p2p": comm.p2p,
        "p2p_done": comm.p2p_done,
        "in_flight": comm.in_flight.iter().map(of_op).collect::<Vec<_>>(),
    })
}

fn of_op(op: &Op) -> Value {
    json!({
        "number": op.number,
        "is_p2p": op.is_p2p,
        "call": of_call(&op.call),
        "enqueued_ns": op.enqueued_ns,
        "is_handed_over": op.handed_over_ns.is_some(),
        "is_started": op.started_ns.is_some(),
        "channels_started": op.channels_started,
        "channels_stopped": op.channels_stopped,
        "is_launched": op.is_launched,
        "is_end_visible": op.is_end_visible,
        "waits": op.waits.iter().map(of_wait).collect::<Vec<_>>(),
    })
}

fn of_done(done: &Done) -> Value {
    json!({
        "comm": done.comm,
        "number": done.number,
        "is_p2p": done.is_p2p,
        "call": of_call(&done.call),
        "enqueued_ns": done.enqueued_ns,
        "started_ns": done.started_ns,
        "ended_ns": done.ended_ns,
        "gpu_ns": done.gpu_ns,
        "is_end_seen": done.is_end_seen,
    })
}

fn of_call(call: &CallArgs) -> Value {
    json!({
        "function": call.function,
        "sequence": call.sequence,
        "count": call.count,
        "datatype": call.datatype,
        "root": call.root,
        "peer": call.peer,
        "algorithm": call.algorithm,
        "protocol": call.protocol,
        "channels": call.channels,
        "is_captured": call.is_captured,
    })
}

fn of_wait(wait: &Wait) -> Value {
    json!({
        "peer": wait.peer,
        "channel": wait.channel,
        "is_send": wait.is_send,
        "phase": format!("{:?}", wait.phase),
        "steps_done": wait.steps_done,
        "steps": wait.steps,
    })
}
