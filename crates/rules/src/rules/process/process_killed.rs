//! # What it shows
//! The launcher saw one rank end by SIGKILL, and nothing shows that memory ran out.
//!
//! # Why it happens
//! Something killed it: the scheduler, a health agent, an operator, or the kernel's OOM killer where its log is not in
//! the evidence.
//!
//! # Evidence
//! exit code -9 (or 137) in the launcher's table, first in time; no traceback, no crash report. The kernel log, if it
//! continues past that moment and shows no kill for lack of memory. If it ends before, it proves nothing, and the
//! finding is less certain.
//!
//! # What looks like it but is not
//! SIGTERM (-15) is what a launcher sends to the others afterwards. SIGKILL that the launcher sent itself
//! after a SIGTERM that was ignored. A memory cgroup that counts a kill (oom-killed).
//!
//! # What to do
//! Look in the kernel log for an OOM kill, then in the scheduler's log.
//!
//! # References
//! torch elastic error table; signal(7).

use ringleader_model::{Cause, Confidence, Evidence, Finding, Impact, SourceKind, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::kernel::Coverage;
use ringleader_correlate::process::fate::{End, Killer};
use ringleader_correlate::when::failure::{KillReport, Way, kill};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "process-killed",
    title: "a rank was killed from outside",
    since: "0.1",
    doc: include_str!("process_killed.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (rank, fate) in scene.fates().all() {
        let End::Killed { by: Killer::Outside, is_root } = fate.end() else { continue };
        let host = scene.roster().culprit_rank(rank).host;
        let kernel = scene.fates().killed_at(rank).and_then(|at| scene.kernel().coverage(host.as_ref(), at));
        let ends_before = kernel.and_then(|k| k.missing());
        let pid = drafting::pid_of(scene, rank);
        findings.extend(
            Draft::new(
                RULE.id,
                Cause::ProcessKilled,
                format!("{} was killed with SIGKILL from outside", drafting::rank(rank)),
            )
            .weight(Weight::Stated)
            .confidence(if is_root { Confidence::High } else { Confidence::Medium })
            .at_most(if ends_before.is_some() { Confidence::Medium } else { Confidence::High })
            .culprit(scene.roster().culprit_rank(rank))
            .evidence(fate.evidence().iter().cloned())
            .evidence(kernel.filter(Coverage::reaches_past).map(silence))
            .evidence(
                scene
                    .suspects()
                    .iter()
                    .filter(|s| s.node.rank() == Some(rank))
                    .flat_map(|s| s.evidence.iter().take(2).cloned()),
            )
            .advise_made(
                Impact::Harmless,
                ends_before.map_or_else(
                    || "check whether the kernel killed it for lack of memory".to_owned(),
                    |before| {
                        format!(
                            "the kernel log ends {before} before the kill: collect it again, and check whether the kernel killed it for lack of memory"
                        )
                    },
                ),
                Some(format!("dmesg -T | grep -iE 'out of memory|oom-kill|killed process {pid}'")),
            )
            .advise(
                Impact::Harmless,
                "check who sent the signal: the scheduler's log, a health agent, an operator's shell",
            )
            .build(),
        );
    }
    if findings.is_empty() {
        findings.extend(terminated(scene));
    }
    if findings.is_empty() && !scene.fates().has_escalated() {
        findings.extend(nameless(scene));
    }
    Outcome::from_findings(findings)
}

/// The first rank that ended did so by SIGTERM, and the launcher had no request to stop: the signal was for that rank.
fn terminated(scene: &Scene<'_>) -> Option<Finding> {
    if scene.failure().was_asked_to_stop() || scene.failure().has(Way::TimedOut) {
        return None;
    }
    let (rank, fate) = scene.fates().all().find(|(_, fate)| fate.was_terminated_first())?;
    Draft::new(
        RULE.id,
        Cause::ProcessKilled,
        format!("{} got SIGTERM before any other ended", drafting::rank(rank)),
    )
    .weight(Weight::Derived)
    .confidence(Confidence::Medium)
    .culprit(scene.roster().culprit_rank(rank))
    .evidence(fate.evidence().iter().cloned())
    .advise(
        Impact::Harmless,
        "check who sent the signal: the scheduler's log, a health agent, an operator's shell",
    )
    .build()
}

/// A launcher saw one of its ranks end by SIGKILL, and nothing shows which rank of the job that is: several have its
/// pid.
fn nameless(scene: &Scene<'_>) -> Option<Finding> {
    let exit = scene.statements().find(|s| {
        kill(s.event) == Some(KillReport::Line) && scene.roster().culprit(&s.observation.who).rank.is_none()
    })?;
    let who = &exit.observation.who;
    let local = who.local_rank.map_or_else(String::new, |l| format!(" (local rank {})", l.0));
    Draft::new(RULE.id, Cause::ProcessKilled, format!("a rank{local} was killed with SIGKILL from outside"))
        .weight(Weight::Stated)
        .confidence(Confidence::Medium)
        .culprit(scene.roster().culprit(who))
        .evidence([exit.evidence()])
        .advise(
            Impact::Harmless,
            "the launcher's log covers one node: the rank ran on that node; check there who sent the signal",
        )
        .advise_command(
            Impact::Harmless,
            "check whether the kernel killed it for lack of memory",
            "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'",
        )
        .build()
}

