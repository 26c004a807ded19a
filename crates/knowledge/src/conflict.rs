//! Settings that cancel each other.
//!
//! Source: the code that reads the settings; `data/conflicts.toml` names it in each row.

use crate::tables::CONFLICTS;

/// A conflict between settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Kebab-case.
    pub id: &'static str,
    /// Conditions that all must hold.
    pub with: &'static [Condition],
    /// One of these conditions must hold.
    pub and: &'static [Condition],
    /// Whether it slows the job or removes a protection that was requested; otherwise a setting merely has no
    /// effect.
    pub hurts: bool,
    /// The effect.
    pub means: &'static str,
    /// The recommended settings.
    pub instead: &'static str,
    /// Source of the row.
    pub source: &'static str,
}

/// A condition on one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Name of the setting.
    pub name: &'static str,
    /// Values; empty = any.
    pub values: &'static [&'static str],
    /// Whether the value must be none of them.
    pub negated: bool,
}

impl Condition {
    /// Whether a value meets the condition.
    pub fn holds(&self, value: &str) -> bool {
        self.values.is_empty() || self.values.iter().any(|v| v.eq_ignore_ascii_case(value)) != self.negated
    }
}

/// All rows, by id.
pub fn all() -> &'static [Conflict] {
    CONFLICTS
}

/// The rows that hold for these settings, each with the names that it concerns. `get` returns a variable's
/// value.
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
