//! # What it shows
//!
//! Values that must be identical on all ranks differ: a reduced gradient, or a parameter after the step.
//!
//! # Why it happens
//!
//! A GPU that computes or keeps wrong values, or a link that carries them wrongly, after the reduction: before it, the
//! fault would have reached all ranks alike. Where ranks were never in sync, a missing broadcast or seed is likelier.
//!
//! # Evidence
//!
//! Events of the guard (`ringleader.torch.guard`): digests of all ranks, the ranks outside of the majority, the first
//! parameter that differs and how many do.
//!
//! # What looks like it but is not
//!
//! Another kind of GPU or another build of torch on one rank rounds differently; so do nondeterministic kernels on
//! parameters that every rank computes by itself. Parameters that no reduction joins differ in healthy jobs.
//!
//! # What to do
//!
//! Take the odd rank's node out and verify its GPUs; go back to a checkpoint from before the step.
//!
//! # References
//!
//! ringleader docs/guard.md; NVIDIA/Megatron-LM megatron/core/utils.py check_param_hashes_across_dp_replicas.

use std::collections::BTreeSet;

use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;
use ringleader_model::{
    Cause, Confidence, Evidence, Fact, GuardEvent, GuardKind, Impact, Observation, Rank, SourceKind, Weight,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule, found};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "ranks-disagree",
    title: "values that must be identical on all ranks are not",
    since: "0.2",
    doc: include_str!("ranks_disagree.rs"),
    check,
};

/// Citations of one finding.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut all: Vec<(&Observation, &GuardEvent)> = scene
        .case()
        .observations
        .iter()
        .filter_map(|observation| match &observation.fact {
            Fact::Guard(event) if matches!(event.kind, GuardKind::Disagreement { .. }) => {
                Some((observation, &**event))
            }
            _ => None,
        })
        .collect();
    // Divergence lasts: the first step says most. Gradients are compared before the parameters that they change.
    all.sort_by_key(|(observation, event)| {
        (event.step, &*event.value != "gradient", event.rank, observation.cite)
    });
    let Some((_, first)) = all.first() else { return Outcome::Clear };
    let of_first = all.iter().filter(|(_, event)| event.step == first.step && event.value == first.value);
    let evidence: Vec<Evidence> = of_first
        .clone()
        .take(CITATIONS)
        .map(|(observation, _)| Evidence {
            cite: observation.cite,
            text: observation.text.to_string(),
            kind: SourceKind::Guard,
        })
        .collect();
    let n_ranks = of_first.map(|(_, event)| event.rank).collect::<BTreeSet<Rank>>().len();
    let GuardKind::Disagreement { odd, group, n_differing, n_compared, never_in_sync } = &first.kind else {
        return Outcome::Clear;
    };
    let who: Vec<String> = odd.iter().map(|rank| rank.0.to_string()).collect();
    let what = format!(
        "the {} {} at step {} ({n_differing} of {n_compared} differ)",
        first.value, first.parameter, first.step
    );
    let title = match (&who[..], never_in_sync) {
        (_, true) => format!("ranks {group} were never in sync: {what}"),
        ([], _) => format!("ranks {group} disagree, none has the majority: {what}"),
        (ranks, _) => {
            format!("rank {} differs from the majority of {group}: {what}", ranks.join(", "))
        }
    };
    let confidence = match (odd.is_empty(), never_in_sync) {
        (_, true) => Confidence::Low,
        // Several ranks have voted and say the same.
        (false, _) if n_ranks > 2 => Confidence::High,
        (false, _) => Confidence::Medium,
        (true, _) => Confidence::Medium,
    };
    let nodes: Vec<RankOrSource> =
        odd.iter().copied().filter(|_| !never_in_sync).map(RankOrSource::Rank).collect();
    let mut draft = Draft::new(RULE.id, Cause::SilentCorruption, title)
        .weight(if *never_in_sync { Weight::Derived } else { Weight::Stated })
        .confidence(confidence)
        .culprits(drafting::culprits(scene, &nodes, None))
        .evidence(evidence);
    draft = if *never_in_sync {
        draft.advise(
            Impact::Harmless,
            "make sure that every rank starts from the same seed, checkpoint or broadcast; compare kinds of GPU and versions of torch",
        )
    } else {
        draft
            .advise_command(
                Impact::Disruptive,
                "verify the GPUs of that node, without the job",
                "ringleader verify --for 30m",
            )
            .advise(Impact::Disruptive, format!("go back to a checkpoint from before step {}", first.step))
    };
    found(draft)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, GuardEvent, GuardKind, Rank, SourceKind, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn seen(
        stage: StagedCase,
        rank: u32,
        step: u64,
        odd: &[u32],
        value: &str,
        never_in_sync: bool,
    ) -> StagedCase {
        let event = GuardEvent {
            rank: Rank(rank),
            step,
            kind: GuardKind::Disagreement {
                odd: odd.iter().copied().map(Rank).collect(),
                group: "0-3".into(),
                n_differing: 1,
                n_compared: 6,
                never_in_sync,
            },
            parameter: "1.weight".into(),
            layer: "1".into(),
            value: value.into(),
        };
        let who = Who { rank: Some(Rank(rank)), ..Who::default() };
        stage.push(SourceKind::Guard, who, Fact::Guard(Box::new(event)))
    }

    #[test]
    fn the_odd_rank_is_named() {
        let mut stage = StagedCase::job(4);
        for rank in 0..4 {
            stage = seen(stage, rank, 7, &[2], "gradient", false);
            // What follows from it accuses no one else.
            stage = seen(stage, rank, 8, &[0, 1, 3], "parameter", false);
        }
        stage.concludes(&RULE, "silent-corruption 2, high");
    }

    #[test]
    fn two_that_disagree_are_not_guessed_and_those_never_in_sync_accuse_nobody() {
        let two = seen(seen(StagedCase::job(2), 0, 7, &[], "gradient", false), 1, 7, &[], "gradient", false);
        two.concludes(&RULE, "silent-corruption , medium");
        seen(StagedCase::job(4), 0, 1, &[2], "parameter", true).concludes(&RULE, "silent-corruption , low");
        StagedCase::job(4).silent(&RULE);
    }
}
