//! Writes Perfetto traces: slices, moments and counters on named tracks, as a stream of `TracePacket`s.
//!
//! The format is protobuf, <https://perfetto.dev/docs/reference/synthetic-track-event>; the few messages in use are
//! written by hand (field numbers: google/perfetto `protos/perfetto/trace/track_event/*.proto`). Perfetto's UI and
//! trace processor open it as it is. Names repeat, so they are interned: each is in the file once.
//!
//! Slices of one track must nest. What overlaps goes to [`Lanes`], which opens a further track of the same name;
//! Perfetto shows such tracks as one.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// A track of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrackId(u64);

/// A value beside a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentValue<'a> {
    /// Text.
    Text(&'a str),
    /// A whole number.
    Integer(i64),
    /// Any number.
    Number(f64),
}

/// One slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Name that is shown.
    pub name: &'a str,
    /// Category, for filters; empty for none.
    pub category: &'a str,
    /// Start, ns on the clock of the trace.
    pub start_ns: i64,
    /// End; not before `start_ns`. None: it has not ended, and the slice reaches to the end of the trace.
    pub end_ns: Option<i64>,
    /// More, shown when the slice is selected.
    pub arguments: &'a [(&'a str, ArgumentValue<'a>)],
}

/// A trace in the making.
pub struct TraceWriter<W> {
    out: W,
    names: [BTreeMap<Box<str>, u64>; 3],
    /// The names of the packet in the making that are new.
    fresh: Message,
    n_tracks: u64,
}

/// Lists of interned names, with their field numbers in `InternedData`.
#[derive(Clone, Copy)]
enum InternTable {
    Category = 0,
    Event = 1,
    Argument = 2,
}

/// All packets are of one sequence.
const SEQUENCE: u64 = 1;
/// Of `TracePacket.sequence_flags`: the names given so far are forgotten; the packet uses names.
const CLEARED: u64 = 1;
const NEEDS_NAMES: u64 = 2;
/// Of `BuiltinClock`.
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;

impl<W: Write> TraceWriter<W> {
    /// Begins a trace. Its times are ns since 1970, by the clock of the writer of the evidence.
    ///
    /// # Errors
    /// If `out` takes no more, as all other functions here.
    pub fn new(out: W, start_ns: i64) -> io::Result<Self> {
        let names = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        let mut writer = Self { out, names, fresh: Message::default(), n_tracks: 0 };
        // Times are of the boot clock unless said otherwise; here the two are one.
        let mut snapshot = Message::default();
        for clock in [BOOTTIME, REALTIME] {
            snapshot.message(1, Message::default().number(1, clock).number(2, unsigned(start_ns)));
        }
        snapshot.number(2, REALTIME);
        let mut packet = Message::default();
        packet.message(6, &snapshot).number(13, CLEARED).number(87, 1);
        writer.packet(packet)?;
        Ok(writer)
    }

    /// A process: the top of a tree of tracks.
    pub fn process(&mut self, pid: u32, name: &str) -> io::Result<TrackId> {
        let mut process = Message::default();
        process.number(1, u64::from(pid)).text(6, name);
        self.track(None, name, |descriptor| {
            descriptor.message(3, &process);
        })
    }

    /// A track below another, or at the top. `order` is its place among its siblings.
    pub fn child(&mut self, parent: Option<TrackId>, name: &str, order: u32) -> io::Result<TrackId> {
        self.track(parent, name, |descriptor| {
            // Children in the order of their rank.
            descriptor.number(11, 3).number(12, u64::from(order));
        })
    }

    /// A track of numbers over time. `unit` is shown with them.
    pub fn counter(&mut self, parent: Option<TrackId>, name: &str, unit: &str) -> io::Result<TrackId> {
        let mut counter = Message::default();
        counter.text(6, unit);
        self.track(parent, name, |descriptor| {
            descriptor.message(8, &counter);
        })
    }

    fn track(
        &mut self,
        parent: Option<TrackId>,
        name: &str,
        rest: impl FnOnce(&mut Message),
    ) -> io::Result<TrackId> {
        self.n_tracks += 1;
        let track = TrackId(self.n_tracks);
        let mut descriptor = Message::default();
        descriptor.number(1, track.0).text(2, name);
        if let Some(parent) = parent {
            descriptor.number(5, parent.0);
        }
        rest(&mut descriptor);
        let mut packet = Message::default();
        packet.message(60, &descriptor);
        self.packet(packet)?;
        Ok(track)
    }

    /// A slice. Those of one track must nest.
    pub fn slice(&mut self, track: TrackId, slice: &Slice<'_>) -> io::Result<()> {
        let mut event = self.event(1, track, slice.name, slice.category);
        self.arguments(&mut event, slice.arguments);
        self.at(slice.start_ns, &event)?;
        if let Some(end_ns) = slice.end_ns {
            let mut end = Message::default();
            end.number(9, 2).number(11, track.0);
            self.at(end_ns.max(slice.start_ns), &end)?;
        }
        Ok(())
    }

