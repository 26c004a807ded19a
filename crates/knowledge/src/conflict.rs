//! Settings that cancel each other.
//!
//! Source: the code that reads them, row by row in `data/conflicts.toml`.

use crate::tables::CONFLICTS;

/// One pair of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Kebab-case.
    pub id: &'static str,
    /// All of these hold.
    pub with: &'static [Condition],
    /// And one of these.
    pub and: &'static [Condition],
    /// It makes the job slow or takes a guard away that was asked for; else it is merely without effect.
    pub hurts: bool,
    /// What happens.
    pub means: &'static str,
    /// What to do.
    pub instead: &'static str,
    /// Where that is known from.
    pub source: &'static str,
}

/// What a setting must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Name.
    pub name: &'static str,
    /// Values; empty = any.
    pub values: &'static [&'static str],
    /// The value is none of them.
    pub negated: bool,
}

impl Condition {
    /// Whether this value is meant.
    pub fn holds(&self, value: &str) -> bool {
        self.values.is_empty() || self.values.iter().any(|v| v.eq_ignore_ascii_case(value)) != self.negated
    }
}

/// All rows, by id.
pub fn all() -> &'static [Conflict] {
    CONFLICTS
}

/// The rows that hold for these settings, each with the names that it is about. `get` gives a variable's value.
pub fn found<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Vec<(&'static Conflict, Vec<&'static str>)> {
    let holds = |c: &&Condition| get(c.name).is_some_and(|value| c.holds(value.trim()));
    CONFLICTS
        .iter()
        .filter(|row| row.with.iter().filter(holds).count() == row.with.len())
        .filter_map(|row| {
            let right = row.and.iter().find(holds)?;
            Some((row, row.with.iter().chain([right]).map(|c| c.name).collect()))
        })
        .collect()
}
