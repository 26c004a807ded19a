//! # What it shows
//! All ranks make the same calls, but one makes some of them in another order.
//!
//! # Why it happens
//! Iteration over an unordered container, hooks that fire in the order of a graph that differs, two threads
//! that share a group.
//!
//! # Evidence
//! The odd rank's calls from the first difference on are the others' calls in another order; what follows is aligned
//! again.
//!
//! # What looks like it but is not
//! Two groups entered in different orders is a cycle over groups (deadlock-cycle). A rank that left out a call makes the
//! others' later ones, in their order; a changed size is followed by the same calls as before.
//!
//! # What to do
//! Fix the order.
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
    id: "collective-order-mismatch",
    title: "ranks call the same collectives in different orders",
    since: "0.1",
    doc: include_str!("collective_order_mismatch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    outcome(scene, &RULE, Cause::CollectiveOrderMismatch, |m| {
        let CallFault::Order = m.fault else { return None };
        let (odd, usual) = (drafting::who(&m.odd), drafting::ranks(&m.usual));
        let title = format!(
            "{odd} called {} before {} (#{} of {}); {usual} the other way round",
            m.odd_call, m.usual_call, m.seq, m.group
        );
        let place = drafting::at(m.place.as_ref());
        let advice = format!(
            "issue the two calls in one order on all ranks{place}: no iteration over sets or unordered dicts, no race between threads"
        );
        Some((title, vec![advice]))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn two_calls_the_other_way_round() {
        let usual = "ar:1 ar:100? bc:5? ar:1?";
        StagedCase::job(3)
            .dumps(&[usual, usual, "ar:1 bc:5@44? ar:100? ar:1?"])
            .concludes(&RULE, "collective-order-mismatch 2 at step:44, high");
    }

    #[test]
    fn all_calls_of_a_step_in_another_order() {
        let steps = "ar:9 ar:5 ar:1 ".repeat(6);
        let rings = |odd: &str, usual: &str| {
            let (odd, usual) = (format!("{steps}{odd}"), format!("{steps}{usual}"));
            StagedCase::job(4).rings(&[&usual, &odd, &usual, &usual])
        };
        let usual = "ar:9? ar:5? ar:1? ar:3?";
        rings("ar:1? ar:5? ar:9? ar:3?", usual).concludes(&RULE, "collective-order-mismatch 1, high");
        let title = rings("ar:1? ar:5? ar:9? ar:3?", usual).finding(&RULE).title;
        assert!(
            title.starts_with("rank 1 called all_reduce of 1 Float before all_reduce of 9 Float"),
            "{title}"
        );
        rings("ar:1? ar:5? ar:9?", "ar:9? ar:5? ar:1?").concludes(&RULE, "collective-order-mismatch 1, high");
        // Turned round as a whole: the first one was left out, and these are the calls up to the next one.
        rings("ar:5? ar:1? ar:9?", "ar:9? ar:5? ar:1?").silent(&RULE);
        // One of them has another size.
        rings("ar:2? ar:5? ar:1? ar:3?", usual).silent(&RULE);
        // One of them was left out, and one is one too many.
        rings("ar:5? ar:1? ar:3?", usual).silent(&RULE);
        rings("ar:7? ar:9? ar:5? ar:1?", usual).silent(&RULE);
    }

    #[test]
    fn two_groups_the_other_way_round_are_a_cycle() {
        let job = StagedCase::job(2).group("a", 0..2).group("b", 0..2);
        job.dumps(&["a/ar:1? b/bc:1?", "b/bc:1? a/ar:1?"]).silent(&RULE);
    }
}
