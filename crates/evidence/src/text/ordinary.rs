//! Ordinary lines: those that no reader wants, that report no failure and are in no table, whatever their numbers are.
//! Nearly all output of a training job is such lines, and they differ in their numbers alone.
//!
//! ```text
//! [rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4
//! [rank0]: [0000-00-00 00:00:00,000] [INFO] [train.py:000] step 000 loss 0.00 lr 0.0e-0      its shape
//! ```
//! A line's **shape** is the line with each digit made a 0. Whether a line is ordinary follows from its shape alone
//! ([`may_matter`]); shapes that recur are kept, so that of most lines only the shape is made and compared, byte for
//! byte. The searches of the tables and the [`Wants`](crate::ground::Wants) of the readers are blind to digits, too:
//! where a word of theirs has one, any other in its place leads to the line as well. So nothing is lost that reading
//! each line finds; tests compare both.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use ringleader_knowledge::form::Level;
use ringleader_knowledge::progress::StepPlan;
use ringleader_knowledge::{form, message, sign};

use super::genre::{Counts, Genre};
use super::json;
use super::prefix::Stripper;
use crate::ground::{Line, Tag, Wants};
use crate::readers;

/// Bytes of a line within which an object begins, if it is one.
const MAX_PREFIX_BYTES: usize = 256;
/// Longest line whose shape is kept.
const MAX_SHAPE_BYTES: usize = 768;
/// Longest line that may be ordinary: readers look at no more of it.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Shapes that are kept at a time. A power of two.
const N_SLOTS: usize = 1 << 12;
/// Slots of the table that a shape may take.
const N_WAYS: usize = 2;

/// What an ordinary line may show all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ordinary {
    /// Where its step is.
    pub(super) body: Body,
    /// It begins with a label; the body if that is a launcher's.
    pub(super) labelled: Option<Box<Body>>,
    /// What it counts for as a line of a document, if it is no sign of a log.
    pub(super) counts: Option<Counts>,
}

impl Ordinary {
    /// The body after this many bytes.
    pub(super) fn body_behind(&self, n_prefix: usize) -> Option<&Body> {
        [Some(&self.body), self.labelled.as_deref()]
            .into_iter()
            .flatten()
            .find(|body| body.n_prefix == n_prefix)
    }

    /// Whether it may show a step.
    #[inline]
    pub(super) fn shows(&self) -> bool {
        self.body.plan.is_some() || self.labelled.as_ref().is_some_and(|body| body.plan.is_some())
    }
}

/// What follows the prefixes of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// Bytes before it.
    pub(super) n_prefix: usize,
    /// Where its step is, if it has one.
    pub(super) plan: Option<Box<StepPlan>>,
}

/// Shapes of lines that were seen.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    slots: Vec<LineSlot>,
    /// The shape of the line at hand.
    shape: Vec<u8>,
}

#[derive(Debug, Default)]
struct LineSlot {
    hash: u64,
    /// None until the shape recurs.
    shape: Option<Box<[u8]>>,
    what: What,
}

/// What is known of a line.
#[derive(Clone, Debug, Default)]
pub(super) enum What {
    /// It may matter.
    #[default]
    Wanted,
    /// It is ordinary.
    Ordinary(Ordinary),
    /// It is ordinary, but what it shows must be looked at each time.
    Unplanned,
}

impl Shapes {
    /// Whether a line is ordinary.
    #[inline]
    pub(super) fn look(&mut self, line: &[u8]) -> &What {
        if line.len() > MAX_LINE_BYTES {
            return &What::Wanted;
        }
        self.shape.clear();
        self.shape.extend(line.iter().map(|b| if b.is_ascii_digit() { b'0' } else { *b }));
        if memchr::memchr(b'\\', line).is_some() {
            keep_escapes(line, &mut self.shape);
        }
        if line.len() > MAX_SHAPE_BYTES {
            return if may_matter(line, &self.shape) { &What::Wanted } else { &What::Unplanned };
        }
        if self.slots.is_empty() {
            self.slots.resize_with(N_SLOTS, LineSlot::default);
        }
        let hash = hash_of(&self.shape);
        let first = hash as usize & (N_SLOTS - N_WAYS);
        let ways = self.slots.get(first..first + N_WAYS).unwrap_or_default();
        let at = ways.iter().position(|slot| slot.hash == hash);
        if let Some(at) = at.map(|at| first + at)
            && self.slots.get(at).is_some_and(|slot| slot.shape.as_deref() == Some(&self.shape))
        {
            return self.slots.get(at).map_or(&What::Wanted, |slot| &slot.what);
        }
        self.learn(line, hash, at.map(|at| first + at), first)
    }

    /// A shape that is not kept: keeps its hash the first time, the shape itself the second time.
    #[cold]
    fn learn(&mut self, line: &[u8], hash: u64, known: Option<usize>, first: usize) -> &What {
        let Some(at) = known else {
            // Later ones go before earlier ones.
            if let Some(ways) = self.slots.get_mut(first..first + N_WAYS) {
                ways.rotate_right(1);
                if let Some(slot) = ways.first_mut() {
                    *slot = LineSlot { hash, ..LineSlot::default() };
                }
            }
            return if may_matter(line, &self.shape) { &What::Wanted } else { &What::Unplanned };
        };
        let what = if may_matter(line, &self.shape) { What::Wanted } else { ordinary(line) };
        let Some(slot) = self.slots.get_mut(at) else { return &What::Wanted };
        *slot = LineSlot { hash, shape: Some(self.shape.as_slice().into()), what };
        &slot.what
    }
}

