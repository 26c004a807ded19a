//! NCCL's profiler plugin: a guest in somebody's job.
//!
//! NCCL opens `libringleader_nccl.so` (`NCCL_PROFILER_PLUGIN`), takes the newest `ncclProfiler_vN` that it knows, and
//! calls it from its own threads. Each file in `abi` is one version of that interface and only translates; `core` is
//! what all of them do; `guard` stands between NCCL and everything here. What is seen goes into a file-backed ring
//! (crate `ring`), for an agent to read while the job runs or after it died.
//!
//! It never allocates, locks, waits, formats or calls the system in an event, never lets a panic out, and never returns
//! anything but success.

#![cfg(target_os = "linux")]

pub mod abi;
mod broadcasts;
mod core;
mod guard;
mod pace;
mod release;

pub use crate::core::{Core, events};
pub use crate::guard::{forget, guarded};
