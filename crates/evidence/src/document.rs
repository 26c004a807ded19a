//! JSON files: one document, several in a row, or one a line; whole, cut, or with a known defect.
//!
//! Documents are offered to the readers one by one. A file that only begins like JSON goes to the text readers.

use std::io::Read;

use ringleader_model::{Cite, NoteKind, SourceKind};
use serde_json::Value;

use crate::Scratch;
use crate::sink::Sink;

mod repair;

pub(crate) use repair::mend;

/// The whole of a file, in a buffer that is kept from file to file: it never shrinks, so that only what a file is longer
/// than all before it must be cleared first.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    buffer: Vec<u8>,
    n_filled: usize,
}

impl Whole {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.n_filled).unwrap_or_default()
    }

    /// Room for another read.
    fn room(&mut self, n_bytes: usize) -> &mut [u8] {
        let end = self.n_filled.saturating_add(n_bytes);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.buffer.get_mut(self.n_filled..end).unwrap_or_default()
    }

    /// Reads to the end in large pieces.
    fn fill(&mut self, input: &mut dyn Read) -> std::io::Result<()> {
        loop {
            match input.read(self.room(READ_BYTES)) {
                Ok(0) => return Ok(()),
                Ok(n) => self.n_filled += n.min(READ_BYTES),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Size of one read of a dump: most are taken whole in one or two.
const READ_BYTES: usize = 512 << 10;

/// Reads the rest of `input` after `head` into `whole`, up to a bound; says so if reading failed or the bound was hit.
pub(crate) fn hold(
    head: &[u8],
    input: &mut dyn Read,
    max_bytes: u64,
    whole: &mut Whole,
    sink: &mut Sink<'_>,
) {
    whole.n_filled = 0;
    whole.room(head.len()).copy_from_slice(head);
    whole.n_filled = head.len();
    let room = max_bytes.saturating_sub(head.len() as u64);
    let result = whole.fill(&mut input.take(room));
    let end = whole.n_filled as u64;
    if let Err(error) = result {
        let text = format!("reading stopped here ({error}); what came before was read");
        sink.note(sink.cite(0, end, end), crate::archive::stop_kind(&error), text);
    } else if end >= max_bytes && matches!(input.read(&mut [0]), Ok(1)) {
        let text = format!("larger than {max_bytes} bytes; the rest was left out");
        sink.note(sink.cite(0, end, end), NoteKind::LimitReached, text);
    }
}

/// A JSON document and where it stands, for citations.
#[derive(Clone, Copy)]
pub(crate) struct Document<'a> {
    /// The text.
    pub(crate) bytes: &'a [u8],
    /// What it says.
    pub(crate) value: &'a Value,
    /// Line of its first byte, counted from 1.
    pub(crate) line: u32,
    /// Offset of its first byte.
    pub(crate) offset: u64,
}

impl Document<'_> {
    /// Cites all of it.
    pub(crate) fn cite(&self, sink: &Sink<'_>) -> Cite {
        sink.cite(self.line, self.offset, self.offset + self.bytes.len() as u64)
    }
}

/// Reads a source that looks like JSON. Returns its size.
pub(crate) fn read(
    name: &str,
    head: &[u8],
    input: &mut dyn Read,
    scratch: &mut Scratch,
    sink: &mut Sink<'_>,
) -> u64 {
    hold(head, input, sink.limits.max_json_bytes, &mut scratch.whole, sink);
    let whole = scratch.whole.bytes();
    let size = whole.len() as u64;
    let mut reader = Reader { name, whole, at: 0, line: 1, n_documents: 0, n_known: 0 };
    if reader.run(sink) {
        if reader.n_known == 0 {
            sink.saw(SourceKind::PlainText);
            let text = match reader.n_documents {
                1 => "JSON that no reader knows".into(),
                n => format!("{n} JSON documents that no reader knows"),
            };
            sink.note(Cite::whole(sink.source), NoteKind::Unrecognised, text);
        }
        return size;
    }
    crate::text::read_text(
        whole.strip_prefix(crate::sniff::UTF8_MARK).unwrap_or(whole),
        input,
        &mut scratch.block,
        sink,
    )
}

struct Reader<'a> {
    name: &'a str,
    whole: &'a [u8],
    /// Up to here all documents were read.
    at: usize,
    line: u32,
    n_documents: u64,
    n_known: u64,
}

