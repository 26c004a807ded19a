//! # What it shows
//! Two communicators are in use at once on the same ranks, from two threads of one process, and their calls meet in a
//! different order on different ranks: each waits for the other forever.
//!
//! # Why it happens
//! A second thread that calls collectives of its own (checkpoint, evaluation, prefetch, a metrics thread) beside the
//! training loop: nothing orders the two, so the order differs from rank to rank.
//!
//! # Evidence
//! A closed loop of waiting over two groups, and a rank in it with two threads inside collectives at the same
//! time.
//!
//! # What looks like it but is not
//! One thread that enters two groups in an order of its own is a deadlock-cycle. The watchdog and heartbeat threads of
//! torch call nothing.
//!
//! # What to do
//! Launch the collectives of all communicators from one thread, or in one order that all ranks share.
//!
//! # References
//! NCCL user guide, using multiple NCCL communicators concurrently.

use ringleader_model::{Cause, Evidence, Impact, Rank, RankSet, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::track::GroupRecorder;
use ringleader_correlate::track::{RankOrSource, node};
use ringleader_correlate::waits::graph::{Front, FrontKind, Waits};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "concurrent-communicators",
    title: "two communicators are used concurrently without a fixed order",
    since: "0.1",
    doc: include_str!("concurrent_communicators.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for waits in scene.waits().iter().filter(|w| w.view != GroupRecorder::Ras).take(1) {
        for cycle in &waits.cycles {
            let all: RankSet = cycle.iter().filter_map(|n| n.rank()).collect();
            let seen: Vec<(Rank, Evidence)> = all
                .ranks()
                .iter()
                .filter_map(|rank| Some((*rank, scene.condition(*rank)?.two_inside.clone()?)))
                .collect();
            if seen.is_empty() {
                continue;
            }
            let culprits = seen.iter().map(|(rank, _)| scene.roster().culprit_rank(*rank));
            findings.extend(
                Draft::new(
                    RULE.id,
                    Cause::ConcurrentCommunicators,
                    format!(
                        "two threads of {} call collectives concurrently, in no fixed order",
                        drafting::ranks(&all)
                    ),
                )
                .weight(Weight::Stated)
                .culprits(culprits)
                .victims(all)
                .evidence(seen.iter().take(4).map(|(_, e)| e.clone()))
                .evidence(records(scene, waits, cycle))
                .at(waits.fronts.iter().filter_map(|f| f.since_ns).min())
                .advise(
                    Impact::Harmless,
                    "call the collectives of all groups from one thread, or agree on one order on all ranks",
                )
                .build(),
            );
        }
    }
    Outcome::from_findings(findings)
}

/// The unfinished calls of the circle, one of each group.
fn records(scene: &Scene<'_>, waits: &Waits, cycle: &[RankOrSource]) -> Vec<Evidence> {
    let record = |front: &Front| {
        let FrontKind::Collective(seq) = front.what else { return None };
        let group = scene.ledger().groups().get(front.group)?;
        let waiter = front.waiting.iter().find(|m| node(group, **m).is_some_and(|n| cycle.contains(&n)))?;
        scene.proof().evidence_of(group.tracks.get(*waiter)?.as_ref()?, seq)
    };
    waits.fronts.iter().filter_map(record).take(4).collect()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const C10D: &str = "/opt/site-packages/torch/distributed/distributed_c10d.py";

    fn circle() -> StagedCase {
        let job = StagedCase::job(2).group("a", 0..2).group("b", 0..2).logs();
        job.dumps(&["a/ar:8@20? b/ar:9@30?", "b/ar:9@30? a/ar:8@20?"])
    }

    #[test]
    fn two_threads_inside_collectives() {
        let train = [(C10D, 2800, "all_reduce"), ("/srv/train.py", 20, "step")];
        let save = [(C10D, 4100, "barrier"), ("/srv/save.py", 30, "flush")];
        let job = circle().threads(0, &[&train, &save]);
        job.concludes(&RULE, "concurrent-communicators 0, high");
        // No circle: the two threads merely work side by side.
        let fine = StagedCase::job(2).logs().dumps(&["ar:8?", "ar:8?"]).threads(0, &[&train, &save]);
        fine.silent(&RULE);
    }

    #[test]
    fn one_thread_with_an_order_of_its_own() {
        let train = [(C10D, 2800, "all_reduce"), ("/srv/train.py", 20, "step")];
        let watchdog: [(&str, u32, &str); 1] = [("/opt/site-packages/torch/x.py", 1, "poll")];
        circle().threads(0, &[&train, &watchdog]).silent(&RULE);
        circle().silent(&RULE);
    }
}
