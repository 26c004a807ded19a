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

use super::build::Build;
use super::entry::{Draft, refs};
use super::memo::{Memo, Value};
use super::pickle::Machine;
use super::template::{Template, Templates};

/// Kinds of dumps that are remembered: stages of a pipeline make different calls.
const MAX_LESSONS: usize = 4;
/// Largest dump that is remembered, bytes: a ring of twenty thousand entries.
const MAX_BYTES: usize = 4 << 20;
/// Strings and frames of one.
const MAX_SLOTS: usize = 1 << 16;

/// What dumps before have taught.
#[derive(Debug, Default)]
pub(crate) struct Lessons {
    /// The one that was of use last comes first.
    list: Vec<Lesson>,
    /// The last dump got little from the list.
    wants_more: bool,
}

/// One dump's.
#[derive(Debug)]
pub(super) struct Lesson {
    bytes: Box<[u8]>,
    templates: Templates,
    /// One for each template.
    steps: Vec<Step>,
    slots: Vec<Taught>,
    /// Places of the memo that were taken before the first entry.
    n_header: usize,
    frames: Arc<Vec<Frame>>,
    stacks: Arc<Vec<Box<[u32]>>>,
    signatures: Arc<Vec<Signature>>,
}

/// How much there is of what entries refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    slots: usize,
    frames: usize,
    stacks: usize,
    signatures: usize,
}

impl State {
    fn has(self, other: Self) -> bool {
        self.slots >= other.slots
            && self.frames >= other.frames
            && self.stacks >= other.stacks
            && self.signatures >= other.signatures
    }
}

/// What reading an entry for the first time did, and where its group and thread stand in the memo.
#[derive(Debug)]
pub(super) struct Step {
    before: State,
    after: State,
    pg_id: i64,
    name_at: u32,
    desc_at: u32,
    thread_at: u32,
}

impl Step {
    pub(super) fn new(before: State, after: State, draft: &Draft) -> Self {
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
enum Taught {
    /// Text of these bytes; whether entries use it as more than a name of a group or thread.
    Text { from: usize, to: usize, is_fixed: bool },
    /// Frame of the table.
    Frame(u32),
}

/// Who follows a lesson, and where he is.
pub(super) struct Follower<'a> {
    lesson: &'a Lesson,
    /// What came after each template the last two times.
    next: Vec<[u32; 2]>,
    last: Last,
    /// Places of the memo that are as in the lesson.
    n_checked: usize,
}

#[derive(Clone, Copy)]
enum Last {
    Start,
    At(u32),
    Lost,
}

impl Lesson {
    fn text(&self, at: usize) -> Option<&[u8]> {
        match *self.slots.get(at)? {
            Taught::Text { from, to, .. } => self.bytes.get(from..to),
            Taught::Frame(_) => None,
        }
    }

    /// Whether these places of a memo are as they were, but for names.
    fn agrees(&self, memo: &Memo<'_>, from: usize, to: usize) -> bool {
        (from..to).all(|at| {
            let Some(slot) = memo.get(at as u32) else { return false };
            match (slot.value, self.slots.get(at)) {
                (Value::Str(text), Some(Taught::Text { is_fixed, .. })) => {
                    !is_fixed || self.text(at) == Some(text)
                }
                (Value::Frame(a), Some(Taught::Frame(b))) => a == *b,
                _ => false,
            }
        })
    }