impl Reader<'_> {
    /// Reads all documents; false if this is no JSON after all.
    fn run(&mut self, sink: &mut Sink<'_>) -> bool {
        if self.whole.starts_with(crate::sniff::UTF8_MARK) {
            self.at = crate::sniff::UTF8_MARK.len();
        }
        loop {
            let rest = self.whole.get(self.at..).unwrap_or_default();
            let blank = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
            self.advance(blank);
            let rest = rest.get(blank..).unwrap_or_default();
            if rest.is_empty() {
                return true;
            }
            let mut stream = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
            match stream.next() {
                None => return true,
                Some(Ok(value)) => {
                    let end = stream.byte_offset();
                    // `{"a": 1} and then words` is a print of the program; after known documents it is damage.
                    if self.n_known == 0 && !(value.is_object() || value.is_array()) {
                        return false;
                    }
                    self.offer(&value, end, sink);
                    self.advance(end);
                }
                Some(Err(error)) => {
                    if let Some(is_json) = self.damaged(rest, &error, sink) {
                        return is_json;
                    }
                }
            }
        }
    }

    /// The document at `rest` does not parse: tries to mend it, and goes on after it (None) or ends.
    fn damaged(&mut self, rest: &[u8], error: &serde_json::Error, sink: &mut Sink<'_>) -> Option<bool> {
        let broken_line = self.line + (error.line() as u32).saturating_sub(1);
        let cite = sink.cite(broken_line, self.at as u64, self.whole.len() as u64);
        if let Some(mended) = mend(rest)
            && let Ok(value) = serde_json::from_slice::<Value>(&mended.text)
            && self.offer(&value, mended.end, sink)
        {
            mended.tell(self.line, self.at as u64, sink);
            self.advance(mended.end);
            return None;
        }
        if self.n_known > 0 {
            sink.note(
                cite,
                NoteKind::Malformed,
                format!("JSON ends here with an error ({error}); the rest was left out"),
            );
            return Some(true);
        }
        if error.is_eof() && self.n_documents == 0 {
            sink.note(
                cite,
                NoteKind::Truncated,
                "JSON that ends early, of a kind that no reader knows".into(),
            );
        } else if error.to_string().contains("recursion limit") {
            sink.note(cite, NoteKind::LimitReached, "JSON that is nested too deep to be read".into());
        }
        Some(false)
    }

    fn offer(&mut self, value: &Value, length: usize, sink: &mut Sink<'_>) -> bool {
        self.n_documents += 1;
        let bytes = self.whole.get(self.at..self.at + length).unwrap_or_default();
        let document = Document { bytes, value, line: self.line, offset: self.at as u64 };
        let is_known = crate::flight::read_json(self.name, value, sink)
            || crate::ras::read_json(&document, sink)
            || crate::torch::read_json(value, sink)
            || crate::gpu::read_json(&document, sink)
            || crate::stacks::read_json(&document, sink)
            || crate::bench::read_json(&document, sink)
            || crate::fabric::read_json(&document, sink)
            || crate::system::read_json(&document, sink)
            || crate::kernel::read_json(&document, sink)
            || crate::node::read_json(&document, sink)
            || crate::watch::read_json(&document, sink)
            || crate::bundle::read_json(&document, sink);
        self.n_known += u64::from(is_known);
        is_known
    }

    fn advance(&mut self, n: usize) {
        let passed = self.whole.get(self.at..self.at + n).unwrap_or_default();
        self.line = self.line.saturating_add(memchr::memchr_iter(b'\n', passed).count() as u32);
        self.at += n;
    }
}

#[cfg(test)]
mod tests;
