//! The probes, one file each, and the one list of them. Each reads one part of the snapshot.

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

use ringleader_node::{Node, Outcome, Part};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::probe::{Probe, json};

/// Makes the list, and puts each answer into the snapshot. Every part has its probe: the pattern names all fields of a
/// snapshot, so the compiler asks for the probe of a new one.
macro_rules! probes {
    ($($part:ident by $module:ident: $name:literal, $deadline_ms:literal, $privileges:literal;)*) => {
        /// All probes.
        pub static ALL: &[Probe] = &[$(Probe {
            name: $name,
            deadline_ms: $deadline_ms,
            privileges: $privileges,
            take: |request| json($module::take(request)),
        }),*];

        /// Puts a part where it belongs.
        pub(crate) fn place(node: &mut Node, name: &str, answer: Part<Value>) {
            let Node { schema: _, tool_version: _, host: _, at_ns: _, took_ms: _, $($part),* } = node;
            match name {
                $($name => *$part = typed(answer),)*
                _ => {}
            }
        }
    };
}

// Part of the snapshot, module, name, deadline in milliseconds, what it needs to be allowed.
probes! {
    system by system: "system", 500, "none";
    // NVML initialises all GPUs where nothing keeps them initialised: seconds each.
    gpus by gpus: "gpus", 15_000, "none; the devices /dev/nvidia*";
    pci by pci: "pci", 2_000, "root, for the access control (ACS) of bridges";
    kernel_log by kernel_log: "kernel-log", 2_000, "root, where kernel.dmesg_restrict is 1";
    services by services: "services", 4_000, "none";
    shm by shm: "shm", 1_000, "root, to see which of other users' processes hold a segment";
    jobs by jobs: "jobs", 1_500, "root, to inspect other users' processes";
    mounts by mounts: "mounts", 1_200, "root, to see the file systems of other users' containers";
    libraries by libraries: "libraries", 1_500, "root, to inspect other users' processes";
    rdma by rdma: "rdma", 1_500, "none";
    net by network: "network", 1_700, "root, to see which of other users' processes listen";
    reach by reach: "reach", 2_000, "root, to see what masters other users' ranks name";
}

fn typed<T: DeserializeOwned>(part: Part<serde_json::Value>) -> Part<T> {
    let outcome = match part.outcome {
        Outcome::Seen(value) => match serde_json::from_value(value) {
            Ok(value) => Outcome::Seen(value),
            Err(error) => Outcome::Failed(format!("its answer could not be parsed: {error}")),
        },
        Outcome::Absent(why) => Outcome::Absent(why),
        Outcome::Failed(why) => Outcome::Failed(why),
        Outcome::TimedOut { limit_ms, stuck_in } => Outcome::TimedOut { limit_ms, stuck_in },
        Outcome::NotAsked => Outcome::NotAsked,
    };
    Part { at_ns: part.at_ns, took_ms: part.took_ms, outcome }
}
