//! # What it shows
//! The operations that every rank was in when the rings end or stop: the last state of the job, as seen from inside
//! NCCL. It blames no rank.
//!
//! # Why it happens
//! A ring outlives its process. After a kill of the whole job it is all that is left.
//!
//! # Evidence
//! The table of operations in flight in the ring of each process.
//!
//! # What looks like it but is not
//! Rings that were copied by hand from a job at work end within operations too: only the collector notes that the
//! process lived.
//!
//! # What to do
//! Find out what ended the processes: the scheduler, the kernel, an operator.
//!
//! # References
//! NCCL's profiler plugin interface (plugins/profiler of its source).

use std::collections::BTreeMap;

use ringleader_model::{Cause, Confidence, Impact, RankSet, Severity, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "operations-in-flight",
    title: "operations that each rank was in at the end",
    since: "0.3",
    doc: include_str!("operations_in_flight.rs"),
    check,
};

/// Ranks whose own record is cited; the classes name all of them.
const CITED: usize = 64;

fn check(scene: &Scene<'_>) -> Outcome {
    let has_gone = scene.rings().iter().any(|(_, ring)| !ring.is_live && !ring.is_ended);
    if !has_gone && !scene.ledger().is_stalled() {
        return Outcome::Clear;
    }
    let states = scene.last_states();
    let mut classes: BTreeMap<&str, (Vec<_>, usize)> = BTreeMap::new();
    for state in &states {
        let class = classes.entry(&state.brief).or_default();
        class.0.extend(state.rank);
        class.1 += 1;
    }
    let mut classes: Vec<(&str, (RankSet, usize))> =
        classes.into_iter().map(|(brief, (ranks, n))| (brief, (ranks.into_iter().collect(), n))).collect();
    classes.sort_by_key(|(brief, (_, n))| (std::cmp::Reverse(*n), *brief));
    let said: Vec<String> = classes
        .iter()
        .map(|(brief, (ranks, n))| {
            let who = if ranks.is_empty() { format!("{n} processes") } else { drafting::ranks(ranks) };
            format!("{brief} on {who}")
        })
        .collect();
    let word = if has_gone { "last state" } else { "in flight" };
    Outcome::from_findings(
        Draft::new(RULE.id, Cause::Undecided, format!("{word}: {}", said.join("; ")))
            .severity(Severity::Info)
            .weight(Weight::Aside)
            .confidence(Confidence::Low)
            .evidence(states.into_iter().take(CITED).map(|s| s.evidence))
            .advise_command(
                Impact::Harmless,
                "check whether the processes are alive, and if not, what ended them",
                "ps -eo pid,ppid,stat,wchan:32,etime,args; dmesg -T | tail -n 50",
            )
            .build()
            .into_iter()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use ringleader_model::Cause;

    use super::RULE;
    use crate::diagnose;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn a_job_that_was_killed_within_a_collective() {
        let job = StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"]).rings_gone();
        let finding = job.finding(&RULE);
        let title =
            "last state: all_reduce #13 of default_pg running on ranks 0-1; nothing in flight on rank 2";
        assert_eq!(finding.title, title);
        assert_eq!(finding.evidence.len(), 3);
        let verdict = diagnose(&job.case);
        assert_eq!(verdict.cause, Cause::Undecided, "{verdict:#?}");
        assert!(verdict.summary.contains("processes ended"), "{}", verdict.summary);
        assert!(verdict.culprits.is_empty());
    }

    #[test]
    fn a_job_at_work_has_no_last_state() {
        StagedCase::job(3)
            .rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12"])
            .rings_read_after(300)
            .silent(&RULE);
    }
}
