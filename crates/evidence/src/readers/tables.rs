//! Tables of system tools: process lists, resource limits.
//!
//! Each table is told by its heading and read by its columns' names, wherever in a file it stands.

use ringleader_model::{Cite, Fact, Host, SourceKind, WallTime, Who};

use crate::sink::Sink;
use crate::text::{Line, LineReader};

mod limits;
mod ps;
mod status;

/// Tables in a text file.
#[derive(Default)]
pub(crate) struct TableReader {
    ps: Option<ps::Listing>,
    status: Option<status::Status>,
    limits: Option<limits::Limits>,
    /// The line that comes may lack its end, so that its last number cannot be trusted.
    is_cut: bool,
}

impl LineReader for TableReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(&first) = line.body.trim_ascii_start().first() else {
            self.close_ps(sink);
            return false;
        };
        self.ps_line(line, first, sink) || self.other_line(line, first, sink)
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close_ps(sink);
        self.close_status(sink);
        self.close_limits(sink);
    }
}

impl TableReader {
    fn other_line(&mut self, line: &Line<'_>, first: u8, sink: &mut Sink<'_>) -> bool {
        // First letters of the lines that these readers know.
        if self.is_cut || !matches!(first, b'm' | b'M' | b'o' | b'n' | b'N' | b'-' | b'l' | b'P' | b'S') {
            return false;
        }
        let Ok(body) = std::str::from_utf8(line.body) else { return false };
        self.limits_line(body, line, sink) || self.status_line(body, line, sink)
    }
}

/// Lines of one table, for its citation.
#[derive(Clone)]
pub(crate) struct Span {
    first: Cite,
    pub(crate) end: u64,
    pub(crate) last_line: u32,
    text: Vec<u8>,
    who: Who,
    pub(crate) at: Option<WallTime>,
}

impl Span {
    pub(crate) fn begin(line: &Line<'_>, sink: &Sink<'_>) -> Self {
        let first = sink.cite(line.number, line.offset, line.end());
        let (who, at) = (line.tag.who.clone(), line.tag.at);
        let mut span = Self { first, end: 0, last_line: 0, text: Vec::new(), who, at };
        span.add(line, sink);
        span
    }

    /// Says whose the table is, unless its own lines do.
    pub(crate) fn on(&mut self, host: Option<&Host>) {
        if self.who.host.is_none() {
            self.who.host = host.cloned();
        }
    }

    pub(crate) fn add(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        self.end = line.end();
        self.last_line = line.number;
        if self.text.len() < sink.limits.max_text_chars {
            if !self.text.is_empty() {
                self.text.push(b'\n');
            }
            self.text.extend_from_slice(line.body.get(..sink.limits.max_text_chars).unwrap_or(line.body));
        }
    }

    pub(crate) fn push(self, kind: SourceKind, fact: Fact, sink: &mut Sink<'_>) {
        sink.saw(kind);
        sink.push(Cite { end: self.end, ..self.first }, self.who, self.at, fact, &self.text);
    }
}

#[cfg(test)]
mod tests;