    /// Of a dump that was read to its end. The tables are put in when it is closed.
    fn of(machine: &Machine<'_>, n_header: usize) -> Option<Self> {
        let is_plain = machine.memo.generation == 0
            && machine.bytes.len() <= MAX_BYTES
            && machine.memo.next() <= MAX_SLOTS;
        let capture = machine.capture.as_ref().filter(|_| is_plain)?;
        let mut slots = Vec::with_capacity(machine.memo.next());
        for at in 0..machine.memo.next() {
            slots.push(match machine.memo.get(at as u32)?.value {
                Value::Str(text) => {
                    let from = text.as_ptr().addr().checked_sub(machine.bytes.as_ptr().addr())?;
                    let to = from + text.len();
                    (machine.bytes.get(from..to)? == text).then_some(())?;
                    Taught::Text { from, to, is_fixed: false }
                }
                Value::Frame(frame) => Taught::Frame(frame),
                _ => return None,
            });
        }
        for template in &machine.learned.templates.list {
            refs(template.entry(machine.bytes)?, &machine.memo, |at| {
                if let Some(Taught::Text { is_fixed, .. }) = slots.get_mut(at as usize) {
                    *is_fixed = true;
                }
            })?;
        }
        (capture.steps.len() == machine.learned.templates.list.len()).then_some(())?;
        Some(Self {
            bytes: machine.bytes.into(),
            templates: Templates::default(),
            steps: Vec::new(),
            slots,
            n_header,
            frames: Arc::default(),
            stacks: Arc::default(),
            signatures: Arc::default(),
        })
    }
}

/// Notes for a lesson while a dump is read.
pub(super) struct Capture {
    n_header: usize,
    steps: Vec<Step>,
}

impl Capture {
    pub(super) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }
}

/// What is to become of the lessons after a dump.
pub(super) enum Outcome {
    Nothing,
    Add(Box<Lesson>),
    /// It was followed, for most entries or for few.
    Followed {
        is_good: bool,
    },
}

impl Outcome {
    /// Of a dump whose machine has stopped.
    pub(super) fn of(machine: &mut Machine<'_>, is_whole: bool) -> Self {
        let n_entries = machine.build.dump.ops.len();
        if let Some(n_read) = machine.n_followed {
            return Self::Followed { is_good: n_read * 2 >= n_entries };
        }
        let Some(capture) = machine.capture.as_ref().filter(|_| is_whole && n_entries > 0) else {
            return Self::Nothing;
        };
        let Some(mut lesson) = Lesson::of(machine, capture.n_header) else { return Self::Nothing };
        lesson.templates = std::mem::take(&mut machine.learned.templates);
        lesson.steps = machine.capture.take().map(|capture| capture.steps).unwrap_or_default();
        Self::Add(Box::new(lesson))
    }
}

impl Lessons {
    /// Learns from a dump.
    pub(super) fn end(&mut self, outcome: Outcome, dump: &FlightDump) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Followed { is_good } => {
                self.wants_more = !is_good;
                if !is_good && !self.list.is_empty() {
                    self.list.rotate_left(1);
                }
            }
            Outcome::Add(mut lesson) => {
                lesson.frames = Arc::clone(&dump.frames);
                lesson.stacks = Arc::clone(&dump.stacks);
                lesson.signatures = Arc::clone(&dump.signatures);
                self.wants_more = false;
                self.list.insert(0, *lesson);
            }
        }
    }
}

impl<'a> Machine<'a> {
    /// At the first entry: takes up a lesson that begins as this dump does, or notes for one of its own.
    pub(super) fn begin_entries(&mut self) {
        let Some(lessons) = self.lessons.take() else { return };
        let n_header = self.memo.next();
        let has_room = lessons.list.len() < MAX_LESSONS;
        let is_plain = self.memo.generation == 0 && self.build.known.is_new();
        let fits = |lesson: &&Lesson| lesson.n_header == n_header && lesson.agrees(&self.memo, 0, n_header);
        let found = lessons.list.iter().filter(|_| is_plain).find(fits);
        if let Some(lesson) = found.filter(|_| !(lessons.wants_more && has_room)) {
            self.build.known.begin_with(&lesson.frames, &lesson.stacks, &lesson.signatures);
            self.follower = Some(Follower {
                lesson,
                next: lesson.templates.list.iter().map(|t| t.next).collect(),
                last: Last::Start,
                n_checked: n_header,
            });
            self.n_followed = Some(0);
        } else if has_room && is_plain {
            self.capture = Some(Capture { n_header, steps: Vec::new() });
        }
    }

    pub(super) fn state(&self) -> State {
        state(&self.memo, &self.build)
    }