/// Puts the digits of `\u00e9` back: they are a letter's.
fn keep_escapes(line: &[u8], shape: &mut [u8]) {
    for at in memchr::memmem::find_iter(line, b"\\u") {
        let digits = at + 2..at + 6;
        if let (Some(kept), Some(digits)) = (shape.get_mut(digits.clone()), line.get(digits)) {
            kept.copy_from_slice(digits);
        }
    }
}

/// What lines like this ordinary one may show.
fn ordinary(raw: &[u8]) -> What {
    let mut stripper = Stripper::default();
    let mut tag = Tag::default();
    let body = stripper.strip(raw, &mut tag);
    let line = Line { raw, body, tag: &tag, number: 0, offset: 0, size: 0 };
    // An object of a structured log is the sign of one.
    let counts = Genre::counts_of(&line).filter(|_| !json::begins(body));
    let Some(plain) = body_of(raw, body) else { return What::Unplanned };
    let mut labelled = None;
    if stripper.saw_label() {
        let mut n_prefix = 0;
        Stripper::default().each_rest(raw, &mut |n| {
            n_prefix = n;
            false
        });
        labelled = body_of(raw, raw.get(n_prefix..).unwrap_or_default()).map(Box::new);
        if labelled.is_none() {
            return What::Unplanned;
        }
    }
    What::Ordinary(Ordinary { body: plain, labelled, counts })
}

/// Where the step of a body is; None if lines like it must be looked at each time.
fn body_of(raw: &[u8], body: &[u8]) -> Option<Body> {
    let plan = StepPlan::of(std::str::from_utf8(body).ok()?)?;
    Some(Body { n_prefix: raw.len() - body.len(), plan: plan.shows().then(|| Box::new(plan)) })
}

/// The words of all readers, their digits made 0.
static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = readers::wants().flat_map(|wants| (wants.words)());
    let mut words: Vec<Vec<u8>> = words.map(|word| word.bytes().map(blind).collect()).collect();
    words.sort_unstable();
    words.dedup();
    // Nearly all places of nearly all lines are no word's: what counts is the way from byte to byte.
    AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).prefilter(false).build(words).ok()
});

/// What the readers' lines begin like.
static BEGINNINGS: LazyLock<Vec<Wants>> = LazyLock::new(|| readers::wants().collect());

fn blind(byte: u8) -> u8 {
    if byte.is_ascii_digit() { b'0' } else { byte }
}

/// Whether a reader or a table may want a line of this shape, or the text within it if it is an object.
fn may_matter(line: &[u8], shape: &[u8]) -> bool {
    let packed = memchr::memchr(b'{', line.get(..MAX_PREFIX_BYTES).unwrap_or(line));
    let record = packed.and_then(|_| json::unpack(Stripper::default().strip(line, &mut Tag::default())));
    match record {
        // What a number means as a level, it alone tells.
        Some(record) if record.is_numbered || record.level.is_some_and(|level| level >= Level::Error) => true,
        Some(record) => record.lines.iter().any(|text| {
            // Labels are counted where they are.
            let mut stripper = Stripper::default();
            stripper.strip(text.as_bytes(), &mut Tag::default());
            if stripper.saw_label() {
                return true;
            }
            let shape: Vec<u8> = text.bytes().map(blind).collect();
            text_may_matter(text.as_bytes(), &shape)
        }),
        None => text_may_matter(line, shape),
    }
}

fn text_may_matter(line: &[u8], shape: &[u8]) -> bool {
    if form::wanted_blind_in_line(shape) || message::wanted_blind(shape) || sign::wanted_blind(shape) {
        return true;
    }
    if WORDS.as_ref().is_none_or(|words| words.is_match(shape)) {
        return true;
    }
    let mut begins = |n_prefix: usize| {
        let rest = shape.get(n_prefix..).unwrap_or_default();
        BEGINNINGS.iter().any(|wants| (wants.begins)(rest))
    };
    begins(0) || Stripper::default().each_rest(line, &mut begins)
}

/// A hash of a shape, eight bytes at a time in two lanes.
#[inline]
fn hash_of(shape: &[u8]) -> u64 {
    const K: u64 = 0x9E37_79B9_7F4A_7C15;
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let (mut a, mut b) = (shape.len() as u64, K);
    let mut pairs = shape.chunks_exact(16);
    for pair in &mut pairs {
        let (first, second) = pair.split_at(8);
        a = (a.rotate_left(23) ^ word(first)).wrapping_mul(K);
        b = (b.rotate_left(29) ^ word(second)).wrapping_mul(K);
    }
    let mut tail = [0_u8; 16];
    for (to, from) in tail.iter_mut().zip(pairs.remainder()) {
        *to = *from;
    }
    let (first, second) = tail.split_at(8);
    a = (a.rotate_left(23) ^ word(first)).wrapping_mul(K);
    b = (b.rotate_left(29) ^ word(second)).wrapping_mul(K);
    let hash = (a ^ b.rotate_left(32)).wrapping_mul(K);
    (hash ^ hash >> 32).max(1)
}

#[cfg(test)]
#[path = "ordinary_tests.rs"]
mod tests;
