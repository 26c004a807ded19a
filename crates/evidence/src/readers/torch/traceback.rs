//! Python tracebacks, of many ranks at once.
//!
//! CPython writes `Traceback (most recent call last):`, then per frame `  File "…", line 75, in sync_grads` with a line
//! of source and a line of `^^^^`, then `torch.OutOfMemoryError: CUDA out of memory. …` (CPython `Lib/traceback.py`).
//! Torch puts `[rank0]: ` before each line where it can; then that separates tracebacks. Where it cannot (before the
//! group exists), lines of several ranks follow each other and even share a line; there the grammar decides, and what
//! came out is marked.

use std::collections::BTreeMap;

use ringleader_model::{Frame, WallTime, Who};

use super::scan::{clip, digits, dotted_name};

/// Frames kept of one traceback: endless recursion prints a thousand.
const MAX_FRAMES: usize = 512;
/// Bytes of a message that are kept.
const MAX_MESSAGE: usize = 8 << 10;
/// Lines a message may go on for.
const MAX_MESSAGE_LINES: u32 = 64;
/// Tracebacks open at once within one stream, and streams.
const MAX_OPEN: usize = 16;
const MAX_STREAMS: usize = 4_096;
/// Lines without a word after which a traceback is taken to have been cut.
const MAX_SILENCE: u32 = 400;
const MAX_SILENCE_TAGGED: u32 = 50_000;

pub(super) const HEADER: &str = "Traceback (most recent call last)";

/// A line as the traceback reader needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracebackLine<'a> {
    /// The stream it is of: rank or process, as far as known.
    pub(super) who: &'a Who,
    /// Torch's own `[rank3]:` precedes each line, so that any further line belongs to the message.
    pub(super) tagged: bool,
    pub(super) at: Option<WallTime>,
    pub(super) text: &'a str,
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A traceback, as far as it was printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traceback {
    pub(super) who: Who,
    pub(super) at: Option<WallTime>,
    /// First line, and span from its start to the end of the class line.
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Empty if cut off.
    pub(super) class: Box<str>,
    pub(super) message: String,
    /// Outermost first.
    pub(super) frames: Vec<Frame>,
    pub(super) chained: Vec<(Box<str>, Box<str>)>,
    pub(super) interleaved: bool,
}

#[derive(Debug, Default)]
struct OpenTraceback {
    seen: Traceback,
    /// Source line of the innermost frame.
    source: String,
    /// Its first lines are lost: without a class line it is no exception.
    headless: bool,
    /// Class line was read: the message may go on.
    closed: bool,
    /// `During handling of the above exception` followed.
    linked: bool,
    message_lines: u32,
    /// The next line is NCCL's own word.
    after_last_error: bool,
    /// Inside C++ frames, which are left out.
    native: bool,
    /// Torch's own tag precedes its lines.
    tagged: bool,
    /// Lines without a name belong to it.
    adopts: bool,
    /// Last line taken.
    last: u32,
}

/// All open tracebacks.
#[derive(Debug, Default)]
pub(super) struct Tracebacks {
    streams: BTreeMap<Who, Vec<OpenTraceback>>,
    /// The last line of any of them.
    last: u32,
}

impl Tracebacks {
    /// Whether nothing is open.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether this stream has one open, or line `number` goes on with one of another stream.
    pub(super) fn expects(&self, who: &Who, number: u32) -> bool {
        self.streams.contains_key(who) || who.is_nobody() && self.heads(number).next().is_some()
    }

    /// Streams whose traceback ended for now on the line before `number`.
    fn heads(&self, number: u32) -> impl Iterator<Item = (&Who, &OpenTraceback)> {
        let streams = if number.checked_sub(1) == Some(self.last) { Some(self.streams.iter()) } else { None };
        streams.into_iter().flatten().flat_map(move |(who, opens)| {
            opens
                .iter()
                .filter(move |open| !open.tagged && number.checked_sub(1) == Some(open.last))
                .map(move |open| (who, open))
        })
    }

