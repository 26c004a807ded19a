//! # What it shows
//!
//! A rank waits in a collective that is not recorded, while its peers wait for it in one that is: they are in different
//! calls.
//!
//! # Why it happens
//!
//! A call under a condition on the rank that goes over another backend (gloo for objects, barriers and checkpoints) or a
//! communicator that nothing records: `gather_object`, `barrier`, `monitored_barrier` or a distributed save on one rank
//! alone.
//!
//! # Evidence
//!
//! The suspect's stack in `torch.distributed` with nothing of it in flight, and the recorded operation in which its peers
//! wait. Their stacks, if they are there, show that they are not in the same call.
//!
//! # What looks like it but is not
//!
//! A rank that is about to enter the operation of its peers has that operation as its next call a moment later: one look at
//! a job that nothing shows to stand still is not enough.
//!
//! # What to do
//!
//! Call it on all ranks of the group, or on none.
//!
//! # References
//!
//! PyTorch docs, `torch.distributed`: object collectives and `torch.distributed.checkpoint` are collective.

use ringleader_correlate::Scene;
use ringleader_correlate::waits::suspects::Suspect;
use ringleader_model::{Cause, Confidence, Finding, Impact, Weight};

use crate::drafting;
use crate::rule::{Outcome, Rule};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "unseen-collective",
    title: "a rank waits in a collective that nothing records, its peers in another",
    since: "0.4",
    doc: include_str!("unseen_collective.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    Outcome::from_findings(scene.suspects().iter().filter_map(|suspect| finding(scene, suspect)).collect())
}

fn finding(scene: &Scene<'_>, suspect: &Suspect) -> Option<Finding> {
    let rank = suspect.node.rank()?;
    let stand = scene.unseen_call(suspect)?;
    let place = stand.place();
    drafting::from_suspect(
        scene,
        RULE.id,
        Cause::ExtraCollective,
        suspect,
        place,
        format!(
            "{} waits in a collective{} that its peers do not call; {} for it in {}",
            drafting::rank(rank),
            drafting::at(place),
            drafting::waiting(&suspect.victims),
            suspect.awaited_in
        ),
    )
    .call(suspect.awaited_call.clone())
    .confidence(Confidence::Medium)
    .at_most(Confidence::Medium)
    .weight(Weight::Derived)
    .evidence(Some(stand.evidence.clone()))
    .advise(
        Impact::Harmless,
        "call it on all ranks of its group or on none: look for a condition on the rank around a save, a gather of objects or a barrier",
    )
    .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::SecondLook;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const GATHER: (&str, u32, &str) =
        ("/opt/site-packages/torch/distributed/distributed_c10d.py", 4086, "all_gather");
    const SAVE: (&str, u32, &str) = ("/srv/train.py", 100, "save");
    const STEP: (&str, u32, &str) = ("/srv/train.py", 141, "step");

    /// Rank 1 waits in a recorded call for rank 0, which is at these places at two looks.
    fn job(first: &[(&str, u32, &str)], again: &[(&str, u32, &str)], used_ms: u64) -> StagedCase {
        let mut stage = StagedCase::job(2).rings_on(&["ar:9*12", "ar:9*12 ag:9?"], &[0, 0]).seen(
            1_000,
            "S R",
            |rank, picked| {
                picked.again = Some(SecondLook {
                    after_ms: 1_500,
                    state: if rank == 0 { "S" } else { "R" }.into(),
                    cpu_ms: 9_000 + if rank == 0 { used_ms } else { 1_500 },
                    first_cpu_ms: 9_000,
                    ..SecondLook::default()
                });
            },
        );
        for look in [first, again] {
            stage = stage.stands(0, look).stands(1, &[STEP]);
        }
        stage
    }

    #[test]
    fn one_that_waits_in_another_backend() {
        job(&[GATHER, SAVE], &[GATHER, SAVE], 0).concludes(&RULE, "extra-collective 0 at save:100, medium");
    }

    #[test]
    fn look_alikes() {
        // It goes on, it works, or it is in no collective.
        job(&[STEP], &[GATHER, SAVE], 0).silent(&RULE);
        job(&[GATHER, SAVE], &[GATHER, SAVE], 1_200).silent(&RULE);
        job(&[SAVE], &[SAVE], 0).silent(&RULE);
        // It waits in a recorded call, too.
        let inside = StagedCase::job(2).rings(&["ar:9*12 ag:9?", "ar:9*12 ag:9?"]);
        inside.stands(0, &[GATHER, SAVE]).silent(&RULE);
    }
}
