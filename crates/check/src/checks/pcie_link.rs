//! # What it checks
//!
//! Lanes and speed of the PCIe links of GPUs, NVSwitches, network cards and NVMe, compared with their maximum and with
//! cards of the same model.
//!
//! # What fails
//!
//! Fewer lanes than the card supports while another card of its model has all of them; a busy GPU at a lower speed
//! than its busy peers. If all cards of a model have the same, it is the design of the slots. It warns about a card
//! without peers if the bridge above it supports more. Links slow down when a device is idle: that is no fault.
//!
//! # What to do
//!
//! Reseat the card or its riser; check the kernel log for PCIe errors.
//!
//! # References
//!
//! PCI Express base specification, link status register; Linux, Documentation/ABI/testing/sysfs-bus-pci.

use ringleader_node::{Gpu, Gpus, Pci, PciDevice};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, is_busy, item, peers};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "pcie-link",
    title: "PCIe width and speed",
    area: Area::Pcie,
    reads: &[Probe::Gpus, Probe::Pci],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("pcie_link.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let (pci, gpus) = (view.node.pci.get(), view.node.gpus.get());
    if pci.is_none() && gpus.is_none() {
        return view
            .node
            .pci
            .seen()
            .err()
            .map_or_else(|| CheckAnswer::skipped("not read"), CheckAnswer::from);
    }
    let mut items = Vec::new();
    let mut n_links = 0;
    for device in pci.into_iter().flat_map(|pci| &pci.devices).filter(|device| is_card(device)) {
        n_links += usize::from(device.width.is_some());
        items.extend(pci.and_then(|pci| narrow(device, pci, gpus)));
    }
    for gpu in gpus.into_iter().flat_map(|gpus| &gpus.gpus) {
        // If the bus is hidden, NVML's reading of the width is used instead.
        if pci.is_none() {
            n_links += usize::from(gpu.pcie.width.is_some());
            items.extend(gpus.and_then(|gpus| narrow_by_nvml(gpu, gpus)));
        }
        items.extend(gpus.and_then(|gpus| slow(gpu, gpus)));
    }
    if n_links == 0 {
        return CheckAnswer::skipped("no card of this machine reports its PCIe link");
    }
    let mut answer = CheckAnswer::from_items(
        format!("{} as wide as others of the same kind", count(n_links, "link")),
        items,
    )
    .advise(
        Impact::Harmless,
        "check the links and their errors",
        Some(
            "lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'; dmesg -T | grep -iE 'aer|pcieport'".to_owned(),
        ),
    )
    .advise(Impact::Disruptive, "take the node out and have the card or its riser reseated", None);
    for gpu in gpus.into_iter().flat_map(|gpus| &gpus.gpus) {
        if let Some(width) = gpu.pcie.width {
            answer = answer.value(format!("gpu.{}.pcie-width", gpu.index), width, ValueKind::Same);
        }
    }
    answer
}

/// Whether it is a card, not a bridge between buses.
fn is_card(device: &PciDevice) -> bool {
    device.class >> 8 != 0x0604 && !device.is_gone
}

fn is_like(a: &PciDevice, b: &PciDevice) -> bool {
    (a.vendor, a.device, a.class) == (b.vendor, b.device, b.class) && a.address != b.address
}

fn narrow(device: &PciDevice, pci: &Pci, gpus: Option<&Gpus>) -> Option<Item> {
    let (now, most) = (device.width?, device.width_max?);
    if now >= most {
        return None;
    }
    let widest =
        pci.devices.iter().filter(|other| is_like(device, other)).filter_map(|other| other.width).max();
    let (verdict, text) = match widest {
        Some(widest) if widest > now => {
            (CheckState::Fail, format!("it has {now} of {most} PCIe lanes, others of its kind have {widest}"))
        }
        Some(_) => return None,
        None => {
            let above = pci.devices.iter().find(|other| Some(&other.address) == device.parent.as_ref())?;
            let possible = above.width_max.filter(|possible| *possible > now)?.min(most);
            (CheckState::Warn, format!("it has {now} PCIe lanes, it and its slot support {possible}"))
        }
    };
    let gpu = gpus.and_then(|gpus| gpus.gpus.iter().find(|gpu| gpu.pci == device.address));
    let subject = match (gpu, device.class >> 16) {
        (Some(gpu), _) => crate::gpus::name(gpu),
        (None, 0x03) => format!("GPU {}", device.address),
        (None, 0x02) => format!("network card {}", device.address),
        (None, _) => format!("device {}", device.address),
    };
    let evidence =
        format!("/sys/bus/pci/devices/{}: current_link_width {now}, max_link_width {most}", device.address);
    Some(Item { subject, verdict, text, evidence })
}

fn narrow_by_nvml(gpu: &Gpu, gpus: &Gpus) -> Option<Item> {
    let (now, most) = (gpu.pcie.width?, gpu.pcie.width_max?);
    let widest = peers(gpu, gpus).filter_map(|peer| peer.pcie.width).max()?;
    (now < most && now < widest).then(|| {
        let text = format!("it has {now} of {most} PCIe lanes, its peers have {widest}");
        item(gpu, CheckState::Fail, text, format!("NVML: PCIe width {now}, at most {most}"))
    })
}

/// A GPU that is slower than its peers while all of them are busy.
fn slow(gpu: &Gpu, gpus: &Gpus) -> Option<Item> {
    let (now, most) = (gpu.pcie.generation?, gpu.pcie.generation_max?);
    if now >= most || is_busy(gpu) != Some(true) {
        return None;
    }
    let fastest = peers(gpu, gpus)
        .filter(|peer| is_busy(peer) == Some(true))
        .filter_map(|peer| peer.pcie.generation)
        .max()?;
    (fastest > now).then(|| {
        let text = format!("it works at PCIe generation {now}, its peers at {fastest}");
        item(gpu, CheckState::Fail, text, format!("NVML: PCIe generation {now}, at most {most}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{healthy, is_sound, node, pci, verdict};

    #[test]
    fn fewer_lanes_than_the_peers() {
        is_sound(&CHECK);
        let mut node = healthy();
        pci(&mut node).devices[5].width = Some(8);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["GPU 2 (0000:1d:00.0)".to_owned()]));
        // All alike: it is the design of the slots.
        pci(&mut node)
            .devices
            .iter_mut()
            .filter(|device| device.vendor == 0x10de)
            .for_each(|d| d.width = Some(8));
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
        // The bus is hidden, so NVML's readings count.
        let mut hidden = crate::staging_gpus::node(4, |n, gpu| {
            if n == 1 {
                gpu.pcie.width = Some(4);
            }
        });
        hidden.pci = ringleader_node::Part::default();
        assert_eq!(verdict(&CHECK, &hidden), (CheckState::Fail, vec!["GPU 1 (0000:1c:00.0)".to_owned()]));
    }

    #[test]
    fn a_card_alone() {
        let mut node = node(1, |_, _| {});
        pci(&mut node).devices[1].width = Some(8);
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
        pci(&mut node).devices[0].width_max = Some(16);
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Warn);
    }

    #[test]
    fn speed_counts_at_work() {
        let one = |pct| {
            node(4, move |n, gpu| {
                if n == 3 {
                    (gpu.pcie.generation, gpu.utilization_pct) = (Some(1), Some(pct));
                }
            })
        };
        assert_eq!(verdict(&CHECK, &one(100)), (CheckState::Fail, vec!["GPU 3 (0000:1e:00.0)".to_owned()]));
        assert_eq!(verdict(&CHECK, &one(0)).0, CheckState::Ok);
    }
}
