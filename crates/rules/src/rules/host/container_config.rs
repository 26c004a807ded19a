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
//! `Failed to find CUDA library`, `No CUDA GPUs are available`, `No transport found`, failures of Unix sockets (UDS) or
//! of opening a peer's handle; nvidia-smi that fails with `Failed to initialize NVML: Unknown Error`, as it does in a
//! container that lost its GPUs when systemd rewrote its device rules.
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
//! documentation, troubleshooting (containers that lose access to GPUs).

use ringleader_knowledge::wording::{ToolFailure, tool_failure};
use ringleader_model::{Cause, Cite, Confidence, Impact, SourceKind, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::gpus::{Proof, graded};
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::Use;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "container-config",
    title: "the container lacks something that the job needs",
    since: "0.1",
    doc: include_str!("container_config.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let locked_out = locked_out(scene);
    let Some(told) = ClaimsOfCause::of(scene, Cause::ContainerConfig) else {
        return Outcome::from_findings(locked_out.and_then(Draft::build).into_iter().collect());
    };
    let title = format!("{who}: the container lacks a device, driver or shared namespace", who = told.who());
    let draft = told
        .draft(&RULE, Cause::ContainerConfig, title)
        .evidence(locked_out.and_then(Draft::build).into_iter().flat_map(|f| f.evidence))
        .advise_command(
            Impact::Harmless,
            "check what the container has",
            "nvidia-smi -L; echo \"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\"; ls /dev/nvidia* /dev/nvidia-caps-imex-channels 2>&1; df -h /dev/shm",
        )
        .advise_command(
            Impact::Harmless,
            "start it with GPUs, shared IPC and the network of the host",
            "docker run --gpus all --ipc=host --network=host …",
        );
    found(draft)
}

/// nvidia-smi in a container that may not open its GPUs any more.
fn locked_out(scene: &Scene<'_>) -> Option<Draft> {
    let (observation, line, text) = scene.gpu_tables().find_map(|(o, table)| {
        let (line, text) = table.failures.iter().find(|(_, t)| tool_failure(t) == ToolFailure::LockedOut)?;
        Some((o, *line, text))
    })?;
    let used = if scene.has_job() { Use::Unknown } else { Use::Alone };
    let title = "nvidia-smi is not allowed to open the GPUs: the container has lost its devices".to_owned();
    let draft = graded(scene, &RULE, Cause::ContainerConfig, Proof::Broken, used, title)
        // A broken driver may say so as well.
        .at_most(Confidence::Medium)
        .weight(Weight::Derived)
        .cite(Cite { line, ..observation.cite }, SourceKind::NvidiaSmi, text.to_string())
        .advise_command(
            Impact::Harmless,
            "compare with the host: if it works there, the container's device rules were rewritten",
            "nvidia-smi; docker exec <container> nvidia-smi; ls -l /dev/nvidia*",
        )
        .advise(
            Impact::Disruptive,
            "restart the container; name the device nodes when it is created (--device or CDI), so that systemd keeps them",
        );
    Some(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn a_container_that_lost_its_gpus() {
        let lost = "Failed to initialize NVML: Unknown Error";
        StagedCase::new().smi_fails(lost).concludes(&RULE, "container-config , medium");
        StagedCase::new()
            .smi_fails("Failed to initialize NVML: Driver/library version mismatch")
            .silent(&RULE);
        StagedCase::new().smi_fails("Failed to initialize NVML: Insufficient Permissions").silent(&RULE);
    }

    #[test]
    fn no_libcuda() {
        StagedCase::new().process("n", 1, Some(1)).warn("misc/cudawrap.cc:190", "Failed to find CUDA library (NCCL_CUDA_PATH='') : libcuda.so.1: cannot open shared object file").expect(&RULE, &["container-config 1"]);
    }

    #[test]
    fn handles_cannot_be_passed() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn(
                "misc/ipcsocket.cc:194",
                "UDS: Sending data over socket /tmp/nccl-socket-1-abc failed : Connection refused (111)",
            )
            .expect(&RULE, &["container-config 1"]);
    }

    #[test]
    fn imex_channels_are_missing() {
        StagedCase::new().process("n", 1, Some(1)).warn("init.cc:1700", "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.").expect(&RULE, &["container-config 1"]);
    }

    #[test]
    fn the_proxy_only_echoes() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn("proxy.cc:1458", "[Service thread] Accept failed Resource temporarily unavailable")
            .silent(&RULE);
    }
}
