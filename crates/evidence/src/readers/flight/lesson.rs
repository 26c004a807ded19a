//! What a whole dump has taught, for the dumps that come after it.
//!
//! The first entry of each kind spells out its strings, stack and shapes, and that costs more than all repetitions of a
//! short ring. But ranks of one job spell out the same things in the same order. So a dump that was read entry by entry
//! leaves its templates ([`super::template`]), those of spelling entries included, with the state of the memo and of
//! the tables in which each was read. The next dump follows them as long as it is in that very state: then equal bytes
//! mean the same. Where it differs it is read entry by entry as ever; nothing it says depends on what was read before.
//!
//! Strings that entries only use as a group's name or a thread's handle may differ; so may those they do not use.

use std::sync::Arc;

use ringleader_model::{FlightDump, Frame, Signature};

use super::learned::Draft;
use super::memo::{Memo, StackValue};
use super::template::Templates;

/// What dumps before have taught.
#[derive(Debug, Default)]
pub(crate) struct Lessons {
    /// The one that was of use last comes first.
    pub(super) list: Vec<Lesson>,
    /// The last dump got little from the list.
    pub(super) wants_more: bool,
}

/// One dump's.
#[derive(Debug)]
pub(super) struct Lesson {
    pub(super) bytes: Box<[u8]>,
    pub(super) templates: Templates,
    /// One for each template.
    pub(super) steps: Vec<EntryStep>,
    pub(super) slots: Vec<Taught>,
    /// Places of the memo that were taken before the first entry.
    pub(super) n_header: usize,
    pub(super) frames: Arc<Vec<Frame>>,
    pub(super) stacks: Arc<Vec<Box<[u32]>>>,
    pub(super) signatures: Arc<Vec<Signature>>,
}

/// How much there is of what entries refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoSizes {
    pub(super) slots: usize,
    pub(super) frames: usize,
    pub(super) stacks: usize,
    pub(super) signatures: usize,
}

impl MemoSizes {
    pub(super) fn has(self, other: Self) -> bool {
        self.slots >= other.slots
            && self.frames >= other.frames
            && self.stacks >= other.stacks
            && self.signatures >= other.signatures
    }
}

/// What reading an entry for the first time did, and where its group and thread are in the memo.
#[derive(Debug)]
pub(super) struct EntryStep {
    pub(super) before: MemoSizes,
    pub(super) after: MemoSizes,
    pub(super) pg_id: i64,
    pub(super) name_at: u32,
    pub(super) desc_at: u32,
    pub(super) thread_at: u32,
}

impl EntryStep {
    pub(super) fn new(before: MemoSizes, after: MemoSizes, draft: &Draft) -> Self {
        Self {
            before,
            after,
            pg_id: draft.pg_id,
            name_at: draft.name_at,
            desc_at: draft.desc_at,
            thread_at: draft.thread_at,
        }
    }
}

/// What was in a place of the memo.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taught {
    /// Text of these bytes; whether entries use it as more than a name of a group or thread.
    Text { from: usize, to: usize, is_fixed: bool },
    /// Frame of the table.
    Frame(u32),
}

/// Who follows a lesson, and where he is.
pub(super) struct Follower<'a> {
    pub(super) lesson: &'a Lesson,
    /// What came after each template the last two times.
    pub(super) next: Vec<[u32; 2]>,
    pub(super) last: Last,
    /// Places of the memo that are as in the lesson.
    pub(super) n_checked: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Last {
    Start,
    At(u32),
    Lost,
}

impl Lesson {
    pub(super) fn text(&self, at: usize) -> Option<&[u8]> {
        match *self.slots.get(at)? {
            Taught::Text { from, to, .. } => self.bytes.get(from..to),
            Taught::Frame(_) => None,
        }
    }

    /// Whether these places of a memo are as they were, but for names.
    pub(super) fn agrees(&self, memo: &Memo<'_>, from: usize, to: usize) -> bool {
        (from..to).all(|at| {
            let Some(slot) = memo.get(at as u32) else { return false };
            match (slot.value, self.slots.get(at)) {
                (StackValue::Str(text), Some(Taught::Text { is_fixed, .. })) => {
                    !is_fixed || self.text(at) == Some(text)
                }
                (StackValue::Frame(a), Some(Taught::Frame(b))) => a == *b,
                _ => false,
            }
        })
    }
}

/// Notes for a lesson while a dump is read.
pub(super) struct Capture {
    pub(super) n_header: usize,
    pub(super) steps: Vec<EntryStep>,
}

impl Capture {
    pub(super) fn add(&mut self, step: EntryStep) {
        self.steps.push(step);
    }
}

/// What is to become of the lessons after a dump.
pub(super) enum LessonOutcome {
    Nothing,
    Add(Box<Lesson>),
    /// It was followed, for most entries or for few.
    Followed {
        is_good: bool,
    },
}

impl Lessons {
    /// Learns from a dump.
    pub(super) fn end(&mut self, outcome: LessonOutcome, dump: &FlightDump) {
        match outcome {
            LessonOutcome::Nothing => {}
            LessonOutcome::Followed { is_good } => {
                self.wants_more = !is_good;
                if !is_good && !self.list.is_empty() {
                    self.list.rotate_left(1);
                }
            }
            LessonOutcome::Add(mut lesson) => {
                lesson.frames = Arc::clone(&dump.frames);
                lesson.stacks = Arc::clone(&dump.stacks);
                lesson.signatures = Arc::clone(&dump.signatures);
                self.wants_more = false;
                self.list.insert(0, *lesson);
            }
        }
    }
}

impl Follower<'_> {
    pub(super) fn arrive(&mut self, place: u32) {
        if let Last::At(last) = self.last
            && let Some(next) = self.next.get_mut(last as usize)
            && let [first, _] = *next
            && first != place
        {
            *next = [place, first];
        }
        self.last = Last::At(place);
    }
}
