//! The kinds of evidence, as `looked at` and `not given` name them.

use ringleader_knowledge::collecting;
use ringleader_model::SourceKind;

use super::Term;

/// All kinds, in the order of their list.
pub(super) fn all() -> impl Iterator<Item = Term> {
    SourceKind::ALL.into_iter().map(|kind| {
        let known = collecting::of(kind);
        Term {
            name: kind.name(),
            also: known.also,
            title: known.title,
            means: known.means,
            is_not: "",
            see: known.see,
            source: "docs/evidence.md",
        }
    })
}
