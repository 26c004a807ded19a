//! What a first look at all functions tells, before any is tried: where collectives may be called, and which functions can
//! differ between processes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::catalog;
use super::held::{Attributes, Context};
use super::known::KnownValues;
use super::mentions::{Mentions, mentions};
use super::names::is_local_name;
use super::own;
use super::value::Global;
use crate::lookup::LookupMap;
use crate::python::ast::{CallExpr, Expr, ExprKind, Span, StmtKind};
use crate::python::index::{ClassId, FileId, FuncId, Meaning, Project};
use crate::python::walk;

/// Where something may happen in a file.
#[derive(Debug)]
pub(crate) struct FileFacts<'s> {
    /// Starts of calls that may communicate, in order.
    calls: Vec<u32>,
    /// Starts of return, break, continue and raise, in order.
    exits: Vec<u32>,
    /// Whether a configuration beside it shards parameters.
    is_beside_sharding: bool,
    /// Whether it imports a library that wraps models.
    imports_wrapper: bool,
    text: &'s str,
    /// Facts from its words, computed at the first request.
    said: OnceLock<Mentions>,
}

#[derive(Debug)]
pub(crate) struct Facts<'p, 's> {
    pub(crate) files: Vec<FileFacts<'s>>,
    /// Functions that may communicate.
    pub(crate) may: Vec<bool>,
    /// Functions that call something themselves that may communicate.
    pub(crate) direct: Vec<bool>,
    /// Functions with a condition, a loop or a handler of their own, or that look at a rank which they may hand on.
    pub(crate) branches: Vec<bool>,
    /// Functions with a loop of their own.
    pub(crate) loops: Vec<bool>,
    /// Functions that pass a rank to an object.
    pub(crate) looks: Vec<bool>,
    /// Functions whose outcome may depend on the rank or on local data.
    pub(crate) differs: Vec<bool>,
    /// Functions that look at a rank themselves, or at a value that another function, object or module made of one.
    pub(crate) decides: Vec<bool>,
    /// Functions that may return something that they made of a rank.
    pub(crate) tells: Vec<bool>,
    /// Functions in or below which a rank is looked at.
    pub(crate) ranked: Vec<bool>,
    /// Methods that a class inherits and whose calls of self reach what the class overrides.
    pub(crate) inherited: Vec<(FuncId, ClassId)>,
    /// Callers of each function, as far as names show them.
    pub(crate) callers: Vec<Vec<FuncId>>,
    /// Meaning of imports, functions and classes at the top of each file.
    pub(crate) globals: Vec<LookupMap<&'s str, Global>>,
    /// Assignments in each function, by name: value and position in a tuple.
    pub(crate) assigned: Vec<Assigned<'p, 's>>,
    /// Methods of several words that one class alone has, and that may communicate.
    pub(crate) only: BTreeMap<&'s str, FuncId>,
    /// Attributes that the handler of a signal sets.
    pub(crate) signalled: std::collections::BTreeSet<(ClassId, &'s str)>,
    /// Names of functions and modules that the handler of a signal sets.
    pub(crate) signalled_names: std::collections::BTreeSet<(FuncId, &'s str)>,
    /// Attributes that a loop in no order fills.
    pub(crate) unordered: std::collections::BTreeSet<(ClassId, &'s str)>,
    /// Assignments to attributes of self, by class.
    pub(crate) attributes: Vec<Attributes<'p, 's>>,
    /// Attributes that hold a set.
    pub(crate) sets: std::collections::BTreeSet<(ClassId, &'s str)>,
    /// Facts from all files together.
    pub(super) job: super::job::JobProgram,
    /// Functions that a decorator of the project keeps from some processes.
    pub(super) guarded: LookupMap<FuncId, super::guards::Guarding>,
    /// Values that were found.
    pub(super) known: KnownValues,
}

pub(crate) type Assigned<'p, 's> = LookupMap<&'s str, Vec<(&'p Expr<'s>, Option<usize>)>>;

impl FileFacts<'_> {
    fn any(list: &[u32], span: Span) -> bool {
        let at = list.partition_point(|start| *start < span.at);
        list.get(at).is_some_and(|start| *start < span.end)
    }

    fn said(&self) -> Mentions {
        *self.said.get_or_init(|| mentions(self.text))
    }

    /// Whether the file, or a configuration beside it, shards parameters.
    pub(crate) fn is_sharded(&self) -> bool {
        self.is_beside_sharding || self.said().sharding
    }

    /// The same, without what documentation alone says.
    pub(crate) fn is_sharded_in_code(&self) -> bool {
        self.is_beside_sharding || self.said().sharding_code
    }

    /// Whether a configuration alone says that parameters are sharded, and not the file itself.
    pub(crate) fn is_sharded_elsewhere(&self) -> bool {
        self.is_beside_sharding && !self.said().sharding
    }

    /// Whether a model holds buffers, which DDP sends before each forward pass.
    pub(crate) fn has_buffers(&self) -> bool {
        let said = self.said();
        said.buffers && !said.no_buffers
    }

    /// Whether the file imports what runs on several ranks.
    pub(crate) fn is_distributed(&self) -> bool {
        let said = self.said();
        // Who reduces gradients by hand wraps nothing.
        self.is_wrapped() || (!said.by_hand && said.processes)
    }

    /// Whether a model is wrapped so that its backward pass communicates.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.imports_wrapper || self.is_sharded() || self.said().wrapping
    }

    /// Whether a collective may be called there.
    pub(crate) fn communicates(&self, span: Span) -> bool {
        Self::any(&self.calls, span)
    }

    /// Whether control may leave there, or a collective be called.
    pub(crate) fn matters(&self, span: Span) -> bool {
        Self::any(&self.calls, span) || Self::any(&self.exits, span)
    }
}

/// Calls and contents of one function.
#[derive(Default)]
struct Sketch {
    direct: Vec<u32>,
    calls: Vec<(FuncId, u32)>,
    exits: Vec<u32>,
    differs: bool,
    ranked: bool,
    shuffles: bool,
    looks: bool,
    branches: bool,
    loops: bool,
    /// Whether it returns or yields a value.
    returns: bool,
    /// Functions that it makes handlers of signals.
    handlers: Vec<FuncId>,
}

impl<'p, 's> Facts<'p, 's> {
    /// `sharded`: folders below which a configuration shards parameters.
    pub(crate) fn new(project: &'p Project<'s>, sharded: &[String]) -> Self {
        use rayon::prelude::*;
        let attributes: Vec<Attributes<'p, 's>> =
            (0..project.classes.len()).into_par_iter().map(|class| attributes(project, class)).collect();
        let context = Context::new(project, &attributes);
        let mut sketches: Vec<(Sketch, Assigned<'p, 's>)> =
            (0..project.functions.len()).into_par_iter().map(|id| sketch(project, &context, id)).collect();
        let handlers: std::collections::BTreeSet<FuncId> =
            sketches.iter().flat_map(|(s, _)| s.handlers.iter().copied()).collect();
        let (signalled, signalled_names) = set_by_signals(project, &handlers);
        let n = sketches.len();
        let reached = overridden(project, &mut sketches);
        let mut may: Vec<bool> = sketches.iter().map(|(s, _)| !s.direct.is_empty()).collect();
        let mut differs: Vec<bool> = sketches.iter().map(|(s, _)| s.differs).collect();
        let mut ranked: Vec<bool> = sketches.iter().map(|(s, _)| s.ranked).collect();
        let globals: Vec<LookupMap<&'s str, Global>> =
            (0..project.files.len()).into_par_iter().map(|file| globals(project, file)).collect();
        let direct = sketches.iter().map(|(s, _)| !s.direct.is_empty()).collect();
        let branches = sketches.iter().map(|(s, _)| s.branches || s.ranked).collect();
        let loops = sketches.iter().map(|(s, _)| s.loops).collect();
        let looks: Vec<bool> = sketches.iter().map(|(s, _)| s.looks).collect();
        let mut callers: Vec<Vec<FuncId>> = vec![Vec::new(); n];
        for (id, (sketch, _)) in sketches.iter().enumerate() {
            for (callee, _) in &sketch.calls {
                callers[*callee].push(id);
            }
        }
        let decides = deciding(project, &sketches, &ranked, &callers);
        let tells = sketches.iter().zip(&decides).map(|((s, _), decides)| s.returns && *decides).collect();
        spread(&mut may, &callers);
        spread(&mut differs, &callers);
        spread(&mut ranked, &callers);
        let mut files: Vec<FileFacts<'s>> =
            project.files.par_iter().map(|file| of_file(file, sharded)).collect();
        let mut assigned = Vec::with_capacity(n);
        for (id, (sketch, names)) in sketches.into_iter().enumerate() {
            let file = &mut files[project.functions[id].file];
            file.exits.extend(&sketch.exits);
            file.calls.extend(&sketch.direct);
            file.calls.extend(sketch.calls.iter().filter(|(callee, _)| may[*callee]).map(|(_, at)| *at));
            assigned.push(names);
        }
        for file in &mut files {
            file.calls.sort_unstable();
            file.exits.sort_unstable();
        }
        let unordered = (0..project.classes.len()).flat_map(|class| unordered(project, class)).collect();
        let sets =
            attributes.iter().enumerate().flat_map(|(class, held)| super::held::sets(class, held)).collect();
        let job = super::job::JobProgram::new(project, context.called.clone());
        let only = context
            .methods
            .iter()
            .filter(|(name, methods)| methods.len() == 1 && is_telling_method(name) && may[methods[0]])
            .map(|(name, methods)| (*name, methods[0]))
            .collect();
        let mut inherited: Vec<(FuncId, ClassId)> = reached
            .into_iter()
            .filter(|(_, _, method)| may[*method])
            .map(|(id, class, _)| (id, class))
            .collect();
        inherited.sort_unstable();
        inherited.dedup();
        Self {
            files,
            may,
            direct,
            branches,
            loops,
            looks,
            differs,
            decides,
            tells,
            ranked,
            inherited,
            callers,
            globals,
            assigned,
            only,
            signalled,
            signalled_names,
            unordered,
            sets,
            job,
            attributes,
            guarded: context.guarded.clone(),
            known: KnownValues::default(),
        }
    }
}

fn of_file<'s>(file: &crate::python::index::PyFile<'s>, sharded: &[String]) -> FileFacts<'s> {
    let is_below = |folder: &String| {
        folder.is_empty() || file.path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    FileFacts {
        calls: Vec::new(),
        exits: Vec::new(),
        is_beside_sharding: sharded.iter().any(is_below),
        imports_wrapper: file.imports_any(&["deepspeed", "accelerate"]),
        text: file.text,
        said: OnceLock::new(),
    }
}

/// Most classes with methods of their own for which an inherited method is tried.
const MAX_HEIRS: usize = 4;

/// Adds calls of methods that heirs of a class override, and tells which inherited methods make them, on which class.
fn overridden<'p, 's>(
    project: &'p Project<'s>,
    sketches: &mut [(Sketch, Assigned<'p, 's>)],
) -> Vec<(FuncId, ClassId, FuncId)> {
    let mut heirs: BTreeMap<FuncId, Vec<(ClassId, FuncId)>> = BTreeMap::new();
    for (class, info) in project.classes.iter().enumerate() {
        let ancestry = project.ancestry(class);
        for (name, method) in &info.methods {
            for ancestor in ancestry.iter().skip(1) {
                if let Some(base) = project.classes[*ancestor].methods.get(name) {
                    heirs.entry(*base).or_default().push((class, *method));
                }
            }
        }
    }
    let mut reached = Vec::new();
    for (id, (sketch, _)) in sketches.iter_mut().enumerate() {
        let Some(own) = project.functions[id].class else { continue };
        let mut more = Vec::new();
        for (callee, at) in &sketch.calls {
            for (class, method) in heirs.get(callee).into_iter().flatten().take(MAX_HEIRS) {
                let is_inherited = project.method(*class, project.functions[id].def.name) == Some(id);
                if is_inherited && project.ancestry(*class).contains(&own) {
                    more.push((*method, *at));
                    reached.push((id, *class, *method));
                }
            }
        }
        sketch.calls.extend(more);
    }
    reached
}

/// Meaning of the names at the top of a file.
fn globals<'s>(project: &Project<'s>, file: FileId) -> LookupMap<&'s str, Global> {
    let names = project.files[file].names.keys();
    names.filter_map(|name| Some((*name, Global::of(project.resolve(file, name)?)))).collect()
}

