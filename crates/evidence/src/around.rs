//! Lines around cited places, read again: contents are not kept, and a report or an assistant wants to see more of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read};

use crate::{Extract, Limits, Scratch, archive};

/// A place of a source, as a citation gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// The source as citations show it: `logs.tar!a/b.log` for a member of an archive.
    pub source: String,
    /// Bytes from and to, after decompression; both 0 if only the line is known.
    pub span: (u64, u64),
    /// The line that is meant, counted from 1; 0 if unknown. Of a long span it alone is wanted.
    pub line: u32,
    /// What is said of it: of a long span whose first line is given, the line that has most of these words is wanted.
    pub words: String,
}

/// The lines around a place. Long lines are cut; of a line that redraws itself only its last state counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Number of the first line of `lines`, counted from 1.
    pub line: u64,
    /// Lines before it, in their order.
    pub before: Vec<String>,
    /// The lines of the place itself.
    pub lines: Vec<String>,
    /// Lines after it.
    pub after: Vec<String>,
    /// The line was found by what is said of it: another one was given.
    pub is_found: bool,
}

/// Before the first line that is wanted, this much is searched for the lines before it, bytes.
const BACK_BYTES: u64 = 16 << 10;
/// Of a longer place only the line that is meant counts, or its first lines; of a traceback its last ones.
const MAX_LINES: usize = 8;
/// Lines of a traceback that are read for its end.
const MAX_TRACEBACK: u64 = 200;
/// Lines that are held while the next ones are read.
const HELD_LINES: usize = 256;
/// A line is the one that is meant if it has this share of the letters of what is said of it.
const MEANT: f64 = 0.5;
/// Bytes of one line.
const LINE_BYTES: usize = 2 << 10;
/// Bytes that are passed over at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Reads `n_lines` lines before and after each place that is in the file, archive or stream `path`; in the order of
/// `places`, None for those that are elsewhere or beyond the end.
pub fn around(
    path: &str,
    input: &mut dyn Read,
    places: &[Citation],
    n_lines: usize,
    limits: &Limits,
) -> Vec<Option<Around>> {
    let mut wanted: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        wanted.entry(&place.source).or_default().push(at);
    }
    let span = |at: usize| places.get(at).map_or((0, 0), |place| place.span);
    for list in wanted.values_mut() {
        list.sort_by_key(|at| span(*at));
    }
    let found: RefCell<Vec<Option<Around>>> = RefCell::new(vec![None; places.len()]);
    let tap = |source: &str, input: &mut dyn Read| {
        let Some(list) = wanted.get(source) else { return };
        let mut lines = Lines::new(input);
        for at in list {
            let Some(place) = places.get(*at) else { continue };
            let around = lines.around(place, n_lines);
            if let Some(slot) = found.borrow_mut().get_mut(*at) {
                *slot = around;
            }
        }
    };
    archive::tap_any(path, input, &mut Scratch::default(), limits, &mut Extract::default(), &tap);
    found.into_inner()
}

/// Words and numbers.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// One line that was read.
#[derive(Clone, Debug)]
struct Line {
    /// Offsets of its first byte, and of the first one of the next line.
    start: u64,
    end: u64,
    /// Counted from 1.
    number: u64,
    text: String,
}

/// A stream, read line by line where lines are wanted.
struct Lines<'i> {
    input: BufReader<&'i mut dyn Read>,
    /// Offset of the next byte, and number of the line that it is in.
    next: u64,
    number: u64,
    /// Lines read last.
    held: VecDeque<Line>,
}

impl<'i> Lines<'i> {
    fn new(input: &'i mut dyn Read) -> Self {
        Self {
            input: BufReader::with_capacity(BLOCK_BYTES, input),
            next: 0,
            number: 1,
            held: VecDeque::new(),
        }
    }

