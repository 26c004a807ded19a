//! Lines that are recognised by their form: events of the watchdog, the launcher, the store and gloo, and common
//! misreadings of them.
//!
//! Source: the programs that print them; `data/events.toml` names them in each row.

use ringleader_model::Cause;

use crate::tables::EVENTS;

/// A form of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventForm {
    /// Kebab-case.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What it means.
    pub means: &'static str,
    /// What it is commonly mistaken for.
    pub is_not: &'static str,
    /// Causes that it may indicate, most likely first.
    pub causes: &'static [Cause],
    /// Texts and names by which people ask for it, in lower case; a question that contains one, or is part of one,
    /// selects this row.
    pub asked: &'static [&'static str],
    /// Recommended actions, if they differ from those of the first cause.
    pub advice: &'static [crate::cause::Advice],
    /// The program that prints it.
    pub source: &'static str,
}

/// Shortest question, in letters, that may be part of a longer text.
const MIN_PART: usize = 10;

/// Rows that a question selects: it contains a text of the row as whole words, or is a long enough part of such a text.
pub fn asked(question: &str) -> impl Iterator<Item = &'static EventForm> {
    let question = question.to_lowercase();
    EVENTS.iter().filter(move |event| {
        event.asked.iter().any(|text| {
            holds_words(&question, text) || (question.len() >= MIN_PART && holds_words(text, &question))
        })
    })
}

/// Whether `text` contains `part` as whole words.
fn holds_words(text: &str, part: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric();
    text.match_indices(part).any(|(at, _)| {
        let before = text.get(..at).and_then(|t| t.chars().next_back());
        let after = text.get(at + part.len()..).and_then(|t| t.chars().next());
        // A minus behind a letter or digit is a hyphen: `tasks 0-7`.
        let [first, last] = [part.chars().next(), part.chars().next_back()]
            .map(|c| c.is_some_and(|c| is_word(c) || c == '-'));
        !(first && before.is_some_and(is_word) || last && after.is_some_and(is_word))
    })
}

/// All forms, by id.
pub fn all() -> &'static [EventForm] {
    EVENTS
}

/// The row with this id.
pub fn get(id: &str) -> Option<&'static EventForm> {
    EVENTS.iter().find(|e| e.id == id)
}
