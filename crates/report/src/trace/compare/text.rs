//! The comparison for the terminal and as Markdown: one screen, the largest change first.

use std::fmt::Write as _;

use super::{
    CollectiveDifference, ComparisonReport, KernelDifference, KernelFate, RankDifference, StepDifference,
};
use crate::trace::text::size;

/// Rows of each table.
const MAX_ROWS: usize = 6;
/// Changes of less are not shown, percent of the longer step.
const LEAST_PCT: f64 = 0.5;
/// Letters of a kernel's name.
const MAX_NAME: usize = 44;

/// What differs, in one sentence.
pub(super) fn summary(report: &ComparisonReport) -> String {
    let step = &report.step;
    if step.pairs == 0 {
        return "no steps could be paired: nothing is compared".to_owned();
    }
    let lengths = format!(
        "a step takes {:.1} ms here and {:.1} ms there: {:+.1} ms ({:+.1} %)",
        step.here_ms,
        step.there_ms,
        step.change_ms,
        step.change_ms * 100.0 / step.there_ms.max(0.001)
    );
    if !step.clear {
        return format!("{lengths}, no more than steps vary by anyway");
    }
    let towards = |part: &&super::PartDifference| part.change.change_ms.signum() == step.change_ms.signum();
    match report.parts.iter().filter(towards).find(|part| part.change.clear) {
        Some(most) => {
            format!("{lengths}, most of it {} ({:+.1} ms)", words(&most.part), most.change.change_ms)
        }
        None => lengths,
    }
}

/// A part for people.
fn words(part: &str) -> String {
    match part {
        "compute" => "computation".to_owned(),
        "exposed-communication" => "exposed communication".to_owned(),
        "waiting-for-ranks" => "waiting for ranks".to_owned(),
        "exposed-copies" => "exposed copies".to_owned(),
        other => other.replacen("idle-", "idle: ", 1),
    }
}

