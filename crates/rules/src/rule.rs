//! What a rule is, and how it states a finding.

use ringleader_knowledge::cause::{self, Advice};
use ringleader_model::{
    Action, Category, Cause, Cite, Confidence, Culprit, Evidence, Finding, Impact, NamedCall, Need, RankSet,
    Severity, SourceKind, Weight,
};

use ringleader_correlate::Scene;

/// One rule: static facts about it and a pure function.
pub struct Rule {
    /// Kebab-case; names the fault. Never reused.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// First version that has it.
    pub since: &'static str,
    /// Documentation: the source of the rule's file (`include_str!`), whose doc comment counts, or plain text.
    /// `explain` prints it: see [`Rule::explanation`].
    pub doc: &'static str,
    /// Looks at the scene.
    pub check: fn(&Scene<'_>) -> Outcome,
}

impl Rule {
    /// The documentation; of a file, its doc comment without the marks.
    pub fn explanation(&self) -> String {
        if !self.doc.starts_with("//!") {
            return self.doc.to_owned();
        }
        let lines = self.doc.lines().map_while(|l| l.strip_prefix("//!"));
        lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect::<Vec<_>>().join("\n")
    }
}

/// What a rule answers.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing of its kind.
    Clear,
    /// Findings.
    Found(Vec<Finding>),
    /// Something is there, but this evidence would be needed to decide.
    Undecided(Vec<Need>),
}

impl Outcome {
    /// Found if there are findings, else clear.
    pub fn from_findings(findings: Vec<Finding>) -> Self {
        if findings.is_empty() { Self::Clear } else { Self::Found(findings) }
    }

    /// Found if a draft has evidence, else clear.
    pub fn from_drafts(drafts: impl IntoIterator<Item = Draft>) -> Self {
        Self::from_findings(drafts.into_iter().filter_map(Draft::build).collect())
    }

    /// Findings of drafts, after those of this outcome.
    #[must_use]
    pub fn with(self, drafts: impl IntoIterator<Item = Draft>) -> Self {
        let more: Vec<Finding> = drafts.into_iter().filter_map(Draft::build).collect();
        match self {
            Self::Found(mut findings) => {
                findings.extend(more);
                Self::Found(findings)
            }
            Self::Undecided(needs) if more.is_empty() => Self::Undecided(needs),
            Self::Clear | Self::Undecided(_) => Self::from_findings(more),
        }
    }
}

/// One finding or none.
pub(crate) fn found(draft: Draft) -> Outcome {
    Outcome::from_drafts([draft])
}

/// A finding in the making. [`Draft::build`] refuses one without evidence: what cannot be cited cannot be concluded.
#[derive(Debug)]
pub struct Draft(Finding, Confidence);

impl Draft {
    /// A finding of `rule` that names `cause`, stated by the failing rank or proven by records unless set otherwise.
    pub fn new(rule: &'static str, cause: Cause, title: impl Into<String>) -> Self {
        Self(
            Finding {
                rule,
                cause,
                category: cause::category(cause),
                severity: Severity::Error,
                confidence: Confidence::Medium,
                title: title.into(),
                culprits: Vec::new(),
                victims: RankSet::default(),
                evidence: Vec::new(),
                actions: Vec::new(),
                weight: Weight::Derived,
                at_ns: None,
                call: None,
                explains: &[],
                is_outright: false,
                yields_to: None,
            },
            Confidence::High,
        )
    }

    /// What the operator sees, where it is not the cause's usual category.
    #[must_use]
    pub fn category(mut self, category: Category) -> Self {
        self.0.category = category;
        self
    }

