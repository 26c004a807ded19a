//! # What it shows
//! Every rank involved has entered a collective and waits for one that waits, through other groups, for it.
//!
//! # Why it happens
//! Two groups entered in opposite orders by different ranks, each call waited for before the next is made; or two ranks
//! that each receive before they send.
//!
//! # Evidence
//! The wait-for graph over all groups has a closed loop that no rank outside holds up. A loop of messages alone counts
//! where the job does not run and no rank of it is gone.
//!
//! # What looks like it but is not
//! Several groups that mismatch may be one chain of victims: only a closed loop is a deadlock.
//!
//! # What to do
//! Enter the groups in the same order everywhere.
//!
//! # References
//! NCCL user guide, using multiple communicators concurrently.

use ringleader_model::{Cause, Confidence, Evidence, Impact, RankSet, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::track::GroupRecorder;
use ringleader_correlate::track::{RankOrSource, node};
use ringleader_correlate::waits::graph::FrontKind;
use ringleader_correlate::waits::suspects;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "deadlock-cycle",
    title: "ranks wait for each other across process groups",
    since: "0.1",
    doc: include_str!("deadlock_cycle.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    // Counts alone (RAS) cannot tell a loop from a chain: the recorder must show it, or NCCL's own lines.
    for waits in scene.waits().iter().filter(|w| w.view != GroupRecorder::Ras).take(1) {
        for cycle in &waits.cycles {
            let broken = suspects::broken_pair(scene.ledger(), waits, cycle).is_some()
                || suspects::went_on(scene.ledger(), waits, cycle).is_some();
            // Two threads of one process without a common order: a cause of its own.
            let threads = cycle
                .iter()
                .filter_map(|n| scene.condition(n.rank()?))
                .any(|condition| condition.two_inside.is_some());
            if broken || threads || cycle.iter().any(|n| scene.has_parted(*n)) {
                continue;
            }
            let fronts: Vec<_> = waits
                .fronts
                .iter()
                .filter_map(|f| Some((f, scene.ledger().groups().get(f.group)?)))
                .filter(|(f, g)| f.waiting.iter().any(|m| node(g, *m).is_some_and(|n| cycle.contains(&n))))
                .collect();
            // Whoever goes against the order of most is named; between equals, all are.
            let sides: Vec<Vec<RankOrSource>> = fronts
                .iter()
                .map(|(f, g)| {
                    f.waiting.iter().filter_map(|m| node(g, *m)).filter(|n| cycle.contains(n)).collect()
                })
                .collect();
            let fewest = sides.iter().map(Vec::len).min().unwrap_or(0);
            let smallest: Vec<&Vec<RankOrSource>> = sides.iter().filter(|s| s.len() == fewest).collect();
            let named: Vec<RankOrSource> = match smallest.as_slice() {
                [one] if sides.len() > 1 => (*one).clone(),
                _ => cycle.clone(),
            };
            let evidence = fronts.iter().filter_map(|(f, g)| {
                let track = f.waiting.first().and_then(|m| g.tracks.get(*m)?.as_ref())?;
                match f.what {
                    FrontKind::Collective(seq) => scene.proof().evidence_of(track, seq),
                    FrontKind::P2p { from, to, .. } => {
                        let mut states = scene.last_states().into_iter();
                        let last =
                            states.find(|s| s.rank.is_some() && s.rank == track.rank).map(|s| s.evidence);
                        let what = format!("a message from member {from} to {to} of {}", g.name);
                        last.or(Some(Evidence { cite: track.cite, text: what, kind: track.kind }))
                    }
                    FrontKind::Count(..) => None,
                }
            });
            let are_messages = fronts.iter().all(|(f, _)| matches!(f.what, FrontKind::P2p { .. }));
            // Between messages that are under way the records of one moment show a loop as well.
            let is_moment =
                scene.ledger().may_run() || scene.fates().all().any(|(_, fate)| fate.left_a_ring().is_some());
            if are_messages && is_moment {
                continue;
            }
            let place = fronts.iter().find_map(|(f, g)| {
                let at =
                    f.waiting.iter().copied().find(|m| node(g, *m).is_some_and(|n| named.contains(&n)))?;
                let FrontKind::Collective(seq) = f.what else { return None };
                scene.proof().place_near(g.tracks.get(at)?.as_ref()?, &g.name, seq)
            });
            let mut groups: Vec<&str> = Vec::new();
            for (_, group) in &fronts {
                if !groups.contains(&group.name.as_str()) {
                    groups.push(&group.name);
                }
            }
            let all: RankSet = cycle.iter().filter_map(|n| n.rank()).collect();
            findings.extend(
                Draft::new(
                    RULE.id,
                    Cause::DeadlockCycle,
                    format!(
                        "{} wait for each other in a cycle through {}",
                        drafting::ranks(&all),
                        groups.join(" and ")
                    ),
                )
                .weight(Weight::Stated)
                .confidence(if waits.view.knows_ends() { Confidence::High } else { Confidence::Low })
                .culprits(drafting::culprits(scene, &named, place.as_ref()))
                .victims(all)
                .evidence(evidence)
                .at(fronts.iter().filter_map(|(f, _)| f.since_ns).min())
                .advise(
                    Impact::Harmless,
                    if are_messages {
                        "each waits for a message that the other sends only later: let one side of each pair send first, or give all messages of a step to one batch_isend_irecv".to_owned()
                    } else {
                        format!(
                            "enter the groups in the same order on all ranks; {} uses the reverse order",
                            drafting::who(&named)
                        )
                    },
                )
                .build(),
            );
        }
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn two_groups() -> StagedCase {
        StagedCase::job(3).group("a", 0..2).group("b", 0..2).group("c", 1..3)
    }

    #[test]
    fn each_waits_for_the_other() {
        two_groups()
            .dumps(&["a/ar:8@20?", "b/ar:8@30?", ""])
            .concludes(&RULE, "deadlock-cycle 0-1 at step:20, high");
    }

    #[test]
    fn both_receive_first() {
        let steps = |step: &str, last: &str| format!("{}{last}", step.repeat(12));
        let first = steps("send>1:8 recv<1:8 ", "recv<1:8?");
        let second = steps("recv<0:8 send>0:8 ", "recv<0:8?");
        // Their sends are queued behind what they receive.
        let (first, second) = (first + " send>1:8?", second + " send>0:8?");
        let job = StagedCase::job(2).rings(&[&first, &second]);
        job.expect(&RULE, &["deadlock-cycle 0-1"]);
        assert!(job.finding(&RULE).actions[0].text.contains("send first"));
    }

    /// The watchdogs' lines, which name no peers, do not hide what the rings show.
    #[test]
    fn both_receive_first_in_the_first_step() {
        let job = || StagedCase::job(2).rings(&["recv<1:8? send>1:8?", "recv<0:8? send>0:8?"]);
        let out = |stage: StagedCase, rank| stage.timed_out(rank, "recv<1:8", 1, 1);
        out(out(job(), 0), 1).expect(&RULE, &["deadlock-cycle 0-1"]);
    }

    /// Records of one moment show messages that wait for each other, too.
    #[test]
    fn messages_that_are_under_way() {
        let steps = |step: &str, last: &str| format!("{}{last}", step.repeat(12));
        let first = steps("send>1:8 recv<1:8 ", "recv<1:8? send>1:8?");
        let second = steps("recv<0:8 send>0:8 ", "recv<0:8? send>0:8?");
        let job = || StagedCase::job(2).rings(&[&first, &second]);
        job().ring_gone(1).silent(&RULE);
    }

    #[test]
    fn two_threads_of_one_process() {
        let c10d = "/opt/site-packages/torch/distributed/distributed_c10d.py";
        let train = [(c10d, 2800, "all_reduce"), ("/srv/train.py", 20, "step")];
        let save = [(c10d, 4100, "barrier"), ("/srv/save.py", 30, "flush")];
        let job = || two_groups().logs().dumps(&["a/ar:8@20?", "b/ar:8@30?", ""]);
        job().threads(0, &[&train, &save]).silent(&RULE);
        job().threads(0, &[&train]).expect(&RULE, &["deadlock-cycle 0-1"]);
    }

    #[test]
    fn a_chain_of_victims_is_no_circle() {
        two_groups().dumps(&["a/ar:8?", "c/ar:8?", ""]).silent(&RULE);
        // All in the same order: all ranks wait for the GPU.
        two_groups().dumps(&["a/ar:8? b/ar:8?", "a/ar:8? b/ar:8?", ""]).silent(&RULE);
    }
}
