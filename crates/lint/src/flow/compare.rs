//! Tries a function on several processes and says where they part.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::collective::Axis;

use super::facts::Facts;
use super::machine::{Interpreter, MAX_FRAMES, SeenCall};
use super::memo::Memo;
use super::trace::{
    CollectiveOp, Decider, Decision, FlowEvent, FlowExit, Oracle, Paths, Trace, TriedProcess, share,
};
use super::value::{Axes, Dtype, GroupValue, Locally, Origin, PLACE, Taint, bit};
use crate::lookup::LookupSet;
use crate::python::index::{ClassId, FuncId, Project};

/// Paths of one function that are tried, each on all processes.
const MAX_PATHS: usize = 12;
/// Paths without a decision that may differ, after which a function is left.
const MAX_CLEAN: usize = 4;
/// Statements and expressions of all runs of one function.
const MAX_WORK: usize = 60_000;
/// Conditions on local data of one function that are tried.
const MAX_LOCAL: usize = 16;
/// Places of one function that are reported.
const MAX_DIVERGENCES: usize = 8;
/// Paths of a caller that are tried until processes part there.
const MAX_CALLER_PATHS: usize = 6;
/// Callers of a function that are looked at before it is blamed.
const MAX_CALLERS: usize = 6;

/// How the paths of two processes diverge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// A collective is in a branch that only some processes take.
    Branch,
    /// Some processes leave before the collective.
    Exit(FlowExit, Origin),
    /// A decorator keeps some out.
    Decorator,
    /// Both call the same, in another order.
    Order,
    /// An exception skips the collective.
    Handler,
    /// A loop runs more often on some.
    Loop,
}

impl Parting {
    /// The kind, without the place.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Self::Branch => 0,
            Self::Exit(..) => 1,
            Self::Decorator => 2,
            Self::Order => 3,
            Self::Handler => 4,
            Self::Loop => 5,
        }
    }
}

