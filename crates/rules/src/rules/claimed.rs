//! Rules that need nothing but a message: each is a row of [`ringleader_knowledge::claim`].

use ringleader_correlate::Scene;
use ringleader_knowledge::claim;

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};

/// The rule of one row.
pub(super) const fn rule<const ROW: usize>() -> Rule {
    let row = claim::at(ROW);
    Rule { id: row.id, title: row.rule, since: row.since, doc: row.doc, check: check::<ROW> }
}

fn check<const ROW: usize>(scene: &Scene<'_>) -> Outcome {
    let row = claim::at(ROW);
    let Some(told) = ClaimsOfCause::of(scene, row.cause) else { return Outcome::Clear };
    found(told.draft(&rule::<ROW>(), row.cause, row.title(&told.who())).advise_all(row.advice))
}

#[cfg(test)]
mod tests;
