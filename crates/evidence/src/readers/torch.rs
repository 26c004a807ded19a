//! What PyTorch, Python, torchrun and the shell around them print on stderr.
//!
//! ```text
//! [rank3]:[E1120 08:21:34.879176503 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught collective operation timeout: …
//! [rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. …
//! E1120 08:21:51.212000 1330 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -6) local_rank: 3 …
//! ```
//! Each form's writer is named in the module that reads it. Lines of all ranks arrive in one stream, may interleave and
//! may be torn; a program's own prints are passed over unread. What a line says is kept, never weighed here.

mod block;
mod crash;
mod desync;
mod elastic;
mod error_file;
mod fingerprint;
mod found;
mod header;
mod scan;
mod store;
#[cfg(test)]
mod tests;
mod traceback;
mod watchdog;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use ringleader_model::{Fact, GroupLabel, NoteKind, Rank, SourceKind, TorchEvent, Who, user_frame};

use self::block::{Block, BlockKind, Fed, StatementText};
use self::found::FoundEvent;
use self::scan::clip;
use self::traceback::{Traceback, TracebackLine, Tracebacks};
use crate::ground::{Document, Line, LineReader, Sink, Wants};

/// Error lines of unknown origin that are kept of one source.
const MAX_ERROR_LINES: u32 = 500;
/// Blocks of several lines that may be open at once.
const MAX_BLOCKS: usize = 1_024;
/// Bytes of a statement of several lines.
const MAX_STATEMENT: usize = 8 << 10;
/// Lines without a word after which a block is over.
const MAX_SILENCE: u32 = 400;

/// A line without any of these words, which nothing waits for, is skipped here. A program's own prints end at this.
const WORDS: [&str; 43] = [
    "rror",
    "raceback",
    "atal",
    "ATAL",
    "xception",
    "nterrupt",
    "SystemExit",
    "illed",
    ".cpp:",
    ".hpp:",
    ".py:",
    "c10d",
    "atchdog",
    "NCCL WARN",
    "what():",
    "terminate called",
    "loo",
    " of memory",
    "Of Memory",
    "monitoredBarrier",
    "signal",
    "exitcode",
    "FAILED",
    "heartbeat",
    "best knowledge",
    "Timeout at",
    "*** ",
    "oom",
    "core dumped",
    "clients joined",
    "timed out",
    "ailed to ",
    "No space left",
    "oo many",
    "egmentation fault",
    "Aborted",
    "destroy_process_group",
    "File \"",
    "mismatch between",
    "wait timeout",
    "resolution",
    "Rendezvous",
    "GIL",
];

static SEARCH: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(WORDS).ok());

/// One of these words is in every line that is taken, or read in part. [`WORDS`] has some that many a program prints
/// (`[train.py:120]`, `loop`, `room`); what such lines must contain as well replaces them here.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        let common = [".py:", "loo", "oom"];
        WORDS.into_iter().filter(|word| !common.contains(word)).chain(MORE_WORDS).collect()
    },
    begins: |_| false,
};

/// Of headers that name a Python file, of errors, and of messages that only C++ files print with their name before.
const MORE_WORDS: [&str; 37] = [
    "torch",
    "E0000 ",
    "F0000 ",
    "E000 ",
    "F000 ",
    "[E ",
    "[F ",
    "CRITICAL",
    "ERROR",
    "\", line 0",
    "Exit",
    "StopIteration",
    "socket.timeout",
    "Unable to shutdown process",
    "Stack trace of",
    "unbatched P2P op",
    "is deprecated; use",
    "signal dumping",
    "dump debug info",
    "inconsistency, we are taking",
    "NCCL",
    "to perform barrier",
    "No device id is provided",
    "client socket",
    "waitForInput",
    "debug level is set",
    "nqueued",
    "EADDRINUSE",
    "ddress already in use",
    "Name or service not known",
    "ait timeout",
    "Socket Timeout",
    "Broken pipe",
    "Connection ",
    "TCPStore",
    "loo/",
    "Gloo ",
];

