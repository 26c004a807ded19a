//! # What it shows
//!
//! The launcher got a signal from outside, and nothing had failed before.
//!
//! # Why it happens
//!
//! The scheduler reached the job's time limit or preempted it, a pod was deleted, a terminal or an ssh session was
//! closed, or a user pressed Ctrl-C.
//!
//! # Evidence
//!
//! The launcher's own line about the signal, and no failure before it.
//!
//! # What looks like it but is not
//!
//! A job that hangs is often ended by hand: a timeout, a stuck watchdog, or a rank that holds the others up comes before
//! the signal, and is the cause. Signals that the launcher sends to its workers are its own clean-up.
//!
//! # What to do
//!
//! SIGTERM: look at the scheduler's log for a time limit, a preemption or an eviction. SIGHUP: start the job under a
//! scheduler, nohup or tmux. SIGINT: a user stopped it.
//!
//! # References
//!
//! `torch/distributed/elastic/agent/server/api.py` (death signals).

use ringleader_knowledge::signal;
use ringleader_model::{Cause, Confidence, Impact, Weight};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::when::failure::{EndSign, sign};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "stopped-from-outside",
    title: "the launcher was stopped from outside",
    since: "0.2",
    doc: include_str!("stopped_from_outside.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(request) = scene.failure().stop_request() else { return Outcome::Clear };
    let (cite, signal) = (request.evidence.cite, &request.signal);
    // What is in the same source is in the order in which it was printed.
    let has_failed_before = scene.statements().any(|s| {
        let at = s.observation.cite;
        let is_later = at.source == cite.source && at.start > cite.start;
        matches!(sign(s.event), EndSign::Failed(..)) && !is_later
    });
    let holds_up =
        !scene.suspects().is_empty() || !scene.mismatches().is_empty() || !scene.stood_still().is_empty();
    if holds_up || has_failed_before || scene.stacks().next().is_some() {
        return Outcome::Clear;
    }
    let name =
        signal::number_of(signal).and_then(|n| signal::get(i64::from(n))).map_or(&**signal, |s| s.name);
    let title = format!("the launcher got {name} from outside; nothing had failed before");
    let finding = Draft::new(RULE.id, Cause::StoppedFromOutside, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .at(request.at.map(|t| t.ns))
        .evidence([request.evidence.clone()])
        .advise(
            Impact::Harmless,
            match name {
                "SIGHUP" => "its terminal or ssh session was closed: start it under a scheduler, nohup or tmux",
                "SIGINT" => "a user pressed Ctrl-C, or a wrapper forwarded it",
                _ => "check who sent it: time limit, preemption or eviction in the scheduler's log, or an operator",
            },
        )
        .build();
    Outcome::from_findings(finding.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use ringleader_model::TorchEvent;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn told(stage: StagedCase) -> StagedCase {
        let signal = TorchEvent::LauncherKilled { signal: "15".into() };
        stage.torch(None, signal, "Received 15 death signal, shutting down workers")
    }

    #[test]
    fn a_signal_and_nothing_before_it() {
        told(StagedCase::new()).concludes(&RULE, "stopped-from-outside , medium");
    }

    #[test]
    fn a_job_that_had_failed_or_hung() {
        told(StagedCase::new().failed(1, 1, true)).silent(&RULE);
        told(StagedCase::job(3).dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"])).silent(&RULE);
    }
}
