//! All ranks in one timeline, on one clock, in Chrome's format, which Perfetto opens.

use std::io::{self, Write};

use ringleader_trace::Analysis;
use serde_json::json;

/// Events that are written; the first ones of each rank.
const MAX_EVENTS: usize = 2_000_000;

/// Writes the merged timeline. A process is a rank, a thread a stream; steps have a lane of their own, since slices of
/// one lane may not cross.
///
/// # Errors
/// If `out` takes no more.
pub fn write(analysis: &Analysis<'_>, out: &mut dyn Write) -> io::Result<()> {
    let origin = analysis
        .views
        .iter()
        .filter_map(ringleader_trace::view::RankTimeline::span)
        .map(|(from, _)| from)
        .min()
        .unwrap_or(0);
    let us = |ns: i64| (ns - origin) as f64 / 1e3;
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    let mut is_first = true;
    let mut event = |value: serde_json::Value, out: &mut dyn Write| -> io::Result<()> {
        if !std::mem::take(&mut is_first) {
            out.write_all(b",\n")?;
        }
        out.write_all(value.to_string().as_bytes())
    };
    let room = MAX_EVENTS / analysis.views.len().max(1);
    for (place, (view, steps)) in analysis.views.iter().zip(&analysis.steps).enumerate() {
        let shift = analysis.join.shift_ns.get(place).copied().unwrap_or(0);
        let name = format!("rank {}", view.rank);
        event(json!({"ph": "M", "name": "process_name", "pid": view.rank, "args": {"name": name}}), out)?;
        for (at, step) in steps.all.iter().enumerate() {
            let usual = steps.usual.contains(&(at as u32));
            let label = format!("step {}{}", step.number, if usual { "" } else { " (set apart)" });
            let (from, to) = step.window;
            event(
                json!({"ph": "X", "name": label, "cat": "step", "pid": view.rank, "tid": 1_000_000,
                       "ts": us(from + shift), "dur": (to - from) as f64 / 1e3}),
                out,
            )?;
        }
        for work in view.work().iter().take(room) {
            event(
                json!({"ph": "X", "name": view.timeline.name(work.name), "cat": format!("{:?}", work.kind), "pid": view.rank,
                       "tid": work.stream, "ts": us(work.start_ns + shift), "dur": (work.end_ns - work.start_ns) as f64 / 1e3}),
                out,
            )?;
        }
    }
    for advice in analysis.advice.iter().filter(|advice| advice.is_worth) {
        let rank = advice.culprits.first().copied().or(analysis.views.first().map(|v| v.rank));
        let at = analysis
            .steps
            .first()
            .and_then(|s| s.all.get(*s.usual.first()? as usize))
            .map_or(origin, |s| s.window.0);
        let label = format!("{}: {}", advice.cause, advice.seen);
        event(
            json!({"ph": "i", "s": "p", "name": label, "cat": "finding", "pid": rank, "tid": 1_000_000, "ts": us(at)}),
            out,
        )?;
    }
    out.write_all(b"\n]}\n")
}
