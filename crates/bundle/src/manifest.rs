//! What a bundle says of itself. Fields may be added and may be null; none is given a second meaning. A reader takes
//! any minor version of its major one.

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
    /// Command line of the collection, as far as it chose what is in here.
    pub asked: Vec<String>,
    /// Start, nanoseconds since 1970 by the collecting host's clock.
    pub began_ns: i64,
    /// How long it took, milliseconds.
    pub took_ms: u64,
    /// Hosts that items come from.
    pub hosts: Vec<Host>,
    /// What a reader must know before passing it on: `logs are as the job wrote them; they may hold anything`.
    pub remarks: Vec<String>,
    /// What is in here, and what is not though it was wanted.
    pub items: Vec<Item>,
}

/// Version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Changes when an older reader would misread.
    pub major: u32,
    /// Changes when something is added.
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
    /// Name as its kernel has it; also the folder of its items.
    pub host: String,
    /// Its clock.
    pub clock: Clock,
    /// Versions: `kernel`, `driver`, `cuda`, `nvml`, and `libnccl` and others as the job's processes have loaded them.
    pub versions: BTreeMap<String, String>,
}

/// A host's clock at one moment, to place its stamps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Nanoseconds since 1970.
    pub wall_ns: i64,
    /// Seconds since boot at the same moment.
    pub uptime_s: f64,
    /// Id of the boot.
    pub boot_id: String,
    /// Something keeps it in step, if known.
    pub is_kept: Option<bool>,
    /// Largest error its keeper states, microseconds.
    pub error_us: Option<u64>,
}

/// One thing that was wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Item {
    /// Member of the archive; empty if there is none.
    pub name: String,
    /// `node`, `kernel-log`, `log`, `dump`, `error-file`, `ras`, `stacks`, `threads`.
    pub kind: String,
    /// Host it comes from.
    pub host: String,
    /// Where from.
    pub origin: Origin,
    /// Process it is of, if one.
    pub pid: Option<u32>,
    /// When it was taken, nanoseconds since 1970 by its host's clock.
    pub at_ns: i64,
    /// How long that took, milliseconds.
    pub took_ms: u64,
    /// Bytes in the bundle, before compression.
    pub bytes: u64,
    /// NULs that a text began with and that are left out: it was emptied while its writer stood at its end.
    pub hole_bytes: u64,
    /// What was left out of the middle.
    pub cut: Option<Cut>,
    /// What came of it.
    pub outcome: Outcome,
}

/// Where an item comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Not told.
    #[default]
    Unknown,
    /// A file, as its owner's process names it.
    Path(String),
    /// A command: its arguments.
    Argv(Vec<String>),
    /// A service: its address.
    Address(String),
    /// A reading of this program: `probe gpus`, `stacks of pid 4711`.
    Reading(String),
}

/// The middle of an item was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    /// Bytes kept of its beginning.
    pub head_bytes: u64,
    /// Bytes kept of its end.
    pub tail_bytes: u64,
    /// Bytes left out between the two.
    pub left_out_bytes: u64,
}

/// What came of an item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is in here.
    #[default]
    Done,
    /// It was left out on purpose: why.
    Skipped(String),
    /// It could not be had: what failed, and what that rests on.
    Failed(Vec<String>),
    /// Some of it is in here: what is missing.
    Partial(String),
}
