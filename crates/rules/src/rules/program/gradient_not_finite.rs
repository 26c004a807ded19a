//! # What it shows
//!
//! A gradient held NaN or Inf on one rank before the reduction gave it to all.
//!
//! # Why it happens
//!
//! A bad record or an empty batch on that rank, a division by zero, an overflow in half precision; rarely a GPU that
//! computes wrongly.
//!
//! # Evidence
//!
//! Events of the guard (`ringleader.torch.guard`), which looks at local gradients before they are reduced: rank, step,
//! and the layer whose gradient was the first in backward.
//!
//! # What looks like it but is not
//!
//! Steps after it: the reduction spreads the value, and every rank has it. All ranks in one step at once: the learning
//! rate or the loss scale, and no rank's fault.
//!
//! # What to do
//!
//! Look at that rank's batch of that step; if the same batch is finite elsewhere, verify the GPU.
//!
//! # References
//!
//! ringleader docs/guard.md; pytorch/pytorch torch/csrc/distributed/c10d/reducer.cpp (where DDP reads gradients).

use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;
use ringleader_model::{
    Cause, Confidence, Evidence, Fact, GuardEvent, GuardKind, Impact, Observation, SourceKind, Weight,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule, found};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gradient-not-finite",
    title: "a local gradient was not finite",
    since: "0.2",
    doc: include_str!("gradient_not_finite.rs"),
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
            Fact::Guard(event) if event.kind == GuardKind::NotFinite => Some((observation, &**event)),
            _ => None,
        })
        .collect();
    all.sort_by_key(|(observation, event)| (event.step, event.rank, observation.cite));
    let Some((_, first)) = all.first() else { return Outcome::Clear };
    let began: Vec<&(&Observation, &GuardEvent)> =
        all.iter().filter(|(_, event)| event.step == first.step).collect();
    // The guard looks every so many steps: what it sees on all ranks at once may have been spread before.
    let mut ranks: Vec<_> = began.iter().map(|(_, event)| event.rank).collect();
    ranks.dedup();
    let is_one = ranks.len() == 1;
    let nodes: Vec<RankOrSource> =
        ranks.iter().copied().take(1).filter(|_| is_one).map(RankOrSource::Rank).collect();
    let title = if is_one {
        format!(
            "{} began on rank {} at step {} in the gradient of layer {}",
            first.value, first.rank.0, first.step, first.layer
        )
    } else {
        format!("{} in the local gradients of {} ranks at step {}", first.value, ranks.len(), first.step)
    };
    let evidence = began.iter().take(CITATIONS).map(|(observation, _)| Evidence {
        cite: observation.cite,
        text: observation.text.to_string(),
        kind: SourceKind::Guard,
    });
    found(
        Draft::new(RULE.id, Cause::NanLoss, title)
            .weight(Weight::Stated)
            .confidence(if is_one { Confidence::High } else { Confidence::Medium })
            .culprits(drafting::culprits(scene, &nodes, None))
            .evidence(evidence)
            .advise(Impact::Harmless, "look at that rank's batch of that step, and run it on another GPU")
            .advise_command(
                Impact::Harmless,
                "find the operation that produced the first NaN",
                "torch.autograd.set_detect_anomaly(True)",
            ),
    )
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, GuardEvent, GuardKind, Rank, SourceKind, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn seen(stage: StagedCase, rank: u32, step: u64) -> StagedCase {
        let event = GuardEvent {
            rank: Rank(rank),
            step,
            kind: GuardKind::NotFinite,
            parameter: "1.bias".into(),
            layer: "1".into(),
            value: "NaN".into(),
        };
        let who = Who { rank: Some(Rank(rank)), ..Who::default() };
        stage.push(SourceKind::Guard, who, Fact::Guard(Box::new(event)))
    }

    #[test]
    fn the_rank_where_it_began_is_named() {
        let mut stage = seen(StagedCase::job(4), 1, 6);
        for rank in 0..4 {
            stage = seen(stage, rank, 7);
        }
        stage.concludes(&RULE, "nan-loss 1, high");
    }

    #[test]
    fn all_at_once_is_nobodys() {
        let mut stage = StagedCase::job(4);
        for rank in 0..4 {
            stage = seen(stage, rank, 7);
        }
        stage.concludes(&RULE, "nan-loss , medium");
        StagedCase::job(4).silent(&RULE);
    }
}
