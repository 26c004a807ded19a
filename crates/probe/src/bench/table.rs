//! The table, in nccl-tests' columns with those of ours behind, and the verdict below.

use std::fmt::Write as _;

use crate::bench::judge::{CollectiveVerdict, Level};
use crate::bench::pairs::Slow;
use crate::bench::{Report, Row, Timing};

/// The head of the table.
pub fn head(report_of: &[String]) -> String {
    let mut out = String::new();
    for line in report_of {
        let _ = writeln!(out, "# {line}");
    }
    let _ = writeln!(
        out,
        "#\n#{:>13} {:>12} {:>8} {:>6}  {:>9} {:>7} {:>7} {:>6}  {:>9} {:>7} {:>7} {:>6}  {:>8} {:>8}",
        "size",
        "count",
        "type",
        "redop",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "p50",
        "p99"
    );
    let _ = writeln!(
        out,
        "#{:>13} {:>12} {:>8} {:>6}  {:>9} {:>7} {:>7} {:>6}  {:>9} {:>7} {:>7} {:>6}  {:>8} {:>8}",
        "(B)",
        "(elements)",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "",
        "(us)",
        "(us)"
    );
    out
}

/// One line of the table.
pub fn line(row: &Row, dtype: &str) -> String {
    let timing = |timing: Option<&Timing>| {
        let Some(timing) = timing else { return format!("  {:>9} {:>7} {:>7} {:>6}", "", "", "", "") };
        let wrong = timing.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
        format!(
            "  {:>9} {:>7.2} {:>7.2} {:>6}",
            microseconds(timing.time_us),
            timing.alg_gb_s,
            timing.bus_gb_s,
            wrong
        )
    };
    let percentiles = row.out_of_place.percentiles_us.map_or_else(String::new, |[p50, _, p99, _]| {
        format!("  {:>8} {:>8}", microseconds(p50), microseconds(p99))
    });
    let mut out = format!(
        " {:>13} {:>12} {:>8} {:>6}{}{}{percentiles}",
        row.size_bytes,
        row.count,
        dtype,
        row.op.as_deref().unwrap_or("none"),
        timing(Some(&row.out_of_place)),
        timing(row.in_place.as_ref()),
    );
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn microseconds(time: f64) -> String {
    match time {
        time if time < 100.0 => format!("{time:.2}"),
        time if time < 10_000.0 => format!("{time:.1}"),
        time => format!("{time:.0}"),
    }
}

/// What precedes the table: the participants.
pub fn who(report: &Report) -> Vec<String> {
    let mut out = vec![format!(
        "ringleader bench: {} ranks in {} process{}, NCCL {} ({}), CUDA driver {}.{}",
        report.n_ranks,
        report.n_processes,
        if report.n_processes == 1 { "" } else { "es" },
        report.nccl.0,
        report.nccl.1,
        report.cuda / 1000,
        report.cuda % 1000 / 10
    )];
    for gpu in &report.gpus {
        let links = match (gpu.nvlinks, gpu.nvlink_gb_s) {
            (Some(n), Some(rate)) => format!(", {n} NVLinks, {rate:.0} GB/s one way"),
            (Some(_), None) => ", no NVLink".to_owned(),
            (None, _) => String::new(),
        };
        out.push(format!("rank {:>2} {} {} {}{links}", gpu.rank, gpu.host, gpu.bus, gpu.name));
    }
    out
}

/// What follows the table.
pub fn verdicts(report: &Report) -> String {
    let mut out = String::new();
    for connection in &report.connections {
        let _ = writeln!(
            out,
            "# rank {} -> {}: {} channels via {}",
            connection.from, connection.to, connection.n_channels, connection.via
        );
    }
    for pair in &report.pairs {
        let slow = match pair.slow {
            Slow::No => String::new(),
            Slow::Pair => "  slow together".to_owned(),
            Slow::A => format!("  rank {} is slow", pair.a),
            Slow::B => format!("  rank {} is slow", pair.b),
        };
        let _ = writeln!(
            out,
            "# ranks {} and {}: {:.1} GB/s forth, {:.1} GB/s back{slow}",
            pair.a, pair.b, pair.forth_gb_s, pair.back_gb_s
        );
    }
    for verdict in &report.verdicts {
        out.push_str(&one(verdict));
    }
    for change in &report.changes {
        let _ = writeln!(
            out,
            "{} of {} bytes: {} us, {} us in the baseline ({:+.0} %)",
            change.collective,
            change.size_bytes,
            microseconds(change.now_us),
            microseconds(change.then_us),
            (change.now_us / change.then_us - 1.0) * 100.0
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn one(verdict: &CollectiveVerdict) -> String {
    let mut out = match (verdict.level, verdict.reach_gb_s, verdict.fraction) {
        (Level::AsExpected | Level::Low, Some(reach), Some(fraction)) => format!(
            "{}: {} {:.1} GB/s at {} bytes, {:.0} % of the {:.0} GB/s that this topology can reach ({})\n",
            verdict.collective,
            if verdict.level == Level::Low { "LOW," } else { "good," },
            verdict.bus_gb_s,
            verdict.size_bytes,
            fraction * 100.0,
            reach,
            verdict.why
        ),
        (Level::Wrong, ..) => format!("{}: WRONG, {} elements\n", verdict.collective, verdict.wrong),
        _ => format!(
            "{}: not judged, {:.1} GB/s at {} bytes ({})\n",
            verdict.collective, verdict.bus_gb_s, verdict.size_bytes, verdict.why
        ),
    };
    for reason in &verdict.causes {
        let _ = writeln!(out, "  {}: {}", reason.cause, reason.text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_columns_of_nccl_tests() {
        let timing = Timing {
            time_us: 4321.98,
            alg_gb_s: 248.4,
            bus_gb_s: 248.43,
            wrong: Some(0),
            percentiles_us: Some([4300.0, 4400.0, 4500.0, 4600.0]),
            ..Timing::default()
        };
        let row = Row {
            collective: "all_reduce".to_owned(),
            op: Some("sum".to_owned()),
            root: None,
            size_bytes: 1 << 30,
            count: 1 << 28,
            out_of_place: timing,
            in_place: Some(Timing { wrong: None, percentiles_us: None, ..timing }),
            way: None,
        };
        let line = line(&row, "float");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "1073741824",
                "268435456",
                "float",
                "sum",
                "4322.0",
                "248.40",
                "248.43",
                "0",
                "4322.0",
                "248.40",
                "248.43",
                "N/A",
                "4300.0",
                "4500.0"
            ]
        );
    }
}
