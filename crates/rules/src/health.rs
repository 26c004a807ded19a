//! What has to be so before a job may be called healthy. That no rule fired is not enough: what was not seen is not
//! well, and what is unfinished has not ended.

use std::collections::BTreeSet;

use ringleader_model::{Case, Confidence, Fact, Observation, Rank, Source, SourceKind, TorchEvent};

use crate::correlate::Scene;
use crate::correlate::ledger::{Origin, View};
use crate::correlate::moments::stated_failure;
use crate::correlate::suspects::Suspect;

/// Nothing was found that tells anything: that is not health. (The quiet output of a healthy job is text.)
pub(crate) fn is_without_evidence(case: &Case) -> bool {
    let says_something = |o: &Observation| match &o.fact {
        Fact::Flight(dump) => !dump.ops.is_empty(),
        Fact::Ras(report) => !report.comms.is_empty() || !report.missing_processes.is_empty(),
        _ => true,
    };
    let quiet = |s: &Source| s.kinds.contains(&SourceKind::PlainText) && s.size_bytes > 0;
    !case.observations.iter().any(says_something) && !case.sources.iter().any(quiet)
}

/// The first sign that something is wrong, in words.
pub(crate) fn trouble(scene: &Scene<'_>) -> Option<&'static str> {
    // Counts of a running job differ for a moment; states that a recorder kept do not.
    let held_up = |s: &Suspect| !s.weak && s.views.iter().any(|v| *v != View::Ras);
    let of_launcher = |e: &TorchEvent| matches!(e, TorchEvent::LauncherKilled { .. });
    if let Some(sign) = stated_failure(scene.case) {
        return Some(sign);
    }
    if !scene.stood_still.is_empty() {
        return Some("the job stood still while it was watched");
    }
    if ended_within(scene) {
        return Some(
            "the processes ended, or were copied at work, within operations that none of them finished",
        );
    }
    if scene.suspects.iter().any(held_up) {
        return Some("ranks wait for another one");
    }
    if !scene.ledger.may_run && has_unfinished(scene) {
        return Some("operations are unfinished in the recorders");
    }
    if scene
        .ras()
        .any(|(_, r)| !r.missing_processes.is_empty() || r.comms.iter().any(|c| !c.missing.is_empty()))
    {
        return Some("RAS gets no answer from some ranks");
    }
    if scene.process_tables().any(|(_, t)| t.rows.iter().any(is_stopped_worker)) {
        return Some("a process of the job is stopped");
    }
    if scene.case.sources.iter().any(|s| s.kinds.contains(&SourceKind::ElasticError)) {
        return Some("a process left an error file");
    }
    scene.statements().any(|s| of_launcher(s.event)).then_some("the launcher was stopped from outside")
}

/// Rings of processes that are gone, or were copied by hand, hold operations in flight.
fn ended_within(scene: &Scene<'_>) -> bool {
    scene.rings().iter().any(|(_, ring)| {
        !ring.is_live && !ring.is_ended && ring.ops.iter().any(ringleader_model::RingOp::is_open)
    })
}

/// Some rank's recorder holds a collective that it has entered and not finished.
fn has_unfinished(scene: &Scene<'_>) -> bool {
    let groups = scene.ledger.groups.iter().filter(|g| g.view.knows_ends());
    groups
        .flat_map(|g| g.tracks.iter().flatten())
        .filter(|t| matches!(t.origin, Origin::Dump(_) | Origin::Ring(_)))
        .any(|t| t.finished.is_some_and(|finished| finished < t.entered))
}

/// A Python program or its launcher in state T.
fn is_stopped_worker(row: &ringleader_model::ProcessRow) -> bool {
    let python = ["python", "torchrun"].iter().any(|word| row.command.contains(word));
    python && row.state.starts_with(['T', 't'])
}

/// Health is as sure as the evidence that would have shown a fault: the records of every rank.
pub(crate) fn confidence(scene: &Scene<'_>) -> Confidence {
    if scene.ledger.may_run {
        return Confidence::Low;
    }
    let largest_group = scene.dumps.iter().flat_map(|d| &d.dump.groups).map(|g| g.ranks.len()).max();
    let world = scene.roster.world_size.map_or(0, |n| n as usize).max(largest_group.unwrap_or(0));
    let whole = scene.dumps.iter().filter(|d| !d.dump.truncated && !d.dump.ops.is_empty()).count();
    let logged: BTreeSet<Rank> = scene
        .ledger
        .groups
        .iter()
        .filter(|g| g.view == View::Nccl)
        .flat_map(|g| g.tracks.iter().flatten())
        .filter(|t| !t.open_end)
        .filter_map(|t| t.rank)
        .collect();
    let rings = scene.rings();
    // Rings that were closed in order, or read from a living job that nothing holds up.
    let closed = rings.iter().filter(|(_, r)| r.is_ended || r.is_live).count();
    let whole = whole.max(closed);
    match (world > 0 && whole >= world, world > 0 && logged.len() >= world) {
        (true, true) => Confidence::High,
        (false, false) => Confidence::Low,
        _ => Confidence::Medium,
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Confidence, TorchEvent};

    use crate::diagnose;
    use crate::staging::Stage;

    #[track_caller]
    fn says(stage: &Stage, expected: &str) {
        let verdict = diagnose(&stage.case);
        assert_eq!(format!("{}, {}", verdict.cause, verdict.confidence), expected, "{verdict:#?}");
    }

    #[test]
    fn health_is_as_sure_as_the_records_of_every_rank() {
        let ended = ["ar:1 ar:9", "ar:1 ar:9", "ar:1 ar:9"];
        says(&Stage::job(3).dumps(&ended), "none, medium");
        says(&Stage::job(3).dump(0, "ar:1 ar:9"), "none, low");
        assert!(Confidence::Low < Confidence::Medium);
    }

    #[test]
    fn what_is_unfinished_has_not_ended() {
        says(&Stage::job(3).dump(0, "ar:1 ar:9?"), "undecided, low");
    }

    #[test]
    fn a_dump_without_entries_is_no_evidence() {
        says(&Stage::job(3).dumps(&["", "", ""]), "undecided, low");
    }

    #[test]
    fn a_launcher_that_was_stopped_did_not_end_by_itself() {
        let stopped = TorchEvent::LauncherKilled { signal: "15".into() };
        says(
            &Stage::new().torch(None, stopped, "Received 15 death signal, shutting down workers"),
            "undecided, low",
        );
    }
}
