//! XLA's profiler (JAX, TensorFlow): `xplane.pb`. One file holds the host and all of its GPUs; each GPU becomes a timeline.
//!
//! XSpace: planes 1, hostnames 4. XPlane: name 2, lines 3, event metadata 4, stat metadata 5. XLine: id 1, name 2,
//! timestamp ns 3, events 4, display name 11. XEvent: metadata id 1, offset ps 2, duration ps 3, stats 4. XStat: metadata
//! id 1, then its value.

use std::collections::BTreeMap;

use ringleader_model::{
    CommCall, DeviceWork, Fact, HostSpan, NoteKind, Recorder, RuntimeCall, SourceKind, SpanKind, StepMark,
    Timeline, Who, WorkKind,
};

use super::kinds;
use super::names::InternedNames;
use super::reach;
use super::wire::{Field, fields};
use crate::ground::Sink;

/// Largest file that is read: it is held in memory.
pub(crate) const MAX_BYTES: u64 = 2 << 30;
/// Events of one file.
const MAX_EVENTS: usize = 50_000_000;

/// Whether a file begins with a plane of XLA.
pub(crate) fn is_xplane(head: &[u8]) -> bool {
    let near = head.get(..200).unwrap_or(head);
    head.first() == Some(&0x0a)
        && [&b"/host:"[..], b"/device:", b"Task Environment"]
            .iter()
            .any(|name| memchr::memmem::find(near, name).is_some())
}

/// An event of a plane, with the stats that matter.
#[derive(Default)]
struct PlaneEvent {
    meta: u64,
    start_ps: i64,
    duration_ps: i64,
    correlation: u64,
    step: Option<u64>,
    size_bytes: u64,
    is_pageable: bool,
    is_with_host: bool,
}

/// Metadata of one plane.
#[derive(Default)]
struct Meta {
    events: BTreeMap<u64, String>,
    stats: BTreeMap<u64, String>,
}

/// Reads a file.
pub(crate) fn read(bytes: &[u8], sink: &mut Sink<'_>) {
    sink.saw(SourceKind::Timeline);
    let whole = sink.cite(0, 0, bytes.len() as u64);
    let mut planes: Vec<(&str, &[u8])> = Vec::new();
    let mut host = None;
    let mut space = fields(bytes);
    for (number, field) in &mut space {
        match number {
            1 => planes.push((name_of(field.bytes()), field.bytes())),
            4 if host.is_none() => host = Some(crate::ground::host_of(field.text())),
            _ => {}
        }
    }
    let is_damaged = !space.is_whole();
    if is_damaged {
        sink.note(
            whole,
            NoteKind::Truncated,
            "the file ends within a plane; what came before was read".to_owned(),
        );
    }
    let mut names = InternedNames::default();
    let mut host_spans = Vec::new();
    let mut steps = Vec::new();
    let mut devices: BTreeMap<u32, Vec<DeviceWork>> = BTreeMap::new();
    let mut n_events = 0;
    for (name, plane) in planes {
        if let Some(device) =
            name.strip_prefix("/device:GPU:").and_then(|rest| rest.split(' ').next()?.parse().ok())
        {
            let work = devices.entry(device).or_default();
            n_events += device_plane(plane, &mut names, work);
        } else if name.starts_with("/host:CPU") {
            n_events += host_plane(plane, &mut names, &mut host_spans, &mut steps);
        }
    }
    let names = names.into_names();
    host_spans.sort_by_key(|s: &HostSpan| (s.start_ns, std::cmp::Reverse(s.end_ns), s.thread));
    steps.sort_by_key(|s: &StepMark| (s.start_ns, s.number));
    let n_devices = devices.len() as u32;
    for (device, mut work) in devices {
        work.sort_by_key(|w| (w.start_ns, w.end_ns, w.stream));
        let mut timeline = Timeline::new(Recorder::Xla);
        for item in work.iter_mut().filter(|w| w.kind == WorkKind::Comm) {
            let name = names.get(item.name as usize).map_or("", |name| name);
            // Sizes are not in the file; all GPUs of the process take part.
            timeline.calls.push(CommCall {
                kind: kinds::op_kind(name),
                group_size: n_devices,
                ..CommCall::default()
            });
            item.call = timeline.calls.len() as u32;
        }
        timeline.work = work;
        timeline.names.clone_from(&names);
        timeline.host_spans.clone_from(&host_spans);
        timeline.steps.clone_from(&steps);
        timeline.host.clone_from(&host);
        timeline.device = Some(device);
        timeline.n_events = n_events as u64;
        timeline.is_damaged = is_damaged;
        reach::within(&mut timeline);
        let who = Who { host: host.clone(), ..Who::default() };
        sink.push(whole, who, None, Fact::Timeline(Box::new(timeline)), b"");
    }
}

fn name_of(plane: &[u8]) -> &str {
    fields(plane).find(|(number, _)| *number == 2).map_or("", |(_, field)| field.text())
}

