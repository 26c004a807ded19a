//! Conclusions: findings of single rules, and the verdict that orders them.

use std::fmt;

use crate::{Cause, Cite, Frame, Host, LocalRank, PciAddress, Pid, Rank, RankSet};

/// How sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// One indirect sign.
    Low,
    /// One kind of evidence that points clearly.
    Medium,
    /// Two independent kinds of evidence, or a direct statement by the failing rank.
    High,
}

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Hurts, does not stop the job.
    Warning,
    /// Stops the job or spoils its results.
    Error,
}

/// What an action costs the job and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Impact {
    /// Reads only, or changes the next run only.
    Harmless,
    /// Stops or restarts the job or a service.
    Disruptive,
    /// Loses state that cannot be had again.
    Destructive,
}

/// What the operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Nothing wrong.
    None,
    /// Ranks wait for ever.
    Hang,
    /// An error is reported.
    Error,
    /// A process dies.
    Crash,
    /// Wrong values.
    Corruption,
    /// Slow.
    Performance,
    /// The job never got going.
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

/// Whom a finding names, with everything known of it.
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
    /// Where it stands.
    pub cite: Cite,
    /// What stands there, or for binary formats what the record says.
    pub text: String,
    /// The kind of source it comes from, to count independent kinds.
    pub kind: crate::SourceKind,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// One sentence.
    pub text: String,
    /// Command or setting to type, if there is one.
    pub command: Option<String>,
    /// What it costs.
    pub impact: Impact,
}

/// What one rule concludes.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Rule id.
    pub rule: &'static str,
    /// What went wrong.
    pub cause: Cause,
    /// What the operator sees, where it differs from the cause's usual category.
    pub category: Category,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// First line of the finding; stands alone at 80 columns.
    pub title: String,
    /// Who.
    pub culprits: Vec<Culprit>,
    /// Who suffers.
    pub victims: RankSet,
    /// Proof; never empty.
    pub evidence: Vec<Evidence>,
    /// What to do.
    pub actions: Vec<Action>,
    /// How directly this states a root: see `rules::verdict`.
    pub weight: Weight,
    /// When the thing happened, ns on the aligned clock, if known: earlier beats later between equals.
    pub at_ns: Option<i64>,
}

/// How a finding stands to the others when they are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// Worth a word, and no cause by itself: it never decides.
    Aside,
    /// Known to be a consequence wherever something else explains it.
    Echo,
    /// A symptom that many causes share (a peer is gone, a rank is behind).
    Symptom,
    /// A cause shown by how the ranks differ.
    Derived,
    /// A cause the failing rank states itself, or that the operation records prove.
    Stated,
}

/// Something that is not known, and the command that would tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The question.
    pub question: String,
    /// The command that answers it.
    pub command: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What went wrong; `None` or `Undecided` too.
    pub cause: Cause,
    /// Category.
    pub category: Category,
    /// How sure.
    pub confidence: Confidence,
    /// One sentence.
    pub summary: String,
    /// Who.
    pub culprits: Vec<Culprit>,
    /// Who suffers.
    pub victims: RankSet,
    /// What to do.
    pub actions: Vec<Action>,
    /// All findings, the one that decided first.
    pub findings: Vec<Finding>,
    /// Open questions.
    pub needs: Vec<Need>,
}
