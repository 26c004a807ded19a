//! Lines of structured logs: one JSON object a line, whatever its keys are called.
//!
//! ```text
//! {"ts": "2026-11-20T08:21:34Z", "level": "error", "rank": 3, "msg": "RuntimeError: x"}
//! {"log":"[rank1]: RuntimeError: x\n","stream":"stderr","time":"2026-11-20T08:21:34.123456789Z"}
//! {"event": "step failed", "level": "error", "exception": "Traceback (most recent call last):\n  File …"}
//! {"text": "…", "record": {"level": {"name": "ERROR"}, "message": "RuntimeError: x", "time": {"timestamp": 1795162894.5}}}
//! ```
//! Written by Docker's `json-file` driver (moby/moby `daemon/logger/jsonfilelog/jsonlog`), python-json-logger, structlog,
//! loguru (`serialize`), zap, zerolog, logrus, bunyan and pino, and by what forwards logs. What is in the text is read like
//! lines of their own; a citation names the line of the file.

use memchr::memmem;
use ringleader_knowledge::form::Level;
use ringleader_model::{Host, Rank, WallTime};
use serde_json::{Map, Value};

use super::docker;
use crate::ground::{host_of, stamp};

/// Keys of the text, the more telling ones first.
const TEXTS: [&str; 7] = ["message", "msg", "log", "text", "event", "body", "short_message"];
/// Keys of an exception, which is shown with its traceback.
const EXCEPTIONS: [&str; 9] = [
    "exc_info",
    "exc_text",
    "exception",
    "traceback",
    "stack",
    "stacktrace",
    "stack_trace",
    "error.stack_trace",
    "error",
];
const LEVELS: [&str; 7] = ["level", "severity", "levelname", "lvl", "log.level", "loglevel", "severity_text"];
const TIMES: [&str; 8] = ["time", "ts", "timestamp", "@timestamp", "asctime", "datetime", "date", "t"];
const RANKS: [&str; 2] = ["rank", "global_rank"];
const HOSTS: [&str; 5] = ["hostname", "host", "node", "node_name", "pod"];
/// Keys of formats that have readers of their own.
const OTHERS: [&str; 3] = ["\"__REALTIME_TIMESTAMP\"", "\"nccl_version\"", "\"PEER_"];
/// Objects within objects that are looked into.
const MAX_DEPTH: u32 = 2;
/// Longest line that is taken apart.
const MAX_BYTES: usize = 256 << 10;
/// Lines of one text.
const MAX_LINES: usize = 400;

/// What an object says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// Its text, line by line, then the lines of its exception.
    pub(super) lines: Vec<String>,
    pub(super) level: Option<Level>,
    /// The level is a number, which means one thing to one logger and another thing to the next.
    pub(super) is_numbered: bool,
    pub(super) at: Option<WallTime>,
    pub(super) rank: Option<Rank>,
    pub(super) host: Option<Host>,
}

/// Whether a line may be an object.
#[inline]
pub(super) fn begins(line: &[u8]) -> bool {
    matches!(line, [b'{', b'"', ..]) || matches!(line, [b'{', b' ', b'"', ..])
}

/// Whether the head of a file is of a structured log: its first line is an object with a text, and a level or time.
pub(crate) fn is_log(head: &[u8]) -> bool {
    let mut lines = head.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    // Of a line that is longer than the head the keys that it begins with must do.
    lines.next().is_some_and(|line| match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(object)) => {
            let record = record(&object, 0);
            !is_other(line)
                && record.as_ref().is_some_and(|r| {
                    !r.lines.is_empty() && (r.level.is_some() || r.is_numbered || r.at.is_some())
                })
        }
        _ => docker::is_docker(head),
    })
}

fn is_other(line: &[u8]) -> bool {
    OTHERS.iter().any(|key| memmem::find(line, key.as_bytes()).is_some())
}

