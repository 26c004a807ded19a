//! Text files: lines, launcher prefixes, and the readers that are offered each line.
//!
//! One file may mix several kinds (a launcher's stderr holds NCCL lines, torch's messages, tracebacks and prints of
//! many ranks), so every reader sees every line that none before it took.

mod apart;
mod averages;
mod cited;
mod colours;
mod columns;
mod docker;
mod ends;
mod genre;
mod hosts;
mod json;
mod not_a_number;
mod ordinary;
mod outliers;
mod pace;
mod prefix;
mod progress;
mod said;
mod signs;
mod times;
mod turned;
mod words;

use std::io::Read;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memrchr};
use ringleader_model::{NoteKind, SourceKind};

use crate::ground::{Line, Sink, Tag, stop_kind};
use crate::readers::{self, Lines, Name};

pub(crate) use self::docker::is_docker;
pub(crate) use self::json::is_log as is_json_log;
use self::ordinary::{Ordinary, Shapes, What};

/// Lines after one of the kernel's among which another is looked for.
const MAX_BETWEEN: u32 = 64;

/// Lines of a source that are always offered to all: those in which tables and times of steps are looked for.
const N_SURE_LINES: u32 = 256;

/// Bytes of a line within which NCCL's mark is looked for.
const MAX_HEAD_BYTES: usize = 128;
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"NCCL "));

/// Room for one read. Large enough to make calls rare, small enough to stay in the second-level cache.
const BLOCK_BYTES: usize = 256 << 10;

/// How lines are offered to their readers. What is read is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Quiet lines of a kernel's log are passed over in runs, ordinary lines by their shape.
    #[default]
    Runs,
    /// Each line to all readers, which tests compare with.
    #[cfg(test)]
    LineByLine,
}

/// Working space that is kept from text to text.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Lines as they were read.
    pub(crate) block: Vec<u8>,
    shapes: Shapes,
}

/// Reads a text source to its end. `head` is what sniffing already took from `input`. Returns the size in bytes.
///
/// `room` is working space: whole lines are read in place, and only the piece of a line at its end is moved. Where
/// reads happen to end changes nothing in what is found.
pub(crate) fn read_text(head: &[u8], input: &mut dyn Read, room: &mut Room, sink: &mut Sink<'_>) -> u64 {
    read_at(Pace::default(), head, input, room, sink)
}

/// The same of a source whose first `n_passed` bytes were passed over.
pub(crate) fn read_text_from(
    n_passed: u64,
    head: &[u8],
    input: &mut dyn Read,
    room: &mut Room,
    sink: &mut Sink<'_>,
) -> u64 {
    pump(Pump { offset: n_passed, ..Pump::default() }, head, input, room, sink)
}

/// Reads a text source at the pace given.
pub(crate) fn read_at(
    pace: Pace,
    head: &[u8],
    input: &mut dyn Read,
    room: &mut Room,
    sink: &mut Sink<'_>,
) -> u64 {
    pump(Pump { pace, ..Pump::default() }, head, input, room, sink)
}

fn pump(mut pump: Pump, head: &[u8], input: &mut dyn Read, room: &mut Room, sink: &mut Sink<'_>) -> u64 {
    let Room { block, shapes } = room;
    let mut filled = head.len();
    // Bytes known to hold no line end.
    let mut searched = 0;
    make_room(block, filled);
    if let Some(start) = block.get_mut(..filled) {
        start.copy_from_slice(head);
    }
    loop {
        let fresh = block.get(searched..filled).unwrap_or_default();
        if let Some(at) = memrchr(b'\n', fresh) {
            let whole = searched + at + 1;
            pump.lines(block.get(..whole).unwrap_or_default(), shapes, sink);
            block.copy_within(whole..filled, 0);
            filled -= whole;
        }
        let n_passed = pump.pass_over(block.get(..filled).unwrap_or_default(), shapes, sink);
        block.copy_within(n_passed..filled, 0);
        filled -= n_passed;
        searched = filled;
        make_room(block, filled);
        match block.get_mut(filled..).map_or(Ok(0), |room| input.read(room)) {
            Ok(0) => break,
            Ok(n) => filled = filled.saturating_add(n).min(block.len()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                let end = pump.offset + filled as u64;
                let cite = sink.cite(pump.counter.number, end, end);
                let text = format!("reading stopped here ({error}); what came before was read");
                sink.note(cite, stop_kind(&error), text);
                break;
            }
        }
    }
    pump.tail(block.get(..filled).unwrap_or_default(), shapes, sink);
    pump.readers.finish(sink);
    if sink.saw_nothing() && pump.offset > 0 {
        sink.saw(SourceKind::PlainText);
    }
    pump.offset
}

