//! Kernel logs as JSON: `dmesg --json` (util-linux 2.38, `sys-utils/dmesg.c`) and `journalctl -k -o json` (one object a
//! line).
//!
//! `{"dmesg": [{"pri": 4, "time": 12.345678, "msg": "NVRM: Xid …"}, …]}`; with `-x` `"fac"` and words, with `-T` a date.
//! `{"__REALTIME_TIMESTAMP":"1795163314000000","_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid …","_HOSTNAME":"node7",…}`

use ringleader_model::{SourceKind, WallTime};
use serde_json::Value;

use super::log::Log;
use super::statements::Record;
use crate::ground::{Document, Sink};

/// One entry of a journal.
pub(super) struct JournalEntry {
    pub(super) uptime_us: Option<u64>,
    pub(super) at: Option<WallTime>,
    pub(super) host: Option<String>,
    pub(super) text: String,
}

/// A line of `journalctl -o json` from any writer.
pub(crate) fn is_journal(line: &[u8]) -> bool {
    memchr::memmem::find(line, b"\"__REALTIME_TIMESTAMP\"").is_some()
}

/// A line of `journalctl -o json` that the kernel wrote.
pub(super) fn journal(line: &[u8]) -> Option<JournalEntry> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let word = |key: &str| value.get(key).and_then(Value::as_str);
    if word("_TRANSPORT") != Some("kernel") && word("SYSLOG_IDENTIFIER") != Some("kernel") {
        return None;
    }
    let text = match value.get("MESSAGE")? {
        Value::String(text) => text.clone(),
        // Bytes that are no text.
        Value::Array(bytes) => {
            let bytes: Vec<u8> =
                bytes.iter().filter_map(|b| b.as_u64().and_then(|b| u8::try_from(b).ok())).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => return None,
    };
    let number = |key: &str| word(key).and_then(|w| w.parse::<u64>().ok());
    let at = number("_SOURCE_REALTIME_TIMESTAMP")
        .or_else(|| number("__REALTIME_TIMESTAMP"))
        .and_then(|us| i64::try_from(us).ok()?.checked_mul(1_000));
    Some(JournalEntry {
        uptime_us: number("_SOURCE_MONOTONIC_TIMESTAMP").or_else(|| number("__MONOTONIC_TIMESTAMP")),
        at: at.map(|ns| WallTime { ns, error_ns: 500, has_year: true }),
        host: word("_HOSTNAME").map(str::to_owned),
        text,
    })
}

/// A document of `dmesg --json`.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let Some(rows) = document.value.get("dmesg").and_then(Value::as_array) else { return false };
    if !rows.iter().all(|row| row.get("msg").is_some()) {
        return false;
    }
    let mut log = Log::default();
    // Where each row is: rows have one key `msg` each, and a quotation mark inside a text is written `\"`.
    let (mut passed, mut line) = (0, document.line);
    for row in rows {
        let rest = document.bytes.get(passed..).unwrap_or_default();
        let to = memchr::memmem::find(rest, b"\"msg\"").unwrap_or(0);
        line += memchr::memchr_iter(b'\n', rest.get(..to).unwrap_or_default()).count() as u32;
        let start = passed + to;
        let length = memchr::memchr(b'\n', rest.get(to..).unwrap_or_default()).unwrap_or(rest.len() - to);
        passed = start + 5;
        let Some(text) = row.get("msg").and_then(Value::as_str) else { continue };
        let (uptime_us, at) = match row.get("time") {
            Some(Value::Number(seconds)) => (seconds.as_f64().map(|s| (s * 1e6).round() as u64), None),
            Some(Value::String(date)) => {
                (None, crate::ground::clock::ctime(date).or_else(|| crate::ground::clock::iso(date)))
            }
            _ => (None, None),
        };
        let record = Record {
            line,
            start: document.offset + start as u64,
            end: document.offset + (start + length) as u64,
            uptime_us,
            at,
            host: None,
            raw: text.as_bytes(),
            text: text.as_bytes(),
            is_kernel: true,
            is_cut: false,
        };
        log.take(&record, sink.limits.max_observations);
    }
    sink.saw(SourceKind::KernelLog);
    log.finish(sink);
    true
}
