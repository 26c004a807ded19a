//! Stacks of live processes: py-spy, once or sampled, faulthandler on request, gdb, `/proc/PID/stack`.
//!
//! One file may hold many processes, and a stack may be in the middle of a log. The form that faulthandler prints on a
//! crash (after `Fatal Python error: …`) is a statement about that crash and is left to the torch reader. Frames are
//! kept innermost first, as all these tools print them.

use ringleader_model::{
    Cite, Fact, Frame, Host, Pid, ProcessStacks, Rank, SourceKind, StackTool, ThreadStack, WallTime, Who,
};

use crate::ground::{Line, LineReader, Sink, Wants};

mod folded;
mod gdb;
mod heading;
mod json;
mod kernel;
mod python;

use folded::Folded;
pub(crate) use json::read_json;

/// Headings of stacks and of threads, and single frames.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        vec![
            "Thread ",
            "Current thread ",
            "Process ",
            "Timeout (",
            "Error: ",
            "process is stopped",
            "Permission Denied",
            "ptrace: ",
            "Could not attach",
            "already traced",
            "Reason: ",
            "Python v",
            "Attaching to ",
            "[<",
            "/proc/",
            "Fatal Python error",
            "py-spy dump",
            "pystack remote",
            "gdb -p",
            ");",
        ]
    },
    begins: |line| line.first() == Some(&b'#') || heading::may_begin(line),
};

/// Stacks in a text file.
#[derive(Default)]
pub(crate) struct StackReader {
    open: Option<OpenProcess>,
    /// Up to this line `Thread 0x…` belongs to a crash.
    crash_until: u32,
    /// What a line before said of the process whose stack comes next.
    announced: Option<Announced>,
    /// Samples of a process.
    folded: Option<Folded>,
    /// The line that comes may lack its end, so that its last number cannot be trusted.
    is_cut: bool,
}

/// Whose stack comes next, as a line before it says.
struct Announced {
    pid: Option<Pid>,
    rank: Option<Rank>,
    host: Option<Host>,
    /// The line that says so.
    line: u32,
}

/// A process whose stacks are being read.
struct OpenProcess {
    fact: ProcessStacks,
    first: Cite,
    end: u64,
    text: Vec<u8>,
    who: Who,
    at: Option<WallTime>,
    /// Lines may still be added to the last thread.
    in_thread: bool,
    /// The last line that was taken.
    last_line: u32,
}

/// Lines after a crash message within which threads belong to it; every line of the crash restarts the count.
const CRASH_LINES: u32 = 400;
/// Other lines that may be between two threads of a process.
const MAX_GAP_LINES: u32 = 200;
/// Lines between what announces a stack and its beginning.
const MAX_HEADING_LINES: u32 = 3;
/// Most frames kept of a thread, and threads of a process: what is deeper is runaway recursion or hostile.
const MAX_FRAMES: usize = 4_096;
const MAX_THREADS: usize = 65_536;

impl OpenProcess {
    fn begin(tool: StackTool, line: &Line<'_>, sink: &Sink<'_>) -> Self {
        Self {
            fact: ProcessStacks { tool, ..ProcessStacks::default() },
            first: sink.cite(line.number, line.offset, line.end()),
            end: line.end(),
            text: Vec::new(),
            who: line.tag.who.clone(),
            at: line.tag.at,
            in_thread: false,
            last_line: line.number,
        }
    }

    fn took(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        self.end = line.end();
        self.last_line = line.number;
        if self.text.len() < sink.limits.max_text_chars {
            if !self.text.is_empty() {
                self.text.push(b'\n');
            }
            self.text.extend_from_slice(line.body.get(..sink.limits.max_text_chars).unwrap_or(line.body));
        }
    }

    fn thread(&mut self, thread: ThreadStack) {
        self.in_thread = self.fact.threads.len() < MAX_THREADS;
        if self.in_thread {
            self.fact.threads.push(thread);
        }
    }

    fn frame(&mut self, frame: Frame) {
        if let Some(thread) = self.fact.threads.last_mut().filter(|t| t.frames.len() < MAX_FRAMES) {
            thread.frames.push(frame);
        }
    }
}

