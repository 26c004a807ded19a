//! What programs report: messages of the job, torch's watchdog, schedulers, and a watcher of this program.

/// Longest text of a line of a log that is cited, characters.
pub const CITED_CHARS: usize = 400;

pub mod gid;
pub mod likeness;
pub mod messages;
pub mod scheduler;
pub mod statements;
pub mod watchdog;
pub mod watcher;
