//! # What it checks
//!
//! The PCIe path between GPUs, and between GPUs and network cards: access control (ACS) of the switches on it, and
//! address translation (IOMMU).
//!
//! # What fails
//!
//! Nothing: it only warns. A switch whose ports redirect traffic between two cards below it to the processor
//! (`ReqRedir`, `CmpltRedir`) halves their bandwidth, or hangs them. A translating IOMMU does the same if GPUs
//! communicate over PCIe with each other or with RDMA cards. In a virtual machine the host decides, and this machine's
//! registers show nothing.
//!
//! # What to do
//!
//! Switch ACS off in the firmware, or on the ports at each boot; boot with `iommu=pt`, which keeps the IOMMU for
//! virtual machines and does not translate the host's own addresses.
//!
//! # References
//!
//! NVIDIA/nccl docs, Troubleshooting, PCI Access Control Services; PCI Express base specification, ACS; Linux,
//! Documentation/admin-guide/kernel-parameters.txt, iommu.

use ringleader_node::{Pci, PciDevice};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, on_bus};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "acs-iommu",
    title: "ACS and IOMMU between GPUs",
    area: Area::Pcie,
    reads: &[Probe::Gpus, Probe::Pci],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("acs_iommu.rs"),
    run,
};

/// Control bits that redirect traffic between two ports of a switch to the root.
const REDIRECTS: [&str; 2] = ["ReqRedir", "CmpltRedir"];
/// Mellanox, whose cards support RDMA; InfiniBand cards have a class of their own.
const MELLANOX: u32 = 0x15b3;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let pci = match view.node.pci.seen() {
        Ok(pci) => pci,
        Err(missing) => return missing.into(),
    };
    let gpus: Vec<&PciDevice> = on_bus(pci).collect();
    if gpus.is_empty() {
        return CheckAnswer::skipped("no NVIDIA GPU on the PCI bus");
    }
    if let Some(why) = &pci.virtual_machine {
        return CheckAnswer::skipped(format!("a virtual machine ({why}): its host controls ACS and IOMMU"));
    }
    let is_rdma = |device: &&PciDevice| {
        device.class >> 8 == 0x0207 || (device.class >> 16 == 0x02 && device.vendor == MELLANOX)
    };
    let nics: Vec<&PciDevice> = pci.devices.iter().filter(is_rdma).collect();
    let mut items = redirecting(pci, &gpus, &nics);
    // GPUs joined by NVLink do not use the bus for each other.
    let joined = view.node.gpus.get().is_some_and(|seen| {
        !seen.gpus.is_empty()
            && seen.gpus.iter().all(|gpu| gpu.links.iter().any(|link| link.active == Some(true)))
    });
    let uses_bus = !nics.is_empty() || (gpus.len() > 1 && !joined);
    let translated: Vec<&str> = gpus
        .iter()
        .filter(|gpu| gpu.iommu_domain.as_deref().is_some_and(|domain| domain.starts_with("DMA")))
        .map(|gpu| gpu.address.as_str())
        .collect();
    if uses_bus && !translated.is_empty() {
        items.push(Item {
            subject: "IOMMU".to_owned(),
            verdict: CheckState::Warn,
            text: format!(
                "it translates addresses of {}, which use peer-to-peer PCIe",
                count(translated.len(), "GPU")
            ),
            evidence: format!(
                "/sys/kernel/iommu_groups/*/type of {}: DMA; kernel: {}",
                translated.join(", "),
                options(&pci.kernel_options)
            ),
        });
    }
    let unreadable =
        pci.devices.iter().filter(|device| device.class >> 8 == 0x0604).all(|device| device.acs.is_none());
    let ok = if unreadable && shares_a_bridge(pci, &gpus, &nics) {
        "the IOMMU does not interfere; ACS could not be read (needs root, or the bridges have none)"
    } else {
        "nothing redirects traffic between GPUs and network cards"
    };
    CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "read the ACS bits of all bridges and the kernel's boot options",
            Some("lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'; cat /proc/cmdline".to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "switch ACS off in the firmware, boot with iommu=pt; until then test with peer access off",
            Some("NCCL_P2P_DISABLE=1".to_owned()),
        )
        .value("iommu", options(&pci.kernel_options), ValueKind::Same)
}

/// Options of the kernel's command line that concern the IOMMU.
fn options(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().filter(|word| word.contains("iommu")).collect();
    if words.is_empty() { "no IOMMU option".to_owned() } else { words.join(" ") }
}

/// Bridges from a device up to the root, nearest first.
fn above<'a>(device: &PciDevice, pci: &'a Pci) -> Vec<&'a PciDevice> {
    let mut path: Vec<&PciDevice> = Vec::new();
    let mut parent = device.parent.as_ref();
    // No bus is as deep as this, but a circle would be.
    while let Some(bridge) =
        pci.devices.iter().find(|other| Some(&other.address) == parent).filter(|_| path.len() < 32)
    {
        path.push(bridge);
        parent = bridge.parent.as_ref();
    }
    path
}