/// Two processes that do not call the same.
#[derive(Clone, Debug)]
pub(crate) struct Divergence {
    pub(crate) decision: Decision,
    pub(crate) parting: Parting,
    /// The first call that the other process does not meet.
    pub(crate) op: CollectiveOp,
    /// Calls of each process in this group, with its name.
    pub(crate) sides: [(String, Vec<&'static str>); 2],
    /// Whether the condition is on the process's own data.
    pub(crate) is_local: bool,
    /// Whether they part on the usual path.
    pub(crate) is_usual: bool,
    /// Whether the condition or the call is in the tried function.
    pub(crate) is_near: bool,
}

/// Two calls that meet, with tensors of different types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clash {
    /// On the first process and on another: what is called, where, and with which type.
    pub(crate) sides: [(&'static str, Origin, Dtype); 2],
    /// Whether both are in the tried function, and both sides call equally often.
    pub(crate) is_near: bool,
}

/// All that a function shows.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) divergences: Vec<Divergence>,
    pub(crate) clashes: Vec<Clash>,
    /// Calls that name another source or target on another process.
    pub(crate) roots: Vec<CollectiveOp>,
    /// Calls on the usual path of the first process, and what is known of their arguments.
    pub(crate) seen: Vec<SeenCall>,
    /// Flags that one rank alone sets, and that end the loop of a framework.
    pub(crate) stops: BTreeSet<Origin>,
    /// Whether a condition on the rank was met.
    pub(crate) has_rank_decision: bool,
}

struct Run {
    trace: Trace,
    seen: Vec<SeenCall>,
    local: Vec<(u64, Taint, Origin)>,
    /// Flags that one rank alone sets, and that end the loop of a framework.
    left: Vec<Origin>,
    /// Statements and expressions that were tried.
    work: usize,
    /// Loops that all leave together.
    settled: BTreeSet<Origin>,
    /// Conditions that the oracle decided.
    choices: BTreeSet<u64>,
}

/// A function, and the class of its object where that is not the class that defines it.
pub(crate) type Tested = (FuncId, Option<ClassId>);

/// Depth to which functions are tried.
#[derive(Clone, Copy)]
struct Effort {
    with_local: bool,
    max_frames: usize,
    /// Whether rules look at the calls of the run.
    with_seen: bool,
    /// Whether it is only asked where the function decides by the rank.
    is_survey: bool,
}

fn run<'p, 's>(
    project: &'p Project<'s>,
    facts: &'p Facts<'p, 's>,
    (func, class): Tested,
    process: &TriedProcess,
    oracle: &mut Oracle,
    memo: Option<&mut Memo<'s>>,
    effort: Effort,
) -> Run {
    oracle.asked.clear();
    oracle.answers.clear();
    let mut machine = Interpreter::new(project, facts, process, oracle);
    machine.memo = memo;
    machine.with_local = effort.with_local;
    machine.max_frames = effort.max_frames;
    machine.with_seen = effort.with_seen;
    machine.is_survey = effort.is_survey;
    let f = &project.functions[func];
    machine.run(func, class);
    // What the first half keeps in its object the second finds.
    // What is entered is left: both halves are one.
    if f.def.name == "__enter__"
        && let Some(exit) = f.class.and_then(|class| project.method(class, "__exit__"))
    {
        machine.run(exit, class);
    }
    let Interpreter { trace, seen, local, left, settled, steps, .. } = machine;
    let work = super::machine::MAX_STEPS.saturating_sub(steps);
    let settled = settled.into_iter().collect();
    Run { trace, seen, local, left, work, settled, choices: oracle.asked.clone() }
}

/// One function that is tried.
struct Trial<'t, 'p, 's> {
    project: &'p Project<'s>,
    facts: &'p Facts<'p, 's>,
    tested: Tested,
    effort: Effort,
    tried: &'t mut Tried,
    /// Statements and expressions that were tried.
    work: usize,
    /// Conditions on local data that were tried.
    local_done: BTreeSet<u64>,
    /// Condition and call of what is reported.
    reported: BTreeSet<(Origin, Origin)>,
    /// Results of followed calls; None if there is only one run.
    memo: Option<Memo<'s>>,
}

/// Tries one function.
pub(crate) fn try_function<'p, 's>(
    project: &'p Project<'s>,
    facts: &'p Facts<'p, 's>,
    tested: Tested,
    with_local: bool,
) -> Tried {
    let (func, class) = tested;
    let mut tried = Tried::default();
    let mut paths = Paths::new(MAX_PATHS);
    let mut is_usual = true;
    let mut n_paths = 0;
    let mut traces = LookupSet::default();
    let mut is_open = false;
    let is_asked = (facts.decides[func] && facts.branches[func]) || with_local || class.is_some();
    let max_frames = if is_asked { MAX_FRAMES } else { 2 };
    let effort = Effort { with_local, max_frames, with_seen: false, is_survey: false };
    let mut trial = Trial {
        project,
        facts,
        tested,
        effort,
        tried: &mut tried,
        work: 0,
        local_done: BTreeSet::new(),
        reported: BTreeSet::new(),
        memo: is_asked.then(Memo::default),
    };
    while let Some(mut oracle) = paths.next() {
        if trial.work > MAX_WORK {
            break;
        }
        let start = oracle.fixed.clone();
        let first = trial.first(&mut oracle, is_usual, is_open);
        // What one more condition does not change on the first process, it changes on no other.
        let is_new = traces.insert(first.trace.print()) || with_local;
        let mut found = if is_new { trial.others(&first, &mut oracle) } else { Vec::new() };
        if with_local {
            found.extend(trial.locals(&first, &mut oracle));
        }
        for mut divergence in found {
            divergence.is_usual = is_usual;
            let is_here = divergence.op.at == divergence.op.from;
            divergence.is_near = is_here || is_near(project, func, &divergence.decision);
            if trial.is_new(&divergence) {
                trial.reported.insert((divergence.decision.test, divergence.op.at));
                trial.tried.divergences.push(divergence);
            }
        }
        // Where nothing differs on a few paths, nothing will.
        let has_decision = || first.trace.events.iter().any(|event| matches!(event, FlowEvent::Decision(_)));
        is_open |= trial.decides(&first.trace) || (with_local && (!first.local.is_empty() || has_decision()));
        n_paths += 1;
        if is_usual && class.is_none() {
            trial.tried.seen = first.seen;
        }
        trial.tried.stops.extend(first.left);
        if !is_asked || (n_paths >= MAX_CLEAN && !is_open) {
            break;
        }
        paths.learn(&start, &oracle);
        is_usual = false;
    }
    tried
}

impl Trial<'_, '_, '_> {
    fn run(&mut self, process: &TriedProcess, oracle: &mut Oracle, effort: Effort) -> Run {
        let run = run(self.project, self.facts, self.tested, process, oracle, self.memo.as_mut(), effort);
        self.work += run.work;
        run
    }

