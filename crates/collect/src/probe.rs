//! What a probe is: what it reads, with which deadline, and what it needs to be allowed.

use serde::Serialize;

use crate::request::{ReadingError, Request};

/// One probe.
pub struct Probe {
    /// Name: that of the part of the snapshot.
    pub name: &'static str,
    /// How long it may take, milliseconds.
    pub deadline_ms: u64,
    /// What it needs to be allowed, and what is missing without.
    pub privileges: &'static str,
    /// Reads; the answer is the part's content as JSON.
    pub take: fn(&Request) -> Result<serde_json::Value, ReadingError>,
}

/// The answer as JSON.
pub(crate) fn json<T: Serialize>(taken: Result<T, ReadingError>) -> Result<serde_json::Value, ReadingError> {
    serde_json::to_value(taken?).map_err(|error| ReadingError::Failed(error.to_string()))
}
