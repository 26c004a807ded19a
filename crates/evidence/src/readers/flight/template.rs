//! Entries recognised as a whole.
//!
//! A training step issues the same calls from the same places, so an entry is one that was seen before but for its
//! numbers and times, which even keep their width and place. A template is such an entry and a mask of its fixed
//! bytes: holding an entry against it is a pass of 16 bytes at a time without a branch.

use ringleader_model::FlightOp;

use super::build;
use super::memo::Keyword;
use crate::ground::intern::{Index, hash_of};

/// Fields whose value differs from entry to entry; all others are in a template.
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
    pub(super) fn of(word: Keyword) -> Option<Self> {
        Some(match word {
            Keyword::OpId => Self::OpId,
            Keyword::RecordId => Self::RecordId,
            Keyword::Seq => Self::Seq,
            Keyword::P2pSeq => Self::P2pSeq,
            Keyword::Created => Self::Created,
            Keyword::Started => Self::Started,
            Keyword::Completed => Self::Completed,
            Keyword::Duration => Self::Duration,
            _ => return None,
        })
    }
}

/// Where in an entry a varying value is, opcode included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueSpan {
    pub(super) field: Varying,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Where a number is: the last bytes of the eight before `end`.
#[derive(Clone, Copy, Debug)]
struct NumberSlot {
    end: u32,
    shift: u32,
    keep: i64,
}

impl NumberSlot {
    /// Reads as 0.
    const ABSENT: Self = Self { end: 8, shift: 0, keep: 0 };

    /// The number at that place in `entry`, and how many of its bytes vary.
    fn of(entry: &[u8], span: ValueSpan) -> Option<(Self, u32)> {
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

/// An entry with everything known but the varying values.
#[derive(Debug)]
pub(super) struct Template {
    /// Where the entry is in the dump that it was learned from.
    at: u32,
    /// As long as the entry; 0 at varying values.
    mask: Box<[u8]>,
    record_id: NumberSlot,
    seq: NumberSlot,
    p2p_seq: NumberSlot,
    created: NumberSlot,
    started: NumberSlot,
    completed: NumberSlot,
    /// End of the duration, a float; 0 = none.
    duration_end: u32,
    op: FlightOp,
    /// The templates that came after it the last two times.
    pub(super) next: [u32; 2],
}

impl Template {
    pub(super) fn new(at: usize, entry: &[u8], spans: &[ValueSpan], op: &FlightOp) -> Option<Self> {
        let mut template = Self {
            at: u32::try_from(at).ok()?,
            mask: vec![0xff; entry.len()].into(),
            record_id: NumberSlot::ABSENT,
            seq: NumberSlot::ABSENT,
            p2p_seq: NumberSlot::ABSENT,
            created: NumberSlot::ABSENT,
            started: NumberSlot::ABSENT,
            completed: NumberSlot::ABSENT,
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
                let (number, n_bytes) = NumberSlot::of(entry, *span)?;
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

    /// The entry as it was learned, from its dump.
    #[inline]
    pub(super) fn entry<'h>(&self, home: &'h [u8]) -> Option<&'h [u8]> {
        home.get(self.at as usize..)?.get(..self.mask.len())
    }

    /// The entry that `bytes` begin with, if it is of this kind, and what follows. `home` is the dump that the template
    /// was learned from.
    #[inline]
    pub(super) fn split<'a>(&self, home: &[u8], bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (entry, rest) = bytes.split_at_checked(self.mask.len())?;
        (matches!(rest.first(), Some(b'}' | b'e')) && is_same(entry, self.entry(home)?, &self.mask))
            .then_some((entry, rest))
    }

    /// Adds the operation of an entry of this kind.
    ///
    /// It is written where it stays: moved there afterwards, it would be read before its parts have left the processor.
    #[inline]
    pub(super) fn push(&self, entry: &[u8], ops: &mut Vec<FlightOp>) -> Option<()> {
        let record_id = build::count(self.record_id.read(entry)?);
        let seq = build::count(self.seq.read(entry)?);
        let p2p_seq = build::count(self.p2p_seq.read(entry)?);
        let created_ns = self.created.read(entry)?;
        let started_ns = self.started.read(entry)?;
        let completed_ns = self.completed.read(entry)?;
        let duration = match self.duration_end {
            0 => None,
            end => Some(f64::from_be_bytes(*entry.get(..end as usize)?.last_chunk::<8>()?)),
        };
        ops.push(self.op);
        let op = ops.last_mut()?;
        op.record_id = record_id;
        op.seq = seq;
        op.p2p_seq = p2p_seq;
        op.created_ns = created_ns;
        op.started_ns = started_ns;
        op.completed_ns = completed_ns;
        if let Some(ms) = duration {
            op.duration_us = build::duration_us(ms);
        }
        Some(())
    }
}

impl Template {
    /// Writes the fixed bytes of an entry, zeros between them.
    pub(super) fn fix(&self, entry: &[u8], fixed: &mut Vec<u8>) {
        fixed.clear();
        fixed.extend(entry.iter().zip(&self.mask).map(|(byte, mask)| byte & mask));
    }

