//! Stacks that were sampled and folded, one different stack a line with the number of samples that showed it:
//! `py-spy record --format raw` (py-spy: `src/flamegraph.rs`, `src/main.rs`), and what ringleader's own sampler writes.
//!
//! ```text
//! process 1347:"python";<module> (train.py:90);main (train.py:70);load (data.py:33) 31
//! <module> (train.py:90);main (train.py:72) 9
//! ```
//!
//! Frames are outermost first. `process` stands there with `--subprocesses`, `thread (0x7F…): "MainThread"` with `--threads`; of
//! several threads only the main one counts here.

use ringleader_model::{Cite, Fact, Frame, Pid, SampledStack, SourceKind, StackSamples, WallTime, Who};

use super::MAX_FRAMES;
use super::python::{MAIN, pyspy_frame};
use crate::ground::{Line, Sink};

/// Different stacks of one process that are kept.
const MAX_STACKS: usize = 4_096;

/// The samples of one process that are being read.
pub(super) struct Folded {
    fact: StackSamples,
    first: Cite,
    end: u64,
    who: Who,
    at: Option<WallTime>,
    last_line: u32,
    text: Box<[u8]>,
}

/// One line.
struct FoldedLine {
    pid: Option<Pid>,
    /// Of another thread than the main one.
    is_beside: bool,
    stack: SampledStack,
}

impl Folded {
    /// Takes a line that goes on with what is being read, or begins anew; false if it is none.
    pub(super) fn line(open: &mut Option<Self>, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(row) = row(body) else { return false };
        let goes_on = open.as_ref().is_some_and(|o| {
            o.fact.pid == row.pid && o.last_line + 1 == line.number && o.fact.stacks.len() < MAX_STACKS
        });
        if !goes_on {
            Self::close(open.take(), sink);
        }
        let folded = open.get_or_insert_with(|| Self {
            fact: StackSamples { pid: row.pid, stacks: Vec::new() },
            first: sink.cite(line.number, line.offset, line.end()),
            end: line.end(),
            who: line.tag.who.clone(),
            at: line.tag.at,
            last_line: line.number,
            text: line.body.get(..sink.limits.max_text_chars).unwrap_or(line.body).into(),
        });
        if !row.is_beside {
            folded.fact.stacks.push(row.stack);
        }
        (folded.end, folded.last_line) = (line.end(), line.number);
        true
    }

    /// What was read is an observation.
    pub(super) fn close(open: Option<Self>, sink: &mut Sink<'_>) {
        let Some(mut folded) = open.filter(|folded| !folded.fact.stacks.is_empty()) else { return };
        sink.saw(SourceKind::Stacks);
        folded.who.pid = folded.fact.pid.or(folded.who.pid);
        let cite = Cite { end: folded.end, ..folded.first };
        sink.push(cite, folded.who, folded.at, Fact::Samples(Box::new(folded.fact)), &folded.text);
    }
}

/// Whether a line may be one: it ends with a count, and its first frame is complete.
pub(super) fn may_be(body: &[u8]) -> bool {
    body.last().is_some_and(u8::is_ascii_digit)
        && memchr::memchr(b';', body).is_some()
        && memchr::memmem::find(body, b") ").is_some()
        && memchr::memmem::find(body, b" (").is_some()
}

fn row(body: &str) -> Option<FoldedLine> {
    let (stack, n) = body.rsplit_once(' ')?;
    let n: u32 = n.parse().ok().filter(|n| *n > 0)?;
    let mut row = FoldedLine { pid: None, is_beside: false, stack: SampledStack { n, frames: Vec::new() } };
    let mut has_line = false;
    for element in stack.split(';') {
        if let Some(process) = element.strip_prefix("process ").filter(|_| row.stack.frames.is_empty()) {
            row.pid = Some(Pid(process.split_once(':')?.0.parse().ok()?));
        } else if let Some(thread) = element.strip_prefix("thread (").filter(|_| row.stack.frames.is_empty())
        {
            row.is_beside = thread.split_once("): ").is_some_and(|(_, name)| name.trim_matches('"') != MAIN);
        } else {
            let frame: Frame = pyspy_frame(element)?;
            has_line |= frame.line > 0;
            if row.stack.frames.len() < MAX_FRAMES {
                row.stack.frames.push(frame);
            }
        }
    }
    row.stack.frames.reverse();
    has_line.then_some(row)
}