    /// Whose traceback a line without a name goes on with: a logger names the rank on the first line alone.
    fn adopter(&self, piece: &TracebackLine<'_>) -> Option<Who> {
        if !piece.who.is_nobody() || self.streams.contains_key(piece.who) {
            return None;
        }
        let goes_on =
            |open: &OpenTraceback| open.adopts || open.seen.frames.is_empty() && frame(piece.text).is_some();
        self.heads(piece.line).find(|(_, open)| goes_on(open)).map(|(who, _)| who.clone())
    }

    /// The message of this stream's last exception has ended, because something else began.
    pub(super) fn settle(&mut self, who: &Who, done: &mut Vec<Traceback>) {
        let Some(stream) = self.streams.get_mut(who) else { return };
        stream.retain_mut(|open| {
            if open.closed {
                done.push(std::mem::take(&mut open.seen));
            }
            !open.closed
        });
        if stream.is_empty() {
            self.streams.remove(who);
        }
    }

    /// The file has ended.
    pub(super) fn finish(&mut self, done: &mut Vec<Traceback>) {
        for (_, stream) in std::mem::take(&mut self.streams) {
            done.extend(stream.into_iter().filter(OpenTraceback::says_something).map(|o| o.seen));
        }
    }

    /// Offers a line. True if it belongs to a traceback.
    pub(super) fn feed(&mut self, piece: &TracebackLine<'_>, done: &mut Vec<Traceback>) -> bool {
        let is_taken = self.take(piece, done);
        if is_taken {
            self.last = piece.line;
        }
        is_taken
    }

    fn take(&mut self, piece: &TracebackLine<'_>, done: &mut Vec<Traceback>) -> bool {
        if piece.text.contains(HEADER) {
            self.begin(piece, false, done);
            return true;
        }
        if let Some(who) = self.adopter(piece) {
            for open in self.streams.get_mut(&who).into_iter().flatten() {
                open.adopts |= open.last + 1 == piece.line;
            }
            return self.take(&TracebackLine { who: &who, ..*piece }, done);
        }
        // The file begins within a traceback, or its first line was torn.
        if frame(piece.text).is_some()
            && self.streams.get(piece.who).is_none_or(|s| s.iter().all(|o| o.closed))
        {
            self.begin(piece, true, done);
        }
        let Some(stream) = self.streams.get_mut(piece.who) else { return false };
        let silence = if piece.tagged { MAX_SILENCE_TAGGED } else { MAX_SILENCE };
        stream.retain_mut(|open| {
            let cut = piece.line.saturating_sub(open.last) > silence;
            if cut && open.says_something() {
                done.push(std::mem::take(&mut open.seen));
            }
            !cut
        });
        let taken = continue_stream(stream, piece);
        // A message that has reached its bound is complete; below the launcher's comes a table.
        stream.retain_mut(|open| {
            let full = open.message_lines > MAX_MESSAGE_LINES
                || (open.closed && open.seen.class.ends_with("ChildFailedError"));
            if full {
                done.push(std::mem::take(&mut open.seen));
            }
            !full
        });
        if stream.is_empty() {
            self.streams.remove(piece.who);
        }
        taken
    }