    /// Whether a divergence would be reported that is not yet.
    fn is_new(&self, divergence: &Divergence) -> bool {
        self.tried.divergences.len() < MAX_DIVERGENCES
            && !self.reported.contains(&(divergence.decision.test, divergence.op.at))
    }

    /// Whether the function decides by the rank.
    fn decides(&self, trace: &Trace) -> bool {
        let by_rank = |event: &FlowEvent| match event {
            FlowEvent::Decision(d) => d.taint.axes != 0 && is_near(self.project, self.tested.0, d),
            _ => false,
        };
        trace.events.iter().any(by_rank)
    }

    /// Tries the first process. Until the function decides by the rank, what it calls does not matter.
    fn first(&mut self, oracle: &mut Oracle, is_usual: bool, is_open: bool) -> Run {
        let with_seen = is_usual && self.tested.1.is_none();
        let is_survey = !is_usual && !is_open && !self.effort.with_local;
        let start = oracle.fixed.clone();
        let effort = Effort { with_seen, is_survey, ..self.effort };
        let mut first = self.run(&TriedProcess::first(), oracle, effort);
        if is_survey && self.decides(&first.trace) {
            *oracle = Oracle { fixed: start, ..Oracle::default() };
            first = self.run(&TriedProcess::first(), oracle, self.effort);
        }
        if is_usual {
            let by_rank = |event: &FlowEvent| matches!(event, FlowEvent::Decision(d) if d.taint.axes != 0);
            self.tried.has_rank_decision = first.trace.events.iter().any(by_rank);
        }
        first
    }

    /// Tries the other processes on the path of the first.
    fn others(&mut self, first: &Run, oracle: &mut Oracle) -> Vec<Divergence> {
        let (project, tested) = (self.project, self.tested);
        let with_local = self.effort.with_local;
        let mut found = Vec::new();
        for process in others(&first.trace, |d| with_local || is_near(project, tested.0, d)) {
            let other = self.run(&process, oracle, self.effort);
            self.tried.meet(&first.trace, &other.trace, &process);
            let Some(divergence) = part(&first.trace, &other.trace, &process) else { continue };
            // Choices that only one of them met.
            let own: BTreeSet<u64> = first.choices.difference(&other.choices).copied().collect();
            let theirs: BTreeSet<u64> = other.choices.difference(&first.choices).copied().collect();
            self.work += (own.len().min(3) + 1) * (theirs.len().min(3) + 1) * other.work / 2;
            if self.is_new(&divergence)
                && (own.is_empty() || theirs.is_empty() || !self.can_agree(&process, oracle, [&own, &theirs]))
            {
                found.push(divergence);
            }
        }
        found
    }