/// A kernel log that says nothing, as evidence that nothing was there to say.
fn silence(kernel: Coverage<'_>) -> Evidence {
    Evidence {
        cite: kernel.observation.cite,
        text: "the kernel log continues past that moment and shows no kill for lack of memory".to_owned(),
        kind: SourceKind::KernelLog,
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Pid, Rank, SourceKind, TorchEvent, WatchEvent, WatchedEnd, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn killed_first_of_all() {
        StagedCase::new()
            .failed(1, -9, true)
            .failed(0, -15, false)
            .concludes(&RULE, "process-killed 1, high");
        StagedCase::new().failed(1, 137, true).concludes(&RULE, "process-killed 1, high");
    }

    /// A watcher saw both ranks end, so many seconds apart, by these exit codes.
    fn watched(apart_s: i64, codes: [Option<i64>; 2]) -> StagedCase {
        let end = |rank: u32, at_s: i64| WatchedEnd {
            rank: Rank(rank),
            at_ns: at_s * 1_000_000_000,
            exit_code: codes[rank as usize],
        };
        let gone = WatchEvent::Gone(vec![end(0, 100 + apart_s), end(1, 100)], true);
        let stage = StagedCase::new().two_ranks();
        stage.push(SourceKind::Watch, Who::default(), Fact::Watch(gone))
    }

    #[test]
    fn a_watcher_saw_it_end_before_the_other() {
        watched(20, [None, Some(-9)]).concludes(&RULE, "process-killed 1, high");
    }

    #[test]
    fn all_ended_together_by_whoever_ended_the_job() {
        watched(1, [Some(-9), Some(-9)]).silent(&RULE);
        // The other had failed by then.
        watched(20, [Some(-9), Some(1)]).silent(&RULE);
        watched(20, [None, None]).silent(&RULE);
    }

    #[test]
    fn what_a_launcher_sends_afterwards() {
        StagedCase::new().failed(1, 1, true).failed(0, -15, false).silent(&RULE);
        let kill = TorchEvent::ClosingSignal { pid: Pid(100), signal: "SIGKILL".into() };
        StagedCase::new()
            .failed(1, 1, true)
            .torch(None, kill, "closing signal SIGKILL")
            .failed(0, -9, false)
            .silent(&RULE);
    }

    /// Rank 1 dies of SIGKILL 600 s after the job began; its host's kernel log ends so many seconds after the beginning.
    fn with_kernel_log(last_s: i64) -> StagedCase {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let exit = TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let stage =
            StagedCase::new().two_ranks().torch(Some(1), exit, "failed (exitcode: -9)").at_s(BEGAN_S + 600);
        stage.failed(1, -9, true).covers(BEGAN_S + last_s)
    }

    #[test]
    fn silence_counts_only_past_the_moment() {
        let past = with_kernel_log(900).finding(&RULE);
        assert!(past.evidence.iter().any(|e| e.text.contains("no kill for lack of memory")), "{past:#?}");
        assert_eq!(past.confidence, ringleader_model::Confidence::High);
        let short = with_kernel_log(60).finding(&RULE);
        assert_eq!(short.confidence, ringleader_model::Confidence::Medium);
        assert_eq!(short.evidence.len(), past.evidence.len() - 1);
        assert!(short.actions.iter().any(|a| a.text.contains("ends 9 minutes before")), "{short:#?}");
    }

    #[test]
    fn a_cgroup_that_counts_a_kill() {
        use ringleader_model::{MemoryGroup, SystemFact};
        let group = |path: &str, n| {
            let path = (!path.is_empty()).then(|| path.into());
            SystemFact::MemoryGroup(MemoryGroup { path, oom_kill: Some((5, n)), ..MemoryGroup::default() })
        };
        let killed = || StagedCase::new().two_ranks().failed(1, -9, true);
        killed().system("node0", group("/sys/fs/cgroup", 1)).silent(&RULE);
        // None was counted; of another service; of another host.
        let is_killed = "process-killed 1, high";
        killed().system("node0", group("", 0)).concludes(&RULE, is_killed);
        killed()
            .system("node0", group("/sys/fs/cgroup/system.slice/cron.service", 3))
            .concludes(&RULE, is_killed);
        killed().system("node9", group("", 1)).concludes(&RULE, is_killed);
    }

    #[test]
    fn one_of_several_with_the_same_number() {
        let gone = TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let stage = StagedCase::new()
            .process("node0", 7, Some(0))
            .process("node1", 7, Some(1))
            .torch(None, gone, "gone");
        let mut stage = stage;
        if let Some(last) = stage.case.observations.last_mut() {
            last.who.pid = Some(Pid(7));
        }
        stage.concludes(&RULE, "process-killed , medium");
    }

    #[test]
    fn killed_for_lack_of_memory_is_another_thing() {
        StagedCase::new().two_ranks().failed(1, -9, true).oom(101, "pt_main_thread").silent(&RULE);
        StagedCase::new()
            .two_ranks()
            .failed(1, -9, true)
            .oom(9_999, "java")
            .concludes(&RULE, "process-killed 1, high");
    }
}
