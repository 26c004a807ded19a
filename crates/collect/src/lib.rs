//! Reads a live node: each part in a process of its own, with a deadline, so that a driver or a mount that hangs costs
//! its deadline and not the report.
//!
//! Reading changes nothing: no signal, no ptrace, no reset, no write outside of the place the caller names. Nothing is
//! judged here. Linux alone; elsewhere every part says so.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod above;
mod addresses;
mod allowed;
#[cfg(test)]
mod captured;
pub mod collectors;
pub mod follow;
pub mod kin;
pub mod libraries;
mod native;
mod probe;
pub mod probes;
mod procfs;
mod request;
mod run;
mod sockets;
mod sys;
mod sysfs;
mod tasks;
pub mod tcp;

pub use crate::probe::Probe;
pub use crate::request::{FileAsk, Peer, ReadingError, Request, Roots, Target};
pub use crate::run::{answer, by_name, take};

/// QEMU's user emulation runs this (tools/arm64.sh).
#[cfg(test)]
fn is_emulated() -> bool {
    cfg!(target_arch = "aarch64") && std::env::var_os("ARM64_QEMU").is_some()
}
