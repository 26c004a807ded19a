//! Lines that make one statement.

use ringleader_model::{Cite, Fact, Host, SourceKind, WallTime, Who};

use super::{Line, Sink};

/// Lines of one table, for its citation.
#[derive(Clone)]
pub(crate) struct TableSpan {
    first: Cite,
    pub(crate) end: u64,
    pub(crate) last_line: u32,
    text: Vec<u8>,
    who: Who,
    pub(crate) at: Option<WallTime>,
}

impl TableSpan {
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