/// Functions that may decide by a rank: they look at one, or at what their class or file made of one, or a function that they
/// call returns what it made of one.
fn deciding(
    project: &Project<'_>,
    sketches: &[(Sketch, Assigned<'_, '_>)],
    marked: &[bool],
    callers: &[Vec<FuncId>],
) -> Vec<bool> {
    let mut decides = marked.to_vec();
    // Closures see the names of the functions around them, which come first.
    for id in 0..project.functions.len() {
        decides[id] |= project.functions[id].parent.is_some_and(|outer| decides[outer]);
    }
    let mut stack: Vec<FuncId> =
        (0..decides.len()).filter(|id| decides[*id] && sketches[*id].0.returns).collect();
    while let Some(id) = stack.pop() {
        for caller in &callers[id] {
            if !decides[*caller] {
                decides[*caller] = true;
                if sketches[*caller].0.returns {
                    stack.push(*caller);
                }
            }
        }
    }
    decides
}

/// Passes a property on to callers.
fn spread(marks: &mut [bool], callers: &[Vec<FuncId>]) {
    let mut stack: Vec<FuncId> = (0..marks.len()).filter(|id| marks[*id]).collect();
    while let Some(id) = stack.pop() {
        for caller in &callers[id] {
            if !marks[*caller] {
                marks[*caller] = true;
                stack.push(*caller);
            }
        }
    }
}

