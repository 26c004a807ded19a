//! What one process does on one path: collectives in their order, and the conditions that led there.

use std::collections::{BTreeMap, VecDeque};

use ringleader_knowledge::collective::{Axis, RankValue, When};

use super::catalog::CatalogRow;
use super::value::{Axes, Dtype, GroupValue, Origin, PLACE, Taint, bit, chain, hash, hash_text};
use crate::python::index::FuncId;

/// Depth of calls down to which conditions are tried both ways: the function under test, and those that it calls.
const NEAR: usize = 2;
/// Ranks of the job in which code is tried.
pub(crate) const WORLD: i64 = 4;

/// One process of the job in which code is tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriedProcess {
    /// Its place on each axis.
    coords: [i64; 9],
    /// The axes on which it is not the first.
    pub(crate) differs: Axes,
    /// Conditions on its own data that are decided for it.
    pub(crate) overrides: BTreeMap<u64, bool>,
}

impl TriedProcess {
    /// Rank 0, first everywhere.
    pub(crate) fn first() -> Self {
        Self::default()
    }

    /// Another process that differs from the first in one axis.
    pub(crate) fn other(axis: Axis) -> Self {
        let mut process = Self { differs: bit(axis), ..Self::default() };
        let mut set = |axis: Axis, n| process.coords[axis as usize] = n;
        match axis {
            Axis::Global => {
                set(Axis::Global, 1);
                set(Axis::Local, 1);
            }
            Axis::Local => {
                set(Axis::Global, 1);
                set(Axis::Local, 1);
            }
            Axis::Node => {
                set(Axis::Global, 2);
                set(Axis::Node, 1);
            }
            other => {
                set(other, 1);
                set(Axis::Global, 1);
                set(Axis::Local, 1);
            }
        }
        process
    }

    /// The last process of the job.
    pub(crate) fn last() -> Self {
        let mut process = Self { differs: PLACE, ..Self::default() };
        process.coords[Axis::Global as usize] = WORLD - 1;
        process.coords[Axis::Local as usize] = 1;
        process.coords[Axis::Node as usize] = 1;
        process
    }

    pub(crate) fn with(mut self, key: u64, value: bool) -> Self {
        self.overrides.insert(key, value);
        self
    }

    pub(crate) fn coordinate(&self, axis: Axis) -> i64 {
        self.coords[axis as usize]
    }

    /// Number of processes on the axis.
    pub(crate) fn size(axis: Axis) -> i64 {
        if axis == Axis::Global { WORLD } else { 2 }
    }

    pub(crate) fn is(&self, axis: Axis, value: RankValue) -> bool {
        match value {
            RankValue::First | RankValue::Rank => self.coordinate(axis) == 0,
            RankValue::Last => self.coordinate(axis) == Self::size(axis) - 1,
        }
    }

    /// Whether it is first on all these axes.
    pub(crate) fn is_first_on(&self, axes: Axes) -> bool {
        self.coords.iter().enumerate().all(|(n, at)| axes & (1 << n) == 0 || *at == 0)
    }

    /// Another number for each process.
    pub(crate) fn number(&self) -> u64 {
        self.overrides
            .iter()
            .fold(self.place_number(), |state, (key, value)| chain(chain(state, *key), u64::from(*value)))
    }

    /// Another number for each place in the job.
    pub(crate) fn place_number(&self) -> u64 {
        self.coords.iter().fold(u64::from(self.differs), |state, at| chain(state, *at as u64))
    }

    /// Its name in a message.
    pub(crate) fn name(&self) -> String {
        const NAMES: [(Axis, &str); 8] = [
            (Axis::Node, "node rank"),
            (Axis::Data, "data-parallel rank"),
            (Axis::Tensor, "tensor-parallel rank"),
            (Axis::Pipeline, "pipeline stage"),
            (Axis::Context, "context-parallel rank"),
            (Axis::Expert, "expert-parallel rank"),
            (Axis::Group, "group rank"),
            (Axis::Local, "local rank"),
        ];
        let named = NAMES.iter().find(|(axis, _)| self.differs == bit(*axis));
        named.map_or_else(
            || format!("rank {}", self.coordinate(Axis::Global)),
            |(axis, name)| format!("{name} {}", self.coordinate(*axis)),
        )
    }
}

/// Whether the first process and another meet in a group.
pub(crate) fn share(group: GroupValue, other: &TriedProcess) -> bool {
    match group {
        GroupValue::World | GroupValue::Some(_) => true,
        GroupValue::Axes(axes) => {
            other.differs & (PLACE | bit(Axis::Group)) != 0 || other.differs & !axes == 0
        }
    }
}

/// One collective call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveOp {
    /// Name of the collective that the other ranks must call.
    pub(crate) name: &'static str,
    pub(crate) row: Option<CatalogRow>,
    pub(crate) group: GroupValue,
    /// The call.
    pub(crate) at: Origin,
    /// The statement of the function under test in which it happens.
    pub(crate) from: Origin,
    /// Whether its object was known by its name alone.
    pub(crate) is_guess: bool,
    /// Whether it communicates only where the model is sharded, and nothing says that it is.
    pub(crate) is_maybe: bool,
    /// Whether it is in an endless loop that only some enter: a server of requests.
    pub(crate) is_endless: bool,
    /// The type of the tensor that it is given.
    pub(crate) dtype: Option<Dtype>,
    /// The rank that it names as source or target, and in what that differs.
    pub(crate) root: Option<(i64, Taint)>,
}

