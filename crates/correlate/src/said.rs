//! What was said: messages of the job, kernel logs, torch's watchdog, and a watcher of this program.

pub mod gid;
pub mod kernel;
pub mod links;
pub mod messages;
pub mod watchdog;
pub mod watcher;
