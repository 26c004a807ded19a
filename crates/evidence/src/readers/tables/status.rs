//! `/proc/PID/status` (Linux: `fs/proc/array.c`), or the lines of it that a script kept:
//! `Name: python3`, `State: T (stopped)`, `Pid: 2240`, `PPid: 2218`, with tabs after the colons.

use ringleader_model::{Fact, Pid, ProcessRow, ProcessTable, SourceKind};

use super::TableReader;
use crate::ground::{Line, Sink, TableSpan};

/// A status that is being read.
pub(super) struct Status {
    row: ProcessRow,
    span: TableSpan,
}

/// Lines between two that matter.
const MAX_GAP_LINES: u32 = 12;

impl TableReader {
    pub(super) fn status_line(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some((key, value)) = body.split_once(':') else { return false };
        if !matches!(key, "Name" | "State" | "Pid" | "PPid") || !value.starts_with(['\t', ' ']) {
            return false;
        }
        let value = value.trim();
        let is_state = |v: &str| {
            let (letter, word) = v.split_once(' ').unwrap_or((v, ""));
            letter.len() == 1
                && letter.starts_with(|c: char| "RSDTtZXIKWP".contains(c))
                && word.starts_with('(')
                && word.ends_with(')')
        };
        if key == "State" && !is_state(value) {
            return false;
        }
        let is_next = match (&self.status, key) {
            (None, _) | (Some(_), "Name") => true,
            (Some(s), _) => {
                line.number > s.span.last_line.saturating_add(MAX_GAP_LINES)
                    || (key == "State" && !s.row.state.is_empty())
                    || (key == "Pid" && s.row.pid.is_some())
            }
        };
        if is_next {
            self.close_status(sink);
            // Only a name or a state begins one: `Pid: 12` alone is anybody's line.
            if !matches!(key, "Name" | "State") {
                return false;
            }
            let row = ProcessRow { line: line.number, ..ProcessRow::default() };
            self.status = Some(Status { row, span: TableSpan::begin(line, sink) });
        }
        let Some(status) = &mut self.status else { return false };
        if !is_next {
            status.span.add(line, sink);
        }
        match key {
            "Name" => status.row.command = value.into(),
            "State" => {
                status.row.line = line.number;
                status.row.state = value.split(' ').next().unwrap_or_default().into();
            }
            "Pid" => status.row.pid = value.parse().ok().map(Pid),
            _ => status.row.ppid = value.parse().ok().map(Pid),
        }
        // `Name: x` may be anybody's: the line is ours once the state follows.
        !status.row.state.is_empty()
    }

    pub(super) fn close_status(&mut self, sink: &mut Sink<'_>) {
        if let Some(Status { row, span }) = self.status.take()
            && !row.state.is_empty()
        {
            let table = ProcessTable { rows: vec![row], ..ProcessTable::default() };
            span.push(SourceKind::Processes, Fact::Processes(table.into()), sink);
        }
    }
}