fn sketch<'p, 's>(project: &'p Project<'s>, context: &Context<'s>, id: FuncId) -> (Sketch, Assigned<'p, 's>) {
    let func = &project.functions[id];
    let mut sketch = Sketch::default();
    let mut names: Assigned<'p, 's> = Assigned::default();
    let def = &*func.def;
    let is_guarded =
        context.guarded.contains_key(&id) || def.decorators.iter().any(|d| guard_name(d).is_some());
    sketch.differs = is_guarded
        || def.params.iter().any(|p| catalog::rank_name(p.name).is_some() || is_local_name(p.name));
    sketch.ranked = is_guarded || def.params.iter().any(|p| catalog::rank_name(p.name).is_some());
    sketch.branches = is_guarded;
    let wrapped_turns = turns_over_wrapped(project, context, id);
    walk::stmts(&def.body, &mut |stmt| {
        let is_loop = matches!(stmt.kind, StmtKind::For(_) | StmtKind::While(_));
        sketch.loops |= is_loop;
        sketch.branches |=
            is_loop || matches!(stmt.kind, StmtKind::If(_) | StmtKind::Try(_) | StmtKind::With(..));
        sketch.returns |= matches!(&stmt.kind, StmtKind::Return(Some(_)));
        match &stmt.kind {
            StmtKind::Return(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Raise(_) => {
                sketch.exits.push(stmt.span.at);
            }
            StmtKind::Try(_) => sketch.differs = true,
            StmtKind::Function(def) => sketch.differs |= def.decorators.iter().any(is_by_memory),
            StmtKind::Assign(targets, value) => {
                for target in targets {
                    assign(&mut names, target, value);
                    // Who ends the loop of a framework leaves the others waiting.
                    if super::job::ends_loop(target, value) {
                        sketch.direct.push(stmt.span.at);
                    }
                    sketch.looks |= super::job::keeps_local_rank(target, value);
                }
            }
            StmtKind::Annotated(_) | StmtKind::Augmented(_) => {
                if let Some((target, value)) = stmt.single_assignment() {
                    assign(&mut names, target, value);
                }
            }
            StmtKind::For(f) => sketch.differs |= f.iter.last_name().is_some_and(is_local_name),
            _ => {}
        }
        walk::own_exprs(stmt, &mut |expr| {
            walk::exprs(expr, &mut |expr| {
                note(project, context, id, expr, &names, &mut sketch);
                if let ExprKind::Call(call) = &expr.kind
                    && let ExprKind::Name(name) = &call.func.kind
                    && wrapped_turns.contains(name)
                {
                    sketch.direct.push(expr.span.at);
                }
            });
        });
    });
    // A part of a list for each rank.
    sketch.looks |= (sketch.ranked || func.class.is_some()) && (sketch.shuffles || def.has_yield);
    sketch.differs |= def.decorators.iter().any(is_by_memory);
    (sketch, names)
}

/// Names that a loop gives to wrapped models: `for layer in self.layers`.
fn turns_over_wrapped<'s>(project: &Project<'s>, context: &Context<'s>, id: FuncId) -> Vec<&'s str> {
    let mut names = Vec::new();
    let Some(class) = project.class_of_self(id) else { return names };
    let is_wrapped =
        |held: &str| project.ancestry(class).iter().any(|ancestor| context.wrapped[*ancestor].contains(held));
    walk::stmts(&project.functions[id].def.body, &mut |stmt| {
        let StmtKind::For(f) = &stmt.kind else { return };
        let over = match &f.iter.kind {
            ExprKind::Call(call) if call.func.last_name() == Some("enumerate") => call.args.first(),
            _ => Some(&f.iter),
        };
        let Some(ExprKind::Attr(of, held)) = over.map(|over| &over.kind) else { return };
        if !matches!(of.kind, ExprKind::Name("self")) || !is_wrapped(held) {
            return;
        }
        let turn = match &f.target.kind {
            ExprKind::Tuple(parts) => parts.last(),
            _ => Some(&f.target),
        };
        names.extend(turn.and_then(|turn| match turn.kind {
            ExprKind::Name(name) => Some(name),
            _ => None,
        }));
    });
    names
}

fn assign<'p, 's>(names: &mut Assigned<'p, 's>, target: &'p Expr<'s>, value: &'p Expr<'s>) {
    match &target.kind {
        ExprKind::Name(name) => names.entry(name).or_default().push((value, None)),
        ExprKind::Tuple(list) | ExprKind::List(list) => {
            for (n, part) in list.iter().enumerate() {
                if let ExprKind::Name(name) = &part.kind {
                    names.entry(name).or_default().push((value, Some(n)));
                }
            }
        }
        _ => {}
    }
}

/// Whether a decorator tries a function with smaller and smaller batches until one fits into memory.
fn is_by_memory(decorator: &Expr<'_>) -> bool {
    let name = match &decorator.kind {
        ExprKind::Call(call) => call.func.last_name(),
        _ => decorator.last_name(),
    };
    name == Some("find_executable_batch_size")
}

/// The guard that a decorator is.
pub(crate) fn guard_name(decorator: &Expr<'_>) -> Option<&'static ringleader_knowledge::collective::Guard> {
    let name = match &decorator.kind {
        ExprKind::Call(call) => call.func.last_name(),
        _ => decorator.last_name(),
    };
    catalog::guard(name?)
}

fn note<'s>(
    project: &Project<'s>,
    context: &Context<'s>,
    id: FuncId,
    expr: &Expr<'s>,
    names: &Assigned<'_, 's>,
    sketch: &mut Sketch,
) {
    match &expr.kind {
        ExprKind::Name(name) => {
            sketch.ranked |= catalog::rank_name(name).is_some()
                || context.ranked_names[project.functions[id].file].contains(name);
            sketch.differs |= catalog::rank_name(name).is_some() || is_local_name(name);
        }
        ExprKind::Attr(of, name) => {
            if catalog::is_property(name) {
                sketch.direct.push(expr.span.at);
            }
            if let Some(property) = context.properties.get(name).filter(|property| **property != id) {
                sketch.calls.push((*property, expr.span.at));
            }
            let is_own = || {
                matches!(of.kind, ExprKind::Name("self"))
                    && project.class_of_self(id).is_some_and(|class| context.is_ranked(project, class, name))
            };
            sketch.ranked |=
                catalog::rank_attribute(name).is_some() || context.rank_attributes.contains(name) || is_own();
            sketch.differs |= catalog::rank_attribute(name).is_some() || context.filled.contains(name);
        }
        ExprKind::Str(text) => {
            let is_rank = catalog::rank_variable(text).is_some();
            sketch.ranked |= is_rank;
            sketch.differs |= is_rank;
        }
        ExprKind::And(_) | ExprKind::Or(_) | ExprKind::Choice(_) => sketch.branches = true,
        ExprKind::Comprehension(_) => sketch.loops = true,
        ExprKind::Call(call) => {
            let name = call.func.last_name().unwrap_or_default();
            sketch.ranked |= catalog::rank_call(name).is_some()
                || ringleader_knowledge::collective::FIRSTS.contains(&name)
                || matches!(name, "rank" | "coordinate" | "get_coordinate");
            sketch.differs |= catalog::rank_call(name).is_some()
                || catalog::local_method(name).is_some()
                || matches!(
                    name,
                    "pad_sequence"
                        | "next"
                        | "len"
                        | "set"
                        | "time"
                        | "random"
                        | "done"
                        | "append"
                        | "update"
                );
            if matches!(name, "exit" | "_exit" | "quit") {
                sketch.exits.push(expr.span.at);
            }
            sketch.shuffles |= matches!(name, "randperm" | "permutation");
            sketch.looks |= matches!(
                name,
                "Thread" | "Timer" | "submit" | "run_in_executor" | "to_thread" | "apply_async"
            );
            sketch.looks |= ["rank", "seed", "random_state"].iter().any(|key| call.keyword(key).is_some())
                || (name == "DataLoader" && call.keyword("shuffle").is_some())
                || matches!(name, "register_buffer" | "register_parameter" | "add_module")
                || matches!(name, "set_epoch" | "set_rng_state" | "setstate" | "manual_seed");
            sketch.shuffles |= name == "shuffle";
            if name == "signal"
                && let Some(handler) = call.args.get(1).and_then(|handler| named(project, id, handler))
            {
                sketch.handlers.push(handler);
            }
            let target = match target(project, context, id, call) {
                Target::Nothing => own::of_local_object(
                    project,
                    project.functions[id].file,
                    |name| match names.get(name)?.last()? {
                        (value, None) => Some(value),
                        _ => None,
                    },
                    call,
                )
                .map_or(Target::Nothing, Target::Func),
                target => target,
            };
            match target {
                Target::Func(callee) => sketch.calls.push((callee, expr.span.at)),
                Target::May => sketch.direct.push(expr.span.at),
                Target::Nothing => {}
            }
        }
        _ => {}
    }
}

enum Target {
    Func(FuncId),
    May,
    Nothing,
}

/// Whether the name of a method is one that a library's object will hardly have, too.
fn is_telling_method(name: &str) -> bool {
    !name.starts_with('_') && name.len() >= 8 && name.contains('_')
}

/// The function that an expression names.
fn named(project: &Project<'_>, id: FuncId, expr: &Expr<'_>) -> Option<FuncId> {
    let dotted = expr.dotted()?;
    if let Some(method) = dotted.strip_prefix("self.") {
        return project.method(project.class_of_self(id)?, method);
    }
    let found = project.nested(id, &dotted);
    found.or_else(|| match project.resolve(project.functions[id].file, &dotted) {
        Some(Meaning::Func(func)) => Some(func),
        _ => None,
    })
}

type Attribute<'s> = (ClassId, &'s str);
type Variable<'s> = (FuncId, &'s str);

