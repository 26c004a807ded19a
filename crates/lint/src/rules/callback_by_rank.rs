//! # What it shows
//! Only some ranks get a callback that changes the training, its learning rate or its end.
//!
//! # Why it happens
//! Callbacks that write checkpoints belong to rank 0, and one that steers the training is in the same branch.
//!
//! # Evidence
//! The callback is added to a list under a condition on the rank, and not added on the other ranks.
//!
//! # What looks like it but is not
//! Callbacks that write or print: checkpoints, TensorBoard, progress bars.
//!
//! # What to do
//! Give it to all ranks, and let them see the same metric: with Horovod a MetricAverageCallback before it in the list. Else the copies
//! of the model drift apart, or the others wait for a rank that has stopped.
//!
//! # References
//! Horovod documentation, Keras; horovod#1095.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{finding, names_rank};
use crate::flow::value::Origin;
use crate::python::ast::{Arm, Block, CallExpr, Expr, ExprKind, Span, StmtKind};
use crate::python::walk;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "callback-by-rank",
    title: "some ranks alone have a callback that changes the training",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("callback_by_rank.rs"),
    check,
};

/// Callbacks that change what a rank does next, or that all ranks meet in.
const STEERING: &[&str] = &[
    "ReduceLROnPlateau",
    "EarlyStopping",
    "LearningRateScheduler",
    "TerminateOnNaN",
    "LearningRateWarmupCallback",
    "LearningRateScheduleCallback",
    "MetricAverageCallback",
    "BroadcastGlobalVariablesCallback",
];
/// Libraries that run one copy of the callbacks on each rank.
const LIBRARIES: &[&str] = &["horovod", "byteps", "lightning"];

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let project = scan.project;
    let speaks: Vec<bool> = project
        .files
        .iter()
        .map(|file| {
            LIBRARIES.iter().any(|library| file.text.contains(library))
                && STEERING.iter().any(|name| file.text.contains(name))
        })
        .collect();
    let mut findings = Vec::new();
    for (id, func) in project.functions.iter().enumerate().filter(|(_, func)| speaks[func.file]) {
        walk::stmts(&func.def.body, &mut |stmt| {
            let StmtKind::If(arms) = &stmt.kind else { return };
            if !arms.first().and_then(|arm| arm.test.as_ref()).is_some_and(names_rank) {
                return;
            }
            let by_arm: Vec<Vec<(&str, Span)>> = arms.iter().map(added).collect();
            for (n, (name, span)) in
                by_arm.iter().enumerate().flat_map(|(n, list)| list.iter().map(move |one| (n, one)))
            {
                // Who has another one in its own branch lacks none.
                let has_other = |list: &Vec<(&str, Span)>| list.iter().any(|(other, _)| other == name);
                if by_arm.iter().enumerate().any(|(m, list)| m != n && has_other(list)) {
                    continue;
                }
                let title = format!(
                    "{name} is given to some ranks alone: what it changes, it changes for them and not for the others"
                );
                let at = Origin { file: func.file, span: *span };
                let mut finding = finding(scan, &RULE, id, at, title);
                finding.help = "give it to all ranks, behind what averages the metric that it reads".into();
                finding.page = "https://horovod.readthedocs.io/en/stable/keras.html";
                findings.push(finding);
            }
        });
    }
    findings
}

/// Steering callbacks that a branch itself adds to a list.
fn added<'s>(arm: &Arm<'s>) -> Vec<(&'s str, Span)> {
    let mut list = Vec::new();
    let body: &Block<'s> = &arm.body;
    for stmt in body {
        let given: Vec<&Expr<'s>> = match &stmt.kind {
            StmtKind::Expr(expr) => match &expr.kind {
                ExprKind::Call(call) if is_adding(call) => call.args.iter().collect(),
                _ => Vec::new(),
            },
            StmtKind::Augmented(parts) => vec![&parts[1]],
            _ => Vec::new(),
        };
        for expr in given {
            walk::exprs(expr, &mut |part| {
                if let ExprKind::Call(call) = &part.kind
                    && let Some(name) = call.func.last_name().filter(|name| STEERING.contains(name))
                {
                    list.push((name, part.span));
                }
            });
        }
    }
    list
}

fn is_adding(call: &CallExpr<'_>) -> bool {
    matches!(call.func.last_name(), Some("append" | "extend" | "insert"))
}
