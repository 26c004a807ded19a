//! Forms of expressions that say something by how they are written.

use crate::python::ast::{BinaryOp, CallExpr, Cmp, Expr, ExprKind};

/// Whether an expression is named as the number of ranks: `world_size`, `self.num_replicas`, `dist.get_world_size()`.
pub(super) fn is_number_of_ranks(expr: &Expr<'_>) -> bool {
    let name = match &expr.kind {
        ExprKind::Call(call) => call.func.last_name(),
        _ => expr.last_name(),
    };
    name.is_some_and(|name| {
        ["world", "replicas", "num_proc", "n_ranks"].iter().any(|word| name.contains(word))
    })
}

/// Whether an expression is the keys of a dict.
pub(super) fn is_keys(expr: &Expr<'_>) -> bool {
    matches!(&expr.kind, ExprKind::Call(call) if call.args.is_empty() && call.func.last_name() == Some("keys"))
}

/// Whether an index is a mask: `x[y > 0]`, `x[~done]`.
pub(super) fn is_mask(at: &Expr<'_>) -> bool {
    let compares = |op: Cmp| matches!(op, Cmp::Lt | Cmp::LtE | Cmp::Gt | Cmp::GtE | Cmp::Eq | Cmp::NotEq);
    match &at.kind {
        ExprKind::Compare(c) => c.rest.iter().all(|(op, _)| compares(*op)),
        ExprKind::Binary(BinaryOp::BitAnd | BinaryOp::BitOr, a, b) => is_mask(a) && is_mask(b),
        _ => false,
    }
}

/// Whether a call cuts the process's own data into parts: `split(batch, n)`.
pub(super) fn cuts_data(call: &CallExpr<'_>) -> bool {
    let name = call.func.last_name().unwrap_or_default();
    ["split", "chunk", "part", "micro", "batch", "pack"].iter().any(|word| name.contains(word))
        && call.args.first().and_then(Expr::last_name).is_some_and(super::names::is_local_name)
}

/// Whether a list holds those parameters of a model that are of some kind: with pipeline or expert parallelism each rank
/// holds others. What is trained is the same everywhere.
pub(super) fn is_part_of_model(list: &Expr<'_>, tests: &[Expr<'_>]) -> bool {
    let ExprKind::Call(call) = &list.kind else { return false };
    let is_model = matches!(
        call.func.last_name(),
        Some("parameters" | "named_parameters" | "modules" | "named_modules" | "buffers" | "named_buffers")
    );
    let mut asks_for_training = false;
    for test in tests {
        crate::python::walk::exprs(test, &mut |part| {
            asks_for_training |= matches!(&part.kind, ExprKind::Attr(_, "requires_grad"));
        });
    }
    is_model && !asks_for_training
}
