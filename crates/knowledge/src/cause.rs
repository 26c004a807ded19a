//! What each cause means: the table for the closed list [`Cause`].

use ringleader_model::{Category, Cause, Class, Impact};

use crate::tables::CAUSES;

/// One cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseRow {
    /// The cause.
    pub cause: Cause,
    /// Heading of the list.
    pub section: &'static str,
    /// What the operator usually sees.
    pub category: Category,
    /// What a supervisor does about it by default; None if the job continues.
    pub class: Option<Class>,
    /// One line.
    pub meaning: &'static str,
    /// How it shows in the evidence; empty if a rule explains that.
    pub shows: &'static str,
    /// What resembles it; empty if a rule explains that.
    pub is_not: &'static str,
    /// What to do first.
    pub advice: &'static [Advice],
    /// Source; empty if a rule states it.
    pub source: &'static str,
}

/// A recommended action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// One sentence.
    pub text: &'static str,
    /// Command or setting to type; may be empty.
    pub command: &'static str,
    /// Its impact on the job.
    pub impact: Impact,
}

/// All causes, in the order of the list.
pub fn all() -> &'static [CauseRow] {
    CAUSES
}

/// The row of a cause.
pub fn of(cause: Cause) -> &'static CauseRow {
    &CAUSES[cause as usize]
}

/// The row of the cause with this id.
pub fn get(id: &str) -> Option<&'static CauseRow> {
    Cause::of_id(id).map(of)
}

/// Usual category of a cause.
pub fn category(cause: Cause) -> Category {
    of(cause).category
}

/// What a cause means.
pub fn meaning(cause: Cause) -> &'static str {
    of(cause).meaning
}

/// What a supervisor does about a cause by default; None if the job continues.
pub fn class(cause: Cause) -> Option<Class> {
    of(cause).class
}

/// Rows and variants must be the same list in the same order.
const _: () = {
    assert!(CAUSES.len() == Cause::ALL.len());
    let mut at = 0;
    while at < CAUSES.len() {
        assert!(CAUSES[at].cause as usize == at);
        at += 1;
    }
};
