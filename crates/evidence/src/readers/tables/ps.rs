//! Process lists: procps' `ps` with any columns, and `top -b`.
//!
//! ```text
//!   PID  PPID STAT WCHAN                    %CPU     ELAPSED COMMAND
//!  2240  2218 Tsl  do_signal_stop           38.3       00:10 python3 -u train.py
//! ```
//! The heading names the columns; all but the command are single words, with one exception (`lstart`).

use ringleader_model::{Fact, NoteKind, Pid, ProcessRow, ProcessTable, SourceKind};

use super::TableReader;
use crate::ground::{Line, Sink, TableSpan};

/// A list that is being read.
pub(super) struct Listing {
    columns: Vec<Column>,
    table: ProcessTable,
    span: TableSpan,
}

#[derive(Clone, Copy, PartialEq)]
enum Column {
    Pid,
    Ppid,
    State,
    Wchan,
    Cpu,
    Elapsed,
    Command,
    /// A date of one word, or of five (`Fri Nov 20 08:21:32 2026`).
    Started,
    Other,
}

/// Most rows of one list.
const MAX_ROWS: usize = 1 << 20;

impl TableReader {
    pub(super) fn ps_line(&mut self, line: &Line<'_>, first: u8, sink: &mut Sink<'_>) -> bool {
        if let Some(listing) = &mut self.ps {
            if let Some(row) = row(&listing.columns, &String::from_utf8_lossy(line.body), line.number) {
                listing.span.add(line, sink);
                // A command that others have in full ends early. The last line of a file often lacks its end and is whole.
                let is_part = |other: &ProcessRow| {
                    other.command.len() > row.command.len() && other.command.starts_with(&*row.command)
                };
                listing.table.is_cut |= self.is_cut && listing.table.rows.iter().any(is_part);
                if listing.table.rows.len() < MAX_ROWS {
                    listing.table.rows.push(row);
                }
                return true;
            }
            listing.table.is_cut |= self.is_cut;
            self.close_ps(sink);
        }
        if !(first.is_ascii_uppercase() || first == b'%') || line.body.len() > 1_000 {
            return false;
        }
        let Some(columns) = std::str::from_utf8(line.body).ok().and_then(heading) else { return false };
        self.ps =
            Some(Listing { columns, table: ProcessTable::default(), span: TableSpan::begin(line, sink) });
        true
    }

    pub(super) fn close_ps(&mut self, sink: &mut Sink<'_>) {
        if let Some(Listing { table, span, .. }) = self.ps.take() {
            if table.is_cut {
                let cite = sink.cite(span.last_line, span.end, span.end);
                let text = "the list of processes ends within a row; others may have followed".into();
                sink.note(cite, NoteKind::Truncated, text);
            }
            span.push(SourceKind::Processes, Fact::Processes(table.into()), sink);
        }
    }
}

/// The columns, if the line is a heading: capital words, a process id and a command among them.
fn heading(body: &str) -> Option<Vec<Column>> {
    let is_word =
        |w: &str| w.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b"%+-_/".contains(&b));
    let mut columns = Vec::new();
    for word in body.split_ascii_whitespace() {
        columns.push(match word {
            _ if !is_word(word) => return None,
            "PID" => Column::Pid,
            "PPID" => Column::Ppid,
            "STAT" | "S" | "STATE" => Column::State,
            "WCHAN" => Column::Wchan,
            "%CPU" | "CPU%" => Column::Cpu,
            "ELAPSED" => Column::Elapsed,
            "COMMAND" | "CMD" | "ARGS" => Column::Command,
            "STARTED" | "START" | "STIME" => Column::Started,
            _ => Column::Other,
        });
    }
    (columns.contains(&Column::Pid) && columns.contains(&Column::Command)).then_some(columns)
}

/// One process; None if the line does not fit the columns.
fn row(columns: &[Column], body: &str, line: u32) -> Option<ProcessRow> {
    let mut row = ProcessRow { line, ..ProcessRow::default() };
    let mut rest = body.trim_start();
    let last = columns.len().checked_sub(1)?;
    for (at, column) in columns.iter().enumerate() {
        if at == last && *column == Column::Command {
            row.command = rest.trim_end().trim_start_matches(['|', ' ']).trim_start_matches("\\_ ").into();
            break;
        }
        let mut word = next_word(&mut rest)?;
        if *column == Column::Started {
            const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
            // `Fri Nov 20 08:21:32 2026`, and `Nov 20` for what began on another day.
            let n_more =
                if DAYS.contains(&word) { 4 } else { usize::from(word.len() == 3 && !word.contains(':')) };
            for _ in 0..n_more {
                word = next_word(&mut rest)?;
            }
        }
        match column {
            Column::Pid => row.pid = Some(Pid(word.parse().ok()?)),
            Column::Ppid => row.ppid = Some(Pid(word.parse().ok()?)),
            Column::State if !word.starts_with(|c: char| c.is_ascii_alphabetic()) => return None,
            Column::State => row.state = word.into(),
            Column::Wchan if word != "-" => row.wchan = word.into(),
            Column::Cpu => row.cpu_pct = word.parse().ok(),
            Column::Elapsed => row.elapsed_s = elapsed_s(word),
            Column::Command => row.command = word.into(),
            _ => {}
        }
    }
    Some(row)
}

fn next_word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (word, after) = rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, ""));
    *rest = after.trim_start();
    (!word.is_empty()).then_some(word)
}

/// `[[dd-]hh:]mm:ss` in seconds; `etimes` prints seconds alone.
fn elapsed_s(word: &str) -> Option<u64> {
    let (days, clock) = word.split_once('-').unwrap_or(("0", word));
    let mut seconds = days.parse::<u64>().ok()?;
    let parts: Vec<&str> = clock.split(':').collect();
    let of_a_day = match parts.as_slice() {
        [hour, minute, second] => [*hour, *minute, *second],
        [minute, second] => ["0", *minute, *second],
        [second] => ["0", "0", *second],
        _ => return None,
    };
    for (part, n) in of_a_day.iter().zip([24, 60, 60]) {
        seconds = seconds.checked_mul(n)?.checked_add(part.parse().ok()?)?;
    }
    Some(seconds)
}