fn is_of_interest(body: &[u8]) -> bool {
    SEARCH.as_ref().is_none_or(|words| words.is_match(body))
}

/// Reader of the lines of torch, Python and launchers.
#[derive(Default)]
pub(crate) struct TorchReader {
    tracebacks: Tracebacks,
    blocks: Vec<Block>,
    found: Vec<FoundEvent>,
    /// How many the sink takes.
    max_found: usize,
    /// Processes that said they end themselves and whose crash report has not come.
    terminating: Vec<Who>,
    /// Crash reports that may be of any of several processes that had said so.
    n_ambiguous: usize,
    /// Timeouts already reported: they are quoted again in the exceptions that follow.
    timeouts: BTreeSet<(Option<Rank>, Option<u64>, u64)>,
    n_error_lines: u32,
    /// An agent of torchrun speaks in this source, so that a scheduler's task is a node, not a rank.
    agent_seen: bool,
    line: u32,
}

impl LineReader for TorchReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        self.line = line.number;
        self.max_found = sink.limits.max_observations;
        if !self.waits_for(line) && !is_of_interest(line.body) {
            return false;
        }
        let body = crate::ground::lossy(line.body);
        let n_before = self.found.len();
        let taken = self.take(&body, line, sink);
        if taken || self.found.len() > n_before {
            sink.saw(SourceKind::TorchLog);
        }
        taken
    }

    fn ordinary_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        self.waits_for(line) && self.line(line, sink)
    }

    fn awake_until(&self) -> u32 {
        if self.blocks.is_empty() && self.tracebacks.is_empty() { 0 } else { u32::MAX }
    }

    /// The source is no log: forgets all that was read, and says so.
    fn is_no_log(&mut self, sink: &mut Sink<'_>) {
        let mut done = Vec::new();
        self.tracebacks.finish(&mut done);
        self.conclude(done, sink);
        for block in std::mem::take(&mut self.blocks) {
            self.close(block, sink);
        }
        let found = std::mem::take(self).found;
        sink.unsay(SourceKind::TorchLog);
        if let Some(first) = found.iter().min_by_key(|f| f.start) {
            let cite = sink.cite(first.line, first.start, first.end);
            let text = format!(
                "this is program text or a document, not a log: errors that it names ({}) were left out",
                found.len()
            );
            sink.note(cite, NoteKind::Remark, text);
        }
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        let mut done = Vec::new();
        self.tracebacks.finish(&mut done);
        self.conclude(done, sink);
        for block in std::mem::take(&mut self.blocks) {
            self.close(block, sink);
        }
        let mut found = std::mem::take(&mut self.found);
        // Stable: statements of one line keep their order.
        found.sort_by_key(|f| f.start);
        for f in found {
            let cite = sink.cite(f.line, f.start, f.end);
            sink.push(cite, f.who, f.at, Fact::Torch(f.event), f.text.as_bytes());
        }
    }
}

impl TorchReader {
    /// Whether something is open that this line may go on with.
    fn waits_for(&self, line: &Line<'_>) -> bool {
        if !self.blocks.is_empty() {
            return true;
        }
        // A tag that is still on the line is not in `line.tag`.
        let own_tag = matches!(line.body, [b'[', b'r', b'a', b'n', b'k', b'0'..=b'9', ..] | [b'(', ..]);
        !self.tracebacks.is_empty() && (own_tag || self.tracebacks.expects(&line.tag.who, line.number))
    }

