//! `py-spy dump --json`: an array of threads, each with its process.

use ringleader_model::{Fact, Frame, Pid, ProcessStacks, SourceKind, StackTool, ThreadStack, Who};
use serde_json::Value;

use super::MAX_FRAMES;
use crate::ground::{Document, Sink};

/// Reads py-spy's JSON, if it is that.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let Some(threads) = document.value.as_array() else { return false };
    let is_thread = |t: &Value| t.get("thread_id").is_some() && t.get("frames").is_some_and(Value::is_array);
    if !threads.first().is_some_and(is_thread) {
        return false;
    }
    sink.saw(SourceKind::Stacks);
    let mut processes: Vec<ProcessStacks> = Vec::new();
    for thread in threads.iter().filter(|t| is_thread(t)) {
        let info = thread.get("process_info");
        let pid = thread.get("pid").and_then(Value::as_u64).and_then(|p| u32::try_from(p).ok()).map(Pid);
        if processes.last().is_none_or(|p| p.pid != pid) {
            let command = info.and_then(|i| i.get("command_line")).and_then(Value::as_str).map(Into::into);
            processes.push(ProcessStacks {
                pid,
                command,
                tool: StackTool::PySpy,
                ..ProcessStacks::default()
            });
        }
        if let Some(process) = processes.last_mut() {
            process.threads.push(thread_of(thread));
        }
    }
    for process in processes {
        let who = Who { pid: process.pid, ..Who::default() };
        sink.push(document.cite(sink), who, None, Fact::Stacks(process.into()), document.bytes);
    }
    true
}

fn thread_of(value: &Value) -> ThreadStack {
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(Box::<str>::from);
    let frames = value.get("frames").and_then(Value::as_array).into_iter().flatten().take(MAX_FRAMES);
    ThreadStack {
        tid: value
            .get("os_thread_id")
            .and_then(Value::as_u64)
            .or(value.get("thread_id").and_then(Value::as_u64)),
        name: text(value, "thread_name"),
        active: flag("active"),
        holds_gil: flag("owns_gil").unwrap_or(false),
        frames: frames
            .map(|frame| Frame {
                function: text(frame, "name").unwrap_or_default(),
                file: text(frame, "short_filename").or(text(frame, "filename")).unwrap_or_default(),
                line: frame
                    .get("line")
                    .and_then(Value::as_u64)
                    .and_then(|n| u32::try_from(n).ok())
                    .unwrap_or(0),
            })
            .collect(),
        ..ThreadStack::default()
    }
}
