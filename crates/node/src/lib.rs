//! The snapshot of one node at one moment: collectors take it, checks judge it and bundles contain it.
//!
//! Plain data with a stable serialised form, `ringleader.node.v1`: fields may be added and may be null; a field
//! never changes its meaning. Nothing here judges, and nothing here reads a node. Readings keep the units of their
//! source unless the field's name says otherwise (`_mib`, `_gbps`, `_ms`).
//!
//! A part that could not be read states why: not read is neither zero nor healthy.

mod choice;
mod gpu;
mod host;
mod job;
mod net;
mod part;
mod pci;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use choice::*;
pub use gpu::*;
pub use host::*;
pub use job::*;
pub use net::*;
pub use part::*;
pub use pci::*;

/// Name and major version of the format.
pub const SCHEMA: &str = "ringleader.node.v1";

/// One node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program that took it.
    pub tool_version: String,
    /// Name of the host, as its kernel gives it.
    pub host: String,
    /// When taking it began, nanoseconds since 1970 by the node's own clock.
    pub at_ns: i64,
    /// Total duration, milliseconds.
    pub took_ms: u64,
    /// Kernel, memory and clock.
    pub system: Part<System>,
    /// The driver's view of the GPUs.
    pub gpus: Part<Gpus>,
    /// The PCI bus, with error counters.
    pub pci: Part<Pci>,
    /// The kernel log since boot.
    pub kernel_log: Part<KernelLog>,
    /// The services of the GPU driver.
    pub services: Part<Vec<Service>>,
    /// RDMA devices.
    pub rdma: Part<Vec<RdmaPort>>,
    /// Network interfaces, routes and listeners.
    pub net: Part<Network>,
    /// Connections that were tested.
    pub reach: Part<Vec<Reach>>,
    /// /dev/shm.
    pub shm: Part<Shm>,
    /// File systems.
    pub mounts: Part<Vec<Mount>>,
    /// Processes of jobs on this node.
    pub jobs: Part<Jobs>,
    /// Versions of the libraries that the job's processes have loaded, by `pid` then name (`libnccl.so.2` ->
    /// `2.28.9`; of several copies in one process all, with [`BETWEEN_COPIES`] between them).
    pub libraries: Part<BTreeMap<u32, BTreeMap<String, String>>>,
}

/// Between the versions of several copies of a library in one process.
pub const BETWEEN_COPIES: &str = " and ";