    /// Whether two processes that each have choices of their own can fall out alike: the size that one sends is the size
    /// that the others got.
    fn can_agree(
        &mut self,
        process: &TriedProcess,
        oracle: &Oracle,
        [own, theirs]: [&BTreeSet<u64>; 2],
    ) -> bool {
        let value = |key: &u64| oracle.fixed.get(key).copied().unwrap_or_default();
        let flips = own.iter().take(3).map(|key| vec![(*key, !value(key))]);
        let other_flips = theirs.iter().take(3).map(|key| vec![(*key, !value(key))]);
        let pairs = own
            .iter()
            .take(3)
            .flat_map(|a| theirs.iter().take(3).map(move |b| vec![(*a, !value(a)), (*b, !value(b))]));
        let all: Vec<_> = flips.chain(other_flips).chain(pairs).collect();
        all.into_iter().any(|changes| {
            let mut oracle = Oracle { fixed: oracle.fixed.clone(), ..Oracle::default() };
            oracle.fixed.extend(changes);
            let mut one = |process: &TriedProcess, oracle: &mut Oracle| {
                let memo = self.memo.as_mut();
                run(self.project, self.facts, self.tested, process, oracle, memo, self.effort)
            };
            let a = one(&TriedProcess::first(), &mut oracle);
            let b = one(process, &mut oracle);
            part(&a.trace, &b.trace, process).is_none()
        })
    }

    /// Tries both outcomes of the conditions on local data that the first process met.
    fn locals(&mut self, first: &Run, oracle: &mut Oracle) -> Vec<Divergence> {
        let mut found = Vec::new();
        for (key, taint, at) in &first.local {
            if first.settled.contains(at) {
                continue;
            }
            if self.local_done.len() >= MAX_LOCAL || !self.local_done.insert(*key) || taint.axes != 0 {
                continue;
            }
            let (yes, no) = (TriedProcess::first().with(*key, true), TriedProcess::first().with(*key, false));
            let a = self.run(&yes, oracle, self.effort);
            let b = self.run(&no, oracle, self.effort);
            found.extend(part(&a.trace, &b.trace, &no));
        }
        found
    }
}

impl Tried {
    /// Keeps what calls say that meet and do not fit.
    fn meet(&mut self, first: &Trace, trace: &Trace, other: &TriedProcess) {
        for op in other_roots(first, trace, other) {
            if !self.roots.iter().any(|known| known.at == op.at) {
                self.roots.push(op);
            }
        }
        for clash in clashes(first, trace) {
            if !self.clashes.iter().any(|known| known.sides.map(|s| s.1) == clash.sides.map(|s| s.1)) {
                self.clashes.push(clash);
            }
        }
    }
}

/// Whether a function decides itself, or hands on the rank that decides. What a function further down decides, it shows when
/// it is tried on its own.
fn is_near(project: &Project<'_>, func: FuncId, decision: &Decision) -> bool {
    let f = &project.functions[func];
    // Both halves of a context manager are tried as one.
    let is_half = || {
        f.def.name == "__enter__"
            && f.class.is_some_and(|class| project.method(class, "__exit__") == Some(decision.func))
    };
    decision.func == func
        || is_half()
        || decision.taint.origin().is_some_and(|origin| {
            origin.file == f.file && f.def.span.holds(origin.span) && f.qualified != "<module>"
        })
}

