//! # What it shows
//! The same collective, at the same sequence number, with different numbers of elements.
//!
//! # Why it happens
//! A last batch that is smaller on one rank, filtered samples, a parameter that exists on some ranks only,
//! different bucket orders.
//!
//! # Evidence
//! The records of both sides; the calls before and after agree without a shift and the totals are equal.
//!
//! # What looks like it but is not
//! A skipped call looks the same at the first difference; the calls after it then align only under a shift. Gather,
//! scatter and all-to-all may differ by nature.
//!
//! # What to do
//! Pad, or exchange the sizes first.
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
    id: "shape-mismatch",
    title: "ranks call the same collective with different sizes",
    since: "0.1",
    doc: include_str!("shape_mismatch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    outcome(scene, &RULE, Cause::ShapeMismatch, |m| {
        let CallFault::Size = m.fault else { return None };
        let place = drafting::at(m.place.as_ref());
        let advice = format!(
            "make the size the same on all ranks{place}: pad the last batch, or gather the sizes first"
        );
        Some((instead(m), vec![advice]))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const USUAL: &str = "ar:100 ar:50? ar:7? ag:3?";

    #[test]
    fn a_smaller_last_batch() {
        StagedCase::job(3)
            .dumps(&[USUAL, USUAL, "ar:100 ar:49@61? ar:7? ag:3?"])
            .concludes(&RULE, "shape-mismatch 2 at step:61, high");
    }

    #[test]
    fn rings_keep_no_stacks() {
        let rings = ["ar:9*12 ar:100? ar:7?", "ar:9*12 ar:100? ar:7?", "ar:9*12 ar:50? ar:7?"];
        let job = StagedCase::job(3).rings(&rings).stands(2, &[("/srv/train.py", 44, "step")]);
        job.concludes(&RULE, "shape-mismatch 2 at step:44, high");
    }

    #[test]
    fn sizes_of_calls_that_ended() {
        let usual = "ar:9*12 ag:100 ar:7*3";
        let odd = "ar:9*12 ag:50 ar:7*3";
        StagedCase::job(3).rings(&[usual, usual, odd]).concludes(&RULE, "shape-mismatch 2, high");
        // Torch shows each rank the size of its own part of a list.
        StagedCase::job(3).dumps(&[usual, usual, odd]).silent(&RULE);
    }

    #[test]
    fn a_skipped_call_fits_when_moved() {
        StagedCase::job(3).dumps(&[USUAL, USUAL, "ar:100 ar:7? ag:3?"]).silent(&RULE);
    }

    #[test]
    fn sizes_that_differ_by_nature() {
        StagedCase::job(3).dumps(&["aa:100? ar:7?", "aa:50? ar:7?", "aa:75? ar:7?"]).silent(&RULE);
        StagedCase::job(3).dumps(&["ga:300? ar:7?", "ga:100? ar:7?", "ga:100? ar:7?"]).silent(&RULE);
    }
}
