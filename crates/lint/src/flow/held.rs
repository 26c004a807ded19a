//! What objects of the project hold: wrapped models, objects of other classes, something made of a rank.

use std::collections::BTreeMap;

use super::catalog;
use crate::lookup::LookupSet;
use crate::python::ast::{Expr, ExprKind};
use crate::python::index::{ClassId, FuncId, Meaning, Project};
use crate::python::walk;

/// What methods assign to each attribute: the method, the value and its position in a tuple.
pub(crate) type Attributes<'p, 's> = BTreeMap<&'s str, Vec<(FuncId, &'p Expr<'s>, Option<usize>)>>;

/// What is known of all classes before functions are looked at.
pub(super) struct Context<'s> {
    /// The class of what an attribute holds, by class.
    pub(super) holders: Vec<BTreeMap<&'s str, ClassId>>,
    /// Methods by name.
    pub(super) methods: BTreeMap<&'s str, Vec<FuncId>>,
    /// Attributes that hold a wrapped model, by class.
    pub(super) wrapped: Vec<std::collections::BTreeSet<&'s str>>,
    /// Attributes and properties that some class makes of a rank.
    pub(super) rank_attributes: LookupSet<&'s str>,
    /// Attributes that are empty when some object is made, and filled as the process runs.
    pub(super) filled: LookupSet<&'s str>,
}

impl<'s> Context<'s> {
    pub(super) fn new(project: &Project<'s>, attributes: &[Attributes<'_, 's>]) -> Self {
        let mut methods: BTreeMap<&'s str, Vec<FuncId>> = BTreeMap::new();
        for class in &project.classes {
            for (name, method) in &class.methods {
                methods.entry(name).or_default().push(*method);
            }
        }
        let holders = attributes.iter().map(|attributes| holders(project, attributes)).collect();
        let wrapped = attributes.iter().map(|attributes| wrapped(project, attributes)).collect();
        let mut rank_attributes = LookupSet::default();
        // The second round finds what is made of what the first found.
        for _ in 0..2 {
            let more = made_of_ranks(project, attributes, &rank_attributes);
            rank_attributes.extend(more);
        }
        let mut filled = LookupSet::default();
        for (name, values) in attributes.iter().flatten() {
            if values.iter().any(|(_, expr, _)| is_container(expr)) {
                filled.insert(*name);
            }
        }
        Self { holders, methods, wrapped, rank_attributes, filled }
    }
}

/// Whether an expression names a rank.
fn names_rank(expr: &Expr<'_>, known: &LookupSet<&str>) -> bool {
    let mut found = false;
    walk::exprs(expr, &mut |part| {
        found |= match &part.kind {
            ExprKind::Name(name) => catalog::rank_name(name).is_some() || catalog::rank_call(name).is_some(),
            ExprKind::Attr(_, name) => {
                catalog::rank_attribute(name).is_some()
                    || catalog::rank_call(name).is_some()
                    || known.contains(name)
            }
            ExprKind::Str(text) => catalog::rank_variable(text).is_some(),
            _ => false,
        };
    });
    found
}

/// Names of attributes to which something of a rank is assigned, and of properties that look at one.
fn made_of_ranks<'s>(
    project: &Project<'s>,
    attributes: &[Attributes<'_, 's>],
    known: &LookupSet<&'s str>,
) -> Vec<&'s str> {
    let assigned = attributes.iter().flatten().filter(|(name, values)| {
        !known.contains(*name) && values.iter().any(|(_, expr, _)| names_rank(expr, known))
    });
    let is_property = |d: &Expr<'_>| matches!(d.last_name(), Some("property" | "cached_property"));
    let properties = project.functions.iter().filter(|func| {
        let mut found = false;
        if !known.contains(func.def.name) && func.def.decorators.iter().any(is_property) {
            walk::stmts(&func.def.body, &mut |stmt| {
                walk::own_exprs(stmt, &mut |expr| found |= found || names_rank(expr, known));
            });
        }
        found
    });
    assigned.map(|(name, _)| *name).chain(properties.map(|func| func.def.name)).collect()
}

/// The classes of what the attributes of one class hold, where they are made or declared as parameters.
fn holders<'s>(project: &Project<'s>, attributes: &Attributes<'_, 's>) -> BTreeMap<&'s str, ClassId> {
    let class_of = |func: FuncId, expr: &Expr<'s>| {
        let f = &project.functions[func];
        let dotted = match &expr.kind {
            ExprKind::Call(call) => call.func.dotted()?,
            ExprKind::Name(name) => {
                f.def.params.iter().find(|p| p.name == *name)?.annotation.as_ref()?.dotted()?
            }
            _ => return None,
        };
        match project.resolve(f.file, &dotted)? {
            Meaning::Class(class) => Some(class),
            Meaning::Func(maker) => project.made_by(maker),
            _ => None,
        }
    };
    let pairs = attributes.iter().filter_map(|(name, values)| {
        let class = values.iter().find_map(|(func, expr, _)| class_of(*func, expr))?;
        Some((*name, class))
    });
    pairs.collect()
}

/// The attributes of one class to which a wrapped model is assigned.
fn wrapped<'s>(
    project: &Project<'s>,
    attributes: &Attributes<'_, 's>,
) -> std::collections::BTreeSet<&'s str> {
    let wraps = |func: FuncId, expr: &Expr<'s>, n: Option<usize>| {
        let expr = match (&expr.kind, n) {
            (ExprKind::Tuple(parts), Some(n)) => parts.get(n).unwrap_or(expr),
            // `[FSDP(layer) for layer in layers]`
            (ExprKind::Comprehension(c), None) => c.parts.first().unwrap_or(expr),
            (ExprKind::List(parts), None) => parts.first().unwrap_or(expr),
            _ => expr,
        };
        let ExprKind::Call(call) = &expr.kind else { return false };
        let path =
            call.func.dotted().and_then(|dotted| project.resolve(project.functions[func].file, &dotted));
        matches!(path, Some(Meaning::External(path)) if catalog::method(&path, "__call__").is_some())
    };
    let names = attributes.iter().filter(|(_, values)| values.iter().any(|(f, e, n)| wraps(*f, e, *n)));
    names.map(|(name, _)| *name).collect()
}

/// Whether an expression is an empty container.
pub(super) fn is_container(expr: &Expr<'_>) -> bool {
    match &expr.kind {
        ExprKind::List(list) | ExprKind::Tuple(list) => list.is_empty(),
        ExprKind::Dict(items) => items.iter().all(|(_, value)| is_container(value)),
        ExprKind::Comprehension(c) => c.parts.last().is_some_and(is_container),
        ExprKind::Call(call) if call.args.is_empty() && call.keywords.is_empty() => matches!(
            call.func.last_name(),
            Some("set" | "dict" | "list" | "defaultdict" | "deque" | "OrderedDict" | "Counter")
        ),
        ExprKind::Call(call) => {
            call.args.len() <= 1
                && matches!(call.func.last_name(), Some("defaultdict" | "deque" | "OrderedDict" | "Counter"))
        }
        _ => false,
    }
}
