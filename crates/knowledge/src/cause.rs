//! The closed list of causes that a verdict may name.

use ringleader_model::{Category, Impact};

use crate::tables::CAUSES;

/// One cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Kebab-case id, never reused.
    pub id: &'static str,
    /// Heading of the list.
    pub section: &'static str,
    /// What the operator usually sees.
    pub category: Category,
    /// One line.
    pub meaning: &'static str,
    /// How it shows in the evidence; empty where a rule says so.
    pub shows: &'static str,
    /// What looks like it; empty where a rule says so.
    pub is_not: &'static str,
    /// What to do first.
    pub advice: &'static [Advice],
    /// Source; empty where a rule says so.
    pub source: &'static str,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// One sentence.
    pub text: &'static str,
    /// Command or setting to type; may be empty.
    pub command: &'static str,
    /// What it costs.
    pub impact: Impact,
}

/// All causes, in the order of `data/causes.toml`.
pub fn all() -> &'static [Cause] {
    CAUSES
}

/// The cause with this id.
pub fn get(id: &str) -> Option<&'static Cause> {
    CAUSES.iter().find(|c| c.id == id)
}

/// Usual category of a cause; `Error` for ids not in the list.
pub fn category(cause: &str) -> Category {
    get(cause).map_or(Category::Error, |c| c.category)
}

/// What a cause means; empty for ids not in the list.
pub fn meaning(cause: &str) -> &'static str {
    get(cause).map_or("", |c| c.meaning)
}