    fn take(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let mut who = line.tag.who.clone();
        let mut tagged = memchr::memmem::find(prefix_of(line), b"[rank").is_some();
        let mut text = body;
        if let Some((rank, rest)) = header::rank_tag(text) {
            who.rank.get_or_insert(rank);
            tagged = true;
            text = rest;
        } else if header::parse(text).is_none()
            && let Some(at) = header::find(text)
        {
            // Torch's line begins behind somebody's unfinished print.
            let tail = text.get(at..).unwrap_or_default();
            let (rank, rest) = header::rank_tag(tail).map_or((None, tail), |(rank, rest)| (Some(rank), rest));
            who.rank = rank.or(who.rank);
            text = rest;
        }
        let (pid, logged_at, rest) = header::logger(text);
        who.pid = who.pid.or(pid);
        let mut at = logged_at.or(line.tag.at);
        text = rest;
        if let Some(head) = header::parse(text) {
            at = head.at.or(at);
            let (speaker, message) = header::speaker(head.rest);
            let is_agent = head.file.contains("torch/distributed/") && !tagged
                || head.file.starts_with("torch.distributed.");
            self.agent_seen |= is_agent;
            who.rank = who.rank.or(speaker.rank);
            if who.pid.is_none() && head.pid.is_some() {
                who.pid = head.pid;
            }
            let piece = TracebackLine {
                who: &who,
                tagged,
                at,
                text: message,
                line: line.number,
                start: line.offset,
                end: line.end(),
            };
            self.settle(&piece, sink);
            let torchs =
                [".cpp", ".hpp", ".h"].iter().any(|e| head.file.ends_with(e)) || head.file.contains("torch");
            if self.statement(&piece, &speaker.group, sink) {
                return true;
            }
            if matches!(head.level, 'E' | 'F') {
                self.error_line(&piece, sink);
            }
            if torchs {
                sink.saw(SourceKind::TorchLog);
            }
            return torchs;
        }
        let piece = TracebackLine {
            who: &who,
            tagged,
            at,
            text,
            line: line.number,
            start: line.offset,
            end: line.end(),
        };
        if self.go_on(&piece, sink) {
            return true;
        }
        let mut done = Vec::new();
        let taken = self.tracebacks.feed(&piece, &mut done);
        self.conclude(done, sink);
        if taken {
            return true;
        }
        if !is_of_interest(line.body) {
            return false;
        }
        self.begin(&piece, sink)
    }

