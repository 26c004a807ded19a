//! The report. `json` holds its content as plain types and their schema; `text`, `markdown` and `html` show the same types,
//! so they cannot disagree.
//!
//! Pure, and nothing here concludes: a case and its verdict go in, words come out. Evidence is quoted through `quote`,
//! since a log line may hold escape sequences that would act on the reader's terminal.

pub mod against;
pub mod brief;
pub mod html;
pub mod json;
pub mod markdown;
mod missing;
mod open;
pub mod page;
pub mod perfetto;
pub mod quote;
pub mod redact;
mod sets;
pub mod text;
pub mod timeline;
pub mod trace;

/// How much to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The verdict alone.
    Verdict,
    /// Verdict, its proof, actions, one line for each other finding, what is missing, the first notes.
    Usual,
    /// Every finding with its proof, every note, nothing shortened.
    Everything,
}

/// How the text report looks.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to use colour.
    pub color: bool,
    /// How much of the report is shown.
    pub detail: Detail,
}