    fn begin(&mut self, piece: &TracebackLine<'_>, headless: bool, done: &mut Vec<Traceback>) {
        if !self.streams.contains_key(piece.who) && self.streams.len() >= MAX_STREAMS {
            self.finish(done);
        }
        let stream = self.streams.entry(piece.who.clone()).or_default();
        let mut chained = Vec::new();
        let linked = stream.iter().rposition(|o| o.closed && o.linked);
        if let Some(at) = linked {
            let before = stream.remove(at).seen;
            chained = before.chained;
            chained.push((before.class, before.message.into()));
            if chained.len() > 16 {
                chained.remove(0);
            }
        } else {
            stream.retain_mut(|open| {
                if open.closed {
                    done.push(std::mem::take(&mut open.seen));
                }
                !open.closed
            });
        }
        if stream.len() >= MAX_OPEN {
            let oldest = stream.remove(0);
            if oldest.says_something() {
                done.push(oldest.seen);
            }
        }
        let mut interleaved = false;
        for mate in stream.iter_mut().filter(|o| !o.closed) {
            mate.seen.interleaved = true;
            interleaved = true;
        }
        let seen = Traceback {
            who: piece.who.clone(),
            at: piece.at,
            line: piece.line,
            start: piece.start,
            end: piece.end,
            chained,
            interleaved,
            ..Traceback::default()
        };
        stream.push(OpenTraceback {
            seen,
            headless,
            last: piece.line,
            tagged: piece.tagged,
            ..OpenTraceback::default()
        });
    }
}

impl OpenTraceback {
    fn says_something(&self) -> bool {
        !self.seen.class.is_empty() || !(self.seen.frames.is_empty() || self.headless)
    }
}

fn continue_stream(stream: &mut [OpenTraceback], piece: &TracebackLine<'_>) -> bool {
    let text = piece.text;
    if text.starts_with("During handling of the above exception")
        || text.starts_with("The above exception was the direct cause")
    {
        let Some(open) = latest(stream, |o| o.closed) else { return false };
        open.linked = true;
        open.last = piece.line;
        return true;
    }
    if stream.iter().any(|o| !o.closed) {
        if let Some(frame) = frame(text) {
            take_frame(stream, frame, piece.line);
            return true;
        }
        let indented = text.starts_with(' ') || text.starts_with('\t');
        let bare = text.trim_matches([' ', '\t', '^', '~']);
        if bare.is_empty() {
            // Marks under the source, or an empty line of a tagged stream.
            return piece.tagged || indented || text.contains('^');
        }
        let torn = text.trim_start_matches([' ', '^', '~']);
        let class =
            if indented && !text.trim_start().starts_with(['^', '~']) { None } else { class_line(torn) };
        if let Some((class, message)) = class
            && (is_exception_name(class) || follows_closely(stream, piece))
        {
            close(stream, class, message, piece);
            return true;
        }
        if indented {
            if let Some(open) = latest(stream, |o| !o.closed && o.source.is_empty()) {
                clip(text.trim(), 256).clone_into(&mut open.source);
                open.last = piece.line;
                return true;
            }
            return piece.tagged || text.starts_with("    ");
        }
        if !stream.iter().any(|o| o.closed) {
            return false;
        }
    }
    let Some(open) = latest(stream, |o| o.closed) else { return false };
    go_on(open, piece)
}

/// Adds to a message, if the line belongs to it.
fn go_on(open: &mut OpenTraceback, piece: &TracebackLine<'_>) -> bool {
    let text = piece.text;
    // Without tags, NCCL's word is the very next line or was taken by another.
    open.after_last_error &= piece.tagged || piece.line == open.last + 1;
    if open.linked {
        return text.is_empty();
    }
    if text.trim().is_empty() {
        return piece.tagged;
    }
    if text.starts_with("Exception raised from ")
        || text.starts_with("frame #")
        || text.starts_with("C++ CapturedTraceback:")
    {
        open.native = true;
    } else if open.native && text.starts_with('#') {
        // Frames of a captured C++ trace.
    } else if piece.tagged || open.after_last_error || continues_message(text) {
        open.native = false;
        open.after_last_error = text.starts_with("Last error:");
        let message = &mut open.seen.message;
        if message.len() < MAX_MESSAGE {
            message.push('\n');
            let room = MAX_MESSAGE.saturating_sub(message.len());
            message.push_str(clip(text, room));
        }
    } else {
        return false;
    }
    open.message_lines += 1;
    open.last = piece.line;
    true
}

