//! gdb's `thread apply all bt`, and gstack or pstack, which call it.
//!
//! ```text
//! Thread 3 (Thread 0x7f2f41ffb640 (LWP 1390) "pt_main_thread"):
//! #0  0x00007f2f9a8e88dd in syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38
//! #1  0x00007f2f5b0a1f04 in ncclProxyProgress () from /usr/lib/libnccl.so.2
//! ```

use ringleader_model::{Frame, Pid, StackTool, ThreadStack};

use super::{Announced, StackReader};
use crate::ground::{Line, Sink};

impl StackReader {
    pub(super) fn gdb(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(pid) = attached(body) {
            self.close(sink);
            // Loading symbols may print many lines before the first stack.
            self.announced =
                Some(Announced { pid: Some(Pid(pid)), rank: None, host: None, line: u32::MAX - 3 });
            return true;
        }
        if let Some(head) = thread_head(body) {
            let open = self.open_of(StackTool::Gdb, line, sink);
            // The first thread is the process's own, so its id is the process's.
            if head.is_process || (head.number == 1 && open.fact.pid.is_none()) {
                open.fact.pid =
                    head.thread.tid.and_then(|t| u32::try_from(t).ok()).map(Pid).or(open.fact.pid);
            }
            open.thread(head.thread);
            open.took(line, sink);
            return true;
        }
        if let Some((number, rest)) = numbered(body) {
            let is_going = self.open.as_ref().is_some_and(|o| o.fact.tool == StackTool::Gdb && o.in_thread);
            if !is_going {
                // A stack without a heading (`bt` of one thread): recognised by gdb's spacing and an address.
                if number != 0 || !body.starts_with("#0  0x") {
                    return false;
                }
                self.open_of(StackTool::Gdb, line, sink).thread(ThreadStack::default());
            }
            let Some(open) = &mut self.open else { return false };
            open.frame(frame(rest));
            open.took(line, sink);
            return true;
        }
        // A frame that gdb wrapped: `    at ../src/enqueue.cc:1432`.
        let Some(open) = self.open.as_mut().filter(|o| o.fact.tool == StackTool::Gdb && o.in_thread) else {
            return false;
        };
        let Some(rest) = body.strip_prefix("    ") else { return false };
        if let Some(frame) = open.fact.threads.last_mut().and_then(|t| t.frames.last_mut())
            && frame.file.is_empty()
        {
            let (file, number) = place_of(rest.trim_start());
            (frame.file, frame.line) = (file.into(), number);
        }
        open.took(line, sink);
        true
    }
}

/// `Attaching to process 1347`, `[Inferior 1 (process 1347) …`
fn attached(body: &str) -> Option<u32> {
    if let Some(rest) = body.strip_prefix("Attaching to ") {
        return rest.rsplit_once("process ")?.1.trim_end_matches('.').parse().ok();
    }
    None
}

struct ThreadHead {
    number: u32,
    thread: ThreadStack,
    /// The id in parentheses was said to be a process's.
    is_process: bool,
}

/// `Thread 3 (Thread 0x7f2f41ffb640 (LWP 1390) "name"):`, `Thread 1 (process 1347):`, `Thread 2 (LWP 1390):`
fn thread_head(body: &str) -> Option<ThreadHead> {
    let (number, rest) = body.strip_prefix("Thread ")?.split_once(" (")?;
    let inner = rest.trim_end().strip_suffix(':')?;
    let number = number.parse().ok()?;
    let id_after = |word: &str| {
        let rest = inner.split_once(word)?.1;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    let (lwp, process) = (id_after("LWP "), id_after("process "));
    let tid = lwp.or(process)?;
    let name = inner.split_once('"').and_then(|(_, n)| Some(n.rsplit_once('"')?.0.into()));
    let thread = ThreadStack { tid: Some(tid), name, ..ThreadStack::default() };
    Some(ThreadHead { number, thread, is_process: lwp.is_none() && process.is_some() })
}

/// `#12 …`
fn numbered(body: &str) -> Option<(u32, &str)> {
    let (number, rest) = body.strip_prefix('#')?.split_once(' ')?;
    Some((number.parse().ok()?, rest.trim_start()))
}

/// What follows the number: `0x… in function (arguments) at file:line`, `… from library`.
fn frame(rest: &str) -> Frame {
    let rest = match rest.split_once(" in ") {
        Some((address, rest)) if address.starts_with("0x") => rest,
        _ => rest,
    };
    let cut = [" at ", " from "]
        .iter()
        .filter_map(|word| rest.rfind(word))
        .filter(|at| rest.get(..*at).is_some_and(|before| before.ends_with(')')));
    let (call, place) = cut.max().and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
    let (file, line) = place_of(place.trim_start());
    Frame { function: without_arguments(call.trim_end()).into(), file: file.into(), line }
}

/// `at file:line` or `from library`
fn place_of(words: &str) -> (&str, u32) {
    if let Some(library) = words.strip_prefix("from ") {
        return (library.trim_end(), 0);
    }
    let Some(place) = words.strip_prefix("at ") else { return ("", 0) };
    match place.trim_end().rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => (file, line),
        _ => (place.trim_end(), 0),
    }
}

/// Cuts the last balanced parentheses off: names of C++ may hold parentheses themselves.
fn without_arguments(call: &str) -> &str {
    let mut depth = 0_u32;
    for (at, c) in call.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return call.get(..at).unwrap_or(call).trim_end();
                }
            }
            _ if depth == 0 => return call.split(" (").next().unwrap_or(call),
            _ => {}
        }
    }
    call.split(" (").next().unwrap_or(call)
}