/// Grows the block so that at least half a read fits behind what it holds.
fn make_room(block: &mut Vec<u8>, filled: usize) {
    if block.is_empty() {
        // Zeroed pages come for nothing from the allocator.
        *block = vec![0; filled + BLOCK_BYTES];
    } else if block.len() < filled + BLOCK_BYTES / 2 {
        block.resize(filled + BLOCK_BYTES, 0);
    }
}

#[derive(Default)]
struct Pump {
    readers: Readers,
    counter: Counter,
    /// Of the next line.
    offset: u64,
    /// Inside a line that is longer than the bound: everything up to its end is passed over.
    skipping: bool,
    pace: Pace,
    /// The lines that are offered now may hold control sequences of a terminal.
    has_colours: bool,
}

impl Pump {
    /// Offers lines; `whole` ends with a line end.
    fn lines(&mut self, whole: &[u8], shapes: &mut Shapes, sink: &mut Sink<'_>) {
        let has_updates = memchr(b'\r', whole).is_some();
        self.has_colours = colours::has_any(whole);
        let mut start = 0;
        // Where the next word of interest begins, once `start` has not passed it.
        let mut word = 0;
        while let Some(rest) = whole.get(start..)
            && let Some(length) = memchr(b'\n', rest)
        {
            let line = rest.get(..length).unwrap_or_default();
            if self.skipping {
                self.skipping = false;
                self.counter.goes_on = false;
            } else if self.counter.goes_on || has_updates && is_updated(line) {
                self.updates(line, shapes, sink);
                self.counter.goes_on = false;
            } else {
                let may_be_quiet = self.pace == Pace::Runs
                    && self.counter.number >= N_SURE_LINES
                    && self.readers.is_in_kernel_log(&self.counter)
                    && line.len() <= sink.limits.max_line_bytes;
                if may_be_quiet && word < start {
                    word = readers::next_word(rest).map_or(whole.len(), |at| start + at);
                }
                let is_passed = may_be_quiet
                    && word >= start + length
                    && self.readers.pass_quiet(&mut self.counter, line, self.offset);
                if !is_passed && !self.pass_ordinary(line, shapes, sink) {
                    self.offer(line, sink);
                }
            }
            self.offset += (length + 1) as u64;
            start += length + 1;
        }
    }

    /// Offers the text between carriage returns, each like a line: a bar of progress redraws itself with them, and what
    /// is printed between two updates has no line of its own. All have one number.
    fn updates(&mut self, line: &[u8], shapes: &mut Shapes, sink: &mut Sink<'_>) {
        let start = self.offset;
        let mut at = 0;
        for update in line.split(|b| *b == b'\r') {
            self.offset = start + at;
            at += update.len() as u64 + 1;
            if !update.is_empty() {
                if !self.pass_ordinary(update, shapes, sink) {
                    self.offer(update, sink);
                }
                self.counter.goes_on = true;
            }
        }
        self.offset = start;
    }

    /// Passes over a line that is ordinary, which only what is open may want.
    #[inline]
    fn pass_ordinary(&mut self, line: &[u8], shapes: &mut Shapes, sink: &mut Sink<'_>) -> bool {
        let raw = line.strip_suffix(b"\r").unwrap_or(line);
        let may_be = self.pace == Pace::Runs
            && self.counter.next() > N_SURE_LINES
            && line.len() <= sink.limits.max_line_bytes
            && raw.first() != Some(&0)
            && !(self.has_colours && colours::has_any(raw))
            && !self.readers.may_be_nccls(raw);
        may_be
            && match shapes.look(raw) {
                What::Wanted => false,
                What::Ordinary(what) => {
                    if !self.readers.pass_ordinary(what, &mut self.counter, raw, self.offset, sink) {
                        self.readers.offer_ordinary(Some(what), &mut self.counter, raw, self.offset, sink);
                    }
                    true
                }
                What::Unplanned => {
                    self.readers.offer_ordinary(None, &mut self.counter, raw, self.offset, sink);
                    true
                }
            }
    }

