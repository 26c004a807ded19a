//! # What it shows
//! Some rank is gone or silent: its peers lost their connection to it or wait for it, and the evidence holds
//! nothing of its own.
//!
//! # Why it happens
//! It was killed, crashed, or its node left; its own output is not in the evidence.
//!
//! # Evidence
//! Connection closed by remote peer; a launcher that failed without a table; a rank that left no record while
//! all others wait for it.
//!
//! # What looks like it but is not
//! The reporter of a closed connection is a victim: it names who was asked, not who failed. Connections that
//! close while a job ends are ordinary.
//!
//! # What to do
//! Get the silent rank's own output, its node's kernel log, and the scheduler's records of it.
//!
//! # References
//! NCCL user guide, troubleshooting; ncclRemoteError.

use std::collections::BTreeSet;

use ringleader_knowledge::message::{About, MessageRow, Role};
use ringleader_model::{Cause, Confidence, Evidence, Finding, Impact, Rank, RankSet, TorchEvent, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::Fate;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "peer-process-died",
    title: "a rank is gone and the evidence does not show why",
    since: "0.1",
    doc: include_str!("peer_process_died.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    let mut named = silent_ranks(scene);
    named.extend(gone_within(scene));
    let closed = closed_connections(scene);
    // That some peer closed its connection is evidence for the one that is seen to be gone.
    let one = named.iter_mut().find(|f| f.confidence > Confidence::Low);
    match (closed, one) {
        (Some(closed), Some(gone)) if closed.culprits.is_empty() => {
            gone.confidence = gone.confidence.max(closed.confidence);
            gone.evidence.extend(closed.evidence);
            gone.at_ns = gone.at_ns.or(closed.at_ns);
        }
        (closed, _) => findings.extend(closed),
    }
    findings.extend(named);
    findings.extend(bare_launcher_failure(scene));
    Outcome::from_findings(findings)
}

/// Victims that say whose connection closed.
fn closed_connections(scene: &Scene<'_>) -> Option<Finding> {
    let closed = scene.closed_connections()?;
    Draft::new(RULE.id, Cause::PeerProcessDied, "a peer closed its connection: that rank is gone")
        .weight(Weight::Symptom)
        .confidence(Confidence::Medium)
        .at(closed.at_ns)
        .culprits(closed.peer.map(|rank| scene.roster().culprit_rank(rank)))
        .evidence(closed.evidence)
        .advise(Impact::Harmless, "look at the rank that closed the connection: its own output, its node's kernel log, the scheduler's records")
        .build()
}

/// Ranks that say themselves what they failed of.
fn spoke(scene: &Scene<'_>) -> BTreeSet<Rank> {
    let names = |row: MessageRow| {
        row.about() == About::Speaker && matches!(row.role(), Role::States | Role::Suggests)
    };
    let stated = scene.stated().all().iter();
    stated
        .filter(|stated| stated.row().is_some_and(names) && !scene.course().was_outlived(stated))
        .flat_map(|stated| stated.culprits(scene.roster()))
        .filter_map(|culprit| culprit.rank)
        .collect()
}

/// Ranks whose peers wait for them and that are gone.
fn silent_ranks(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let spoke = if scene.suspects().is_empty() { BTreeSet::new() } else { spoke(scene) };
    for suspect in scene.suspects() {
        let Some(rank) = suspect.node.rank() else { continue };
        let fate = scene.fate(rank);
        let is_seen_gone = fate.is_some_and(Fate::is_gone);
        let gone = is_seen_gone || fate.is_some_and(Fate::is_cut_off);
        // It lived until its launcher ended it, since others had timed out waiting for it.
        if scene.fates().lived_while_others_waited(rank) {
            continue;
        }
        let silent = suspect.weak && scene.fates().is_silent(rank);
        if !gone && (!silent || scene.fates().is_unlisted(rank)) {
            continue;
        }
        // The silence of one rank is significant; of several, their files may be missing.
        if !gone && scene.suspects().iter().filter(|s| s.weak).count() > 1 {
            continue;
        }
        // RAS calls exited, stopped and cut-off processes all the same.
        let how = match (is_seen_gone, gone) {
            (true, _) => left(fate),
            (false, true) => "does not answer RAS: it has exited, is stopped or is cut off".to_owned(),
            (false, false) => "left no record".to_owned(),
        };
        let most = match is_seen_gone {
            // It says itself what it failed of.
            _ if spoke.contains(&rank) => Confidence::Low,
            true => Confidence::High,
            false => Confidence::Medium,
        };
        findings.extend(
            drafting::from_suspect(
                scene,
                RULE.id,
                Cause::PeerProcessDied,
                suspect,
                None,
                format!(
                    "{} {how}; {} for it in {}",
                    drafting::rank(rank),
                    drafting::waiting(&suspect.victims),
                    suspect.awaited_in
                ),
            )
            .call(suspect.awaited_call.clone())
            .at_most(most)
            .weight(Weight::Symptom)
            .confidence(if gone { Confidence::Medium } else { Confidence::Low })
            .evidence(fate.into_iter().flat_map(Fate::departure).cloned())
            .evidence(exit(fate))
            .advise_command(
                Impact::Harmless,
                "check whether it still runs, and in which state",
                "ps -eo pid,ppid,stat,wchan:32,etime,args",
            )
            .build(),
        );
    }
    findings
}

/// Ranks that all waiting ones have met in their operation, and that are gone since: nobody waits for them by count.
fn gone_within(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (rank, fate) in scene.fates().all() {
        let Some(gone) = fate.left_a_ring() else { continue };
        if scene.suspects().iter().any(|s| s.node.rank() == Some(rank)) {
            continue;
        }
        let others: RankSet =
            scene.roster().members.iter().filter_map(|m| m.rank).filter(|r| *r != rank).collect();
        findings.extend(
            Draft::new(
                RULE.id,
                Cause::PeerProcessDied,
                format!("{} {}; only its ring remains", drafting::rank(rank), left(Some(fate))),
            )
            .weight(Weight::Symptom)
            .confidence(Confidence::Medium)
            .culprit(scene.roster().culprit_rank(rank))
            .victims(others)
            .evidence([gone.clone()])
            .evidence(exit(Some(fate)))
            .evidence(scene.last_states().into_iter().filter(|s| s.rank == Some(rank)).map(|s| s.evidence))
            .advise_made(
                Impact::Harmless,
                "check how it ended: its own output, the scheduler's records, the kernel log",
                Some(format!("dmesg -T | grep -w {}", drafting::pid_of(scene, rank))),
            )
            .build(),
        );
    }
    findings
}

/// How a rank that is gone left, as far as it is known.
fn left(fate: Option<&Fate>) -> String {
    fate.and_then(Fate::exited)
        .map_or_else(|| "is gone".to_owned(), |exit| format!("ended by itself with exit code {}", exit.code))
}

/// The line that states its exit code.
fn exit(fate: Option<&Fate>) -> Option<Evidence> {
    fate.and_then(Fate::exited).map(|exit| exit.evidence.clone())
}

/// `ChildFailedError` without a table: some rank failed; which one is not known.
fn bare_launcher_failure(scene: &Scene<'_>) -> Option<Finding> {
    if scene.conditions().has_failure_table() {
        return None;
    }
    let statement = scene.statements().find(|s| matches!(s.event, TorchEvent::LauncherFailed { .. }))?;
    let any_exception = scene.statements().any(|s| matches!(s.event, TorchEvent::Exception(_)));
    let title = if any_exception {
        "the launcher reports that a rank failed; no exception in the evidence is certain to be its own"
    } else {
        "the launcher reports that a rank failed; that rank's own output is missing"
    };
    Draft::new(RULE.id, Cause::PeerProcessDied, title)
        .weight(Weight::Symptom)
        .confidence(Confidence::Low)
        .evidence([statement.evidence()])
        .advise_command(
            Impact::Harmless,
            "keep every rank's output and its error file; decorate main with torch.distributed.elastic.multiprocessing.errors.record",
            "torchrun --log-dir logs --redirects 3 --tee 3 …",
        )
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{TorchEvent, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const CLOSED_BY_1: &str = "socketPollConnect: Connection closed by remote peer 10.0.0.2<4711>";

    fn two_nodes() -> StagedCase {
        StagedCase::job(2).log(0, "node1", "ar:1").log(1, "node2", "ar:1")
    }

    #[test]
    fn the_reporter_is_a_victim() {
        two_nodes().nccl_raised(Some(0), CLOSED_BY_1).concludes(&RULE, "peer-process-died 1, medium");
    }

    #[test]
    fn the_one_that_is_gone_closed_it() {
        let job = StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12", "ar:9*12 ar:9?"]).ring_gone(1);
        let told = job.nccl_raised(Some(0), "socketPollConnect: Connection closed by remote peer vm<4711>");
        told.expect(&RULE, &["peer-process-died 1"]);
        let verdict = crate::diagnose(&told.case);
        assert_eq!(verdict.culprits.first().and_then(|c| c.rank), Some(ringleader_model::Rank(1)));
    }

    #[test]
    fn a_worker_that_was_killed_explains_the_closed_connection() {
        let killed = "DataLoader worker (pid 4711) is killed by signal: Killed.";
        let job =
            two_nodes().nccl_raised(Some(0), "socketPollConnect: Connection closed by remote peer vm<4711>");
        let verdict = crate::diagnose(&job.case);
        assert_eq!(verdict.cause, ringleader_model::Cause::PeerProcessDied);
        let verdict = crate::diagnose(&job.raised(Some(1), "RuntimeError", killed, &[]).case);
        assert_ne!(verdict.cause, ringleader_model::Cause::PeerProcessDied);
        assert_eq!(verdict.culprits.first().and_then(|c| c.rank), Some(ringleader_model::Rank(1)));
    }

    #[test]
    fn a_rank_that_is_gone_and_said_why() {
        let gone = || StagedCase::job(2).rings(&["ar:9*12", "ar:9*12 ar:9?"]).ring_gone(0);
        gone().concludes(&RULE, "peer-process-died 0, medium");
        let full = "OSError: [Errno 28] No space left on device: '/ckpt/60.ckpt'";
        let spoke = gone().says(Who::rank(0), full);
        assert_eq!(crate::diagnose(&spoke.case).cause, ringleader_model::Cause::StorageFailure);
        spoke.concludes(&RULE, "peer-process-died 0, low");
        // What the other one said is no word of it.
        gone().says(Who::rank(1), full).concludes(&RULE, "peer-process-died 0, medium");
    }

    #[test]
    fn connections_that_close_at_the_end() {
        two_nodes().info(CLOSED_BY_1).silent(&RULE);
    }

    #[test]
    fn a_rank_without_any_trace() {
        StagedCase::job(3)
            .logs()
            .dump(0, "ar:1 ar:9?")
            .dump(1, "ar:1 ar:9?")
            .ps("S S -")
            .concludes(&RULE, "peer-process-died 2, high");
        // Its file may just be lost.
        StagedCase::job(3)
            .dump(0, "ar:1 ar:9?")
            .dump(1, "ar:1 ar:9?")
            .concludes(&RULE, "peer-process-died 2, low");
    }

    #[test]
    fn a_zombie_is_gone() {
        let job = StagedCase::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]);
        job.ps("S S Z").concludes(&RULE, "peer-process-died 2, high");
    }

    #[test]
    fn a_launcher_without_a_table() {
        let failed =
            || StagedCase::new().torch(None, TorchEvent::LauncherFailed { script: None }, "train.py FAILED");
        failed().concludes(&RULE, "peer-process-died , low");
        failed().failed(1, 1, true).silent(&RULE);
        let title = |stage: StagedCase| stage.finding(&RULE).title;
        assert!(title(failed()).contains("own output is missing"));
        // Somebody's traceback was read: nothing is missing for sure.
        assert!(!title(failed().raised(None, "ValueError", "x", &[])).contains("missing"));
    }

    #[test]
    fn one_that_speaks_is_not_gone() {
        let job = StagedCase::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]);
        job.ps("S S S").silent(&RULE);
    }
}