/// Attributes and names that handlers of signals set: of the object, of the functions around them, of the module.
fn set_by_signals<'s>(
    project: &Project<'s>,
    handlers: &std::collections::BTreeSet<FuncId>,
) -> (std::collections::BTreeSet<Attribute<'s>>, std::collections::BTreeSet<Variable<'s>>) {
    let mut attributes = std::collections::BTreeSet::new();
    let mut names = std::collections::BTreeSet::new();
    for id in handlers {
        let func = &project.functions[*id];
        let class = project.class_of_self(*id);
        let text = project.files[func.file].slice(func.def.span);
        walk::stmts(&func.def.body, &mut |stmt| {
            let StmtKind::Assign(targets, _) = &stmt.kind else { return };
            for target in targets {
                match &target.kind {
                    ExprKind::Attr(of, name) if matches!(of.kind, ExprKind::Name("self")) => {
                        attributes.extend(class.map(|class| (class, *name)));
                    }
                    ExprKind::Name(name) if text.contains("nonlocal ") => {
                        names.extend(func.parent.map(|outer| (outer, *name)));
                    }
                    ExprKind::Name(name) if text.contains("global ") => {
                        names.insert((project.files[func.file].main, *name));
                    }
                    _ => {}
                }
            }
        });
    }
    (attributes, names)
}

