//! Rings of NCCL's plugin as timelines: which operations ran when, of a job that no profiler recorded. They show
//! communication alone, so a step is what lies between two rounds of the same operations, and computation is unknown.

use std::collections::BTreeMap;

use ringleader_model::{
    CommCall, DeviceWork, Host, OpKind, Pid, Rank, Recorder, RingCall, RingComm, RingOp, RingRecord,
    Timeline, WorkKind,
};

/// Newest operations of a ring that are taken: some hundred steps.
const MAX_OPS: usize = 100_000;

/// The operations of a ring whose start and end were seen; None if there is none.
pub fn timeline(
    ring: &RingRecord,
    rank: Option<Rank>,
    host: Option<Host>,
    pid: Option<Pid>,
) -> Option<Timeline> {
    let mut timeline = Timeline::new(Recorder::NcclPlugin);
    (timeline.rank, timeline.host, timeline.pid, timeline.world_size) = (rank, host, pid, ring.world_size);
    timeline.is_damaged = ring.n_lost > 0;
    timeline.n_events = ring.ops.len() as u64;
    // Of each call and communicator, the place of its arguments, and of its name.
    let mut places: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let seen = |op: &&RingOp| op.started_ns > 0 && op.ended_ns >= op.started_ns;
    for op in ring.ops.iter().filter(seen).rev().take(MAX_OPS) {
        let (Some(call), Some(comm)) = (ring.calls.get(op.call as usize), ring.comms.get(op.comm as usize))
        else {
            continue;
        };
        let next = places.len() as u32;
        let name = *places.entry((op.call, op.comm)).or_insert(next);
        if name == next {
            timeline.names.push(label(call).into());
        }
        timeline
            .calls
            .push(CommCall { seq: (!op.is_p2p).then_some(op.number.into()), ..arguments(call, comm) });
        timeline.work.push(DeviceWork {
            start_ns: op.started_ns,
            end_ns: op.ended_ns,
            name,
            stream: op.comm,
            kind: WorkKind::Comm,
            correlation: 0,
            call: timeline.calls.len() as u32,
            size_bytes: 0,
            n_blocks: op.channels.0.into(),
        });
    }
    timeline.work.sort_by_key(|work| (work.start_ns, work.end_ns));
    (!timeline.work.is_empty()).then_some(timeline)
}

/// `all_reduce of 6553600 Float`: operations of one name are alike.
fn label(call: &RingCall) -> String {
    format!("{} of {} {}", call.kind.name(), call.count, call.dtype)
}

fn arguments(call: &RingCall, comm: &RingComm) -> CommCall {
    let n = u64::from(comm.size.max(1));
    // NCCL counts a rank's own part of these.
    let (given, got) = match call.kind {
        OpKind::AllGather => (call.count, call.count.saturating_mul(n)),
        OpKind::ReduceScatter => (call.count.saturating_mul(n), call.count),
        _ => (call.count, call.count),
    };
    CommCall {
        kind: Some(call.kind),
        group: format!("{:x}", comm.id).into(),
        description: comm.name.clone(),
        group_size: comm.size,
        in_elements: given,
        out_elements: got,
        element_bytes: element_bytes(&call.dtype),
        peer: call.peer,
        ..CommCall::default()
    }
}

/// Types by the names that readers of rings give them, and the bytes of an element.
const TYPES: [(&str, u32); 12] = [
    ("Char", 1),
    ("Byte", 1),
    ("Float8_e4m3fn", 1),
    ("Float8_e5m2", 1),
    ("Half", 2),
    ("BFloat16", 2),
    ("Int", 4),
    ("UInt32", 4),
    ("Float", 4),
    ("Long", 8),
    ("UInt64", 8),
    ("Double", 8),
];

fn element_bytes(dtype: &str) -> u32 {
    TYPES.iter().find(|(name, _)| *name == dtype).map_or(0, |(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::timeline;
    use ringleader_model::{OpKind, Rank, RingCall, RingComm, RingOp, RingRecord};

    #[test]
    fn only_what_was_seen_from_start_to_end_is_shown() {
        let op = |number: u32, started_ns: i64, ended_ns: i64| RingOp {
            number,
            started_ns,
            ended_ns,
            ..RingOp::default()
        };
        let ring = RingRecord {
            comms: vec![RingComm { id: 0xab, size: 4, ..RingComm::default() }],
            calls: vec![RingCall {
                kind: OpKind::AllGather,
                count: 10,
                dtype: "BFloat16".into(),
                root: None,
                peer: None,
            }],
            ops: vec![op(1, 100, 150), op(2, 200, 260), op(3, 300, 0), op(4, 0, 0)],
            ..RingRecord::default()
        };
        let shown = timeline(&ring, Some(Rank(3)), None, None).unwrap();
        assert_eq!(
            shown.work.iter().map(|w| (w.start_ns, w.end_ns)).collect::<Vec<_>>(),
            [(100, 150), (200, 260)]
        );
        let call = shown.call_of(&shown.work[1]).unwrap();
        assert_eq!((call.seq, call.size_bytes(), &*call.group), (Some(2), Some(80), "ab"));
        assert!(timeline(&RingRecord::default(), None, None, None).is_none());
    }
}
