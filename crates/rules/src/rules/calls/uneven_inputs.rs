//! # What it shows
//! One rank has finished its batches and waits in what comes after the loop, while its peers are in another
//! step.
//!
//! # Why it happens
//! Shards of different length, a filter that drops samples on some ranks, early stopping decided locally.
//!
//! # Evidence
//! The odd call comes, in the function of the loop, after every line the group ever called from.
//!
//! # What looks like it but is not
//! An extra call inside the loop (extra-collective).
//!
//! # What to do
//! Even out the number of steps, or agree on stopping with a collective.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide, collective communication
//! semantics.

use ringleader_model::Cause;

use crate::drafting;
use crate::rule::{Outcome, Rule};
use crate::rules::calls::mismatch::outcome;
use ringleader_correlate::Scene;
use ringleader_correlate::calls::align::CallFault;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "uneven-inputs",
    title: "a rank left the loop before its peers",
    since: "0.1",
    doc: include_str!("uneven_inputs.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    outcome(scene, &RULE, Cause::UnevenInputs, |m| {
        let CallFault::LeftEarly = m.fault else { return None };
        let (odd, usual) = (drafting::who(&m.odd), drafting::ranks(&m.usual));
        let place = drafting::at(m.place.as_ref());
        let title = format!(
            "{odd} left the loop early and waits in {} (#{} of {}){place}; still in the loop: {usual}",
            m.odd_call, m.seq, m.group
        );
        let advice = format!(
            "give all ranks the same number of batches (drop_last, an even sampler), or use torch.distributed.algorithms.join; {odd} waits{place}"
        );
        Some((title, vec![advice]))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const USUAL: &str = "ar:8@main.50 ar:9@main.52 ar:8@main.50? ar:9@main.52?";

    #[test]
    fn behind_every_line_of_the_loop() {
        StagedCase::job(3)
            .dumps(&[USUAL, USUAL, "ar:8@main.50 ar:9@main.52 ar:1@main.90?"])
            .concludes(&RULE, "uneven-inputs 2 at main:90, medium");
    }

    #[test]
    fn an_extra_call_inside_the_loop() {
        StagedCase::job(3).dumps(&[USUAL, USUAL, "ar:8@main.50 ar:9@main.52 ar:1@main.51?"]).silent(&RULE);
    }
}
