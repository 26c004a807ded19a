//! Lines that are recognised by their form: what the watchdog, the launcher, the store and gloo tell, and what is
//! wrongly read into it.
//!
//! Source: the programs that print them; see `data/events.toml`, row by row.

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
    pub causes: &'static [&'static str],
    /// Who prints it.
    pub source: &'static str,
}

/// All forms, by id.
pub fn all() -> &'static [Event] {
    EVENTS
}

/// By id.
pub fn get(id: &str) -> Option<&'static Event> {
    EVENTS.iter().find(|e| e.id == id)
}
