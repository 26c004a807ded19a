//! # What it shows
//! A DistributedSampler shuffles, and the program never sets its epoch.
//!
//! # Why it happens
//! The sampler draws its order from its seed and the epoch alone. Without set_epoch each epoch has the order of the first,
//! and each rank sees the same share of the data again. Nothing fails; the model learns less.
//!
//! # Evidence
//! No file of the project mentions set_epoch, the sampler has no shuffle=False, and its file loops over epochs. The
//! confidence is low: the training loop may be elsewhere.
//!
//! # What looks like it but is not
//! Frameworks that call set_epoch themselves: Lightning, accelerate, the Trainer of transformers; a sampler for evaluation,
//! with shuffle=False.
//!
//! # What to do
//! Call sampler.set_epoch(epoch) before each epoch.
//!
//! # References
//! PyTorch, torch.utils.data.distributed.DistributedSampler.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "sampler-without-epoch",
    title: "a sampler is never told the epoch",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("sampler_without_epoch.rs"),
    check,
};

/// Libraries that tell the sampler themselves.
const TELLERS: &[&str] = &[
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "accelerate",
    "transformers",
    "trl",
    "ignite",
    "mmengine",
    "mmcv",
    "catalyst",
    "composer",
    "ray",
];

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let files = &scan.project.files;
    let made = calls(scan, |seen| {
        seen.path.starts_with("torch.utils.data.") && seen.path.ends_with(".DistributedSampler")
    });
    let shuffling = made.filter(|(_, seen)| {
        seen.argument("shuffle", 3).is_none_or(|value| value.as_int() != Some(0))
            && files[seen.at.file].text.contains("epoch")
    });
    let shuffling: Vec<_> = shuffling.collect();
    if shuffling.is_empty()
        || files.iter().any(|file| file.text.contains("set_epoch") || file.imports_any(TELLERS))
    {
        return Vec::new();
    }
    shuffling
        .into_iter()
        .map(|(func, seen)| {
            let title = "nobody calls set_epoch: each epoch has the order and the shares of the first".to_owned();
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.help = "call sampler.set_epoch(epoch) before each epoch".into();
            finding.page =
                "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler";
            finding
        })
        .collect()
}
