//! Tries the statements of a function on one process.
//!
//! Values that are not known keep a number each, so that a condition met again falls out as before. Conditions that
//! are the same on all processes are decided by the `Oracle`; those on the rank by the process itself.

use std::collections::{BTreeMap, BTreeSet};

use super::catalog;
use super::facts::{Facts, guard_name};
use super::memo::Memo;
use super::scope::{Dotted, Key, Scope, dotted};
use super::trace::{Decider, Decision, FlowEvent, FlowExit, Oracle, Trace, TriedProcess};
use super::value::{Data, GroupValue, Items, Locally, Origin, Taint, Val, hash, hash_text};
use crate::lookup::{LookupMap, LookupSet};
use crate::python::ast::{Expr, ExprKind, Param, ParamKind, Span, Stmt, StmtKind};
use crate::python::index::{ClassId, FileId, FuncId, Project};

/// Statements and expressions of one run.
pub(crate) const MAX_STEPS: usize = 8_000;
/// Depth of calls that are followed.
pub(super) const MAX_FRAMES: usize = 7;
/// How a statement ends.
#[derive(Debug)]
pub(crate) enum Flow {
    Next,
    Return(Val),
    Break,
    Continue,
    Raise,
    /// A bound was hit.
    Cut,
}

/// A call that other rules look at.
#[derive(Clone, Debug)]
pub(crate) struct SeenCall {
    pub(crate) path: String,
    pub(crate) at: Origin,
    pub(crate) args: Vec<Val>,
    pub(crate) keywords: Vec<(String, Val)>,
    pub(crate) row: Option<catalog::CatalogRow>,
    /// In what the number of turns of a loop around it may differ.
    pub(crate) order: Taint,
}

impl SeenCall {
    /// The argument with this name, or at this position.
    pub(crate) fn argument(&self, name: &str, at: usize) -> Option<&Val> {
        let by_name = self.keywords.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        by_name.or_else(|| self.args.get(at))
    }
}

#[derive(Debug)]
pub(crate) struct CallFrame<'p, 's> {
    pub(crate) func: FuncId,
    pub(crate) file: FileId,
    pub(crate) scope: Scope<'s>,
    pub(crate) this: Option<Val>,
    /// Taint of the branches that are being executed.
    pub(crate) control: Vec<Taint>,
    /// Taint of all decisions so far.
    pub(crate) decided: Taint,
    pub(crate) loops: usize,
    /// Parameters that a collective made equal on all processes.
    pub(crate) agreed: BTreeSet<&'s str>,
    /// The block that a `yield` of a context manager runs.
    pub(crate) hook: Option<&'p [Stmt<'s>]>,
    pub(crate) after_hook: Option<Flow>,
    /// Objects that received the process's own data, by number.
    pub(super) fed: Vec<(u64, Taint)>,
}

