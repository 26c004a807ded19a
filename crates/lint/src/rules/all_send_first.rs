//! # What it shows
//! A ring or a pipeline in which each rank first sends to a neighbour and then receives. Or a loop in which each rank sends to
//! all others, before the loop in which it receives.
//!
//! # Why it happens
//! With Gloo or MPI small messages are buffered and the code works. NCCL's send ends when the peer takes the data,
//! so all wait for each other.
//!
//! # Evidence
//! No condition on the rank decides who sends first, and the receiver is computed from the rank, or is each other rank in turn.
//!
//! # What looks like it but is not
//! Even and odd ranks in opposite order; batch_isend_irecv; the first and last stage of a pipeline.
//!
//! # What to do
//! Alternate, or batch.
//!
//! # References
//! NCCL user guide, point-to-point communication; nccl#479.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::finding;
use crate::flow::value::Origin;
use crate::python::ast::{Block, CallExpr, Cmp, Expr, ExprKind, For, Stmt, StmtKind};
use crate::python::index::{FileId, Meaning, Project};
use crate::python::walk;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "all-send-first",
    title: "all ranks send before any receives",
    family: Family::Code,
    predicts: Cause::UnmatchedP2p,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("all_send_first.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for (func, tried) in &scan.tried {
        // Where the rank decides who sends first, somebody receives.
        if tried.has_rank_decision {
            continue;
        }
        let kind = |path: &str| match path {
            "torch.distributed.send" => Some((true, true)),
            "torch.distributed.isend" => Some((true, false)),
            "torch.distributed.recv" | "torch.distributed.irecv" => Some((false, true)),
            _ => None,
        };
        let mut calls = tried.seen.iter().filter_map(|seen| Some((seen, kind(&seen.path)?)));
        let Some((first, (true, is_blocking))) = calls.next() else { continue };
        let to = first.argument("dst", 1).map(|value| value.taint.axes).unwrap_or_default();
        if to == 0 || !calls.any(|(_, (sends, _))| !sends) {
            continue;
        }
        let mut finding = draft(scan, *func, first.at);
        if !is_blocking {
            finding.confidence = Confidence::Low;
        }
        findings.push(finding);
    }
    for (id, func) in scan.project.functions.iter().enumerate() {
        let text = scan.project.files[func.file].slice(func.def.span);
        if text.contains("send") && text.contains("recv") {
            let at = to_all_first(scan.project, func.file, &func.def.body);
            findings.extend(at.map(|at| draft(scan, id, at)));
        }
    }
    findings
}

fn draft(scan: &Scan<'_, '_>, func: usize, at: Origin) -> LintFinding {
    let title = "all ranks send first and then receive: with NCCL a send waits until its peer receives";
    let mut finding = finding(scan, &RULE, func, at, title.to_owned());
    finding.help = "let even ranks send first and odd ranks receive first, or use batch_isend_irecv".into();
    finding.page =
        "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv";
    finding
}

/// A loop that sends to each other rank, before one of the same block that receives from each. Code under a condition or after
/// an early exit does not run on all ranks, so it does not count.
fn to_all_first(project: &Project<'_>, file: FileId, block: &Block<'_>) -> Option<Origin> {
    let mut sent = None;
    for stmt in block {
        match &stmt.kind {
            StmtKind::For(f) => {
                let at = with_each(project, file, f, "send", "dst");
                if sent.is_some() && with_each(project, file, f, "recv", "src").is_some() {
                    return sent;
                }
                if at.is_none()
                    && let Some(inner) = to_all_first(project, file, &f.body)
                {
                    return Some(inner);
                }
                sent = sent.or(at);
            }
            StmtKind::With(_, body) => {
                if let Some(inner) = to_all_first(project, file, body) {
                    return Some(inner);
                }
            }
            StmtKind::If(_) if leaves(stmt) => return None,
            _ => {}
        }
    }
    None
}

fn leaves(stmt: &Stmt<'_>) -> bool {
    let mut found = false;
    for block in walk::blocks(stmt) {
        walk::stmts(block, &mut |inner| {
            found |= matches!(inner.kind, StmtKind::Return(_) | StmtKind::Continue);
        });
    }
    found
}

/// Where a loop over ranks calls this with the rank of its turn, and asks nothing but whether that is the own one.
fn with_each(project: &Project<'_>, file: FileId, f: &For<'_>, name: &str, peer: &str) -> Option<Origin> {
    let ExprKind::Name(turn) = &f.target.kind else { return None };
    let is_turn = |expr: &Expr<'_>| matches!(&expr.kind, ExprKind::Name(name) if name == turn);
    let mut found = None;
    let mut is_plain = true;
    walk::stmts(&f.body, &mut |stmt| {
        if let StmtKind::If(arms) = &stmt.kind {
            let asks = |test: &Expr<'_>| match &test.kind {
                ExprKind::Compare(c) => {
                    let is_own = matches!(c.rest.as_slice(), [(Cmp::Eq | Cmp::NotEq, right)] if is_turn(&c.left) || is_turn(right));
                    is_own
                }
                _ => false,
            };
            is_plain &= arms.iter().all(|arm| arm.test.as_ref().is_none_or(asks));
        }
        walk::own_exprs(stmt, &mut |expr| {
            walk::exprs(expr, &mut |part| {
                if let ExprKind::Call(call) = &part.kind
                    && let Some(called) = of_torch(project, file, call)
                {
                    let to = call.keyword(peer).or_else(|| call.args.get(1));
                    if called == name && to.is_some_and(is_turn) {
                        found = Some(Origin { file, span: part.span });
                    } else {
                        is_plain = false;
                    }
                }
            });
        });
    });
    found.filter(|_| is_plain)
}

/// The name of a call of torch.distributed that sends or receives.
fn of_torch<'s>(project: &Project<'s>, file: FileId, call: &CallExpr<'s>) -> Option<&'s str> {
    let name = call.func.last_name().filter(|name| matches!(*name, "send" | "recv" | "isend" | "irecv"))?;
    let path = call.func.dotted()?;
    let is_torch = match project.resolve(file, &path) {
        Some(Meaning::External(path)) => path.starts_with("torch.distributed."),
        _ => false,
    };
    is_torch.then_some(name)
}
