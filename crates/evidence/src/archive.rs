//! Opens what is packed: gzip, zstd, xz, bzip2, tar, zip, in any nesting, with caps on depth, members and bytes out.
//!
//! Nothing is ever written: a member's name is shown, never used as a path. Every layer is a stream over the one
//! before it, so that memory does not grow with an archive's size, and a cut archive gives what came before the cut.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use ringleader_model::{Cite, Note, NoteKind, SourceKind};

use crate::ground::{CapReached, Extract, Limits, Sink, stop_kind};
use crate::readers::timeline;
use crate::scratch::{Scratch, hold};
use crate::sniff::{self, StreamForm};
use crate::{document, text};

mod tape;
mod utf16;
mod zip;

/// Reads a stream of any form into `extract`.
pub(crate) fn read_any(
    path: &str,
    input: &mut dyn Read,
    scratch: &mut Scratch,
    limits: &Limits,
    extract: &mut Extract,
) {
    open_all(path, input, scratch, limits, extract, None);
}

/// Hands each stream that is not packed to `tap`, with the name that citations show, instead of reading it.
pub(crate) fn tap_any(
    path: &str,
    input: &mut dyn Read,
    scratch: &mut Scratch,
    limits: &Limits,
    extract: &mut Extract,
    tap: Tap<'_>,
) {
    open_all(path, input, scratch, limits, extract, Some(tap));
}

/// What takes the streams of text of an archive.
type Tap<'t> = &'t dyn Fn(&str, &mut dyn Read);

fn open_all(
    path: &str,
    input: &mut dyn Read,
    scratch: &mut Scratch,
    limits: &Limits,
    extract: &mut Extract,
    tap: Option<Tap<'_>>,
) {
    let budget = Budget {
        limits,
        bytes_left: Cell::new(limits.max_expanded_bytes),
        members_left: Cell::new(limits.max_members),
        tap,
    };
    let place = InnerStream { shown: path.to_owned(), name: path.to_owned(), depth: 0 };
    open(&place, input, &budget, scratch, extract);
}

/// What one file may still cost, over all its layers.
struct Budget<'l> {
    limits: &'l Limits,
    bytes_left: Cell<u64>,
    members_left: Cell<u32>,
    /// Takes the streams instead of the readers.
    tap: Option<Tap<'l>>,
}

/// A stream within the file that was given.
struct InnerStream {
    /// `outer.tar!inner/path`.
    shown: String,
    /// The innermost path.
    name: String,
    /// Layers that were opened to get here.
    depth: u32,
}

impl InnerStream {
    fn deeper(&self) -> Self {
        Self { shown: self.shown.clone(), name: self.name.clone(), depth: self.depth + 1 }
    }
}

