//! Rules that need only a message: their cause, the text of their finding, and the recommended actions.
//!
//! [`crate::saying`] lists the messages of each cause.

use ringleader_model::Cause;

use crate::cause::Advice;
use crate::tables::CLAIMS;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// The cause that it finds.
    pub cause: Cause,
    /// Id of the rule, the same as that of the cause.
    pub id: &'static str,
    /// Short name of the rule.
    pub rule: &'static str,
    /// First version that has it.
    pub since: &'static str,
    /// Title of its finding, with `{who}` for the processes that printed the message.
    pub(crate) title: &'static str,
    /// Recommended actions.
    pub advice: &'static [Advice],
    /// Documentation, with the headings of every rule.
    pub doc: &'static str,
}

impl ClaimRow {
    /// Title of a finding about the processes `who`.
    pub fn title(&self, who: &str) -> String {
        self.title.replace("{who}", who)
    }
}

/// All rows.
pub fn all() -> &'static [ClaimRow] {
    CLAIMS
}

/// The row at this index; an index beyond the table does not compile in a constant.
pub const fn at(place: usize) -> &'static ClaimRow {
    &CLAIMS[place]
}

/// The index of a rule in the table.
///
/// # Panics
///
/// If no row has this id; if the id is a constant, the program does not compile.
pub const fn place(id: &str) -> usize {
    let mut place = 0;
    while place < CLAIMS.len() {
        if is_same(CLAIMS[place].id.as_bytes(), id.as_bytes()) {
            return place;
        }
        place += 1;
    }
    panic!("no rule of a message has this id")
}

/// Equality of bytes in constants.
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
