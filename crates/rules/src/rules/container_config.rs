//! # What it shows
//!
//! The processes of a node cannot reach a device or each other because of how their containers are set up.
//!
//! # Why it happens
//!
//! No GPU or driver inside, IMEX channel devices not passed, separate network or IPC namespaces or separate
//! /dev/shm for the ranks of one node.
//!
//! # Evidence
//!
//! `Failed to find CUDA library`, `No CUDA GPUs are available`, `No transport found`, failures of Unix sockets
//! (UDS) or of opening a peer's handle.
//!
//! # What looks like it but is not
//!
//! A GPU that fell off the bus is hardware. CUDA_VISIBLE_DEVICES set to nothing looks the same: check it first.
//!
//! # What to do
//!
//! Start the ranks of a node in one container, or share IPC, network namespace and /dev/shm.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/ipcsocket.cc, src/transport.cc, src/misc/cudawrap.cc; NVIDIA Container Toolkit
//! documentation.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "container-config",
    title: "the container lacks something",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("container_config.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "container-config") else { return Outcome::Clear };
    let title = format!("{who}: the container lacks a device, driver or shared namespace", who = told.who());
    let draft = told
        .draft(&RULE, "container-config", title)
        .advise_command(
            Impact::Harmless,
            "see what the container has",
            "nvidia-smi -L; echo \"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\"; ls /dev/nvidia* /dev/nvidia-caps-imex-channels 2>&1; df -h /dev/shm",
        )
        .advise_command(
            Impact::Disruptive,
            "start it with GPUs, shared IPC and the network of the host",
            "docker run --gpus all --ipc=host --network=host …",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn no_libcuda() {
        Stage::new().process("n", 1, Some(1)).warn("misc/cudawrap.cc:190", "Failed to find CUDA library (NCCL_CUDA_PATH='') : libcuda.so.1: cannot open shared object file").expect(&RULE, &["container-config 1"]);
    }

    #[test]
    fn handles_cannot_be_passed() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn(
                "misc/ipcsocket.cc:194",
                "UDS: Sending data over socket /tmp/nccl-socket-1-abc failed : Connection refused (111)",
            )
            .expect(&RULE, &["container-config 1"]);
    }

    #[test]
    fn imex_channels_are_missing() {
        Stage::new().process("n", 1, Some(1)).warn("init.cc:1700", "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.").expect(&RULE, &["container-config 1"]);
    }

    #[test]
    fn the_proxy_only_echoes() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("proxy.cc:1458", "[Service thread] Accept failed Resource temporarily unavailable")
            .silent(&RULE);
    }
}
