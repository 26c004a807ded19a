//! Rows that a measurement withholds: `cargo xtask blind` judges a case as if rows that were written after it did not
//! exist. The program itself withholds nothing.

use std::collections::BTreeSet;
use std::sync::OnceLock;

static IDS: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Withholds the messages, signs and conclusions with these ids for the rest of this process.
///
/// # Errors
/// The ids, if others are withheld already: what was read with them cannot be taken back.
pub fn withhold(ids: BTreeSet<String>) -> Result<(), BTreeSet<String>> {
    IDS.set(ids)
}

/// Whether the row with this id is withheld.
pub(crate) fn is_withheld(id: &str) -> bool {
    IDS.get().is_some_and(|ids| ids.contains(id))
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_is_withheld_unless_asked() {
        assert!(crate::message::all().all(|row| !super::is_withheld(row.id())));
        assert!(crate::sign::all().iter().all(|row| !super::is_withheld(row.id)));
    }
}
