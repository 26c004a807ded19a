//! Texts that settle or suggest a cause, whoever prints them: NCCL, CUDA, torch, Python, gloo, a launcher.
//!
//! The table is ordered: the first row that fits a text is its meaning, so narrow rows stand above wide ones. It is
//! the one place that says which texts are consequences or harmless, so that no two rules differ about it.

use ringleader_model::Cause;

use crate::tables::SAYINGS;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saying {
    /// What it names; None for echoes and harmless texts, and for them alone.
    pub cause: Option<Cause>,
    /// How far it reaches.
    pub role: Role,
    /// Whose text it is.
    pub by: By,
    /// One of these must occur (if any are given).
    pub any: &'static [&'static str],
    /// All of these must occur.
    pub all: &'static [&'static str],
    /// None of these may occur.
    pub none: &'static [&'static str],
    /// The source file that prints it begins with one of these (if any are given); NCCL only.
    pub file: &'static [&'static str],
    /// One sentence: what it means.
    pub means: &'static str,
    /// Where that is known from.
    pub cite: &'static str,
}

/// How far a text reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Harmless.
    Benign,
    /// A consequence of something else: names no cause.
    Echo,
    /// Usually this cause, but others print it too.
    Suggests,
    /// This cause.
    States,
}

/// Who prints a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Anybody.
    Any,
    /// NCCL itself (its log, or torch's quote of its last error).
    Nccl,
    /// Anybody but NCCL.
    Program,
}

/// All rows, in the order in which they are tried.
pub fn all() -> &'static [Saying] {
    SAYINGS
}

/// What `text` says; `origin` is the source file that printed it (`transport/nvls.cc:165`, empty if unknown).
pub fn of(text: &str, origin: &str, by_nccl: bool) -> Option<&'static Saying> {
    SAYINGS.iter().find(|s| s.fits(text, origin, by_nccl))
}

impl Saying {
    fn fits(&self, text: &str, origin: &str, by_nccl: bool) -> bool {
        let speaker = match self.by {
            By::Any => true,
            By::Nccl => by_nccl,
            By::Program => !by_nccl,
        };
        speaker
            && (self.file.is_empty() || self.file.iter().any(|f| origin.starts_with(f)))
            && (self.any.is_empty() || self.any.iter().any(|part| text.contains(part)))
            && self.all.iter().all(|part| text.contains(part))
            && !self.none.iter().any(|part| text.contains(part))
    }
}