    /// How bad.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.0.severity = severity;
        self
    }

    /// How sure. Evidence of two kinds raises `Medium` to `High` in [`Draft::build`].
    #[must_use]
    pub fn confidence(mut self, confidence: Confidence) -> Self {
        self.0.confidence = confidence;
        self
    }

    /// No surer than this, however many kinds of evidence agree.
    #[must_use]
    pub fn at_most(mut self, confidence: Confidence) -> Self {
        self.1 = confidence;
        self
    }

    /// How directly it names a root.
    #[must_use]
    pub fn weight(mut self, weight: Weight) -> Self {
        self.0.weight = weight;
        self
    }

    /// When it happened, ns on the wall clock, if known.
    #[must_use]
    pub fn at(mut self, ns: Option<i64>) -> Self {
        self.0.at_ns = ns;
        self
    }

    /// The call that the title names.
    #[must_use]
    pub fn call(mut self, call: impl Into<Option<NamedCall>>) -> Self {
        self.0.call = call.into();
        self
    }

    /// Causes that this one brings about: findings of them by other rules are its echoes.
    #[must_use]
    pub fn explains(mut self, causes: &'static [Cause]) -> Self {
        self.0.explains = causes;
        self
    }

    /// Whether its signs are so rare, or so measured, that it holds against what the wording of the evidence resembles.
    #[must_use]
    pub fn outright(mut self, is_outright: bool) -> Self {
        self.0.is_outright = is_outright;
        self
    }

    /// A cause that explains this finding, even where it is only likely: it makes this one an echo.
    #[must_use]
    pub fn yields_to(mut self, cause: Cause) -> Self {
        self.0.yields_to = Some(cause);
        self
    }

    /// Adds a culprit.
    #[must_use]
    pub fn culprit(mut self, culprit: Culprit) -> Self {
        if !self.0.culprits.contains(&culprit) {
            self.0.culprits.push(culprit);
        }
        self
    }

    /// Adds culprits.
    #[must_use]
    pub fn culprits(self, culprits: impl IntoIterator<Item = Culprit>) -> Self {
        culprits.into_iter().fold(self, Self::culprit)
    }

    /// Sets the victims.
    #[must_use]
    pub fn victims(mut self, victims: RankSet) -> Self {
        self.0.victims = victims;
        self
    }

    /// Cites a line or record.
    #[must_use]
    pub fn cite(mut self, cite: Cite, kind: SourceKind, text: impl Into<String>) -> Self {
        let text = text.into();
        if !self.0.evidence.iter().any(|e| e.cite == cite && e.text == text) {
            self.0.evidence.push(Evidence { cite, text, kind });
        }
        self
    }

    /// Adds evidence already made.
    #[must_use]
    pub fn evidence(self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        evidence.into_iter().fold(self, |draft, e| draft.cite(e.cite, e.kind, e.text))
    }

    /// Adds an action without a command.
    #[must_use]
    pub fn advise(mut self, impact: Impact, text: impl Into<String>) -> Self {
        self.0.actions.push(Action { text: text.into(), command: None, impact });
        self
    }

    /// Adds an action with the command or setting to type.
    #[must_use]
    pub fn advise_command(self, impact: Impact, text: impl Into<String>, command: &'static str) -> Self {
        self.advise_made(impact, text, Some(command.to_owned()))
    }

    /// Adds an action with a command that was made for this case. Text of the evidence is untrusted and may be in it
    /// only as a [`ringleader_model::plain_word`]; otherwise the action has no command.
    #[must_use]
    pub fn advise_made(mut self, impact: Impact, text: impl Into<String>, command: Option<String>) -> Self {
        self.0.actions.push(Action { text: text.into(), command, impact });
        self
    }

    /// Adds actions of a table.
    #[must_use]
    pub fn advise_all(self, actions: &[Advice]) -> Self {
        actions.iter().fold(self, |draft, action| {
            let command = (!action.command.is_empty()).then(|| action.command.to_owned());
            draft.advise_made(action.impact, action.text, command)
        })
    }

    /// Commands about one GPU name it, where one alone is accused; the driver's tools take its PCI address for its index.
    fn name_gpu(&mut self) {
        let [Culprit { gpu: Some(gpu), .. }] = self.0.culprits.as_slice() else { return };
        for command in self.0.actions.iter_mut().filter_map(|action| action.command.as_mut()) {
            *command = command.replace("-i <index>", &format!("-i {gpu}"));
        }
    }

    /// The finding; None without evidence. Two independent kinds of evidence make a medium confidence high.
    pub fn build(mut self) -> Option<Finding> {
        self.name_gpu();
        let first = self.0.evidence.first()?.kind;
        let two_kinds = self.0.evidence.iter().any(|e| e.kind != first);
        if two_kinds && self.0.confidence == Confidence::Medium {
            self.0.confidence = Confidence::High;
        }
        self.0.confidence = self.0.confidence.min(self.1);
        Some(self.0)
    }
}
