//! # What it shows
//! The job waits at its start for a rank that never came.
//!
//! # Why it happens
//! A node that was not started, a launcher with the wrong number of nodes, a process that died while
//! importing, a rank that cannot reach the master.
//!
//! # Evidence
//! The store's count of clients (n of m joined), keys that no rank set, communicators that some ranks began and none
//! finished; the absent ranks follow from the ones that appear.
//!
//! A rank that is there, and was to give a communicator its id, came late instead: where all others waited for it and its launcher
//! ended it, the cause is stuck-outside-collective.
//!
//! # What looks like it but is not
//! The rank that the others name (rank 0, which was to set the key) is healthy: it waits for the missing one
//! itself. A rank that joined and failed later.
//!
//! # What to do
//! Look at the missing rank's own node: was it started, did it fail while starting, can it reach the master's
//! address?
//!
//! # References
//! PyTorch docs, distributed rendezvous and TCPStore.

use std::collections::BTreeSet;

use ringleader_correlate::process::fate::End;
use ringleader_correlate::said::scheduler;
use ringleader_model::{
    Cause, Confidence, Culprit, Evidence, Impact, Rank, RankSet, SchedulerKind, SourceKind, StoreEvent,
    SystemFact, TorchEvent, Weight, plain_word,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::track::GroupRecorder;
use ringleader_correlate::who::tools::shown;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "missing-rank",
    title: "a rank or node never joined",
    since: "0.1",
    doc: include_str!("missing_rank.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut evidence = Vec::new();
    let mut missing_count = None;
    let mut at = None;
    let mut setters: Vec<Rank> = Vec::new();
    let mut waited: BTreeSet<Rank> = BTreeSet::new();
    for statement in scene.statements() {
        match statement.event {
            TorchEvent::Store(StoreEvent::ClientsMissing { joined, expected }) => {
                missing_count = Some(expected.saturating_sub(*joined));
                evidence.push(statement.evidence());
                at = at.or(statement.at_ns());
            }
            TorchEvent::Store(StoreEvent::WaitTimeout { setter: Some(setter), .. }) => {
                setters.push(*setter);
                waited.extend(scene.roster().speaker(statement.observation));
                evidence.push(statement.evidence());
            }
            _ => {}
        }
    }
    if evidence.is_empty() {
        return match never_placed(scene) {
            Some(draft) => Outcome::from_findings(draft.build().into_iter().collect()),
            None => half_made_communicator(scene),
        };
    }
    // A rank that printed something, was seen, or has a stack is there. The store is served by rank 0 unless a launcher
    // does.
    let unseen = scene.roster().unseen_ranks();
    let unseen: Vec<Rank> = match missing_count {
        Some(n) if unseen.len() > n as usize => unseen.into_iter().filter(|r| r.0 != 0).collect(),
        _ => unseen,
    };
    // Without a count there is only silence: the rank that was to set the key waits like the others.
    let unseen: Vec<Rank> = match missing_count {
        None => unseen.into_iter().filter(|r| !setters.contains(r)).collect(),
        Some(_) => unseen,
    };
    if missing_count.is_none()
        && unseen.is_empty()
        && let Some(draft) = came_late(scene, &setters, &waited)
    {
        return Outcome::from_findings(draft.evidence(evidence).at(at).build().into_iter().collect());
    }
    let exact = missing_count.is_none_or(|n| n as usize == unseen.len());
    let named: RankSet = if exact { unseen.iter().copied().collect() } else { RankSet::default() };
    let title = match (named.len(), missing_count) {
        (0, Some(n)) => format!("{n} rank{} never joined", if n == 1 { "" } else { "s" }),
        (0, None) => "a rank never joined".to_owned(),
        _ => format!("{} never joined; the others wait for it at the start", drafting::ranks(&named)),
    };
    let draft = Draft::new(RULE.id, Cause::MissingRank, title)
        .weight(Weight::Stated)
        .confidence(if missing_count.is_some() { Confidence::High } else { Confidence::Medium })
        .culprits(named.ranks().iter().map(|r| scene.roster().culprit_rank(*r)))
        .victims(
            scene.roster().members.iter().filter_map(|m| m.rank).filter(|r| !named.contains(*r)).collect(),
        )
        .evidence(evidence)
        .at(at)
        .advise(
            Impact::Harmless,
            "look at the missing rank's own output: was it started, did it fail while importing?",
        )
        .advise_command(
            Impact::Harmless,
            "from its node, see whether the master answers",
            "nc -zv $MASTER_ADDR $MASTER_PORT",
        );
    Outcome::from_findings(draft.build().into_iter().collect())
}

/// The one rank that was to give a communicator its id is there, and did not give it: it was elsewhere.
fn came_late(scene: &Scene<'_>, setters: &[Rank], waited: &BTreeSet<Rank>) -> Option<Draft> {
    let setter = *setters.first()?;
    let is_one = setters.iter().all(|other| *other == setter) && !waited.is_empty();
    // It lived until its launcher ended it. One that lives still may wait for another rank itself.
    let was_there = scene.fate(setter).is_some_and(|fate| fate.end() == End::Terminated);
    let raised = scene.claims().own_exceptions().iter().any(|own| own.observation.who.rank == Some(setter));
    // Where others are silent, too, one of them may be what it waits for itself.
    let is_all = scene.roster().world_size.is_some_and(|size| size as usize == waited.len() + 1);
    if !is_one || !is_all || waited.contains(&setter) || !was_there || raised {
        return None;
    }
    let others: RankSet = waited.iter().copied().collect();
    let title = format!(
        "rank {} did not come to the first call of its group; {} waited for it until a timeout",
        setter.0,
        drafting::ranks(&others)
    );
    let draft = Draft::new(RULE.id, Cause::StuckOutsideCollective, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprit(scene.roster().culprit_rank(setter))
        .victims(others)
        .advise(Impact::Harmless, "look at what that rank did meanwhile: its stack, its last lines");
    Some(draft)
}

/// A pod or job that found no place, while the others could not meet. Pods of one job share the stem of their names:
/// `worker-1` has no place, and the others ask for `worker-0`.
fn never_placed(scene: &Scene<'_>) -> Option<Draft> {
    let waits = scene.statements().find_map(|s| match s.event {
        TorchEvent::Store(event) => Some((s, event.unreached()?)),
        _ => None,
    });
    let (waits, address) = waits?;
    let hosts = scene.hosts();
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let (observation, pod) = scene.system().find_map(|(o, fact)| {
        let SystemFact::Scheduler(event) = fact else { return None };
        let pod = scheduler::pod(event);
        if event.kind != SchedulerKind::Unschedulable || pod.is_empty() {
            return None;
        }
        let stem = stem(pod);
        let is_ours = stem.len() > 2
            && stem != pod
            && (address.contains(&stem) || hosts.iter().any(|h| h.starts_with(&stem)));
        is_ours.then(|| (o, pod.to_owned()))
    })?;
    let title = format!("{pod} was never scheduled on a node; the others could not start without it");
    let draft = Draft::new(RULE.id, Cause::MissingRank, title)
        .weight(Weight::Derived)
        // The names agree; that it is of this job is not stated.
        .at_most(Confidence::Medium)
        .culprit(Culprit { host: Some(pod.as_str().into()), ..Culprit::default() })
        .evidence([shown(observation, None, SourceKind::Scheduler, ""), waits.evidence()])
        .advise_made(
            Impact::Harmless,
            "check what it waits for: GPUs, memory, a node whose taints it tolerates",
            plain_word(&pod).map(|pod| {
                format!("kubectl describe pod {pod}; kubectl get events --sort-by=.lastTimestamp")
            }),
        )
        .advise(Impact::Harmless, "schedule all pods of a job at once (gang scheduling), or ask for fewer");
    Some(draft)
}

/// NCCL logs alone: most ranks began a communicator, none completed it, and some never began.
fn half_made_communicator(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for group in scene.ledger().groups().iter().filter(|g| g.view == GroupRecorder::Nccl && g.is_world) {
        let begun: Vec<usize> =
            (0..group.tracks.len()).filter(|m| group.tracks.get(*m).is_some_and(Option::is_some)).collect();
        let absent: RankSet =
            (0..group.tracks.len()).filter(|m| !begun.contains(m)).filter_map(|m| group.rank(m)).collect();
        let completed = scene.nccl_logs().any(|(_, log)| log.comms.iter().any(|c| c.completed.is_some()));
        if completed || absent.is_empty() || begun.len() * 2 <= group.tracks.len() || begun.len() < 2 {
            continue;
        }
        let seen = begun.iter().filter_map(|m| group.tracks.get(*m)?.as_ref()).take(3).map(|t| Evidence {
            cite: t.cite,
            text: format!(
                "{} began {} and never completed it",
                t.rank.map_or_else(|| "a rank".into(), |r| format!("rank {}", r.0)),
                group.name
            ),
            kind: SourceKind::NcclLog,
        });
        findings.extend(
            Draft::new(
                RULE.id,
                Cause::MissingRank,
                format!("{} never began the communicator that the others wait in", drafting::ranks(&absent)),
            )
            .weight(Weight::Derived)
            .confidence(Confidence::Low)
            .culprits(absent.ranks().iter().map(|r| scene.roster().culprit_rank(*r)))
            .evidence(seen)
            .advise(Impact::Harmless, "look at the missing rank's own output: was it started?")
            .build(),
        );
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, Rank, Scheduler, SchedulerEvent, SchedulerKind, StoreEvent};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn waits(stage: StagedCase, rank: u32) -> StagedCase {
        stage.store(Some(rank), StoreEvent::ClientsMissing { joined: 3, expected: 4 }, "3/4 clients joined")
    }

    fn no_key(stage: StagedCase, rank: u32) -> StagedCase {
        let event = StoreEvent::WaitTimeout { keys: "/default_pg/0//cuda//0".into(), setter: Some(Rank(0)) };
        stage.store(Some(rank), event, "wait timeout after 300000ms, keys: /default_pg/0//cuda//0")
    }

    #[test]
    fn the_one_who_never_spoke() {
        [0, 1, 3].into_iter().fold(StagedCase::new(), waits).concludes(&RULE, "missing-rank 2, high");
    }

    #[test]
    fn too_few_voices_name_nobody() {
        [1, 3].into_iter().fold(StagedCase::new(), waits).expect(&RULE, &["missing-rank 2"]);
        waits(StagedCase::new(), 0).expect(&RULE, &["missing-rank"]);
    }

    #[test]
    fn the_setter_that_is_named_waits_too() {
        [1, 3].into_iter().fold(StagedCase::new(), no_key).concludes(&RULE, "missing-rank 2, medium");
    }

    #[test]
    fn the_one_that_was_to_give_the_id_was_elsewhere() {
        let job = |n| StagedCase::job(n).logs().failed(0, -15, false);
        no_key(job(2), 1).concludes(&RULE, "stuck-outside-collective 0, medium");
        [1, 2].into_iter().fold(job(3), no_key).concludes(&RULE, "stuck-outside-collective 0, medium");
        // Rank 2 is silent, too: the others may wait for it.
        assert!(no_key(job(3), 1).findings(&RULE).iter().all(|f| f.cause == Cause::MissingRank));
        // It failed by itself.
        assert!(
            no_key(StagedCase::job(2).logs(), 1)
                .failed(0, 1, true)
                .findings(&RULE)
                .iter()
                .all(|f| f.cause == Cause::MissingRank)
        );
    }

    #[test]
    fn a_communicator_that_only_some_began() {
        let begun =
            |stage: StagedCase, rank: u32| stage.process("node1", 100 + rank, None).comm(rank, 4, 1, false);
        [0, 1, 3].into_iter().fold(StagedCase::new(), begun).concludes(&RULE, "missing-rank 2, low");
    }

    #[test]
    fn a_pod_without_a_place() {
        let job = |pod: &str, kind| {
            let timeout =
                StoreEvent::ConnectTimeout { address: "worker-0:29500".into(), text: "timed out".into() };
            StagedCase::new().store(None, timeout, "The client socket has timed out").scheduled(
                SchedulerEvent {
                    scheduler: Scheduler::Kubernetes,
                    kind,
                    subject: pod.into(),
                    ..SchedulerEvent::default()
                },
            )
        };
        job("pod/worker-1", SchedulerKind::Unschedulable).concludes(&RULE, "missing-rank , medium");
        // Another one's pod; one that runs.
        job("pod/notebook-7", SchedulerKind::Unschedulable).silent(&RULE);
        job("pod/worker-1", SchedulerKind::Running).silent(&RULE);
    }

    #[test]
    fn joined_and_failed_later() {
        StagedCase::job(4).logs().failed(2, 1, true).silent(&RULE);
    }
}