/// Opens one layer, or reads the stream if it is not packed.
fn open(
    place: &InnerStream,
    input: &mut dyn Read,
    budget: &Budget<'_>,
    scratch: &mut Scratch,
    extract: &mut Extract,
) {
    let mut head = Vec::with_capacity(sniff::HEAD_BYTES);
    let failure = input.take(sniff::HEAD_BYTES as u64).read_to_end(&mut head).err();
    if let (Some(error), true) = (&failure, head.is_empty()) {
        let (kind, text) = match stop_kind(error) {
            NoteKind::Truncated => (NoteKind::Unreadable, format!("could not be read ({error})")),
            kind => (kind, format!("was left out: {error}")),
        };
        return alone(place, SourceKind::Unknown, kind, text, budget, extract);
    }
    let form = sniff::sniff(&head);
    let mut rest = Rest { failure, over: false, input };
    if form == StreamForm::Binary(None) && head.first() == Some(&0) {
        let (n_passed, head) = pass_hole(head, &mut rest);
        // A log that was truncated under a writer at its end. Anything else that begins with NULs is not a log.
        let inner = sniff::sniff(head.get(..sniff::HEAD_BYTES).unwrap_or(&head));
        if matches!(inner, StreamForm::Text | StreamForm::Json) {
            let mut sink = Sink::open(&place.shown, budget.limits, extract);
            let size = text::read_text_from(n_passed, &head, &mut rest, &mut scratch.text, &mut sink);
            return sink.close(size);
        }
        let head = [&[0; 8][..n_passed.min(8) as usize], &head].concat();
        return alone(place, SourceKind::Unknown, NoteKind::Unrecognised, unknown(&head), budget, extract);
    }
    let is_packed = form.is_packed();
    if is_packed && place.depth >= budget.limits.max_depth {
        let text = format!("packed more than {} layers deep; unpack it by hand", budget.limits.max_depth);
        return alone(place, SourceKind::Unknown, NoteKind::LimitReached, text, budget, extract);
    }
    if let Some(tap) = budget.tap.filter(|_| !is_packed && !matches!(form, StreamForm::Utf16 { .. })) {
        let mark: &[u8] = if form == StreamForm::Text { sniff::UTF8_MARK } else { &[] };
        let head = head.strip_prefix(mark).unwrap_or(&head);
        return tap(&place.shown, &mut head.chain(rest));
    }
    match form {
        StreamForm::Gzip => {
            let decoder = flate2::read::MultiGzDecoder::new(head.chain(rest));
            open(&place.deeper(), &mut Expanded { decoder, budget }, budget, scratch, extract);
        }
        StreamForm::Zstd => match zstd::stream::read::Decoder::new(head.chain(rest)) {
            Ok(decoder) => open(&place.deeper(), &mut Expanded { decoder, budget }, budget, scratch, extract),
            Err(error) => {
                let text = format!("could not be unpacked ({error})");
                alone(place, SourceKind::Unknown, NoteKind::Unreadable, text, budget, extract);
            }
        },
        StreamForm::Xz => {
            let decoder = lzma_rust2::XzReader::new_mem_limit(head.chain(rest), true, MAX_DICTIONARY_KIB);
            open(&place.deeper(), &mut Expanded { decoder, budget }, budget, scratch, extract);
        }
        StreamForm::Bzip2 => {
            let decoder = bzip2::read::MultiBzDecoder::new(head.chain(rest));
            open(&place.deeper(), &mut Expanded { decoder, budget }, budget, scratch, extract);
        }
        StreamForm::Zip => zip::read(place, &mut head.chain(rest), budget, scratch, extract),
        StreamForm::Tar => tape::read(place, &mut head.chain(rest), budget, scratch, extract),
        StreamForm::Utf16 { big_endian } => {
            let mut text = utf16::Utf8From::new(head.chain(rest), big_endian);
            open(place, &mut text, budget, scratch, extract);
        }
        StreamForm::Empty => {
            alone(place, SourceKind::PlainText, NoteKind::Empty, "the file is empty".into(), budget, extract);
        }
        StreamForm::Timeline => {
            let mut sink = Sink::open(&place.shown, budget.limits, extract);
            let size = timeline::read_chrome(&head, &mut rest, &mut sink);
            sink.close(size);
        }
        StreamForm::Binary(name) => {
            let text = match name {
                Some(name) => format!("{name}: not read"),
                None => unknown(&head),
            };
            alone(place, SourceKind::Unknown, NoteKind::Unrecognised, text, budget, extract);
        }
        StreamForm::Whole(format) => {
            let mut sink = Sink::open(&place.shown, budget.limits, extract);
            let max_bytes = (format.max_bytes)(budget.limits);
            hold(&head, &mut rest, max_bytes, &mut scratch.whole, &mut sink);
            let bytes = scratch.whole.bytes();
            (format.read)(&place.name, bytes, &mut scratch.kept, &mut sink);
            sink.close(bytes.len() as u64);
        }
        StreamForm::Json => {
            let mut sink = Sink::open(&place.shown, budget.limits, extract);
            let size = document::read(&place.name, &head, &mut rest, scratch, &mut sink);
            sink.close(size);
        }
        StreamForm::Text => {
            let mut sink = Sink::open(&place.shown, budget.limits, extract);
            let head = head.strip_prefix(sniff::UTF8_MARK).unwrap_or(&head);
            let size = text::read_text(head, &mut rest, &mut scratch.text, &mut sink);
            sink.close(size);
        }
    }
}

