//! # What it shows
//! A script for several ranks moves its model or data to GPU 0 on each of them.
//!
//! # Why it happens
//! Code for one GPU was made distributed and one `.cuda(0)` was left.
//!
//! # Evidence
//! The number is a constant, the file sets up NCCL, and nothing restricts the visible devices.
//!
//! # What looks like it but is not
//! CUDA_VISIBLE_DEVICES set for each rank; a number that comes from the local rank; work under a condition on the
//! rank.
//!
//! # What to do
//! Use the local rank.
//!
//! # References
//! pytorch#139060; NCCL: duplicate GPU detected.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::finding;
use crate::flow::value::{Data, Origin};
use crate::python::ast::{Expr, ExprKind, StmtKind};
use crate::python::walk;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "same-device-on-all-ranks",
    title: "all ranks use GPU 0",
    family: Family::Code,
    predicts: Cause::DuplicateGpu,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("same_device_on_all_ranks.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for (func, tried) in &scan.tried {
        for seen in &tried.seen {
            let is_first = |value: Option<&crate::flow::value::Val>| {
                value.is_some_and(|v| {
                    v.taint.is_clean()
                        && match &v.data {
                            Data::Int(n) => *n == 0,
                            Data::Str(text) => &**text == "cuda:0",
                            _ => false,
                        }
                })
            };
            let last = seen.path.rsplit('.').next().unwrap_or_default();
            let is_setting = match last {
                "set_device" => seen.path == "torch.cuda.set_device" && is_first(seen.args.first()),
                "cuda" | "to" => is_first(seen.args.first()),
                "DistributedDataParallel" | "DDP" => false,
                _ => false,
            };
            if !is_setting {
                continue;
            }
            let text = scan.project.files[scan.project.functions[*func].file].text;
            let is_nccl = text.contains("nccl") && text.contains("init_process_group");
            if !is_nccl || text.contains("CUDA_VISIBLE_DEVICES") {
                break;
            }
            let title =
                "every rank takes GPU 0: NCCL refuses two ranks on one GPU, or one GPU does all the work"
                    .to_owned();
            let mut finding = finding(scan, &RULE, *func, seen.at, title);
            finding.help =
                "use the local rank: torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))".into();
            finding.page = "https://docs.pytorch.org/docs/stable/elastic/run.html";
            findings.push(finding);
        }
    }
    findings.extend(first_of_all(scan));
    findings
}

/// `jax.devices()[0]`, which belongs to the first process alone, where several processes run.
fn first_of_all(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    const FIRST: &str = "jax.devices()[0]";
    let project = scan.project;
    if !project.files.iter().any(|file| file.text.contains("jax.distributed.initialize(")) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let names: Vec<bool> = project.files.iter().map(|file| file.text.contains(FIRST)).collect();
    for (id, func) in project.functions.iter().enumerate().filter(|(_, func)| names[func.file]) {
        let mut places = Vec::new();
        // What is asked of it is the same for all: `.platform`.
        let mut note = |value: &crate::python::ast::Expr<'_>| {
            let text = project.files[func.file].slice(value.span);
            if text == FIRST {
                places.push(value.span);
            }
        };
        walk::stmts(&func.def.body, &mut |stmt| match &stmt.kind {
            StmtKind::Assign(_, value) | StmtKind::Return(Some(value)) => note(value),
            StmtKind::Expr(Expr { kind: ExprKind::Call(call), .. }) => call.args.iter().for_each(&mut note),
            _ => {}
        });
        for span in places {
            let at = Origin { file: func.file, span };
            let title = "the first of all devices belongs to process 0: the others cannot address it";
            let mut finding = finding(scan, &RULE, id, at, title.to_owned());
            finding.confidence = Confidence::Low;
            finding.help = "take a device of this process: jax.local_devices()[0]".into();
            finding.page = "https://docs.jax.dev/en/latest/multi_process.html";
            findings.push(finding);
        }
    }
    findings
}
