//! # What it shows
//!
//! With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares the collectives of all ranks before it runs them. Here they
//! differ in kind, size, type or number.
//!
//! # Why it happens
//!
//! A branch or a size that depends on the rank or on its data.
//!
//! # Evidence
//!
//! `Detected mismatch between collectives on ranks`, with the fingerprint of two ranks each.
//!
//! # What looks like it but is not
//!
//! A call that one rank left out looks like a change of kind or size at the first difference: only the calls after it
//! would show that, and DETAIL stops before them.
//!
//! # What to do
//!
//! Compare what the two ranks did just before; look for branches that depend on rank or data.
//!
//! # References
//!
//! pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp.

use std::collections::BTreeMap;

use ringleader_model::{
    Cause, Confidence, Culprit, Fingerprint, Impact, Rank, RankSet, TorchEvent, Weight, Who,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::who::culprits::who;
use ringleader_correlate::{Scene, TorchStatement};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "fingerprint-mismatch",
    title: "torch compared the ranks' calls and they differ",
    since: "0.1",
    doc: include_str!("fingerprint_mismatch.rs"),
    check,
};

/// Most citations: one statement is enough; others only repeat it.
const CITATIONS: usize = 3;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut statements: Vec<TorchStatement<'_>> = Vec::new();
    let mut prints: BTreeMap<Rank, &Fingerprint> = BTreeMap::new();
    let mut pair = None;
    for statement in scene.statements() {
        if let TorchEvent::FingerprintMismatch { mine, theirs } = statement.event {
            statements.push(statement);
            pair = pair.or(Some((&**mine, &**theirs)));
            for print in [mine, theirs] {
                if let Some(rank) = print.rank {
                    prints.entry(rank).or_insert(print);
                }
            }
        }
    }
    let Some((mine, theirs)) = pair else { return Outcome::Clear };
    let (cause, what) = difference(mine, theirs);
    let ranks = minority(&prints);
    let culprits: Vec<Culprit> =
        ranks.ranks().iter().map(|r| Culprit { rank: Some(*r), ..scene.culprit(&Who::rank(r.0)) }).collect();
    let seq = mine.seq.map_or(String::new(), |n| format!(" #{n}"));
    let title = if ranks.len() == prints.len() {
        format!("{} differ in {what} of collective{seq}", who(&culprits))
    } else {
        format!("{} and the others differ in {what} of collective{seq}", who(&culprits))
    };
    let draft = Draft::new(RULE.id, cause, title)
        .weight(Weight::Stated)
        // Which of the two is wrong, and whether a call was left out before, is not known.
        .confidence(Confidence::Medium)
        .at(statements.first().and_then(TorchStatement::at_ns))
        .culprits(culprits)
        .evidence(statements.iter().take(CITATIONS).map(TorchStatement::evidence))
        .advise(Impact::Harmless, "look at the last collective before this one on both ranks: a branch or a size that depends on rank or data lies in between")
        .advise_command(
            Impact::Harmless,
            "record the calls of every rank with their places in the code",
            "TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun …",
        );
    Outcome::from_findings(draft.build().into_iter().collect())
}

fn difference(a: &Fingerprint, b: &Fingerprint) -> (Cause, &'static str) {
    if a.seq.is_some() && b.seq.is_some() && a.seq != b.seq {
        (Cause::SkippedCollective, "the number")
    } else if a.op_type != b.op_type {
        (Cause::OpMismatch, "the kind")
    } else if a.dtypes != b.dtypes {
        (Cause::DtypeMismatch, "the type")
    } else {
        (Cause::ShapeMismatch, "the size")
    }
}

/// Ranks whose fingerprint fewer ranks share; all of them where no side is larger.
fn minority(prints: &BTreeMap<Rank, &Fingerprint>) -> RankSet {
    let mut sides: Vec<(&Fingerprint, Vec<Rank>)> = Vec::new();
    for (rank, print) in prints {
        let same = |p: &Fingerprint| {
            p.seq == print.seq
                && p.op_type == print.op_type
                && p.shape == print.shape
                && p.dtypes == print.dtypes
        };
        match sides.iter_mut().find(|(p, _)| same(p)) {
            Some((_, ranks)) => ranks.push(*rank),
            None => sides.push((print, vec![*rank])),
        }
    }
    let most = sides.iter().map(|(_, r)| r.len()).max().unwrap_or(0);
    let odd: RankSet =
        sides.iter().filter(|(_, r)| r.len() < most).flat_map(|(_, r)| r.iter().copied()).collect();
    if odd.is_empty() { prints.keys().copied().collect() } else { odd }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn sizes_differ_between_two_ranks() {
        StagedCase::new()
            .fingerprints(
                (1, "ALLREDUCE", "[195801088]", "BFloat16"),
                (0, "ALLREDUCE", "[51118080]", "BFloat16"),
            )
            .expect(&RULE, &["shape-mismatch 0-1"]);
    }

    #[test]
    fn the_odd_rank_is_named() {
        StagedCase::new()
            .fingerprints((1, "BROADCAST", "[4]", "Float"), (0, "ALLREDUCE", "[4]", "Float"))
            .fingerprints((2, "ALLREDUCE", "[4]", "Float"), (1, "BROADCAST", "[4]", "Float"))
            .expect(&RULE, &["op-mismatch 1"]);
    }

    #[test]
    fn types_differ() {
        StagedCase::new()
            .fingerprints((1, "ALLREDUCE", "[4]", "Half"), (0, "ALLREDUCE", "[4]", "Float"))
            .expect(&RULE, &["dtype-mismatch 0-1"]);
    }

    #[test]
    fn a_timeout_is_another_thing() {
        StagedCase::new()
            .raised(Some(1), "RuntimeError", "Watchdog caught collective operation timeout", &[])
            .silent(&RULE);
    }
}
