//! Timelines of profilers: PyTorch's (Kineto), and others in Chrome's trace format.
//!
//! Events stream through a window: memory is what is kept of them, some 40 bytes each, plus one window.

mod chrome;
mod feed;
pub(crate) mod inspector;
mod kinds;
mod names;
pub(crate) mod nsight;
pub(crate) mod perfetto;
mod reach;
mod scan;
mod sqlite;
mod wire;
pub(crate) mod xplane;

use std::io::Read;

use ringleader_model::{NoteKind, SourceKind};

use crate::ground::{Sink, stop_kind};

use self::chrome::Builder;
use self::feed::{Feed, FeedPiece};

/// Bytes in which the events of a trace begin: programs that wrap PyTorch's profiler write settings before them.
const LATE_BYTES: usize = 1 << 20;

/// Whether a JSON document has events in Chrome's format, behind other keys.
pub(crate) fn is_trace(bytes: &[u8]) -> bool {
    let near = bytes.get(..LATE_BYTES).unwrap_or(bytes);
    let Some(at) = memchr::memmem::find(near, b"\"traceEvents\"") else { return false };
    let mut rest = near.get(at + 13..).unwrap_or_default().iter().filter(|b| !b.is_ascii_whitespace());
    (rest.next(), rest.next()) == (Some(&b':'), Some(&b'['))
}

/// Reads a trace in Chrome's format: its size in bytes.
pub(crate) fn read_chrome(head: &[u8], input: &mut dyn Read, sink: &mut Sink<'_>) -> u64 {
    sink.saw(SourceKind::Timeline);
    let mut feed = Feed::new(head, input);
    let mut builder = Builder::default();
    loop {
        match feed.next() {
            FeedPiece::Event(event) => builder.event(&event),
            FeedPiece::Value(key, value) => builder.value(key, value),
            FeedPiece::End => break,
        }
    }
    let end = feed.offset();
    let damage = feed.damage();
    if let Some((at, n_skipped)) = damage.skipped {
        let text = format!(
            "not JSON from here: {n_skipped} bytes in all were passed over, and what followed was read"
        );
        sink.note(sink.cite(0, at, at), NoteKind::Malformed, text);
    }
    if let Some(error) = &damage.failure {
        let text = format!("reading stopped here ({error}); what came before was read");
        sink.note(sink.cite(0, end, end), stop_kind(error), text);
    } else if damage.is_cut {
        let text = "the trace ends within an event: the program was stopped while it wrote".to_owned();
        sink.note(sink.cite(0, end, end), NoteKind::Truncated, text);
    }
    builder.finish(damage.is_any(), end, sink);
    end
}

#[cfg(test)]
mod tests;
