//! The bundle's manifest. Fields may be added and may be null; none ever changes its meaning. A reader accepts any
//! minor version of its own major version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name and major version of the format.
pub const SCHEMA: &str = "ringleader.bundle.v1";
/// Name of the manifest within the bundle; its last member.
pub const MANIFEST: &str = "manifest.json";

/// The manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the format.
    pub format: Version,
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Command line of the collection, as far as it selected the contents.
    pub asked: Vec<String>,
    /// Start, nanoseconds since 1970 by the clock of the collecting host.
    pub began_ns: i64,
    /// Duration of the collection, milliseconds.
    pub took_ms: u64,
    /// Hosts that the items come from.
    pub hosts: Vec<Host>,
    /// What to know before passing the bundle on: `logs are as the job wrote them; they may hold anything`.
    pub remarks: Vec<String>,
    /// What is in the bundle, and what was wanted but is missing.
    pub items: Vec<Item>,
}

/// Version of the format: a change of `major` breaks older readers, a change of `minor` does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Raised when an older reader would misread the bundle.
    pub major: u32,
    /// Raised when something is added.
    pub minor: u32,
}

impl Default for Version {
    fn default() -> Self {
        Self { major: 1, minor: 0 }
    }
}

/// A host that items come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Name as its kernel gives it; also the folder of its items.
    pub host: String,
    /// Its clock at one moment.
    pub clock: Clock,
    /// Versions: `kernel`, `driver`, `cuda`, `nvml`, `libnccl` and other libraries that the job's processes have
    /// loaded.
    pub versions: BTreeMap<String, String>,
}

/// A host's clock at one moment, to place its timestamps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Wall clock, nanoseconds since 1970.
    pub wall_ns: i64,
    /// Seconds since boot at the same moment.
    pub uptime_s: f64,
    /// Id of the boot.
    pub boot_id: String,
    /// Whether something keeps the clock synchronised; None if unknown.
    pub is_kept: Option<bool>,
    /// Largest error that the synchronising program reports, microseconds.
    pub error_us: Option<u64>,
}

/// One item that was wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Item {
    /// Member of the archive; empty if there is none.
    pub name: String,
    /// `node`, `kernel-log`, `log`, `dump`, `error-file`, `ras`, `stacks`, `threads`.
    pub kind: String,
    /// Host that it comes from.
    pub host: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Process that it belongs to, if any.
    pub pid: Option<u32>,
    /// The one process whose output it is, as that process counts itself. None if several write it, or that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// When it was taken, nanoseconds since 1970 by its host's clock.
    pub at_ns: i64,
    /// Time that this took, milliseconds.
    pub took_ms: u64,
    /// Size in the bundle before compression, bytes.
    pub bytes: u64,
    /// Leading NUL bytes of a text that were left out: the file was truncated while its writer kept its offset.
    pub hole_bytes: u64,
    /// What was left out of the middle, if anything.
    pub cut: Option<Cut>,
    /// Whether it was collected.
    pub outcome: ItemOutcome,
}

/// Where an item comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Not stated.
    #[default]
    Unknown,
    /// A file, by the name that its owner's process uses.
    Path(String),
    /// A command and its arguments.
    Argv(Vec<String>),
    /// The address of a service.
    Address(String),
    /// A reading by this program: `probe gpus`, `stacks of pid 4711`.
    Reading(String),
}

/// The part of an item that was left out of its middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    /// Bytes kept from the beginning.
    pub head_bytes: u64,
    /// Bytes kept from the end.
    pub tail_bytes: u64,
    /// Bytes left out between the two.
    pub left_out_bytes: u64,
}

/// The result of collecting an item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemOutcome {
    /// It is in the bundle.
    #[default]
    Done,
    /// It was left out on purpose, with the reason.
    Skipped(String),
    /// It could not be collected: the error and its chain of sources.
    Failed(Vec<String>),
    /// Part of it is in the bundle; the text says what is missing.
    Partial(String),
}
