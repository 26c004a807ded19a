//! `TORCHELASTIC_ERROR_FILE`: the exception that ended a worker's or the launcher's entry point.
//!
//! `{"message": {"message": "RuntimeError: text", "extraInfo": {"py_callstack": "Traceback …", "timestamp": "1754000000"}}}`,
//! or a plain string as `message`; written by pytorch/pytorch
//! `torch/distributed/elastic/multiprocessing/errors/error_handler.py`.

use ringleader_model::{SourceKind, WallTime, Who};
use serde_json::Value;

use super::found::FoundEvent;
use super::traceback::{Traceback, TracebackLine, Tracebacks, class_line};
use crate::ground::Sink;

/// Reads an error file, if it is one.
pub(super) fn read(value: &Value, sink: &mut Sink<'_>) -> bool {
    let Some(top) = value.as_object() else { return false };
    let Some(message) = top.get("message") else { return false };
    let inner = message.as_object();
    let extra = |key: &str| {
        let nested = inner.and_then(|m| m.get("extraInfo")).and_then(|e| e.get(key));
        nested
            .or_else(|| inner.and_then(|m| m.get(key)))
            .or_else(|| top.get("extraInfo").and_then(|e| e.get(key)))
            .or_else(|| top.get(key))
    };
    let known = ["py_callstack", "timestamp", "errorCode"].iter().any(|key| extra(key).is_some());
    let Some(text) =
        inner.map_or(Some(message), |m| m.get("message")).and_then(Value::as_str).filter(|_| known)
    else {
        return false;
    };
    sink.saw(SourceKind::ElasticError);
    let at = extra("timestamp")
        .and_then(|t| t.as_i64().or_else(|| t.as_str()?.trim().parse().ok()))
        .and_then(|seconds| {
            let ns = seconds.checked_mul(1_000_000_000)?;
            Some(WallTime { ns, error_ns: 1_000_000_000, has_year: true })
        });
    let stack = extra("py_callstack").and_then(Value::as_str).unwrap_or_default();
    let mut seen = last_traceback(stack).unwrap_or_default();
    if seen.class.is_empty() || seen.message.is_empty() {
        let (class, message) = class_line(text).unwrap_or(("", text));
        if seen.class.is_empty() {
            seen.class = class.into();
        }
        message.clone_into(&mut seen.message);
    }
    seen.at = at;
    for found in FoundEvent::from_traceback(seen) {
        let FoundEvent { who, at, event, text, .. } = found;
        let cite = ringleader_model::Cite::whole(sink.source);
        sink.push(cite, who, at, ringleader_model::Fact::Torch(event), text.as_bytes());
    }
    true
}

/// The outermost exception of a printed call stack.
fn last_traceback(stack: &str) -> Option<Traceback> {
    let who = Who::default();
    let mut tracebacks = Tracebacks::default();
    let mut done = Vec::new();
    for (line, text) in (1_u32..).zip(stack.lines().take(20_000)) {
        let piece = TracebackLine { who: &who, tagged: true, at: None, text, line, start: 0, end: 0 };
        tracebacks.feed(&piece, &mut done);
    }
    tracebacks.finish(&mut done);
    done.pop()
}
