//! # What it shows
//! A rank that others wait for is gone, and its end was orderly: no crash, no signal, no place in the
//! launcher's table of failures.
//!
//! # Why it happens
//! Early stopping decided on one rank, a data set that ran out, sys.exit or return on a local condition.
//!
//! # Evidence
//! Its stack is in the teardown of its process groups while others wait in a collective that it never entered. Or:
//! absent from the process list and from RAS while its peers are there; its NCCL log closes the communicator; the
//! launcher's table, which lists every failed rank, does not list it.
//!
//! # What looks like it but is not
//! A rank that was killed or crashed is in the launcher's table. A rank that is stopped or cut off is
//! still in the process list.
//!
//! # What to do
//! Agree on stopping with a collective, so that all ranks leave together.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide.

use ringleader_model::{Cause, Confidence, Fact, Finding, Impact, SourceKind, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::{End, Life};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "rank-exited-early",
    title: "a rank ended normally while its peers still communicate",
    since: "0.1",
    doc: include_str!("rank_exited_early.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for suspect in scene.suspects() {
        let Some(rank) = suspect.node.rank() else { continue };
        let fate = scene.fate(rank);
        let has_ended = fate.is_some_and(|fate| fate.end() == End::InOrder);
        let stand = scene.condition(rank).and_then(|c| c.stand.as_ref()).filter(|stand| stand.is_leaving());
        // Alive, and on its way out: its teardown waits for the others. One that failed is told of by how it failed.
        // Whoever has done all of its part waits in its teardown too: only records of calls tell that it is behind.
        let is_behind = !suspect.in_p2p && suspect.views.iter().any(|view| view.knows_ends());
        let lives = fate.is_none_or(|f| f.end() == End::Untold && f.life() == Life::Alive);
        let leaves = stand.filter(|_| is_behind && lives && scene.suspects().len() == 1);
        if !has_ended && leaves.is_none() {
            continue;
        }
        let place = leaves.and_then(|stand| stand.place()).or(suspect.last_place.as_ref());
        let how = if has_ended { "has exited normally" } else { "is on its way out" };
        findings.extend(
            drafting::from_suspect(
                scene,
                RULE.id,
                Cause::RankExitedEarly,
                suspect,
                place,
                format!(
                    "{} {how}; {} for it in {}",
                    drafting::rank(rank),
                    drafting::waiting(&suspect.victims),
                    suspect.awaited_in
                ),
            )
            .call(suspect.awaited_call.clone())
            .weight(Weight::Stated)
            .confidence(Confidence::Medium)
            .evidence(fate.filter(|_| has_ended).into_iter().flat_map(|fate| fate.evidence().iter().cloned()))
            .evidence(leaves.map(|stand| stand.evidence.clone()))
            .advise(
                Impact::Harmless,
                "let the ranks agree on stopping (all_reduce a flag) before any of them leaves the loop",
            )
            .build(),
        );
    }
    findings.extend(said_its_end(scene));
    Outcome::from_findings(findings)
}

/// The rank whose peers lost their connections to it, if its output ends in order.
fn said_its_end(scene: &Scene<'_>) -> Option<Finding> {
    let closed = scene.closed_connections()?;
    let rank = closed.peer?;
    let is_known = scene.suspects().iter().any(|s| s.node.rank() == Some(rank));
    if is_known || scene.fate(rank).is_some_and(|fate| fate.end() != End::Untold) {
        return None;
    }
    let ended = scene.case().observations.iter().find_map(|o| match &o.fact {
        Fact::Progress(progress) if scene.roster().speaker(o) == Some(rank) => progress.ended,
        _ => None,
    })?;
    let name = drafting::rank(rank);
    Draft::new(
        RULE.id,
        Cause::RankExitedEarly,
        format!("{name} ended in order while its peers still communicate"),
    )
    .weight(Weight::Derived)
    .confidence(Confidence::Medium)
    .at(closed.at_ns)
    .culprit(scene.roster().culprit_rank(rank))
    .cite(ended, SourceKind::PlainText, format!("{name} says that it is done"))
    .evidence(closed.evidence)
    .advise(
        Impact::Harmless,
        "let the ranks agree on stopping (all_reduce a flag) before any of them leaves the loop",
    )
    .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, NcclLog, Rank, WallTime};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn without(states: &str) -> StagedCase {
        let job = StagedCase::job(3).logs().dump(0, "ar:1 ar:9?").dump(1, "ar:1 ar:9?").ps(states);
        job.failed(0, -6, true).failed(1, -6, false)
    }

    #[test]
    fn gone_and_in_no_table() {
        without("S S -").concludes(&RULE, "rank-exited-early 2, high");
    }

    #[test]
    fn a_zombie_that_ended_with_0() {
        let hung = |states| StagedCase::job(3).logs().dump(0, "ar:1 ar:9?").dump(1, "ar:1 ar:9?").ps(states);
        hung("S S Z=0").concludes(&RULE, "rank-exited-early 2, high");
        hung("S S Z=1").silent(&RULE);
        hung("S S Z=-9").silent(&RULE);
        hung("S S Z").silent(&RULE);
    }

    #[test]
    fn it_destroyed_its_communicator() {
        let leaves = |log: &mut NcclLog, _| {
            for comm in &mut log.comms {
                comm.destroyed = comm.completed;
            }
        };
        let job = StagedCase::job(3).logs().change_log(leaves).dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]);
        job.concludes(&RULE, "rank-exited-early 2 at step:10, high");
    }

    #[test]
    fn in_its_teardown_while_others_wait() {
        let at = |function| {
            let frames =
                [("torch/distributed/distributed_c10d.py", 2319, function), ("/srv/train.py", 85, "main")];
            let usual = "ar:1*12 ar:9?";
            let odd = "ar:1*12";
            StagedCase::job(3).rings(&[usual, usual, odd]).stands(2, &frames)
        };
        at("destroy_process_group").concludes(&RULE, "rank-exited-early 2 at main:85, high");
        at("barrier").silent(&RULE);
    }

    #[test]
    fn it_closed_because_others_had_timed_out() {
        let at = |ns: i64| Some(WallTime { ns, error_ns: 0, has_year: true });
        // Rank 0 times out this much before rank 2 closes its communicators.
        let job = |before_s: i64| {
            let mut stage =
                StagedCase::job(3).rings(&["ar:1*12 ar:9?", "ar:1*12 ar:9?", "ar:1*12"]).ring_ended(2);
            let rings = stage.case.observations.iter().filter_map(|o| match &o.fact {
                Fact::Ring(ring) if o.who.rank == Some(Rank(2)) => Some(ring.taken_ns),
                _ => None,
            });
            let closed_ns = rings.max().expect("it has a ring");
            stage = stage.timed_out(0, "ar:9", 13, 13);
            for observation in &mut stage.case.observations {
                if matches!(observation.fact, Fact::Torch(_)) {
                    observation.at = at(closed_ns - before_s * 1_000_000_000);
                }
            }
            stage
        };
        job(-30).concludes(&RULE, "rank-exited-early 2, high");
        job(2).silent(&RULE);
    }

    #[test]
    fn killed_or_crashed_ranks_are_listed() {
        without("S S -").failed(2, -9, true).silent(&RULE);
        without("S S -").crashed(Some(2), "Segmentation fault", &[]).silent(&RULE);
    }

    #[test]
    fn stopped_or_silent_ranks_are_still_there() {
        without("S S T").silent(&RULE);
        without("S S S").silent(&RULE);
    }
}
