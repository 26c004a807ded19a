//! # What it shows
//!
//! A GPU or NIC of the job has fewer PCIe lanes than it could have, while its peers have all of theirs.
//!
//! # Why it happens
//!
//! A badly seated card, a bad lane of a riser or retimer.
//!
//! # Evidence
//!
//! `LnkSta` against `LnkCap` in lspci, for a device that the log names, and other devices of the same name.
//!
//! # What looks like it but is not
//!
//! The speed drops when a device is idle: only the width counts. Slots that are wired with fewer lanes give all
//! cards of one sort the same width.
//!
//! # What to do
//!
//! Reseat the card; look for PCIe errors in the kernel log.
//!
//! # References
//!
//! PCI Express base specification, link status register; pciutils ls-caps.c.

use ringleader_model::{Cause, Confidence, Finding, Impact, PciDevice, Severity, SourceKind, SystemFact};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::add_culprit;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "pcie-width",
    title: "a device has lost PCIe lanes",
    since: "0.1",
    doc: include_str!("pcie_width.rs"),
    check,
};

fn narrow(device: &PciDevice) -> Option<(u32, u32, u32)> {
    let ((line, now, _), (most, _)) = (device.link?, device.link_max?);
    (now > 0 && now < most).then_some((line, now, most))
}

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    for (observation, fact) in scene.system() {
        let SystemFact::Pci(devices) = fact else { continue };
        let host = scene.host_of(observation);
        for device in devices {
            let (Some((line, now, most)), Some(address)) = (narrow(device), device.address) else { continue };
            let is_like = |d: &&PciDevice| d.name == device.name && d.address != device.address;
            let n_full =
                devices.iter().filter(is_like).filter(|d| d.link.is_some() && narrow(d).is_none()).count();
            let n_like = devices.iter().filter(is_like).count();
            // Peers show what the machine is built for.
            if n_full == 0 || n_full * 2 < n_like {
                continue;
            }
            let users = scene
                .roster()
                .members
                .iter()
                .filter(|m| m.gpu == Some(address) && scene.may_be_on(host.as_ref(), m.host.as_ref()));
            let mut culprits = Vec::new();
            for rank in users.filter_map(|m| m.rank) {
                add_culprit(&mut culprits, scene.roster().culprit_rank(rank));
            }
            let used = !culprits.is_empty();
            findings.extend(
                Draft::new(
                    RULE.id,
                    Cause::PcieError,
                    format!("{address} runs with {now} of {most} PCIe lanes, unlike its peers"),
                )
                .category(ringleader_model::Category::Performance)
                .severity(if used { Severity::Warning } else { Severity::Info })
                .confidence(Confidence::Medium)
                .culprits(culprits)
                .evidence([shown(observation, Some(line), SourceKind::System, format!("{address}: Width x{now}, capable of x{most}"))])
                .advise_made(
                    Impact::Harmless,
                    "check the link and its errors",
                    Some(format!("sudo lspci -vvv -s {address} | grep -E 'LnkCap|LnkSta|CESta|UESta'; dmesg -T | grep -i aer")),
                )
                .advise(Impact::Disruptive, "take the node out and have the card reseated")
                .build(),
            );
        }
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{PciAddress, PciDevice, SystemFact};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn gpus(widths: &[u32]) -> SystemFact {
        let device = |(bus, width): (usize, &u32)| PciDevice {
            line: 3,
            address: Some(PciAddress { domain: 0, bus: bus as u8, device: 0, function: 0 }),
            name: "3D controller: NVIDIA Corporation GH100".into(),
            link: Some((4, *width, 2.5)),
            link_max: Some((16, 32.0)),
            ..PciDevice::default()
        };
        SystemFact::Pci(widths.iter().enumerate().map(device).collect())
    }

    fn job() -> StagedCase {
        StagedCase::new().process("node0", 10, Some(1)).comm(1, 2, 1, true)
    }

    #[test]
    fn one_card_with_fewer_lanes_than_its_peers() {
        job().system("node0", gpus(&[16, 8, 16, 16])).concludes(&RULE, "pcie-error 1, medium");
    }

    #[test]
    fn all_alike_or_none_of_the_jobs() {
        job().system("node0", gpus(&[8, 8, 8, 8])).silent(&RULE);
        // Slow because idle.
        job().system("node0", gpus(&[16, 16, 16, 16])).silent(&RULE);
        let finding = job().system("node0", gpus(&[16, 16, 16, 4])).finding(&RULE);
        assert_eq!(finding.severity, ringleader_model::Severity::Info);
    }
}
