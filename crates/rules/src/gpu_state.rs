//! From what a tool shows of a GPU to a finding: whose GPU it is, and how far a state or a counter may be believed.

use ringleader_model::{Cause, Confidence, Culprit, Evidence, Finding, Severity, SourceKind, Weight};

use crate::health;
use crate::rule::{Draft, Rule};
use crate::told::add_culprit;
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::{SeenGpu, Use, failed_tests};

/// Citations of one finding.
const CITATIONS: usize = 6;

/// What an output proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The GPU does not work now: lost, not in the fabric, memory that cannot be repaired.
    Broken,
    /// Something happened since the driver was loaded; whether in this job is not told.
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
    /// GPUs of which `shows` says something; None if there is none.
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

    /// The word that fits their number.
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

    /// Whom they mean.
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

/// A draft as grave and as sure as the proof and the bond to the job allow.
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
        // A job that ran well on it: told, not blamed.
        (_, Proof::Happened) => (Severity::Info, Weight::Derived, Confidence::Low),
    };
    Draft::new(rule.id, cause, title).severity(severity).weight(weight).confidence(confidence)
}

/// A finding from tests of dcgmi that failed and that `is_it` accepts by name and warning.
pub(crate) fn failed_test(
    scene: &Scene<'_>,
    rule: &Rule,
    cause: Cause,
    proof: Proof,
    is_it: impl Fn(&str, &str) -> bool,
) -> Option<Draft> {
    let mut used = None;
    let mut culprits = Vec::new();
    let mut evidence = Vec::new();
    let mut name = "";
    for (observation, _, test) in failed_tests(scene.case()) {
        let warnings = test.warnings.join(" ").to_ascii_lowercase();
        if !is_it(&test.name.to_ascii_lowercase(), &warnings) {
            continue;
        }
        let gpu = test.gpu.and_then(|index| scene.gpus().by_index(observation, index));
        let mine = match gpu {
            Some(gpu) => gpu.used,
            None if scene.has_job() => Use::Unknown,
            None => Use::Alone,
        };
        used = used.max(Some(mine));
        if let Some(gpu) = gpu {
            add_culprit(&mut culprits, gpu.culprit.clone());
        }
        if evidence.len() < CITATIONS {
            let of = test.gpu.map_or(String::new(), |g| format!(" on GPU {g}"));
            let warning = test.warnings.first().map_or(String::new(), |w| format!(": {w}"));
            let mut cite = observation.cite;
            if test.line > 0 {
                cite.line = test.line;
            }
            let text = format!("dcgmi's test {} fails{of}{warning}", test.name);
            evidence.push(Evidence { cite, text, kind: SourceKind::Dcgmi });
            name = &test.name;
        }
    }
    let title = format!("dcgmi's test {name} fails");
    let title = match evidence.as_slice() {
        [one] => one.text.chars().take(100).collect(),
        _ => title,
    };
    // A test that was made says what is, as surely as the driver itself.
    Some(graded(scene, rule, cause, proof, used?, title).culprits(culprits).evidence(evidence))
}

/// Findings of drafts, after those that a rule has already.
pub(crate) fn with(
    found: crate::rule::Outcome,
    drafts: impl IntoIterator<Item = Draft>,
) -> crate::rule::Outcome {
    use crate::rule::Outcome;
    let more: Vec<Finding> = drafts.into_iter().filter_map(Draft::build).collect();
    match found {
        Outcome::Found(mut findings) => {
            findings.extend(more);
            Outcome::Found(findings)
        }
        Outcome::Undecided(needs) if more.is_empty() => Outcome::Undecided(needs),
        Outcome::Clear | Outcome::Undecided(_) => Outcome::from_findings(more),
    }
}

/// A card that plugs into PCIe, alone or bridged to a neighbour, by its name: no NVSwitch is behind it.
pub(crate) fn is_card(name: &str) -> bool {
    ["PCI", "NVL", "RTX", "GeForce"].iter().any(|sort| name.contains(sort))
}
