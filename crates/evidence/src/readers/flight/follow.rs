//! The machine follows a lesson, or takes notes for one.

use std::sync::Arc;

use super::build::Build;
use super::entry::refs;
use super::lesson::{Capture, EntryStep, Follower, Last, Lesson, LessonOutcome, MemoSizes, Taught};
use super::machine::PickleMachine;
use super::memo::{Memo, StackValue};
use super::template::{Template, Templates};

/// Kinds of dumps that are remembered: stages of a pipeline make different calls.
const MAX_LESSONS: usize = 4;
/// Largest dump that is remembered, bytes: a ring of twenty thousand entries.
const MAX_BYTES: usize = 4 << 20;
/// Strings and frames of one.
const MAX_SLOTS: usize = 1 << 16;

impl Lesson {
    /// Of a dump that was read to its end. The tables are put in when it is closed.
    fn of(machine: &PickleMachine<'_>, n_header: usize) -> Option<Self> {
        let is_plain = machine.memo.generation == 0
            && machine.bytes.len() <= MAX_BYTES
            && machine.memo.next() <= MAX_SLOTS;
        let capture = machine.capture.as_ref().filter(|_| is_plain)?;
        let mut slots = Vec::with_capacity(machine.memo.next());
        for at in 0..machine.memo.next() {
            slots.push(match machine.memo.get(at as u32)?.value {
                StackValue::Str(text) => {
                    let from = text.as_ptr().addr().checked_sub(machine.bytes.as_ptr().addr())?;
                    let to = from + text.len();
                    (machine.bytes.get(from..to)? == text).then_some(())?;
                    Taught::Text { from, to, is_fixed: false }
                }
                StackValue::Frame(frame) => Taught::Frame(frame),
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

impl LessonOutcome {
    /// Of a dump whose machine has stopped.
    pub(super) fn of(machine: &mut PickleMachine<'_>, is_whole: bool) -> Self {
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

impl<'a> PickleMachine<'a> {
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

    pub(super) fn state(&self) -> MemoSizes {
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
    fn take_step(&mut self, lesson: &'a Lesson, step: &EntryStep) -> bool {
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
                Some(Taught::Frame(frame)) => StackValue::Frame(*frame),
                Some(Taught::Text { .. }) => lesson.text(at).map_or(StackValue::None, StackValue::Str),
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

fn state(memo: &Memo<'_>, build: &Build<'_>) -> MemoSizes {
    MemoSizes {
        slots: memo.next(),
        frames: build.known.frames.len(),
        stacks: build.known.stacks.len(),
        signatures: build.known.signatures.len(),
    }
}
