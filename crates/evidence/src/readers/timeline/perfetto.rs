//! Perfetto traces (protobuf) that hold what a profiler recorded: slices on tracks, with the categories and arguments that
//! PyTorch's profiler gives them. Each slice becomes an event of Chrome's format, so that both mean the same.
//!
//! Trace: packet 1. TracePacket: timestamp 8, sequence 10, track event 11, interned data 12, sequence flags 13,
//! defaults 59, track descriptor 60. TrackEvent: categories 3 (ids) and 22, arguments 4, type 9, name 10 (id) and 23,
//! track 11. Source: google/perfetto `protos/perfetto/trace/track_event`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringleader_model::{NoteKind, Recorder, SourceKind};

use super::chrome::Builder;
use super::feed::TraceEvent;
use super::wire::{Field, fields};
use crate::ground::Sink;

/// Largest file that is read: it is held in memory.
pub(crate) const MAX_BYTES: u64 = 2 << 30;
/// Slices that are open on one track.
const MAX_OPEN: usize = 1_000;
/// Tracks and interned names of one file.
const MAX_ENTRIES: usize = 1 << 20;
/// Longest argument that is kept, bytes.
const MAX_TEXT: usize = 4 << 10;

/// Whether a file begins with packets of a trace: the first that the head holds whole has a field that others lack.
pub(crate) fn is_perfetto(head: &[u8]) -> bool {
    let mut packets = fields(head);
    let Some((1, Field::Bytes(packet))) = packets.next() else { return false };
    let mut parts = fields(packet);
    let known = parts.by_ref().fold((0, true), |(signs, all), (number, field)| match (number, field) {
        (10 | 58, Field::Number(_)) => (signs + 1, all),
        (11 | 12 | 36 | 59 | 60 | 6 | 33 | 1 | 2, Field::Bytes(_)) => (signs + 1, all),
        (8 | 13 | 41 | 42 | 79 | 87, Field::Number(_)) => (signs, all),
        (3, Field::Number(_)) => (signs, all),
        (100.., _) => (signs, all),
        (_, Field::Bytes(_)) => (signs, all),
        _ => (signs, false),
    });
    packet.len() >= 4 && parts.is_whole() && known.1 && known.0 > 0 && has_sequence(head)
}

/// One of the first packets tells its sequence, as all writers of slices do.
fn has_sequence(head: &[u8]) -> bool {
    fields(head).take(8).any(|(number, packet)| {
        number == 1
            && fields(packet.bytes()).any(|(number, field)| {
                matches!((number, field), (10, Field::Number(n)) if n > 0) || number == 60 || number == 11
            })
    })
}

/// A track.
#[derive(Clone, Default)]
struct PerfettoTrack {
    parent: u64,
    name: Vec<u8>,
    pid: Option<u64>,
    tid: Option<u64>,
}

/// What the packets of one sequence share.
#[derive(Default)]
struct Sequence {
    categories: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<u64, Vec<u8>>,
    arguments: BTreeMap<u64, Vec<u8>>,
    track: u64,
}

/// A slice that has begun.
struct OpenSlice {
    start_ns: u64,
    name: Vec<u8>,
    category: Vec<u8>,
    arguments: String,
}

#[derive(Default)]
struct PerfettoReader {
    sequences: BTreeMap<u64, Sequence>,
    tracks: BTreeMap<u64, PerfettoTrack>,
    open: BTreeMap<u64, Vec<OpenSlice>>,
    builder: Builder,
    n_slices: u64,
}

/// Reads a file.
pub(crate) fn read(bytes: &[u8], sink: &mut Sink<'_>) {
    let mut reader = PerfettoReader::default();
    let mut packets = fields(bytes);
    for (number, packet) in packets.by_ref() {
        if number == 1 {
            reader.packet(packet.bytes());
        }
    }
    let is_damaged = !packets.is_whole();
    let size = bytes.len() as u64;
    if reader.n_slices == 0 {
        sink.saw(SourceKind::Unknown);
        let text = "a Perfetto trace without slices of a program: not read".to_owned();
        return sink.note(sink.cite(0, 0, size), NoteKind::Unrecognised, text);
    }
    sink.saw(SourceKind::Timeline);
    if is_damaged {
        let text = "the trace ends within a packet; what came before was read".to_owned();
        sink.note(sink.cite(0, size, size), NoteKind::Truncated, text);
    }
    reader.builder.recorder = Some(Recorder::Perfetto);
    reader.builder.finish(is_damaged, size, sink);
}

impl PerfettoReader {
    fn packet(&mut self, packet: &[u8]) {
        let (mut at_ns, mut sequence, mut flags) = (0, 0, 0);
        let (mut event, mut interned, mut defaults) = (None, None, None);
        for (number, field) in fields(packet) {
            match number {
                8 => at_ns = field.number(),
                10 => sequence = field.number(),
                11 => event = Some(field.bytes()),
                12 => interned = Some(field.bytes()),
                13 => flags = field.number(),
                59 => defaults = Some(field.bytes()),
                60 => self.track(field.bytes()),
                _ => {}
            }
        }
        if self.sequences.len() >= MAX_ENTRIES {
            return;
        }
        let shared = self.sequences.entry(sequence).or_default();
        if flags & 1 != 0 {
            *shared = Sequence::default();
        }
        if let Some(interned) = interned {
            shared.learn(interned);
        }
        for (number, field) in defaults.into_iter().flat_map(fields) {
            if number == 11 {
                let track = fields(field.bytes()).find(|(number, _)| *number == 11);
                shared.track = track.map_or(0, |(_, track)| track.number());
            }
        }
        if let Some(event) = event {
            self.event(event, at_ns, sequence);
        }
    }

