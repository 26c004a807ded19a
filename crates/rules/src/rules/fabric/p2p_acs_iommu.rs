//! # What it shows
//!
//! Direct traffic between GPUs is set up but the platform blocks it.
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
//! Test without peer access; if that helps, turn the IOMMU and ACS off on bare metal.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 205; NCCL user guide, troubleshooting, PCI Access Control Services.

use std::collections::BTreeSet;

use ringleader_knowledge::wording;
use ringleader_model::{Cause, Impact, KernelEventKind, PciAddress};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "p2p-acs-iommu",
    title: "peer memory cannot be mapped",
    since: "0.1",
    doc: include_str!("p2p_acs_iommu.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    // Devices known to be GPUs, from the job or from the driver's own lines.
    let driver = scene.kernel().all().iter().filter(|e| matches!(e.event.kind, KernelEventKind::Xid(_)));
    let gpus: BTreeSet<PciAddress> = scene
        .roster()
        .members
        .iter()
        .filter_map(|m| m.gpu)
        .chain(driver.filter_map(|e| e.event.device))
        .map(|gpu| PciAddress { function: 0, ..gpu })
        .collect();
    let seen = KernelFault::of(scene, |e| match &e.event.kind {
        KernelEventKind::IommuFault => {
            e.event.device.is_some_and(|d| gpus.contains(&d))
                || wording::names_nvidia_driver(&e.observation.text)
        }
        KernelEventKind::PcieError(error) => error.bits.iter().any(|b| &**b == "ACSViol"),
        _ => false,
    });
    let Some(both) = Both::of(ClaimsOfCause::of(scene, Cause::P2pAcsIommu), seen) else {
        return Outcome::Clear;
    };
    let draft = both.draft(
        &RULE,
        Cause::P2pAcsIommu,
        |told| format!("{who}: memory of a peer GPU could not be mapped", who = told.who()),
        |seen| {
            let device = seen.first().and_then(|e| e.event.device);
            let device = device.map_or_else(|| "a GPU".to_owned(), |d| d.to_string());
            format!("the IOMMU or ACS stopped traffic of {device}")
        },
    );
    let draft = draft
        .advise_command(
            Impact::Harmless,
            "run without peer access: if that works the platform is at fault",
            "NCCL_P2P_DISABLE=1",
        )
        .advise_command(
            Impact::Harmless,
            "check whether the IOMMU is on and ACS is set on the bridges",
            "cat /proc/cmdline; lspci -vvv | grep -i acsctl",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn nccl_says_so() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn("transport/p2p.cc:330", "Cuda failure 205 'mapping of buffer object failed'")
            .expect(&RULE, &["p2p-acs-iommu 1"]);
    }

    #[test]
    fn no_access_at_all_is_another_thing() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn(
                "transport/p2p.cc:330",
                "Cuda failure 217 'peer access is not supported between these two devices'",
            )
            .silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        use ringleader_model::{KernelEventKind, PcieSeverity};

        use ringleader_correlate::staging::kernel::BEGAN_S;
        StagedCase::new()
            .two_ranks()
            .kernel("0000:3b:00.0", KernelEventKind::IommuFault)
            .at_s(BEGAN_S + 9)
            .expect(&RULE, &["p2p-acs-iommu 1"]);
        StagedCase::new()
            .pcie("0000:00:1c.0", "pcieport", PcieSeverity::NonFatal, "ACSViol")
            .expect(&RULE, &["p2p-acs-iommu"]);
    }

    #[test]
    fn a_fault_of_another_device() {
        use ringleader_model::KernelEventKind;
        StagedCase::new().two_ranks().kernel("0000:00:1f.0", KernelEventKind::IommuFault).silent(&RULE);
    }
}