    fn offer(&mut self, line: &[u8], sink: &mut Sink<'_>) {
        let max = sink.limits.max_line_bytes;
        // A hole belongs to no line: it was torn when the file was emptied under its writers.
        let hole = if line.first() == Some(&0) { n_nuls(line) } else { 0 };
        let (line, offset) = (line.get(hole..).unwrap_or_default(), self.offset + hole as u64);
        let Some(part) = line.get(..max).filter(|part| part.len() < line.len()) else {
            let size = line.strip_suffix(b"\r").unwrap_or(line).len() as u64;
            self.readers.offer(&mut self.counter, &colours::plain(line), size, offset, sink);
            return;
        };
        self.readers.offer(&mut self.counter, part, part.len() as u64, offset, sink);
        let number = self.counter.number;
        let cite = sink.cite(number, offset, offset + max as u64);
        let text = format!("line {number} is longer than {max} bytes; its rest was passed over");
        sink.note(cite, NoteKind::LimitReached, text);
    }

    /// If the piece of a line that is held is longer than a line may be: passes over the hole that it begins with, or
    /// offers what may be and passes over the rest. Answers with the bytes that are done with.
    fn pass_over(&mut self, piece: &[u8], shapes: &mut Shapes, sink: &mut Sink<'_>) -> usize {
        let mut n_passed = piece.len();
        self.has_colours = colours::has_any(piece);
        if !self.skipping {
            if piece.len() <= sink.limits.max_line_bytes {
                return 0;
            }
            // The last one may be of the line's end.
            let last_update = piece.split_last().and_then(|(_, before)| memrchr(b'\r', before));
            if piece.first() == Some(&0) {
                n_passed = n_nuls(piece);
            } else if let Some(last) = last_update {
                n_passed = last + 1;
                self.updates(piece.get(..last).unwrap_or_default(), shapes, sink);
                // Also if it held nothing but returns.
                self.counter.starts();
            } else {
                self.offer(piece, sink);
                self.skipping = true;
            }
        }
        self.offset += n_passed as u64;
        n_passed
    }

    /// Offers what follows the last line end.
    fn tail(&mut self, piece: &[u8], shapes: &mut Shapes, sink: &mut Sink<'_>) {
        self.has_colours = colours::has_any(piece);
        if !piece.is_empty() && !self.skipping {
            let (before, last) = match memrchr(b'\r', piece.strip_suffix(b"\r").unwrap_or(piece)) {
                Some(at) => piece.split_at_checked(at + 1).unwrap_or((b"", piece)),
                None => (&b""[..], piece),
            };
            self.updates(before, shapes, sink);
            self.offset += before.len() as u64;
            self.readers.lines.next_is_cut();
            self.offer(last, sink);
            self.offset += last.len() as u64;
            return;
        }
        self.offset += piece.len() as u64;
    }
}

/// NULs that it begins with.
pub(crate) fn n_nuls(bytes: &[u8]) -> usize {
    // All at once where it is nothing else: holes are long.
    let is_hole = bytes.iter().fold(0, |all, b| all | b) == 0;
    if is_hole { bytes.len() } else { bytes.iter().take_while(|b| **b == 0).count() }
}

/// Whether a line holds updates of a bar: a carriage return before its end.
fn is_updated(line: &[u8]) -> bool {
    memchr(b'\r', line.strip_suffix(b"\r").unwrap_or(line)).is_some()
}

#[derive(Default)]
struct Counter {
    /// Of the last line.
    number: u32,
    /// What comes next is of the same line.
    goes_on: bool,
    prefixes: prefix::Stripper,
    tag: Tag,
}