#[derive(Debug)]
pub(crate) struct Interpreter<'m, 'p, 's> {
    pub(crate) project: &'p Project<'s>,
    pub(crate) facts: &'p Facts<'p, 's>,
    pub(crate) process: &'m TriedProcess,
    pub(crate) oracle: &'m mut Oracle,
    pub(crate) frames: Vec<CallFrame<'p, 's>>,
    pub(crate) trace: Trace,
    pub(crate) seen: Vec<SeenCall>,
    /// Conditions on local data that were met: number, taint, place.
    pub(crate) local: Vec<(u64, Taint, Origin)>,
    pub(crate) steps: usize,
    /// Above 0, no event is recorded.
    pub(crate) muted: usize,
    pub(crate) no_sync: usize,
    pub(crate) joined: usize,
    /// Loops without end, below a branch by rank, that are being executed.
    pub(crate) endless: usize,
    /// The statement of the function under test that is being executed.
    pub(crate) root: Span,
    pub(crate) order: Vec<Taint>,
    /// Values of names that were looked up outside of what is executed.
    pub(crate) known: LookupMap<u64, Val>,
    /// Iterables of the loops under execution.
    pub(crate) loops: Vec<Origin>,
    /// Loops that all processes leave together.
    pub(crate) settled: Vec<Origin>,
    /// Results of calls in other runs of the function under test.
    pub(super) memo: Option<&'m mut Memo<'s>>,
    /// Conditions on local data, each time that they were met.
    pub(super) noted: Vec<(u64, Taint, Origin)>,
    /// Functions that were entered.
    pub(super) entered: Vec<FuncId>,
    /// The lowest frame whose function was not entered again.
    pub(super) lowest: usize,
    pub(super) process_number: u64,
    /// The number of the process without what is decided for it.
    pub(super) place_number: u64,
    pub(super) has_overrides: bool,
    /// Calls under way while a value is found as if there were none.
    pub(super) below: usize,
    /// Values that the run paid for.
    pub(super) paid: LookupSet<u64>,
    /// How often a condition fell out as it is decided for the process.
    pub(super) n_overridden: usize,
    /// A checkpoint that is being written while the process goes on, on the default group.
    pub(crate) in_background: Option<Origin>,
    /// Above 0, a method is followed that only its name tells.
    pub(crate) guessing: usize,
    /// Attributes that the last function under test left behind.
    carried: BTreeMap<Dotted<'s>, Val>,
    /// Whether the default group was destroyed: what follows is local.
    pub(crate) is_over: bool,
    /// Whether the last condition fell out by the rank without saying how.
    pub(super) guessed: bool,
    /// Depth of calls that are followed.
    pub(crate) max_frames: usize,
    /// Whether conditions on a process's own data matter.
    pub(crate) with_local: bool,
    /// Whether rules look at the calls of this run.
    pub(crate) with_seen: bool,
    /// Branches under execution for which the processes that take them are unknown.
    pub(crate) open_arms: usize,
    /// Flags that end a framework's loop, set under a condition on the rank and not agreed upon since.
    pub(super) stops: Vec<(&'s str, Origin)>,
    /// Such flags at the end of the run.
    pub(super) left: Vec<Origin>,
    /// Whether it is only asked where the function under test decides by the rank: what communicates does not matter then.
    pub(crate) is_survey: bool,
}

impl<'m, 'p, 's> Interpreter<'m, 'p, 's> {
    pub(crate) fn new(
        project: &'p Project<'s>,
        facts: &'p Facts<'p, 's>,
        process: &'m TriedProcess,
        oracle: &'m mut Oracle,
    ) -> Self {
        Self {
            project,
            facts,
            process,
            oracle,
            frames: Vec::new(),
            trace: Trace::default(),
            seen: Vec::new(),
            local: Vec::new(),
            steps: MAX_STEPS,
            muted: 0,
            no_sync: 0,
            joined: 0,
            endless: 0,
            root: Span::default(),
            order: Vec::new(),
            known: LookupMap::default(),
            loops: Vec::new(),
            settled: Vec::new(),
            memo: None,
            noted: Vec::new(),
            entered: Vec::new(),
            lowest: usize::MAX,
            process_number: process.number(),
            place_number: process.place_number(),
            has_overrides: !process.overrides.is_empty(),
            n_overridden: 0,
            below: 0,
            paid: LookupSet::default(),
            in_background: None,
            guessing: 0,
            carried: BTreeMap::new(),
            is_over: false,
            guessed: false,
            max_frames: MAX_FRAMES,
            with_local: true,
            with_seen: false,
            open_arms: 0,
            stops: Vec::new(),
            left: Vec::new(),
            is_survey: false,
        }
    }

    /// Tries a function with unknown arguments.
    pub(crate) fn run(&mut self, func: FuncId, class: Option<ClassId>) {
        let f = &self.project.functions[func];
        if !self.passes_guards(func) {
            return;
        }
        let class = class.or_else(|| self.project.class_of_self(func));
        let this = class.map(|class| Val::new(Data::Instance(class), hash(&[10, class as u64])));
        self.push_frame(func, this);
        for param in &f.def.params {
            let value = self.parameter(func, param);
            self.bind(param.name, value);
        }
        let carried = std::mem::take(&mut self.carried);
        self.frame().scope.add_attrs(carried);
        let flow = self.block(&f.def.body);
        if matches!(flow, Flow::Cut) {
            self.trace.is_cut = true;
        }
        self.stepped(func, &flow);
        self.stopped_alone(func);
        self.carried = self.frames.pop().map(|frame| frame.scope.into_attrs()).unwrap_or_default();
    }

    pub(crate) fn push_frame(&mut self, func: FuncId, this: Option<Val>) {
        self.frames.push(CallFrame {
            func,
            file: self.project.functions[func].file,
            scope: Scope::default(),
            this,
            control: Vec::new(),
            decided: Taint::NONE,
            loops: 0,
            agreed: BTreeSet::new(),
            hook: None,
            after_hook: None,
            fed: Vec::new(),
        });
    }

