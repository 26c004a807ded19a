//! # What it shows
//! The same collective, at the same sequence number, with different data types.
//!
//! # Why it happens
//! Autocast or a cast on some ranks only, a default type that differs, a checkpoint loaded in another
//! precision.
//!
//! # Evidence
//! The records of both sides; the calls before and after agree.
//!
//! # What looks like it but is not
//! Different views of one tensor with the same type and size are no fault.
//!
//! # What to do
//! Cast before the call, on all ranks alike.
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
    id: "dtype-mismatch",
    title: "ranks call the same collective with different types",
    since: "0.1",
    doc: include_str!("dtype_mismatch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    outcome(scene, &RULE, Cause::DtypeMismatch, |m| {
        let CallFault::Type = m.fault else { return None };
        let place = drafting::at(m.place.as_ref());
        Some((instead(m), vec![format!("give the tensor the same type on all ranks{place}")]))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn halves_where_the_others_have_floats() {
        let usual = "ar:100 ar:50? ar:7?";
        StagedCase::job(3)
            .dumps(&[usual, "ar:100 ar:50:Half@33? ar:7?", usual])
            .concludes(&RULE, "dtype-mismatch 1 at step:33, high");
        // NCCL's own lines alone: nothing shows that the call was the last one of each rank.
        let usual = "ar:100 ar:50 ar:7";
        let logs = StagedCase::job(3).log(0, "node1", usual).log(1, "node1", "ar:100 ar:50:Half ar:7");
        logs.log(2, "node1", usual).concludes(&RULE, "dtype-mismatch 1, high");
    }

    #[test]
    fn wrong_numbers_without_a_hang() {
        let usual = "ar:9*12 ar:100 ar:7*3";
        let job = |odd| StagedCase::job(4).rings(&[usual, odd, usual, usual]);
        job("ar:9*12 ar:100:Half ar:7*3").concludes(&RULE, "dtype-mismatch 1, high");
        job(usual).silent(&RULE);
        // Nothing is added up where NCCL only copies: as many bytes are the same to it.
        let usual = "ar:9*12 bc:100 ar:7*3";
        let job = |odd| StagedCase::job(3).rings(&[usual, odd, usual]);
        job("ar:9*12 bc:100:Int ar:7*3").silent(&RULE);
        job("ar:9*12 bc:100:Half ar:7*3").concludes(&RULE, "dtype-mismatch 1, high");
    }

    #[test]
    fn another_view_of_one_tensor() {
        StagedCase::job(3).dumps(&["ar:100? ar:7?", "ar:10x10? ar:7?", "ar:100? ar:7?"]).silent(&RULE);
    }
}
