//! # What it shows
//!
//! A GPU was asked to reach the memory of another and cannot.
//!
//! # Why it happens
//!
//! GPUs of different kinds or behind different root ports, consumer GPUs whose driver forbids it, a virtual
//! machine, more peers than one GPU can map; on NVLink machines a hardware or Fabric Manager fault.
//!
//! # Evidence
//!
//! `peer access is not supported between these two devices`, `peer mapping resources exhausted`, `P2P is disabled
//! between NVLINK connected GPUs`.
//!
//! # What looks like it but is not
//!
//! INFO `P2P is disabled between connected GPUs` only means that shared memory is used.
//!
//! # What to do
//!
//! Look at the access matrix. Where NVLink is there, repair it; elsewhere go through shared memory.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Codes 217, 711; NVIDIA/nccl src/graph/paths.cc.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "p2p-unsupported",
    title: "GPUs without peer access",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("p2p_unsupported.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "p2p-unsupported") else { return Outcome::Clear };
    let title = format!("{who}: these GPUs have no access to each other", who = told.who());
    let draft = told
        .draft(&RULE, "p2p-unsupported", title)
        .advise_command(
            Impact::Harmless,
            "show which pairs have access",
            "nvidia-smi topo -p2p r; nvidia-smi topo -m",
        )
        .advise_command(Impact::Disruptive, "go through shared memory (slower)", "NCCL_P2P_DISABLE=1");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn cuda_says_so() {
        Stage::new()
            .raised(
                Some(0),
                "RuntimeError",
                "CUDA error: peer access is not supported between these two devices",
                &[],
            )
            .expect(&RULE, &["p2p-unsupported 0"]);
    }

    #[test]
    fn nccl_says_so() {
        Stage::new().process("n", 1, Some(1)).warn("graph/paths.cc:330", "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, and is probably due to a hardware issue.").expect(&RULE, &["p2p-unsupported 1"]);
    }

    #[test]
    fn an_illegal_access_is_another_thing() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "CUDA error: an illegal memory access was encountered", &[])
            .silent(&RULE);
    }
}