    /// Whether the decorators of a function let this process in.
    pub(crate) fn passes_guards(&mut self, func: FuncId) -> bool {
        let f = &self.project.functions[func];
        for decorator in &f.def.decorators {
            let Some(guard) = guard_name(decorator) else { continue };
            let passes = self.process.is(guard.axis, guard.value);
            let origin = Origin { file: f.file, span: decorator.span };
            let whole = Origin { file: f.file, span: f.def.span };
            self.record(FlowEvent::Decision(Decision {
                kind: Decider::Decorator,
                at: whole,
                test: origin,
                arm: whole,
                outcome: u64::from(passes),
                taint: Taint::rank(super::value::bit(guard.axis), origin),
                is_known: true,
                func,
            }));
            if !passes {
                return false;
            }
        }
        self.passes_wrapper(func)
    }

    /// Knowledge of a parameter without a caller.
    pub(crate) fn parameter(&mut self, func: FuncId, param: &'p Param<'s>) -> Val {
        let f = &self.project.functions[func];
        let sym = hash(&[11, func as u64, hash_text(param.name)]);
        let origin = Origin { file: f.file, span: f.def.name_span };
        if param.kind != ParamKind::Plain && param.kind != ParamKind::KeywordOnly {
            return Val::unknown(sym);
        }
        if matches!(param.name, "self" | "cls")
            && let Some(this) = &self.frames.last().and_then(|frame| frame.this.clone())
        {
            return this.clone();
        }
        if let Some(kind) = param.annotation.as_ref().and_then(|a| self.annotated(f.file, a)) {
            let is_sharded = is_model_name(param.name) && self.facts.file(f.file).is_sharded();
            return Val { is_sharded, ..kind.with_sym(sym) };
        }
        if let Some(rank) = catalog::rank_name(param.name)
            && !self.is_low_rank(func)
        {
            return self.rank_value(rank, origin);
        }
        let value = self.conventional(f.file, param.name, sym, origin);
        // The number of a batch or of an optimiser is the same on all.
        let is_number = param.name.ends_with("_idx") || param.name.ends_with("_index");
        if matches!(value.data, Data::Unknown)
            && value.taint.is_clean()
            && !is_number
            && self.is_given_a_batch(func)
        {
            let is_optional = matches!(param.default.as_ref().map(|d| &d.kind), Some(ExprKind::None));
            let kind = if is_optional && super::names::is_of_some_samples(param.name) {
                Locally::Part
            } else {
                Locally::Data
            };
            let taint = Taint::local(kind, origin);
            return Val { shape: taint, ..value.tainted(taint) };
        }
        value
    }

    /// Whether a method of a model is given what its process has of a batch.
    fn is_given_a_batch(&self, func: FuncId) -> bool {
        let f = &self.project.functions[func];
        let is_step = matches!(
            f.def.name,
            "forward" | "training_step" | "validation_step" | "test_step" | "predict_step"
        );
        is_step
            && f.class.is_some_and(|class| {
                self.project.external_bases(class).iter().any(|base| base.ends_with("Module"))
            })
    }

    fn annotated(&mut self, file: FileId, annotation: &Expr<'s>) -> Option<Val> {
        use crate::python::index::Meaning;
        let annotation = match &annotation.kind {
            // `"Accelerator"`, `Optional[Accelerator]`.
            ExprKind::Index(of, inner) if of.last_name() == Some("Optional") => inner,
            _ => annotation,
        };
        let dotted = match &annotation.kind {
            ExprKind::Str(text) => text.to_string(),
            _ => annotation.dotted()?,
        };
        match self.project.resolve(file, &dotted)? {
            Meaning::Class(class) => Some(Val::new(Data::Instance(class), 0)),
            Meaning::External(path) if catalog::is_class(&path) => Some(self.object_of(&path)),
            _ => None,
        }
    }

    /// An object of a class outside of the project, or of the one class in it that inherits from that.
    fn object_of(&self, kind: &str) -> Val {
        match self.facts.job.module.filter(|_| kind.ends_with("LightningModule")) {
            Some(class) => Val::new(Data::Instance(class), 0),
            None => Val::object(kind, 0),
        }
    }

