//! Rings of NCCL's plugin: the file that `libringleader_nccl.so` keeps for each process, or a frozen image of it.
//!
//! What the bytes mean is `ringleader_ring`'s to say (`State::parse`); here its state becomes observations. Numbers of
//! operations count from 1, as torch's do; times are put on the wall clock of the ring's host.

use std::collections::BTreeMap;
use std::ops::Range;

use ringleader_model::{
    Cite, Fact, LocalRank, NoteKind, OpKind, Pid, Rank, RingCall, RingComm, RingOp, RingPhase, RingRecord,
    RingWait, SourceKind, WallTime, Who,
};
use ringleader_ring::{CallArgs, Comm, Done, Op, Phase, ReadMoment, State};

use crate::ground::Sink;

/// First bytes of a ring.
pub(crate) const MAGIC: &[u8] = b"RLRING1\n";

/// Reads a ring.
pub(crate) fn read(bytes: &[u8], sink: &mut Sink<'_>) {
    sink.saw(SourceKind::Ring);
    let cite = Cite::whole(sink.source);
    let state = match State::parse(bytes) {
        Ok(state) => state,
        Err(why) => {
            // What it was while it was whole is not known.
            return sink.note(cite, NoteKind::Unreadable, why.to_string());
        }
    };
    note_losses(&state, sink);
    let who = Who {
        rank: state.process.rank.map(Rank),
        local_rank: state.process.local_rank.map(LocalRank),
        host: state.process.host.split('.').next().filter(|h| !h.is_empty()).map(Into::into),
        pid: (state.process.pid != 0).then_some(Pid(state.process.pid)),
    };
    let record = record(&state, &State::places(bytes));
    let at = WallTime { ns: record.taken_ns, error_ns: 0, has_year: true };
    sink.push(cite, who, Some(at), Fact::Ring(Box::new(record)), b"");
}

fn note_losses(state: &State, sink: &mut Sink<'_>) {
    let cite = Cite::whole(sink.source);
    let lost = &state.lost;
    for (n, what) in [
        (lost.comms, "communicators"),
        (lost.ops, "operations"),
        (lost.waits, "proxy operations"),
        (lost.records, "ended operations"),
    ] {
        if n > 0 {
            sink.note(cite, NoteKind::LimitReached, format!("the ring had no room for {n} {what}"));
        }
    }
    if lost.torn > 0 {
        let text = format!(
            "{} entries were being written when the ring was read, or when its process died",
            lost.torn
        );
        sink.note(cite, NoteKind::Truncated, text);
    }
    if lost.faults > 0 {
        let text =
            "the plugin had an internal fault and stopped recording: what came later is not in the ring"
                .to_owned();
        sink.note(cite, NoteKind::Truncated, text);
    }
    let n_nameless = state.comms.iter().filter(|comm| comm.id == 0).count();
    if n_nameless > 0 {
        let text = format!(
            "{n_nameless} communicators are unknown: NCCL's profiler interface {} names one with its first operation",
            state.process.interface
        );
        sink.note(cite, NoteKind::Remark, text);
    }
}

/// Times of one ring on the wall clock.
struct Wall(ReadMoment);

/// The year 2116. A damaged ring may hold any number; those who reckon with times want room for it.
const LATEST_NS: i64 = i64::MAX / 2;

impl Wall {
    fn of(&self, mono_ns: u64) -> i64 {
        if mono_ns == 0 {
            0
        } else {
            i64::try_from(self.0.unix_of(mono_ns)).unwrap_or(LATEST_NS).min(LATEST_NS)
        }
    }
}

/// Where operations are in the bytes, by communicator, whether they are sends or receives, and number.
type RecordSpans = BTreeMap<(u32, bool, u64), Range<u64>>;

/// Distinct calls, by what they say.
#[derive(Default)]
struct Calls {
    known: BTreeMap<RingCall, u32>,
    all: Vec<RingCall>,
}

impl Calls {
    fn index(&mut self, call: &CallArgs) -> u32 {
        let kind = OpKind::from_nccl(&call.function);
        let call = RingCall {
            kind,
            count: call.count,
            dtype: dtype(&call.datatype).into(),
            root: call.root,
            peer: call.peer,
        };
        if let Some(at) = self.known.get(&call) {
            return *at;
        }
        let at = self.all.len() as u32;
        self.all.push(call.clone());
        self.known.insert(call, at);
        at
    }
}

/// Torch's name of NCCL's type.
fn dtype(name: &str) -> &str {
    match name {
        "ncclInt8" => "Char",
        "ncclUint8" => "Byte",
        "ncclInt32" => "Int",
        "ncclUint32" => "UInt32",
        "ncclInt64" => "Long",
        "ncclUint64" => "UInt64",
        "ncclFloat16" => "Half",
        "ncclFloat32" => "Float",
        "ncclFloat64" => "Double",
        "ncclBfloat16" => "BFloat16",
        "ncclFloat8e4m3" => "Float8_e4m3fn",
        "ncclFloat8e5m2" => "Float8_e5m2",
        other => other,
    }
}

