//! The skeleton of rules about ranks whose calls differ from those of their group: each rule picks one kind of mismatch
//! and says what it is and what to do; whom to name, how sure it is and what proves it is the same for all.

use ringleader_correlate::Scene;
use ringleader_correlate::calls::mismatch::Mismatch;
use ringleader_model::{Cause, Confidence, Finding, Impact, NamedCall, Severity, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};

/// What a rule says of a mismatch of its kind: the title, and what to do.
pub(super) type Words = (String, Vec<String>);

/// The outcome of a rule that `says` something of mismatches of one kind.
pub(super) fn outcome(
    scene: &Scene<'_>,
    rule: &Rule,
    cause: Cause,
    says: impl Fn(&Mismatch) -> Option<Words>,
) -> Outcome {
    Outcome::from_findings(findings(scene, rule, cause, says))
}

/// A finding for each mismatch that `says` accepts.
pub(super) fn findings(
    scene: &Scene<'_>,
    rule: &Rule,
    cause: Cause,
    says: impl Fn(&Mismatch) -> Option<Words>,
) -> Vec<Finding> {
    let found = scene.mismatches().iter().filter_map(|m| {
        let (title, advice) = says(m)?;
        let draft = draft(scene, rule, cause, m, title);
        advice.into_iter().fold(draft, |draft, text| draft.advise(Impact::Harmless, text)).build()
    });
    found.collect()
}

/// `rank 2 called A where ranks 0-1,3 called B (#45 of world)`.
pub(super) fn instead(m: &Mismatch) -> String {
    let (odd, usual) = (drafting::who(&m.odd), drafting::ranks(&m.usual));
    format!("{odd} called {} where {usual} called {} (#{} of {})", m.odd_call, m.usual_call, m.seq, m.group)
}

/// ` and 2 more`, where one of `n` calls is named.
pub(super) fn and_more(n: u32) -> String {
    if n > 1 { format!(" and {} more", n - 1) } else { String::new() }
}

/// A draft about one mismatch.
fn draft(scene: &Scene<'_>, rule: &Rule, cause: Cause, m: &Mismatch, title: String) -> Draft {
    // The job went on after it, and now a rank holds the others up: that is why it is stalled.
    let is_over = m.is_bygone && scene.ledger().is_stalled() && !scene.suspects().is_empty();
    let mut draft = Draft::new(rule.id, cause, title)
        .call(NamedCall { group: m.group.clone(), number: m.seq.into() })
        .severity(Severity::Error)
        .weight(if m.halves || is_over { Weight::Derived } else { Weight::Stated })
        .confidence(if m.halves {
            // Calls that ended long ago differ for certain; whose is wrong the other calls of two ranks do not show.
            if m.is_bygone && !is_over { Confidence::Medium } else { Confidence::Low }
        } else if m.n_confirmed > usize::from(m.odd.len() == m.usual.len()) {
            // Of as many ranks on either side, one call that fits may fit by chance. Operation records are the failing
            // rank's own account of what it called.
            Confidence::High
        } else {
            Confidence::Medium
        })
        .victims(m.victims.clone())
        .evidence(m.evidence.iter().cloned())
        .culprits(drafting::culprits(scene, &m.odd, m.place.as_ref()))
        .at(m.at_ns);
    if m.halves {
        draft = draft.advise(
            Impact::Harmless,
            format!(
                "equally many ranks make each call: compare the code paths of {} and {}",
                drafting::who(&m.odd),
                drafting::ranks(&m.usual)
            ),
        );
    }
    draft
}
