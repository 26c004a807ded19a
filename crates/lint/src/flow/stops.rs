//! Flags that end a loop and that a hook sets by what its process measured.

use rayon::prelude::*;

use super::value::Origin;
use crate::lookup::{LookupMap, LookupSet};
use crate::python::ast::{Block, Cmp, Expr, ExprKind, StmtKind};
use crate::python::index::{Func, Project};
use crate::python::walk;

/// Calls after which all processes hold the same.
const AGREEING: &[&str] = &[
    "all_reduce",
    "allreduce",
    "broadcast",
    "all_gather",
    "gather_for_metrics",
    "broadcast_object_list",
    "reduce_boolean_decision",
];

/// Where each such flag is set. What some function makes equal on all processes tells them alike.
pub(super) fn by_measure(project: &Project<'_>) -> LookupMap<String, Origin> {
    let mut found = LookupMap::default();
    let mut agreed: Option<LookupSet<&str>> = None;
    let speaks: Vec<bool> = project.files.par_iter().map(|file| file.text.contains("stop")).collect();
    for func in project.functions.iter().filter(|func| speaks[func.file]) {
        if !project.files[func.file].slice(func.def.span).contains("stop") {
            continue;
        }
        for (name, at) in flags(func) {
            let agreed = agreed.get_or_insert_with(|| made_equal(project));
            let tells = names(func).into_iter().any(|name| agreed.contains(name));
            if !tells && !communicates(func) {
                found.entry(name.to_owned()).or_insert(at);
            }
        }
    }
    found
}

/// Attributes named as a flag to stop that a function sets where one number is larger than another.
fn flags<'s>(func: &Func<'s>) -> Vec<(&'s str, Origin)> {
    let mut list = Vec::new();
    walk::stmts(&func.def.body, &mut |stmt| {
        let StmtKind::If(arms) = &stmt.kind else { return };
        for arm in arms.iter().filter(|arm| arm.test.as_ref().is_some_and(is_ordering)) {
            walk::stmts(&arm.body, &mut |inner| {
                let StmtKind::Assign(targets, value) = &inner.kind else { return };
                if !matches!(value.kind, ExprKind::Bool(true)) {
                    return;
                }
                list.extend(targets.iter().filter_map(|target| match &target.kind {
                    // What an object keeps for itself, it is asked for where it is told.
                    ExprKind::Attr(of, name)
                        if name.contains("stop") && !matches!(of.kind, ExprKind::Name("self")) =>
                    {
                        Some((*name, Origin { file: func.file, span: inner.span }))
                    }
                    _ => None,
                }));
            });
        }
    });
    list
}

/// Whether a condition compares a counter with an attribute: `self.waited >= self.patience`. A step or an epoch is the same on
/// all.
fn is_ordering(test: &Expr<'_>) -> bool {
    let mut found = false;
    walk::exprs(test, &mut |part| {
        let ExprKind::Compare(c) = &part.kind else { return };
        let orders = c.rest.iter().any(|(op, _)| matches!(op, Cmp::Lt | Cmp::LtE | Cmp::Gt | Cmp::GtE));
        let mut counts_steps = false;
        walk::exprs(part, &mut |side| {
            counts_steps |= side.last_name().is_some_and(|name| {
                ["step", "epoch", "iter", "time", "max_"].iter().any(|word| name.contains(word))
            });
        });
        found |= orders && !counts_steps;
    });
    found
}

/// Names of all attributes in a function.
fn names<'s>(func: &Func<'s>) -> Vec<&'s str> {
    let mut list = Vec::new();
    each_expr(&func.def.body, &mut |part| {
        if let ExprKind::Attr(_, name) = &part.kind {
            list.push(*name);
        }
    });
    list
}

fn communicates(func: &Func<'_>) -> bool {
    let mut found = false;
    each_expr(&func.def.body, &mut |part| {
        if let ExprKind::Call(call) = &part.kind {
            found |= call.func.last_name().is_some_and(|name| AGREEING.contains(&name));
        }
    });
    found
}

/// Attributes to which functions assign that make something equal on all processes.
fn made_equal<'s>(project: &Project<'s>) -> LookupSet<&'s str> {
    let mut found = LookupSet::default();
    for func in project.functions.iter().filter(|func| communicates(func)) {
        walk::stmts(&func.def.body, &mut |stmt| {
            let StmtKind::Assign(targets, _) = &stmt.kind else { return };
            for target in targets {
                let held = match &target.kind {
                    ExprKind::Index(of, _) => of,
                    _ => target,
                };
                if let ExprKind::Attr(_, name) = &held.kind {
                    found.insert(*name);
                }
            }
        });
    }
    found
}

fn each_expr<'a, 's>(block: &'a Block<'s>, visit: &mut dyn FnMut(&'a Expr<'s>)) {
    walk::stmts(block, &mut |stmt| walk::own_exprs(stmt, &mut |expr| walk::exprs(expr, visit)));
}
