//! The process's own data: what is made of it, and which calls take it away again, as far as their names tell.

use super::value::{Locally, Taint, Val};
use crate::python::ast::{CallExpr, Expr, ExprKind};
use crate::python::index::{FileId, FuncId, Meaning, Project};

/// Words of functions that make a value equal on all processes, as far as their names tell.
const AGREEING: &[&str] =
    &["reduce", "gather", "sync", "broadcast", "agree", "all_", "dist", "across", "global", "world"];
/// In what a value that is made of these may differ: of the process's own data comes the process's own.
pub(super) fn own_data<'a>(values: impl Iterator<Item = &'a Val>) -> Taint {
    let own = values.filter(|value| !value.agreed && value.taint.axes == 0);
    let own = own.filter(|value| match value.taint.local {
        Some(Locally::Data | Locally::File | Locally::Time | Locally::Random | Locally::Signal) => true,
        // A number of what a loader yields, and not the loader.
        Some(Locally::Loader | Locally::Part | Locally::End) => value.shape.is_clean(),
        _ => false,
    });
    let own = own.map(|value| match value.taint.local {
        Some(Locally::Loader | Locally::Part | Locally::End) => {
            Taint { local: Some(Locally::Data), ..value.taint }
        }
        _ => value.taint,
    });
    own.fold(Taint::NONE, Taint::join)
}

/// Whether a function of this name may make its value equal on all processes.
pub(super) fn may_agree(name: &str) -> bool {
    AGREEING.iter().any(|word| name.contains(word))
}

/// Whether a value comes from a call that is not named as one that makes it equal on all processes.
pub(super) fn measures(value: &Expr<'_>) -> bool {
    match &value.kind {
        ExprKind::Call(call) => !call.func.last_name().is_some_and(may_agree),
        _ => false,
    }
}

/// The object of a call: `x` of `x(...)` and of `x.method(...)`.
pub(super) fn object<'a, 's>(func: &'a Expr<'s>) -> &'a Expr<'s> {
    match &func.kind {
        ExprKind::Attr(of, _) => of,
        _ => func,
    }
}

/// The method of the project that a call on an object reaches which the function itself makes.
pub(super) fn of_local_object<'e, 's: 'e>(
    project: &Project<'_>,
    file: FileId,
    value_of: impl Fn(&str) -> Option<&'e Expr<'s>>,
    call: &CallExpr<'_>,
) -> Option<FuncId> {
    let (name, method) = match &call.func.kind {
        ExprKind::Name(name) => (*name, None),
        ExprKind::Attr(of, method) => match of.kind {
            ExprKind::Name(name) => (name, Some(*method)),
            _ => return None,
        },
        _ => return None,
    };
    let ExprKind::Call(maker) = &value_of(name)?.kind else { return None };
    let Meaning::Class(class) = project.resolve(file, &maker.func.dotted()?)? else { return None };
    match method {
        Some(method) => project.method(class, method),
        None => project.called(class),
    }
}
