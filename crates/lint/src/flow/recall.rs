//! Reuse of results of earlier runs: values of names (`known`) and calls (`memo`).

use std::collections::BTreeSet;

use super::known::{KnownValue, MAX_LEVEL, MAX_STEPS};
use super::machine::{Flow, Interpreter};
use super::memo::{MAX_PARTS, MAX_WAYS, MIN_STEPS, Way};
use super::trace::{ConditionValue, FlowEvent};
use super::value::{Origin, Taint, Val, chain, hash, hash_text};
use crate::python::index::FuncId;

/// Effects of a followed call on its caller.
#[derive(Debug)]
pub(super) struct Done<'s> {
    pub(super) flow: Flow,
    /// Parameters that a collective made equal on all processes.
    pub(super) agreed: BTreeSet<&'s str>,
    pub(super) decided: Taint,
}

/// Where a call starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    key: u64,
    answers: usize,
    events: usize,
    noted: usize,
    settled: usize,
    entered: usize,
    steps: usize,
    /// The frame of the call.
    frame: usize,
    /// The lowest frame that kept a call before this one from being followed.
    lowest: usize,
}

impl Interpreter<'_, '_, '_> {
    /// The value with this number, found by `find` if it is not known.
    pub(super) fn known_value(
        &mut self,
        number: u64,
        find: &mut dyn FnMut(&mut Self) -> Option<Val>,
    ) -> Option<Val> {
        if self.muted > MAX_LEVEL {
            return self.quietly(find);
        }
        let facts = self.facts;
        let flags =
            u64::from(self.is_survey) | u64::from(self.with_local) << 1 | u64::from(self.has_overrides) << 2;
        let key = hash(&[number, self.muted as u64, flags, self.max_frames as u64, self.place_number]);
        if let Some(found) = facts.known.get(key, self.oracle) {
            let depth = self.depth();
            for answer in &found.answers {
                self.oracle.choose(ConditionValue { depth: answer.depth + depth, ..*answer });
            }
            self.pay(key, found.steps);
            return found.value;
        }
        let (found, is_pure) = self.alone(find);
        self.pay(key, found.steps);
        let value = found.value.clone();
        if is_pure {
            facts.known.add(key, found);
        }
        value
    }

    /// Each run pays once.
    fn pay(&mut self, key: u64, steps: usize) {
        if self.paid.insert(key) {
            self.steps = self.steps.saturating_sub(steps);
        }
    }

    fn quietly(&mut self, find: &mut dyn FnMut(&mut Self) -> Option<Val>) -> Option<Val> {
        self.muted += 1;
        let value = find(self);
        self.muted -= 1;
        value
    }

    /// Finds a value as if nothing were under way, and tells whether only the answers decide it.
    fn alone(&mut self, find: &mut dyn FnMut(&mut Self) -> Option<Val>) -> (KnownValue, bool) {
        let below = self.below;
        self.below += self.frames.len();
        let frames = std::mem::take(&mut self.frames);
        let known = std::mem::take(&mut self.known);
        let (loops, order) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.order));
        let counts = [self.no_sync, self.joined, self.endless, self.guessing, self.open_arms];
        [self.no_sync, self.joined, self.endless, self.guessing, self.open_arms] = [0; 5];
        let state = (self.steps, self.lowest, self.is_over, self.in_background.take(), self.trace.is_over);
        (self.steps, self.is_over) = (MAX_STEPS, false);
        let logs = (self.settled.len(), self.entered.len(), self.oracle.answers.len(), self.n_overridden);

        let value = self.quietly(find);

        let mut answers: Vec<ConditionValue> = Vec::new();
        for answer in self.oracle.answers.get(logs.2..).unwrap_or_default() {
            if !answers.iter().any(|known| known.key == answer.key) {
                answers.push(ConditionValue { depth: answer.depth.saturating_sub(self.below), ..*answer });
            }
        }
        let is_pure = self.n_overridden == logs.3;
        let steps = MAX_STEPS.saturating_sub(self.steps);
        self.settled.truncate(logs.0);
        self.entered.truncate(logs.1);
        (self.steps, self.lowest, self.is_over, self.in_background, self.trace.is_over) = state;
        [self.no_sync, self.joined, self.endless, self.guessing, self.open_arms] = counts;
        (self.loops, self.order) = (loops, order);
        (self.known, self.frames, self.below) = (known, frames, below);
        (KnownValue { answers, value, steps }, is_pure)
    }
}

