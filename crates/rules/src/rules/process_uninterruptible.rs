//! # What it shows
//! The process of one rank is in state D: it sleeps in the kernel and takes no signals.
//!
//! # Why it happens
//! A file system that does not answer, a driver call that hangs, memory reclaim under pressure.
//!
//! # Evidence
//! A process list with state D and the kernel function (WCHAN); its peers wait for it.
//!
//! # What looks like it but is not
//! One sample of D is ordinary during disk reads: it counts only together with peers that wait for this rank,
//! or a stack that does not change.
//!
//! # What to do
//! Mend what it waits for; the process cannot be killed until then.
//!
//! # References
//! proc(5); kernel documentation, hung task detector.

use ringleader_model::{Confidence, Impact, Weight};

use crate::correlate::Scene;
use crate::correlate::condition::ProcessState;
use crate::drafting;
use crate::rule::{Draft, Input, Outcome, Rule};

/// The rule.
pub(super) static RULE: Rule = Rule {
    id: "process-uninterruptible",
    title: "a rank hangs in the kernel",
    since: "0.1",
    reads: &[Input::Processes, Input::FlightRecorder, Input::Ras, Input::Stacks],
    doc: include_str!("process_uninterruptible.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (rank, condition) in scene.conditions.all() {
        let Some((ProcessState::Uninterruptible, seen)) = &condition.state else { continue };
        // One sample is ordinary during disk reads: somebody must wait for this rank.
        let Some(suspect) = scene.suspects.iter().find(|s| s.node.rank() == Some(rank)) else { continue };
        let place = condition.stand.as_ref().and_then(|s| s.place());
        let title = format!(
            "{} hangs in the kernel (state D){}{}",
            drafting::rank(rank),
            condition.wchan.as_ref().map_or_else(String::new, |w| format!(" in {w}")),
            format_args!("; {} for it", drafting::waiting(&suspect.victims))
        );
        let draft = Draft::new(RULE.id, "process-uninterruptible", title)
            .weight(Weight::Stated)
            .confidence(Confidence::High)
            .culprits(drafting::culprits(scene, &[crate::correlate::waits::Node::Rank(rank)], place))
            .evidence([seen.clone()])
            .evidence(condition.stand_failure.iter().map(|(_, e)| e.clone()))
            .evidence(condition.stand.iter().map(|s| s.evidence.clone()))
            .victims(suspect.victims.clone())
            .evidence(suspect.evidence.iter().take(3).cloned())
            .at(suspect.since_ns);
        let pid = drafting::pid_of(scene, rank);
        let draft = draft
            .advise_command(Impact::Harmless, "see where in the kernel it waits: a file system, the GPU driver, memory reclaim", format!("cat /proc/{pid}/stack /proc/{pid}/wchan"))
            .advise_command(Impact::Harmless, "look for a stuck mount", "grep -E ' (nfs|nfs4|lustre|fuse|ceph|gpfs)' /proc/mounts; dmesg -T | grep -i 'blocked for more than'");
        findings.extend(draft.build());
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn in_the_kernel_while_peers_wait() {
        Stage::job(3)
            .logs()
            .dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"])
            .ps("S S D:nfs_wait_on_request")
            .concludes(&RULE, "process-uninterruptible 2, high");
    }

    #[test]
    fn a_disk_read_that_nobody_waits_for() {
        Stage::job(3).logs().dumps(&["ar:1 ar:9"; 3]).ps("S S D:io_schedule").silent(&RULE);
        Stage::job(3).logs().ps("S S D:io_schedule").silent(&RULE);
    }

    #[test]
    fn stopped() {
        Stage::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]).ps("S S T").silent(&RULE);
    }
}
