//! A [`Picture`] as a table of plain text: what `--once` prints.

use std::fmt::Write as _;

use ringleader_report::quote::{self, plain};
use ringleader_watch::view::JobState;

use crate::watch::columns::{self, COMMS, Column, RANKS};
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
    list(&mut out, &COMMS, &picture.comms);
    list(&mut out, &RANKS, &picture.ranks);
    for stall in &picture.stalls {
        let _ = writeln!(out, "STALL: {}", words::headline(stall));
    }
    out
}

fn list<R>(out: &mut String, columns: &[Column<R>], of: &[R]) {
    if of.is_empty() {
        return;
    }
    let mut rows = vec![columns.iter().map(|column| column.head.to_owned()).collect()];
    let cells = |row| columns::cells(columns, row).iter().map(|cell| plain(cell)).collect::<Vec<String>>();
    rows.extend(of.iter().map(cells));
    aligned(out, &rows);
}

fn aligned(out: &mut String, rows: &[Vec<String>]) {
    let n_cells = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| quote::columns(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_cells).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(quote::columns(cell)) + 2));
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
