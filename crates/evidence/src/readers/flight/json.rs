//! The JSON form (`_dump_nccl_trace_json`, the worker's `dump_nccl_trace_json` and `fr_trace_json`): no frames, lists
//! for tuples, the numbers of `pg_status` as strings, 0 for a time that is not known, and no `entries` if there are none.

use ringleader_model::{FlightOp, NoteKind};
use serde_json::{Map, Value};

use super::build::{self, BLANK, Build, GroupConfig, GroupKey, GroupStatus, OverBudget, Tensors};
use super::known::CarriedOver;
use super::memo::Keyword;
use crate::ground::{Document, Sink};

/// Reads a dump in JSON, if it is one.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let (top, entries) = match document.value {
        Value::Object(top) => (Some(top), top.get("entries").and_then(Value::as_array)),
        // Dumps before 2.0 are a bare list.
        Value::Array(entries) => (None, Some(entries)),
        _ => return false,
    };
    let is_entry = |entry: &Value| entry.get("profiling_name").is_some() && entry.get("state").is_some();
    let is_dump = top.is_some_and(|top| top.contains_key("pg_config") && top.contains_key("pg_status"))
        || entries.and_then(|e| e.first()).is_some_and(is_entry);
    if !is_dump {
        return false;
    }
    let n_entries = entries.map_or(0, Vec::len);
    // The text is gone; an entry of this form takes about this much.
    let mut build = Build::new(n_entries.saturating_mul(500), CarriedOver::default());
    if let Some(top) = top {
        take_top(top, &mut build);
    }
    build.dump.ops.reserve_exact(n_entries);
    for entry in entries.into_iter().flatten() {
        match read_entry(entry, &mut build) {
            Ok(Some(op)) => build.dump.ops.push(op),
            Ok(None) => build.note(NoteKind::Malformed, 0, "an entry names no operation; skipped"),
            Err(OverBudget) => {
                build.dump.truncated = true;
                build.note(
                    NoteKind::LimitReached,
                    0,
                    "the entries hold more than is kept; the rest was left out",
                );
                break;
            }
        }
    }
    let (mut dump, notes, _) = build.finish();
    dump.name_hint = build::name_hint(document.name);
    super::emit(dump, notes, sink);
    true
}

fn take_top<'a>(top: &'a Map<String, Value>, build: &mut Build<'a>) {
    let text = |key: &str| top.get(key).and_then(Value::as_str);
    build.dump.version = text("version").unwrap_or_default().into();
    build.dump.library_version = text("comm_lib_version").or(text("nccl_version")).map(Into::into);
    let dict =
        |key: &str| top.get(key).and_then(Value::as_object).into_iter().flatten().take(build::MAX_GROUPS);
    for (key, value) in dict("pg_config") {
        let field = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().as_bytes();
        let mut config = GroupConfig {
            key: key.as_bytes(),
            name: field("name"),
            desc: field("desc"),
            ..GroupConfig::default()
        };
        let mut text = None;
        match value.get("ranks") {
            Some(Value::String(list)) if !list.is_empty() => text = Some(list.as_bytes()),
            Some(Value::Array(list)) => config.ranks = build::rank_numbers(list.iter().map(Value::as_i64)),
            _ => {}
        }
        build.config(config, text);
    }
    for (key, value) in dict("pg_status") {
        let mut status = GroupStatus { key: key.as_bytes(), ..GroupStatus::default() };
        for (key, value) in value.as_object().into_iter().flatten() {
            status.set(key.as_bytes(), number(value));
        }
        build.statuses.push(status);
    }
}

fn read_entry<'a>(entry: &'a Value, build: &mut Build<'a>) -> Result<Option<FlightOp>, OverBudget> {
    let Value::Object(entry) = entry else { return Ok(None) };
    let mut op = BLANK;
    let mut is_empty = true;
    let mut group = GroupKey { id: -1, ..GroupKey::default() };
    let mut name = "";
    let mut tensors = Tensors::default();
    build.stack.clear();
    for (key, value) in entry {
        let int = || number(value).unwrap_or(0);
        match Keyword::of(key.as_bytes()) {
            Keyword::Frames => frames(value, build)?,
            Keyword::RecordId => {
                op.record_id = build::count(int());
                is_empty = false;
            }
            Keyword::PgId => group.id = number(value).unwrap_or(-1),
            Keyword::ProcessGroup => {
                let mut parts =
                    value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default());
                group.name = parts.next().unwrap_or_default().as_bytes();
                group.desc = parts.next().unwrap_or_default().as_bytes();
            }
            Keyword::ThreadId => match value {
                Value::String(id) => build.thread(id.as_bytes()),
                other => build.thread(other.to_string().as_bytes()),
            },
            Keyword::Seq => op.seq = build::count(int()),
            Keyword::P2pSeq => op.p2p_seq = build::count(int()),
            Keyword::ProfilingName => {
                name = value.as_str().unwrap_or_default();
                is_empty = false;
            }
            Keyword::Created => op.created_ns = int(),
            Keyword::Duration => op.duration_us = value.as_f64().map_or(0, build::duration_us),
            Keyword::InputSizes => tensors.input_sizes = sizes(value, build),
            Keyword::OutputSizes => tensors.output_sizes = sizes(value, build),
            Keyword::InputDtypes => tensors.input_dtypes = dtypes(value),
            Keyword::OutputDtypes => tensors.output_dtypes = dtypes(value),
            Keyword::State => match build::state(value.as_str().unwrap_or_default().as_bytes()) {
                Some(state) => op.state = state,
                None => build.unknown_state(value.as_str().unwrap_or_default().as_bytes(), 0),
            },
            Keyword::Started => op.started_ns = int(),
            Keyword::Completed => op.completed_ns = int(),
            Keyword::Retired => op.flags |= u8::from(value.as_bool() == Some(true)) * FlightOp::RETIRED,
            Keyword::Timeout => op.timeout_ms = build::count(int()),
            Keyword::IsP2p => op.flags |= u8::from(value.as_bool() == Some(true)) * FlightOp::P2P,
            _ => {}
        }
    }
    if is_empty {
        return Ok(None);
    }
    op.stack = build.stack()?;
    op.group = build.group(group)?;
    op.signature = build.signature(name.as_bytes(), tensors)?;
    Ok(Some(op))
}

/// A number, or one in a string.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn frames(value: &Value, build: &mut Build<'_>) -> Result<(), OverBudget> {
    for frame in value.as_array().into_iter().flatten().take(build::MAX_FRAMES) {
        let text = |key: &str| frame.get(key).and_then(Value::as_str).unwrap_or_default().as_bytes();
        let line = build::count(frame.get("line").and_then(number).unwrap_or(0));
        let frame = build.frame(text("name"), text("filename"), line)?;
        build.stack.push(frame);
    }
    Ok(())
}

fn sizes(value: &Value, build: &mut Build<'_>) -> Box<[Box<[u64]>]> {
    let mut shapes = Vec::new();
    for shape in value.as_array().into_iter().flatten() {
        let mut has_negative = false;
        let dims = shape.as_array().into_iter().flatten().map(|n| {
            n.as_u64().unwrap_or_else(|| {
                has_negative = true;
                0
            })
        });
        shapes.push(dims.collect());
        if has_negative {
            build.note(NoteKind::Malformed, 0, "a size that is no count; taken for 0");
        }
    }
    shapes.into()
}

fn dtypes(value: &Value) -> Box<[Box<str>]> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|name| build::text(name.as_str().unwrap_or_default().as_bytes()))
        .collect()
}