    /// The usual meaning of a name.
    pub(crate) fn conventional(&mut self, file: FileId, name: &str, sym: u64, origin: Origin) -> Val {
        let entry = &self.project.files[file];
        if let Some(kind) = catalog::receiver(name, |packages| entry.imports_any(packages)) {
            return self.object_of(kind).with_sym(sym);
        }
        // Nobody asks what a job of one process does.
        if matches!(name, "world_size" | "num_processes" | "nprocs" | "n_ranks") {
            return Val::int(super::trace::WORLD);
        }
        if matches!(name, "num_stages" | "pp_size" | "pipeline_parallel_size" | "num_pipeline_stages") {
            return Val::int(super::trace::TriedProcess::size(
                ringleader_knowledge::collective::Axis::Pipeline,
            ));
        }
        if matches!(
            name,
            "distributed" | "is_distributed" | "use_distributed" | "is_ddp" | "use_ddp" | "multi_gpu"
        ) {
            return Val::truth(true);
        }
        if is_group_name(name) {
            return Val::new(Data::Group(group_of_name(name, sym)), sym);
        }
        let is_sharded = is_model_name(name) && self.facts.file(file).is_sharded();
        let mut value = Val { is_sharded, ..Val::unknown(sym) };
        if super::names::is_local_name(name) {
            let is_loader =
                ["loader", "iterator", "dataset", "batches"].iter().any(|word| name.contains(word));
            let kind = match name {
                // A parameter that the process's batch did not use has none.
                "grad" => Locally::Part,
                _ if is_loader => Locally::Loader,
                _ => Locally::Data,
            };
            value = value.tainted(Taint::local(kind, origin));
            // A gradient is as large as its parameter, and a loss is a number.
            if !matches!(name, "grad" | "loss") && super::names::is_sized_name(name) {
                value.shape = value.taint;
            }
        }
        value
    }

    /// Whether a function is about matrices of low rank.
    pub(crate) fn is_low_rank(&self, func: FuncId) -> bool {
        let f = &self.project.functions[func];
        let is = |text: &str| {
            let lower = text.to_ascii_lowercase();
            ["lora", "galore", "lowrank", "low_rank", "svd", "adapter", "factoriz"]
                .iter()
                .any(|w| lower.contains(w))
        };
        is(&f.qualified) || is(self.project.files[f.file].path) || f.def.params.iter().any(|p| is(p.name))
    }

