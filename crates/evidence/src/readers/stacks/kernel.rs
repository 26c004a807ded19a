//! `/proc/PID/stack` (Linux: `fs/proc/base.c`, `proc_pid_stack`), innermost first:
//! `[<0>] futex_wait_queue+0x60/0x90`; kernels before 4.15 print an address in the brackets.

use ringleader_model::{Frame, Pid, StackTool, ThreadStack};

use super::{Announced, StackReader};
use crate::ground::{Line, Sink};

impl StackReader {
    pub(super) fn kernel(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(pid) = heading(body) {
            self.close(sink);
            self.announced =
                Some(Announced { pid: Some(Pid(pid)), rank: None, host: None, line: line.number });
            return false;
        }
        let Some(frame) = frame(body) else { return false };
        let follows = self.open.as_ref().is_some_and(|o| {
            o.fact.tool == StackTool::Kernel
                && o.last_line.saturating_add(1) == line.number
                && o.who == line.tag.who
        });
        if !follows {
            self.begin(StackTool::Kernel, line, sink).thread(ThreadStack::default());
        }
        let Some(open) = &mut self.open else { return false };
        open.frame(frame);
        open.took(line, sink);
        true
    }
}

/// `[<0>] nvidia_ioctl+0x1f/0x90 [nvidia]`; the end of old stacks is an address without a name.
fn frame(body: &str) -> Option<Frame> {
    let (address, rest) = body.strip_prefix("[<")?.split_once(">] ")?;
    if address.is_empty() || !address.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let (symbol, module) = rest.trim_end().split_once(' ').unwrap_or((rest.trim_end(), ""));
    let function = symbol.split_once('+').map_or(symbol, |(name, _)| name);
    let file = module.trim_matches(['[', ']']);
    Some(Frame { function: function.into(), file: file.into(), line: 0 })
}

/// A line that says of whom the next stack is: `/proc/1347/stack:`, `==> /proc/1347/stack <==`, with `task/N` too.
fn heading(body: &str) -> Option<u32> {
    let rest = body.trim_start_matches(['=', '>', '#', ' ']).strip_prefix("/proc/")?;
    let (pid, rest) = rest.split_once('/')?;
    rest.contains("stack").then(|| pid.parse().ok()).flatten()
}
