//! From claims to a finding: who said it, when, with which words.

use ringleader_knowledge::saying::Role;
use ringleader_knowledge::variable;
use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{Cite, Confidence, Culprit, Severity, Weight};

use crate::rule::{Draft, Rule};
use ringleader_correlate::{Claim, Scene};

pub(crate) use ringleader_correlate::who::culprits::{add_culprit, who};

/// Citations of one finding: more lines of the same kind prove nothing more.
const CITATIONS: usize = 6;

/// Claims of one cause.
pub(crate) struct Told<'s, 'a> {
    scene: &'s Scene<'a>,
    claims: Vec<&'s Claim<'a>>,
}

impl<'s, 'a> Told<'s, 'a> {
    /// Claims of `cause`, earliest first; None if there is none.
    pub(crate) fn of(scene: &'s Scene<'a>, cause: &str) -> Option<Self> {
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
        self.claims.iter().all(|c| ended_in_order(self.scene, c.cite))
    }

    /// Where the claims stand.
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
    pub(crate) fn draft(&self, rule: &Rule, cause: &'static str, title: impl Into<String>) -> Draft {
        self.draft_naming(rule, cause, title, self.culprits())
    }

    /// A draft with these claims cited, which names others than their speakers.
    pub(crate) fn draft_naming(
        &self,
        rule: &Rule,
        cause: &'static str,
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

/// The oldest NCCL release that a process of the case says it runs.
pub(crate) fn nccl_version(scene: &Scene<'_>) -> Option<NcclVersion> {
    let processes = scene.nccl_logs().flat_map(|(_, log)| &log.processes);
    processes.filter_map(|p| p.nccl_version.as_deref().and_then(NcclVersion::parse)).min()
}

/// Whether advice to set this variable makes sense here: true unless the release is known and does not read it.
pub(crate) fn reads_variable(scene: &Scene<'_>, name: &str) -> bool {
    variable::is_read_by(name, nccl_version(scene)) != Some(false)
}

/// Whether a communicator was ever ready beside these statements: the job that they are of got going.
pub(crate) fn got_going(scene: &Scene<'_>, beside: impl IntoIterator<Item = Cite>) -> bool {
    let folders: Vec<&str> = beside.into_iter().map(|cite| scene.folder(cite)).collect();
    scene.nccl_logs().any(|(observation, log)| {
        // Logs of another folder may be of another attempt.
        let near = folders.is_empty() || folders.contains(&scene.folder(observation.cite));
        near && log.comms.iter().any(|c| c.completed.is_some())
    })
}

/// Every communicator beside this statement was destroyed in order, and no process is known to have failed.
pub(crate) fn ended_in_order(scene: &Scene<'_>, beside: Cite) -> bool {
    let folder = scene.folder(beside);
    let mut comms = scene
        .nccl_logs()
        .filter(|(log_of, _)| scene.folder(log_of.cite) == folder)
        .flat_map(|(_, log)| &log.comms)
        .filter(|c| c.completed.is_some())
        .peekable();
    !scene.failure().ended_process() && comms.peek().is_some() && comms.all(|c| c.destroyed.is_some())
}

/// One finding or none.
pub(crate) fn found(draft: Draft) -> crate::rule::Outcome {
    crate::rule::Outcome::from_findings(draft.build().into_iter().collect())
}
