//! # What it shows
//!
//! Direct traffic between GPUs is set up but the platform stands in its way.
//!
//! # Why it happens
//!
//! The IOMMU or PCIe access control (ACS) redirects or blocks peer traffic; the BAR is too small; a virtual
//! machine.
//!
//! # Evidence
//!
//! `mapping of buffer object failed` when buffers of a peer are mapped.
//!
//! # What looks like it but is not
//!
//! Two GPUs that have no peer access at all say so in other words (p2p-unsupported).
//!
//! # What to do
//!
//! Test without peer access; if that cures it, turn the IOMMU and ACS off on bare metal.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 205; NCCL user guide, troubleshooting, PCI Access Control Services.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "p2p-acs-iommu",
    title: "peer memory cannot be mapped",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("p2p_acs_iommu.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "p2p-acs-iommu") else { return Outcome::Clear };
    let title = format!("{who}: memory of a peer GPU could not be mapped", who = told.who());
    let draft = told
        .draft(&RULE, "p2p-acs-iommu", title)
        .advise_command(
            Impact::Disruptive,
            "run without peer access: if that works the platform is at fault",
            "NCCL_P2P_DISABLE=1",
        )
        .advise_command(
            Impact::Harmless,
            "see whether the IOMMU is on and ACS is set on the bridges",
            "cat /proc/cmdline; lspci -vvv | grep -i acsctl",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn nccl_says_so() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("transport/p2p.cc:330", "Cuda failure 205 'mapping of buffer object failed'")
            .expect(&RULE, &["p2p-acs-iommu 1"]);
    }

    #[test]
    fn no_access_at_all_is_another_thing() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn(
                "transport/p2p.cc:330",
                "Cuda failure 217 'peer access is not supported between these two devices'",
            )
            .silent(&RULE);
    }
}