/// Whether the callers of a function make up for what it leaves open, as halves of a barrier in two functions do.
pub(crate) fn is_made_up_for<'p, 's>(
    project: &'p Project<'s>,
    facts: &'p Facts<'p, 's>,
    divergence: &Divergence,
) -> bool {
    let effort = Effort {
        with_local: divergence.is_local,
        max_frames: MAX_FRAMES,
        with_seen: false,
        is_survey: false,
    };
    let callers = &facts.callers[divergence.decision.func];
    callers.iter().take(MAX_CALLERS).any(|caller| {
        let mut memo = Memo::default();
        let mut paths = Paths::new(MAX_CALLER_PATHS);
        while let Some(mut oracle) = paths.next() {
            let start = oracle.fixed.clone();
            let first = run(
                project,
                facts,
                (*caller, None),
                &TriedProcess::first(),
                &mut oracle,
                Some(&mut memo),
                effort,
            );
            let own = outcomes(&first.trace, divergence.decision.test);
            if own.is_empty() {
                return false;
            }
            let (mut is_equal, mut differs) = (true, false);
            for process in others(&first.trace, |_| true) {
                let other =
                    run(project, facts, (*caller, None), &process, &mut oracle, Some(&mut memo), effort);
                is_equal &= part(&first.trace, &other.trace, &process).is_none();
                differs |= outcomes(&other.trace, divergence.decision.test) != own;
            }
            // Only where they part does it say something that they call the same.
            if differs || divergence.is_local {
                return is_equal;
            }
            paths.learn(&start, &oracle);
        }
        false
    })
}

/// Results of a decision, one for each evaluation.
fn outcomes(trace: &Trace, test: Origin) -> Vec<u64> {
    let met = trace.events.iter().filter_map(|event| match event {
        FlowEvent::Decision(decision) if decision.test == test => Some(decision.outcome),
        _ => None,
    });
    met.collect()
}

/// The processes on which a function may take another path than on the first.
fn others(trace: &Trace, counts: impl Fn(&Decision) -> bool) -> Vec<TriedProcess> {
    const AXES: [Axis; 9] = [
        Axis::Global,
        Axis::Local,
        Axis::Node,
        Axis::Data,
        Axis::Tensor,
        Axis::Pipeline,
        Axis::Context,
        Axis::Expert,
        Axis::Group,
    ];
    let mut axes: Axes = 0;
    for event in &trace.events {
        if let FlowEvent::Decision(decision) = event
            && counts(decision)
        {
            axes |= decision.taint.axes;
        }
        if let FlowEvent::Op(CollectiveOp { root: Some((_, by)), .. }) = event {
            axes |= by.axes;
        }
    }
    let mut list = Vec::new();
    for axis in AXES {
        if axes & bit(axis) != 0 {
            list.push(TriedProcess::other(axis));
        }
    }
    if axes & PLACE != 0 {
        list.push(TriedProcess::last());
    }
    list
}

fn decisions(trace: &Trace, until: usize) -> Vec<(usize, Decision, u32)> {
    let mut counts: BTreeMap<Origin, u32> = BTreeMap::new();
    let mut list = Vec::new();
    for (n, event) in trace.events.iter().enumerate().take(until) {
        if let FlowEvent::Decision(decision) = event {
            let count = counts.entry(decision.test).or_default();
            list.push((n, *decision, *count));
            *count += 1;
        }
    }
    list
}

/// Where the calls of two processes part, if they do.
fn part(a: &Trace, b: &Trace, other: &TriedProcess) -> Option<Divergence> {
    let mut groups: BTreeSet<GroupValue> = BTreeSet::new();
    for event in a.events.iter().chain(&b.events) {
        if let FlowEvent::Op(op) = event {
            groups.insert(op.group);
        }
    }
    groups.retain(|group| share(*group, other));
    let shared = groups.clone();
    groups
        .into_iter()
        .find_map(|group| part_in(group, a, b, other))
        .or_else(|| interleaved(&shared, a, b, other))
}

/// Calls of the first process that meet one that names another source or target.
fn other_roots(a: &Trace, b: &Trace, other: &TriedProcess) -> Vec<CollectiveOp> {
    let calls = |trace: &Trace, group: GroupValue| -> Vec<CollectiveOp> {
        let ops = trace.events.iter().filter_map(|event| match event {
            FlowEvent::Op(op) if op.group == group => Some(*op),
            _ => None,
        });
        ops.collect()
    };
    let rooted = a.events.iter().filter_map(|event| match event {
        FlowEvent::Op(op) if op.root.is_some() && share(op.group, other) => Some(op.group),
        _ => None,
    });
    let groups: BTreeSet<GroupValue> = rooted.collect();
    let mut found = Vec::new();
    for group in groups.into_iter().filter(|group| !matches!(group, GroupValue::Some(_))) {
        let (left, right) = (calls(a, group), calls(b, group));
        let met = left.iter().zip(&right).take_while(|(x, y)| x.name == y.name);
        let differs = met.filter(|(x, y)| x.root.zip(y.root).is_some_and(|((m, _), (n, _))| m != n));
        found.extend(differs.map(|(x, _)| *x));
    }
    found
}

