//! # What it shows
//! Two calls that meet are given tensors of different types: the root sends float32 and the others receive into bfloat16.
//!
//! # Why it happens
//! The sender passes on what it computed, and the receiver allocates by the precision of the configuration, or by torch's
//! default.
//!
//! # Evidence
//! Both types are written down: a dtype, .float(), .to(torch.bfloat16), or torch.empty without a dtype. Or a tensor is made without a
//! dtype of a number that has a point on one rank and none on the others.
//!
//! # What looks like it but is not
//! A conversion before the call; object collectives, which carry their types.
//!
//! # What to do
//! Allocate with the type that is sent. NCCL compares neither types nor sizes: the receiver hangs, or reads other numbers.
//!
//! # References
//! PyTorch documentation, torch.distributed. NeMo#7927.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{finding, names_rank, place};
use crate::flow::value::Origin;
use crate::python::ast::{Expr, ExprKind};
use crate::python::walk;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Related, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "type-by-rank",
    title: "ranks give one call tensors of different types",
    family: Family::Code,
    predicts: Cause::DtypeMismatch,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("type_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let clashes =
        scan.tried.iter().flat_map(|(func, tried)| tried.clashes.iter().map(|clash| (*func, clash)));
    clashes
        .map(|(func, clash)| {
            let [(name, at, dtype), (peer_name, peer_at, peer)] = clash.sides;
            let title = format!(
                "{name} is given {}, and the {peer_name} that it meets on another rank {}",
                dtype.word(),
                peer.word()
            );
            let mut finding = finding(scan, &RULE, func, at, title);
            if !clash.is_near {
                finding.confidence = Confidence::Low;
            }
            if peer_at != at {
                let text = format!("{} here", peer.word());
                finding.related.push(Related { place: place(scan.project, peer_at, None), text });
            }
            finding.help =
                "give both sides one dtype: convert before the call, or send the type first".into();
            finding.page = "https://docs.pytorch.org/docs/stable/distributed.html";
            finding
        })
        .chain(by_number(scan))
        .collect()
}

/// `torch.tensor(1.0 if rank == 0 else 0)`: of a float on one rank, and of an int on the others.
fn by_number(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut found = Vec::new();
    for (id, func) in scan.project.functions.iter().enumerate() {
        let file = &scan.project.files[func.file];
        let meets = ["reduce", "gather", "broadcast"].iter().any(|word| file.text.contains(word));
        if !meets || !file.text.contains("tensor(") {
            continue;
        }
        walk::all_exprs(&func.def.body, &mut |expr| {
            let ExprKind::Call(call) = &expr.kind else { return };
            let makes = matches!(call.func.last_name(), Some("tensor" | "as_tensor"));
            let Some(ExprKind::Choice(parts)) = call.args.first().map(|arg| &arg.kind) else { return };
            let [test, one, other] = &**parts;
            let mixes = number(one).zip(number(other)).is_some_and(|(one, other)| one != other);
            if makes && mixes && call.args.len() == 1 && call.keyword("dtype").is_none() && names_rank(test) {
                let title = "the tensor is of floats on some ranks and of integers on the others: its type follows the number";
                let at = Origin { file: func.file, span: expr.span };
                let mut finding = finding(scan, &RULE, id, at, title.to_owned());
                finding.help = "pass a dtype, or write both numbers alike: 1.0 and 0.0".into();
                finding.page = "https://docs.pytorch.org/docs/stable/generated/torch.tensor.html";
                found.push(finding);
            }
        });
    }
    found
}

/// Whether a number has a point.
fn number(expr: &Expr<'_>) -> Option<bool> {
    match &expr.kind {
        ExprKind::Float => Some(true),
        ExprKind::Int(_) => Some(false),
        ExprKind::Minus(inner) => number(inner),
        _ => None,
    }
}