    fn around(&mut self, place: &Citation, n_lines: usize) -> Option<Around> {
        let ((start, end), line) = (place.span, u64::from(place.line));
        if (start, end) == (0, 0) && line > 0 {
            return self.numbered(line, n_lines as u64);
        }
        // A citation of one byte means its line.
        let end = end.max(start + 1);
        let from = start.saturating_sub(BACK_BYTES);
        if from > self.next {
            self.pass(from - self.next);
            // The rest of a line that was entered in its middle.
            self.line();
            self.held.clear();
        }
        while self.held.iter().all(|held| held.end <= start) && self.line() {}
        let first = self.held.iter().find(|held| held.end > start).map(|held| held.number)?;
        // The place as it is, unless it is long: then the line that is meant, or its first lines.
        let is_meant =
            |held: &Line| held.end > start && held.start < end && held.number < first + MAX_LINES as u64;
        while self.held.back().is_some_and(is_meant) && self.line() {}
        let is_long =
            self.held.back().is_some_and(|held| held.start < end && held.number >= first + MAX_LINES as u64);
        let is_traceback = is_long && line <= first && self.is_traceback(first);
        let mut is_found = false;
        let (low, high) = match is_long {
            true if line > first => (line, line),
            true if is_traceback => self.end_of(first, end),
            true => {
                let meant = self.meant(first, end, &place.words);
                is_found = meant.is_some_and(|meant| meant > first);
                meant.map_or((first, first + MAX_LINES as u64 / 2 - 1), |meant| (meant, meant))
            }
            false => {
                let last = self.held.iter().filter(|held| is_meant(held)).map(|held| held.number).max()?;
                (first, last)
            }
        };
        while self.held.back().is_some_and(|held| held.number < high + n_lines as u64) && self.line() {}
        let text = |from: u64, to: u64| -> Vec<String> {
            let within = self.held.iter().filter(|held| held.number >= from && held.number <= to);
            within.map(|held| held.text.clone()).collect()
        };
        let lines = text(low, high);
        let before = text(low.saturating_sub(n_lines as u64), low - 1);
        let after = text(high + 1, high + n_lines as u64);
        (!lines.is_empty()).then_some(Around { line: low, before, lines, after, is_found })
    }

    /// The first line before the offset `end`, from `first` on, that has most of these words, if it has many.
    fn meant(&mut self, first: u64, end: u64, words: &str) -> Option<u64> {
        let wanted: BTreeSet<&str> = parts(words).collect();
        let total: usize = wanted.iter().map(|word| word.len()).sum();
        let is_within = |held: &Line| held.start < end && held.number + 2 < first + HELD_LINES as u64;
        while self.held.back().is_some_and(is_within) && self.line() {}
        let has = |held: &Line| -> usize {
            let own: BTreeSet<&str> = parts(&held.text).collect();
            own.intersection(&wanted).map(|word| word.len()).sum()
        };
        let within = self.held.iter().filter(|held| held.number >= first && held.start < end);
        let (number, most) = within.map(|held| (held.number, has(held))).rev().max_by_key(|(_, n)| *n)?;
        (most as f64 >= MEANT * total as f64 && total > 0).then_some(number)
    }

    /// Python prints the innermost call and the error last.
    fn is_traceback(&self, first: u64) -> bool {
        let is_head = |held: &Line| held.text.contains("Traceback (most recent call last)");
        self.held.iter().any(|held| held.number == first && is_head(held))
    }

    /// The last lines before the offset `end`, of at most [`MAX_TRACEBACK`] from `first` on.
    fn end_of(&mut self, first: u64, end: u64) -> (u64, u64) {
        let is_within = |held: &Line| held.start < end && held.number < first + MAX_TRACEBACK;
        while self.held.back().is_some_and(is_within) && self.line() {}
        let last = self.held.iter().filter(|held| is_within(held)).map(|held| held.number).max();
        let last = last.unwrap_or(first);
        ((last + 1).saturating_sub(MAX_LINES as u64 / 2).max(first), last)
    }

