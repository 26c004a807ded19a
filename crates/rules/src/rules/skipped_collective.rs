//! # What it shows
//! One rank went on without a collective that every other rank of the group calls. Its sequence numbers are
//! one behind ever after, so it and its peers wait in different operations.
//!
//! # Why it happens
//! A branch that depends on the rank, on its data (an empty batch, a frozen parameter, a text-only sample),
//! or an exception that was caught and passed over.
//!
//! # Evidence
//! The operation records of the group: what follows the first difference fits again once the odd rank is
//! moved by the calls it left out. One call fewer in total; NCCL's lines, the recorder and the watchdog count
//! it alike.
//!
//! # What looks like it but is not
//! A changed size looks the same at the first difference; afterwards the calls are aligned again without a
//! shift. A rank that is late or stuck has entered fewer calls but none that differ.
//!
//! # What to do
//! Make all ranks take the same path to the call, or call it with a zero contribution where there is nothing
//! to add.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide, collective communication
//! semantics.

use ringleader_model::{Confidence, Finding, Impact, RankSet, Weight};

use crate::correlate::align::Fault;
use crate::correlate::ledger::View;
use crate::correlate::waits::FrontKind;
use crate::correlate::{Scene, mismatch, suspects};
use crate::drafting;
use crate::rule::{Draft, Input, Outcome, Rule};

/// The rule.
pub(super) static RULE: Rule = Rule {
    id: "skipped-collective",
    title: "a rank left out a collective that its peers call",
    since: "0.1",
    reads: &[Input::FlightRecorder, Input::NcclLog, Input::TorchLog],
    doc: include_str!("skipped_collective.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<_> = scene
        .mismatches
        .iter()
        .filter_map(|m| {
            let Fault::Skipped(n) = m.fault else { return None };
            let (odd, usual) = (drafting::who(&m.odd), drafting::ranks(&m.usual));
            let title = format!(
                "{odd} left out {} #{} of {}{}; {usual} wait in it",
                m.usual_call,
                m.seq,
                m.group,
                if n > 1 { format!(" and {} more", n - 1) } else { String::new() }
            );
            drafting::from_mismatch(scene, RULE.id, "skipped-collective", m, title)
                .advise(Impact::Harmless, format!("make every rank reach the call{}: look for a branch on the rank, on data, or on a local error around it", drafting::at(m.place.as_ref())))
                .build()
        })
        .collect();
    findings.extend(gone_on(scene));
    Outcome::from_findings(findings)
}

/// The calls of a group are all alike, so the records do not differ; but all its other ranks wait for one that waits
/// for one of them in another group, in a later call.
fn gone_on(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for waits in scene.waits.iter().filter(|w| w.view == View::Flight) {
        for (node, front) in waits.cycles.iter().filter_map(|cycle| suspects::went_on(scene, waits, cycle)) {
            let FrontKind::Collective(seq) = front.what else { continue };
            let Some(group) = scene.ledger.groups.get(front.group) else { continue };
            if scene.mismatches.iter().any(|m| m.odd.contains(&node)) {
                continue;
            }
            let waiting = front.waiting.iter().filter_map(|m| group.tracks.get(*m)?.as_ref());
            let place = waiting.clone().find_map(|t| mismatch::place_near(scene, t, &group.name, seq));
            let victims: RankSet = front.waiting.iter().filter_map(|m| group.rank(*m)).collect();
            let title = format!(
                "{} went on without #{seq} of {}; {} wait in it",
                drafting::who(&[node]),
                group.name,
                drafting::ranks(&victims)
            );
            findings.extend(
                Draft::new(RULE.id, "skipped-collective", title)
                    .weight(Weight::Stated)
                    .confidence(Confidence::Medium)
                    .culprits(drafting::culprits(scene, &[node], place.as_ref()))
                    .victims(victims)
                    .evidence(waiting.take(3).filter_map(|t| mismatch::evidence_of(scene, t, seq)))
                    .at(front.since_ns)
                    .advise(Impact::Harmless, format!("make every rank reach the call{}", drafting::at(place.as_ref())))
                    .build(),
            );
        }
    }
    findings
}