/// Calls of two processes that meet with tensors of different types.
fn clashes(a: &Trace, b: &Trace) -> Vec<Clash> {
    struct Side {
        name: &'static str,
        at: Origin,
        dtype: Option<Dtype>,
        is_near: bool,
    }
    let meet = |left: &[Side], right: &[Side]| -> Vec<Clash> {
        let met = left
            .iter()
            .zip(right)
            .take_while(|(x, y)| x.name == y.name || x.name == "send" || y.name == "send");
        let clash = |(x, y): (&Side, &Side)| {
            let (mine, other) = (x.dtype?, y.dtype?);
            (mine != other).then_some(Clash {
                sides: [(x.name, x.at, mine), (y.name, y.at, other)],
                is_near: x.is_near && y.is_near && left.len() == right.len(),
            })
        };
        met.filter_map(clash).collect()
    };
    let calls = |trace: &Trace, group: GroupValue| -> Vec<Side> {
        let ops = trace.events.iter().filter_map(|event| match event {
            FlowEvent::Op(op) if op.group == group => {
                Some(Side { name: op.name, at: op.at, dtype: op.dtype, is_near: op.at == op.from })
            }
            _ => None,
        });
        ops.collect()
    };
    let messages = |trace: &Trace, sends: bool| -> Vec<Side> {
        let name = if sends { "send" } else { "recv" };
        let all = trace.events.iter().filter_map(|event| match event {
            FlowEvent::Message(m) if m.sends == sends => {
                Some(Side { name, at: m.at, dtype: m.dtype, is_near: true })
            }
            _ => None,
        });
        all.collect()
    };
    let typed = a.events.iter().filter_map(|event| match event {
        FlowEvent::Op(op) if op.dtype.is_some() => Some(op.group),
        _ => None,
    });
    let groups: BTreeSet<GroupValue> = typed.collect();
    let mut found = Vec::new();
    for group in groups {
        found.extend(meet(&calls(a, group), &calls(b, group)));
    }
    for sends in [true, false] {
        let (left, right) = (messages(a, sends), messages(b, !sends));
        if left.len() == right.len() {
            found.extend(meet(&left, &right));
        }
    }
    found
}

/// Two processes that call the same in each group, but go to the groups in another order: each waits for the other.
fn interleaved(
    groups: &BTreeSet<GroupValue>,
    a: &Trace,
    b: &Trace,
    other: &TriedProcess,
) -> Option<Divergence> {
    if a.is_cut || b.is_cut || groups.len() < 2 {
        return None;
    }
    let of = |trace: &Trace| -> Vec<(usize, CollectiveOp)> {
        let ops = trace.events.iter().enumerate().filter_map(|(n, event)| match event {
            FlowEvent::Op(op) if groups.contains(&op.group) && !op.is_guess && !op.is_endless => {
                Some((n, *op))
            }
            _ => None,
        });
        ops.collect()
    };
    let (left, right) = (of(a), of(b));
    if left.len() != right.len() {
        return None;
    }
    let (x, y) = left.iter().zip(&right).find(|((_, x), (_, y))| x.group != y.group)?;
    let (decision, _, op) = blame(a, b, Some(x), Some(y))?;
    let names = |list: &[(usize, CollectiveOp)]| list.iter().map(|(_, op)| op.name).collect::<Vec<_>>();
    Some(Divergence {
        decision,
        parting: Parting::Order,
        op,
        sides: [(TriedProcess::first().name(), names(&left)), (other.name(), names(&right))],
        is_local: decision.taint.axes == 0,
        is_usual: false,
        is_near: false,
    })
}

