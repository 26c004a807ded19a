//! The probes, one file each: what they read, with which deadline, and what they need to be allowed.

mod gpus;
mod jobs;
mod kernel_log;
mod libraries;
mod mounts;
mod network;
mod pci;
mod rdma;
mod reach;
mod services;
mod shm;
mod system;

use serde::Serialize;

use crate::request::Request;

/// Why there is no reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The node has no such thing.
    #[error("{0}")]
    Absent(String),
    /// It is there; reading it failed.
    #[error("{0}")]
    Failed(String),
}

/// One probe.
pub struct Probe {
    /// Name: that of the part of the snapshot.
    pub name: &'static str,
    /// How long it may take, milliseconds.
    pub deadline_ms: u64,
    /// What it needs to be allowed, and what is missing without.
    pub privileges: &'static str,
    /// Reads; the answer is the part's content as JSON.
    pub take: fn(&Request) -> Result<serde_json::Value, Trouble>,
}

/// All probes.
pub static ALL: &[Probe] = &[
    Probe {
        name: "system",
        deadline_ms: 500,
        privileges: "none",
        take: |request| json(system::take(request)),
    },
    Probe {
        name: "gpus",
        // NVML initialises all GPUs where nothing keeps them initialised: seconds each.
        deadline_ms: 15_000,
        privileges: "none; the devices /dev/nvidia*",
        take: |request| json(gpus::take(request)),
    },
    Probe {
        name: "pci",
        deadline_ms: 2_000,
        privileges: "root, for the access control (ACS) of bridges",
        take: |request| json(pci::take(request)),
    },
    Probe {
        name: "kernel-log",
        deadline_ms: 2_000,
        privileges: "root, where kernel.dmesg_restrict is 1",
        take: |request| json(kernel_log::take(request)),
    },
    Probe {
        name: "services",
        deadline_ms: 4_000,
        privileges: "none",
        take: |request| json(services::take(request)),
    },
    Probe {
        name: "shm",
        deadline_ms: 1_000,
        privileges: "root, to see which of other users' processes hold a segment",
        take: |request| json(shm::take(request)),
    },
    Probe {
        name: "jobs",
        deadline_ms: 1_500,
        privileges: "root, to look into other users' processes",
        take: |request| json(jobs::take(request)),
    },
    Probe {
        name: "mounts",
        deadline_ms: 1_200,
        privileges: "root, to see the file systems of other users' containers",
        take: |request| json(mounts::take(request)),
    },
    Probe {
        name: "libraries",
        deadline_ms: 1_500,
        privileges: "root, to look into other users' processes",
        take: |request| json(libraries::take(request)),
    },
    Probe { name: "rdma", deadline_ms: 1_500, privileges: "none", take: |request| json(rdma::take(request)) },
    Probe {
        name: "network",
        deadline_ms: 1_700,
        privileges: "root, to see which of other users' processes listen",
        take: |request| json(network::take(request)),
    },
    Probe {
        name: "reach",
        deadline_ms: 2_000,
        privileges: "root, to see what masters other users' ranks name",
        take: |request| json(reach::take(request)),
    },
];

/// The probe of that name, or the task of `collect`.
pub fn by_name(name: &str) -> Option<&'static Probe> {
    ALL.iter().chain(crate::tasks::ALL).find(|probe| probe.name == name)
}

pub(crate) fn json<T: Serialize>(taken: Result<T, Trouble>) -> Result<serde_json::Value, Trouble> {
    serde_json::to_value(taken?).map_err(|error| Trouble::Failed(error.to_string()))
}
