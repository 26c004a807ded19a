//! Lines that are recognised by their form: what the watchdog, the launcher, the store and gloo tell, and what is
//! wrongly read into it.
//!
//! Source: the programs that print them; see `data/events.toml`, row by row.

use ringleader_model::Cause;

use crate::tables::EVENTS;

/// One form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Kebab-case.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What it tells.
    pub means: &'static str,
    /// What it is taken for and is not.
    pub is_not: &'static str,
    /// Causes it may stand for, the likeliest first.
    pub causes: &'static [Cause],
    /// Texts and names by which people ask for it, in lower case; a question that holds one, or is part of one, means
    /// this row.
    pub asked: &'static [&'static str],
    /// What to do, where it is not that of the first cause.
    pub advice: &'static [crate::cause::Advice],
    /// Who prints it.
    pub source: &'static str,
}

/// Letters a question needs before it may be part of a longer text.
const MIN_PART: usize = 10;

/// Rows that people mean by `question`: one that holds a text of the row as whole words, or a good part of such a text.
pub fn asked(question: &str) -> impl Iterator<Item = &'static Event> {
    let question = question.to_lowercase();
    EVENTS.iter().filter(move |event| {
        event.asked.iter().any(|text| {
            holds_words(&question, text) || (question.len() >= MIN_PART && holds_words(text, &question))
        })
    })
}

/// `text` holds `part`, not within a longer word or number.
fn holds_words(text: &str, part: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric();
    text.match_indices(part).any(|(at, _)| {
        let before = text.get(..at).and_then(|t| t.chars().next_back());
        let after = text.get(at + part.len()..).and_then(|t| t.chars().next());
        let [first, last] = [part.chars().next(), part.chars().next_back()].map(|c| c.is_some_and(is_word));
        !(first && before.is_some_and(is_word) || last && after.is_some_and(is_word))
    })
}

/// All forms, by id.
pub fn all() -> &'static [Event] {
    EVENTS
}

/// By id.
pub fn get(id: &str) -> Option<&'static Event> {
    EVENTS.iter().find(|e| e.id == id)
}
