//! # What it shows
//! init_process_group or a sampler gets the local rank as its rank.
//!
//! # Why it happens
//! On one node the two are equal, and the code works until the second node joins.
//!
//! # Evidence
//! The argument comes from LOCAL_RANK or a local rank alone.
//!
//! # What looks like it but is not
//! node_rank * gpus + local_rank; code that a launcher starts on one node only.
//!
//! # What to do
//! Use RANK.
//!
//! # References
//! PyTorch documentation, torchrun; Megatron-LM#2458.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding};
use crate::flow::hooks::KEPT;
use crate::flow::machine::SeenCall;
use crate::flow::value::{LOCAL, Val};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "local-rank-as-rank",
    title: "the local rank is given where the rank is asked",
    family: Family::Code,
    predicts: Cause::RankEnvMisconfigured,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("local_rank_as_rank.rs"),
    check,
};

/// Parameters of a sampler or a loader for the number of processes that share its data.
const SHARERS: &[&str] = &["num_replicas", "world_size", "num_shards", "n_ranks"];

/// Whether a call makes something that reads a part of the data.
fn is_reader(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or_default();
    let lower = name.to_ascii_lowercase();
    name.starts_with(|c: char| c.is_ascii_uppercase())
        || ["loader", "sampler", "shard", "dataset", "split"].iter().any(|word| lower.contains(word))
}

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let shares = |seen: &SeenCall| seen.keywords.iter().any(|(key, _)| SHARERS.contains(&key.as_str()));
    let is_setup = |path: &str| path.ends_with("init_process_group") || path.ends_with("DistributedSampler");
    let calls = calls(scan, move |seen| is_setup(&seen.path) || (shares(seen) && is_reader(&seen.path)));
    let mut findings = kept(scan);
    findings.extend(calls.filter_map(|(func, seen)| {
        let is_sampler = !seen.path.ends_with("init_process_group");
        let rank = seen.argument("rank", if seen.path.ends_with("DistributedSampler") { 2 } else { 99 })?;
        // What is computed from it may be the rank.
        if rank.taint.axes != LOCAL || rank.as_int().is_none() {
            return None;
        }
        // A job of one node, or of one process.
        let text = scan.project.files[seen.at.file].text;
        let is_one = seen.argument("world_size", 99).and_then(Val::as_int) == Some(1);
        if is_one || is_of_one_node(text) {
            return None;
        }
        let title = "rank is the local rank: from the second node on, ranks collide".to_owned();
        let mut finding = finding(scan, &RULE, func, seen.at, title);
        if is_sampler {
            finding.confidence = Confidence::Medium;
        }
        // All processes of one node, and no more: a script for one node.
        let world = seen.argument("world_size", 99);
        if !is_sampler && world.is_some_and(|world| world.as_int().is_none()) {
            finding.confidence = Confidence::Low;
        }
        finding.help = "pass RANK and WORLD_SIZE; LOCAL_RANK only chooses the GPU".into();
        finding.page = "https://docs.pytorch.org/docs/stable/elastic/run.html";
        Some(finding)
    }));
    findings
}

/// Objects that keep the local rank as their rank and compare it with owners, which are counted over the whole job.
fn kept(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    calls(scan, |seen| seen.path == KEPT)
        .filter_map(|(func, seen)| {
            let text = scan.project.files[seen.at.file].text;
            let name = scan.project.files[seen.at.file].slice(seen.at.span);
            let is_compared = text.lines().any(|line| {
                ["==", "!="].iter().any(|op| {
                    let owner = |side: &str| {
                        let first = side.trim().trim_end_matches(':').split_whitespace().next();
                        first.is_some_and(|word| word.parse::<i64>().is_err())
                    };
                    line.split_once(op).is_some_and(|(left, right)| {
                        (left.trim_end().ends_with(name) && owner(right))
                            || (right.trim_start().starts_with(name) && !left.trim_end().ends_with('0'))
                    })
                })
            });
            let is_counted = text.contains("get_world_size(");
            if !is_compared || !is_counted || is_of_one_node(text) {
                return None;
            }
            let title = "the local rank is kept as the rank: compared with the owner of a part, it is wrong from the second node on";
            let mut finding = finding(scan, &RULE, func, seen.at, title.to_owned());
            finding.confidence = Confidence::Low;
            finding.help = "keep dist.get_rank(), and use the local rank for the device alone".into();
            finding.page = "https://docs.pytorch.org/docs/stable/elastic/run.html";
            Some(finding)
        })
        .collect()
}

/// Whether a file speaks of a job of one node.
fn is_of_one_node(text: &str) -> bool {
    ["127.0.0.1", "localhost"].iter().any(|host| text.contains(host))
}
