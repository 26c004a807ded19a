//! Walks over statements and expressions.

use super::ast::{Block, Expr, ExprKind, Stmt, StmtKind};

/// Visits each expression directly in a statement, not those of nested blocks.
pub(crate) fn own_exprs<'a, 's>(stmt: &'a Stmt<'s>, visit: &mut impl FnMut(&'a Expr<'s>)) {
    match &stmt.kind {
        StmtKind::Expr(e) | StmtKind::Assert(e) => visit(e),
        StmtKind::Assign(targets, value) => {
            visit(value);
            targets.iter().for_each(visit);
        }
        StmtKind::Augmented(parts) => {
            let [target, value] = &**parts;
            visit(value);
            visit(target);
        }
        StmtKind::Annotated(a) => {
            a.value.iter().for_each(&mut *visit);
            visit(&a.target);
        }
        StmtKind::Return(e) | StmtKind::Raise(e) => e.iter().for_each(visit),
        StmtKind::Delete(list) => list.iter().for_each(visit),
        StmtKind::If(arms) => arms.iter().filter_map(|arm| arm.test.as_ref()).for_each(visit),
        StmtKind::For(f) => {
            visit(&f.iter);
            visit(&f.target);
        }
        StmtKind::While(w) => visit(&w.test),
        StmtKind::With(items, _) => {
            for (manager, target) in items {
                visit(manager);
                target.iter().for_each(&mut *visit);
            }
        }
        StmtKind::Try(t) => t.handlers.iter().filter_map(|h| h.class.as_ref()).for_each(visit),
        StmtKind::Function(f) => f.decorators.iter().for_each(visit),
        StmtKind::Class(c) => c.bases.iter().for_each(visit),
        StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) | StmtKind::Other => {}
    }
}

/// Blocks nested in a statement; not bodies of functions and classes.
pub(crate) fn blocks<'a, 's>(stmt: &'a Stmt<'s>) -> Vec<&'a Block<'s>> {
    match &stmt.kind {
        StmtKind::If(arms) => arms.iter().map(|arm| &arm.body).collect(),
        StmtKind::For(f) => vec![&f.body, &f.orelse],
        StmtKind::While(w) => vec![&w.body, &w.orelse],
        StmtKind::With(_, body) => vec![body],
        StmtKind::Try(t) => {
            let mut list = vec![&t.body];
            list.extend(t.handlers.iter().map(|handler| &handler.body));
            list.push(&t.orelse);
            list.push(&t.finally);
            list
        }
        _ => Vec::new(),
    }
}

/// Parts of an expression.
pub(crate) fn parts<'a, 's>(expr: &'a Expr<'s>, visit: &mut dyn FnMut(&'a Expr<'s>)) {
    match &expr.kind {
        ExprKind::Attr(e, _)
        | ExprKind::Not(e)
        | ExprKind::Minus(e)
        | ExprKind::Lambda(e)
        | ExprKind::Star(e)
        | ExprKind::Await(e) => visit(e),
        ExprKind::Call(call) => {
            visit(&call.func);
            call.args.iter().for_each(&mut *visit);
            call.keywords.iter().for_each(|(_, value)| visit(value));
        }
        ExprKind::Format(list)
        | ExprKind::And(list)
        | ExprKind::Or(list)
        | ExprKind::List(list)
        | ExprKind::Tuple(list)
        | ExprKind::Set(list)
        | ExprKind::Other(list) => list.iter().for_each(visit),
        ExprKind::Compare(c) => {
            visit(&c.left);
            for (_, value) in &c.rest {
                visit(value);
            }
        }
        ExprKind::Binary(_, left, right) | ExprKind::Index(left, right) => {
            visit(left);
            visit(right);
        }
        ExprKind::Choice(list) => list.iter().for_each(visit),
        ExprKind::Named(list) => list.iter().for_each(visit),
        ExprKind::Dict(items) => {
            for (key, value) in items {
                key.iter().for_each(&mut *visit);
                visit(value);
            }
        }
        ExprKind::Comprehension(c) => {
            for (target, iter, ifs) in &c.loops {
                visit(iter);
                visit(target);
                ifs.iter().for_each(&mut *visit);
            }
            c.parts.iter().for_each(visit);
        }
        ExprKind::Yield(e) => {
            if let Some(e) = e {
                visit(e);
            }
        }
        ExprKind::Name(_)
        | ExprKind::Int(_)
        | ExprKind::Float
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::None => {}
    }
}

/// Visits an expression and all in it, outer first.
pub(crate) fn exprs<'a, 's>(expr: &'a Expr<'s>, visit: &mut dyn FnMut(&'a Expr<'s>)) {
    visit(expr);
    parts(expr, &mut |part| exprs(part, visit));
}

/// Visits all statements of a block and its blocks; not those of functions and classes in it.
pub(crate) fn stmts<'a, 's>(block: &'a Block<'s>, visit: &mut dyn FnMut(&'a Stmt<'s>)) {
    for stmt in block {
        visit(stmt);
        for inner in blocks(stmt) {
            stmts(inner, visit);
        }
    }
}

/// Visits all expressions below a block; not those of functions and classes in it.
pub(crate) fn all_exprs<'a, 's>(block: &'a Block<'s>, visit: &mut dyn FnMut(&'a Expr<'s>)) {
    stmts(block, &mut |stmt| own_exprs(stmt, &mut |expr| exprs(expr, visit)));
}

/// Whether a function's body yields.
pub(crate) fn yields(block: &Block<'_>) -> bool {
    let mut found = false;
    all_exprs(block, &mut |expr| found |= matches!(expr.kind, ExprKind::Yield(_)));
    found
}
