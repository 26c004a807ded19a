//! JSON files: one document, several in a row, or one a line; whole, cut, or with a known defect.
//!
//! Documents are offered to the readers one by one. A file that only begins like JSON goes to the text readers.

use std::io::Read;

use ringleader_model::{Cite, NoteKind, SourceKind};
use serde_json::Value;

use crate::ground::{Document, Extract, Limits, Sink, mend};
use crate::scratch::{Scratch, hold};
use crate::{readers, sniff, text};

/// Reads a source that looks like JSON. Returns its size.
pub(crate) fn read(
    name: &str,
    head: &[u8],
    input: &mut dyn Read,
    scratch: &mut Scratch,
    sink: &mut Sink<'_>,
) -> u64 {
    if text::is_json_log(head) && !is_known(name, head) {
        let head = head.strip_prefix(sniff::UTF8_MARK).unwrap_or(head);
        return text::read_text(head, input, &mut scratch.text, sink);
    }
    hold(head, input, sink.limits.max_json_bytes, &mut scratch.whole, sink);
    let whole = scratch.whole.bytes();
    if readers::timeline::is_trace(whole) {
        return readers::timeline::read_chrome(whole, input, sink);
    }
    let size = whole.len() as u64;
    let mut reader = DocumentReader { name, whole, at: 0, line: 1, n_documents: 0, n_known: 0 };
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
    text::read_text(whole.strip_prefix(sniff::UTF8_MARK).unwrap_or(whole), input, &mut scratch.text, sink)
}

/// Whether a reader knows the object that a file begins with.
fn is_known(name: &str, head: &[u8]) -> bool {
    let limits = Limits::default();
    let mut extract = Extract::default();
    let mut sink = Sink::open(name, &limits, &mut extract);
    let mut values = serde_json::Deserializer::from_slice(head).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else { return false };
    let bytes = head.get(..values.byte_offset()).unwrap_or_default();
    readers::read_document(&Document { name, bytes, value: &value, line: 1, offset: 0 }, &mut sink)
}

struct DocumentReader<'a> {
    name: &'a str,
    whole: &'a [u8],
    /// Up to here all documents were read.
    at: usize,
    line: u32,
    n_documents: u64,
    n_known: u64,
}

impl DocumentReader<'_> {
    /// Reads all documents; false if this is no JSON after all.
    fn run(&mut self, sink: &mut Sink<'_>) -> bool {
        if self.whole.starts_with(sniff::UTF8_MARK) {
            self.at = sniff::UTF8_MARK.len();
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

    /// The document at `rest` does not parse: tries to repair it, and continues after it (None) or ends.
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
        let document = Document { name: self.name, bytes, value, line: self.line, offset: self.at as u64 };
        let is_known = readers::read_document(&document, sink);
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
