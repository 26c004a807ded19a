//! Conclusions: findings of single rules, and the verdict that orders them.

use std::fmt;

use crate::{Cause, Cite, Frame, Host, LocalRank, PciAddress, Pid, Rank, RankSet};

/// How certain a conclusion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// One indirect sign.
    Low,
    /// One kind of evidence that clearly indicates it.
    Medium,
    /// Two independent kinds of evidence, or a direct statement by the failing rank.
    High,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Slows the job but does not stop it.
    Warning,
    /// Stops the job or corrupts its results.
    Error,
}

/// Impact of an action on the job and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Impact {
    /// Only reads, or affects only the next run.
    Harmless,
    /// Stops or restarts the job or a service.
    Disruptive,
    /// Loses state that cannot be recovered.
    Destructive,
}

/// The symptom that the operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Nothing wrong.
    None,
    /// Ranks wait forever.
    Hang,
    /// An error is reported.
    Error,
    /// A process died.
    Crash,
    /// Wrong values.
    Corruption,
    /// The job is slow.
    Performance,
    /// The job did not get started.
    Init,
}

macro_rules! names {
    ($type:ty { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// Stable name, as printed in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names!(Confidence { Low => "low", Medium => "medium", High => "high" });
names!(Severity { Info => "info", Warning => "warning", Error => "error" });
names!(Impact { Harmless => "harmless", Disruptive => "disruptive", Destructive => "destructive" });
names!(Category {
    None => "none", Hang => "hang", Error => "error", Crash => "crash", Corruption => "corruption",
    Performance => "performance", Init => "init",
});

/// A process that a finding names, with everything known about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Culprit {
    /// Global rank.
    pub rank: Option<Rank>,
    /// Host.
    pub host: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
    /// Local rank.
    pub local_rank: Option<LocalRank>,
    /// GPU.
    pub gpu: Option<PciAddress>,
    /// Place in the user's code.
    pub place: Option<Frame>,
}

/// One cited piece of evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Where it was read.
    pub cite: Cite,
    /// The text there, or for binary formats the content of the record.
    pub text: String,
    /// The kind of its source, to count independent kinds.
    pub kind: crate::SourceKind,
}

/// A recommended action.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// What to do, in one sentence.
    pub text: String,
    /// Command or setting to type, if there is one.
    pub command: Option<String>,
    /// Its impact.
    pub impact: Impact,
}

/// The conclusion of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Rule id.
    pub rule: &'static str,
    /// What went wrong.
    pub cause: Cause,
    /// The symptom, if it differs from the cause's usual category.
    pub category: Category,
    /// How serious it is.
    pub severity: Severity,
    /// How certain it is.
    pub confidence: Confidence,
    /// First line of the finding; self-contained within 80 columns.
    pub title: String,
    /// Processes at fault.
    pub culprits: Vec<Culprit>,
    /// Ranks that are affected.
    pub victims: RankSet,
    /// Evidence; never empty.
    pub evidence: Vec<Evidence>,
    /// Recommended actions.
    pub actions: Vec<Action>,
    /// How directly this states a root: see `rules::verdict`.
    pub weight: Weight,
    /// When it happened, ns on the aligned clock, if known: of equal findings the earlier one wins.
    pub at_ns: Option<i64>,
    /// The call that the title names.
    pub call: Option<NamedCall>,
    /// Causes that this one brings about: findings of them by other rules are echoes of this one.
    pub explains: &'static [Cause],
    /// Its signs are rare or measured: it holds against what the wording of the evidence resembles.
    pub is_outright: bool,
    /// A cause that explains this finding, even where it is only likely.
    pub yields_to: Option<Cause>,
}

/// A call by the name of its group and its number there: `#45 of default_pg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCall {
    /// Group, for people.
    pub group: String,
    /// Its number.
    pub number: u64,
}

/// Priority of a finding when findings are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// Worth mentioning, but never decides.
    Aside,
    /// Known to be a consequence if something else explains it.
    Echo,
    /// A symptom that many causes share (a peer is gone, a rank is behind).
    Symptom,
    /// A cause derived from how the ranks differ.
    Derived,
    /// A cause that the failing rank states itself, or that the operation records prove.
    Stated,
}

/// An open question, and the command that would answer it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The question.
    pub question: String,
    /// The command that answers it.
    pub command: String,
    /// What it asks for.
    pub asks: Asks,
}

/// What an open question asks for. Reports print some of these elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// A fact that the evidence lacks.
    #[default]
    Fact,
    /// What a line means that no finding accounts for.
    Line,
    /// Which of several causes fits such lines.
    Candidates,
    /// Which of several jobs in the evidence is meant.
    Job,
}

/// The conclusion on a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What went wrong, including `None` and `Undecided`.
    pub cause: Cause,
    /// Category.
    pub category: Category,
    /// How certain it is.
    pub confidence: Confidence,
    /// What went wrong, in one sentence.
    pub summary: String,
    /// Processes at fault.
    pub culprits: Vec<Culprit>,
    /// Ranks that are affected.
    pub victims: RankSet,
    /// Recommended actions.
    pub actions: Vec<Action>,
    /// All findings, the deciding one first.
    pub findings: Vec<Finding>,
    /// Open questions.
    pub needs: Vec<Need>,
    /// The ranks of a job that runs, outliers first; empty for recorded jobs.
    pub ranks: Vec<RankLook>,
}

/// How the process of a rank was seen in a job that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LookState {
    /// No process of the rank is visible.
    #[default]
    Missing,
    /// The kernel's letter of its state.
    Letter(Box<str>),
}

impl LookState {
    /// Stable name, as printed in reports.
    pub fn name(&self) -> &str {
        match self {
            Self::Missing => "missing",
            Self::Letter(letter) => letter,
        }
    }

    /// Whether its process has ended, or is not there.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::Letter(letter) => matches!(&**letter, "Z" | "X"),
        }
    }
}

/// One rank of a job that runs, from two readings some seconds apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankLook {
    /// Rank.
    pub rank: u32,
    /// Host.
    pub host: Option<Box<str>>,
    /// Process; None for a rank that is not visible.
    pub pid: Option<u32>,
    /// How its process was seen.
    pub state: LookState,
    /// Processor time since its start, milliseconds.
    pub cpu_ms: Option<u64>,
    /// Share of one processor between the readings.
    pub busy: Option<f64>,
    /// Innermost frame of the program's own code.
    pub place: Option<Frame>,
    /// What it waits for or does, in words.
    pub waits_for: Option<String>,
    /// The kind of what it does, an id of `knowledge::place`.
    pub activity: Option<&'static str>,
    /// Whether it moved between the readings; None if that is unknown.
    pub has_moved: Option<bool>,
    /// Time between the readings, seconds.
    pub apart_s: f64,
}
