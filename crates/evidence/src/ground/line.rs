//! One line of a text file, and who reads it.

use ringleader_knowledge::form::Level;
use ringleader_model::{WallTime, Who};

use super::Sink;

/// One line, without its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// The whole line.
    pub(crate) raw: &'a [u8],
    /// What follows the launcher's prefix.
    pub(crate) body: &'a [u8],
    /// What the prefix said.
    pub(crate) tag: &'a Tag,
    /// Counted from 1.
    pub(crate) number: u32,
    /// Byte offset in the source.
    pub(crate) offset: u64,
    /// Bytes it takes there: those of `raw`, or more if a container runtime packed it.
    pub(crate) size: u64,
}

impl Line<'_> {
    /// Byte offset of the end.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.size
    }
}

/// What a launcher's prefix says about its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Whom the line is from.
    pub(crate) who: Who,
    /// Time stamp of the prefix.
    pub(crate) at: Option<WallTime>,
    /// Level, where a structured log keeps it beside the text.
    pub(crate) level: Option<Level>,
}

/// A reader of lines. It keeps its own state between lines and hands on what it found.
pub(crate) trait LineReader {
    /// Takes the line (true) or leaves it to the next reader.
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool;
    /// The last line, by number, up to which any line may matter, whatever it says, because something is open; 0 if nothing
    /// is. Beyond it only lines matter that [`Wants`](super::Wants) describes.
    fn awake_until(&self) -> u32 {
        0
    }
    /// Takes or leaves a line that [`Wants`](super::Wants) does not describe, which only what is open may go on with.
    fn ordinary_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        self.line(line, sink)
    }
    /// The next line is the last one and has no end: it may be cut.
    fn next_is_cut(&mut self) {}
    /// The source was program text or a document, not a log: what it quotes never happened. Called before the end.
    fn is_no_log(&mut self, _sink: &mut Sink<'_>) {}
    /// End of the source.
    fn finish(&mut self, sink: &mut Sink<'_>);
}

/// The lines of a format that has none.
#[derive(Default)]
pub(crate) struct NoLines;

impl LineReader for NoLines {
    #[inline]
    fn line(&mut self, _line: &Line<'_>, _sink: &mut Sink<'_>) -> bool {
        false
    }
    fn finish(&mut self, _sink: &mut Sink<'_>) {}
}
