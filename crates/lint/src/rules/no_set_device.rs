//! # What it shows
//! NCCL is set up and no file sets the device of a rank.
//!
//! # Why it happens
//! Tensors are moved with .to(device), which is enough for them; barrier() and object collectives use the current
//! device.
//!
//! # Evidence
//! No file of the project names set_device, device_id or CUDA_VISIBLE_DEVICES.
//!
//! # What looks like it but is not
//! A launcher that shows each rank one GPU.
//!
//! # What to do
//! Set the device first.
//!
//! # References
//! speechbrain#2686; PyTorch documentation.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::flow::value::Data;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "no-set-device",
    title: "a rank does not choose its GPU before NCCL starts",
    family: Family::Code,
    predicts: Cause::DuplicateGpu,
    severity: Severity::Info,
    confidence: Confidence::Medium,
    doc: include_str!("no_set_device.rs"),
    check,
};

/// Whether only functions without a caller choose the GPU.
fn is_never_called(scan: &Scan<'_, '_>) -> bool {
    let project = scan.project;
    let mut choosing = project.functions.iter().filter(|func| {
        let text = project.files[func.file].slice(func.def.span);
        // Whoever starts the group in the same function is called as surely as that.
        func.qualified != "<module>" && text.contains("set_device(") && !text.contains("init_process_group(")
    });
    let count = project.files.iter().map(|file| file.text.matches("set_device(").count()).sum::<usize>();
    let names: Vec<&str> = choosing.by_ref().map(|func| func.def.name).collect();
    let is_elsewhere = |text: &str| {
        ["device_id=", "CUDA_VISIBLE_DEVICES", "cuda.device("].iter().any(|word| text.contains(word))
    };
    !names.is_empty()
        && count == names.len()
        && !project.files.iter().any(|file| is_elsewhere(file.text))
        && names.iter().all(|name| {
            let (call, definition) = (format!("{name}("), format!("def {name}("));
            !name.starts_with("__")
                && *name != "main"
                && project
                    .files
                    .iter()
                    .all(|file| file.text.matches(&call).count() == file.text.matches(&definition).count())
        })
}

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.path.ends_with("distributed.init_process_group"));
    let with_nccl = calls.filter(|(_, seen)| matches!(seen.argument("backend", 0).map(|v| &v.data), Some(Data::Str(name)) if name.contains("nccl")));
    let with_nccl: Vec<_> = with_nccl.collect();
    if with_nccl.is_empty() {
        return Vec::new();
    }
    let chooses = |text: &str| {
        ["set_device", "device_id=", "CUDA_VISIBLE_DEVICES", "cuda.device("]
            .iter()
            .any(|word| text.contains(word))
    };
    if scan.project.files.iter().any(|file| chooses(file.text)) && !is_never_called(scan) {
        return Vec::new();
    }
    with_nccl
        .into_iter()
        .map(|(func, seen)| {
            let title =
                "no rank chooses its GPU: barriers and object collectives then run on GPU 0 of each node"
                    .to_owned();
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.help =
                "call torch.cuda.set_device(local_rank) before init_process_group, or pass device_id".into();
            finding.page =
                "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group";
            finding
        })
        .collect()
}
