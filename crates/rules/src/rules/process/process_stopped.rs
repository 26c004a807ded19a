//! # What it shows
//! The process of one rank is in state T: it executes nothing, and its peers wait.
//!
//! # Why it happens
//! SIGSTOP or SIGTSTP, a debugger that is attached, a frozen cgroup (checkpointing, a suspended container).
//!
//! # Evidence
//! A process list with state T; stack tools that refuse a stopped process; no dump from it, since its
//! watchdog is stopped too; RAS without an answer.
//!
//! # What looks like it but is not
//! State D (uninterruptible: storage or driver). A process that is absent from the list has exited.
//!
//! # What to do
//! Find what stopped it, then continue it, or restart the job.
//!
//! # References
//! proc(5), signal(7).

use ringleader_model::{Cause, Confidence, Impact, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::{Fate, Life};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "process-stopped",
    title: "a rank is stopped",
    since: "0.1",
    doc: include_str!("process_stopped.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (rank, condition) in scene.conditions().all() {
        if scene.fate(rank).map(Fate::life) != Some(Life::Stopped) {
            continue;
        }
        let suspect = scene.suspects().iter().find(|s| s.node.rank() == Some(rank));
        let place = condition.stand.as_ref().and_then(|s| s.place());
        let title = format!(
            "{} is stopped (state T){}{}",
            drafting::rank(rank),
            condition.wchan.as_ref().map_or_else(String::new, |w| format!(" in {w}")),
            suspect.map_or_else(String::new, |s| format!("; {} for it", drafting::waiting(&s.victims)))
        );
        let mut draft = Draft::new(RULE.id, Cause::ProcessStopped, title)
            .weight(Weight::Stated)
            .confidence(if suspect.is_some() { Confidence::High } else { Confidence::Medium })
            .culprits(drafting::culprits(
                scene,
                &[ringleader_correlate::track::RankOrSource::Rank(rank)],
                place,
            ))
            .evidence(condition.state.iter().map(|(_, seen)| seen.clone()))
            .evidence(condition.stand_failure.iter().map(|(_, e)| e.clone()))
            .evidence(condition.stand.iter().map(|s| s.evidence.clone()));
        if let Some(suspect) = suspect {
            draft = draft
                .victims(suspect.victims.clone())
                .evidence(suspect.evidence.iter().take(3).cloned())
                .at(suspect.since_ns);
        }
        let pid = drafting::pid_of(scene, rank);
        let draft = draft
            .advise_made(
                Impact::Harmless,
                "check who stopped it: a debugger, job control, a frozen cgroup",
                Some(format!("grep -E 'State|TracerPid' /proc/{pid}/status")),
            )
            .advise_made(
                Impact::Disruptive,
                "resume it; if a watchdog has already fired, the job ends anyway",
                Some(format!("kill -CONT {pid}")),
            );
        findings.extend(draft.build());
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn waiting() -> StagedCase {
        StagedCase::job(3).logs().dump(0, "ar:1 ar:9?").dump(1, "ar:1 ar:9?")
    }

    #[test]
    fn stopped_while_peers_wait() {
        waiting().ps("S S T").concludes(&RULE, "process-stopped 2, high");
        StagedCase::job(3).logs().ps("S t S").concludes(&RULE, "process-stopped 1, medium");
    }

    #[test]
    fn in_the_kernel_or_gone() {
        waiting().ps("S S D:io_schedule").silent(&RULE);
        waiting().ps("S S -").silent(&RULE);
    }
}
