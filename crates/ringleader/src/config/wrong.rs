//! What is wrong with a file of configuration, shown at its line and key.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode, SourceSpan,
};
use ringleader_report::quote;

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
        // Whatever the file holds must not control the terminal, and the places must stay.
        let shown: String = text.chars().flat_map(safe).collect();
        let name = quote::plain(&path.display().to_string());
        let shown = Shown { wrong: self, source: NamedSource::new(name, shown) };
        let theme = GraphicalTheme::unicode_nocolor();
        let handler = GraphicalReportHandler::new_themed(theme).with_width(100).with_links(false);
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = handler.render_report(&mut out, &shown);
        out.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// The same number of bytes without control characters.
fn safe(c: char) -> impl Iterator<Item = char> {
    let is_kept = !c.is_control() || c == '\n' || c == '\t';
    std::iter::repeat_n(if is_kept { c } else { '?' }, if is_kept { 1 } else { c.len_utf8() })
}

#[derive(Debug)]
struct Shown<'a> {
    wrong: &'a Wrong,
    source: NamedSource<String>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: failed to read the configuration: {}", quote::plain(&self.wrong.what))
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.wrong.help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = SourceSpan::new(self.wrong.at.start.into(), self.wrong.at.len().max(1));
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some("here".to_owned()), span))))
    }
}
