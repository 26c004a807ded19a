//! Contents of the project's objects: wrapped models, objects of other classes, values derived from a rank.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::catalog;
use crate::lookup::{LookupMap, LookupSet};
use crate::python::ast::{Arm, CallExpr, ComprehensionKind, Expr, ExprKind, Stmt, StmtKind};
use crate::python::index::{ClassId, FuncId, Meaning, Project};
use crate::python::walk;

/// Assignments of methods to each attribute: the method, the value and its position in a tuple.
pub(crate) type Attributes<'p, 's> = LookupMap<&'s str, Vec<(FuncId, &'p Expr<'s>, Option<usize>)>>;

/// Facts on all classes, collected before functions are examined.
pub(super) struct Context<'s> {
    /// The class of what an attribute holds, by class.
    pub(super) holders: Vec<BTreeMap<&'s str, ClassId>>,
    /// Methods by name.
    pub(super) methods: BTreeMap<&'s str, Vec<FuncId>>,
    /// Attributes that hold a wrapped model, by class.
    pub(super) wrapped: Vec<std::collections::BTreeSet<&'s str>>,
    /// Attributes and properties that some class makes of a rank.
    pub(super) rank_attributes: LookupSet<&'s str>,
    /// Attributes to which methods assign under a condition on the rank, by class.
    pub(super) ranked_attributes: Vec<LookupSet<&'s str>>,
    /// Names at the top of a file that hold something made of a rank, by file; with what it imports of this kind.
    pub(super) ranked_names: Vec<LookupSet<&'s str>>,
    /// Attributes that are empty when some object is made, and filled as the process runs.
    pub(super) filled: LookupSet<&'s str>,
    /// Methods `__call__`, by the last word of the class's name where no other class has one.
    pub(super) called: BTreeMap<String, FuncId>,
    /// Properties by name, where one class alone has it.
    pub(super) properties: LookupMap<&'s str, FuncId>,
    /// Functions that a decorator of the project keeps from some processes.
    pub(super) guarded: LookupMap<FuncId, super::guards::Guarding>,
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
        let (ranked_attributes, ranked_names) = under_ranks(project, &rank_attributes);
        // `module.IS_MAIN`
        rank_attributes.extend(ranked_names.iter().flatten().copied());
        let mut filled = LookupSet::default();
        let are_filled = attributes.iter().flatten().filter(|(_, values)| {
            let mut values = values.iter();
            values.any(|(_, expr, _)| is_container(expr))
        });
        filled.extend(are_filled.map(|(name, _)| *name));
        let called = super::job::called(project);
        let properties = methods.iter().filter_map(|(name, list)| {
            let [one] = list.as_slice() else { return None };
            project.functions[*one].def.decorators.iter().any(is_property).then_some((*name, *one))
        });
        let properties = properties.collect();
        let guarded = super::guards::guarded(project, |test| names_rank(test, &rank_attributes));
        Self {
            holders,
            methods,
            wrapped,
            rank_attributes,
            ranked_attributes,
            ranked_names,
            filled,
            called,
            properties,
            guarded,
        }
    }

    /// Whether an attribute of self is assigned under a condition on the rank, in the class or in one that it inherits from.
    pub(super) fn is_ranked(&self, project: &Project<'s>, class: ClassId, name: &str) -> bool {
        project.ancestry(class).iter().any(|id| self.ranked_attributes[*id].contains(name))
    }
}

