//! Records in the hub besides the digests: incidents, requests to collect, and their answers. All are bounded.

use serde::{Deserialize, Serialize};

/// Incidents that the hub keeps; older ones are removed.
pub const MAX_INCIDENTS: usize = 64;
/// Largest free text in a record, bytes; longer ones are cut.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Largest entry or note, bytes.
pub const MAX_REGISTER_BYTES: usize = 256 << 10;

/// Longest evidence that a participant may put into the hub, bytes.
pub const MAX_EVIDENCE_BYTES: usize = 4 << 20;

/// Content of a register at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The newest entry and its number.
    pub entry: Option<(u64, Vec<u8>)>,
    /// Notes of live participants, by name.
    pub members: Vec<(String, Vec<u8>)>,
}

/// A stall or fault that an analyser has diagnosed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incident {
    /// Assigned by the hub, from 1; a value set by the caller is ignored.
    pub number: u64,
    /// When it was recorded, nanoseconds since 1970 by the analyser's clock.
    pub at_ns: i64,
    /// Node of the analyser, which took the bundle.
    pub node: String,
    /// Cause and culprit in one line.
    pub summary: String,
    /// Rule id of the verdict; `none` or empty if there was none.
    pub verdict: String,
    /// Path of the bundle on `node`.
    pub bundle: Option<String>,
    /// Number of the request that gathered the evidence.
    pub request: Option<u64>,
}

/// The analyser asks every agent to collect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Counts up from 1; agents answer only the newest.
    pub number: u64,
    /// When it was made, nanoseconds since 1970 by the analyser's clock.
    pub at_ns: i64,
    /// Node of the analyser.
    pub node: String,
    /// The reason, for people.
    pub why: String,
}

/// An agent's answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Number of the request.
    pub request: u64,
    /// Node that answers; set by the hub.
    pub node: String,
    /// State of the collection.
    pub outcome: RequestState,
    /// Path of its evidence on `node` or on a shared file system.
    pub bundle: Option<String>,
    /// Why it failed, or what is missing.
    pub note: String,
}

/// State of a request on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// The agent has read the request and is collecting.
    #[default]
    Accepted,
    /// The evidence is complete.
    Done,
    /// It could not be collected.
    Failed,
}

/// Cuts a text at a character boundary.
pub(crate) fn cut(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        let end = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

impl Incident {
    pub(crate) fn bounded(mut self) -> Self {
        for text in [&mut self.node, &mut self.summary, &mut self.verdict].into_iter().chain(&mut self.bundle)
        {
            cut(text);
        }
        self
    }
}

impl Answer {
    pub(crate) fn bounded(mut self) -> Self {
        for text in [&mut self.node, &mut self.note].into_iter().chain(&mut self.bundle) {
            cut(text);
        }
        self
    }
}