    fn track(&mut self, descriptor: &[u8]) {
        let mut track = PerfettoTrack::default();
        let mut id = 0;
        for (number, field) in fields(descriptor) {
            match number {
                1 => id = field.number(),
                2 => track.name = field.bytes().to_vec(),
                5 => track.parent = field.number(),
                3 => {
                    for (number, field) in fields(field.bytes()) {
                        match number {
                            1 => track.pid = Some(field.number()),
                            6 if track.name.is_empty() => track.name = field.bytes().to_vec(),
                            _ => {}
                        }
                    }
                }
                4 => {
                    for (number, field) in fields(field.bytes()) {
                        match number {
                            1 => track.pid = Some(field.number()),
                            2 => track.tid = Some(field.number()),
                            5 if track.name.is_empty() => track.name = field.bytes().to_vec(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if self.tracks.len() < MAX_ENTRIES {
            self.tracks.insert(id, track);
        }
    }

    fn event(&mut self, event: &[u8], at_ns: u64, sequence: u64) {
        let Some(shared) = self.sequences.get(&sequence) else { return };
        let (mut kind, mut track) = (0, shared.track);
        let mut slice =
            OpenSlice { start_ns: at_ns, name: Vec::new(), category: Vec::new(), arguments: String::new() };
        for (number, field) in fields(event) {
            match number {
                9 => kind = field.number(),
                11 => track = field.number(),
                3 => slice.category = shared.categories.get(&field.number()).cloned().unwrap_or_default(),
                22 => slice.category = field.bytes().to_vec(),
                10 => slice.name = shared.names.get(&field.number()).cloned().unwrap_or_default(),
                23 => slice.name = field.bytes().to_vec(),
                4 => argument(field.bytes(), &shared.arguments, &mut slice.arguments),
                _ => {}
            }
        }
        if self.open.len() >= MAX_ENTRIES {
            return;
        }
        let open = self.open.entry(track).or_default();
        match kind {
            1 if open.len() < MAX_OPEN => open.push(slice),
            2 => {
                if let Some(slice) = open.pop() {
                    self.close(&slice, at_ns, track);
                }
            }
            _ => {}
        }
    }

    /// A slice has ended: it is an event.
    fn close(&mut self, slice: &OpenSlice, end_ns: u64, track: u64) {
        let found = self.tracks.get(&track).cloned().unwrap_or_default();
        let parent = self.tracks.get(&found.parent).cloned().unwrap_or_default();
        let number =
            |given: Option<u64>, name: &[u8]| given.or_else(|| digits(name)).unwrap_or(0).to_string();
        let pid = number(found.pid.or(parent.pid), &parent.name);
        // A stream's track has its number in its name.
        let tid = number(found.tid, &found.name);
        let micros = |ns: u64| format!("{}.{:03}", ns / 1_000, ns % 1_000);
        let arguments = format!("{{{}}}", slice.arguments);
        self.n_slices += 1;
        self.builder.event(&TraceEvent {
            phase: b'X',
            category: &slice.category,
            name: &slice.name,
            pid: pid.as_bytes(),
            tid: tid.as_bytes(),
            id: b"",
            start: micros(slice.start_ns).as_bytes(),
            duration: micros(end_ns.saturating_sub(slice.start_ns)).as_bytes(),
            args: arguments.as_bytes(),
            is_mended: false,
            bytes: (0, 0),
        });
    }
}

impl Sequence {
    fn learn(&mut self, interned: &[u8]) {
        for (number, field) in fields(interned) {
            let names = match number {
                1 => &mut self.categories,
                2 => &mut self.names,
                3 => &mut self.arguments,
                _ => continue,
            };
            let (mut id, mut name) = (0, Vec::new());
            for (number, field) in fields(field.bytes()) {
                match number {
                    1 => id = field.number(),
                    2 => name = field.bytes().to_vec(),
                    _ => {}
                }
            }
            if names.len() < MAX_ENTRIES {
                names.insert(id, name);
            }
        }
    }
}

/// The first number in a name: `stream 7`.
fn digits(name: &[u8]) -> Option<u64> {
    let from = name.iter().position(u8::is_ascii_digit)?;
    let digits = name.get(from..)?.iter().take_while(|b| b.is_ascii_digit());
    Some(digits.fold(0_u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b - b'0'))))
}

/// Adds an argument as JSON.
fn argument(message: &[u8], names: &BTreeMap<u64, Vec<u8>>, out: &mut String) {
    let mut name: Vec<u8> = Vec::new();
    let mut value = String::new();
    for (number, field) in fields(message) {
        match number {
            1 => name = names.get(&field.number()).cloned().unwrap_or_default(),
            10 => name = field.bytes().to_vec(),
            2 | 3 => value = field.number().to_string(),
            4 => value = field.number().cast_signed().to_string(),
            5 => {
                if let Field::Double(number) = field {
                    value = format!("{number}");
                }
            }
            6 => value = quoted(field.bytes()),
            _ => {}
        }
    }
    if !name.is_empty() && !value.is_empty() {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{}:{value}", quoted(&name));
    }
}

/// As a string of JSON; an array or object in it stays one, as text.
fn quoted(text: &[u8]) -> String {
    let text = crate::ground::lossy(text.get(..MAX_TEXT).unwrap_or(text));
    serde_json::Value::from(text.as_ref()).to_string()
}
