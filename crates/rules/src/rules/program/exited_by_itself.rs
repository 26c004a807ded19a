//! # What it shows
//!
//! A rank ended by itself with an exit code of its own, and printed no exception.
//!
//! # Why it happens
//!
//! `sys.exit(3)` or `os._exit(3)` after a check of the program, or of a library that ends the process instead of raising.
//!
//! # Evidence
//!
//! The exit code that a launcher reports as the first failure.
//!
//! # What looks like it but is not
//!
//! Code 1 is what Python gives for any exception, whose traceback may be in another file; 2 is that of wrong arguments; from 120
//! on codes are those of shells and signals.
//!
//! # What to do
//!
//! Look for the code in the program.
//!
//! # References
//!
//! CPython documentation, sys.exit and os._exit; torch.distributed.elastic error propagation.

use ringleader_model::{Cause, Confidence, Impact, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::End;
use ringleader_correlate::when::failure::Way;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "exited-by-itself",
    title: "a rank ended by itself without an exception",
    since: "0.2",
    doc: include_str!("exited_by_itself.rs"),
    check,
};

/// Codes that only the program itself gives.
const OWN: std::ops::Range<i64> = 3..120;

fn check(scene: &Scene<'_>) -> Outcome {
    let has_more = !scene.claims().own_exceptions().is_empty() || scene.failure().has(Way::TimedOut);
    let own = scene.fates().all().filter_map(|(rank, fate)| match fate.end() {
        End::Exited(code) if OWN.contains(&code) => Some((rank, code, fate)),
        _ => None,
    });
    let all: Vec<_> = own.collect();
    let [(rank, code, fate)] = all.as_slice() else { return Outcome::from_findings(Vec::new()) };
    if has_more {
        return Outcome::from_findings(Vec::new());
    }
    let draft = Draft::new(
        RULE.id,
        Cause::ApplicationException,
        format!("rank {} ended by itself with exit code {code}, and nothing shows an exception", rank.0),
    )
    .weight(Weight::Derived)
    .confidence(Confidence::Medium)
    .culprits(drafting::culprits(scene, &[ringleader_correlate::track::RankOrSource::Rank(*rank)], None))
    .evidence(fate.evidence().iter().cloned())
    .advise(
        Impact::Harmless,
        format!(
            "look where the program, or a library that it uses, ends with {code}: sys.exit, os._exit, exit"
        ),
    );
    Outcome::from_findings(draft.build().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn a_code_of_the_program_itself() {
        let job = || StagedCase::new().two_ranks().failed(0, -15, false);
        job().failed(1, 3, true).concludes(&RULE, "application-exception 1, medium");
        // Any exception gives 1; a shell gives the others.
        job().failed(1, 1, true).silent(&RULE);
        job().failed(1, 137, true).silent(&RULE);
    }

    #[test]
    fn what_was_raised_says_more() {
        let job = StagedCase::new().two_ranks().failed(0, -15, false).failed(1, 3, true);
        job.raised(Some(1), "ValueError", "no such column", &[("/srv/job.py", 58, "load")]).silent(&RULE);
    }
}
