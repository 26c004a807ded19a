//! NCCL's Inspector plugin: a line of JSON for each collective or point-to-point operation of one process.
//!
//! It records how long operations took and not always when. Records without a time follow one another, so what is said of
//! them is their cost and bandwidth alone.

use std::collections::BTreeMap;

use ringleader_model::{
    CommCall, DeviceWork, Fact, NoteKind, OpKind, Pid, Rank, Recorder, SourceKind, Timeline, Who, WorkKind,
};
use serde_json::Value;

use super::kinds;
use super::reach;
use crate::ground::Sink;

/// Largest file that is read: it is held in memory.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Records of one file.
const MAX_RECORDS: usize = 10_000_000;

/// Whether a file begins with a record of the plugin.
pub(crate) fn is_inspector(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or(head);
    let has = |word: &[u8]| memchr::memmem::find(line, word).is_some();
    line.trim_ascii_start().starts_with(b"{")
        && has(b"\"inspector_output_format_version\"")
        && (has(b"\"coll_perf\"") || has(b"\"p2p_perf\""))
}

/// Reads a file: a timeline for each communicator's rank.
pub(crate) fn read(bytes: &[u8], sink: &mut Sink<'_>) {
    sink.saw(SourceKind::Timeline);
    let whole = sink.cite(0, 0, bytes.len() as u64);
    let mut timeline = Timeline::new(Recorder::Inspector);
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let mut clock_ns = 0;
    let mut n_bad = 0;
    let mut largest = 0;
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(MAX_RECORDS) {
        timeline.n_events += 1;
        let Ok(record) = serde_json::from_slice::<Value>(line) else {
            n_bad += 1;
            continue;
        };
        let text = |at: &str| record.pointer(at).and_then(Value::as_str);
        let number = |at: &str| record.pointer(at).and_then(Value::as_f64);
        let n_ranks = number("/header/n_ranks").unwrap_or(0.0) as u32;
        // The largest communicator gives the rank in the job.
        if n_ranks > largest {
            largest = n_ranks;
            timeline.rank = number("/header/rank").map(|rank| Rank(rank as u32));
            timeline.world_size = Some(n_ranks);
        }
        timeline.host =
            timeline.host.take().or_else(|| text("/metadata/hostname").map(crate::ground::host_of));
        timeline.pid = timeline.pid.or(number("/metadata/pid").map(|pid| Pid(pid as u32)));
        let is_pair = record.get("p2p_perf").is_some();
        let part = if is_pair { "p2p" } else { "coll" };
        let of = |key: &str| number(&format!("/{part}_perf/{part}_{key}"));
        let Some(duration_us) = of("exec_time_us").filter(|us| (0.0..1e12).contains(us)) else {
            n_bad += 1;
            continue;
        };
        let label = text(&format!("/{part}_perf/{part}")).unwrap_or("operation").to_owned();
        let next = names.len() as u32;
        let name = *names.entry(label.clone()).or_insert(next);
        let size_bytes = of("msg_size_bytes").unwrap_or(0.0).max(0.0) as u64;
        let kind = kinds::op_kind(&label);
        // Messages of these are a rank's part.
        let scale = if matches!(kind, Some(OpKind::AllGather | OpKind::ReduceScatter)) {
            u64::from(n_ranks.max(1))
        } else {
            1
        };
        let at_ns = number(&format!("/{part}_perf/event_trace_ts"))
            .filter(|us| *us > 0.0)
            .map(|us| (us * 1e3) as i64);
        let start_ns = at_ns.filter(|ns| ns.abs() < 1 << 61).unwrap_or(clock_ns);
        let end_ns = start_ns + (duration_us * 1e3) as i64;
        clock_ns = clock_ns.max(end_ns);
        timeline.calls.push(CommCall {
            kind,
            group: text("/header/id").unwrap_or_default().into(),
            description: text("/header/comm_name").unwrap_or_default().into(),
            group_size: n_ranks,
            seq: of("sn").map(|n| n as u64),
            in_elements: size_bytes.saturating_mul(scale),
            out_elements: size_bytes.saturating_mul(scale),
            element_bytes: 1,
            peer: of("peer").map(|peer| peer as u32),
            stated_busbw_mbs: of("busbw_gbs").map_or(0, |gbs| (gbs * 1e3).max(0.0) as u64),
            ..CommCall::default()
        });
        timeline.work.push(DeviceWork {
            start_ns,
            end_ns,
            name,
            stream: 0,
            kind: WorkKind::Comm,
            correlation: 0,
            call: timeline.calls.len() as u32,
            size_bytes: 0,
            n_blocks: 0,
        });
    }
    if n_bad > 0 {
        sink.note(
            whole,
            NoteKind::Malformed,
            format!("{n_bad} lines are no records of the plugin and were left out"),
        );
    }
    let mut ordered: Vec<(String, u32)> = names.into_iter().collect();
    ordered.sort_by_key(|(_, at)| *at);
    timeline.names = ordered.into_iter().map(|(name, _)| name.into()).collect();
    timeline.work.sort_by_key(|w| (w.start_ns, w.end_ns));
    timeline.is_damaged = n_bad > 0;
    reach::within(&mut timeline);
    let who = Who { rank: timeline.rank, host: timeline.host.clone(), pid: timeline.pid, ..Who::default() };
    sink.push(whole, who, None, Fact::Timeline(Box::new(timeline)), b"");
}
