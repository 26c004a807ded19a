//! NCCL's profiler plugin, which runs inside a user's job.
//!
//! NCCL opens `libringleader_nccl.so` (`NCCL_PROFILER_PLUGIN`), takes the newest `ncclProfiler_vN` that it knows, and
//! calls it from its own threads. Each file in `abi` is one version of that interface (1 to 7) and only translates; `core` holds
//! what all versions share; `guard` separates NCCL from everything here. Events are recorded in a file-backed ring
//! (crate `ring`), which an agent reads while the job runs or after it died.
//!
//! A second plugin can be named to it (`next`): it is called with all that NCCL would have told it.
//!
//! In an event the plugin never allocates, locks, waits, formats or makes a system call. It lets no panic out and
//! returns nothing but success.

#![cfg(target_os = "linux")]

pub mod abi;
mod broadcasts;
mod core;
mod guard;
mod next;
mod pace;
mod release;

pub use crate::core::{Core, events};
pub use crate::guard::{forget, guarded};