    /// A line by its number, with those around it.
    fn numbered(&mut self, line: u64, n_lines: u64) -> Option<Around> {
        self.pass_lines(line.saturating_sub(n_lines));
        while self.held.back().is_none_or(|held| held.number < line + n_lines) && self.line() {}
        let text = |is: &dyn Fn(u64) -> bool| -> Vec<String> {
            self.held.iter().filter(|held| is(held.number)).map(|held| held.text.clone()).collect()
        };
        let lines = text(&|number| number == line);
        let before = text(&|number| number < line && number + n_lines >= line);
        let after = text(&|number| number > line && number <= line + n_lines);
        (!lines.is_empty()).then_some(Around { line, before, lines, after, is_found: false })
    }

    /// Passes over lines, up to the one with this number.
    fn pass_lines(&mut self, until: u64) {
        while self.number < until {
            let Ok(block) = self.input.fill_buf() else { return };
            if block.is_empty() {
                return;
            }
            let wanted = until - self.number;
            let mut ends = memchr::memchr_iter(b'\n', block);
            let nth = ends.nth(usize::try_from(wanted - 1).unwrap_or(usize::MAX));
            let (step, n) = match nth {
                Some(at) => (at + 1, wanted),
                None => (block.len(), memchr::memchr_iter(b'\n', block).count() as u64),
            };
            self.input.consume(step);
            self.next += step as u64;
            self.number += n;
        }
    }

    /// Reads one line; false at the end.
    fn line(&mut self) -> bool {
        let start = self.next;
        let mut text: Vec<u8> = Vec::new();
        loop {
            let (n, is_end) = {
                let Ok(block) = self.input.fill_buf() else { return false };
                if block.is_empty() {
                    if self.next == start {
                        return false;
                    }
                    break;
                }
                let end = memchr::memchr(b'\n', block);
                let line = block.get(..end.unwrap_or(block.len())).unwrap_or_default();
                let room = LINE_BYTES.saturating_sub(text.len());
                text.extend_from_slice(line.get(..room.min(line.len())).unwrap_or_default());
                // A bar that was redrawn: the last state is what is seen.
                if let Some(at) = memchr::memrchr(b'\r', line.strip_suffix(b"\r").unwrap_or(line)) {
                    text.clear();
                    let last = line.get(at + 1..).unwrap_or_default();
                    text.extend_from_slice(last.get(..LINE_BYTES.min(last.len())).unwrap_or_default());
                }
                (end.map_or(block.len(), |at| at + 1), end.is_some())
            };
            self.input.consume(n);
            self.next += n as u64;
            if is_end {
                break;
            }
        }
        let text = String::from_utf8_lossy(text.strip_suffix(b"\r").unwrap_or(&text)).into_owned();
        self.held.push_back(Line { start, end: self.next, number: self.number, text });
        self.number += 1;
        while self.held.len() > HELD_LINES {
            self.held.pop_front();
        }
        true
    }

