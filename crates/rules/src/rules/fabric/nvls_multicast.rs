//! # What it shows
//!
//! NCCL wanted to use the reduction unit of the NVSwitches (NVLS) and could not get multicast memory for it. The
//! communicator is not made.
//!
//! # Why it happens
//!
//! The Fabric Manager or a switch is in a bad state; many jobs of one node share the multicast slots; a virtual
//! machine or container does not pass them on.
//!
//! # Evidence
//!
//! `Failed to bind NVLink SHARP (NVLS) Multicast memory`, or CUDA errors whose origin is transport/nvls.cc.
//!
//! # What looks like it but is not
//!
//! `Proceeding without NVLS support` on every rank alike is only slower. `NVLS multicast support is not available`
//! on older GPUs is normal.
//!
//! # What to do
//!
//! Run without it to confirm, then repair the fabric.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/nvls.cc, 2.17.1 and later.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nvls-multicast",
    title: "NVLink SHARP multicast failed",
    since: "0.1",
    doc: include_str!("nvls_multicast.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::NvlsMulticast) else { return Outcome::Clear };
    let title = format!("{who}: NVLink SHARP multicast memory could not be set up", who = told.who());
    let draft = told
        .draft(&RULE, Cause::NvlsMulticast, title)
        .advise_command(
            Impact::Disruptive,
            "run without multicast: if that works the fault is in the fabric",
            "NCCL_NVLS_ENABLE=0",
        )
        .advise_command(
            Impact::Harmless,
            "look at the fabric state of all GPUs and the service",
            "nvidia-smi -q | grep -iA4 fabric; systemctl status nvidia-fabricmanager",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn nccl_says_so() {
        Stage::new().process("n", 1, Some(0)).warn("transport/nvls.cc:512", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.").expect(&RULE, &["nvls-multicast 0"]);
    }

    #[test]
    fn a_bad_access_seen_there_is_another_thing() {
        Stage::new()
            .process("n", 1, Some(0))
            .warn("transport/nvls.cc:512", "Cuda failure 700 'an illegal memory access was encountered'")
            .silent(&RULE);
    }
}
