//! The state of the pickle machine. What it does is in `pickle`, `entry` and `follow`.

use super::build::{Build, OverBudget};
use super::known::CarriedOver;
use super::learned::Learned;
use super::lesson::{Capture, Follower, Lessons};
use super::memo::{Memo, StackValue};

/// A container. Dicts alternate keys and values.
#[derive(Debug)]
pub(super) enum PickleContainer<'a> {
    List(Vec<StackValue<'a>>),
    Tuple(Vec<StackValue<'a>>),
    Dict(Vec<StackValue<'a>>),
}

impl<'a> PickleContainer<'a> {
    pub(super) fn items(&self) -> &[StackValue<'a>] {
        match self {
            Self::List(items) | Self::Tuple(items) | Self::Dict(items) => items,
        }
    }

    pub(super) fn items_mut(&mut self) -> &mut Vec<StackValue<'a>> {
        match self {
            Self::List(items) | Self::Tuple(items) | Self::Dict(items) => items,
        }
    }
}

/// How reading ended.
#[derive(Debug, PartialEq)]
pub(super) enum PickleEnd {
    /// At STOP.
    Stop,
    /// The file ends first.
    Cut,
    /// Something that is no plain data, or no pickle.
    Bad(String),
    /// A bound was reached.
    Limit(&'static str),
}

impl From<OverBudget> for PickleEnd {
    fn from(_: OverBudget) -> Self {
        Self::Limit("the dump expands to far more than its size")
    }
}

/// The machine.
pub(super) struct PickleMachine<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) rest: &'a [u8],
    pub(super) stack: Vec<StackValue<'a>>,
    pub(super) marks: Vec<usize>,
    pub(super) memo: Memo<'a>,
    pub(super) nodes: Vec<PickleContainer<'a>>,
    /// Values in `nodes`, about.
    pub(super) n_kept: usize,
    /// Nodes below this are in the memo, or around the entries, and stay.
    pub(super) n_pinned: usize,
    /// Where on the stack the list of entries is.
    pub(super) entries_at: Option<usize>,
    /// The last opcode closed a dict.
    pub(super) is_closed: bool,
    pub(super) learned: Learned<'a>,
    /// What dumps before have taught; taken at the first entry.
    pub(super) lessons: Option<&'a Lessons>,
    pub(super) follower: Option<Follower<'a>>,
    /// Entries that were read as a lesson has them; None if there was no lesson.
    pub(super) n_followed: Option<usize>,
    pub(super) capture: Option<Capture>,
    pub(super) build: Build<'a>,
}

impl<'a> PickleMachine<'a> {
    pub(super) fn new(bytes: &'a [u8], known: CarriedOver, lessons: &'a Lessons) -> Self {
        Self {
            bytes,
            rest: bytes,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            nodes: Vec::new(),
            n_kept: 0,
            n_pinned: 0,
            entries_at: None,
            is_closed: false,
            learned: Learned::default(),
            lessons: Some(lessons),
            follower: None,
            n_followed: None,
            capture: None,
            build: Build::new(bytes.len(), known),
        }
    }

    /// Byte offset of what is read next.
    pub(super) fn offset(&self) -> usize {
        self.bytes.len() - self.rest.len()
    }
}

/// A little-endian two's complement number.
pub(super) fn long(digits: &[u8]) -> StackValue<'static> {
    let sign = if digits.last().is_some_and(|d| *d >= 0x80) { 0xff } else { 0 };
    let (low, high) = digits.split_at_checked(8).unwrap_or((digits, &[]));
    let mut word = [sign; 8];
    for (to, from) in word.iter_mut().zip(low) {
        *to = *from;
    }
    let n = i64::from_le_bytes(word);
    if high.iter().all(|d| *d == sign) && (high.is_empty() || (n < 0) == (sign != 0)) {
        StackValue::Int(n)
    } else {
        StackValue::BigInt
    }
}
