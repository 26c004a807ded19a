//! What is wrong with a file of configuration, shown at its line and key. (A crate for such pictures, miette, brings two dozen
//! others for the breaking of lines in all languages.)

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use ringleader_report::quote;

/// Characters of a line that are shown.
const MAX_SHOWN: usize = 160;

/// A mistake and its place.
#[derive(Debug)]
pub(super) struct Wrong {
    at: Range<usize>,
    what: String,
    help: String,
    /// One command does not take the value; another may.
    pub(super) is_misfit: bool,
}

impl Wrong {
    pub(super) fn new(at: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { at, what: what.into(), help: help.into(), is_misfit: false }
    }

    /// One command does not take the value; another may.
    pub(super) fn misfit(at: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { is_misfit: true, ..Self::new(at, what, help) }
    }

    /// The lines for standard error.
    pub(super) fn render(&self, path: &Path, text: &str) -> String {
        let start = text.floor_char_boundary(self.at.start.min(text.len()));
        let before = text.get(..start).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let head = before.rsplit('\n').next().unwrap_or_default();
        let line_start = start - head.len();
        let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let end = text.floor_char_boundary(self.at.end.clamp(start, line_start + line.len()));
        let marked = text.get(start..end).unwrap_or_default();
        let width = safe(marked).chars().count().max(1);
        let margin = " ".repeat(number.to_string().len());
        let name = quote::plain(&path.display().to_string());
        let mut out = format!("error: failed to read the configuration: {}\n", quote::plain(&self.what));
        let column = head.chars().count() + 1;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{margin}--> {name}:{number}:{column}");
        let shown: String = safe(line).chars().take(MAX_SHOWN).collect();
        let _ = writeln!(out, "{margin} |\n{number} | {shown}");
        if column < MAX_SHOWN {
            let width = width.min(MAX_SHOWN - column);
            let _ = writeln!(out, "{margin} | {}{}", " ".repeat(column - 1), "^".repeat(width));
        }
        let _ = writeln!(out, "{margin} = help: {}", quote::plain(&self.help));
        out
    }
}

/// Whatever the file holds must not control the terminal, and each character stays one.
fn safe(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(shown).collect()
}
