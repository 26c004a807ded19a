//! Entries recognised as a whole.
//!
//! A training step issues the same calls from the same places, so an entry is one that was seen before but for its
//! numbers and times, which even keep their width and place. A template is such an entry and a mask of its fixed
//! bytes: holding an entry against it is a pass of 16 bytes at a time without a branch.

use ringleader_model::FlightOp;

use super::build;
use super::memo::Word;
use crate::intern::{Index, hash_of};

/// Fields whose value differs from entry to entry; all others stand in a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Varying {
    #[default]
    OpId,
    RecordId,
    Seq,
    P2pSeq,
    Created,
    Started,
    Completed,
    Duration,
}

/// Kinds of [`Varying`].
pub(super) const MAX_VARYING: usize = 8;
/// Templates of one dump; a step of training has a few hundred operations.
const MAX_TEMPLATES: usize = 1 << 12;

impl Varying {
    pub(super) fn of(word: Word) -> Option<Self> {
        Some(match word {
            Word::OpId => Self::OpId,
            Word::RecordId => Self::RecordId,
            Word::Seq => Self::Seq,
            Word::P2pSeq => Self::P2pSeq,
            Word::Created => Self::Created,
            Word::Started => Self::Started,
            Word::Completed => Self::Completed,
            Word::Duration => Self::Duration,
            _ => return None,
        })
    }
}

/// Where in an entry a varying value stands, opcode included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) field: Varying,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Where a number stands: the last bytes of the eight before `end`.
#[derive(Clone, Copy, Debug)]
struct Number {
    end: u32,
    shift: u32,
    keep: i64,
}

impl Number {
    /// Reads as 0.
    const ABSENT: Self = Self { end: 8, shift: 0, keep: 0 };

    /// The number that stands there as `entry` is written, and how many of its bytes vary.
    fn of(entry: &[u8], span: Span) -> Option<(Self, u32)> {
        let value = entry.get(span.from as usize..span.to as usize)?;
        let (n_bytes, keep) = match value {
            [b'N'] => return Some((Self::ABSENT, 0)),
            [b'K', _] => (1, 0xff),
            [b'M', _, _] => (2, 0xffff),
            [b'J', _, _, _, _] => (4, -1),
            [0x8a, 8, rest @ ..] if rest.len() == 8 => (8, -1),
            _ => return None,
        };
        (span.to >= 8).then_some((Self { end: span.to, shift: 64 - 8 * n_bytes, keep }, n_bytes))
    }

    #[inline]
    fn read(self, entry: &[u8]) -> Option<i64> {
        let word = entry.get(..self.end as usize)?.last_chunk::<8>()?;
        Some((i64::from_le_bytes(*word) >> self.shift) & self.keep)
    }
}

/// An entry of which all is known but the varying values.
struct Template<'a> {
    entry: &'a [u8],
    /// As long as `entry`; 0 where a varying value stands.
    mask: Box<[u8]>,
    record_id: Number,
    seq: Number,
    p2p_seq: Number,
    created: Number,
    started: Number,
    completed: Number,
    /// End of the duration, a float; 0 = none.
    duration_end: u32,
    op: FlightOp,
    /// The templates that came after it the last two times.
    next: [u32; 2],
}

impl<'a> Template<'a> {
    fn new(entry: &'a [u8], spans: &[Span], op: &FlightOp) -> Option<Self> {
        let mut template = Self {
            entry,
            mask: vec![0xff; entry.len()].into(),
            record_id: Number::ABSENT,
            seq: Number::ABSENT,
            p2p_seq: Number::ABSENT,
            created: Number::ABSENT,
            started: Number::ABSENT,
            completed: Number::ABSENT,
            duration_end: 0,
            op: *op,
            next: [u32::MAX; 2],
        };
        for span in spans {
            let n_bytes = if span.field == Varying::Duration {
                if entry.get(span.from as usize) != Some(&b'G') {
                    continue;
                }
                template.duration_end = span.to;
                8
            } else {
                let (number, n_bytes) = Number::of(entry, *span)?;
                match span.field {
                    Varying::RecordId => template.record_id = number,
                    Varying::Seq => template.seq = number,
                    Varying::P2pSeq => template.p2p_seq = number,
                    Varying::Created => template.created = number,
                    Varying::Started => template.started = number,
                    Varying::Completed => template.completed = number,
                    Varying::OpId | Varying::Duration => {}
                }
                n_bytes
            };
            template.mask.get_mut((span.to - n_bytes) as usize..span.to as usize)?.fill(0);
        }
        Some(template)
    }

