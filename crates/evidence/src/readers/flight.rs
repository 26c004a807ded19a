//! PyTorch Flight Recorder dumps: the ring of the last collectives that each process enqueued.
//!
//! Written by torch 2.1 and newer (`torch/csrc/distributed/c10d/FlightRecorder.cpp` and `FlightRecorderDetail.hpp`;
//! before 2.6 `TraceUtils.h`) as a pickle of protocol 2 by torch's own C++ pickler (`torch/csrc/jit/serialization/
//! pickler.cpp`), one file a rank, and as JSON by `_dump_nccl_trace_json` and the worker's HTTP handler. Format
//! versions 1.x to 2.10; fields are read by presence, since releases did not always count the version up.
//! One entry of a 2.10 dump, as Python shows it:
//!
//! ```text
//! {'frames': [{'name': 'sync_grads', 'filename': '/srv/train/train.py', 'line': 80}, …], 'record_id': 27, 'pg_id': 0,
//!  'process_group': ('0', 'default_pg'), 'thread_name': 'python3', 'thread_id': '140260848612096',
//!  'collective_seq_id': 1, 'p2p_seq_id': 27, 'op_id': 28, 'profiling_name': 'nccl:recv 2<-1',
//!  'time_created_ns': 1795163174189600906, 'input_sizes': [[256, 1024]], 'input_dtypes': ['Float'],
//!  'output_sizes': [[256, 1024]], 'output_dtypes': ['Float'], 'state': 'scheduled',
//!  'time_discovered_started_ns': None, 'time_discovered_completed_ns': None, 'retired': False, 'timeout_ms': 8000,
//!  'is_p2p': True}
//! ```

mod build;
mod entry;
mod follow;
mod general;
mod json;
mod known;
mod learned;
mod lesson;
mod machine;
mod memo;
mod pickle;
mod template;
#[cfg(test)]
mod tests;

use ringleader_model::{Cite, Fact, FlightDump, NoteKind, SourceKind, Who};

use crate::ground::Sink;
use build::{GroupConfig, GroupStatus};
use known::CarriedOver;
use lesson::{LessonOutcome, Lessons};
use machine::{PickleEnd, PickleMachine};
use memo::StackValue;

pub(crate) use json::read_json;

/// Keys of the top dict; any one tells a dump from other pickles.
const TOP_KEYS: [&[u8]; 5] =
    [b"entries", b"pg_config", b"pg_status", b"comm_lib_version", b"nccl_comm_state"];

/// What dumps before have left to the next.
#[derive(Debug, Default)]
pub(crate) struct Before {
    known: CarriedOver,
    lessons: Lessons,
}

/// Whether a file begins like a pickle of any protocol.
pub(crate) fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 0..=5, ..]) || is_old_pickle(head)
}

/// Protocols 0 and 1 have no magic: a dict or list that is stored in the memo at once (`(dp0\n`, `}q\0`).
fn is_old_pickle(head: &[u8]) -> bool {
    let numbered = |rest: &[u8]| {
        let n_digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        n_digits > 0 && rest.get(n_digits) == Some(&b'\n')
    };
    match head {
        [b'(', b'd' | b'l', b'p', rest @ ..] => numbered(rest),
        [b'}' | b']', b'q', 0, b'(', ..] => true,
        _ => false,
    }
}

/// Reads a pickle dump. `name` is the file's own name, for the rank it claims.
pub(crate) fn read_pickle(name: &str, bytes: &[u8], before: &mut Before, sink: &mut Sink<'_>) {
    let mut machine = PickleMachine::new(bytes, std::mem::take(&mut before.known), &before.lessons);
    let end = machine.run();
    let top = machine.root_items();
    let is_list = top.is_none() && matches!(machine.stack.first(), Some(StackValue::Node(_)));
    let items = top.unwrap_or_default();
    let is_dump = !machine.build.dump.ops.is_empty()
        || items.iter().step_by(2).any(|key| matches!(key, StackValue::Str(key) if TOP_KEYS.contains(key)));
    if !is_dump {
        return refuse(&machine, &end, &items, is_list, sink);
    }
    take_top(&mut machine, &items);
    let outcome = LessonOutcome::of(&mut machine, matches!(end, PickleEnd::Stop));
    let at = machine.offset();
    let n_entries = machine.build.dump.ops.len();
    match end {
        PickleEnd::Stop if !machine.rest.is_empty() => {
            let text = format!("{} bytes follow the end of the dump; they were not read", machine.rest.len());
            machine.build.note(NoteKind::Malformed, at, text);
        }
        PickleEnd::Stop => {}
        PickleEnd::Cut => {
            machine.build.dump.truncated = true;
            let text = format!(
                "the file ends within the dump, after {n_entries} whole entries: the process was killed while it \
                 wrote, or the file was not copied whole"
            );
            machine.build.note(NoteKind::Truncated, bytes.len(), text);
        }
        PickleEnd::Bad(why) => {
            machine.build.dump.truncated = true;
            machine.build.note(
                NoteKind::Malformed,
                at,
                format!("at byte {at}: {why}; {n_entries} entries were read"),
            );
        }
        PickleEnd::Limit(why) => {
            machine.build.dump.truncated = true;
            machine.build.note(
                NoteKind::LimitReached,
                at,
                format!("at byte {at}: {why}; {n_entries} entries were read"),
            );
        }
    }
    let (mut dump, notes, left) = machine.build.finish();
    before.known = left;
    before.lessons.end(outcome, &dump);
    dump.name_hint = build::name_hint(name);
    emit(dump, notes, sink);
}