/// A table of a heading and rows of cells.
struct Table {
    title: String,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The tables of the report, without empty ones.
fn tables(report: &ComparisonReport) -> Vec<Table> {
    let least = report.step.here_ms.max(report.step.there_ms) * LEAST_PCT / 100.0;
    let all = [parts(report, least), ranks(report), collectives(report, least), kernels(report, least)];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// ` ~` beside what may as well be chance.
fn mark(difference: &StepDifference) -> String {
    format!("{:+.2}{}", difference.change_ms, if difference.clear { "" } else { " ~" })
}

fn parts(report: &ComparisonReport, least: f64) -> Table {
    let shown = report.parts.iter().filter(|part| part.change.change_ms.abs() >= least).take(MAX_ROWS);
    let rows = shown.map(|part| {
        let change = &part.change;
        vec![
            words(&part.part),
            format!("{:.2}", change.there_ms),
            format!("{:.2}", change.here_ms),
            mark(change),
        ]
    });
    let title = match (report.there.last_rank, report.here.last_rank) {
        (Some(there), Some(here)) if report.here.ranks.len() > 1 => {
            format!(
                "The job's step, on the rank that waits for no other (mostly {there} there, {here} here), ms"
            )
        }
        _ => "The step, ms".to_owned(),
    };
    Table { title, head: vec!["part", "there", "here", "change"], rows: rows.collect() }
}

/// The part of a rank's step that changes most.
fn mostly(rank: &RankDifference) -> String {
    let clear = rank.parts.iter().filter(|part| part.change.clear);
    let mut parts: Vec<_> = clear.map(|part| (part.change.change_ms, &part.part)).collect();
    parts.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let said = parts.iter().take(2).map(|(ms, part)| format!("{} {ms:+.1}", words(part)));
    said.collect::<Vec<_>>().join(", ")
}

fn ranks(report: &ComparisonReport) -> Table {
    let mut shown: Vec<&RankDifference> = report.ranks.iter().collect();
    // Of many ranks those that changed most in themselves.
    let own = |rank: &RankDifference| -> f64 {
        let parts = rank.parts.iter().filter(|part| part.part != "waiting-for-ranks");
        parts.map(|part| part.change.change_ms.abs()).sum()
    };
    shown.sort_by(|a, b| own(b).total_cmp(&own(a)).then(a.rank.cmp(&b.rank)));
    let rows = shown.into_iter().take(MAX_ROWS).map(|rank| {
        vec![
            rank.rank.to_string(),
            format!("{:.2}", rank.step.there_ms),
            format!("{:.2}", rank.step.here_ms),
            mark(&rank.step),
            mostly(rank),
        ]
    });
    let n = report.ranks.len();
    let title = if n > MAX_ROWS {
        format!("Rank by rank, {MAX_ROWS} of {n}, the most changed first, ms")
    } else {
        "Rank by rank, the most changed first, ms".to_owned()
    };
    Table {
        title,
        head: vec!["rank", "there", "here", "change", "mostly"],
        rows: if n > 1 { rows.collect() } else { Vec::new() },
    }
}

fn collectives(report: &ComparisonReport, least: f64) -> Table {
    let is_shown = |class: &&CollectiveDifference| {
        let of = |side: Option<f64>| side.filter(|gbs| *gbs > 0.0);
        let both = of(class.there.and_then(|c| c.busbw_gbs)).zip(of(class.here.and_then(|c| c.busbw_gbs)));
        class.change_ms.abs() >= least || both.is_some_and(|(a, b)| (b / a - 1.0).abs() > 0.2)
    };
    let rows = report.collectives.iter().filter(is_shown).take(MAX_ROWS).map(|class| {
        let side = |of: Option<super::CollectiveInStep>| {
            of.map_or_else(
                || "none".to_owned(),
                |c| {
                    let bound = if c.lower_bound { ">=" } else { "" };
                    let gbs = c.busbw_gbs.map(|gbs| format!(" {bound}{gbs:.0} GB/s")).unwrap_or_default();
                    format!("{} x {:.0} us{gbs}", short(c.count), c.cost_us)
                },
            )
        };
        vec![
            class.op.as_deref().unwrap_or("unknown").to_owned(),
            size(class.size_bytes),
            side(class.there),
            side(class.here),
            format!("{:+.2}", class.change_ms),
        ]
    });
    Table {
        title: "Communication in a step, hidden or not; bus bandwidth; change in ms".to_owned(),
        head: vec!["operation", "size", "there", "here", "change"],
        rows: rows.collect(),
    }
}

fn kernels(report: &ComparisonReport, least: f64) -> Table {
    let is_shown = |kernel: &&KernelDifference| kernel.time.clear && kernel.time.change_ms.abs() >= least;
    let rows = report.kernels.iter().filter(is_shown).take(MAX_ROWS).map(|kernel| {
        let side = |of: super::KernelInStep| {
            if of.count > 0.0 {
                format!("{} x {:.0} us", short(of.count), of.each_us)
            } else {
                "none".to_owned()
            }
        };
        vec![
            name(&kernel.name),
            kernel.what.words().to_owned(),
            side(kernel.there),
            side(kernel.here),
            format!("{:+.2}", kernel.time.change_ms),
            kernel.rank.to_string(),
        ]
    });
    Table {
        title: "Kernels and copies in a step, on the rank where they change most; change in ms".to_owned(),
        head: vec!["name", "what", "there", "here", "change", "rank"],
        rows: rows.collect(),
    }
}

impl KernelFate {
    fn words(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Gone => "gone",
            Self::More => "more",
            Self::Fewer => "fewer",
            Self::Longer => "longer",
            Self::Shorter => "shorter",
        }
    }
}

fn short(count: f64) -> String {
    if (count - count.round()).abs() < 0.05 { format!("{count:.0}") } else { format!("{count:.1}") }
}

/// The beginning of a name: kernels have names of hundreds of letters.
fn name(full: &str) -> String {
    let plain: String = full.chars().map(|c| if c.is_control() || c == '|' { ' ' } else { c }).collect();
    let plain = plain.strip_prefix("void ").unwrap_or(&plain);
    if plain.chars().count() <= MAX_NAME {
        return plain.to_owned();
    }
    plain.chars().take(MAX_NAME - 1).chain(['…']).collect()
}

/// As text for a terminal.
pub fn render(report: &ComparisonReport) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}.", capital(&report.summary));
    for table in tables(report) {
        let _ = writeln!(out, "\n{}", table.title);
        let n = table.head.len();
        let widths: Vec<usize> = (0..n)
            .map(|at| {
                let rows = table.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
                rows.chain(table.head.get(at).map(|cell| cell.chars().count())).max().unwrap_or(0)
            })
            .collect();
        let head: Vec<String> = table.head.iter().map(|cell| (*cell).to_owned()).collect();
        for row in std::iter::once(&head).chain(&table.rows) {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
    let _ = writeln!(out);
    for line in sides(report) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// As Markdown, for a ticket.
pub fn markdown(report: &ComparisonReport) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "**{}.**", capital(&report.summary));
    for table in tables(report) {
        let _ = writeln!(out, "\n{}\n", table.title);
        let _ = writeln!(out, "| {} |", table.head.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(table.head.len()));
        for row in &table.rows {
            let cells =
                row.iter().map(|cell| cell.replace('~', "\\~").replace('<', "\\<").replace('*', "\\*"));
            let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    let _ = writeln!(out);
    for line in sides(report) {
        let _ = writeln!(out, "- {line}");
    }
    out
}

/// The answers of both sets, and what limits the comparison.
fn sides(report: &ComparisonReport) -> Vec<String> {
    let answer = |of: &super::Side| format!("{} ({})", of.verdict.cause, of.verdict.summary);
    let mut lines =
        vec![format!("There: {}.", answer(&report.there)), format!("Here:  {}.", answer(&report.here))];
    let uncertain = report.parts.iter().any(|part| !part.change.clear && part.change.change_ms != 0.0);
    if uncertain || !report.step.clear {
        lines.push("~: no more than steps of one set vary by, or not in one direction.".to_owned());
    }
    lines.extend(report.notes.iter().take(5).map(|note| format!("Note: {note}")));
    lines
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