    fn pass(&mut self, mut n: u64) {
        while n > 0 {
            let Ok(block) = self.input.fill_buf() else { return };
            if block.is_empty() {
                return;
            }
            let step = usize::try_from(n).unwrap_or(usize::MAX).min(block.len());
            self.number += memchr::memchr_iter(b'\n', block.get(..step).unwrap_or_default()).count() as u64;
            self.input.consume(step);
            self.next += step as u64;
            n -= step as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn place(source: &str, start: u64, end: u64) -> Citation {
        Citation { source: source.to_owned(), span: (start, end), line: 0, words: String::new() }
    }

    #[test]
    fn lines_around_places_of_a_file() {
        let text: String = (0..100_000).map(|n| format!("line {n:06}") + "\n").collect();
        let at = |n: u64| place("a.log", n * 12, n * 12 + 11);
        let places = [at(99_999), at(0), at(50_000), at(50_001), place("b.log", 0, 5), at(200_000)];
        let found = around("a.log", &mut text.as_bytes(), &places, 2, &Limits::default());
        let shown: Vec<String> = found
            .iter()
            .map(|a| {
                a.as_ref().map_or("-".into(), |a| [&a.before[..], &a.lines, &a.after].concat().join(" "))
            })
            .collect();
        assert_eq!(shown[0], "line 099997 line 099998 line 099999");
        assert_eq!(shown[1], "line 000000 line 000001 line 000002");
        assert_eq!(shown[2], "line 049998 line 049999 line 050000 line 050001 line 050002");
        assert_eq!(shown[3], "line 049999 line 050000 line 050001 line 050002 line 050003");
        assert_eq!(shown[4..], ["-", "-"]);
        assert_eq!(found[2].as_ref().unwrap().line, 50_001);
    }

    #[test]
    fn of_a_long_place_the_line_that_is_meant() {
        let text: String = (1..=60).map(|n| format!("row {n}") + "\n").collect();
        let of = |line: u32, words: &str| {
            let places = [Citation { line, words: words.to_owned(), ..place("t", 0, text.len() as u64) }];
            around("t", &mut text.as_bytes(), &places, 1, &Limits::default()).remove(0).unwrap()
        };
        let of_line = |line| of(line, "");
        let meant = of_line(30);
        assert_eq!(
            (meant.line, meant.before, meant.lines, meant.after),
            (30, vec!["row 29".to_owned()], vec!["row 30".to_owned()], vec!["row 31".to_owned()])
        );
        assert_eq!((of_line(1).lines.len(), of_line(1).is_found), (4, false));
        // Or the one that has the words of what is said of it.
        let said = of(1, "at row 42");
        assert_eq!((said.line, &said.lines[..], said.is_found), (42, &["row 42".to_owned()][..], true));
        assert_eq!(of(1, "nothing of the kind").lines.len(), 4);
        let by_number = [Citation { line: 45, ..place("t", 0, 0) }];
        let found = around("t", &mut text.as_bytes(), &by_number, 2, &Limits::default()).remove(0).unwrap();
        assert_eq!((found.lines, found.before.len(), found.after.len()), (vec!["row 45".to_owned()], 2, 2));
    }

    #[test]
    fn of_a_long_traceback_its_end() {
        let frames: String = (1..=9)
            .map(|n| format!("  File \"a.py\", line {n}, in f{n}\n    f{n}()\n"))
            .collect::<Vec<_>>()
            .concat();
        let trace = format!("Traceback (most recent call last):\n{frames}ValueError: x\n");
        let text = format!("step 1\n{trace}after\n");
        let places = [Citation { line: 2, ..place("t", 7, 7 + trace.len() as u64) }];
        let found = around("t", &mut text.as_bytes(), &places, 1, &Limits::default()).remove(0).unwrap();
        assert_eq!(found.lines[1..], ["  File \"a.py\", line 9, in f9", "    f9()", "ValueError: x"]);
        assert_eq!((found.line, found.lines.len(), &found.after[..]), (18, 4, &["after".to_owned()][..]));
    }

    #[test]
    fn lines_of_a_member_of_a_packed_archive() {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        let text = b"one\ntwo\nstep 1\rstep 2\rstep 3\nfour\n";
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, "logs/rank0.log", &text[..]).unwrap();
        let packed = zstd::encode_all(&tar.into_inner().unwrap()[..], 0).unwrap();
        let wanted = [place("e.tar.zst!logs/rank0.log", 4, 7)];
        let found = around("e.tar.zst", &mut &packed[..], &wanted, 5, &Limits::default());
        let one = found[0].as_ref().unwrap();
        assert_eq!((&one.before[..], &one.lines[..]), (&["one".to_owned()][..], &["two".to_owned()][..]));
        assert_eq!(one.after, ["step 3", "four"]);
    }
}
