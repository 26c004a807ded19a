//! # What it shows
//!
//! A program of the job printed a message that is known to mean one cause, or to suggest some.
//!
//! # Why it happens
//!
//! Frameworks, launchers, libraries and schedulers say in their own words what failed. The message table holds those
//! words with their meaning, for many programs that have no rule of their own.
//!
//! # Evidence
//!
//! The line itself, and the row of the message table that it was printed from. A cause that a row only suggests gets
//! low confidence.
//!
//! # What looks like it but is not
//!
//! Consequences and harmless chatter are rows too, marked as such, and name nothing. A rule that has found the same
//! cause by itself says more and is reported instead.
//!
//! # What to do
//!
//! What the row says; `ringleader explain` with the line shows all of it.
//!
//! # References
//!
//! The source of each row: `crates/knowledge/data/messages`.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::said::statements::Stated;
use ringleader_knowledge::message::{self, MessageRow, Role};
use ringleader_knowledge::signal::SIGABRT;
use ringleader_model::{Cause, Confidence, Finding, Frame, Impact, Rank, TorchEvent, Weight, user_frame};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::process::fate::End;
use ringleader_correlate::when::failure::{Way, is_timeout};
use ringleader_correlate::who::culprits::who;

/// See the module.
pub(crate) static RULE: Rule = Rule {
    id: "message-names-cause",
    title: "a message names its cause",
    since: "0.2",
    doc: include_str!("message_names_cause.rs"),
    check,
};

/// Citations of one statement.
const CITATIONS: usize = 4;
/// Causes that a message may suggest and still name the first.
const MOST_SUGGESTED: usize = 2;
/// Faults of kernels.
const OF_KERNELS: [Cause; 2] = [Cause::DeviceAssert, Cause::IllegalMemoryAccess];
/// Findings at most, one for each cause.
const FINDINGS: usize = 8;

fn check(scene: &Scene<'_>) -> Outcome {
    // Who ends a job that hangs is no cause of it: torchrun's own word for SIGTERM names nobody, and a watchdog that
    // aborts its process is no crash.
    let was_ended = scene.failure().was_asked_to_stop();
    let has_waited = scene.failure().has(Way::TimedOut) || scene.failure().has(Way::Stuck);
    let is_weighed = |cause: &Cause| match cause {
        Cause::FabricManagerDown => true,
        Cause::StoppedFromOutside => was_ended,
        Cause::ProcessCrashed => has_waited,
        _ => false,
    };
    let mut named: Vec<(Cause, &Stated<'_>, MessageRow)> = scene
        .stated()
        .all()
        .iter()
        .filter(|stated| !scene.course().was_outlived(stated))
        .filter_map(|stated| {
            let row = stated.row().filter(|r| matches!(r.role(), Role::States | Role::Suggests))?;
            let causes = stated.causes();
            // What fits three causes names none, and that a peer is gone is what every survivor says: open questions.
            let is_survivors = causes.first() == Some(&Cause::PeerProcessDied);
            let is_open = row.role() == Role::Suggests && (is_survivors || causes.len() > MOST_SUGGESTED);
            let cause = causes.first().copied().filter(|cause| !is_open && !is_weighed(cause))?;
            Some((cause, stated, row))
        })
        .collect();
    named.sort_by_key(|(_, stated, row)| {
        (std::cmp::Reverse(row.role()), stated.at_ns().is_none(), stated.at_ns())
    });
    let mut findings: Vec<Finding> = Vec::new();
    for (cause, stated, row) in named {
        if findings.len() == FINDINGS {
            break;
        }
        match findings.iter_mut().find(|f| f.cause == cause) {
            Some(known) => {
                let room = CITATIONS.saturating_sub(known.evidence.len());
                known.evidence.extend(stated.evidence(room));
            }
            None => findings.extend(finding(scene, cause, stated, row)),
        }
    }
    Outcome::from_findings(findings)
}

fn finding(scene: &Scene<'_>, cause: Cause, stated: &Stated<'_>, row: MessageRow) -> Option<Finding> {
    let (weight, confidence) = match row.role() {
        // A kernel that meets data of a transfer which was given up fails of that.
        Role::States if OF_KERNELS.contains(&cause) && follows_timeout(scene, stated) => {
            (Weight::Symptom, Confidence::Low)
        }
        // The wide word for everything that a program does wrong yields to all others.
        _ if cause == Cause::ApplicationException => (Weight::Echo, Confidence::Low),
        // A process that aborts with this message says of itself why it ends.
        Role::States if was_last_word(scene, row) => (Weight::Stated, Confidence::High),
        Role::States => (Weight::Derived, Confidence::Medium),
        _ => (Weight::Symptom, Confidence::Low),
    };
    let mut culprits = stated.culprits(scene.roster());
    let places = if culprits.is_empty() { BTreeMap::new() } else { places(scene, row) };
    for culprit in &mut culprits {
        culprit.place = culprit.place.take().or_else(|| places.get(&culprit.rank?).copied().cloned());
    }
    let title = if culprits.is_empty() {
        row.says().to_owned()
    } else {
        format!("{}: {}", who(&culprits), row.says())
    };
    let mut draft = Draft::new(RULE.id, cause, title)
        .weight(weight)
        .confidence(confidence)
        .at_most(confidence)
        .culprits(culprits)
        .at(stated.at_ns())
        .evidence(stated.evidence(CITATIONS));
    draft = if row.action().is_empty() {
        let command = format!("ringleader explain {}", cause.id());
        draft.advise_made(Impact::Harmless, "read what is known about this cause", Some(command))
    } else {
        draft.advise(row.impact(), row.action())
    };
    draft.build()
}

/// A watchdog ended its wait before, by the order of the same source.
fn follows_timeout(scene: &Scene<'_>, stated: &Stated<'_>) -> bool {
    let Some(first) = stated.evidence(1).next() else { return false };
    scene.statements().any(|statement| {
        let cite = statement.observation.cite;
        is_timeout(statement.event) && cite.source == first.cite.source && cite.start < first.cite.start
    })
}

/// Where the programs of ranks were that raised an exception with this message.
fn places<'a>(scene: &Scene<'a>, row: MessageRow) -> BTreeMap<Rank, &'a Frame> {
    let mut found = BTreeMap::new();
    for statement in scene.statements() {
        let TorchEvent::Exception(exception) = statement.event else { continue };
        let text = format!("{}: {}", exception.class, exception.message);
        let said = text.lines().next().and_then(message::best);
        if said.is_some_and(|said| said.row.id() == row.id())
            && let Some(rank) = scene.roster().speaker(statement.observation)
            && let Some(frame) = user_frame(&exception.frames)
        {
            found.entry(rank).or_insert(frame);
        }
    }
    found
}

