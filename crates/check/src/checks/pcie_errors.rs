//! # What it checks
//!
//! PCIe's error counters (AER) of GPUs, NVSwitches, network cards, NVMe and the bridges above them, and the GPUs'
//! replays.
//!
//! # What fails
//!
//! Fatal errors since boot; other uncorrected errors between the two readings. It warns about earlier uncorrected
//! errors, and about corrected errors and replays that grow: the link corrects them, but loses time.
//!
//! # What to do
//!
//! Reseat the card; if the errors recur, replace riser, cable or card.
//!
//! # References
//!
//! Linux, Documentation/PCI/pcieaer-howto.rst, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats.

use std::collections::BTreeSet;

use ringleader_node::{Pci, PciDevice};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, item};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "pcie-errors",
    title: "PCIe errors",
    area: Area::Pcie,
    reads: &[Probe::Gpus, Probe::Pci],
    drains: true,
    is_quick: false,
    since: "0.2",
    doc: include_str!("pcie_errors.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let pci = match view.node.pci.seen() {
        Ok(pci) => pci,
        Err(missing) => return missing.into(),
    };
    let wanted = on_paths(pci);
    let mut items = Vec::new();
    let (mut fatal, mut nonfatal) = (0, 0);
    for device in pci.devices.iter().filter(|device| wanted.contains(device.address.as_str())) {
        fatal += device.aer.get("fatal").copied().unwrap_or(0);
        nonfatal += device.aer.get("nonfatal").copied().unwrap_or(0);
        items.extend(errors(device, pci.window_ms));
    }
    for gpu in view.node.gpus.get().into_iter().flat_map(|gpus| &gpus.gpus) {
        if let Some((first, later)) = gpu.pcie.replays.zip(gpu.pcie.replays_later)
            && let Some(grown) = later.checked_sub(first).filter(|grown| *grown > 0)
        {
            let ms = gpu.window_ms.unwrap_or(0);
            let text = format!("{grown} PCIe packets were retransmitted within {ms} ms");
            let evidence = format!("nvmlDeviceGetPcieReplayCounter: {first}, then {later}");
            items.push(item(gpu, CheckState::Warn, text, evidence));
        }
    }
    let n_counting = pci
        .devices
        .iter()
        .filter(|device| device.counts_errors && wanted.contains(device.address.as_str()))
        .count();
    if n_counting == 0 && items.is_empty() {
        return CheckAnswer::skipped(
            "no card here counts PCIe errors (no AER: a virtual machine, or the firmware owns it)",
        );
    }
    CheckAnswer::from_items(format!("no uncorrected error on {}", count(n_counting, "device")), items)
        .advise(
            Impact::Harmless,
            "check which errors, and when",
            Some("dmesg -T | grep -iE 'aer|pcie bus error'; grep -H . /sys/bus/pci/devices/*/aer_dev_fatal | grep -v ' 0$'".to_owned()),
        )
        .advise(Impact::Disruptive, "take the node out and have the card, its riser or cable reseated or replaced", None)
        .value("pcie.fatal", fatal, ValueKind::Counter)
        .value("pcie.nonfatal", nonfatal, ValueKind::Counter)
}

/// Cards, and the bridges that lead to them.
fn on_paths(pci: &Pci) -> BTreeSet<&str> {
    let mut wanted = BTreeSet::new();
    for card in pci.devices.iter().filter(|device| device.class >> 8 != 0x0604) {
        let mut at = Some(card);
        while let Some(device) = at {
            // If a bridge was seen before, so were all bridges above it.
            if !wanted.insert(device.address.as_str()) {
                break;
            }
            at = pci.devices.iter().find(|other| Some(&other.address) == device.parent.as_ref());
        }
    }
    wanted
}

fn errors(device: &PciDevice, window_ms: Option<u64>) -> Option<Item> {
    let all = |kind: &str| device.aer.get(kind).copied().unwrap_or(0);
    let grown = |kind: &str| device.aer_grown.get(kind).copied().unwrap_or(0);
    let ms = window_ms.unwrap_or(0);
    let (verdict, text) = if all("fatal") > 0 || grown("fatal") > 0 {
        (CheckState::Fail, format!("{} fatal PCIe errors since boot", all("fatal") + grown("fatal")))
    } else if grown("nonfatal") > 0 {
        (CheckState::Fail, format!("{} uncorrected PCIe errors within {ms} ms", grown("nonfatal")))
    } else if all("nonfatal") > 0 {
        (
            CheckState::Warn,
            format!("{} uncorrected PCIe errors since boot, none within {ms} ms", all("nonfatal")),
        )
    } else if grown("correctable") > 0 {
        (CheckState::Warn, format!("{} corrected PCIe errors within {ms} ms", grown("correctable")))
    } else {
        return None;
    };
    let named: Vec<String> = device
        .aer
        .iter()
        .filter(|(name, _)| name.contains('.'))
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    let sort = match (device.class >> 16, device.class >> 8) {
        (0x03, _) => "GPU",
        (0x02, _) => "network card",
        (_, 0x0604) => "bridge",
        (_, 0x0680) => "NVSwitch",
        _ => "device",
    };
    Some(Item {
        subject: format!("{sort} {}", device.address),
        verdict,
        text,
        evidence: format!("/sys/bus/pci/devices/{}/aer_dev_*: {}", device.address, named.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{healthy, is_sound, node, pci, verdict};

    fn with(counters: &[(&str, u64)], grown: &[(&str, u64)]) -> (CheckState, Vec<String>) {
        let mut node = healthy();
        let device = &mut pci(&mut node).devices[3];
        device.aer = counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        device.aer_grown = grown.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        verdict(&CHECK, &node)
    }

    #[test]
    fn errors_by_kind() {
        is_sound(&CHECK);
        let named = vec!["GPU 0000:1c:00.0".to_owned()];
        assert_eq!(with(&[("fatal", 1), ("fatal.DLP", 1)], &[]), (CheckState::Fail, named.clone()));
        assert_eq!(with(&[("nonfatal", 2)], &[("nonfatal", 1)]), (CheckState::Fail, named.clone()));
        assert_eq!(with(&[("nonfatal", 2)], &[]), (CheckState::Warn, named.clone()));
        assert_eq!(with(&[("correctable", 9)], &[("correctable", 3)]), (CheckState::Warn, named));
        // Past corrected errors.
        assert_eq!(with(&[("correctable", 9_000)], &[]), (CheckState::Ok, Vec::new()));
    }

    #[test]
    fn only_what_leads_to_a_card() {
        let mut node = node(2, |_, _| {});
        let devices = &mut pci(&mut node).devices;
        devices[0].aer.insert("fatal".to_owned(), 1);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["bridge 0000:00:00.0".to_owned()]));
        let devices = &mut pci(&mut node).devices;
        devices[1].parent = None;
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
    }

    #[test]
    fn replays_that_grow() {
        let node = node(2, |n, gpu| {
            if n == 1 {
                gpu.pcie.replays_later = Some(7);
            }
        });
        assert_eq!(verdict(&CHECK, &node), (CheckState::Warn, vec!["GPU 1 (0000:1c:00.0)".to_owned()]));
    }
}
