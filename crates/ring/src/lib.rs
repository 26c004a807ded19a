//! The ring: a file per process that the plugin writes and an agent reads.
//!
//! `Writer` is the plugin's side: after creation it takes no lock, allocates nothing and makes no system call. `Reader`
//! is the agent's side: it copies the file and never maps it, so an owner who truncates the file cannot kill the
//! reader. `State::parse` reads a frozen image or the file of a dead process in the same way. `layout` describes the
//! file, `docs/decisions/0004-ring-v1.md` gives the reasons.

#![cfg_attr(loom, allow(dead_code, reason = "only the atomics are modelled"))]

#[cfg(all(target_os = "linux", not(loom)))]
mod clock;
#[cfg(not(loom))]
mod encode;
#[cfg(all(target_os = "linux", not(loom)))]
mod file;
#[cfg(all(target_os = "linux", not(loom)))]
mod groups;
#[cfg(not(loom))]
mod handle;
mod journal;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
pub mod names;
#[cfg(not(loom))]
mod parse;
mod progress;
#[cfg(all(target_os = "linux", not(loom)))]
mod reader;
mod slot;
mod state;
mod sync;
#[cfg(all(target_os = "linux", not(loom)))]
mod writer;

#[cfg(all(test, loom))]
mod model;

#[cfg(all(target_os = "linux", not(loom)))]
pub use clock::{mono_ns, unix_ns};
#[cfg(all(target_os = "linux", not(loom)))]
pub use file::{DIRECTORIES, DIRECTORY_VARIABLE, OpenError, PREFIX, RingOptions};
#[cfg(not(loom))]
pub use handle::{Handle, HandleKind};
#[cfg(not(loom))]
pub use layout::FILE_BYTES;
#[cfg(not(loom))]
pub use parse::ParseError;
#[cfg(all(target_os = "linux", not(loom)))]
pub use reader::{ReadError, Reader, rings_in};
pub use state::{CallArgs, Comm, Done, Exit, Foreign, Lost, Op, Phase, ReadMoment, RingProcess, State, Wait};
#[cfg(all(target_os = "linux", not(loom)))]
pub use writer::{CallDescriptor, NewComm, Writer};