impl<'s> Interpreter<'_, '_, 's> {
    /// A number for a call and all that it can see. None: it is not kept.
    pub(super) fn call_number(
        &self,
        func: FuncId,
        this: Option<&Val>,
        bound: &[(&'s str, Val)],
    ) -> Option<u64> {
        if self.muted > 0 || self.memo.is_none() {
            return None;
        }
        let mut left = MAX_PARTS;
        let flags = [
            self.is_survey,
            self.no_sync > 0,
            self.joined > 0,
            self.endless > 0,
            self.open_arms > 0,
            self.guessing > 0,
            self.is_over,
            self.trace.is_over,
            self.is_parted(),
        ];
        let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
        let place = |at: Option<Origin>| {
            at.map_or(0, |at| hash(&[at.file as u64, u64::from(at.span.at), u64::from(at.span.end)]))
        };
        let mut state = hash(&[
            func as u64,
            flags,
            self.frames.len() as u64,
            self.process_number,
            place(self.loops.last().copied()),
            place(self.in_background),
            self.order.last().map_or(0, |order| order.print()),
        ]);
        if let Some(this) = this {
            state = chain(state, this.print(&mut left)?);
        }
        for (name, value) in bound {
            state = chain(chain(state, hash_text(name)), value.print(&mut left)?);
        }
        Some(state)
    }

    pub(super) fn start_call(&mut self, key: u64) -> Mark {
        let lowest = std::mem::replace(&mut self.lowest, usize::MAX);
        Mark {
            key,
            answers: self.oracle.answers.len(),
            events: self.trace.events.len(),
            noted: self.noted.len(),
            settled: self.settled.len(),
            entered: self.entered.len(),
            steps: self.steps,
            frame: self.frames.len(),
            lowest,
        }
    }

    /// Keeps what a call did.
    pub(super) fn keep_call(&mut self, mark: Mark, done: &Done<'s>) {
        let is_own = self.lowest >= mark.frame;
        self.lowest = self.lowest.min(mark.lowest);
        let steps = mark.steps.saturating_sub(self.steps);
        let is_cut = matches!(done.flow, Flow::Cut) || self.steps == 0;
        if !is_own || is_cut || steps < MIN_STEPS {
            return;
        }
        let Some(memo) = &mut self.memo else { return };
        let ways = memo.ways.entry(mark.key).or_default();
        if ways.len() >= MAX_WAYS {
            return;
        }
        let value = match &done.flow {
            Flow::Return(value) => Some(value.clone()),
            _ => None,
        };
        let mut answers: Vec<ConditionValue> = Vec::new();
        for answer in self.oracle.answers.get(mark.answers..).unwrap_or_default() {
            if !answers.iter().any(|known| known.key == answer.key) {
                answers.push(*answer);
            }
        }
        let mut entered = self.entered.get(mark.entered..).unwrap_or_default().to_vec();
        entered.sort_unstable();
        entered.dedup();
        ways.push(Way {
            answers,
            events: self.trace.events.get(mark.events..).unwrap_or_default().to_vec(),
            noted: self.noted.get(mark.noted..).unwrap_or_default().to_vec(),
            settled: self.settled.get(mark.settled..).unwrap_or_default().to_vec(),
            entered,
            steps,
            is_over: self.is_over,
            has_ended: self.trace.is_over,
            in_background: self.in_background,
            value,
            agreed: done.agreed.clone(),
            decided: done.decided,
        });
    }

    /// Does again what the same call did under the same answers.
    pub(super) fn repeat_call(&mut self, key: u64) -> Option<Done<'s>> {
        if self.with_seen {
            return None;
        }
        let memo = self.memo.take()?;
        let done = memo.ways.get(&key).and_then(|ways| {
            let way = ways.iter().find(|way| {
                way.steps < self.steps
                    && way.answers.iter().all(|answer| self.oracle.would_answer(answer))
                    && !self.frames.iter().any(|frame| way.entered.binary_search(&frame.func).is_ok())
            })?;
            self.repeat(way);
            let flow = way.value.clone().map_or(Flow::Next, Flow::Return);
            Some(Done { flow, agreed: way.agreed.clone(), decided: way.decided })
        });
        self.memo = Some(memo);
        done
    }

    fn repeat(&mut self, way: &Way<'s>) {
        self.steps -= way.steps;
        for answer in &way.answers {
            self.oracle.choose(*answer);
        }
        let root = self.root;
        self.trace.events.extend(way.events.iter().map(|event| match event {
            FlowEvent::Op(op) => {
                let mut op = *op;
                op.from.span = root;
                FlowEvent::Op(op)
            }
            other => *other,
        }));
        for (key, taint, at) in &way.noted {
            self.note_local_at(*key, *taint, *at);
        }
        self.settled.extend(&way.settled);
        self.entered.extend(&way.entered);
        self.is_over = way.is_over;
        self.trace.is_over |= way.has_ended;
        self.in_background = way.in_background;
    }
}