fn target(project: &Project<'_>, context: &Context<'_>, id: FuncId, call: &CallExpr<'_>) -> Target {
    let func = &project.functions[id];
    let name = match &call.func.kind {
        ExprKind::Name(name) | ExprKind::Attr(_, name) => *name,
        _ => return Target::Nothing,
    };
    let dotted = match &call.func.kind {
        ExprKind::Name(name) => Cow::Borrowed(*name),
        _ => match call.func.dotted() {
            Some(dotted) => Cow::Owned(dotted),
            None => return of_name(name),
        },
    };
    if let Some(class) = project.class_of_self(id)
        && let Some(rest) = dotted.strip_prefix("self.").or_else(|| dotted.strip_prefix("cls."))
    {
        let mut is_wrapped = false;
        return match project.method(class, rest) {
            Some(method) => Target::Func(method),
            // `self.comm.mean(...)`
            None => match rest.split_once('.').and_then(|(held, method)| {
                let classes = project.ancestry(class);
                let holder = classes.iter().find_map(|id| context.holders[*id].get(held))?;
                is_wrapped |= catalog::wrapped_method(project, *holder, method).is_some();
                project.method(*holder, method)
            }) {
                Some(_) if is_wrapped => Target::May,
                Some(method) if catalog::of_function(project, method).is_none() => Target::Func(method),
                // `self.stopper(score)`
                _ if let Some(called) = held_and_called(project, context, class, rest) => {
                    Target::Func(called)
                }
                // `self.model(batch)`
                _ if project.ancestry(class).iter().any(|id| context.wrapped[*id].contains(rest)) => {
                    Target::May
                }
                // `self.aggregator.get_dataset()`: the only method of this name.
                _ => match (of_name(name), context.methods.get(name)) {
                    (Target::Nothing, Some(methods)) if methods.len() == 1 && is_telling_method(name) => {
                        Target::Func(methods[0])
                    }
                    (target, _) => target,
                },
            },
        };
    }
    if let Some(nested) = project.nested(id, &dotted) {
        return Target::Func(nested);
    }
    match project.resolve(func.file, &dotted) {
        Some(Meaning::Func(callee)) => {
            if catalog::of_function(project, callee).is_some() {
                Target::May
            } else {
                Target::Func(callee)
            }
        }
        Some(Meaning::Class(class)) => match project.method(class, "__init__") {
            Some(init) => Target::Func(init),
            None => Target::Nothing,
        },
        Some(Meaning::External(path)) => {
            let kind_may = catalog::at(&path).is_some()
                || ["__init__", "__iter__"].iter().any(|name| catalog::method(&path, name).is_some());
            if kind_may { Target::May } else { of_name(name) }
        }
        // A method by name: what it is called on is only known when it is tried.
        Some(Meaning::Module(_) | Meaning::Var(..)) | None => {
            if let Some(called) = super::job::called_by_name(project, &context.called, id, &dotted) {
                return Target::Func(called);
            }
            match (of_name(name), project.method_in(func.file, name)) {
                (Target::Nothing, Some(method)) if dotted.contains('.') => Target::Func(method),
                // The only method of this name.
                (Target::Nothing, None) if dotted.contains('.') => match context.methods.get(name) {
                    Some(methods) if methods.len() == 1 => Target::Func(methods[0]),
                    _ => Target::Nothing,
                },
                (target, _) => target,
            }
        }
    }
}

