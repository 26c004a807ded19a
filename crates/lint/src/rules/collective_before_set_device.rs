//! # What it shows
//! A barrier or another collective runs after the process group is made and before the rank has chosen its GPU.
//!
//! # Why it happens
//! The barrier was put where everybody arrives. NCCL takes the current device for it, or guesses one.
//!
//! # Evidence
//! In one function the collective comes before torch.cuda.set_device.
//!
//! # What looks like it but is not
//! A barrier with device_ids; Gloo; a device that init_process_group got.
//!
//! # What to do
//! Choose the device first.
//!
//! # References
//! PyTorch documentation, barrier; ignite#2254.

use ringleader_model::{Cause, Confidence, Severity};

use ringleader_knowledge::collective::Callers;

use crate::drafting::finding;
use crate::flow::value::Data;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "collective-before-set-device",
    title: "a collective runs before the rank chooses its GPU",
    family: Family::Code,
    predicts: Cause::DuplicateGpu,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("collective_before_set_device.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    let is_chosen = |text: &str| {
        ["set_device", "device_id=", "CUDA_VISIBLE_DEVICES", "cuda.device("]
            .iter()
            .any(|word| text.contains(word))
    };
    let by_deepspeed = !scan.project.files.iter().any(|file| is_chosen(file.text));
    for (func, tried) in &scan.tried {
        // DeepSpeed chooses the device where it makes its engine, and not where it starts the group.
        let is_choice = |seen: &crate::flow::machine::SeenCall| {
            seen.path == "torch.cuda.set_device" || (by_deepspeed && seen.path == "deepspeed.initialize")
        };
        let Some(choice) = tried.seen.iter().position(is_choice) else { continue };
        // Whoever chooses twice may have chosen before.
        let file = &scan.project.files[scan.project.functions[*func].file];
        if file.text.matches("set_device(").count() > 1 {
            continue;
        }
        let early = tried.seen.iter().take(choice).find(|seen| {
            let torch = seen
                .row
                .is_some_and(|row| row.of.framework == "torch.distributed" && row.of.who == Callers::Group);
            torch
                && !seen
                    .keywords
                    .iter()
                    .any(|(key, value)| key == "device_ids" && !matches!(value.data, Data::None))
        });
        if let Some(seen) = early {
            let name = seen.row.map_or("a collective", |row| row.call.name);
            let before = if by_deepspeed { "deepspeed.initialize chooses a GPU" } else { "set_device" };
            let title =
                format!("{name} runs before {before}: with NCCL every rank of a node may take GPU 0 for it");
            let mut finding = finding(scan, &RULE, *func, seen.at, title);
            if by_deepspeed {
                finding.confidence = Confidence::Low;
            }
            finding.help =
                "call torch.cuda.set_device(local_rank) first, or pass device_ids to the barrier".into();
            finding.page = "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.barrier";
            findings.push(finding);
        }
    }
    findings
}