    pub(crate) fn frame(&mut self) -> &mut CallFrame<'p, 's> {
        // A frame is there while anything is evaluated; an empty one keeps this total.
        if self.frames.is_empty() {
            self.push_frame(0, None);
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Number of calls under way.
    pub(super) fn depth(&self) -> usize {
        self.below + self.frames.len()
    }

    pub(crate) fn file(&self) -> FileId {
        self.frames.last().map_or(0, |frame| frame.file)
    }

    pub(crate) fn func(&self) -> FuncId {
        self.frames.last().map_or(0, |frame| frame.func)
    }

    pub(crate) fn origin(&self, span: Span) -> Origin {
        Origin { file: self.file(), span }
    }

    pub(crate) fn record(&mut self, event: FlowEvent) {
        if self.muted == 0 {
            self.trace.events.push(event);
        }
    }

    pub(crate) fn bind(&mut self, name: &'s str, value: Val) {
        // What all processes hold alike is the same in each branch.
        let control = if value.agreed { Taint::NONE } else { self.control() };
        let frame = self.frame();
        frame.scope.forget_attrs_of(name);
        // A loss is one number, whatever the batch it is of.
        let value = if name == "loss" || name.ends_with("_loss") {
            Val { shape: Taint::NONE, ..value }
        } else {
            value
        };
        frame.scope.set(name, value.tainted(control));
    }

    /// In what the statement that is being executed may run on some processes alone.
    pub(super) fn control(&self) -> Taint {
        let control = self.frames.last().map(|frame| &frame.control);
        control.into_iter().flatten().fold(Taint::NONE, |a, b| a.join(*b))
    }

    /// Whether what is being executed, or a call that led there, may run on some processes alone.
    pub(super) fn is_parted(&self) -> bool {
        self.frames.iter().any(|frame| frame.control.iter().any(|taint| taint.axes != 0))
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    pub(crate) fn block(&mut self, block: &'p [Stmt<'s>]) -> Flow {
        for stmt in block {
            if !self.step() {
                return Flow::Cut;
            }
            if self.frames.len() == 1 && self.muted == 0 {
                self.root = stmt.span;
            }
            match self.stmt(stmt) {
                Flow::Next => {}
                other => return other,
            }
        }
        Flow::Next
    }

    fn stmt(&mut self, stmt: &'p Stmt<'s>) -> Flow {
        match &stmt.kind {
            StmtKind::Expr(Expr { kind: ExprKind::Str(_), .. }) => Flow::Next,
            StmtKind::Expr(e) | StmtKind::Assert(e) => {
                self.eval(e);
                if let Some(exit) = end_of_process(e) {
                    self.exit(exit, stmt.span);
                    return Flow::Raise;
                }
                Flow::Next
            }
            StmtKind::Assign(targets, value) => {
                let is_measured = self.with_local && super::own::measures(value);
                let value = self.eval(value);
                for target in targets {
                    self.assign(target, value.clone());
                    if is_measured {
                        self.measured(target);
                    }
                }
                Flow::Next
            }
            StmtKind::Augmented(parts) => {
                let [target, value] = &**parts;
                let (old, new) = (self.eval(target), self.eval(value));
                let sym = hash(&[12, old.sym, new.sym, u64::from(stmt.span.at)]);
                let mut joined = Val::unknown(sym).tainted(old.taint).tainted(new.taint);
                // A tensor keeps its size.
                let is_tensor = old.dtype.is_some();
                joined.shape = if is_tensor { old.shape } else { old.shape.join(new.shape) };
                joined.dtype = old.dtype;
                self.assign(target, joined);
                Flow::Next
            }
            StmtKind::Annotated(a) => {
                if let Some(value) = &a.value {
                    let mut value = self.eval(value);
                    let file = self.file();
                    if matches!(value.data, Data::Unknown)
                        && let Some(kind) = self.annotated(file, &a.annotation)
                    {
                        value = kind.with_sym(value.sym);
                    }
                    self.assign(&a.target, value);
                }
                Flow::Next
            }
            StmtKind::Return(value) => {
                let value = value.as_ref().map_or_else(Val::none, |value| self.eval(value));
                let control = self.control();
                self.exit(FlowExit::Return, stmt.span);
                Flow::Return(value.tainted(control))
            }
            StmtKind::Raise(value) => {
                if let Some(value) = value {
                    self.eval(value);
                }
                self.exit(FlowExit::Raise, stmt.span);
                Flow::Raise
            }
            StmtKind::Break => {
                self.exit(FlowExit::Break, stmt.span);
                Flow::Break
            }
            StmtKind::Continue => {
                self.exit(FlowExit::Continue, stmt.span);
                Flow::Continue
            }
            StmtKind::If(arms) => self.branch(arms, stmt.span),
            StmtKind::For(f) => self.for_loop(f, stmt.span),
            StmtKind::While(w) => self.while_loop(w, stmt.span),
            StmtKind::With(items, body) => self.with(items, body),
            StmtKind::Try(t) => self.attempt(t, stmt.span),
            StmtKind::Function(def) => {
                if let Some(id) = self.project.function_of(def) {
                    let value = Val::new(Data::Func(id, None), hash(&[13, id as u64]));
                    self.bind(def.name, value);
                }
                Flow::Next
            }
            StmtKind::Delete(_) | StmtKind::Class(_) | StmtKind::Import(_) | StmtKind::Other => Flow::Next,
        }
    }

    fn exit(&mut self, exit: FlowExit, span: Span) {
        let origin = self.origin(span);
        self.record(FlowEvent::Exit(exit, origin));
    }

    pub(super) fn assign(&mut self, target: &'p Expr<'s>, value: Val) {
        match &target.kind {
            ExprKind::Name(name) => self.bind(name, value),
            ExprKind::Attr(of, name) => {
                self.kept(of, name, target.span, &value);
                if let Some(path) = dotted(target) {
                    let control = self.control();
                    self.frame().scope.put(Key::Attr(path), Some(value.tainted(control)));
                }
            }
            ExprKind::Tuple(parts) | ExprKind::List(parts) => {
                for (n, part) in parts.iter().enumerate() {
                    let one = Self::part(&value, n);
                    self.assign(part, one);
                }
            }
            ExprKind::Star(inner) => self.assign(inner, value),
            ExprKind::Index(of, _) => {
                self.allocated(of, &value);
                if let (Some(order), ExprKind::Name(name)) = (self.order.last().copied(), &of.kind)
                    && let Some(old) = self.frame().scope.name(name).cloned()
                {
                    // A dict that is filled in no order has none.
                    let filled = Val { data: Data::Unknown, sym: hash(&[22, old.sym]), ..old }.tainted(order);
                    self.bind(name, filled);
                    return;
                }
                // A list with a part of another kind differs as a whole.
                if !value.taint.is_clean()
                    && let ExprKind::Name(name) = &of.kind
                    && let Some(old) = self.frame().scope.name(name).cloned()
                {
                    let sym = hash(&[14, old.sym, value.sym]);
                    let data =
                        if matches!(old.data, Data::Items(..)) { Data::Unknown } else { old.data.clone() };
                    let mixed = Val { data, sym, ..old }.tainted(value.taint);
                    self.bind(name, mixed);
                }
            }
            _ => {}
        }
    }

    /// A rank that does not send allocates the received parts, so all ranks know their sizes.
    fn allocated(&mut self, of: &Expr<'s>, value: &Val) {
        let is_sized = value.shape.is_clean() && value.dtype.is_some();
        if is_sized
            && self.control().axes != 0
            && let ExprKind::Name(name) = &of.kind
            && let Some(old) = self.frame().scope.name(name).cloned()
        {
            self.frame().scope.set(name, Val { shape: Taint::NONE, ..old });
        }
    }

    /// The n-th part of a value that is taken apart.
    pub(crate) fn part(value: &Val, n: usize) -> Val {
        match &value.data {
            Data::Items(Items::Ordered, items) if n < items.len() => items[n].clone(),
            Data::Object(kind) if &**kind == super::value::OUTPUT => {
                Val::unknown(hash(&[15, value.sym, n as u64])).tainted(value.taint)
            }
            // `engine, optimizer, _, _ = deepspeed.initialize(...)`
            Data::Object(kind) if n == 0 => Val::object(kind, hash(&[15, value.sym, n as u64])),
            _ => {
                let mut one = Val::unknown(hash(&[15, value.sym, n as u64])).tainted(value.taint);
                one.shape = value.shape;
                one.agreed = value.agreed;
                one
            }
        }
    }

    /// Whether a call is followed: to a bounded depth, and no function within itself.
    pub(crate) fn can_enter(&mut self, func: FuncId) -> bool {
        if self.frames.len() >= self.max_frames {
            return false;
        }
        if let Some(at) = self.frames.iter().position(|frame| frame.func == func) {
            self.lowest = self.lowest.min(at);
            return false;
        }
        self.entered.push(func);
        true
    }
}

/// How an expression ends the process: after an exit with success the launcher does not stop the other ranks.
fn end_of_process(expr: &Expr<'_>) -> Option<FlowExit> {
    let ExprKind::Call(call) = &expr.kind else { return None };
    if !matches!(call.func.last_name(), Some("exit" | "quit" | "_exit")) {
        return None;
    }
    let is_well = match call.args.first().map(|status| &status.kind) {
        None | Some(ExprKind::None) => true,
        Some(status) => matches!(status, ExprKind::Int(0)),
    };
    let is_end = matches!(call.func.dotted().as_deref(), Some("sys.exit" | "exit" | "quit" | "os._exit"));
    is_end.then_some(if is_well { FlowExit::Return } else { FlowExit::Raise })
}

/// Whether a name usually denotes the trained model.
pub(crate) fn is_model_name(name: &str) -> bool {
    matches!(name, "model" | "policy" | "actor" | "student" | "net" | "unet" | "transformer")
}

/// Whether a name is that of a process group.
pub(crate) fn is_group_name(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or_default();
    last.eq_ignore_ascii_case("group") || last.eq_ignore_ascii_case("pg")
}

pub(crate) fn group_of_name(name: &str, sym: u64) -> GroupValue {
    let axes = ringleader_knowledge::collective::axes_of_group(name);
    if axes.is_empty() {
        GroupValue::Some(sym)
    } else {
        GroupValue::Axes(axes.into_iter().fold(0, |mask, axis| mask | super::value::bit(axis)))
    }
}

impl Val {
    pub(crate) fn with_sym(mut self, sym: u64) -> Self {
        self.sym = sym;
        self
    }
}
