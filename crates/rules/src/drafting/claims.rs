//! From claims to a draft: who printed them, when, with which words.

use ringleader_knowledge::message::Role;
use ringleader_model::{Cause, Cite, Confidence, Culprit, Severity, Weight};

use crate::rule::{Draft, Rule};
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::{Claim, Scene};

/// Citations of one finding: more lines of the same kind prove nothing more.
const CITATIONS: usize = 6;

/// Claims of one cause.
pub(crate) struct ClaimsOfCause<'s, 'a> {
    scene: &'s Scene<'a>,
    claims: Vec<&'s Claim<'a>>,
}

impl<'s, 'a> ClaimsOfCause<'s, 'a> {
    /// Claims of `cause`, earliest first; None if there are none.
    pub(crate) fn of(scene: &'s Scene<'a>, cause: Cause) -> Option<Self> {
        Self::from(scene, scene.claims().of(cause).collect())
    }

    /// These claims; None if there is none.
    pub(crate) fn from(scene: &'s Scene<'a>, mut claims: Vec<&'s Claim<'a>>) -> Option<Self> {
        // Stable: without times the order of the sources stays.
        claims.sort_by_key(|c| (c.at_ns.is_none(), c.at_ns));
        (!claims.is_empty()).then_some(Self { scene, claims })
    }

    /// The claims, earliest first.
    pub(crate) fn claims(&self) -> &[&'s Claim<'a>] {
        &self.claims
    }

    /// Whether the job went on to its end in spite of what was said.
    fn ended_in_order(&self) -> bool {
        self.claims.iter().all(|c| self.scene.course().closed_in_order(c.cite))
    }

    /// Citations of the claims.
    pub(crate) fn cites(&self) -> impl Iterator<Item = Cite> + '_ {
        self.claims.iter().map(|c| c.cite)
    }

    /// Whether one of the claims states the cause, rather than only suggests it.
    pub(crate) fn is_stated(&self) -> bool {
        self.claims.iter().any(|c| c.saying.role == Role::States)
    }

    /// Who said it, earliest first, each process once.
    pub(crate) fn culprits(&self) -> Vec<Culprit> {
        let mut culprits: Vec<Culprit> = Vec::new();
        for claim in &self.claims {
            if claim.who.is_nobody() {
                continue;
            }
            let mut new = self.scene.culprit(&claim.who);
            new.place = claim.place().cloned();
            add_culprit(&mut culprits, new);
        }
        culprits
    }

    /// `rank 2`, `ranks 0-1,3`, `node2 (pid 3173)`, `one process`.
    pub(crate) fn who(&self) -> String {
        who(&self.culprits())
    }

    /// A draft with these claims cited and their speakers as culprits.
    pub(crate) fn draft(&self, rule: &Rule, cause: Cause, title: impl Into<String>) -> Draft {
        self.draft_naming(rule, cause, title, self.culprits())
    }

    /// A draft with these claims cited, which names others than their speakers.
    pub(crate) fn draft_naming(
        &self,
        rule: &Rule,
        cause: Cause,
        title: impl Into<String>,
        culprits: Vec<Culprit>,
    ) -> Draft {
        let ended = self.ended_in_order();
        let (weight, confidence) = if ended {
            // The program caught it and went on.
            (Weight::Symptom, Confidence::Low)
        } else if self.is_stated() {
            (Weight::Stated, Confidence::High)
        } else {
            (Weight::Derived, Confidence::Medium)
        };
        // What states the cause is cited before what only suggests it.
        let stated = self.claims.iter().filter(|c| c.saying.role == Role::States);
        let suggested = self.claims.iter().filter(|c| c.saying.role != Role::States);
        let mut cited: Vec<&&Claim<'_>> = Vec::new();
        for claim in stated.chain(suggested) {
            let repeats = cited.iter().any(|c| c.text == claim.text && c.who == claim.who);
            if !repeats && cited.len() < CITATIONS {
                cited.push(claim);
            }
        }
        Draft::new(rule.id, cause, title)
            .weight(weight)
            .confidence(confidence)
            .severity(if ended { Severity::Warning } else { Severity::Error })
            .at_most(if ended { Confidence::Low } else { Confidence::High })
            .at(self.claims.iter().find_map(|c| c.at_ns))
            .culprits(culprits)
            .evidence(cited.iter().map(|c| c.evidence()))
    }
}
