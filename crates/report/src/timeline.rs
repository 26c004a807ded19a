//! The report's timeline as a Perfetto trace: a process for each row of ranks, a track for each of its groups.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::json::{Report, Span, SpanState};
use crate::perfetto::{ArgumentValue, Lanes, Slice, TraceWriter, TrackId};
use crate::quote::plain;
use crate::text::ranks;

/// Writes the operations around the failure, and the failure itself.
///
/// # Errors
/// If `out` takes no more.
pub fn perfetto(report: &Report, out: impl Write) -> io::Result<()> {
    let start = report.timeline.iter().map(|span| span.start_ns).min().or(report.failed_ns).unwrap_or(0);
    let mut writer = TraceWriter::new(out, start)?;
    if let Some(failed_ns) = report.failed_ns {
        let verdict = writer.child(None, "ringleader", 0)?;
        let cause = ArgumentValue::Text(&report.verdict.cause);
        writer.moment(verdict, &plain(&report.verdict.summary), failed_ns, &[("cause", cause)])?;
    }
    let rows = report.timeline.chunk_by(|a, b| a.ranks == b.ranks);
    for (number, row) in (1..).zip(rows) {
        let name = row.first().map(|span| ranks(&span.ranks)).unwrap_or_default();
        let process = writer.process(number, &name)?;
        let mut lanes: BTreeMap<&str, (u32, Lanes)> = BTreeMap::new();
        for span in row {
            let order = lanes.len() as u32;
            let (order, lanes) = lanes.entry(&span.group).or_insert_with(|| (order, Lanes::default()));
            slice(&mut writer, lanes, process, *order, span)?;
        }
    }
    writer.finish().map(drop)
}

fn slice<W: Write>(
    writer: &mut TraceWriter<W>,
    lanes: &mut Lanes,
    process: TrackId,
    order: u32,
    span: &Span,
) -> io::Result<()> {
    let state = match span.state {
        SpanState::Finished => "finished",
        SpanState::Running => "running",
        SpanState::Waiting => "waiting",
        SpanState::Called => "called",
    };
    let name = span.seq.map_or_else(|| span.op.clone(), |seq| format!("{} #{seq}", span.op));
    let mut arguments =
        vec![("ranks", ArgumentValue::Text(&span.ranks)), ("state", ArgumentValue::Text(state))];
    arguments.extend(span.seq.map(|seq| ("number", ArgumentValue::Integer(seq.into()))));
    // A call without a recorded end is a point, not a wait.
    let is_open = matches!(span.state, SpanState::Waiting | SpanState::Running);
    let end_ns = span.end_ns.or((!is_open).then_some(span.start_ns));
    let slice = Slice {
        name: &plain(&name),
        category: state,
        start_ns: span.start_ns,
        end_ns,
        arguments: &arguments,
    };
    lanes.slice(writer, Some(process), &plain(&span.group), order, &slice)
}
