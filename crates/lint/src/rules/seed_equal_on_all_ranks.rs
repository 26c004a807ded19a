//! # What it shows
//! Ranks that should draw different numbers draw the same: all get the random state of one rank, or all read the whole
//! data set in one seeded order.
//!
//! # Why it happens
//! A checkpoint keeps the random state of rank 0 alone and every rank loads it. Or the seed is fixed and the loader
//! shuffles without a sampler that divides the data: each rank then trains on the same batches, and the job does the work of one.
//!
//! # Evidence
//! A random state that a collective made equal on all ranks is set; or, in a file that wraps a model for several ranks, the
//! seed does not depend on the rank and a DataLoader shuffles without a sampler.
//!
//! # What looks like it but is not
//! Ranks that must draw alike, as those of one tensor-parallel group must; a loader that is handed to accelerate or
//! Lightning, which put the sampler in; a list that was cut into shares before.
//!
//! # What to do
//! Keep one random state for each rank; divide the data with a DistributedSampler.
//!
//! # References
//! PyTorch documentation, DistributedSampler; miles#3187, mlcommons/training#844.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::flow::machine::SeenCall;
use crate::flow::value::Data;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "seed-equal-on-all-ranks",
    title: "ranks that should differ draw the same random numbers",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("seed_equal_on_all_ranks.rs"),
    check,
};

/// Calls that set the state of a generator.
const SETTERS: &[&str] = &[
    "torch.set_rng_state",
    "torch.random.set_rng_state",
    "torch.cuda.set_rng_state",
    "torch.cuda.set_rng_state_all",
    "random.setstate",
    "numpy.random.set_state",
];
/// Calls that seed the generator from which a loader draws its order.
const SEEDERS: &[&str] = &["torch.manual_seed", "torch.random.manual_seed"];
/// Signs that the data are divided among ranks.
const DIVIDED: &[&str] = &[
    "Sampler",
    "sampler",
    ".prepare(",
    "split_dataset_by_node",
    ".shard(",
    "num_replicas",
    "rank::",
    "lightning",
    "Accelerator",
    "WebLoader",
    "streaming",
];

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let restored = calls(scan, |seen| SETTERS.contains(&seen.path.as_str()))
        .filter(|(_, seen)| seen.args.first().is_some_and(|state| state.agreed))
        .map(|(func, seen)| {
            let title =
                "all ranks get the random state of one: dropout, noise and sampling draw the same numbers on all";
            let mut finding = finding(scan, &RULE, func, seen.at, title.to_owned());
            finding.help = "save and restore one random state for each rank".into();
            finding
        });
    let seeds: Vec<(usize, bool)> = calls(scan, |seen| SEEDERS.contains(&seen.path.as_str()))
        .map(|(_, seen)| (seen.at.file, seen.args.first().is_some_and(|seed| seed.taint.is_clean())))
        .collect();
    let is_seeded_alike = |file: usize| {
        seeds.iter().any(|(at, _)| *at == file) && seeds.iter().all(|(at, is_clean)| *at != file || *is_clean)
    };
    let is_divided = |file: usize| {
        let text = scan.project.files[file].text;
        DIVIDED.iter().any(|word| text.contains(word))
    };
    let wraps = |file: usize| scan.project.files[file].text.contains("DistributedDataParallel");
    let same = calls(scan, shuffles_all)
        .filter(|(_, seen)| wraps(seen.at.file) && is_seeded_alike(seen.at.file) && !is_divided(seen.at.file))
        .map(|(func, seen)| {
            let title = "each rank shuffles all of the data with one seed: all ranks train on the same batches";
            let mut finding = finding(scan, &RULE, func, seen.at, title.to_owned());
            finding.help = "pass sampler=DistributedSampler(dataset) instead of shuffle=True, and call set_epoch".into();
            finding.page = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler";
            finding
        });
    restored.chain(same).collect()
}

/// A loader that shuffles, without a generator of its own.
fn shuffles_all(seen: &SeenCall) -> bool {
    let is_loader = matches!(
        seen.path.as_str(),
        "torch.utils.data.DataLoader" | "torch.utils.data.dataloader.DataLoader"
    );
    let is_true =
        |name: &str, at: usize| seen.argument(name, at).is_some_and(|value| value.as_int() == Some(1));
    let has = |name: &str, at: usize| {
        seen.argument(name, at).is_some_and(|value| !matches!(value.data, Data::None))
    };
    is_loader && is_true("shuffle", 2) && !has("generator", 99)
}
