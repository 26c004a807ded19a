//! Decorators of the project that keep some processes out of a function: their wrapper calls it under a condition on the rank.

use crate::lookup::LookupMap;
use crate::python::ast::{Arm, Expr, ExprKind, Stmt, StmtKind};
use crate::python::index::{FuncId, Meaning, Project};
use crate::python::walk;

/// The condition of a wrapper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarding {
    /// The function that calls what is decorated.
    pub(super) wrapper: FuncId,
    /// Its statement with the condition.
    pub(super) statement: usize,
    /// Whether the decorated function runs where the condition holds, or where it fails.
    pub(super) enters: bool,
}

/// Functions that a decorator of the project keeps from some processes.
pub(super) fn guarded(
    project: &Project<'_>,
    names_rank: impl Fn(&Expr<'_>) -> bool,
) -> LookupMap<FuncId, Guarding> {
    let mut decorators: LookupMap<FuncId, Guarding> = LookupMap::default();
    for (id, func) in project.functions.iter().enumerate() {
        let Some(outer) = func.parent else { continue };
        let Some(given) = project.functions[outer].def.params.first() else { continue };
        let Some((statement, enters)) = condition(&func.def.body, given.name, &names_rank) else { continue };
        let guarding = Guarding { wrapper: id, statement, enters };
        decorators.insert(outer, guarding);
        // `@decorator(...)`
        if let Some(factory) = project.functions[outer].parent {
            decorators.entry(factory).or_insert(guarding);
        }
    }
    if decorators.is_empty() {
        return decorators;
    }
    let mut found = LookupMap::default();
    for (id, func) in project.functions.iter().enumerate() {
        for decorator in &func.def.decorators {
            let name = match &decorator.kind {
                ExprKind::Call(call) => call.func.dotted(),
                _ => decorator.dotted(),
            };
            if let Some(Meaning::Func(of)) = name.and_then(|name| project.resolve(func.file, &name))
                && let Some(guarding) = decorators.get(&of)
            {
                found.insert(id, *guarding);
            }
        }
    }
    found
}

/// The statement whose condition on the rank decides if a wrapper calls what it is given, and whether it must hold.
fn condition(
    body: &[Stmt<'_>],
    given: &str,
    names_rank: impl Fn(&Expr<'_>) -> bool,
) -> Option<(usize, bool)> {
    let calls = |block: &[Stmt<'_>]| block.iter().any(|stmt| calls(stmt, given));
    body.iter().enumerate().find_map(|(n, stmt)| {
        let StmtKind::If(arms) = &stmt.kind else { return None };
        let [Arm { test: Some(test), body: first, .. }, others @ ..] = arms.as_slice() else { return None };
        if !names_rank(test) || others.iter().any(|arm| calls(&arm.body)) {
            return None;
        }
        let (before, after) = (body.get(..n)?, body.get(n + 1..)?);
        let leaves = matches!(first.last().map(|stmt| &stmt.kind), Some(StmtKind::Return(_)));
        match (calls(first), calls(before) || calls(after)) {
            (true, false) => Some((n, true)),
            (false, true) if leaves && others.is_empty() && !calls(before) => Some((n, false)),
            _ => None,
        }
    })
}

/// Whether a statement calls what has this name.
fn calls(stmt: &Stmt<'_>, given: &str) -> bool {
    let mut found = false;
    walk::own_exprs(stmt, &mut |expr| {
        walk::exprs(expr, &mut |part| {
            found |= matches!(&part.kind, ExprKind::Call(call)
                if matches!(call.func.kind, ExprKind::Name(name) if name == given));
        });
    });
    found || walk::blocks(stmt).into_iter().flatten().any(|inner| calls(inner, given))
}
