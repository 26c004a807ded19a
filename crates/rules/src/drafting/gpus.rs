//! From what a tool shows of a GPU to a draft: whose GPU it is, and how far a state or a counter may be believed.

use ringleader_knowledge::wording::TestFault;
use ringleader_model::{Cause, Confidence, Culprit, Evidence, Severity, Weight};

use super::TITLE_CHARS;
use crate::health;
use crate::rule::{Draft, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::add_culprit;
use ringleader_correlate::who::gpus::{SeenGpu, Use};

/// Citations of one finding.
const CITATIONS: usize = 6;

/// What an output proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The GPU does not work now: lost, not in the fabric, memory that cannot be repaired.
    Broken,
    /// Something happened since the driver was loaded; whether in this job is not known.
    Happened,
    /// It works slower than it should.
    Slow,
}

/// GPUs that show one fault, those that belong to the job most closely.
pub(crate) struct Shown<'s, 'a> {
    scene: &'s Scene<'a>,
    /// The first sighting of each GPU, with what it shows.
    gpus: Vec<(&'s SeenGpu<'a>, String)>,
    used: Use,
}

impl<'s, 'a> Shown<'s, 'a> {
    /// GPUs that `shows` accepts, with its words; None if there is none.
    pub(crate) fn of(scene: &'s Scene<'a>, shows: impl Fn(&SeenGpu<'a>) -> Option<String>) -> Option<Self> {
        let all = scene.gpus().seen.iter().filter_map(|gpu| Some((gpu, shows(gpu)?)));
        Self::from(scene, all.collect())
    }

    /// These; None if there is none.
    pub(crate) fn from(scene: &'s Scene<'a>, all: Vec<(&'s SeenGpu<'a>, String)>) -> Option<Self> {
        let used = all.iter().map(|(gpu, _)| gpu.used).max()?;
        let mut gpus: Vec<(&SeenGpu<'a>, String)> = Vec::new();
        for (gpu, text) in all {
            // Another GPU that no rank uses is not what failed the job.
            if gpu.used == used && !gpus.iter().any(|(known, _)| known.is_same(gpu)) {
                gpus.push((gpu, text));
            }
        }
        Some(Self { scene, gpus, used })
    }

    /// `GPU 3 (0000:3b:00.0) of rank 3`, `3 GPUs`.
    pub(crate) fn who(&self) -> String {
        match self.gpus.as_slice() {
            [(one, _)] => one.whose(),
            all => format!("{} GPUs", all.len()),
        }
    }

    /// The singular or the plural, by their number.
    pub(crate) fn word(&self, one: &'static str, several: &'static str) -> &'static str {
        if self.gpus.len() == 1 { one } else { several }
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<&'s SeenGpu<'a>> {
        self.gpus.first().map(|(gpu, _)| *gpu)
    }

    /// What the first of them shows.
    pub(crate) fn why(&self) -> &str {
        self.gpus.first().map_or("", |(_, why)| why)
    }

    /// The processes that use them.
    pub(crate) fn culprits(&self) -> Vec<Culprit> {
        let mut culprits = Vec::new();
        for (gpu, _) in &self.gpus {
            if gpu.culprit != Culprit::default() {
                add_culprit(&mut culprits, gpu.culprit.clone());
            }
        }
        culprits
    }

    /// What they show, cited.
    pub(crate) fn evidence(&self) -> impl Iterator<Item = Evidence> {
        self.gpus.iter().take(CITATIONS).map(|(gpu, text)| gpu.evidence(format!("{}: {text}", gpu.name())))
    }

    /// A draft that cites and names them.
    pub(crate) fn draft(&self, rule: &Rule, cause: Cause, proof: Proof, title: impl Into<String>) -> Draft {
        graded(self.scene, rule, cause, proof, self.used, title.into())
            .culprits(self.culprits())
            .evidence(self.evidence())
    }
}

/// A draft, as severe and as sure as the proof and the bond to the job allow.
pub(crate) fn graded(
    scene: &Scene<'_>,
    rule: &Rule,
    cause: Cause,
    proof: Proof,
    used: Use,
    title: String,
) -> Draft {
    let in_trouble = health::trouble(scene).is_some();
    let (severity, weight, confidence) = match (used, proof) {
        (Use::Other, _) => (Severity::Info, Weight::Derived, Confidence::Low),
        (Use::Unknown, Proof::Slow) => (Severity::Warning, Weight::Derived, Confidence::Low),
        (_, Proof::Slow) => (Severity::Warning, Weight::Derived, Confidence::Medium),
        (Use::Alone, Proof::Broken) => (Severity::Error, Weight::Stated, Confidence::High),
        (Use::Alone, Proof::Happened) => (Severity::Error, Weight::Derived, Confidence::Medium),
        (Use::Rank, Proof::Broken) if in_trouble => (Severity::Error, Weight::Stated, Confidence::High),
        (Use::Rank, Proof::Broken) => (Severity::Warning, Weight::Derived, Confidence::Medium),
        (Use::Rank, Proof::Happened) if in_trouble => (Severity::Error, Weight::Derived, Confidence::Medium),
        (Use::Unknown, Proof::Broken) if in_trouble => (Severity::Error, Weight::Derived, Confidence::Medium),
        (Use::Unknown, Proof::Broken) => (Severity::Warning, Weight::Derived, Confidence::Low),
        (Use::Unknown, Proof::Happened) if in_trouble => (Severity::Error, Weight::Derived, Confidence::Low),
        // A job that ran well on it: reported, not blamed.
        (_, Proof::Happened) => (Severity::Info, Weight::Derived, Confidence::Low),
    };
    Draft::new(rule.id, cause, title).severity(severity).weight(weight).confidence(confidence)
}

/// A finding from tests of dcgmi that failed by this fault.
pub(crate) fn failed_test(
    scene: &Scene<'_>,
    rule: &Rule,
    cause: Cause,
    proof: Proof,
    fault: TestFault,
) -> Option<Draft> {
    let failed = scene.gpus().failed_tests(scene.case(), scene.has_job(), fault)?;
    let title = match failed.evidence.as_slice() {
        [one] => one.text.chars().take(TITLE_CHARS).collect(),
        _ => format!("dcgmi's test {} fails", failed.name),
    };
    // The result of a test is as sure as what the driver itself shows.
    let draft = graded(scene, rule, cause, proof, failed.used, title);
    Some(draft.culprits(failed.culprits).evidence(failed.evidence))
}
