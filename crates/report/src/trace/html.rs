//! The report of `ringleader trace` as one page that fetches nothing.

use std::fmt::Write as _;

use ringleader_trace::Analysis;

use super::picture::escaped;
use super::{TraceReport, plot, text};
use crate::{Detail, TextStyle};

/// The page.
pub fn render(report: &TraceReport, analysis: &Analysis<'_>) -> String {
    let mut out = String::from(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>ringleader trace</title>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <style>body{font:14px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{overflow-x:auto;background:#f6f6f6;padding:1em}\
         table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}</style>\n",
    );
    let verdict = &report.verdict;
    let _ = writeln!(out, "<h1>{}</h1><p>{}</p>", escaped(&verdict.cause), escaped(&verdict.summary));
    let _ = writeln!(out, "<h2>A typical step of each rank (ms)</h2>{}", plot::steps(report).to_svg());
    if let Some(timeline) = plot::timeline(analysis) {
        let _ = writeln!(out, "<h2>One step of each rank on a common clock</h2>{}", timeline.to_svg());
    }
    if let Some(waits) = plot::lateness(analysis) {
        let _ = writeln!(
            out,
            "<h2>Waiting for other ranks (ms a step)</h2><p>The rank that waits least is the one that the others wait for.</p>{}",
            waits.to_svg()
        );
    }
    let _ = writeln!(out, "<h2>Bus bandwidth over message size</h2>{}", plot::bandwidth(report).to_svg());
    for basis in &report.compared_with {
        let _ = writeln!(out, "<p>Expected: {}</p>", escaped(basis));
    }
    axes(&mut out, report);
    out.push_str(
        "<h2>What to change</h2><table><tr><th>gain<th>step after<th>cause<th>seen<th>what to do</tr>\n",
    );
    for advice in report.advice.iter().filter(|a| a.worth || a.gain_pct > 1.0) {
        let _ = writeln!(
            out,
            "<tr><td>{:.1} %<td>{:.1} ms<td>{}<td>{}<td>{}</tr>",
            advice.gain_pct,
            advice.after_ms,
            escaped(&advice.cause),
            escaped(&advice.seen),
            escaped(&advice.todo)
        );
    }
    out.push_str("</table>\n");
    if !report.notes.is_empty() {
        out.push_str("<h2>What was not read</h2><ul>");
        for note in report.notes.iter().take(20) {
            let _ = write!(out, "<li>{}", escaped(note));
        }
        out.push_str("</ul>\n");
    }
    let look = TextStyle { width: 100, color: false, detail: Detail::Usual };
    let _ = writeln!(out, "<h2>Summary</h2><pre>{}</pre>", escaped(&text::render(report, &look)));
    out
}

/// Imbalance by axis.
fn axes(out: &mut String, report: &TraceReport) {
    if report.axes.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Imbalance by axis of parallelism</h2><table><tr><th>axis<th>groups<th>waiting a step\
         <th>comes last<th>the rank with most, beyond the mean of its group</tr>\n",
    );
    for axis in &report.axes {
        let groups: Vec<String> = axis.groups.iter().take(8).map(|ranks| members(ranks)).collect();
        let more = if axis.groups.len() > 8 { " …" } else { "" };
        let last = match (axis.last_rank, axis.last_pct) {
            (Some(rank), Some(pct)) => format!("rank {rank} in {pct:.0} %"),
            _ => "unknown".to_owned(),
        };
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}{more}<td>{:.1} ms<td>{last}<td>{}</tr>",
            escaped(&axis.name),
            groups.join(" "),
            axis.wait_ms,
            escaped(&text::differences(axis))
        );
    }
    out.push_str("</table>\n");
}

/// `0,2,4,6`; the first eight.
fn members(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    shown.join(",") + if ranks.len() > 8 { ",…" } else { "" }
}
