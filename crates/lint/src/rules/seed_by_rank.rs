//! # What it shows
//! A sampler that divides one permutation among the ranks is seeded differently on each.
//!
//! # Why it happens
//! Seeds are offset by the rank for dropout and augmentation, and the same seed goes into the sampler.
//!
//! # Evidence
//! The seed comes from the rank or from local data.
//!
//! # What looks like it but is not
//! Seeds for dropout and augmentation, which should differ.
//!
//! # What to do
//! One seed for what is divided, another for what should differ.
//!
//! # References
//! PyTorch documentation, DistributedSampler.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::rule::{Family, Rule};
use crate::{Finding, Scan};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "seed-by-rank",
    title: "what must agree is seeded by the rank, or what must differ is not",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("seed_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
    let calls = calls(scan, |seen| seen.path.ends_with("DistributedSampler"));
    calls
        .filter_map(|(func, seen)| {
            let seed = seen.argument("seed", 4)?;
            (seed.taint.axes != 0 || seed.taint.local.is_some()).then(|| {
                let title = "the sampler's seed differs from rank to rank: ranks then share samples and miss others".to_owned();
                let mut finding = finding(scan, &RULE, func, seen.at, title);
                finding.help = "give all ranks one seed: the sampler divides one permutation among them".to_owned();
                finding.page = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler";
                finding
            })
        })
        .collect()
}