/// Hands a dump over.
fn emit(mut dump: FlightDump, notes: Vec<(NoteKind, usize, String)>, sink: &mut Sink<'_>) {
    sink.saw(SourceKind::FlightRecorder);
    for (kind, at, text) in notes {
        let cite = sink.cite(0, at as u64, at as u64);
        sink.note(cite, kind, text);
    }
    if dump.ops.is_empty() && !dump.truncated {
        sink.note(
            Cite::whole(sink.source),
            NoteKind::Remark,
            "the dump has no entries: the recorder is off (TORCH_FR_BUFFER_SIZE, formerly \
             TORCH_NCCL_TRACE_BUFFER_SIZE, is 0) or nothing was enqueued yet"
                .into(),
        );
    }
    if dump.ops.capacity() - dump.ops.len() > dump.ops.len() / 8 {
        dump.ops.shrink_to_fit();
    }
    sink.push(Cite::whole(sink.source), Who::default(), None, Fact::Flight(Box::new(dump)), b"");
}

/// Says what a pickle is that is no dump.
fn refuse(
    machine: &PickleMachine<'_>,
    end: &PickleEnd,
    items: &[StackValue<'_>],
    is_list: bool,
    sink: &mut Sink<'_>,
) {
    sink.saw(SourceKind::Unknown);
    let keys: Vec<String> = items
        .iter()
        .step_by(2)
        .filter_map(|key| {
            if let StackValue::Str(key) = key { Some(format!("`{}`", build::text(key))) } else { None }
        })
        .take(4)
        .map(|key| key.chars().take(40).collect())
        .collect();
    let what = match machine.stack.first() {
        _ if is_list => "a list".to_owned(),
        Some(StackValue::Node(_)) if keys.is_empty() => "an empty dict".to_owned(),
        Some(StackValue::Node(_)) => format!("a dict with {}", keys.join(", ")),
        Some(StackValue::Str(_)) => "a string".to_owned(),
        Some(StackValue::Int(_) | StackValue::BigInt | StackValue::Float(_)) => "a number".to_owned(),
        _ => "nothing readable".to_owned(),
    };
    let at = machine.offset();
    let why = match end {
        PickleEnd::Stop => String::new(),
        PickleEnd::Cut => "; the file ends early".to_owned(),
        PickleEnd::Bad(why) => format!("; at byte {at}: {why}"),
        PickleEnd::Limit(why) => format!("; at byte {at}: {why}"),
    };
    let cite = sink.cite(0, at as u64, at as u64);
    sink.note(
        cite,
        NoteKind::Unrecognised,
        format!("a pickle, but no Flight Recorder dump: its top object is {what}{why}"),
    );
}

/// Takes what surrounds the entries.
fn take_top<'a>(machine: &mut PickleMachine<'a>, items: &[StackValue<'a>]) {
    for pair in items.chunks_exact(2) {
        match *pair {
            [StackValue::Str(b"version"), StackValue::Str(text)] => {
                machine.build.dump.version = build::text(text);
            }
            [StackValue::Str(b"comm_lib_version" | b"nccl_version"), StackValue::Str(text)] => {
                machine.build.dump.library_version = Some(build::text(text));
            }
            [StackValue::Str(b"pg_config"), value] => {
                let configs: Vec<_> = pairs(machine, value)
                    .map(|(key, value)| {
                        let mut config = GroupConfig { key, ..GroupConfig::default() };
                        let mut list = None;
                        for (key, value) in fields(machine, value) {
                            match (key, value) {
                                (b"name", StackValue::Str(text)) => config.name = text,
                                (b"desc", StackValue::Str(text)) => config.desc = text,
                                (b"ranks", StackValue::Str(b"")) => {}
                                (b"ranks", StackValue::Str(text)) => list = Some(text),
                                (b"ranks", list) => {
                                    let numbers = machine.items(list).iter();
                                    config.ranks =
                                        build::rank_numbers(numbers.map(|n| {
                                            if let StackValue::Int(n) = n { Some(*n) } else { None }
                                        }));
                                }
                                _ => {}
                            }
                        }
                        (config, list)
                    })
                    .collect();
                for (config, list) in configs {
                    machine.build.config(config, list);
                }
            }
            [StackValue::Str(b"pg_status"), value] => {
                let statuses: Vec<_> = pairs(machine, value)
                    .map(|(key, value)| {
                        let mut status = GroupStatus { key, ..GroupStatus::default() };
                        for (key, value) in fields(machine, value) {
                            let n = match value {
                                StackValue::Int(n) => Some(n),
                                StackValue::Str(text) => {
                                    std::str::from_utf8(text).ok().and_then(|t| t.parse().ok())
                                }
                                _ => None,
                            };
                            status.set(key, n);
                        }
                        status
                    })
                    .collect();
                machine.build.statuses.extend(statuses);
            }
            _ => {}
        }
    }
}

/// Pairs of a dict of dicts, bounded.
fn pairs<'m, 'a>(
    machine: &'m PickleMachine<'a>,
    value: StackValue<'a>,
) -> impl Iterator<Item = (&'a [u8], StackValue<'a>)> + use<'m, 'a> {
    machine.items(value).chunks_exact(2).take(build::MAX_GROUPS).filter_map(|pair| match *pair {
        [StackValue::Str(key), value] => Some((key, value)),
        _ => None,
    })
}

/// Pairs of a small dict.
fn fields<'m, 'a>(
    machine: &'m PickleMachine<'a>,
    value: StackValue<'a>,
) -> impl Iterator<Item = (&'a [u8], StackValue<'a>)> + use<'m, 'a> {
    pairs(machine, value).take(16)
}