fn unknown(head: &[u8]) -> String {
    format!("binary content that no reader knows; it begins with {}", FirstBytes(head))
}

/// Passes over the NULs that a stream begins with: how many, and the head of what follows.
fn pass_hole(mut head: Vec<u8>, input: &mut Rest<'_>) -> (u64, Vec<u8>) {
    let mut n_passed = 0;
    let mut block = vec![0; HOLE_READ_BYTES];
    loop {
        let n = text::n_nuls(&head);
        n_passed += n as u64;
        head.drain(..n);
        if head.len() >= sniff::HEAD_BYTES {
            return (n_passed, head);
        }
        match input.read(&mut block) {
            Ok(0) => return (n_passed, head),
            Ok(n) => head.extend_from_slice(block.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                // Whoever reads on must meet it, too.
                (input.failure, input.over) = (Some(error), false);
                return (n_passed, head);
            }
        }
    }
}

/// Holes of gigabytes are passed over in large steps.
const HOLE_READ_BYTES: usize = 256 << 10;

/// A source with nothing but a note.
fn alone(
    place: &InnerStream,
    saw: SourceKind,
    kind: NoteKind,
    text: String,
    budget: &Budget<'_>,
    extract: &mut Extract,
) {
    let mut sink = Sink::open(&place.shown, budget.limits, extract);
    sink.saw(saw);
    let cite = Cite::whole(sink.source);
    sink.note(cite, kind, text);
    sink.close(0);
}

/// Notes about an archive itself, as a source of their own.
fn about(place: &InnerStream, notes: Vec<(NoteKind, String)>, budget: &Budget<'_>, extract: &mut Extract) {
    if notes.is_empty() {
        return;
    }
    let sink = Sink::open(&place.shown, budget.limits, extract);
    let cite = Cite::whole(sink.source);
    sink.close(0);
    extract.notes.extend(notes.into_iter().map(|(kind, text)| Note { cite, kind, text }));
}

/// What follows the head: first the error that ended reading the head, if any; nothing after an error.
struct Rest<'i> {
    failure: Option<io::Error>,
    over: bool,
    input: &'i mut dyn Read,
}

impl Read for Rest<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failure.take() {
            self.over = true;
            return Err(error);
        }
        if self.over || buf.is_empty() {
            return Ok(0);
        }
        let result = self.input.read(buf);
        self.over = match &result {
            Ok(n) => *n == 0,
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        };
        result
    }
}

/// Memory that a file of xz may ask for: what its highest level takes, several times over.
const MAX_DICTIONARY_KIB: u32 = 256 << 10;

/// Output of a decompressor, counted against the budget.
struct Expanded<'b, D> {
    decoder: D,
    budget: &'b Budget<'b>,
}

/// A decompressor that meets damage drops what it had for the call, so calls are small.
const EXPANDED_READ_BYTES: usize = 32 << 10;

impl<D: Read> Read for Expanded<'_, D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.budget.bytes_left.get();
        if left == 0 {
            return Err(io::Error::other(CapReached(self.budget.limits.max_expanded_bytes)));
        }
        let room = buf.len().min(EXPANDED_READ_BYTES).min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = self.decoder.read(buf.get_mut(..room).unwrap_or_default())?;
        self.budget.bytes_left.set(left.saturating_sub(n as u64));
        Ok(n)
    }
}

/// `7f 45 4c 46 …` with the printable ones beside them.
struct FirstBytes<'a>(&'a [u8]);

impl fmt::Display for FirstBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.get(..8).unwrap_or(self.0);
        for (at, byte) in first.iter().enumerate() {
            write!(f, "{}{byte:02x}", if at == 0 { "" } else { " " })?;
        }
        let printed: String =
            first.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        write!(f, " ({printed})")
    }
}

#[cfg(test)]
mod tests;
