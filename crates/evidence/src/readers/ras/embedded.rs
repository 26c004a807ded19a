//! A JSON report that follows other lines: `OK` (the answers to `TIMEOUT` and `SET FORMAT`), a shell prompt, a heading.

use ringleader_model::NoteKind;
use serde_json::Value;

use super::event::Events;
use crate::ground::{Document, Line, Sink, mend};

/// The document that is being gathered.
#[derive(Default)]
pub(super) struct Embedded {
    state: EmbeddedState,
}

#[derive(Default)]
enum EmbeddedState {
    #[default]
    Idle,
    /// A line that is a lone bracket: the next one tells.
    Opened(Gathered),
    Gathering(Gathered),
}

struct Gathered {
    bytes: Vec<u8>,
    line: u32,
    offset: u64,
    depth: i64,
    in_string: bool,
}

impl Gathered {
    fn begin(line: &Line<'_>) -> Self {
        let lead = line.body.len() - line.body.trim_ascii_start().len();
        let offset = line.end() - (line.body.len() - lead) as u64;
        let mut gathered = Self { bytes: Vec::new(), line: line.number, offset, depth: 0, in_string: false };
        gathered.add(line.body.trim_ascii_start());
        gathered
    }

    fn add(&mut self, body: &[u8]) {
        if !self.bytes.is_empty() {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(body);
        let mut is_escaped = false;
        for byte in body {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth -= 1,
                _ => {}
            }
        }
    }
}

impl Embedded {
    /// Takes a line of a document.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>, events: &mut Events) -> bool {
        match std::mem::take(&mut self.state) {
            EmbeddedState::Idle => {
                let body = line.body.trim_ascii_start();
                if body.first() != Some(&b'{') {
                    return false;
                }
                let gathered = Gathered::begin(line);
                if body.trim_ascii_end() == b"{" {
                    self.state = EmbeddedState::Opened(gathered);
                    return false;
                }
                // On one line: a structured log of the program may look alike.
                let is_event = super::has(body, b"\"PEER_");
                if !is_event && !super::has(body.get(..80).unwrap_or(body), b"\"nccl_version\"") {
                    return false;
                }
                self.settle(gathered, sink, events);
                true
            }
            EmbeddedState::Opened(mut gathered) => {
                if !is_first_key(line.body) {
                    return self.line(line, sink, events);
                }
                gathered.add(line.body);
                self.settle(gathered, sink, events);
                true
            }
            EmbeddedState::Gathering(mut gathered) => {
                // Words in the first column end a document that was cut.
                let is_json = line.body.first().is_none_or(|b| !b.is_ascii_alphabetic() && *b != b'#');
                if !is_json || gathered.bytes.len() as u64 > sink.limits.max_json_bytes {
                    close(&gathered, sink, events);
                    return self.line(line, sink, events);
                }
                gathered.add(line.body);
                self.settle(gathered, sink, events);
                true
            }
        }
    }

    /// Whether no document is being gathered.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, EmbeddedState::Idle)
    }

    /// Closes the document if it is whole, else waits for more.
    fn settle(&mut self, gathered: Gathered, sink: &mut Sink<'_>, events: &mut Events) {
        if gathered.depth > 0 {
            self.state = EmbeddedState::Gathering(gathered);
        } else {
            close(&gathered, sink, events);
        }
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>, events: &mut Events) {
        if let EmbeddedState::Gathering(gathered) = std::mem::take(&mut self.state) {
            close(&gathered, sink, events);
        }
    }
}

/// Whether the line holds a key that a report or an event begins with.
fn is_first_key(body: &[u8]) -> bool {
    let body = body.trim_ascii_start();
    body.starts_with(b"\"nccl_version\"") || body.starts_with(b"\"timestamp\"")
}

fn close(gathered: &Gathered, sink: &mut Sink<'_>, events: &mut Events) {
    let (value, mended) = match serde_json::from_slice::<Value>(&gathered.bytes) {
        Ok(value) => (Some(value), None),
        Err(_) => match mend(&gathered.bytes) {
            Some(mended) => (serde_json::from_slice(&mended.text).ok(), Some(mended)),
            None => (None, None),
        },
    };
    if let Some(value) = value {
        let document = Document {
            name: "",
            bytes: &gathered.bytes,
            value: &value,
            line: gathered.line,
            offset: gathered.offset,
        };
        if events.json(&document, sink) || super::read_json(&document, sink) {
            if let Some(mended) = mended {
                mended.tell(gathered.line, gathered.offset, sink);
            }
            return;
        }
    }
    if !super::has(&gathered.bytes, b"\"nccl_version\"") {
        return;
    }
    let end = gathered.offset + gathered.bytes.len() as u64;
    let cite = sink.cite(gathered.line, gathered.offset, end);
    sink.note(
        cite,
        NoteKind::Malformed,
        "JSON that begins like a RAS report but cannot be read as one".into(),
    );
}