impl StackReader {
    fn close(&mut self, sink: &mut Sink<'_>) {
        let Some(mut open) = self.open.take() else { return };
        // A `Process 12: …` line that nothing followed was a print of the program.
        if open.fact.threads.is_empty() && open.fact.failure.is_none() {
            return;
        }
        sink.saw(SourceKind::Stacks);
        open.who.pid = open.fact.pid.or(open.who.pid);
        let cite = Cite { end: open.end, ..open.first };
        sink.push(cite, open.who, open.at, Fact::Stacks(open.fact.into()), &open.text);
    }

    fn begin(&mut self, tool: StackTool, line: &Line<'_>, sink: &mut Sink<'_>) -> &mut OpenProcess {
        self.close(sink);
        let mut open = OpenProcess::begin(tool, line, sink);
        // What announced it is right before it.
        if let Some(announced) = self.announced.take()
            && line.number <= announced.line.saturating_add(MAX_HEADING_LINES)
        {
            open.fact.pid = announced.pid;
            open.who.rank = announced.rank.or(open.who.rank);
            open.who.host = announced.host.or(open.who.host.take());
        }
        self.open.insert(open)
    }

    /// The process being read, if it is of this tool and from the same speaker; else a new one.
    fn open_of(&mut self, tool: StackTool, line: &Line<'_>, sink: &mut Sink<'_>) -> &mut OpenProcess {
        let goes_on = self.open.as_ref().is_some_and(|o| {
            let is_near = line.number <= o.last_line.saturating_add(MAX_GAP_LINES);
            let own = &line.tag.who;
            let host = own.host.as_ref().or(o.who.host.as_ref()).cloned();
            let said = Who { rank: own.rank.or(o.who.rank), host, ..own.clone() };
            o.fact.tool == tool && o.fact.failure.is_none() && o.who == said && is_near
        });
        if !goes_on {
            self.begin(tool, line, sink);
        }
        self.open.get_or_insert_with(|| OpenProcess::begin(tool, line, sink))
    }
}

impl StackReader {
    /// A line that says whose stack comes next.
    fn announcement(&self, line: &Line<'_>) -> Option<Announced> {
        let is_command = || memchr::memmem::find(line.body, b"py-spy dump").is_some();
        // `#0  ncclAllReduce` is a frame.
        let is_frame = self.open.is_some()
            && line.body.starts_with(b"#")
            && line.body.get(1).is_some_and(u8::is_ascii_digit);
        if self.is_cut
            || is_frame
            || !(heading::may_begin(line.body) || line.body.len() < 200 && is_command())
        {
            return None;
        }
        heading::heading(std::str::from_utf8(line.body).ok()?, line.number)
    }
}

/// Whether a line begins what Python says of its own crash.
pub(crate) fn begins(line: &[u8]) -> bool {
    line.starts_with(b"Fatal Python error: ")
}

impl LineReader for StackReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(&first) = line.body.first() else { return false };
        if !self.is_cut
            && folded::may_be(line.body)
            && let Ok(body) = std::str::from_utf8(line.body)
            && Folded::line(&mut self.folded, body, line, sink)
        {
            return true;
        }
        if let Some(announced) = self.announcement(line) {
            self.close(sink);
            self.announced = Some(announced);
            return false;
        }
        // Cheap refusal of what is no stack: nearly every line of a log.
        let is_possible = match first {
            b' ' | b'#' => self.open.is_some() || line.body.starts_with(b"#0  "),
            b'T' | b'P' | b'C' | b'E' | b'R' | b'F' | b'p' | b'[' | b'=' | b'/' | b'A' | b'w' => true,
            _ => false,
        };
        if is_possible && let Ok(body) = std::str::from_utf8(line.body) {
            if body.starts_with("Fatal Python error") {
                self.crash_until = line.number.saturating_add(CRASH_LINES);
                self.close(sink);
                return false;
            }
            if self.python(body, line, sink)
                || !self.is_cut && (self.gdb(body, line, sink) || self.kernel(body, line, sink))
            {
                return true;
            }
        }
        if let Some(open) = &mut self.open
            && !line.body.trim_ascii().is_empty()
        {
            open.in_thread = false;
        }
        false
    }

    fn awake_until(&self) -> u32 {
        if self.open.as_ref().is_some_and(|open| open.in_thread) { u32::MAX } else { 0 }
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
        Folded::close(self.folded.take(), sink);
    }
}

#[cfg(test)]
mod tests;