/// Takes the text out of an object; a line of another kind stays as it is.
pub(super) fn unpack(line: &[u8]) -> Option<Record> {
    if !begins(line) || line.len() > MAX_BYTES || is_other(line) {
        return None;
    }
    let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(line) else {
        // One of Docker's may be cut.
        let cut = docker::unpack(line)?;
        return Some(Record { lines: lines_of(&cut.text), at: cut.at, ..Record::default() });
    };
    let record = record(&object, 0)?;
    // A text within the text: what forwards a log packs it once more.
    match record.lines.as_slice() {
        [only] => match unpack_inner(only) {
            Some(inner) => Some(Record {
                at: inner.at.or(record.at),
                rank: inner.rank.or(record.rank),
                host: inner.host.or(record.host),
                level: inner.level.or(record.level),
                ..inner
            }),
            None => Some(record),
        },
        _ => Some(record),
    }
}

fn unpack_inner(text: &str) -> Option<Record> {
    if !begins(text.as_bytes()) {
        return None;
    }
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(text) else { return None };
    record(&object, 0)
}

/// None if there is no text.
fn record(object: &Map<String, Value>, depth: u32) -> Option<Record> {
    let string = |keys: &[&str]| keys.iter().find_map(|key| object.get(*key)?.as_str());
    let mut found = Record::default();
    // `{"text": …, "record": {…}}` of loguru repeats the text, formatted.
    let inner = object.values().filter_map(Value::as_object).filter(|_| depth < MAX_DEPTH);
    let inner = inner.filter_map(|object| record(object, depth + 1)).find(|record| !record.lines.is_empty());
    match (string(&TEXTS), inner) {
        (_, Some(inner)) if object.contains_key("record") || string(&TEXTS).is_none() => found = inner,
        (Some(text), _) => found.lines = lines_of(text.as_bytes()),
        (None, _) => return None,
    }
    for key in EXCEPTIONS {
        if let Some(text) = object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            found.lines.extend(lines_of(text.as_bytes()));
            break;
        }
    }
    found.lines.truncate(MAX_LINES);
    let level = LEVELS.iter().find_map(|key| object.get(*key));
    match level {
        Some(Value::String(word)) => found.level = level_of(word),
        Some(Value::Number(_)) => found.is_numbered = true,
        // Loguru: `{"name": "ERROR", "no": 40}`.
        Some(Value::Object(level)) => {
            found.level = level.get("name").and_then(Value::as_str).and_then(level_of);
        }
        _ => {}
    }
    found.at = TIMES.iter().find_map(|key| time_of(object.get(*key)?)).or(found.at);
    let number = |keys: &[&str]| keys.iter().find_map(|key| u32::try_from(object.get(*key)?.as_u64()?).ok());
    found.rank = number(&RANKS).map(Rank).or(found.rank);
    found.host =
        string(&HOSTS).filter(|host| !host.is_empty() && !host.contains(' ')).map(host_of).or(found.host);
    Some(found)
}

fn lines_of(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.trim_end_matches(['\n', '\r'])
        .split('\n')
        .take(MAX_LINES)
        .map(|l| l.trim_end_matches('\r').to_owned())
        .collect()
}

fn level_of(word: &str) -> Option<Level> {
    Some(match word.to_ascii_lowercase().as_str() {
        "trace" | "verbose" => Level::Trace,
        "debug" => Level::Debug,
        "info" | "notice" | "information" | "informational" => Level::Info,
        "warn" | "warning" => Level::Warning,
        "error" | "err" | "severe" => Level::Error,
        "fatal" | "critical" | "crit" | "alert" | "emerg" | "emergency" | "panic" | "dpanic" => Level::Fatal,
        _ => return None,
    })
}

/// A date, or seconds or milliseconds since 1970.
fn time_of(value: &Value) -> Option<WallTime> {
    const SECOND_NS: f64 = 1e9;
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            let stamp = stamp::date_time(bytes, b'T').or_else(|| stamp::date_time(bytes, b' '));
            stamp.map(|(at, _)| at)
        }
        Value::Number(number) => {
            let number = number.as_f64()?;
            let seconds = match number {
                n if (1e9..4e9).contains(&n) => n,
                n if (1e12..4e12).contains(&n) => n / 1e3,
                n if (1e15..4e15).contains(&n) => n / 1e6,
                n if (1e18..4e18).contains(&n) => n / 1e9,
                _ => return None,
            };
            Some(WallTime { ns: (seconds * SECOND_NS) as i64, error_ns: 1_000, has_year: true })
        }
        Value::Object(object) => time_of(object.get("timestamp").or_else(|| object.get("repr"))?),
        _ => None,
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