    /// Offers a line to the blocks that are open, the one that spoke last first.
    fn go_on(&mut self, piece: &TracebackLine<'_>, sink: &mut Sink<'_>) -> bool {
        if self.blocks.is_empty() {
            return false;
        }
        let (line, at) =
            (piece.line, self.blocks.iter().position(|b| piece.line.saturating_sub(b.last) > MAX_SILENCE));
        if let Some(at) = at {
            let block = self.blocks.remove(at);
            self.close(block, sink);
        }
        let mut order: Vec<usize> =
            self.blocks.iter().enumerate().filter(|(_, b)| b.may_take(piece)).map(|(at, _)| at).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.blocks.get(*at).map(|b| b.last)));
        for at in order.into_iter().take(8) {
            let Some(block) = self.blocks.get_mut(at) else { continue };
            match block.feed(piece) {
                Fed::Part => {
                    block.last = line;
                    return true;
                }
                Fed::Block(done) => {
                    block.last = line;
                    self.child_failure(done);
                    return true;
                }
                Fed::Last(done) => {
                    self.child_failure(done);
                    let block = self.blocks.remove(at);
                    self.close(block, sink);
                    return true;
                }
                Fed::Over(done) => {
                    self.child_failure(done);
                    let block = self.blocks.remove(at);
                    self.close(block, sink);
                    return self.go_on(piece, sink);
                }
                Fed::Foreign => {}
            }
        }
        false
    }

    /// Something new begins in this stream: statements that went on below their first line have ended.
    fn settle(&mut self, piece: &TracebackLine<'_>, sink: &mut Sink<'_>) {
        let mut done = Vec::new();
        self.tracebacks.settle(piece.who, &mut done);
        self.conclude(done, sink);
        while let Some(at) = self
            .blocks
            .iter()
            .position(|b| b.who == *piece.who && !matches!(b.kind, BlockKind::Table(_) | BlockKind::Crash(_)))
        {
            let block = self.blocks.remove(at);
            self.close(block, sink);
        }
    }

    /// A message of torch, without its prefixes. False if it says nothing known.
    fn statement(&mut self, piece: &TracebackLine<'_>, group: &GroupLabel, sink: &mut Sink<'_>) -> bool {
        let text = piece.text;
        if let Some((event, about)) = elastic::agent(text) {
            self.agent_seen = true;
            let mut who = if about.is_nobody() { piece.who.clone() } else { about };
            who.host = who.host.or_else(|| piece.who.host.clone());
            self.push(piece, who, event, text);
            return true;
        }
        let said = watchdog::read(text, group);
        let recognised = !said.events.is_empty() || said.begins.is_some();
        for event in said.events {
            self.push_once(piece, event);
        }
        if said.terminates {
            self.terminating.truncate(MAX_BLOCKS);
            self.terminating.push(piece.who.clone());
        }
        match said.begins {
            Some(watchdog::Begins::Stack) => self.open(piece, group, BlockKind::Stack(Vec::new()), sink),
            Some(watchdog::Begins::AsyncError) => {
                self.open(piece, group, BlockKind::AsyncError(StatementText::new(text)), sink);
            }
            Some(watchdog::Begins::Died) => {
                self.open(piece, group, BlockKind::Died(StatementText::new(text)), sink);
            }
            None => {}
        }
        if recognised {
            return true;
        }
        if let Some(event) = fingerprint::read(text).or_else(|| store::read(text)) {
            self.push(piece, piece.who.clone(), event, text);
            return true;
        }
        if desync::begins(text) {
            self.open(piece, group, BlockKind::Desync(String::from(text)), sink);
            return true;
        }
        false
    }

    /// A line without a prefix of torch's log, for which nothing waits.
    fn begin(&mut self, piece: &TracebackLine<'_>, sink: &mut Sink<'_>) -> bool {
        let text = piece.text;
        if let Some(report) = crash::begins(text) {
            let mut who = piece.who.clone();
            if who.rank.is_none() && &*report.reason == "Aborted" {
                who.rank = self.aborted();
            }
            let kind = BlockKind::Crash(report);
            let piece = TracebackLine { who: &who, ..*piece };
            self.open(&piece, &GroupLabel::default(), kind, sink);
            return true;
        }
        if text.contains("terminate called after throwing an instance of")
            || text.trim_start().starts_with("what():")
        {
            self.open(piece, &GroupLabel::default(), BlockKind::Terminate(StatementText::new(text)), sink);
            return true;
        }
        if desync::begins(text) {
            self.open(piece, &GroupLabel::default(), BlockKind::Desync(String::from(text)), sink);
            return true;
        }
        if let Some(mut seen) = traceback::alone(piece) {
            if seen.class.ends_with("ChildFailedError") {
                self.open(
                    piece,
                    &GroupLabel::default(),
                    BlockKind::Table(elastic::ElasticTable::default()),
                    sink,
                );
                return true;
            }
            let mut done = Vec::new();
            seen.at = piece.at;
            self.tracebacks.settle(piece.who, &mut done);
            self.tracebacks.hold(seen, &mut done);
            self.conclude(done, sink);
            return true;
        }
        if let Some((reason, about)) = crash::one_line(text) {
            let mut who = about;
            if self.agent_seen {
                who.rank = None;
            }
            who.rank = who.rank.or(piece.who.rank);
            who.host = who.host.or_else(|| piece.who.host.clone());
            who.pid = who.pid.or(piece.who.pid);
            let event = TorchEvent::Crash {
                reason: clip(reason, 500).into(),
                signal: crash::signal(reason),
                threads: Vec::new(),
            };
            self.push(piece, who, event, text);
            return true;
        }
        let (speaker, message) = header::speaker(text);
        let mut who = piece.who.clone();
        who.rank = who.rank.or(speaker.rank);
        let bare = TracebackLine { who: &who, text: message, ..*piece };
        if self.statement(&bare, &speaker.group, sink) {
            return true;
        }
        if names_an_error(text) {
            self.error_line(piece, sink);
        }
        false
    }

    /// The rank whose end was announced right before a crash report, if it can be but one.
    fn aborted(&mut self) -> Option<Rank> {
        match self.terminating.len() {
            1 => self.terminating.pop().and_then(|who| who.rank),
            0 => {
                self.n_ambiguous = self.n_ambiguous.saturating_sub(1);
                None
            }
            n => {
                self.n_ambiguous += n - 1;
                self.terminating.clear();
                None
            }
        }
    }

    fn open(&mut self, piece: &TracebackLine<'_>, group: &GroupLabel, kind: BlockKind, sink: &mut Sink<'_>) {
        if self.blocks.len() >= MAX_BLOCKS {
            let block = self.blocks.remove(0);
            self.close(block, sink);
        }
        self.blocks.push(Block {
            who: piece.who.clone(),
            at: piece.at,
            group: group.clone(),
            line: piece.line,
            start: piece.start,
            end: piece.end,
            last: self.line,
            first_text: clip(piece.text, MAX_STATEMENT).to_owned(),
            kind,
        });
    }

    /// Turns a block into its event.
    fn close(&mut self, block: Block, sink: &mut Sink<'_>) {
        let Block { who, at, group, line, start, end, first_text, kind, .. } = block;
        let mut who = who;
        let mut text = first_text;
        let event = match kind {
            BlockKind::Stack(frames) if frames.is_empty() => return,
            BlockKind::Stack(frames) => {
                if let Some(frame) = user_frame(&frames) {
                    text = format!("{text}\n{} from {}:{}", frame.function, frame.file, frame.line);
                }
                TorchEvent::FailedCollectiveStack { frames }
            }
            BlockKind::AsyncError(statement) => watchdog::async_error(&statement.text),
            BlockKind::Died(statement) => {
                if let Some(event) = watchdog::timeout(&statement.text, &group) {
                    let piece = TracebackLine { who: &who, tagged: false, at, text: &text, line, start, end };
                    self.push_once(&piece, event);
                }
                watchdog::died(&statement.text)
            }
            BlockKind::Terminate(statement) => {
                let (speaker, _) =
                    header::speaker(scan::after(&statement.text, "what():").unwrap_or_default());
                who.rank = who.rank.or(speaker.rank);
                let piece = TracebackLine { who: &who, tagged: false, at, text: &text, line, start, end };
                if let Some(event) = watchdog::timeout(&statement.text, &group) {
                    self.push_once(&piece, event);
                }
                TorchEvent::Crash {
                    reason: statement.text.trim().into(),
                    signal: Some(6),
                    threads: Vec::new(),
                }
            }
            BlockKind::Desync(report) => match desync::read(&report) {
                Some(event) => event,
                None => return,
            },
            BlockKind::Crash(report) => {
                let signal = crash::signal(&report.reason);
                let stack = report.threads.iter().find(|t| t.current).or_else(|| report.threads.last());
                if let Some(frame) = stack.and_then(|t| user_frame(&t.frames)) {
                    text = format!(
                        "{text}\n  File \"{}\", line {} in {}",
                        frame.file, frame.line, frame.function
                    );
                }
                TorchEvent::Crash { reason: report.reason, signal, threads: report.threads }
            }
            BlockKind::Table(mut table) => {
                let done = table.finish();
                let cut = done.is_none() && table.is_empty();
                self.child_failure(done);
                if !cut {
                    return;
                }
                TorchEvent::LauncherFailed { script: table.script() }
            }
        };
        sink.saw(SourceKind::TorchLog);
        self.keep(FoundEvent { line, start, end, who, at, event, text });
    }

    fn child_failure(&mut self, block: Option<elastic::Block>) {
        let Some(block) = block else { return };
        if let Some(event) = block.event() {
            let elastic::Block { line, start, end, who, at, text, .. } = block;
            self.keep(FoundEvent { line, start, end, who, at, event, text });
        }
    }

    /// Takes over tracebacks that have ended.
    fn conclude(&mut self, done: Vec<Traceback>, sink: &mut Sink<'_>) {
        for seen in done {
            if seen.class.ends_with("ChildFailedError") {
                // Its table follows.
                let who = seen.who.clone();
                let piece = TracebackLine {
                    who: &who,
                    tagged: false,
                    at: seen.at,
                    text: &seen.class,
                    line: seen.line,
                    start: seen.start,
                    end: seen.end,
                };
                self.open(
                    &piece,
                    &GroupLabel::default(),
                    BlockKind::Table(elastic::ElasticTable::default()),
                    sink,
                );
                continue;
            }
            for found in FoundEvent::from_traceback(seen) {
                self.keep(found);
            }
            sink.saw(SourceKind::TorchLog);
        }
    }

    /// Adds an event, unless it is a timeout that was already reported.
    fn push_once(&mut self, piece: &TracebackLine<'_>, event: TorchEvent) {
        if let TorchEvent::WatchdogTimeout { work, ran_ms, .. } = &event
            && self.timeouts.len() < 1 << 16
            && !self.timeouts.insert((piece.who.rank, work.seq, *ran_ms))
        {
            return;
        }
        self.push(piece, piece.who.clone(), event, piece.text);
    }

    fn push(&mut self, piece: &TracebackLine<'_>, who: Who, event: TorchEvent, text: &str) {
        let TracebackLine { line, start, end, at, .. } = *piece;
        self.keep(FoundEvent {
            line,
            start,
            end,
            who,
            at,
            event,
            text: clip(text, MAX_STATEMENT).to_owned(),
        });
    }

    fn keep(&mut self, found: FoundEvent) {
        // One more than the sink takes, so that it says so.
        if self.found.len() <= self.max_found {
            self.found.push(found);
        }
    }

    fn error_line(&mut self, piece: &TracebackLine<'_>, sink: &mut Sink<'_>) {
        self.n_error_lines += 1;
        if self.n_error_lines > MAX_ERROR_LINES {
            if self.n_error_lines == MAX_ERROR_LINES + 1 {
                let cite = sink.cite(piece.line, piece.start, piece.end);
                let text = format!(
                    "more than {MAX_ERROR_LINES} error lines of unknown origin; the further ones were left out"
                );
                sink.note(cite, NoteKind::LimitReached, text);
            }
            return;
        }
        let text = clip(piece.text, 2_000);
        self.push(piece, piece.who.clone(), TorchEvent::ErrorLine { text: text.into() }, text);
    }
}