    /// Reads an entry as the lesson has it.
    #[inline]
    pub(super) fn follow(&mut self) -> Option<()> {
        let follower = self.follower.as_ref()?;
        if self.memo.next() != follower.n_checked || !self.build.known.is_shared() {
            // The general machine read something.
            self.find_way(None, &[]);
            return None;
        }
        let lesson = follower.lesson;
        let candidates = match follower.last {
            Last::Start => [0, u32::MAX],
            Last::At(at) => *follower.next.get(at as usize)?,
            Last::Lost => return None,
        };
        for place in candidates {
            let template = lesson.templates.list.get(place as usize)?;
            let Some((entry, rest)) = template.split(&lesson.bytes, self.rest) else { continue };
            let step = lesson.steps.get(place as usize)?;
            if !self.take_step(lesson, step) {
                return None;
            }
            let group = self.group_at((step.pg_id, step.name_at, step.desc_at)).ok()?;
            self.count_thread(step.thread_at);
            let ops = &mut self.build.dump.ops;
            template.push(entry, ops)?;
            if let Some(op) = ops.last_mut() {
                op.group = group;
            }
            self.rest = rest;
            self.follower.as_mut()?.arrive(place);
            if let Some(n) = &mut self.n_followed {
                *n += 1;
            }
            return Some(());
        }
        None
    }

    /// Does what the entry did when it was first read, unless that is done; false if the state is another.
    #[inline]
    fn take_step(&mut self, lesson: &'a Lesson, step: &Step) -> bool {
        let now = self.state();
        if now.has(step.after) {
            // An entry that puts something into the memo is in the state before it, or is not the same.
            return step.before.slots == step.after.slots;
        }
        if now != step.before {
            return false;
        }
        for at in step.before.slots..step.after.slots {
            let value = match lesson.slots.get(at) {
                Some(Taught::Frame(frame)) => Value::Frame(*frame),
                Some(Taught::Text { .. }) => lesson.text(at).map_or(Value::None, Value::Str),
                None => return false,
            };
            if !self.memo.put(at, value) {
                return false;
            }
        }
        let known = &mut self.build.known;
        known.frames.advance(step.after.frames);
        known.stacks.advance(step.after.stacks);
        known.signatures.advance(step.after.signatures);
        if let Some(follower) = &mut self.follower {
            follower.n_checked = step.after.slots;
        }
        true
    }

    /// After an entry that was read by itself: where the lesson goes on, if the dump is still as it says. `template` and
    /// its `fixed` bytes are the entry's. True if the lesson knows it.
    pub(super) fn find_way(&mut self, template: Option<&Template>, fixed: &[u8]) -> bool {
        let Some(follower) = &mut self.follower else { return false };
        let lesson = follower.lesson;
        let n_slots = self.memo.next();
        if self.memo.generation != 0
            || !self.build.known.is_shared()
            || n_slots < follower.n_checked
            || !lesson.agrees(&self.memo, follower.n_checked, n_slots)
        {
            self.follower = None;
            return false;
        }
        follower.n_checked = n_slots;
        // Other strings, but as many: the lesson's entry that was due here.
        let due = match follower.last {
            Last::Start => Some(0),
            Last::At(at) => follower.next.get(at as usize).map(|next| next[0]),
            Last::Lost => None,
        };
        let now = state(&self.memo, &self.build);
        let due = due.filter(|at| lesson.steps.get(*at as usize).is_some_and(|s| s.after == now));
        let place = template.and_then(|t| lesson.templates.find(&lesson.bytes, t, fixed));
        if let Some(place) = place {
            follower.arrive(place);
        } else {
            follower.last = due.map_or(Last::Lost, Last::At);
        }
        place.is_some()
    }
}

fn state(memo: &Memo<'_>, build: &Build<'_>) -> State {
    State {
        slots: memo.next(),
        frames: build.known.frames.len(),
        stacks: build.known.stacks.len(),
        signatures: build.known.signatures.len(),
    }
}

impl Follower<'_> {
    fn arrive(&mut self, place: u32) {
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
