//! Environment variables that NCCL, torch.distributed and CUDA read, look-alikes that nobody reads, and what becomes
//! of a value.
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
    /// Who reads it: `NCCL`, `PyTorch`, `CUDA`, a plugin.
    pub reader: &'static str,
    /// Subject, for NCCL's own; else empty.
    pub group: &'static str,
    /// First NCCL release that reads it.
    pub since: Option<NcclVersion>,
    /// It was there already in `since`, the oldest release looked at.
    pub since_or_before: bool,
    /// Last NCCL release that reads it ([`newest`] = the newest looked at).
    pub last: Option<NcclVersion>,
    /// First PyTorch release, in words; may be empty.
    pub since_torch: &'static str,
    /// Whether it should still be used.
    pub status: Status,
    /// Since which release it has this status; may be empty.
    pub status_since: &'static str,
    /// Its successor, if it has one.
    pub replaced_by: &'static str,
    /// Older names that are still read, with a warning.
    pub aliases: &'static [&'static str],
    /// Values it takes, in words.
    pub values: &'static str,
    /// How its text becomes a value.
    pub parse: Parse,
    /// The words it knows.
    pub words: &'static [&'static str],
    /// Least and greatest number; the default is allowed besides.
    pub range: Option<(i64, i64)>,
    /// Default.
    pub default: &'static str,
    /// What the default was from which release on, if it changed.
    pub defaults: &'static [(NcclVersion, &'static str)],
    /// Whether ranks must agree.
    pub agreement: Agreement,
    /// In the guide; what is not may vanish without notice.
    pub documented: bool,
    /// May stay set in production; the guide files the others under debugging.
    pub for_production: bool,
    /// What it does.
    pub does: &'static str,
    /// Traps.
    pub note: &'static str,
    /// Where it is read.
    pub source: &'static str,
}

/// Whether a variable should still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Yes.
    Current,
    /// It works, but has a successor.
    Deprecated,
    /// An old name of another one.
    Alias,
    /// No release reads it any more.
    Removed,
}

impl Status {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Deprecated => "deprecated",
            Self::Alias => "alias",
            Self::Removed => "removed",
        }
    }
}

/// How text becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse {
    /// NCCL: `strtoll` with base 0; what follows the number is ignored, no number is 0.
    Strtoll,
    /// NCCL 2.30.7: 1/T/TRUE or 0/F/FALSE; `strtoll` before.
    ParamBool,
    /// One of the words, whatever the case.
    Word,
    /// One of the words as it stands.
    ExactWord,
    /// Words with commas, `^` in front inverts, `function:` in front limits.
    WordList,
    /// A path level as it stands, or its old number.
    Level,
    /// PyTorch: `std::stoi`; raises on what is no number.
    TorchInt,
    /// PyTorch: 1/t/true/y/yes or 0/f/false/n/no; raises on anything else.
    TorchBool,
    /// PyTorch: one of the words, whatever the case; raises on anything else.
    TorchWord,
    /// Not checked.
    Text,
}

/// Whether all ranks must run with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// A difference hangs, corrupts or fails.
    Must,
    /// A difference hurts.
    Should,
    /// May differ from host to host.
    PerHost,
    /// May differ from rank to rank.
    PerRank,
    /// Is different on each rank.
    Differ,
}

impl Agreement {
    /// As a sentence's end: `ranks …`.
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

/// A name that nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The name.
    pub name: &'static str,
    /// What its user wanted.
    pub meant: &'static str,
    /// More.
    pub note: &'static str,
    /// How that is known.
    pub source: &'static str,
}

/// A way in which a value is taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Kebab-case.
    pub id: &'static str,
    /// As people write it.
    pub example: &'static str,
    /// What is read.
    pub becomes: &'static str,
    /// What happens.
    pub means: &'static str,
    /// What to write.
    pub instead: &'static str,
    /// Where that is known from.
    pub source: &'static str,
}

/// All variables, by name.
pub fn all() -> &'static [Variable] {
    VARIABLES
}

/// Look-alikes that nobody reads, by name.
pub fn unread() -> &'static [Unread] {
    UNREAD
}

/// All traps, by id.
pub fn traps() -> &'static [Trap] {
    TRAPS
}

/// A trap by id.
pub fn trap(id: &str) -> Option<&'static Trap> {
    TRAPS.iter().find(|t| t.id == id)
}

/// Old names that are still read, with the name they stand for.
pub fn aliases() -> &'static [(&'static str, &'static str)] {
    ALIASES
}

/// By name, or by an old name that is still read.
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

/// A look-alike by name.
pub fn get_unread(name: &str) -> Option<&'static Unread> {
    UNREAD.binary_search_by_key(&name, |u| u.name).ok().and_then(|at| UNREAD.get(at))
}

/// Whether names like this are read by a plugin or a port of NCCL, so that not knowing one means nothing.
pub fn is_of_plugin(name: &str) -> bool {
    PLUGIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the name labels a container image or a build: nothing reads it when a job runs, and nobody expects that.
pub fn is_label(name: &str) -> bool {
    LABELS.contains(&name)
}

/// Newest NCCL release the table was made from.
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
    /// The default of a release.
    pub fn default_of(&self, version: NcclVersion) -> &'static str {
        self.defaults.iter().rfind(|(since, _)| *since <= version).map_or(self.default, |(_, value)| value)
    }
}
