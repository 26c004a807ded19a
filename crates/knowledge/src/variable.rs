//! Environment variables that NCCL and torch.distributed read, and look-alikes that nobody reads.
//!
//! Source: `NCCL_PARAM` and `getenv` calls of NVIDIA/nccl at each release tag 2.3.5 to 2.30.7, its user guide, and
//! torch's c10d sources; see `data/nccl_env.toml`.

use crate::tables::{UNREAD, VARIABLES};
use crate::version::NcclVersion;

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// `nccl` or `torch`.
    pub reader: &'static str,
    /// First NCCL release that reads it.
    pub since: Option<NcclVersion>,
    /// Last NCCL release that reads it (2.30.7 = the newest looked at).
    pub last: Option<NcclVersion>,
    /// Its successor, if renamed.
    pub replaced_by: &'static str,
    /// Values it takes.
    pub values: &'static str,
    /// Default.
    pub default: &'static str,
    /// Whether ranks must agree.
    pub agreement: Agreement,
    /// What it does.
    pub does: &'static str,
    /// Traps.
    pub note: &'static str,
}

/// Whether all ranks must run with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// A difference hangs, corrupts or fails.
    Must,
    /// A difference hurts.
    Should,
    /// May differ.
    Free,
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
}

/// All variables, by name.
pub fn all() -> &'static [Variable] {
    VARIABLES
}

/// Look-alikes.
pub fn unread() -> &'static [Unread] {
    UNREAD
}

/// By name.
pub fn get(name: &str) -> Option<&'static Variable> {
    let first = VARIABLES.partition_point(|v| v.name < name);
    VARIABLES.get(first).filter(|v| v.name == name)
}

/// Newest NCCL release the table was made from.
const NEWEST: NcclVersion = NcclVersion { major: 2, minor: 30, patch: 7 };

/// Whether this NCCL release reads the variable; None if either is unknown.
pub fn is_read_by(name: &str, version: Option<NcclVersion>) -> Option<bool> {
    let variable = get(name)?;
    let (version, since, last) = (version?, variable.since?, variable.last?);
    Some(version >= since && (version <= last || last >= NEWEST))
}