/// Shows `offer` the lines of the text within an object, each with what the object and its line say of it; who took the last
/// one that was taken.
fn each_line(
    record: &json::Record,
    outer: &Line<'_>,
    prefixes: &mut prefix::Stripper,
    mut offer: impl FnMut(&Line<'_>) -> Option<Name>,
) -> Option<Name> {
    let mut taken = None;
    for (at, text) in record.lines.iter().enumerate() {
        let mut tag = Tag::default();
        let body = prefixes.strip_within(text.as_bytes(), &mut tag);
        let who = outer.tag.who.clone();
        tag.at = tag.at.or(record.at).or(outer.tag.at);
        tag.who.rank = tag.who.rank.or(record.rank).or(who.rank);
        tag.who.local_rank = tag.who.local_rank.or(who.local_rank);
        tag.who.host = tag.who.host.or_else(|| record.host.clone()).or(who.host);
        tag.who.pid = tag.who.pid.or(who.pid);
        // Of a message of several lines the first one has the level.
        tag.level = record.level.filter(|_| at == 0);
        let line = Line { raw: text.as_bytes(), body, tag: &tag, ..*outer };
        taken = offer(&line).or(taken);
    }
    taken
}

impl Counter {
    /// Number of what comes next.
    #[inline]
    fn next(&self) -> u32 {
        if self.goes_on { self.number } else { self.number.saturating_add(1) }
    }

    /// A line began, if none has, and goes on.
    fn starts(&mut self) {
        self.number = self.next();
        self.goes_on = true;
    }
}

#[derive(Default)]
struct Readers {
    genre: genre::Genre,
    lines: Lines,
    said: said::SaidReader,
    signs: signs::SignReader,
    averages: averages::AveragesReader,
    times: times::TimesReader,
    words: words::WordsReader,
    outliers: outliers::OutlierReader,
    apart: apart::ApartReader,
    hosts: hosts::HostReader,
    progress: progress::ProgressReader,
    /// Number of the last line that the kernel's reader took, or 0.
    last_of_kernel: u32,
    /// NCCL's reader took the last line that was offered.
    is_in_nccl_log: bool,
    /// Up to this line a reader may want any line.
    awake_until: u32,
}

impl Readers {
    /// Whether the next line is hardly any but the kernel's.
    fn is_in_kernel_log(&self, counter: &Counter) -> bool {
        self.last_of_kernel > 0 && counter.number - self.last_of_kernel < MAX_BETWEEN
    }

    /// Passes over a line without any word of interest if it is the kernel's and says nothing.
    #[inline]
    fn pass_quiet(&mut self, counter: &mut Counter, raw: &[u8], offset: u64) -> bool {
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let number = counter.next();
        if !self.lines.kernel.quiet(raw, number, offset) {
            return false;
        }
        // Those lines have no label, and what they are is settled.
        counter.number = number;
        counter.prefixes.count_plain();
        self.last_of_kernel = number;
        true
    }

    /// Whether the next line, too, is NCCL's, for all that its beginning tells: then to ask whether it is ordinary is vain.
    #[inline]
    fn may_be_nccls(&self, raw: &[u8]) -> bool {
        self.is_in_nccl_log && MARK.find(raw.get(..MAX_HEAD_BYTES).unwrap_or(raw)).is_some()
    }

    /// Skips an ordinary line if no reader is active; false leaves it.
    #[inline]
    fn pass_ordinary(
        &mut self,
        what: &Ordinary,
        counter: &mut Counter,
        raw: &[u8],
        offset: u64,
        sink: &Sink<'_>,
    ) -> bool {
        let number = counter.next();
        if number <= self.awake_until || what.shows() && !self.progress.has_begun() {
            return false;
        }
        let settled = self.genre.is_settled();
        if !settled && what.counts.is_none() {
            return false;
        }
        let cite = sink.cite(number, offset, offset + raw.len() as u64);
        if what.labelled.is_some() {
            // Whether its label is a launcher's depends on the lines before.
            let body = counter.prefixes.strip(raw, &mut counter.tag);
            let n_prefix = raw.len() - body.len();
            counter.number = number;
            if let Some(known) = what.body_behind(n_prefix).filter(|_| settled) {
                self.progress.ordinary(known, raw, Some(&counter.tag), cite);
            } else {
                let size = raw.len() as u64;
                let line = Line { raw, body, tag: &counter.tag, number, offset, size };
                self.progress.line(&line, sink);
                self.genre.line(&line, false);
            }
            return true;
        }
        if let Some(counts) = what.counts.filter(|_| !settled) {
            self.genre.count(counts);
        }
        self.progress.ordinary(&what.body, raw, None, cite);
        counter.number = number;
        if !raw.is_empty() {
            counter.prefixes.count_plain();
        }
        true
    }

    /// Shows an ordinary line to those who may want it.
    fn offer_ordinary(
        &mut self,
        what: Option<&Ordinary>,
        counter: &mut Counter,
        raw: &[u8],
        offset: u64,
        sink: &mut Sink<'_>,
    ) {
        // An object may be the sign of a log.
        if !self.genre.is_settled() && memchr(b'{', raw).is_some() {
            return self.offer(counter, raw, raw.len() as u64, offset, sink);
        }
        counter.number = counter.next();
        let body = counter.prefixes.strip(raw, &mut counter.tag);
        let size = raw.len() as u64;
        let line = Line { raw, body, tag: &counter.tag, number: counter.number, offset, size };
        let mut taken = None;
        if line.number <= self.awake_until {
            taken = match json::unpack(body) {
                Some(record) => each_line(&record, &line, &mut counter.prefixes, |line| {
                    self.lines.offer_ordinary(line, sink)
                }),
                None => self.lines.offer_ordinary(&line, sink),
            };
            self.awake_until = self.lines.awake_until();
        }
        if taken == Some(Name::kernel) {
            self.last_of_kernel = line.number;
        }
        let known = what.and_then(|what| what.body_behind(raw.len() - body.len()));
        match known.filter(|_| self.progress.has_begun() && !json::begins(body)) {
            _ if taken.is_some() => {}
            Some(known) => {
                let cite = sink.cite(line.number, offset, line.end());
                self.progress.ordinary(known, raw, Some(&counter.tag), cite);
            }
            None => self.progress.line(&line, sink),
        }
        self.genre.line(&line, taken == Some(Name::kernel));
    }

    /// `size`: bytes of the line in its file; `raw` may be a part of it.
    fn offer(&mut self, counter: &mut Counter, raw: &[u8], size: u64, offset: u64, sink: &mut Sink<'_>) {
        counter.number = counter.next();
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let body = counter.prefixes.strip(raw, &mut counter.tag);
        let line = Line { raw, body, tag: &counter.tag, number: counter.number, offset, size };
        let taken = match json::unpack(body) {
            Some(record) => self.offer_record(&record, &line, &mut counter.prefixes, sink),
            None => self.offer_line(&line, sink),
        };
        if taken.is_none() {
            self.progress.line(&line, sink);
        }
    }

    /// Offers a line to the readers and keeps what it states.
    fn offer_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> Option<Name> {
        let taken = self.lines.offer(line, sink);
        self.is_in_nccl_log = taken == Some(Name::nccl);
        // That one never waits, and keeps its lines from all others.
        if !self.is_in_nccl_log {
            self.awake_until = self.lines.awake_until();
        }
        if taken == Some(Name::kernel) {
            self.last_of_kernel = line.number;
        }
        self.said.line(line, taken, sink);
        self.signs.line(line, taken, sink);
        if !self.said.explains(line) {
            self.words.line(line, taken, sink);
        }
        let is_early = line.number <= N_SURE_LINES;
        self.progress.pace.start(line, is_early);
        // NCCL's lines have their machine in front.
        if is_early && !self.is_in_nccl_log {
            self.hosts.line(line, sink);
        }
        if taken.is_none() && is_early {
            self.times.line(line, sink);
            self.outliers.line(line, sink);
        }
        if taken.is_none() {
            self.averages.line(line, sink);
            self.apart.line(line, is_early, sink);
            if self.apart.is_in_list() {
                self.awake_until = self.awake_until.max(line.number.saturating_add(1));
            }
        }
        self.genre.line(line, matches!(taken, Some(Name::kernel | Name::nccl)));
        taken
    }

    /// Offers the lines of the text within an object; `outer` is the line that the object is.
    fn offer_record(
        &mut self,
        record: &json::Record,
        outer: &Line<'_>,
        prefixes: &mut prefix::Stripper,
        sink: &mut Sink<'_>,
    ) -> Option<Name> {
        self.genre.is_of_log();
        each_line(record, outer, prefixes, |line| self.offer_line(line, sink))
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        let is_log = !self.genre.is_no_log();
        self.lines.finish(is_log, sink);
        if !is_log {
            self.said.is_no_log();
        }
        self.said.finish(sink);
        self.hosts.finish(sink);
        if is_log {
            self.signs.finish(sink);
            self.averages.finish(sink);
            self.times.finish(sink);
            self.words.finish(sink);
            self.outliers.finish(sink);
            self.apart.finish(sink);
        }
        self.progress.finish(is_log, sink);
    }
}
