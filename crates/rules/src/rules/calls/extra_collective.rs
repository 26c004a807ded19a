//! # What it shows
//! One rank called a collective that no other rank of the group calls, and waits in it while the others wait
//! in the next regular one.
//!
//! # Why it happens
//! Logging, validation or a metric reduced on one rank only; a branch on a local condition.
//!
//! # Evidence
//! The calls that follow fit once the extra ones are taken out; or the call is alone, at a place in the
//! code and of a kind that no rank of the group ever used before.
//!
//! # What looks like it but is not
//! A call of another kind in the place of the usual one (op-mismatch): the calls after it are aligned without
//! a shift. A rank that has left the training loop and waits in what follows it (uneven-inputs).
//!
//! # What to do
//! Let all ranks call it, or none.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide, collective communication
//! semantics.

use ringleader_model::Cause;

use crate::drafting;
use crate::rule::{Outcome, Rule};
use crate::rules::calls::mismatch::{and_more, outcome};
use ringleader_correlate::Scene;
use ringleader_correlate::calls::align::CallFault;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "extra-collective",
    title: "a rank called a collective that its peers do not call",
    since: "0.1",
    doc: include_str!("extra_collective.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    outcome(scene, &RULE, Cause::ExtraCollective, |m| {
        let CallFault::Extra(n) = m.fault else { return None };
        let (odd, usual) = (drafting::who(&m.odd), drafting::ranks(&m.usual));
        let title = format!(
            "{odd} called {} #{} of {}{}, a call that {usual} never made",
            m.odd_call,
            m.seq,
            m.group,
            and_more(n)
        );
        let place = drafting::at(m.place.as_ref());
        let advice = format!(
            "move the call{place} out of the branch that only this rank takes, or give it a group of its own"
        );
        Some((title, vec![advice]))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const USUAL: &str = "ar:100 ar:50 ar:100? ar:50? ar:100?";

    #[test]
    fn what_follows_fits_without_the_call() {
        StagedCase::job(3)
            .dumps(&[USUAL, "ar:100 ar:50 bc:1@77? ar:100? ar:50?", USUAL])
            .concludes(&RULE, "extra-collective 1 at step:77, high");
    }

    #[test]
    fn a_call_nobody_ever_made() {
        StagedCase::job(3)
            .dumps(&[USUAL, USUAL, "ar:100 ar:50 bc:1@77?"])
            .concludes(&RULE, "extra-collective 2 at step:77, medium");
    }

    #[test]
    fn a_call_like_one_of_another_line() {
        let usual = "ar:100@20 ar:1@40 ar:100@20?";
        StagedCase::job(3)
            .dumps(&[usual, usual, "ar:100@20 ar:1@40 ar:1@30?"])
            .concludes(&RULE, "extra-collective 2 at step:30, medium");
    }

    #[test]
    fn the_next_call_comes_at_once_where_others_work_first() {
        let job = || StagedCase::job(3).group("world", 0..3).group("dp", 0..3);
        let usual = "ar:1@40 dp/ar:8@20*3 ar:1@40 dp/ar:8@20? dp/ar:8@20? dp/ar:8@20? ar:1@40?";
        job()
            .dumps(&[usual, usual, "ar:1@40 dp/ar:8@20*3 ar:1@77 ar:1@40?"])
            .concludes(&RULE, "extra-collective 2 at step:77, high");
        // Another branch of the same step: the work between its call and the next one is done.
        job()
            .dumps(&[
                usual,
                usual,
                "ar:1@40 dp/ar:8@20*3 ar:1@77 dp/ar:8@20? dp/ar:8@20? dp/ar:8@20? ar:1@40?",
            ])
            .silent(&RULE);
    }

    #[test]
    fn another_kind_in_the_place_of_the_usual_one() {
        StagedCase::job(3).dumps(&[USUAL, USUAL, "ar:100 ar:50 bc:1? ar:50? ar:100?"]).silent(&RULE);
    }

    #[test]
    fn behind_the_loop() {
        let usual = "ar:8@main.50 ar:9@main.52 ar:8@main.50? ar:9@main.52?";
        StagedCase::job(3).dumps(&[usual, usual, "ar:8@main.50 ar:9@main.52 bc:1@main.90?"]).silent(&RULE);
    }
}