/// What precedes the body: the launcher's prefixes.
fn prefix_of<'a>(line: &Line<'a>) -> &'a [u8] {
    line.raw.get(..line.raw.len().saturating_sub(line.body.len())).unwrap_or_default()
}

/// Whether a line begins a traceback or a frame of one.
pub(crate) fn begins(line: &[u8]) -> bool {
    line.starts_with(b"Traceback (most recent call last)") || line.starts_with(b"  File \"")
}

/// Whether a line begins as an exception's last line does, or is what a shell or a scheduler says of a dead process.
pub(crate) fn begins_error(text: &str) -> bool {
    traceback::class_line(text)
        .is_some_and(|(class, message)| traceback::is_exception_name(class) && !message.is_empty())
        || crash::one_line(text).is_some()
        || ["Error: ", "error: ", "ERROR", "FATAL", "CRITICAL"].iter().any(|s| text.starts_with(s))
}

/// Whether a line calls itself an error.
fn names_an_error(text: &str) -> bool {
    const WORDS: [&str; 22] = [
        "Error:",
        "error:",
        "ERROR:",
        "Error ",
        "FATAL",
        "Fatal",
        "Killed",
        "CUDA error",
        "NCCL error",
        "NCCL Error",
        "NCCL WARN",
        "ut of memory",
        "Out Of Memory",
        "core dumped",
        "No space left",
        "oo many open files",
        "failed to start",
        "oom_kill",
        "[ERROR]",
        " ERROR ",
        "ncclSystemError",
        "unhandled ",
    ];
    WORDS.iter().any(|words| text.contains(words))
}

/// Reads a torch elastic error file, if it is one.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    error_file::read(document.value, sink)
}