/// Lines that torch and NCCL put below an error, in any program.
pub(super) fn continues_message(text: &str) -> bool {
    const STARTS: [&str; 12] = [
        "Last error:",
        "CUDA kernel errors might",
        "For debugging consider",
        "Compile with `TORCH",
        "Device-side assert",
        "Search for `cuda",
        ". This may indicate",
        "Original reason for failure",
        "Collectives differ in",
        "This error may have",
        "In addition to the above",
        "Please ",
    ];
    STARTS.iter().any(|s| text.starts_with(s))
        || (text.starts_with("nccl") && dotted_name(text).1.starts_with(": "))
        || text.starts_with('\t')
}

fn latest(
    stream: &mut [OpenTraceback],
    wanted: impl Fn(&OpenTraceback) -> bool,
) -> Option<&mut OpenTraceback> {
    stream.iter_mut().filter(|o| wanted(o)).max_by_key(|o| (o.last, o.seen.start))
}

/// The line before was of an open traceback, so that an unknown name with a colon is an exception's.
fn follows_closely(stream: &[OpenTraceback], piece: &TracebackLine<'_>) -> bool {
    stream.iter().any(|o| !o.closed && !o.seen.frames.is_empty() && piece.line.saturating_sub(o.last) <= 2)
}

/// `  File "/srv/train/train.py", line 75, in sync_grads`, also with other output before it.
fn frame(text: &str) -> Option<Frame> {
    let (before, rest) = text.split_once("\", line ")?;
    let (line, rest) = digits(rest);
    let function = rest.strip_prefix(", in ")?.trim_end();
    let file =
        before.rsplit_once("File \"").map_or_else(|| before.strip_prefix('"'), |(_, file)| Some(file))?;
    Some(Frame {
        function: clip(function, 512).into(),
        file: clip(file, 1_024).into(),
        line: line.parse().ok()?,
    })
}

/// Gives a frame to the traceback that it continues.
fn take_frame(stream: &mut [OpenTraceback], frame: Frame, line: u32) {
    let n_open = stream.iter().filter(|o| !o.closed).count();
    let chosen = if n_open <= 1 { stream.iter().position(|o| !o.closed) } else { choose(stream, &frame) };
    let Some(open) = chosen.and_then(|at| stream.get_mut(at)) else { return };
    if n_open > 1 {
        open.seen.interleaved = true;
    }
    open.seen.frames.push(frame);
    if open.seen.frames.len() > MAX_FRAMES {
        open.seen.frames.remove(MAX_FRAMES / 2);
    }
    open.source.clear();
    open.last = line;
}

fn choose(stream: &[OpenTraceback], frame: &Frame) -> Option<usize> {
    let candidates =
        || stream.iter().enumerate().filter(|(_, o)| !o.closed && o.seen.frames.last() != Some(frame));
    let outermost = &*frame.function == "<module>" || &*frame.function == "_run_module_as_main";
    if outermost && let Some((at, _)) = candidates().find(|(_, o)| o.seen.frames.is_empty()) {
        return Some(at);
    }
    // Ranks run one program: a path that another has just gone is gone again.
    let follows = |open: &OpenTraceback| {
        stream.iter().any(|other| {
            let n = open.seen.frames.len();
            other.seen.frames.get(n) == Some(frame) && other.seen.frames.get(..n) == Some(&*open.seen.frames)
        })
    };
    let calls = |open: &OpenTraceback| open.source.contains(&*frame.function) && !frame.function.is_empty();
    let freshest = |(_, o): &(usize, &OpenTraceback)| (o.last, o.seen.frames.len());
    None.or_else(|| candidates().filter(|(_, o)| follows(o)).max_by_key(freshest))
        .or_else(|| candidates().filter(|(_, o)| calls(o)).max_by_key(freshest))
        .or_else(|| candidates().max_by_key(freshest))
        .or_else(|| stream.iter().enumerate().filter(|(_, o)| !o.closed).max_by_key(freshest))
        .map(|(at, _)| at)
}

