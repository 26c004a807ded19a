//! # What it shows
//! Between two ranks one side posted more sends or receives than the other, and the shorter side is not held
//! up by anything itself.
//!
//! # Why it happens
//! An off-by-one in a pipeline schedule, a micro-batch that is dropped on one stage, a branch around a send.
//!
//! # Evidence
//! The counts of both sides, by NCCL's own Send and Recv lines or by the recorder; the wait-for graph ends at
//! the shorter side.
//!
//! # What looks like it but is not
//! A stage that is late as a whole also has fewer sends, but fewer receives as well, and is busy in its own
//! code. Pair numbers of send and receive differ between peers by nature.
//!
//! # What to do
//! Compare the schedule of the two stages.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide.

use ringleader_model::{Cause, Impact, Weight};

use crate::drafting;
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::Life;
use ringleader_correlate::waits::suspects::Suspect;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "unmatched-p2p",
    title: "a send without its receive, or the reverse",
    since: "0.1",
    doc: include_str!("unmatched_p2p.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for suspect in scene.suspects().iter().filter(|s| s.in_p2p) {
        let condition = suspect.node.rank().and_then(|r| scene.condition(r));
        let fate = suspect.node.rank().and_then(|r| scene.fate(r));
        let has_stack = condition.is_some_and(|c| c.stand.is_some());
        let gone = fate.is_some_and(|f| {
            f.life() == Life::Absent || f.is_halted() || f.failed() || f.is_cut_off() && !has_stack
        });
        // A stack without native frames does not show that a rank is inside; its operation in flight does.
        let stands_elsewhere = !suspect.is_inside
            && condition
                .and_then(|c| c.stand.as_ref())
                .is_some_and(|s| !s.is_leaving() && !s.waits_in_gpu_or_collective());
        // A rank that left out a message goes on until it waits for another one; a rank with nothing in flight is
        // outside.
        let idle = condition.is_some_and(|c| c.ring_idle);
        if gone || stands_elsewhere || idle {
            continue;
        }
        let place = suspect.waiters_place.as_ref();
        let title = format!(
            "{} never posted its side of {}; {}{}",
            drafting::who(&[suspect.node]),
            suspect.awaited_in,
            drafting::waiting(&suspect.victims),
            drafting::at(place)
        );
        findings.extend(
            drafting::from_suspect(scene, RULE.id, Cause::UnmatchedP2p, suspect, place, title)
                .at_most(drafting::surest_of_one_moment(scene))
                .weight(if suspect.weak || parted(scene, suspect) { Weight::Derived } else { Weight::Stated })
                .evidence(condition.and_then(|c| c.stand.as_ref()).map(|s| s.evidence.clone()))
                .advise(
                    Impact::Harmless,
                    "compare how many messages each stage of the schedule sends and receives per step",
                )
                .build(),
        );
    }
    Outcome::from_findings(findings)
}

/// The rank parted from its peers in a collective: messages that it owes are a consequence.
fn parted(scene: &Scene<'_>, suspect: &Suspect) -> bool {
    scene.mismatches().iter().any(|m| !m.halves && !m.is_bygone && m.odd.contains(&suspect.node))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn stages() -> StagedCase {
        StagedCase::job(2).logs().dumps(&["send>1:8@20*2 send>1:8@20?", "recv<0:8*2"])
    }

    #[test]
    fn one_receive_too_few() {
        stages().concludes(&RULE, "unmatched-p2p 1 at step:20, medium");
        // NCCL's own lines count the same.
        let logs = StagedCase::job(2).log(0, "node1", "send>1:8*3").log(1, "node1", "recv<0:8*2");
        logs.concludes(&RULE, "unmatched-p2p 1, medium");
    }

    #[test]
    fn rings_show_where_the_other_side_waits() {
        let job = StagedCase::job(2).rings(&["send>1:8*12 ar:9?", "recv<0:8*12 recv<0:8?"]);
        job.stands(1, &[("/srv/pipe.py", 61, "forward")])
            .concludes(&RULE, "unmatched-p2p 0 at forward:61, medium");
    }

    #[test]
    fn a_stage_that_is_late_as_a_whole() {
        stages().stands(1, &[("/srv/data.py", 31, "fetch")]).silent(&RULE);
        stages().ps("S T").silent(&RULE);
    }

    #[test]
    fn it_went_on_and_waits_itself() {
        use crate::rules::process::stuck_outside_collective;
        let steps = |step: &str, last: &str| format!("{}{last}", step.repeat(3));
        let first = steps("send>1:8 recv<1:8 ar:1 ", "recv<1:8? ar:1?");
        let second = steps("recv<0:8 send>0:8 ar:1 ", "recv<0:8? send>0:8? ar:1?");
        // A stack without native frames: it may stand anywhere, but it is inside.
        let job = StagedCase::job(2).rings(&[&first, &second]).stands(0, &[("/srv/train.py", 98, "mean")]);
        job.expect(&RULE, &["unmatched-p2p 0"]);
        job.silent(&stuck_outside_collective::RULE);
    }

    #[test]
    fn owed_by_a_rank_that_made_another_call() {
        use ringleader_model::Weight;
        let job = |other: &str| {
            let job = StagedCase::job(3).group("world", 0..3).group("pp", 0..2);
            let logs = job.log(0, "node1", "recv<1:8*3").log(1, "node1", "send>0:8*2");
            logs.dumps(&["ar:9@20?", other, "ar:9@20?"]).finding(&RULE)
        };
        assert_eq!(job("ar:9@20?").weight, Weight::Stated);
        assert_eq!(job("bc:1@44?").weight, Weight::Derived);
    }

    #[test]
    fn counts_that_fit() {
        StagedCase::job(2).dumps(&["send>1:8*3 recv<1:8*2", "recv<0:8*3 send>0:8*2"]).silent(&RULE);
    }
}
