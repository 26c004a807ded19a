//! # What it shows
//!
//! Ranks wait for each other in different operations: one group submitted tensors that the other has not, and the other way
//! round.
//!
//! # Why it happens
//!
//! A branch that depends on the rank or its data: one rank averages a metric or gathers while the others reduce gradients;
//! layers that only some ranks use.
//!
//! # Evidence
//!
//! A stall report of Horovod: for each tensor the ranks that are ready or missing. Two of these sets share no rank.
//!
//! # What looks like it but is not
//!
//! A rank that is late is missing from every tensor; then no two sets are disjoint.
//!
//! # What to do
//!
//! Make all ranks take the same branch, and submit the same tensors.
//!
//! # References
//!
//! horovod/horovod horovod/common/stall_inspector.cc; Horovod docs, Troubleshooting.

use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;
use ringleader_model::{Apart, ApartBy, Cause, Confidence, Fact, Impact, Observation, SourceKind, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "other-tensors",
    title: "groups of ranks wait for each other in different operations",
    since: "0.5",
    doc: include_str!("other_tensors.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let of = |o: &'_ Observation| match &o.fact {
        Fact::Apart(apart) if apart.by == ApartBy::OtherTensors => Some(Apart::clone(apart)),
        _ => None,
    };
    let Some((observation, apart)) = scene.case().observations.iter().find_map(|o| Some((o, of(o)?))) else {
        return Outcome::Clear;
    };
    let title = match apart.ranks.as_slice() {
        [] => "two groups of ranks submitted different tensors and wait for each other".to_owned(),
        [rank] => {
            format!("{} submitted other tensors than the rest, which wait for it", drafting::rank(*rank))
        }
        ranks => format!("{} ranks submitted other tensors than the rest, which wait for them", ranks.len()),
    };
    let finding = Draft::new(RULE.id, Cause::CollectiveDesync, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(apart.ranks.iter().map(|rank| scene.roster().culprit_rank(*rank)))
        .evidence([shown(observation, None, SourceKind::PlainText, "")])
        .advise(
            Impact::Harmless,
            "compare the names of the tensors: they show the branch that each group took",
        )
        .advise(Impact::Harmless, "make all ranks take the same branch, or submit zeros for what they skip")
        .build();
    Outcome::from_findings(finding.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Apart, ApartBy, Fact, Rank, SourceKind, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn stage(by: ApartBy, ranks: &[u32]) -> StagedCase {
        let of = |ranks: &[u32]| ranks.iter().map(|rank| Rank(*rank)).collect();
        let apart = Apart { by, ranks: of(ranks), among: of(&[0, 1, 2, 3]) };
        StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Apart(Box::new(apart)))
    }

    #[test]
    fn groups_in_different_operations() {
        stage(ApartBy::OtherTensors, &[3]).expect(&RULE, &["collective-desync 3"]);
        stage(ApartBy::OtherTensors, &[]).expect(&RULE, &["collective-desync"]);
    }

    #[test]
    fn a_rank_that_is_late_is_another_matter() {
        stage(ApartBy::Missing, &[3]).silent(&RULE);
    }
}
