//! Environment variables of NCCL, torch.distributed and CUDA, similar names that nothing reads, and the parsing of
//! values.
//!
//! Source: `NCCL_PARAM` and `getenv` calls of NVIDIA/nccl at each release tag 2.3.5 to 2.30.7, its user guide, and
//! torch's c10d sources; see `data/nccl_env.toml`.

mod value;

use crate::tables::{ALIASES, LABELS, NEWEST, PLUGIN_PREFIXES, TRAPS, UNREAD, VARIABLES};
pub use crate::variable::value::{Misread, misread};
use crate::version::NcclVersion;

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// The program that reads it: `NCCL`, `PyTorch`, `CUDA`, a plugin.
    pub reader: &'static str,
    /// Subject, for NCCL's own variables; otherwise empty.
    pub group: &'static str,
    /// First NCCL release that reads it.
    pub since: Option<NcclVersion>,
    /// Whether `since` is the oldest release examined, so that the variable may be older.
    pub since_or_before: bool,
    /// Last NCCL release that reads it ([`newest`] = the newest one examined).
    pub last: Option<NcclVersion>,
    /// First PyTorch release that reads it, as text; may be empty.
    pub since_torch: &'static str,
    /// Whether it should still be used.
    pub status: Status,
    /// Release since which it has this status; may be empty.
    pub status_since: &'static str,
    /// Its successor, if it has one.
    pub replaced_by: &'static str,
    /// Older names that are still read, with a warning.
    pub aliases: &'static [&'static str],
    /// Accepted values, as text.
    pub values: &'static str,
    /// How its text is parsed.
    pub parse: Parse,
    /// Accepted words.
    pub words: &'static [&'static str],
    /// Smallest and largest number; the default is allowed as well.
    pub range: Option<(i64, i64)>,
    /// Default.
    pub default: &'static str,
    /// Earlier defaults, each with its first release, if the default changed.
    pub defaults: &'static [(NcclVersion, &'static str)],
    /// Whether ranks must use the same value.
    pub agreement: Agreement,
    /// Whether the guide documents it; undocumented variables may disappear without notice.
    pub documented: bool,
    /// Whether it may stay set in production; the guide lists the others under debugging.
    pub for_production: bool,
    /// What it does.
    pub does: &'static str,
    /// Pitfalls.
    pub note: &'static str,
    /// Where it is read.
    pub source: &'static str,
}

/// Whether a variable should still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It should be used.
    Current,
    /// It works, but has a successor.
    Deprecated,
    /// An old name of another variable.
    Alias,
    /// No release reads it any more.
    Removed,
}

impl Status {
    /// Its name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Deprecated => "deprecated",
            Self::Alias => "alias",
            Self::Removed => "removed",
        }
    }
}

/// How a text is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse {
    /// NCCL: `strtoll` with base 0; text after the number is ignored, text without a number is 0.
    Strtoll,
    /// NCCL 2.30.7: 1/T/TRUE or 0/F/FALSE; `strtoll` before.
    ParamBool,
    /// One of the words, ignoring case.
    Word,
    /// One of the words, exactly.
    ExactWord,
    /// Words with commas; a leading `^` inverts, a leading `function:` restricts.
    WordList,
    /// The exact name of a path level, or its old number.
    Level,
    /// PyTorch: `std::stoi`; raises if there is no number.
    TorchInt,
    /// PyTorch: 1/t/true/y/yes or 0/f/false/n/no; raises on anything else.
    TorchBool,
    /// PyTorch: one of the words, ignoring case; raises on anything else.
    TorchWord,
    /// Not validated.
    Text,
}

/// Whether all ranks must use the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// A difference causes a hang, corruption or failure.
    Must,
    /// A difference reduces performance.
    Should,
    /// It may differ between hosts.
    PerHost,
    /// It may differ between ranks.
    PerRank,
    /// It must differ between ranks.
    Differ,
}

impl Agreement {
    /// Its wording as the end of a sentence: `ranks …`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Must => "must agree: a difference hangs, corrupts or fails",
            Self::Should => "should agree: a difference hurts",
            Self::PerHost => "may differ from host to host",
            Self::PerRank => "may differ from rank to rank",
            Self::Differ => "each have a value of their own",
        }
    }
}

/// A name that nothing reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The name.
    pub name: &'static str,
    /// The variable that its user probably meant.
    pub meant: &'static str,
    /// Further remarks.
    pub note: &'static str,
    /// How this is known.
    pub source: &'static str,
}

/// A way in which a value is misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Kebab-case.
    pub id: &'static str,
    /// The value as people write it.
    pub example: &'static str,
    /// The value that is read.
    pub becomes: &'static str,
    /// The effect.
    pub means: &'static str,
    /// The value to write.
    pub instead: &'static str,
    /// Source of the row.
    pub source: &'static str,
}

/// All variables, by name.
pub fn all() -> &'static [Variable] {
    VARIABLES
}

/// Names that nothing reads, by name.
pub fn unread() -> &'static [Unread] {
    UNREAD
}

/// All traps, by id.
pub fn traps() -> &'static [Trap] {
    TRAPS
}

/// The trap with this id.
pub fn trap(id: &str) -> Option<&'static Trap> {
    TRAPS.iter().find(|t| t.id == id)
}

/// Old names that are still read, with the current name.
pub fn aliases() -> &'static [(&'static str, &'static str)] {
    ALIASES
}

/// The variable with this name, or with an old name that is still read.
pub fn get(name: &str) -> Option<&'static Variable> {
    let by_name = |name: &str| {
        let at = VARIABLES.binary_search_by_key(&name, |v| v.name).ok()?;
        VARIABLES.get(at)
    };
    by_name(name).or_else(|| {
        let at = ALIASES.binary_search_by_key(&name, |(alias, _)| alias).ok()?;
        by_name(ALIASES.get(at)?.1)
    })
}

/// The unread name with this spelling.
pub fn get_unread(name: &str) -> Option<&'static Unread> {
    UNREAD.binary_search_by_key(&name, |u| u.name).ok().and_then(|at| UNREAD.get(at))
}

/// Whether a plugin or a port of NCCL reads names like this one, so that an unknown name means nothing.
pub fn is_of_plugin(name: &str) -> bool {
    PLUGIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the name labels a container image or a build: no program reads it when a job runs, as expected.
pub fn is_label(name: &str) -> bool {
    LABELS.contains(&name)
}

/// Newest NCCL release that the table covers.
pub fn newest() -> NcclVersion {
    NEWEST
}

/// Whether this NCCL release reads the variable; None if either is unknown.
pub fn is_read_by(name: &str, version: Option<NcclVersion>) -> Option<bool> {
    let variable = get(name)?;
    let (version, since, last) = (version?, variable.since?, variable.last?);
    Some((variable.since_or_before || version >= since) && (version <= last || last >= NEWEST))
}

impl Variable {
    /// The default in a release.
    pub fn default_of(&self, version: NcclVersion) -> &'static str {
        self.defaults.iter().rfind(|(since, _)| *since <= version).map_or(self.default, |(_, value)| value)
    }
}