fn part_in(group: GroupValue, a: &Trace, b: &Trace, other: &TriedProcess) -> Option<Divergence> {
    let of = |trace: &Trace| -> Vec<(usize, CollectiveOp)> {
        let ops = trace.events.iter().enumerate().filter_map(|(n, event)| match event {
            FlowEvent::Op(op) if op.group == group => Some((n, *op)),
            _ => None,
        });
        ops.collect()
    };
    let (left, right) = (of(a), of(b));
    let same = left.iter().zip(&right).take_while(|((_, x), (_, y))| x.name == y.name).count();
    let (x, y) = (left.get(same), right.get(same));
    if (x.is_none() && y.is_none()) || (x.is_none() && a.is_cut) || (y.is_none() && b.is_cut) {
        return None;
    }
    let (mut decision, parting, op) = blame(a, b, x, y)?;
    // Who lacks the call because it raised may have been asked for what it never is.
    let raised = |trace: &Trace| {
        trace.events.iter().filter(|event| matches!(event, FlowEvent::Exit(FlowExit::Raise, _))).count()
    };
    let fails = |op: Option<&(usize, CollectiveOp)>, mine: &Trace, other: &Trace| {
        op.is_none() && raised(mine) > raised(other)
    };
    decision.is_known &= !fails(x, a, b) && !fails(y, b, a);
    // A rank in a list, and a group that may be just that list: nothing is proven. No more is it where a helper of another
    // file is given a group that nobody knows. Nor does a server's loop end.
    let is_elsewhere = op.at.file != decision.at.file;
    let is_open = matches!(group, GroupValue::Some(_)) && decision.taint.axes != 0;
    if (is_open && (is_elsewhere || !decision.is_known)) || op.is_endless {
        return None;
    }
    // The ranks of a tensor-parallel group work on the same batch.
    let is_of_batch =
        matches!(decision.taint.local, Some(Locally::Data | Locally::Loader | Locally::Part | Locally::End));
    if group == GroupValue::Axes(bit(Axis::Tensor)) && decision.taint.axes == 0 && is_of_batch {
        return None;
    }
    // Who takes the group down before it fails ends the job on purpose.
    let ends = (x.is_none() && a.is_over && !b.is_over) || (y.is_none() && b.is_over && !a.is_over);
    if ends && decision.taint.axes == 0 {
        return None;
    }
    let mut parting = parting;
    let names = |list: &[(usize, CollectiveOp)]| list.iter().map(|(_, op)| op.name).collect::<Vec<_>>();
    let (names_left, names_right) = (names(&left), names(&right));
    if parting == Parting::Branch && names_left.len() == names_right.len() {
        let (mut sorted_left, mut sorted_right) = (names_left.clone(), names_right.clone());
        sorted_left.sort_unstable();
        sorted_right.sort_unstable();
        if sorted_left == sorted_right {
            parting = Parting::Order;
        }
    }
    let is_local = decision.taint.axes == 0;
    let titles = if is_local {
        ["where it holds".to_owned(), "elsewhere".to_owned()]
    } else {
        [TriedProcess::first().name(), other.name()]
    };
    let [title_left, title_right] = titles;
    Some(Divergence {
        decision,
        parting,
        op,
        sides: [(title_left, names_left), (title_right, names_right)],
        is_local,
        is_usual: false,
        is_near: false,
    })
}