/// What runs when an object of the project is called that an attribute holds.
fn held_and_called(
    project: &Project<'_>,
    context: &Context<'_>,
    class: ClassId,
    name: &str,
) -> Option<FuncId> {
    let holder = project.ancestry(class).iter().find_map(|id| context.holders[*id].get(name))?;
    project.called(*holder)
}

fn of_name(name: &str) -> Target {
    let may = catalog::is_name(name)
        || catalog::is_telling(name)
        || matches!(
            name,
            "model" | "net" | "ddp_model" | "fsdp_model" | "student" | "policy" | "actor" | "wrapped_model"
        );
    if may { Target::May } else { Target::Nothing }
}

fn attributes<'p, 's>(project: &'p Project<'s>, class: ClassId) -> Attributes<'p, 's> {
    let mut map = Attributes::default();
    let Some(info) = project.classes.get(class) else { return map };
    for method in info.methods.values() {
        let Some(func) = project.functions.get(*method) else { continue };
        let mut add = |target: &'p Expr<'s>, value: &'p Expr<'s>, n: Option<usize>| {
            if let ExprKind::Attr(of, name) = &target.kind
                && matches!(of.kind, ExprKind::Name("self"))
            {
                map.entry(name).or_default().push((*method, value, n));
            }
        };
        walk::stmts(&func.def.body, &mut |stmt| match &stmt.kind {
            StmtKind::Assign(targets, value) => {
                for target in targets {
                    match &target.kind {
                        ExprKind::Tuple(list) => {
                            list.iter().enumerate().for_each(|(n, part)| add(part, value, Some(n)));
                        }
                        _ => add(target, value, None),
                    }
                }
            }
            _ => {
                if let Some((target, value)) = stmt.single_assignment() {
                    add(target, value, None);
                }
            }
        });
    }
    map
}