/// Bridges between two cards, up to the first common one; None if they meet only at the root, where nothing can be
/// redirected.
fn between<'a>(a: &PciDevice, b: &PciDevice, pci: &'a Pci) -> Option<Vec<&'a PciDevice>> {
    let (up_a, up_b) = (above(a, pci), above(b, pci));
    let common =
        up_a.iter().find(|bridge| up_b.iter().any(|other| other.address == bridge.address))?.address.as_str();
    let below = |path: Vec<&'a PciDevice>| {
        path.into_iter().take_while(|bridge| bridge.address != common).collect::<Vec<_>>()
    };
    let mut all = below(up_a);
    all.extend(below(up_b));
    Some(all)
}

fn pairs<'a>(gpus: &[&'a PciDevice], nics: &[&'a PciDevice]) -> Vec<(&'a PciDevice, &'a PciDevice)> {
    let mut pairs = Vec::new();
    for (at, gpu) in gpus.iter().enumerate() {
        pairs.extend(gpus.iter().skip(at + 1).map(|other| (*gpu, *other)));
        pairs.extend(nics.iter().map(|nic| (*gpu, *nic)));
    }
    pairs
}

fn shares_a_bridge(pci: &Pci, gpus: &[&PciDevice], nics: &[&PciDevice]) -> bool {
    pairs(gpus, nics).into_iter().any(|(a, b)| between(a, b, pci).is_some())
}

fn redirecting(pci: &Pci, gpus: &[&PciDevice], nics: &[&PciDevice]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for (a, b) in pairs(gpus, nics) {
        for bridge in between(a, b, pci).unwrap_or_default() {
            let bits = bridge.acs.iter().flatten().filter(|bit| REDIRECTS.contains(&bit.as_str()));
            let bits: Vec<&str> = bits.map(String::as_str).collect();
            let subject = format!("bridge {}", bridge.address);
            if bits.is_empty() || items.iter().any(|item| item.subject == subject) {
                continue;
            }
            items.push(Item {
                subject,
                verdict: CheckState::Warn,
                text: format!(
                    "ACS routes traffic between {} and {} through the processor",
                    a.address, b.address
                ),
                evidence: format!("ACSCtl of {}: {}", bridge.address, bits.join(" ")),
            });
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{healthy, is_sound, node, pci, verdict};

    /// Two GPUs below a switch with two ports.
    fn behind_a_switch(bits: &[&str]) -> ringleader_node::Node {
        let mut node = node(2, |_, _| {});
        let devices = &mut pci(&mut node).devices;
        let bridge = |address: &str, parent: Option<&str>| PciDevice {
            address: address.to_owned(),
            class: 0x06_0400,
            parent: parent.map(str::to_owned),
            acs: Some(bits.iter().map(|bit| (*bit).to_owned()).collect()),
            ..PciDevice::default()
        };
        devices.push(bridge("0000:01:00.0", Some("0000:00:00.0")));
        devices.push(bridge("0000:02:00.0", Some("0000:01:00.0")));
        devices.push(bridge("0000:02:01.0", Some("0000:01:00.0")));
        devices[1].parent = Some("0000:02:00.0".to_owned());
        devices[3].parent = Some("0000:02:01.0".to_owned());
        node
    }

    #[test]
    fn ports_of_a_switch() {
        is_sound(&CHECK);
        let ports = vec!["bridge 0000:02:00.0".to_owned(), "bridge 0000:02:01.0".to_owned()];
        assert_eq!(
            verdict(&CHECK, &behind_a_switch(&["SrcValid", "ReqRedir", "CmpltRedir"])),
            (CheckState::Warn, ports)
        );
        assert_eq!(verdict(&CHECK, &behind_a_switch(&["SrcValid"])).0, CheckState::Ok);
    }

    #[test]
    fn ports_of_the_root_redirect_nothing() {
        let mut node = healthy();
        for device in &mut pci(&mut node).devices {
            device.acs = Some(vec!["ReqRedir".to_owned()]);
        }
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
    }

    #[test]
    fn translation_counts_where_the_bus_is_used() {
        let mut node = healthy();
        for device in &mut pci(&mut node).devices {
            device.iommu_domain = Some("DMA-FQ".to_owned());
        }
        // All of them are joined by NVLink.
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
        let nic = PciDevice {
            address: "0000:40:00.0".to_owned(),
            vendor: MELLANOX,
            class: 0x02_0000,
            ..PciDevice::default()
        };
        pci(&mut node).devices.push(nic);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Warn, vec!["IOMMU".to_owned()]));
        pci(&mut node).virtual_machine = Some("KVM".to_owned());
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Skipped);
    }
}
