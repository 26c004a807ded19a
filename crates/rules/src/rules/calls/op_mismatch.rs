//! # What it shows
//! At the same sequence number of one group the ranks call different operations, or the same one with another
//! root or reduction.
//!
//! # Why it happens
//! Two branches that should do the same use different calls (reduce on one, all_reduce on the others), or a
//! root computed differently.
//!
//! # Evidence
//! The records of both sides, with the places in the code; the calls before and after agree without a shift.
//!
//! # What looks like it but is not
//! A skipped or an extra call: there what follows fits only under a shift.
//!
//! # What to do
//! Call the same operation on all ranks.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide, collective communication
//! semantics.

use ringleader_model::Cause;

use crate::drafting;
use crate::rule::{Outcome, Rule};
use crate::rules::calls::mismatch::{instead, outcome};
use ringleader_correlate::Scene;
use ringleader_correlate::calls::align::CallFault;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "op-mismatch",
    title: "ranks call different kinds of collective at the same place",
    since: "0.1",
    doc: include_str!("op_mismatch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    outcome(scene, &RULE, Cause::OpMismatch, |m| {
        let CallFault::Operation(_) = m.fault else { return None };
        let advice = "make all ranks call the same operation with the same root and reduction";
        Some((instead(m), vec![format!("{advice}{}", drafting::at(m.place.as_ref()))]))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const USUAL: &str = "ar:100 ar:50? ar:7? ag:3?";

    #[test]
    fn a_broadcast_among_reductions() {
        StagedCase::job(3)
            .dumps(&[USUAL, USUAL, "ar:100 bc:50@40? ar:7? ag:3?"])
            .concludes(&RULE, "op-mismatch 2 at step:40, high");
    }

    #[test]
    fn what_nccl_ended_all_the_same() {
        let usual = "ar:9*12 ar:100 ar:7? ar:3!";
        let job = |odd| {
            StagedCase::job(4).rings(&[usual, usual, odd, usual]).stands(2, &[("/srv/t.py", 44, "step")])
        };
        // The rank has gone on since: where it is now is not where it called.
        job("ar:9*12 ag:100 ar:7 ar:3?").concludes(&RULE, "op-mismatch 2, high");
        job("ar:9*12 ar:100 ar:7? ar:3!").silent(&RULE);
        let usual = "ar:9*12 ar:100 ar:7? ar:3?";
        let odd = "ar:9*12 ag:100@40 ar:7 ar:3?";
        StagedCase::job(3).dumps(&[usual, usual, odd]).concludes(&RULE, "op-mismatch 2 at step:40, high");
        // Numbers of torch that are shifted for good say nothing of what has ended.
        let usual = "bc:9 ar:8 ag:7*3 ar:8 ag:7*4 ar:8 ar:8?";
        StagedCase::job(3).dumps(&[usual, usual, "ar:8 ag:7*3 ar:8 ag:7*4 ar:8*2 ar:8?"]).silent(&RULE);
    }

    #[test]
    fn what_is_long_over_hides_nothing() {
        use crate::rules::calls::skipped_collective;
        let usual = "ar:9*12 ar:100 ar:7*20 ar:5? ar:6? ar:4?";
        let job = |odd: &str| StagedCase::job(4).rings(&[usual, usual, odd, usual]);
        let twice = job("ar:9*12 ag:100 ar:7*20 ar:6? ar:4?");
        twice.expect(&RULE, &["op-mismatch 2"]);
        twice.expect(&skipped_collective::RULE, &["skipped-collective 2"]);
        job("ar:9*12 ag:100 ar:7*20 ar:5? ar:6? ar:4?").silent(&skipped_collective::RULE);
    }

    #[test]
    fn a_dump_is_its_whose_ring_has_the_same_calls() {
        let (usual, odd) = ("ar:9*12 ar:100? ar:7?", "ar:9*12 ag:100? ar:7?");
        let scripts = [usual, odd, usual];
        let mut job = StagedCase::job(3).rings(&scripts).dumps(&scripts);
        job.expect(&RULE, &["op-mismatch 1"]);
        // Renamed, each after another rank.
        for observation in &mut job.case.observations {
            if let ringleader_model::Fact::Flight(dump) = &mut observation.fact {
                dump.name_hint = dump.name_hint.map(|rank| ringleader_model::Rank((rank.0 + 1) % 3));
            }
        }
        job.expect(&RULE, &["op-mismatch 1"]);
    }

    #[test]
    fn what_fits_when_moved() {
        StagedCase::job(3).dumps(&[USUAL, USUAL, "ar:100 ar:7? ag:3?"]).silent(&RULE);
        StagedCase::job(3).dumps(&[USUAL, USUAL, "ar:100 bc:1@40? ar:50? ar:7?"]).silent(&RULE);
    }
}