/// Attributes of a class that a loop over a set fills.
fn unordered<'s>(project: &Project<'s>, class: ClassId) -> Vec<(ClassId, &'s str)> {
    let mut list = Vec::new();
    let methods = project.classes.get(class).into_iter().flat_map(|info| info.methods.values());
    for func in methods.filter_map(|id| project.functions.get(*id)) {
        walk::stmts(&func.def.body, &mut |stmt| {
            let StmtKind::For(f) = &stmt.kind else { return };
            let is_set = match &f.iter.kind {
                ExprKind::Set(_) => true,
                ExprKind::Call(call) => matches!(call.func.last_name(), Some("set" | "frozenset")),
                _ => false,
            };
            if !is_set {
                return;
            }
            walk::stmts(&f.body, &mut |inner| {
                if let StmtKind::Assign(targets, _) = &inner.kind {
                    for target in targets {
                        if let ExprKind::Index(of, _) = &target.kind
                            && let ExprKind::Attr(base, name) = &of.kind
                            && matches!(base.kind, ExprKind::Name("self"))
                        {
                            list.push((class, *name));
                        }
                    }
                }
            });
        });
    }
    list
}

impl<'s> Facts<'_, 's> {
    pub(crate) fn file(&self, id: FileId) -> &FileFacts<'s> {
        &self.files[id]
    }
}
