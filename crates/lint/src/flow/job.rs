//! Facts on the job from all files of a project, and on a process from some assignments and loops.

use std::collections::BTreeMap;

use super::value::Origin;
use crate::lookup::LookupMap;
use crate::python::ast::{Block, Expr, ExprKind, Stmt, StmtKind};
use crate::python::index::{ClassId, FuncId, Project};
use crate::python::walk;

/// Facts from all files of a project.
#[derive(Debug, Default)]
pub(crate) struct JobProgram {
    /// Whether some file uses MPI.
    pub(crate) has_mpi: bool,
    /// Whether something is logged with Lightning so that reading it reduces over all ranks.
    pub(crate) syncs_logs: bool,
    /// Whether Lightning has a strategy for several processes.
    pub(crate) has_strategy: bool,
    /// The class of the project's one module of Lightning.
    pub(crate) module: Option<ClassId>,
    /// Places that set a flag, which stops a loop, from a process's own measurement.
    pub(crate) stops: LookupMap<String, Origin>,
    /// Methods `__call__`, by the last word of the class's name where no other class has one.
    pub(crate) called: LookupMap<String, FuncId>,
}

impl JobProgram {
    pub(super) fn new(project: &Project<'_>, called: BTreeMap<String, FuncId>) -> Self {
        let mut job = Self { called: called.into_iter().collect(), ..Self::default() };
        let is_module = |class: &ClassId| {
            project.external_bases(*class).iter().any(|base| base.ends_with("LightningModule"))
        };
        let mut modules = (0..project.classes.len()).filter(is_module);
        job.module = modules.next().filter(|_| modules.next().is_none());
        job.stops = super::stops::by_measure(project);
        for file in &project.files {
            job.has_mpi |= file.imports_any(&["mpi4py"]);
            if file.imports_any(&["lightning", "pytorch_lightning"]) {
                job.syncs_logs |= file.text.contains("sync_dist=True");
                job.has_strategy |=
                    ["strategy=", "sync_dist=True", "num_nodes="].iter().any(|word| file.text.contains(word));
            }
        }
        job
    }
}

/// Methods `__call__` by the last word of the class's name, `pipeline` of `VideoPipeline`, where one class alone has it.
pub(super) fn called(project: &Project<'_>) -> BTreeMap<String, FuncId> {
    let mut found: BTreeMap<String, Vec<FuncId>> = BTreeMap::new();
    for class in &project.classes {
        let Some(method) = class.methods.get("__call__") else { continue };
        let name = class.def.name;
        let Some(at) = name.rfind(|c: char| c.is_ascii_uppercase()) else { continue };
        let word = name.get(at..).unwrap_or_default().to_ascii_lowercase();
        // A short word says little.
        if word.len() >= 6 {
            found.entry(word).or_default().push(*method);
        }
    }
    let only = found.into_iter().filter_map(|(word, methods)| match methods.as_slice() {
        [one] => Some((word, *one)),
        _ => None,
    });
    only.collect()
}

/// The method that a call of a parameter reaches, if the parameter is named as a class whose objects are called.
pub(super) fn called_by_name(
    project: &Project<'_>,
    called: &BTreeMap<String, FuncId>,
    id: FuncId,
    name: &str,
) -> Option<FuncId> {
    let is_parameter = project.functions[id].def.params.iter().any(|param| param.name == name);
    if is_parameter { called.get(name).copied() } else { None }
}

/// Whether an assignment tells the loop of a framework to end.
pub(super) fn ends_loop(target: &Expr<'_>, value: &Expr<'_>) -> bool {
    matches!(target.kind, ExprKind::Attr(_, name) if is_stop(name))
        && matches!(value.kind, ExprKind::Bool(true))
}

/// Whether an attribute of this name ends the loop of a framework.
pub(super) fn is_stop(name: &str) -> bool {
    matches!(name, "should_stop" | "should_training_stop")
}

/// Whether an assignment makes a local rank the rank of an object.
pub(super) fn keeps_local_rank(target: &Expr<'_>, value: &Expr<'_>) -> bool {
    let ExprKind::Attr(of, "rank" | "global_rank" | "_rank") = &target.kind else { return false };
    if !matches!(of.kind, ExprKind::Name("self")) {
        return false;
    }
    let mut is_local = false;
    walk::exprs(value, &mut |part| {
        is_local |= match &part.kind {
            ExprKind::Name(name) | ExprKind::Attr(_, name) => name.eq_ignore_ascii_case("local_rank"),
            ExprKind::Str(text) => text == "LOCAL_RANK",
            _ => false,
        };
    });
    is_local
}

/// Whether a generator packs what it draws from its sampler: it yields in a loop that ends when its own samples do, and nothing
/// after it makes up for what is missing.
pub(super) fn packs(project: &Project<'_>, func: FuncId) -> bool {
    let f = &project.functions[func];
    let is_sampler =
        |part: &Expr<'_>| matches!(part.kind, ExprKind::Attr(_, name) if name.ends_with("sampler"));
    if !f.def.has_yield || !holds(&f.def.body, is_sampler) {
        return false;
    }
    let is_yield = |part: &Expr<'_>| matches!(part.kind, ExprKind::Yield(_));
    let yields = |stmt: &Stmt<'_>| {
        holds_directly(stmt, is_yield) || walk::blocks(stmt).into_iter().any(|block| holds(block, is_yield))
    };
    let last = f.def.body.iter().rev().find(|stmt| yields(stmt));
    // A loop over the samples themselves yields as often as there are samples.
    last.is_some_and(|stmt| match &stmt.kind {
        StmtKind::While(w) => !matches!(w.test.kind, ExprKind::Bool(true) | ExprKind::Int(_)),
        _ => false,
    })
}

/// Whether a block holds an expression.
fn holds(block: &Block<'_>, is_one: impl Fn(&Expr<'_>) -> bool + Copy) -> bool {
    let mut found = false;
    walk::stmts(block, &mut |stmt| found |= holds_directly(stmt, is_one));
    found
}

/// Whether a statement does, outside of its blocks.
fn holds_directly(stmt: &Stmt<'_>, is_one: impl Fn(&Expr<'_>) -> bool) -> bool {
    let mut found = false;
    walk::own_exprs(stmt, &mut |expr| walk::exprs(expr, &mut |part| found |= is_one(part)));
    found
}
