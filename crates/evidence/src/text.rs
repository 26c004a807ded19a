//! Text files: lines, launcher prefixes, and the readers that are offered each line.
//!
//! One file may mix several kinds (a launcher's stderr holds NCCL lines, torch's messages, tracebacks and prints of
//! many ranks), so every reader sees every line that none before it took.

pub(crate) mod prefix;

use std::io::Read;

use memchr::{memchr, memrchr};
use ringleader_model::{NoteKind, SourceKind, WallTime, Who};

use crate::sink::Sink;

/// One line, without its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// All of it.
    pub(crate) raw: &'a [u8],
    /// What follows the launcher's prefix.
    pub(crate) body: &'a [u8],
    /// What the prefix said.
    pub(crate) tag: &'a Tag,
    /// Counted from 1.
    pub(crate) number: u32,
    /// Byte offset of `raw` in the source.
    pub(crate) offset: u64,
}

impl Line<'_> {
    /// Byte offset of the end.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.raw.len() as u64
    }
}

/// What a launcher's prefix says about its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Whom the line is from.
    pub(crate) who: Who,
    /// Time stamp of the prefix.
    pub(crate) at: Option<WallTime>,
}

/// A reader of lines. It keeps its own state between lines and hands on what it found.
pub(crate) trait LineReader {
    /// Takes the line (true) or leaves it to the next reader.
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool;
    /// End of the source.
    fn finish(&mut self, sink: &mut Sink<'_>);
}

/// Size of one read. Large enough to make calls rare, small enough to stay in the second-level cache.
const BLOCK_BYTES: usize = 256 << 10;

/// Reads a text source to its end. `head` is what sniffing already took from `input`. Returns the size in bytes.
pub(crate) fn read_text(head: &[u8], input: &mut dyn Read, block: &mut Vec<u8>, sink: &mut Sink<'_>) -> u64 {
    let mut readers = Readers::default();
    let mut counter = Counter::default();
    block.clear();
    block.extend_from_slice(head);
    let mut offset = 0_u64;
    // Inside a line that is longer than the bound: pass over everything up to its end.
    let mut skipping = false;
    let mut at_end = false;
    while !at_end {
        let filled = block.len();
        block.resize(filled + BLOCK_BYTES, 0);
        let n_read = match block.get_mut(filled..).map(|room| input.read(room)) {
            Some(Ok(n)) => n,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {
                block.truncate(filled);
                continue;
            }
            Some(Err(error)) => {
                let cite = sink.cite(counter.number, offset, offset);
                sink.note(cite, crate::archive::stop_kind(&error), format!("reading stopped here ({error}); what came before was read"));
                0
            }
            None => 0,
        };
        block.truncate(filled + n_read);
        at_end = n_read == 0;
        let whole = if at_end { block.len() } else { memrchr(b'\n', block).map_or(0, |at| at + 1) };
        let mut rest = block.get(..whole).unwrap_or_default();
        while !rest.is_empty() {
            let (line, next) = match memchr(b'\n', rest) {
                Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default()),
                None => (rest, &[][..]),
            };
            if skipping {
                skipping = false;
            } else {
                readers.offer(&mut counter, line, offset, sink);
            }
            offset += (rest.len() - next.len()) as u64;
            rest = next;
        }
        let left = block.len() - whole;
        if left > sink.limits.max_line_bytes {
            if !skipping {
                let part = block.get(whole..whole + sink.limits.max_line_bytes).unwrap_or_default();
                readers.offer(&mut counter, part, offset, sink);
                let cite = sink.cite(counter.number, offset, offset + left as u64);
                let text = format!("line {} is longer than {} bytes; its rest was passed over", counter.number, sink.limits.max_line_bytes);
                sink.note(cite, NoteKind::LimitReached, text);
                skipping = true;
            }
            offset += left as u64;
            block.clear();
        } else {
            block.drain(..whole);
        }
    }
    readers.finish(sink);
    if sink.saw_nothing() && offset > 0 {
        sink.saw(SourceKind::PlainText);
    }
    offset
}

#[derive(Default)]
struct Counter {
    number: u32,
    tag: Tag,
}

/// All line readers, in the order in which they are offered a line: cheap and certain ones first.
#[derive(Default)]
struct Readers {
    nccl: crate::nccl::NcclReader,
    blocks: crate::stacks::StackReader,
    ras: crate::ras::RasTextReader,
    tables: crate::tables::TableReader,
    torch: crate::torch::TorchReader,
}

impl Readers {
    fn offer(&mut self, counter: &mut Counter, raw: &[u8], offset: u64, sink: &mut Sink<'_>) {
        counter.number = counter.number.saturating_add(1);
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let body = prefix::strip(raw, &mut counter.tag);
        let line = Line { raw, body, tag: &counter.tag, number: counter.number, offset };
        let _taken = self.nccl.line(&line, sink)
            || self.blocks.line(&line, sink)
            || self.ras.line(&line, sink)
            || self.tables.line(&line, sink)
            || self.torch.line(&line, sink);
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.nccl.finish(sink);
        self.blocks.finish(sink);
        self.ras.finish(sink);
        self.tables.finish(sink);
        self.torch.finish(sink);
    }
}
