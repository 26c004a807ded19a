//! Every WARN text of NCCL 2.14.3 to 2.30.7: finds the row of a message, and its meaning.
//!
//! Source: the `WARN(` calls under `src/` of NVIDIA/nccl at each release tag; see `data/nccl_warn.toml`.

use ringleader_model::{Cause, Impact};

use crate::saying;
pub use crate::tables::warn_groups as ids;
use crate::tables::{GROUPS, PREFIX_BYTES, WARNS, WARNS_SHORT};
use crate::version::NcclVersion;

/// One printf format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarnText {
    /// The format itself.
    pub format: &'static str,
    /// Its literal pieces, with a value between each two.
    pub pieces: &'static [&'static str],
    /// Id of its [`WarnGroup`].
    pub group: &'static str,
    /// Result codes that follow it; empty if it is only logged or the caller decides.
    pub results: &'static [u8],
    /// First release with exactly this text.
    pub since: NcclVersion,
    /// Whether `since` is the oldest release examined, so that the text may be older.
    pub since_or_before: bool,
    /// Last release with it; None if 2.30.7 still has it.
    pub until: Option<NcclVersion>,
    /// Source file below `src/`.
    pub file: &'static str,
}

/// The meaning of a group of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarnGroup {
    /// One word, as in the table.
    pub id: &'static str,
    /// What it means for the job.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// What that does to the job.
    pub impact: Impact,
    /// Causes that it may indicate, most likely first; empty if it is only an echo.
    pub causes: &'static [Cause],
}

/// All rows, ordered by their first literal piece.
pub fn all() -> &'static [WarnText] {
    WARNS
}

/// All groups.
pub fn groups() -> &'static [WarnGroup] {
    GROUPS
}

/// The row that a message (the text after `NCCL WARN `, or after torch's `Last error:`) was printed from: if several
/// match, the one with most literal text, then the newest.
pub fn find(message: &str) -> Option<&'static WarnText> {
    let by_prefix = message.as_bytes().get(..PREFIX_BYTES).map_or(&[][..], |head| {
        let key = |row: &WarnText| row.pieces.first().map_or(&b""[..], |p| p.as_bytes());
        let start = WARNS.partition_point(|row| key(row) < head);
        let rest = WARNS.get(start..).unwrap_or_default();
        let n = rest.iter().take_while(|row| key(row).starts_with(head)).count();
        rest.get(..n).unwrap_or_default()
    });
    let short = WARNS_SHORT.iter().filter_map(|&i| WARNS.get(i as usize));
    by_prefix
        .iter()
        .chain(short)
        .filter_map(|row| row.literals_in(message).map(|n| ((n, row.since), row)))
        .filter(|((n, _), _)| *n > 0)
        .max_by_key(|(order, _)| *order)
        .map(|(_, row)| row)
}

impl WarnText {
    /// Number of literal bytes of the format that the message contains in order; None if it does not match. Text
    /// after the last piece is allowed: readers may have appended a suffix.
    fn literals_in(&self, message: &str) -> Option<usize> {
        let (first, others) = self.pieces.split_first()?;
        let mut rest = message.strip_prefix(first)?;
        let mut n = first.len();
        for piece in others {
            let at = rest.find(piece)?;
            rest = rest.get(at + piece.len()..)?;
            n += piece.len();
        }
        Some(n)
    }

    /// Its group.
    pub fn group(&self) -> Option<&'static WarnGroup> {
        GROUPS.iter().find(|g| g.id == self.group)
    }

    /// Whether this release prints it.
    pub fn printed_by(&self, version: NcclVersion) -> bool {
        (self.since_or_before || version >= self.since) && self.until.is_none_or(|until| version <= until)
    }

    /// Causes that it may indicate: those of this text if known, otherwise those of its group.
    pub fn causes(&self) -> Vec<Cause> {
        match saying::of(self.format, self.file, true) {
            Some(known) => known.cause.into_iter().collect(),
            None => self.group().map(|g| g.causes.to_vec()).unwrap_or_default(),
        }
    }

    /// The meaning in one sentence: of this text if known, otherwise of its group.
    pub fn meaning(&self) -> &'static str {
        saying::of(self.format, self.file, true)
            .map(|s| s.means)
            .or_else(|| self.group().map(|g| g.meaning))
            .unwrap_or_default()
    }
}
