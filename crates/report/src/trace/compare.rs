//! Two sets of timelines side by side: what changed, and what it costs.

use std::fmt::Write as _;

use super::{RankTime, TraceReport};

/// What changed from `before` to `after`, as text: the mean over the ranks of each part of a step.
pub fn render(before: &TraceReport, after: &TraceReport) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "A step takes {:.1} ms here and {:.1} ms there: {:+.1} ms.",
        after.step_ms,
        before.step_ms,
        after.step_ms - before.step_ms
    );
    let mut rows = rows(before, after);
    rows.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
    let _ = writeln!(out, "\n  part                         there     here   change (ms)");
    for row in rows.iter().filter(|row| row.there.max(row.here) > 0.005) {
        let _ =
            writeln!(out, "  {:<25} {:>8.2} {:>8.2} {:>+8.2}", row.part, row.there, row.here, row.change());
    }
    let _ = writeln!(out, "\n  communication              size      there       here   (µs)");
    for class in after.collectives.iter().take(6) {
        let same = before.collectives.iter().find(|c| c.op == class.op && c.size_bytes == class.size_bytes);
        let there = same.map_or_else(|| "-".to_owned(), |c| format!("{:.0}", c.cost_us));
        let name = class.op.as_deref().unwrap_or("unknown");
        let _ = writeln!(out, "  {name:<20} {:>10} {there:>10} {:>10.0}", class.size_bytes, class.cost_us);
    }
    let _ = writeln!(out, "\nThere: {} ({}).", before.verdict.cause, before.verdict.summary);
    let _ = writeln!(out, "Here:  {} ({}).", after.verdict.cause, after.verdict.summary);
    out
}

/// One part of a step.
struct StepPart {
    part: String,
    there: f64,
    here: f64,
}

impl StepPart {
    fn change(&self) -> f64 {
        self.here - self.there
    }
}

fn rows(before: &TraceReport, after: &TraceReport) -> Vec<StepPart> {
    let mean = |report: &TraceReport, part: &dyn Fn(&RankTime) -> f64| {
        report.ranks.iter().map(part).sum::<f64>() / report.ranks.len().max(1) as f64
    };
    let mut rows = Vec::new();
    let mut add = |name: &str, part: &dyn Fn(&RankTime) -> f64| {
        rows.push(StepPart { part: name.to_owned(), there: mean(before, part), here: mean(after, part) });
    };
    add("computation", &|r| r.compute);
    add("exposed communication", &|r| r.exposed_comm);
    add("exposed copies", &|r| r.exposed_copy);
    let names: std::collections::BTreeSet<&String> = after.ranks.iter().flat_map(|r| r.idle.keys()).collect();
    for name in names {
        add(&format!("idle: {name}"), &|r| r.idle.get(name).copied().unwrap_or(0.0));
    }
    rows
}