    /// A moment.
    pub fn moment(
        &mut self,
        track: TrackId,
        name: &str,
        at_ns: i64,
        arguments: &[(&str, ArgumentValue<'_>)],
    ) -> io::Result<()> {
        let mut event = self.event(3, track, name, "");
        self.arguments(&mut event, arguments);
        self.at(at_ns, &event)
    }

    /// A value of a counter, from now on.
    pub fn count(&mut self, counter: TrackId, at_ns: i64, value: f64) -> io::Result<()> {
        let mut event = Message::default();
        event.number(9, 4).number(11, counter.0).double(44, value);
        self.at(at_ns, &event)
    }

    /// Ends the trace.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, kind: u64, track: TrackId, name: &str, category: &str) -> Message {
        let mut event = Message::default();
        event.number(9, kind).number(11, track.0);
        event.number(10, self.interned(InternTable::Event, name));
        if !category.is_empty() {
            event.number(3, self.interned(InternTable::Category, category));
        }
        event
    }

    fn arguments(&mut self, event: &mut Message, arguments: &[(&str, ArgumentValue<'_>)]) {
        for (name, value) in arguments {
            let mut annotation = Message::default();
            annotation.number(1, self.interned(InternTable::Argument, name));
            match value {
                ArgumentValue::Text(text) => annotation.text(6, text),
                ArgumentValue::Integer(number) => annotation.number(4, unsigned(*number)),
                ArgumentValue::Number(number) => annotation.double(5, *number),
            };
            event.message(4, &annotation);
        }
    }

    /// The number of a name; a new one goes with the next packet.
    fn interned(&mut self, list: InternTable, name: &str) -> u64 {
        let Some(known) = self.names.get_mut(list as usize) else { return 0 };
        if let Some(number) = known.get(name) {
            return *number;
        }
        let number = known.len() as u64 + 1;
        known.insert(name.into(), number);
        let mut entry = Message::default();
        entry.number(1, number).text(2, name);
        self.fresh.message(list as u64 + 1, &entry);
        number
    }

    fn at(&mut self, ns: i64, event: &Message) -> io::Result<()> {
        let mut packet = Message::default();
        packet.number(8, unsigned(ns)).number(13, NEEDS_NAMES).message(11, event);
        if !self.fresh.0.is_empty() {
            packet.message(12, &std::mem::take(&mut self.fresh));
        }
        self.packet(packet)
    }

    fn packet(&mut self, mut packet: Message) -> io::Result<()> {
        packet.number(10, SEQUENCE);
        let mut framed = Message::default();
        framed.message(1, &packet);
        self.out.write_all(&framed.0)
    }
}

/// Times before 1970 count as its beginning.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Places slices that may overlap on as many tracks of one name as they need.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Each track with the end of its last slice.
    open: Vec<(TrackId, i64)>,
}

impl Lanes {
    /// Writes a slice on the first track on which it does not overlap. Slices must come in the order of their starts.
    pub fn slice<W: Write>(
        &mut self,
        writer: &mut TraceWriter<W>,
        parent: Option<TrackId>,
        name: &str,
        order: u32,
        slice: &Slice<'_>,
    ) -> io::Result<()> {
        let end = slice.end_ns.unwrap_or(i64::MAX);
        if let Some((track, last)) = self.open.iter_mut().find(|(_, last)| *last <= slice.start_ns) {
            *last = end;
            return writer.slice(*track, slice);
        }
        let track = writer.child(parent, name, order)?;
        self.open.push((track, end));
        writer.slice(track, slice)
    }
}

/// A protobuf message in the making.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u64, number: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn double(&mut self, field: u64, number: f64) -> &mut Self {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, field: u64, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(&mut self, field: u64, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Fields of a message: number and content; numbers as their varint.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut number = 0;
            for shift in (0..64).step_by(7) {
                let (first, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                number |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            number
        }
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let content = match key & 7 {
                0 => varint(&mut bytes).to_le_bytes().to_vec(),
                1 => bytes.split_off(..8).unwrap().to_vec(),
                2 => {
                    let n = varint(&mut bytes) as usize;
                    bytes.split_off(..n).unwrap().to_vec()
                }
                other => panic!("wire type {other}"),
            };
            all.push((key >> 3, content));
        }
        all
    }

    fn number(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    fn slice(name: &str, start_ns: i64, end_ns: Option<i64>) -> Slice<'_> {
        Slice {
            name,
            category: "nccl",
            start_ns,
            end_ns,
            arguments: &[("bytes", ArgumentValue::Integer(300))],
        }
    }

    #[test]
    fn a_trace_is_packets_with_names_given_once() {
        let mut writer = TraceWriter::new(Vec::new(), 5).unwrap();
        let process = writer.process(7, "rank 0").unwrap();
        let track = writer.child(Some(process), "default_pg", 1).unwrap();
        writer.slice(track, &slice("all_reduce #1", 10, Some(20))).unwrap();
        writer.slice(track, &slice("all_reduce #1", 30, None)).unwrap();
        let bytes = writer.finish().unwrap();
        let packets: Vec<_> = fields(&bytes).into_iter().map(|(field, p)| (field, fields(&p))).collect();
        assert!(packets.iter().all(|(field, p)| *field == 1 && p.iter().any(|(f, _)| *f == 10)));
        // The clock, two tracks, two slices; one has an end.
        assert_eq!(packets.len(), 1 + 2 + 3);
        let times: Vec<u64> =
            packets.iter().flat_map(|(_, p)| p).filter(|(f, _)| *f == 8).map(|(_, b)| number(b)).collect();
        assert_eq!(times, [10, 20, 30]);
        let named: Vec<_> = packets.iter().flat_map(|(_, p)| p).filter(|(f, _)| *f == 12).collect();
        assert_eq!(named.len(), 1, "each name is given once");
        let lists: Vec<u64> = fields(&named[0].1).iter().map(|(f, _)| *f).collect();
        assert_eq!(lists, [2, 1, 3]);
    }

    #[test]
    fn what_overlaps_goes_to_a_track_of_its_own() {
        let mut writer = TraceWriter::new(Vec::new(), 0).unwrap();
        let mut lanes = Lanes::default();
        for (start, end) in
            [(0, Some(10)), (5, Some(8)), (8, Some(9)), (10, None), (12, Some(13)), (20, None)]
        {
            lanes.slice(&mut writer, None, "group", 0, &slice("op", start, end)).unwrap();
        }
        assert_eq!(lanes.open.len(), 2);
    }
}