/// A tensor that one process sends to another, or receives from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) sends: bool,
    pub(crate) dtype: Option<Dtype>,
    pub(crate) at: Origin,
}

impl CollectiveOp {
    pub(crate) fn is_sharded(&self) -> bool {
        self.row.is_some_and(|row| row.of.when == When::Sharded)
    }
}

/// Kind of the statement that decided a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decider {
    If,
    While,
    For,
    Decorator,
    Handler,
}

/// A decision that may differ between processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub(crate) kind: Decider,
    /// The whole statement.
    pub(crate) at: Origin,
    /// The condition.
    pub(crate) test: Origin,
    /// The branch that is taken if the condition holds.
    pub(crate) arm: Origin,
    pub(crate) outcome: u64,
    pub(crate) taint: Taint,
    /// Whether the outcome follows from the rank alone.
    pub(crate) is_known: bool,
    pub(crate) func: FuncId,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowEvent {
    Op(CollectiveOp),
    Message(Message),
    Decision(Decision),
    /// return, break, continue or raise.
    Exit(FlowExit, Origin),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowExit {
    Return,
    Break,
    Continue,
    Raise,
}

impl FlowExit {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Break => "break",
            Self::Continue => "continue",
            Self::Raise => "raise",
        }
    }
}

/// The path of one process.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) events: Vec<FlowEvent>,
    /// The run hit a bound: what follows is unknown.
    pub(crate) is_cut: bool,
    /// The process took the default group down itself.
    pub(crate) is_over: bool,
}

impl Trace {
    /// A number for what happens: calls, decisions and exits with their places, in order.
    pub(crate) fn print(&self) -> u64 {
        let place = |at: Origin| hash(&[at.file as u64, u64::from(at.span.at), u64::from(at.span.end)]);
        let start = hash(&[u64::from(self.is_cut), u64::from(self.is_over)]);
        self.events.iter().fold(start, |state, event| {
            let word = match event {
                FlowEvent::Op(op) => {
                    hash(&[1, place(op.at), place(op.from), hash_text(op.name), op.group.number()])
                }
                FlowEvent::Message(message) => hash(&[2, place(message.at)]),
                FlowEvent::Decision(d) => hash(&[3, place(d.test), d.outcome, u64::from(d.taint.axes)]),
                FlowEvent::Exit(exit, at) => hash(&[4, *exit as u64, place(*at)]),
            };
            chain(state, word)
        })
    }
}

/// Results of the conditions that are equal on all processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// Results of conditions that were fixed before the run.
    pub(crate) fixed: BTreeMap<u64, bool>,
    /// Decided in the run, in order.
    pub(crate) met: Vec<(u64, bool)>,
    /// Conditions that this run evaluated.
    pub(crate) asked: std::collections::BTreeSet<u64>,
    /// All answers of this run, in order.
    pub(crate) answers: Vec<ConditionValue>,
}

/// Result of one condition at its evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionValue {
    pub(crate) key: u64,
    pub(crate) usual: bool,
    /// Calls under way.
    pub(crate) depth: usize,
    pub(crate) holds: bool,
}

impl Oracle {
    /// Result of a condition; a second evaluation gives the same result.
    pub(crate) fn choose(&mut self, asked: ConditionValue) -> bool {
        let ConditionValue { key, usual, depth, .. } = asked;
        self.asked.insert(key);
        let known = self.fixed.get(&key).copied();
        let holds = known.unwrap_or(usual);
        self.answers.push(ConditionValue { holds, ..asked });
        if known.is_none() {
            self.fixed.insert(key, usual);
            if depth <= NEAR {
                self.met.push((key, usual));
            }
        }
        holds
    }

    /// Whether the condition would fall out as it did.
    pub(crate) fn would_answer(&self, answer: &ConditionValue) -> bool {
        self.fixed.get(&answer.key).copied().unwrap_or(answer.usual) == answer.holds
    }
}

/// Outcomes to try, those with the fewest unusual results first.
#[derive(Debug)]
pub(crate) struct Paths {
    queue: VecDeque<BTreeMap<u64, bool>>,
    left: usize,
    /// Atoms that were flipped already on their own.
    seen: std::collections::BTreeSet<u64>,
}

impl Paths {
    pub(crate) fn new(max: usize) -> Self {
        Self { queue: VecDeque::from([BTreeMap::new()]), left: max, seen: std::collections::BTreeSet::new() }
    }

    pub(crate) fn next(&mut self) -> Option<Oracle> {
        self.left = self.left.checked_sub(1)?;
        Some(Oracle { fixed: self.queue.pop_front()?, ..Oracle::default() })
    }

    /// Plans paths that differ in one more condition from a path that was tried.
    pub(crate) fn learn(&mut self, start: &BTreeMap<u64, bool>, oracle: &Oracle) {
        for (key, value) in &oracle.met {
            if self.queue.len() >= 256 || !self.seen.insert(*key) {
                continue;
            }
            let mut plan = start.clone();
            plan.insert(*key, !value);
            self.queue.push_back(plan);
        }
    }
}