fn record(state: &State, spans: &RecordSpans) -> RingRecord {
    // An image shows whether a process still held the ring. That of a dead one was read at some time after its end:
    // what counts is the last thing it knew.
    let is_live = state.taken.is_held == Some(true);
    let taken_ns = if is_live { state.taken.mono_ns } else { newest(state).unwrap_or(state.taken.mono_ns) };
    let wall = Wall(state.taken);
    let mut calls = Calls::default();
    let mut ops: Vec<(RingOp, Vec<RingWait>)> = Vec::new();
    let places: BTreeMap<u32, u32> = (0..).zip(&state.comms).map(|(at, comm)| (comm.slot, at)).collect();
    for done in &state.recent {
        let Some(comm) = places.get(&done.comm) else { continue };
        let span = span(spans, (done.comm, done.is_p2p, done.number));
        ops.push((RingOp { span, ..ended(done, *comm, calls.index(&done.call), &wall) }, Vec::new()));
    }
    for (comm, of_comm) in (0..).zip(&state.comms) {
        for op in &of_comm.in_flight {
            let span = span(spans, (of_comm.slot, op.is_p2p, op.number));
            let (ring_op, waits) = in_flight(op, comm, calls.index(&op.call), &wall);
            ops.push((RingOp { span, ..ring_op }, waits));
        }
    }
    ops.sort_by_key(|(op, _)| (op.enqueued_ns, op.comm, op.is_p2p, op.number));
    let waits =
        (0..).zip(&ops).flat_map(|(at, (_, waits))| waits.iter().map(move |w| RingWait { op: at, ..*w }));
    let lost = &state.lost;
    RingRecord {
        world_size: state.process.world_size,
        boot_id: state.process.boot_id.as_str().into(),
        start_ticks: state.process.start_ticks,
        interface: state.process.interface,
        is_ended: state.process.is_ended,
        exit: state.process.exit.map(|exit| (exit.code, wall.of(exit.at_ns))),
        is_live,
        taken_ns: wall.of(taken_ns),
        comms: state.comms.iter().map(|comm| communicator(comm, &wall)).collect(),
        calls: calls.all,
        waits: waits.collect(),
        ops: ops.iter().map(|(op, _)| *op).collect(),
        n_lost: lost.comms.saturating_add(lost.ops).saturating_add(lost.waits),
        n_torn: lost.torn,
    }
}

/// Bytes from and to; equal if they are not known.
fn span(spans: &RecordSpans, key: (u32, bool, u64)) -> (u64, u64) {
    spans.get(&key).map_or((0, 0), |span| (span.start, span.end))
}

/// The newest time that a ring knows of.
fn newest(state: &State) -> Option<u64> {
    let of_comms = state.comms.iter().flat_map(|c| [c.progress_ns, c.created_ns, c.ended_ns.unwrap_or(0)]);
    let exit = state.process.exit.iter().map(|exit| exit.at_ns);
    of_comms.chain(state.recent.iter().map(|d| d.ended_ns)).chain(exit).max()
}

fn communicator(comm: &Comm, wall: &Wall) -> RingComm {
    RingComm {
        id: comm.id,
        name: comm.name.as_str().into(),
        size: comm.size,
        rank: comm.rank,
        created_ns: wall.of(comm.created_ns),
        ended_ns: wall.of(comm.ended_ns.unwrap_or(0)),
        collectives: comm.collectives,
        collectives_done: comm.collectives_done,
        p2p: comm.p2p,
        p2p_done: comm.p2p_done,
        progress_ns: wall.of(comm.progress_ns),
    }
}

/// The ring counts from 0, the record from 1.
fn number(number: u64) -> u32 {
    u32::try_from(number.saturating_add(1)).unwrap_or(u32::MAX)
}

fn ended(done: &Done, comm: u32, call: u32, wall: &Wall) -> RingOp {
    // Where the end was not seen, its time is only the newest sign of it.
    let seen = done.is_end_seen;
    RingOp {
        number: number(done.number),
        comm,
        call,
        enqueued_ns: wall.of(done.enqueued_ns),
        started_ns: if seen { wall.of(done.started_ns) } else { 0 },
        ended_ns: wall.of(done.ended_ns.max(1)),
        gpu_ns: done.gpu_ns.filter(|_| seen).unwrap_or(0),
        is_p2p: done.is_p2p,
        is_launched: true,
        is_end_visible: seen,
        is_captured: done.call.is_captured,
        channels: (done.call.channels, done.call.channels),
        span: (0, 0),
    }
}

fn in_flight(op: &Op, comm: u32, call: u32, wall: &Wall) -> (RingOp, Vec<RingWait>) {
    let waits = op.waits.iter().map(|wait| RingWait {
        op: 0,
        peer: wait.peer,
        channel: wait.channel,
        is_send: wait.is_send,
        phase: match wait.phase {
            Phase::Unknown => RingPhase::Unknown,
            Phase::SendGpu => RingPhase::SendGpu,
            Phase::SendPeer => RingPhase::SendPeer,
            Phase::SendNet => RingPhase::SendNet,
            Phase::RecvNet => RingPhase::RecvNet,
            Phase::RecvFlush => RingPhase::RecvFlush,
            Phase::RecvGpu => RingPhase::RecvGpu,
        },
        since_ns: wall.of(wait.since_ns),
        steps: (wait.steps_done, wait.steps),
    });
    let ring_op = RingOp {
        number: number(op.number),
        comm,
        call,
        enqueued_ns: wall.of(op.enqueued_ns),
        started_ns: wall.of(op.started_ns.unwrap_or(0)),
        ended_ns: 0,
        gpu_ns: 0,
        is_p2p: op.is_p2p,
        is_launched: op.is_launched,
        is_end_visible: op.is_end_visible,
        is_captured: op.call.is_captured,
        channels: (op.channels_started, op.channels_stopped),
        span: (0, 0),
    };
    (ring_op, waits.collect())
}

#[cfg(test)]
mod tests;
