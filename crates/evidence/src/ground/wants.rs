//! What readers want of a line.

/// Which lines a reader may take, or learn from, while nothing is open in it. All others may be kept from it then. Digits do
/// not count: each of the line is shown as a 0.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    /// The line holds one of these, wherever.
    pub(crate) words: fn() -> Vec<&'static str>,
    /// Or, from its start or from behind a launcher's prefix on, begins like this.
    pub(crate) begins: fn(&[u8]) -> bool,
}

impl Wants {
    /// No lines.
    pub(crate) const NOTHING: Self = Self { words: Vec::new, begins: |_| false };
}