/// A rank aborted, and this message was its last word.
fn was_last_word(scene: &Scene<'_>, row: MessageRow) -> bool {
    scene.fates().all().any(|(rank, fate)| {
        let has_aborted = matches!(fate.end(), End::Crashed(signal) if signal.number == SIGABRT);
        has_aborted && scene.thrown(rank).is_some_and(|thrown| thrown.row.id() == row.id())
    })
}

#[cfg(test)]
mod tests {
    use ringleader_model::Who;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn saying(text: &str, who: Who) -> StagedCase {
        StagedCase::new().says(who, text)
    }

    #[test]
    fn the_table_speaks_where_no_rule_does() {
        let text = "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.";
        saying(text, Who::default()).expect(&RULE, &["oom-killed"]);
        saying("step 812 loss 2.31", Who::default()).silent(&RULE);
        saying("DeprecationWarning: this failed to be removed", Who::default()).silent(&RULE);
    }

    #[test]
    fn a_kernel_that_fails_once_a_wait_has_timed_out() {
        let assert = "IndexKernelUtils.cu:16: gather_kernel: block: [7,0,0], thread: [64,0,0] Assertion `ind >=0` failed.";
        let stage = || StagedCase::new().timed_out(0, "ar:100", 6, 6);
        // As in the log of all ranks, where it comes behind the watchdog's word; or in a file of its own.
        let says = |is_one_log: bool, text: &str| {
            let mut stage = stage().says(Who::default(), text);
            let first = stage.case.observations.first().map(|o| o.cite.source);
            if let (true, Some(last), Some(source)) = (is_one_log, stage.case.observations.last_mut(), first)
            {
                last.cite.source = source;
            }
            stage
        };
        says(false, assert).concludes(&RULE, "device-assert , medium");
        says(true, assert).concludes(&RULE, "device-assert , low");
        // Other ends are told of late as well: a scheduler reports them when all is over.
        let killed = "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.";
        says(true, killed).concludes(&RULE, "oom-killed , medium");
    }

    #[test]
    fn the_last_word_of_an_aborted_process_is_its_own_statement() {
        let text = "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8192 vs 4.";
        let reason = format!("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n{text}");
        let stage = || saying(text, Who::default());
        stage().concludes(&RULE, "shape-mismatch , medium");
        stage().failed(1, -11, true).concludes(&RULE, "shape-mismatch , medium");
        let aborted = stage().failed(1, -6, true).crashed(None, &reason, &[]);
        aborted.concludes(&RULE, "shape-mismatch , high");
    }
}
