//! Statements of several lines, while they are open.

use ringleader_model::{Frame, GroupLabel, WallTime, Who};

use super::scan::clip;
use super::traceback::{self, TracebackLine};
use super::{MAX_STATEMENT, crash, desync, elastic, watchdog};

/// A statement of several lines.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) who: Who,
    pub(super) at: Option<WallTime>,
    pub(super) group: GroupLabel,
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) last: u32,
    pub(super) first_text: String,
    pub(super) kind: BlockKind,
}

#[derive(Debug)]
pub(super) enum BlockKind {
    Stack(Vec<Frame>),
    AsyncError(StatementText),
    Died(StatementText),
    /// `terminate called after throwing an instance of …` and `what():`.
    Terminate(StatementText),
    Desync(String),
    Crash(crash::CrashReport),
    Table(elastic::ElasticTable),
}

/// Text that goes on as the lines below an NCCL or CUDA error do.
#[derive(Debug, Default)]
pub(super) struct StatementText {
    pub(super) text: String,
    pub(super) after_last_error: bool,
    pub(super) native: bool,
}

/// What a line was to a block.
pub(super) enum Fed {
    Part,
    Block(Option<elastic::Block>),
    Last(Option<elastic::Block>),
    Over(Option<elastic::Block>),
    Foreign,
}

impl Block {
    /// Lines below a statement often lack its prefix: nothing they say of themselves may contradict it.
    pub(super) fn may_take(&self, piece: &TracebackLine<'_>) -> bool {
        let fits = |mine: bool, none: bool| mine || none;
        if matches!(self.kind, BlockKind::Table(_)) {
            return self.who == *piece.who;
        }
        let (a, b) = (&self.who, piece.who);
        fits(a.rank == b.rank, b.rank.is_none())
            && fits(a.pid == b.pid, b.pid.is_none())
            && fits(a.local_rank == b.local_rank, b.local_rank.is_none())
            && fits(a.host == b.host, b.host.is_none())
    }

    pub(super) fn feed(&mut self, piece: &TracebackLine<'_>) -> Fed {
        let text = piece.text;
        // NCCL's own word is the very next line, or another reader took it.
        let next = piece.line == self.last + 1;
        match &mut self.kind {
            BlockKind::Stack(frames) => match watchdog::stack_line(text) {
                Some(frame) if frames.len() < 512 => {
                    frames.push(frame);
                    Fed::Part
                }
                Some(_) => Fed::Part,
                None if text.trim().is_empty() => Fed::Last(None),
                None => Fed::Foreign,
            },
            BlockKind::AsyncError(statement) | BlockKind::Died(statement) => statement.feed(text, next),
            BlockKind::Terminate(statement) if text.trim_start().starts_with("what():") => {
                statement.add(text);
                Fed::Part
            }
            BlockKind::Terminate(statement) => statement.feed(text, next),
            BlockKind::Desync(report) => {
                if !desync::is_line(text) {
                    return Fed::Foreign;
                }
                if report.len() < MAX_STATEMENT * 4 {
                    report.push('\n');
                    report.push_str(clip(text, MAX_STATEMENT));
                }
                Fed::Part
            }
            BlockKind::Crash(report) => match report.feed(text) {
                crash::CrashLine::Part => Fed::Part,
                crash::CrashLine::Last if text.contains("Fatal Python error: ") => Fed::Over(None),
                crash::CrashLine::Last => Fed::Last(None),
                crash::CrashLine::Foreign => Fed::Foreign,
            },
            BlockKind::Table(table) => match table.feed(text, piece.line, piece.start, piece.end) {
                elastic::ElasticLine::Part(done) => Fed::Block(done),
                elastic::ElasticLine::Last(done) => Fed::Last(done),
                elastic::ElasticLine::Over(done) => Fed::Over(done),
                elastic::ElasticLine::Foreign => Fed::Foreign,
            },
        }
    }
}

impl StatementText {
    pub(super) fn new(text: &str) -> Self {
        Self { text: clip(text, MAX_STATEMENT).to_owned(), ..Self::default() }
    }

    fn add(&mut self, text: &str) {
        if self.text.len() < MAX_STATEMENT {
            self.text.push('\n');
            self.text.push_str(clip(text, MAX_STATEMENT));
        }
    }

    pub(super) fn feed(&mut self, text: &str, next: bool) -> Fed {
        if text.trim().is_empty() {
            return Fed::Last(None);
        }
        if text.starts_with("Exception raised from ") || text.starts_with("frame #") {
            self.native = true;
            return Fed::Part;
        }
        if !(self.after_last_error && next || traceback::continues_message(text)) {
            return Fed::Foreign;
        }
        self.after_last_error = text.starts_with("Last error:");
        if !self.native {
            self.add(text);
        }
        Fed::Part
    }
}