    fn is_like(&self, home: &[u8], other: &Self, fixed: &[u8]) -> bool {
        self.mask == other.mask && self.entry(home).is_some_and(|entry| is_same(entry, fixed, &self.mask))
    }
}

/// Whether two byte strings of one length are the same where the mask is set.
#[inline]
fn is_same(a: &[u8], b: &[u8], mask: &[u8]) -> bool {
    // Two halves side by side, which processors take as one.
    let halves = |bytes: &[u8; 16]| {
        let word = u128::from_le_bytes(*bytes);
        [word as u64, (word >> 64) as u64]
    };
    let mut difference = [0_u64; 2];
    let mut differ = |a: &[u8; 16], b: &[u8; 16], mask: &[u8; 16]| {
        let ([a0, a1], [b0, b1], [mask0, mask1]) = (halves(a), halves(b), halves(mask));
        let [low, high] = &mut difference;
        *low |= (a0 ^ b0) & mask0;
        *high |= (a1 ^ b1) & mask1;
    };
    let (a_chunks, a_rest) = a.as_chunks::<16>();
    let (b_chunks, b_rest) = b.as_chunks::<16>();
    let (mask_chunks, mask_rest) = mask.as_chunks::<16>();
    for ((a, b), mask) in a_chunks.iter().zip(b_chunks).zip(mask_chunks) {
        differ(a, b, mask);
    }
    let mut rest = 0;
    if let (Some(a), Some(b), Some(mask)) = (a.last_chunk(), b.last_chunk(), mask.last_chunk()) {
        // The last sixteen overlap those before.
        differ(a, b, mask);
    } else {
        let pairs = a_rest.iter().zip(b_rest).zip(mask_rest);
        rest = pairs.map(|((a, b), mask)| (a ^ b) & mask).fold(0, |x, y| x | y);
    }
    difference == [0, 0] && rest == 0 && a.len() == b.len()
}

/// Templates of the entries that were read.
#[derive(Debug, Default)]
pub(super) struct Templates {
    pub(super) list: Vec<Template>,
    index: Index,
    /// The template of the entry before.
    last: Option<u32>,
}

impl Templates {
    /// Reads an entry if it is of a kind that came next before; answers with what follows.
    #[inline]
    pub(super) fn read<'a>(
        &mut self,
        home: &[u8],
        bytes: &'a [u8],
        ops: &mut Vec<FlightOp>,
    ) -> Option<&'a [u8]> {
        for place in self.list.get(self.last? as usize)?.next {
            let template = self.list.get(place as usize)?;
            if let Some((entry, rest)) = template.split(home, bytes) {
                template.push(entry, ops)?;
                self.follow(place);
                return Some(rest);
            }
        }
        None
    }

    /// Place of the template that is as this one. `fixed` are the fixed bytes of its entry.
    pub(super) fn find(&self, home: &[u8], template: &Template, fixed: &[u8]) -> Option<u32> {
        let list = &self.list;
        self.index.find(hash_of(fixed), |at| {
            list.get(at as usize).is_some_and(|t| t.is_like(home, template, fixed))
        })
    }

    /// Learns an entry that was read, and that it came after the last one. Whether it is new.
    pub(super) fn learn(&mut self, home: &[u8], template: Template, fixed: &[u8]) -> bool {
        if self.list.len() >= MAX_TEMPLATES {
            return false;
        }
        let list = &self.list;
        let next = list.len() as u32;
        let place = self.index.place(hash_of(fixed), next, |at| {
            list.get(at as usize).is_some_and(|t| t.is_like(home, &template, fixed))
        });
        if place == next {
            self.list.push(template);
        }
        self.follow(place);
        place == next
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