/// Names of a plane's events and stats: maps of id to a message with id 1 and name 2.
fn meta_of(plane: &[u8]) -> Meta {
    let mut meta = Meta::default();
    for (number, field) in fields(plane) {
        let map = match number {
            4 => &mut meta.events,
            5 => &mut meta.stats,
            _ => continue,
        };
        let (mut key, mut label, mut display) = (0, "", "");
        for (number, field) in fields(field.bytes()) {
            match number {
                1 => key = field.number(),
                2 => {
                    for (number, field) in fields(field.bytes()) {
                        match number {
                            2 => label = field.text(),
                            4 => display = field.text(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let name = if display.is_empty() || map.len() > 1 << 20 { label } else { display };
        map.insert(key, name.to_owned());
    }
    meta
}

/// The events of a plane's lines: id and name of the line, and the event.
fn events(plane: &[u8], meta: &Meta, mut visit: impl FnMut(u64, &str, PlaneEvent)) -> usize {
    let mut n = 0;
    for (_, line) in fields(plane).filter(|(number, _)| *number == 3) {
        let (mut id, mut name, mut base_ns) = (0, "", 0_i64);
        for (number, field) in fields(line.bytes()) {
            match number {
                1 => id = field.number(),
                2 => name = field.text(),
                3 => base_ns = field.number() as i64,
                _ => {}
            }
        }
        for (_, event) in fields(line.bytes()).filter(|(number, _)| *number == 4) {
            n += 1;
            visit(id, name, one(event.bytes(), base_ns, meta));
            if n > MAX_EVENTS {
                return n;
            }
        }
    }
    n
}

fn one(message: &[u8], base_ns: i64, meta: &Meta) -> PlaneEvent {
    let mut event = PlaneEvent::default();
    for (number, field) in fields(message) {
        match number {
            1 => event.meta = field.number(),
            2 => event.start_ps = field.number() as i64,
            3 => event.duration_ps = (field.number() as i64).clamp(0, 1 << 53),
            4 => stat(field.bytes(), meta, &mut event),
            _ => {}
        }
    }
    // From here on in nanoseconds: picoseconds since 1970 would not fit.
    event.start_ps =
        base_ns.clamp(-(1 << 61), 1 << 61).saturating_add(event.start_ps.clamp(0, 1 << 60) / 1_000);
    event
}

fn stat(message: &[u8], meta: &Meta, event: &mut PlaneEvent) {
    let mut name = "";
    let mut value = None;
    for (number, field) in fields(message) {
        match number {
            1 => name = meta.stats.get(&field.number()).map_or("", String::as_str),
            7 => value = meta.stats.get(&field.number()).map(|text| Field::Bytes(text.as_bytes())),
            _ => value = Some(field),
        }
    }
    let Some(value) = value else { return };
    match name {
        "correlation_id" => event.correlation = value.number(),
        "step_num" => event.step = Some(value.number()),
        "memcpy_details" => {
            let text = value.text();
            let after = |word: &str| text.split_once(word).map_or("", |(_, rest)| rest);
            let size = if text.contains("num_bytes:") { after("num_bytes:") } else { after("size:") };
            let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
            event.size_bytes = digits.parse().unwrap_or(0);
            event.is_pageable = text.contains("pageable");
            event.is_with_host = text.contains("HtoD")
                || text.contains("DtoH")
                || text.contains("kind_src:pageable")
                || text.contains("kind_src:pinned")
                || text.contains("kind_dst:pinned")
                || event.is_pageable;
        }
        _ => {}
    }
}

fn device_plane(plane: &[u8], names: &mut InternedNames, work: &mut Vec<DeviceWork>) -> usize {
    let meta = meta_of(plane);
    events(plane, &meta, |_, line, event| {
        // Lines of operations and modules repeat what the streams hold.
        let Some(stream) = line.strip_prefix("Stream #") else { return };
        let digits: String = stream.chars().take_while(char::is_ascii_digit).collect();
        let label = meta.events.get(&event.meta).map_or("", String::as_str);
        let name = names.of(label.as_bytes());
        let kind = if label.starts_with("Memset") {
            WorkKind::Fill
        } else if label.starts_with("Memcpy") {
            let with_host = event.is_with_host
                || label.contains("HtoD")
                || label.contains("H2D")
                || label.contains("D2H");
            WorkKind::Copy { with_host, pageable: event.is_pageable }
        } else if names.meaning(name).is_comm {
            WorkKind::Comm
        } else {
            WorkKind::Compute
        };
        work.push(DeviceWork {
            start_ns: event.start_ps,
            end_ns: event.start_ps + event.duration_ps / 1_000,
            name,
            stream: digits.parse().unwrap_or(0),
            kind,
            correlation: event.correlation as u32,
            call: 0,
            size_bytes: event.size_bytes,
            n_blocks: 0,
        });
    })
}

fn host_plane(
    plane: &[u8],
    names: &mut InternedNames,
    spans: &mut Vec<HostSpan>,
    steps: &mut Vec<StepMark>,
) -> usize {
    let meta = meta_of(plane);
    events(plane, &meta, |thread, _, event| {
        let label = meta.events.get(&event.meta).map_or("", String::as_str);
        let (start_ns, end_ns) = (event.start_ps, event.start_ps + event.duration_ps / 1_000);
        if let Some(number) = event.step {
            steps.push(StepMark { number, start_ns, end_ns, bytes: (0, 0) });
        }
        let name = names.of(label.as_bytes());
        let call = names.meaning(name).runtime;
        let is_call = (label.starts_with("cu") || label.starts_with("hip")) && call != RuntimeCall::Other
            || label.starts_with("cuda") && event.correlation != 0;
        let kind = match label {
            _ if is_call => SpanKind::Runtime(call),
            _ if label.starts_with('$') => SpanKind::Python,
            _ if event.step.is_some() => SpanKind::Annotation,
            // What XLA and its runtime say of themselves.
            _ => SpanKind::Operator,
        };
        spans.push(HostSpan {
            start_ns,
            end_ns,
            name,
            thread: thread as u32,
            kind,
            link: event.correlation as u32,
        });
    })
}
