//! A [`Picture`] as a table of plain text: what `--once` prints.

use std::fmt::Write as _;

use ringleader_report::quote::{columns, plain};
use ringleader_watch::view::JobState;

use crate::watch::picture::Picture;
use crate::watch::words;

/// The table, newline at its end.
pub(crate) fn render(picture: &Picture) -> String {
    let job = match picture.job {
        JobState::Unseen => "no rank seen",
        JobState::Starting => "starting",
        JobState::Running => "running",
        JobState::Stalled => "STALLED",
        JobState::Ended => "ended",
    };
    // Writing to a String cannot fail; so below.
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{job}: {} on {}, seen by {}",
        words::count(picture.n_ranks, "rank"),
        words::count(picture.n_nodes, "node"),
        words::means(picture.sees)
    );
    for text in &picture.cannot_see {
        let _ = writeln!(out, "cannot see: {}", plain(text));
    }
    if !picture.comms.is_empty() {
        let mut rows = vec![
            ["communicator", "ranks", "ended", "op/s", "bus GB/s", "in flight", "now", "waits for"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(picture.comms.iter().map(|comm| {
            let front = comm
                .front
                .as_ref()
                .map(|front| format!("{}: {} of {} in", plain(front), comm.entered, comm.ranks_seen));
            let waits =
                if comm.waiting_for.is_empty() { String::new() } else { words::rank_list(&comm.waiting_for) };
            vec![
                plain(words::comm_name(&comm.name, &comm.id)),
                format!("{}/{}", comm.ranks_seen, comm.size),
                comm.ops_done.to_string(),
                format!("{:.1}", comm.ops_per_s),
                comm.busbw_gbs.map_or_else(|| "-".to_owned(), |gbs| format!("{gbs:.1}")),
                comm.in_flight.to_string(),
                front.unwrap_or_default(),
                waits,
            ]
        }));
        aligned(&mut out, &rows);
    }
    if !picture.ranks.is_empty() {
        let mut rows = vec![["rank", "host", "pid", "state", "late ms", "what"].map(str::to_owned).to_vec()];
        rows.extend(picture.ranks.iter().map(|rank| {
            vec![
                rank.rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string()),
                plain(&rank.host),
                rank.pid.to_string(),
                plain(&rank.state),
                rank.late_ms.map_or_else(|| "-".to_owned(), |late| format!("{late:.1}")),
                plain(&rank.detail),
            ]
        }));
        aligned(&mut out, &rows);
    }
    for stall in &picture.stalls {
        let _ = writeln!(out, "STALL: {}", words::headline(stall));
    }
    out
}

fn aligned(out: &mut String, rows: &[Vec<String>]) {
    let n_cells = rows.first().map_or(0, Vec::len);
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| columns(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_cells).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(columns(cell)) + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use crate::watch::picture::sample;

    #[test]
    fn how_a_job_stands() {
        insta::assert_snapshot!(super::render(&sample::stalled()));
    }
}
