//! Where each rank stands with regard to the operation that its communicator stands at.

use serde::{Deserialize, Serialize};

/// Where one rank stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Place {
    /// It has not called it.
    NeverEntered {
        /// Calls of this communicator that it has made.
        calls: u64,
        /// What it waits in elsewhere: communicator, function, number.
        elsewhere: Option<(String, String, u64)>,
    },
    /// It called something else at this number: kind, size, type or root differ from what most called.
    Different {
        /// What it called.
        called: String,
        /// What most called.
        others: String,
    },
    /// It has called it, and its kernel has not started: something earlier is on this GPU.
    NotStarted {
        /// An earlier operation in flight on the same process that has started: communicator, function, number.
        behind: Option<(String, String, u64)>,
    },
    /// Its kernel runs and waits.
    Waiting {
        /// For this rank of the communicator.
        peer: Option<u32>,
        /// On this channel.
        channel: Option<u8>,
        /// `send-gpu`, `send-peer`, `send-net`, `recv-net`, `recv-flush`, `recv-gpu`, or empty.
        phase: String,
    },
    /// It has called it; whether its kernel has started cannot be seen.
    Entered,
    /// It has ended it.
    Finished,
    /// Nothing is in flight in this communicator.
    Idle,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Gone.
    Dead,
    /// Ended, not yet collected.
    Zombie,
    /// Hangs in the kernel (state D).
    Uninterruptible {
        /// The kernel's function.
        wchan: Option<String>,
    },
    /// Nothing is known.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::Unknown { why: String::new() }
    }
}

impl Place {
    /// Name of the state, as events and pages show it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NeverEntered { .. } => "never-entered",
            Self::Different { .. } => "different",
            Self::NotStarted { .. } => "not-started",
            Self::Waiting { .. } => "waiting",
            Self::Entered => "entered",
            Self::Finished => "finished",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Zombie => "zombie",
            Self::Uninterruptible { .. } => "uninterruptible",
            Self::Unknown { .. } => "unknown",
        }
    }
}