    /// The operation if `bytes` begin with an entry of this kind, and what follows.
    #[inline]
    fn read(&self, bytes: &'a [u8]) -> Option<(FlightOp, &'a [u8])> {
        let (entry, rest) = bytes.split_at_checked(self.entry.len())?;
        if !matches!(rest.first(), Some(b'}' | b'e')) || !is_same(entry, self.entry, &self.mask) {
            return None;
        }
        let mut op = FlightOp {
            record_id: build::count(self.record_id.read(entry)?),
            seq: build::count(self.seq.read(entry)?),
            p2p_seq: build::count(self.p2p_seq.read(entry)?),
            created_ns: self.created.read(entry)?,
            started_ns: self.started.read(entry)?,
            completed_ns: self.completed.read(entry)?,
            ..self.op
        };
        if self.duration_end != 0 {
            let digits = entry.get(..self.duration_end as usize)?.last_chunk::<8>()?;
            op.duration_us = build::duration_us(f64::from_be_bytes(*digits));
        }
        Some((op, rest))
    }
}

/// Whether two byte strings of one length are the same where the mask is set.
#[inline]
fn is_same(a: &[u8], b: &[u8], mask: &[u8]) -> bool {
    let differ = |a: &[u8; 16], b: &[u8; 16], mask: &[u8; 16]| {
        let word = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes);
        (word(a) ^ word(b)) & word(mask)
    };
    let (a_chunks, a_rest) = a.as_chunks::<16>();
    let (b_chunks, b_rest) = b.as_chunks::<16>();
    let (mask_chunks, mask_rest) = mask.as_chunks::<16>();
    let mut difference = 0;
    for ((a, b), mask) in a_chunks.iter().zip(b_chunks).zip(mask_chunks) {
        difference |= differ(a, b, mask);
    }
    if let (Some(a), Some(b), Some(mask)) = (a.last_chunk(), b.last_chunk(), mask.last_chunk()) {
        // The last sixteen overlap those before.
        difference |= differ(a, b, mask);
    } else {
        let pairs = a_rest.iter().zip(b_rest).zip(mask_rest);
        difference |= pairs.map(|((a, b), mask)| u128::from((a ^ b) & mask)).fold(0, |x, y| x | y);
    }
    difference == 0 && a.len() == b.len()
}

/// Templates of the entries that were read.
#[derive(Default)]
pub(super) struct Templates<'a> {
    list: Vec<Template<'a>>,
    index: Index,
    /// The template of the entry before.
    last: Option<u32>,
    /// Scratch: fixed bytes of an entry.
    fixed: Vec<u8>,
}

impl<'a> Templates<'a> {
    /// Reads an entry if it is of a kind that came next before.
    #[inline]
    pub(super) fn read(&mut self, bytes: &'a [u8]) -> Option<(FlightOp, &'a [u8])> {
        let [first, second] = self.list.get(self.last? as usize)?.next;
        let found = self.list.get(first as usize)?.read(bytes);
        if found.is_some() {
            self.last = Some(first);
            return found;
        }
        let found = self.list.get(second as usize)?.read(bytes);
        if found.is_some() {
            self.follow(second);
        }
        found
    }

    /// Learns an entry that was read, and that it came after the last one.
    pub(super) fn learn(&mut self, entry: &'a [u8], varying: &[Span], op: &FlightOp) {
        if self.list.len() >= MAX_TEMPLATES {
            return;
        }
        let Some(template) = Template::new(entry, varying, op) else { return self.forget_last() };
        self.fixed.clear();
        self.fixed.extend(entry.iter().zip(&template.mask).map(|(byte, mask)| byte & mask));
        let (list, fixed) = (&self.list, &self.fixed);
        let place = self.index.place(hash_of(fixed.as_slice()), list.len() as u32, |at| {
            list.get(at as usize).is_some_and(|t| t.mask == template.mask && is_same(t.entry, fixed, &t.mask))
        });
        if place as usize == self.list.len() {
            self.list.push(template);
        }
        self.follow(place);
    }

    fn follow(&mut self, place: u32) {
        if let Some(last) = self.last.and_then(|at| self.list.get_mut(at as usize)) {
            let [first, _] = last.next;
            if first != place {
                last.next = [place, first];
            }
        }
        self.last = Some(place);
    }

    /// The entry that was read last taught nothing.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }
}