fn close(stream: &mut [OpenTraceback], class: &str, message: &str, piece: &TracebackLine<'_>) {
    // The deepest was nearest to its end; of equals the first.
    let deepest = stream.iter().filter(|o| !o.closed).map(|o| o.seen.frames.len()).max();
    let Some(open) = stream.iter_mut().find(|o| !o.closed && Some(o.seen.frames.len()) == deepest) else {
        return;
    };
    open.closed = true;
    open.last = piece.line;
    open.seen.end = piece.end;
    open.seen.class = class.into();
    clip(message, MAX_MESSAGE).clone_into(&mut open.seen.message);
}

/// `torch.OutOfMemoryError: CUDA out of memory` or a bare `KeyboardInterrupt`: class and message.
pub(super) fn class_line(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = dotted_name(text);
    let last = name.rsplit('.').next()?;
    // `socket.gaierror` and its like are the only ones in small letters.
    if !last.starts_with(|c: char| c.is_uppercase() || c == '_') && !is_small_error(name) {
        return None;
    }
    let rest = rest.trim_end();
    if rest.is_empty() || rest == ":" {
        return Some((name, ""));
    }
    rest.strip_prefix(": ").map(|message| (name, message))
}

/// Names that say of themselves that they are exceptions.
pub(super) fn is_exception_name(class: &str) -> bool {
    let last = class.rsplit('.').next().unwrap_or(class);
    is_small_error(class)
        || last != "Error"
            && ["Error", "Exception", "Interrupt", "Exit", "StopIteration"]
                .iter()
                .any(|end| last.ends_with(end))
            && !last.starts_with(|c: char| c.is_lowercase())
}

fn is_small_error(class: &str) -> bool {
    class.contains('.') && (class.ends_with("error") || class == "socket.timeout")
}

/// An exception whose traceback was not printed or is lost: `torch.distributed.DistNetworkError: …` on its own.
pub(super) fn alone(piece: &TracebackLine<'_>) -> Option<Traceback> {
    let (class, message) = class_line(piece.text)?;
    if !is_exception_name(class)
        || (message.is_empty() && !class.contains('.') && class != "KeyboardInterrupt")
    {
        return None;
    }
    Some(Traceback {
        who: piece.who.clone(),
        at: piece.at,
        line: piece.line,
        start: piece.start,
        end: piece.end,
        class: class.into(),
        message: clip(message, MAX_MESSAGE).to_owned(),
        ..Traceback::default()
    })
}

impl Tracebacks {
    /// Keeps a lone exception open for the rest of its message.
    pub(super) fn hold(&mut self, seen: Traceback, done: &mut Vec<Traceback>) {
        if !self.streams.contains_key(&seen.who) && self.streams.len() >= MAX_STREAMS {
            self.finish(done);
        }
        let stream = self.streams.entry(seen.who.clone()).or_default();
        if stream.len() >= MAX_OPEN {
            done.push(stream.remove(0).seen);
        }
        let last = seen.line;
        stream.push(OpenTraceback { seen, closed: true, last, ..OpenTraceback::default() });
    }
}

impl Traceback {
    /// Whether this is the launcher's own: it died because a worker did, or because somebody stopped it.
    pub(super) fn is_launchers(&self) -> bool {
        const CODE: [&str; 6] = [
            "torch/distributed/run.py",
            "torch/distributed/launch.py",
            "torch/distributed/launcher/",
            "torch/distributed/elastic/agent/",
            "accelerate/commands/",
            "deepspeed/launcher/",
        ];
        let class = self.class.rsplit('.').next().unwrap_or_default();
        matches!(class, "ChildFailedError" | "SignalException")
            || self.frames.iter().any(|f| CODE.iter().any(|code| f.file.contains(code)))
    }

    /// Text after `Last error:`.
    pub(super) fn nccl_last_error(&self) -> Option<&str> {
        last_error(&self.message)
    }
}

/// NCCL's own word within an error's text.
pub(super) fn last_error(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Last error:")?;
    let rest = rest.trim();
    (!rest.is_empty()).then_some(rest)
}
