//! One operation of a ring, in words.

use std::fmt::Write as _;

use ringleader_model::{Evidence, RingOp, RingRecord, RingStage, SourceKind};

use crate::track::{Origin, Track};

/// `12:03:04.1`, UTC.
pub fn clock(ns: i64) -> String {
    let tenths = ns.div_euclid(100_000_000);
    let s = tenths.div_euclid(10).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}.{}", s / 3_600, s / 60 % 60, s % 60, tenths.rem_euclid(10))
}

/// The state of an operation in words: `, handed over 12:03:04.1, kernel not started`.
pub fn state(ring: &RingRecord, at: u32) -> String {
    let Some(op) = ring.ops.get(at as usize) else { return String::new() };
    let mut text = format!(", handed over {}", clock(op.enqueued_ns));
    match op.stage() {
        RingStage::Finished => text.push_str(", finished"),
        RingStage::Started => {
            let (started, stopped) = op.channels;
            text.push_str(", kernel runs");
            if stopped > 0 && stopped < started {
                let _ = write!(text, " ({stopped} of {started} channels done)");
            }
        }
        RingStage::Launched | RingStage::Entered if op.is_captured => {
            text.push_str(", recorded into a graph");
        }
        RingStage::Launched | RingStage::Entered if !op.is_end_visible => {
            text.push_str(", its end cannot be seen");
        }
        RingStage::Entered => text.push_str(", not yet given to the GPU"),
        RingStage::Launched => text.push_str(", kernel not started"),
    }
    text
}

/// `all_reduce #45 of dp`.
pub fn operation(ring: &RingRecord, op: &RingOp) -> String {
    let call = ring.calls.get(op.call as usize);
    let kind = call.map_or("operation", |c| c.kind.name());
    let group = ring.comms.get(op.comm as usize).map_or_else(
        || "a communicator".to_owned(),
        |c| if c.name.is_empty() { format!("communicator {:016x}", c.id) } else { c.name.to_string() },
    );
    let peer = call.and_then(|c| c.peer).map_or_else(String::new, |p| format!(" with member {p}"));
    format!("{kind} #{}{peer} of {group}", op.number)
}

/// The record of a track's operation, cited.
pub fn record(track: &Track<'_>, at: u32, who: &str) -> Option<Evidence> {
    let Origin::Ring(ring) = track.origin else { return None };
    let op = ring.ops.get(at as usize)?;
    let text = format!("{who}: {}{}", operation(ring, op), state(ring, at));
    Some(Evidence { cite: track.cite_op(at), text, kind: SourceKind::Ring })
}
