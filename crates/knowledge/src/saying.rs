//! Texts that state or suggest a cause, from any program: NCCL, CUDA, torch, Python, gloo, a launcher.
//!
//! The table is ordered: the first row that matches a text gives its meaning, so narrow rows precede wide ones. It
//! is the only place that decides which texts are consequences or harmless, so no two rules disagree about it.

use ringleader_model::Cause;

use crate::message::Role;
use crate::tables::SAYINGS;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saying {
    /// The cause that it names; None for echoes and harmless texts, and only for them.
    pub cause: Option<Cause>,
    /// How much it says about the cause.
    pub role: Role,
    /// The programs that print it.
    pub by: By,
    /// One of these texts must occur (if there are any).
    pub any: &'static [&'static str],
    /// Texts that must all occur.
    pub all: &'static [&'static str],
    /// None of these texts may occur.
    pub none: &'static [&'static str],
    /// The source file that prints it must have one of these prefixes (if there are any); NCCL only.
    pub file: &'static [&'static str],
    /// What `explain` calls it where the cause alone says too little; else empty.
    pub title: &'static str,
    /// Other causes that it fits as well, the likeliest first: `explain` says what to do about these, too.
    pub also: &'static [Cause],
    /// Its meaning, in one sentence.
    pub means: &'static str,
    /// Source of the row.
    pub cite: &'static str,
}

/// The programs that print a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Any program.
    Any,
    /// NCCL itself (its log, or torch's quote of its last error).
    Nccl,
    /// Any program except NCCL.
    Program,
}

/// All rows, in the order in which they are tried.
pub fn all() -> &'static [Saying] {
    SAYINGS
}

/// The row that matches `text`; `origin` is the source file that printed it (`transport/nvls.cc:165`, empty if
/// unknown).
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
