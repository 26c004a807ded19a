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
use crate::flow::machine::SeenCall;
use crate::flow::value::{GLOBAL, Val};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "seed-by-rank",
    title: "what must agree is seeded by the rank, or what must differ is not",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("seed_by_rank.rs"),
    check,
};

/// The number that says how what ranks divide is ordered: of `set_epoch`, of a split, of a shuffle of a whole data set.
fn shared_seed(seen: &SeenCall) -> Option<(&'static str, &Val)> {
    let last = seen.path.rsplit('.').next().unwrap_or_default();
    let (name, seed) = match last {
        "set_epoch" => ("the epoch", seen.argument("epoch", 0)),
        "train_test_split" => {
            ("the seed of the split", seen.argument("random_state", 99).or(seen.argument("seed", 99)))
        }
        "shuffle" => ("the seed of the shuffle", seen.argument("seed", 99)),
        "random_split" => ("the seed of the split", seen.argument("generator", 2)),
        _ => return None,
    };
    Some((name, seed?))
}

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let requests = calls(scan, |seen| seen.path.ends_with("SamplingParams")).filter_map(|(func, seen)| {
        let seed = seen.argument("seed", 99)?;
        // Ranks that hold parts of one model must draw the same tokens.
        (seed.taint.axes & GLOBAL != 0).then(|| {
            let title = "the seed of a request differs from rank to rank: the ranks of one tensor-parallel group then draw different tokens";
            let mut finding = finding(scan, &RULE, func, seen.at, title.to_owned());
            finding.confidence = Confidence::Low;
            finding.help = "derive the seed from the group's number, not from the rank: rank // tensor_parallel_size".into();
            finding
        })
    });
    let samplers = calls(scan, |seen| seen.path.ends_with("DistributedSampler"));
    let samplers = samplers
        .filter_map(|(func, seen)| {
            let seed = seen.argument("seed", 4)?;
            (seed.taint.axes != 0 || seed.taint.local.is_some()).then(|| {
                let title = "the sampler's seed differs from rank to rank: ranks then share samples and miss others".to_owned();
                let mut finding = finding(scan, &RULE, func, seen.at, title);
                finding.help = "give all ranks one seed: the sampler divides one permutation among them".into();
                finding.page = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler";
                finding
            })
        });
    // Epochs say which permutation is divided; splits say which samples are held out.
    let shared = calls(scan, |seen| shared_seed(seen).is_some()).filter_map(|(func, seen)| {
        let (name, seed) = shared_seed(seen)?;
        (seed.taint.axes & GLOBAL != 0).then(|| {
            let title = format!("{name} differs from rank to rank: ranks then divide different permutations");
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            finding.confidence = Confidence::Low;
            finding.help =
                "give all ranks the same number here, and let the sampler or shard tell them apart".into();
            finding
        })
    });
    requests.chain(samplers).chain(shared).collect()
}
