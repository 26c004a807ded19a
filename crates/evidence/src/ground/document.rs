//! One JSON document.

use ringleader_model::Cite;
use serde_json::Value;

use super::Sink;

/// A JSON document and its place, for citations.
#[derive(Clone, Copy)]
pub(crate) struct Document<'a> {
    /// The innermost path of its file.
    pub(crate) name: &'a str,
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