/// The decision after which two processes do not call the same.
fn blame(
    a: &Trace,
    b: &Trace,
    x: Option<&(usize, CollectiveOp)>,
    y: Option<&(usize, CollectiveOp)>,
) -> Option<(Decision, Parting, CollectiveOp)> {
    let all_a = decisions(a, usize::MAX);
    let all_b = decisions(b, usize::MAX);
    let mut fallback = None;
    for (op, own, mine, theirs, trace) in [(x, &all_a, a, &all_b, b), (y, &all_b, b, &all_a, a)]
        .into_iter()
        .filter_map(|(op, own, mine, theirs, trace)| Some((op?, own, mine, theirs, trace)))
    {
        for (_, decision, count) in own.iter().rev().filter(|(n, ..)| *n < op.0) {
            let met = theirs.iter().find(|(_, d, c)| d.test == decision.test && c == count);
            let Some((at, theirs_decision, _)) = met else { continue };
            if theirs_decision.outcome == decision.outcome {
                continue;
            }
            let whole = decision.at;
            let is_inside = |place: Origin| place.file == whole.file && whole.span.holds(place.span);
            if decision.kind == Decider::Decorator {
                return Some((*decision, Parting::Decorator, op.1));
            }
            let is_within = is_inside(op.1.at) || is_inside(op.1.from);
            // Whoever lacks the call left before it.
            let exits = || {
                trace.events.iter().skip(*at).filter_map(|event| match event {
                    FlowEvent::Exit(exit, place) if is_inside(*place) => Some((*exit, *place)),
                    _ => None,
                })
            };
            // Whoever leaves a loop and then raises is gone because it raised.
            let exit = exits().find(|(exit, _)| *exit == FlowExit::Raise).or_else(|| exits().next());
            let parting = match (decision.kind, exit) {
                // A handler that raises again changes nothing: without it the process would end, too.
                (Decider::Handler, Some((FlowExit::Raise, _))) if decision.taint.axes == 0 => continue,
                (Decider::Handler, _) => Parting::Handler,
                (Decider::For | Decider::While, None) if is_within => Parting::Loop,
                (_, Some((exit, place))) if !is_within || arm_leaves(decision, place) => {
                    Parting::Exit(exit, place)
                }
                _ if is_within => Parting::Branch,
                _ => {
                    // A call of the branch itself shifts those that follow; else nobody knows why they part.
                    let inside = |trace: &Trace| -> Vec<CollectiveOp> {
                        let ops = trace.events.iter().filter_map(|event| match event {
                            FlowEvent::Op(other) if other.group == op.1.group => Some(*other),
                            _ => None,
                        });
                        ops.filter(|other| is_inside(other.at) || is_inside(other.from)).collect()
                    };
                    let (more, fewer) = (inside(mine), inside(trace));
                    let shifts = !more.is_empty() || !fewer.is_empty();
                    let surplus = more.get(fewer.len()).or_else(|| fewer.get(more.len()));
                    let is_known = decision.is_known
                        && theirs_decision.is_known
                        && shifts
                        && !is_guesswork(own, theirs, op.0);
                    let unsure = Decision { is_known, ..*decision };
                    fallback = fallback.or(Some((unsure, Parting::Branch, *surplus.unwrap_or(&op.1))));
                    continue;
                }
            };
            let mut decision = *decision;
            decision.is_known &= theirs_decision.is_known && !is_guesswork(own, theirs, op.0);
            return Some((decision, parting, op.1));
        }
    }
    fallback
}

/// Whether two processes diverged before, at a condition whose result for a rank is unknown.
fn is_guesswork(own: &[(usize, Decision, u32)], theirs: &[(usize, Decision, u32)], until: usize) -> bool {
    own.iter().filter(|(n, d, _)| *n < until && d.taint.axes != 0).any(|(_, d, count)| {
        let met = theirs.iter().find(|(_, other, c)| other.test == d.test && c == count);
        met.is_some_and(|(_, other, _)| other.outcome != d.outcome && !(d.is_known && other.is_known))
    })
}

/// Whether an exit belongs to the branch of a decision.
fn arm_leaves(decision: &Decision, exit: Origin) -> bool {
    decision.kind == Decider::If && decision.arm.file == exit.file && decision.arm.span.holds(exit.span)
}
