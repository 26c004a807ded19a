//! The report of `ringleader trace` for the terminal: one screen, the worst first.

use std::fmt::Write as _;

use ringleader_model::Cause;

use super::{Axis, EstimatedBy, RankTime, TraceReport};
use crate::TextStyle;

/// Ranks that are shown one by one.
const MAX_RANKS: usize = 8;
/// Kinds of communication that are shown.
const MAX_COLLECTIVES: usize = 5;

/// As text.
pub fn render(report: &TraceReport, look: &TextStyle) -> String {
    let mut out = String::new();
    let (bold, plain) = if look.color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let verdict = &report.verdict;
    let who = match verdict.culprits.as_slice() {
        [] => String::new(),
        [rank] => format!(" (rank {rank})"),
        ranks => format!(" (ranks {ranks:?})"),
    };
    let _ = writeln!(out, "{bold}{}{who}{plain}: {}", verdict.cause, verdict.summary);
    let _ = write!(out, "A step takes {:.1} ms", report.step_ms);
    if report.unrecorded_ms > 0.0 && report.unrecorded_ms < 0.95 * report.step_ms {
        let _ = write!(out, ", about {:.1} ms without the recorder", report.unrecorded_ms);
    }
    let _ = writeln!(out, ".");
    ranks(&mut out, report);
    collectives(&mut out, report);
    late(&mut out, report);
    axes(&mut out, report);
    let worth: Vec<_> = report.advice.iter().filter(|a| a.worth).collect();
    if worth.is_empty() {
        let nothing = match verdict.cause() {
            Cause::None => "Nothing to gain: no single change makes a step 5 % shorter.",
            _ => "Nothing is advised.",
        };
        let _ = writeln!(out, "\n{nothing}");
    } else {
        let _ = writeln!(out, "\nWhat to change (each by itself; ~: not by replay)");
        for advice in worth {
            let _ = writeln!(
                out,
                "  {:>4.0} % {}to {:.1} ms  {}: {}",
                advice.gain_pct,
                if advice.estimated_by == EstimatedBy::Formula { "~" } else { " " },
                advice.after_ms,
                advice.cause,
                advice.seen
            );
            let _ = writeln!(out, "          {}", advice.todo);
        }
    }
    for note in report.notes.iter().take(5) {
        let _ = writeln!(out, "Note: {note}");
    }
    out
}

/// As Markdown, for a ticket: the answer, and the tables as they are.
pub fn markdown(report: &TraceReport) -> String {
    let text = render(report, &TextStyle { width: 80, color: false, detail: crate::Detail::Usual });
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let rest = rest.trim_end().replace('`', "'");
    format!("**{first}**\n\n```text\n{rest}\n```\n")
}

fn ranks(out: &mut String, report: &TraceReport) {
    let _ = writeln!(out, "\n  rank    step  compute  exposed comm  copies    idle  mostly            (ms)");
    for rank in report.ranks.iter().take(MAX_RANKS) {
        let idle: f64 = rank.idle.values().sum();
        let _ = writeln!(
            out,
            "  {:>4} {:>7.1} {:>8.1} {:>13.1} {:>7.1} {:>7.1}  {}",
            rank.rank,
            rank.step,
            rank.compute,
            rank.exposed_comm,
            rank.exposed_copy,
            idle,
            mostly(rank)
        );
    }
    if report.ranks.len() > MAX_RANKS {
        let _ = writeln!(out, "  … and {} more ranks", report.ranks.len() - MAX_RANKS);
    }
}

/// The largest reasons of idle time.
fn mostly(rank: &RankTime) -> String {
    let mut parts: Vec<(&String, &f64)> =
        rank.idle.iter().filter(|(_, ms)| **ms > 0.02 * rank.step).collect();
    parts.sort_by(|a, b| b.1.total_cmp(a.1));
    parts.iter().take(2).map(|(why, ms)| format!("{why} {ms:.1}")).collect::<Vec<_>>().join(", ")
}

fn collectives(out: &mut String, report: &TraceReport) {
    if report.collectives.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n  communication              size   count   cost (µs)   busbw  expected (GB/s)");
    for class in report.collectives.iter().take(MAX_COLLECTIVES) {
        let gbs = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}"));
        let bound = if class.lower_bound { ">=" } else { "" };
        let _ = writeln!(
            out,
            "  {:<20} {:>10} {:>7} {:>11.0} {:>7} {:>7}",
            class.op.as_deref().unwrap_or("unknown"),
            size(class.size_bytes),
            class.count,
            class.cost_us,
            format!("{bound}{}", gbs(class.busbw_gbs)),
            gbs(class.expected_gbs)
        );
    }
    for basis in report.compared_with.iter().take(MAX_COLLECTIVES) {
        let _ = writeln!(out, "  expected: {basis}");
    }
    if let Some(found) = &report.contention {
        let _ = writeln!(
            out,
            "  beside it, computation takes {:.2} times as long: {:.1} ms a step (it holds {} of {} SMs)",
            found.slowdown, found.lost_ms, found.ctas, found.sms
        );
    }
}

/// Axes that are shown.
const MAX_AXES: usize = 6;
/// Amounts that differ by less are not shown, percent.
const LEAST_PCT: f64 = 3.0;

fn axes(out: &mut String, report: &TraceReport) {
    let is_said = |axis: &&Axis| report.axes.len() > 1 || !differences(axis).is_empty();
    let shown: Vec<&Axis> = report.axes.iter().filter(is_said).take(MAX_AXES).collect();
    if shown.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n  axis            groups     wait  most in a group, beyond its mean     (ms a step)"
    );
    for axis in shown {
        let ranks = axis.groups.iter().map(Vec::len).max().unwrap_or(0);
        let line = format!(
            "  {:<15} {:>6} {:>8.1}  {}",
            axis.name,
            format!("{}x{ranks}", axis.groups.len()),
            axis.wait_ms,
            differences(axis)
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// `expert tokens 70 % (rank 1), computation 61 % = 6.4 ms (rank 1)`.
pub(super) fn differences(axis: &Axis) -> String {
    let said = axis.unequal.iter().filter(|unequal| unequal.excess_pct >= LEAST_PCT).map(|unequal| {
        let time = unequal.excess_ms.map(|ms| format!(" = {ms:.1} ms")).unwrap_or_default();
        // Where each step has another one, nobody is named.
        let who = if unequal.steps_pct >= 60.0 { format!(" (rank {})", unequal.rank) } else { String::new() };
        format!("{} {:.0} %{time}{who}", unequal.what.words(), unequal.excess_pct)
    });
    said.collect::<Vec<_>>().join(", ")
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        1..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn late(out: &mut String, report: &TraceReport) {
    let clocks = &report.clocks;
    if report.ranks.len() < 2 {
        return;
    }
    match (&report.lateness.straggler, clocks.residual_us) {
        (_, None) => {
            let _ = writeln!(out, "\nNo collective connects the ranks: the late rank is unknown.");
        }
        (_, Some(residual)) if !clocks.aligned => {
            let _ = writeln!(out, "\nThe clocks agree only to {residual:.0} µs: the late rank is unknown.");
        }
        (Some(late), Some(residual)) => {
            let _ = writeln!(
                out,
                "\nRank {} is late by {:.1} ms in {} steps: {} (clocks agree to {residual:.0} µs).",
                late.rank, late.lead_ms, late.steps, late.why
            );
        }
        (None, Some(residual)) => {
            let _ = writeln!(
                out,
                "\nNo rank is persistently late; waiting takes {:.1} ms per step (clocks agree to {residual:.0} µs).",
                report.lateness.mean_wait_ms
            );
        }
    }
}