/// What an assignment under a condition on the rank, or of something made of a rank, leaves behind: attributes of self by
/// class, and names at the top of files by file.
fn under_ranks<'s>(
    project: &Project<'s>,
    known: &LookupSet<&'s str>,
) -> (Vec<LookupSet<&'s str>>, Vec<LookupSet<&'s str>>) {
    let found: Vec<(FuncId, Vec<(&'s str, bool)>)> = (0..project.functions.len())
        .into_par_iter()
        .filter_map(|id| {
            let func = &project.functions[id];
            let is_main = project.files[func.file].main == id;
            let mut list = Vec::new();
            let mut add = |target: &Expr<'s>| match &target.kind {
                ExprKind::Name(name) if is_main => list.push((*name, true)),
                ExprKind::Attr(of, name) if matches!(of.kind, ExprKind::Name("self")) => {
                    list.push((*name, false));
                }
                _ => {}
            };
            walk::stmts(&func.def.body, &mut |stmt| match &stmt.kind {
                StmtKind::If(arms) => {
                    let by_rank =
                        |arm: &Arm<'s>| arm.test.as_ref().is_some_and(|test| names_rank(test, known));
                    if arms.iter().any(by_rank) {
                        for arm in arms {
                            walk::stmts(&arm.body, &mut |inner| targets(inner).for_each(&mut add));
                        }
                    }
                }
                StmtKind::Assign(_, value) if is_main && names_rank(value, known) => {
                    targets(stmt).for_each(&mut add);
                }
                _ if is_main && stmt.single_assignment().is_some_and(|(_, v)| names_rank(v, known)) => {
                    targets(stmt).for_each(&mut add);
                }
                _ => {}
            });
            (!list.is_empty()).then_some((id, list))
        })
        .collect();
    let mut attributes = vec![LookupSet::default(); project.classes.len()];
    let mut names = vec![LookupSet::default(); project.files.len()];
    let mut exported: LookupSet<&'s str> = LookupSet::default();
    for (id, list) in found {
        let func = &project.functions[id];
        let class = project.class_of_self(id);
        for (name, is_top) in list {
            if is_top {
                names[func.file].insert(name);
                exported.insert(name);
            } else if let Some(class) = class {
                attributes[class].insert(name);
            }
        }
    }
    for (names, file) in names.iter_mut().zip(&project.files) {
        names.extend(
            file.imported().filter(|(_, path)| exported.contains(last_part(path))).map(|(alias, _)| alias),
        );
    }
    (attributes, names)
}

fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// Targets of a statement's assignment, tuples split into their parts.
fn targets<'a, 's>(stmt: &'a Stmt<'s>) -> impl Iterator<Item = &'a Expr<'s>> {
    let list: &[Expr<'s>] = match &stmt.kind {
        StmtKind::Assign(targets, _) => targets,
        StmtKind::Annotated(a) => std::slice::from_ref(&a.target),
        StmtKind::Augmented(parts) => std::slice::from_ref(&parts[0]),
        _ => &[],
    };
    list.iter().flat_map(|target| match &target.kind {
        ExprKind::Tuple(parts) | ExprKind::List(parts) => parts.as_slice(),
        _ => std::slice::from_ref(target),
    })
}

/// Whether the value of an expression may be a rank, or follow from one. An object that receives a rank, a device and a text
/// are not: programs branch on their parts, not on them.
fn names_rank(expr: &Expr<'_>, known: &LookupSet<&str>) -> bool {
    match &expr.kind {
        ExprKind::Name(name) => catalog::rank_name(name).is_some() || catalog::rank_call(name).is_some(),
        ExprKind::Attr(of, name) => {
            catalog::rank_attribute(name).is_some()
                || catalog::rank_call(name).is_some()
                || known.contains(name)
                || names_rank(of, known)
        }
        ExprKind::Str(text) => catalog::rank_variable(text).is_some(),
        ExprKind::Format(_) | ExprKind::Lambda(_) => false,
        ExprKind::Call(call) if makes_object(call) => false,
        _ => {
            let mut found = false;
            walk::parts(expr, &mut |part| found = found || names_rank(part, known));
            found
        }
    }
}

/// Whether a call makes an object of a class, or a device.
fn makes_object(call: &CallExpr<'_>) -> bool {
    call.func.last_name().is_some_and(|name| {
        let is_class =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && catalog::rank_call(name).is_none();
        is_class || matches!(name, "device" | "to" | "cuda" | "format")
    })
}

/// Whether a decorator makes a method an attribute.
fn is_property(decorator: &Expr<'_>) -> bool {
    matches!(decorator.last_name(), Some("property" | "cached_property"))
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
        // `nn.ModuleList(...)`
        let expr = match &expr.kind {
            ExprKind::Call(call) if call.func.last_name() == Some("ModuleList") => {
                call.args.first().unwrap_or(expr)
            }
            _ => expr,
        };
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
        let is_called = |kind: &str| catalog::method(kind, "__call__").is_some();
        matches!(path, Some(Meaning::External(path)) if is_called(&path) || catalog::made_by(&path).is_some_and(is_called))
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

/// Attributes of a class that hold a set when its object is made.
pub(super) fn sets<'s>(class: ClassId, held: &Attributes<'_, 's>) -> Vec<(ClassId, &'s str)> {
    let is_set = |value: &Expr<'_>| match &value.kind {
        ExprKind::Set(_) => true,
        ExprKind::Call(call) => matches!(call.func.kind, ExprKind::Name("set" | "frozenset")),
        ExprKind::Comprehension(c) => c.kind == ComprehensionKind::Set,
        _ => false,
    };
    let all = held.iter().filter(|(_, values)| values.iter().all(|(_, value, _)| is_set(value)));
    all.map(|(name, _)| (class, *name)).collect()
}
