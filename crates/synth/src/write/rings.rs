//! Rings of NCCL's plugin, one per process: images of those alive when the operator looked, files of the others.

use std::collections::BTreeMap;

use ringleader_ring::{CallArgs, Comm, Done, Op, ReadMoment, RingProcess, State};

use super::{JobEnd, WriteContext};
use crate::job::CallKind;
use crate::sim::{HostEnd, Made};

/// Entries in the plugin's journal.
const JOURNAL: usize = 8192;
/// A node's monotonic clock at the job's start, ns.
const UP_NS: i64 = 400_000_000_000;
/// Shortest time between the start of a process and its first call, ns.
const BEFORE_NS: i64 = 20_000_000_000;

pub(super) fn write(scene: &WriteContext<'_>, files: &mut Vec<(String, Vec<u8>)>) {
    if scene.line.outcome == JobEnd::NeverBegan {
        // NCCL creates communicators after the rendezvous, so no plugin was loaded.
        return;
    }
    for rank in 0..scene.job.n {
        let info = scene.job.info(rank);
        let (state, read) = state(scene, rank);
        let name = format!("rings/{}/ring-{}-{}", scene.job.node_of(rank).host, info.pid, ticks(scene, rank));
        files.push((name, state.to_bytes(read)));
    }
}

fn ticks(scene: &WriteContext<'_>, rank: u32) -> u64 {
    (UP_NS / 10_000_000) as u64 + u64::from(scene.job.info(rank).local)
}

/// The state of a rank's ring, and whether its process was alive when it was read; None if the file was left behind.
fn state(scene: &WriteContext<'_>, rank: u32) -> (State, Option<bool>) {
    let job = scene.job;
    let run = &scene.run.ranks[rank as usize];
    let mono = |ns: i64| (ns + UP_NS + BEFORE_NS).max(1) as u64;
    let looked = scene.line.looked_ns.filter(|_| scene.line.outcome == JobEnd::TimedOut);
    let lives = looked.filter(|_| scene.alive(rank));
    let until = lives.unwrap_or(run.end_ns);
    let is_ended = match scene.line.outcome {
        JobEnd::Finished => true,
        // A rank that ended with status 0 had closed its communicators.
        _ => run.end == HostEnd::Exited,
    };
    let mut state = State {
        process: process(scene, rank, is_ended),
        taken: ReadMoment {
            mono_ns: mono(until),
            unix_ns: scene.wall(rank, until).max(0) as u64,
            is_held: lives.map(|_| true),
        },
        ..State::default()
    };
    let slots: BTreeMap<u16, usize> =
        job.groups_of[rank as usize].iter().enumerate().map(|(at, group)| (*group, at)).collect();
    for (slot, group) in job.groups_of[rank as usize].iter().enumerate() {
        let group = job.group(*group);
        state.comms.push(Comm {
            slot: slot as u32,
            id: group.hash,
            name: group.desc.to_owned(),
            size: group.ranks.len() as u32,
            rank: group.rank_of(rank),
            nodes: if group.one_node { 1 } else { 2 },
            created_ns: mono(-1_000_000_000),
            ended_ns: is_ended.then(|| mono(run.end_ns)),
            ..Comm::default()
        });
    }
    let first = run.made.len().saturating_sub(JOURNAL);
    for (at, made) in run.made.iter().enumerate() {
        let Some(slot) = slots.get(&made.group).copied() else { continue };
        let done = made.done_ns.filter(|done| *done <= until);
        let is_p2p = made.peer.is_some();
        let comm = &mut state.comms[slot];
        let (count, n_done) = if is_p2p {
            (&mut comm.p2p, &mut comm.p2p_done)
        } else {
            (&mut comm.collectives, &mut comm.collectives_done)
        };
        let number = *count;
        *count += 1;
        *n_done += u64::from(done.is_some());
        comm.progress_ns = comm.progress_ns.max(mono(done.unwrap_or(made.at_ns)));
        let (call, enqueued_ns) = (call(scene, made), mono(made.at_ns));
        match done {
            Some(done) if at >= first => {
                let started = made.started_ns.unwrap_or(made.at_ns);
                state.recent.push(Done {
                    comm: slot as u32,
                    number,
                    call,
                    enqueued_ns,
                    started_ns: mono(started),
                    ended_ns: mono(done),
                    gpu_ns: Some((done - started).max(0) as u64),
                    gpu_started_ns: Some(mono(started)),
                    longest_wait: None,
                    is_p2p,
                    is_end_seen: true,
                });
            }
            Some(_) => {}
            None => {
                let started = made.started_ns.filter(|at| *at <= until);
                comm.in_flight.push(Op {
                    number,
                    channels_started: if started.is_some() { call.channels } else { 0 },
                    call,
                    enqueued_ns,
                    handed_over_ns: Some(enqueued_ns + 9_000),
                    started_ns: started.map(mono),
                    is_end_visible: true,
                    is_p2p,
                    is_launched: true,
                    ..Op::default()
                });
            }
        }
    }
    state.recent.sort_by_key(|done| done.ended_ns);
    (state, lives.map(|_| true))
}

fn process(scene: &WriteContext<'_>, rank: u32, is_ended: bool) -> RingProcess {
    let job = scene.job;
    RingProcess {
        pid: job.info(rank).pid,
        start_ticks: ticks(scene, rank),
        boot_id: format!(
            "{:032x}",
            u128::from(job.groups.first().map_or(0, |g| g.hash)) << 8 | u128::from(job.info(rank).node)
        ),
        host: job.node_of(rank).host.clone(),
        rank: Some(rank),
        local_rank: Some(job.info(rank).local),
        world_size: Some(job.n),
        interface: 5,
        is_ended,
        kernels_ended_ns: None,
        exit: None,
    }
}

fn call(scene: &WriteContext<'_>, made: &Made) -> CallArgs {
    let call = &scene.job.calls[usize::from(made.call)];
    let (function, count) = match call.kind {
        CallKind::AllReduce | CallKind::Barrier => ("AllReduce", call.numel_in()),
        CallKind::AllGather => ("AllGather", call.numel_in()),
        CallKind::ReduceScatter => ("ReduceScatter", call.numel_out()),
        CallKind::Broadcast => ("Broadcast", call.numel_in()),
        CallKind::Reduce => ("Reduce", call.numel_in()),
        CallKind::Send => ("Send", call.numel_in()),
        CallKind::Recv => ("Recv", call.numel_in()),
    };
    let datatype = match call.dtype {
        "Half" => "ncclFloat16",
        "BFloat16" => "ncclBfloat16",
        "Double" => "ncclFloat64",
        "Long" => "ncclInt64",
        "Int" => "ncclInt32",
        "Byte" => "ncclUint8",
        _ => "ncclFloat32",
    };
    CallArgs {
        function: function.to_owned(),
        sequence: Some(u64::from(made.coll_seq.max(1) - 1)),
        count,
        datatype: datatype.to_owned(),
        root: matches!(call.kind, CallKind::Broadcast | CallKind::Reduce).then_some(call.root),
        peer: made.peer.map(u32::from),
        algorithm: "RING".to_owned(),
        protocol: "SIMPLE".to_owned(),
        channels: 4,
        is_captured: false,
    }
}
