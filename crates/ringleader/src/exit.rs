//! Exit codes. They are part of the interface: a number is never given a second meaning.

use std::process::ExitCode;

/// Why the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Nothing found at or above `--fail-on`; also when the reader of our output went away.
    NothingFound = 0,
    /// A fault of ringleader itself, and nothing else.
    OurBug = 1,
    /// The command line, or what it names, cannot be obeyed.
    Usage = 2,
    /// Nothing in the given paths is evidence that ringleader knows, or nothing could be read.
    NoUsableEvidence = 3,
    /// Findings at or above `--fail-on`.
    Findings = 4,
    /// Something is wrong, or may be, and the evidence does not show what.
    Undecided = 5,
    /// The system refused: a full disk, no permission, not root.
    Refused = 6,
}

impl Code {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 7] = [
        Self::NothingFound,
        Self::OurBug,
        Self::Usage,
        Self::NoUsableEvidence,
        Self::Findings,
        Self::Undecided,
        Self::Refused,
    ];
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}
