//! A part of a snapshot: a reading, or the reason why there is none.

use serde::{Deserialize, Serialize};

/// One part, with the time that reading it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "T: Deserialize<'de>"))]
pub struct Part<T> {
    /// When the reading began, nanoseconds since 1970 by the node's clock.
    pub at_ns: i64,
    /// Duration of the reading, milliseconds.
    pub took_ms: u64,
    /// The result. Not flattened: serde cannot read numeric map keys back from a flattened field.
    pub outcome: Outcome<T>,
}

/// The result of a reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome<T> {
    /// It was read.
    Seen(T),
    /// The node has no such thing: no driver, no RDMA device.
    Absent(String),
    /// It is there, and reading it failed.
    Failed(String),
    /// It did not answer in time.
    TimedOut {
        /// The deadline, milliseconds.
        limit_ms: u64,
        /// Where it hung, as far as the kernel shows: `nvidia_ioctl` of pid 4711, state D.
        stuck_in: String,
    },
    /// It was not requested.
    #[default]
    NotAsked,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { at_ns: 0, took_ms: 0, outcome: Outcome::NotAsked }
    }
}

/// Part of each text on what does not return from the driver or the kernel: `it hangs in nvmlDeviceGetPowerUsage`.
pub const HANGS: &str = "hangs in";

/// Whether the text of a failed reading says that it does not return.
pub fn is_hang(why: &str) -> bool {
    why.contains(HANGS)
}

/// Why there is no reading, worded as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The reason: `the driver's library is not there`.
    pub why: String,
    /// Whether the reading hung, which is itself a symptom.
    pub is_hang: bool,
    /// Whether the reading failed or hung; false if the node has no such thing or it was not requested.
    pub is_trouble: bool,
}

impl<T> Part<T> {
    /// A reading without times.
    pub fn of(value: T) -> Self {
        Self { at_ns: 0, took_ms: 0, outcome: Outcome::Seen(value) }
    }

    /// The reading.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn seen(&self) -> Result<&T, Missing> {
        let (why, is_hang, is_trouble) = match &self.outcome {
            Outcome::Seen(value) => return Ok(value),
            Outcome::Absent(why) => (why.clone(), false, false),
            Outcome::Failed(why) => (why.clone(), false, true),
            Outcome::TimedOut { limit_ms, stuck_in } => {
                let stuck = if stuck_in.is_empty() { String::new() } else { format!(": {stuck_in}") };
                (format!("no answer within {limit_ms} ms{stuck}"), true, true)
            }
            Outcome::NotAsked => ("not read".to_owned(), false, false),
        };
        Err(Missing { why, is_hang, is_trouble })
    }

    /// The reading, if there is one.
    pub fn get(&self) -> Option<&T> {
        match &self.outcome {
            Outcome::Seen(value) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Outcome, Part};

    #[test]
    fn what_is_written_is_read_back() {
        let seen: Part<BTreeMap<u32, String>> = Part::of(BTreeMap::from([(4190, "libnccl".to_owned())]));
        let hung =
            Part { outcome: Outcome::TimedOut { limit_ms: 5, stuck_in: "x".to_owned() }, ..seen.clone() };
        for part in [seen, hung, Part::default()] {
            let text = serde_json::to_string(&part).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Part<BTreeMap<u32, String>>>(&text).ok(), Some(part), "{text}");
        }
    }
}
