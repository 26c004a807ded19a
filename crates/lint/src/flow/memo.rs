//! Calls that were followed before: the same call under the same answers does the same again.
//!
//! A function is tried on many paths, which differ in a few conditions. What a call further down did is kept with the answers
//! that it asked for; where the answers are the same, what it did is repeated and not executed.

use std::collections::BTreeSet;

use super::machine::{Flow, Machine};
use super::trace::{Answer, Event};
use super::value::{Origin, Taint, Val, chain, hash, hash_text};
use crate::lookup::LookupMap;
use crate::python::index::FuncId;

/// Calls with fewer steps are executed again.
const MIN_STEPS: usize = 16;
/// Ways through one call that are kept.
const MAX_WAYS: usize = 6;
/// Parts of the arguments of a call that are compared.
const MAX_PARTS: usize = 400;

/// What a followed call leaves to its caller.
#[derive(Debug)]
pub(super) struct Done<'s> {
    pub(super) flow: Flow,
    /// Parameters that a collective made equal on all processes.
    pub(super) agreed: BTreeSet<&'s str>,
    pub(super) decided: Taint,
}

/// One way through a call.
#[derive(Debug)]
struct Way<'s> {
    answers: Vec<Answer>,
    events: Vec<Event>,
    noted: Vec<(u64, Taint, Origin)>,
    settled: Vec<Origin>,
    /// Functions that were entered.
    entered: Vec<FuncId>,
    steps: usize,
    is_over: bool,
    has_ended: bool,
    in_background: Option<Origin>,
    /// What is returned, if anything is.
    value: Option<Val>,
    agreed: BTreeSet<&'s str>,
    decided: Taint,
}

/// The calls of the runs of one function.
#[derive(Debug, Default)]
pub(crate) struct Memo<'s> {
    ways: LookupMap<u64, Vec<Way<'s>>>,
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

impl<'s> Machine<'_, '_, 's> {
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
        let mut answers: Vec<Answer> = Vec::new();
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
            Event::Op(op) => {
                let mut op = *op;
                op.from.span = root;
                Event::Op(op)
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
