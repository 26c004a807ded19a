//! # What it checks
//!
//! Whether the driver counts, opens and reads every GPU of the PCI bus, and whether their number is as expected.
//!
//! # What fails
//!
//! A GPU that is off the bus, that the driver does not count, cannot open, or lost while it was read; fewer GPUs than
//! `--gpus` requires. GPUs passed to a virtual machine (vfio) are ignored. In a container or a job step the bus shows
//! GPUs that are not granted: there only those that the driver counts are judged.
//!
//! # What to do
//!
//! Read the kernel log for Xid 79 and `fallen off the bus`; take the node out; a cold reboot shows whether the GPU
//! comes back.
//!
//! # References
//!
//! NVML API reference, nvmlReturn_t; NVIDIA Xid Catalog, 79.

use std::collections::BTreeSet;

use ringleader_node::{GPU_IS_LOST, Gpu, RESET_REQUIRED};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, item, on_bus};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpus-present",
    title: "GPUs present",
    area: Area::Gpu,
    reads: &[Probe::Gpus, Probe::Pci, Probe::System],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpus_present.rs"),
    run,
};

/// NVML's texts for a GPU that is broken, rather than one that merely lacks a reading.
const BROKEN: [&str; 4] =
    [GPU_IS_LOST, RESET_REQUIRED, "Interrupt Request Issue", "Insufficient External Power"];
/// Number of readings with `Unknown Error` that shows a broken GPU; one or two may be a gap of the driver.
const UNKNOWN: usize = 3;

/// The failed call and NVML's text, if the GPU is broken.
fn broken(gpu: &Gpu) -> Option<&(String, String)> {
    let unknown = || gpu.failures.iter().filter(|(_, word)| word == "Unknown Error");
    let calls: BTreeSet<&str> = unknown().map(|(call, _)| call.as_str()).collect();
    let word = gpu.failures.iter().find(|(_, word)| BROKEN.contains(&word.as_str()));
    word.or_else(|| unknown().next().filter(|_| calls.len() >= UNKNOWN))
}

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let mut items = Vec::new();
    let gone: Vec<&str> = view
        .node
        .pci
        .get()
        .into_iter()
        .flat_map(on_bus)
        .filter(|device| device.is_gone)
        .map(|device| device.address.as_str())
        .collect();
    for address in &gone {
        items.push(Item {
            subject: format!("GPU {address}"),
            verdict: CheckState::Fail,
            text: "it is off the bus".to_owned(),
            evidence: format!("/sys/bus/pci/devices/{address}/config reads ff ff ff ff"),
        });
    }
    let gpus = match view.node.gpus.seen() {
        Ok(gpus) => gpus,
        Err(missing) if items.is_empty() && view.options.n_gpus.unwrap_or(0) == 0 => return missing.into(),
        Err(missing) => {
            if let Some(n) = view.options.n_gpus {
                items.push(total(format!("{n} expected, and none can be read: {}", missing.why)));
            }
            return advise(CheckAnswer::from_items("", items));
        }
    };
    for (index, word) in &gpus.failures {
        items.push(Item {
            subject: format!("GPU {index}"),
            verdict: CheckState::Fail,
            text: format!("the driver lists it but cannot read it: {word}"),
            evidence: format!("NVML, GPU {index}: {word}"),
        });
    }
    for gpu in &gpus.gpus {
        if let Some((call, word)) = broken(gpu).filter(|_| !gone.contains(&gpu.pci.as_str())) {
            let evidence = format!("{call}: {word}");
            items.push(item(gpu, CheckState::Fail, format!("the driver says: {word}"), evidence));
        } else if let Some((call, word)) = gpu.failures.iter().find(|(_, word)| word.contains("infoROM")) {
            items.push(item(
                gpu,
                CheckState::Warn,
                format!("the driver says: {word}"),
                format!("{call}: {word}"),
            ));
        }
    }
    if let Some(expected) = view.options.n_gpus
        && (gpus.gpus.len() as u32) < expected
    {
        let seen = gpus.gpus.len();
        items.push(total(format!("{seen} answer, {expected} expected")));
    }
    let sees_all =
        view.node.system.get().is_some_and(|system| system.container.is_none()) && !gpus.is_restricted;
    let counted: BTreeSet<&str> = gpus.gpus.iter().map(|gpu| gpu.pci.as_str()).collect();
    if sees_all && let Some(pci) = view.node.pci.get() {
        let uncounted: Vec<_> = on_bus(pci)
            .filter(|d| !counted.contains(d.address.as_str()) && !d.is_gone)
            .filter(|d| !d.driver.as_deref().is_some_and(|driver| driver.starts_with("vfio")))
            .collect();
        // GPUs that the driver counted but could not open have no address.
        for device in uncounted.into_iter().skip(gpus.failures.len()) {
            let driver = device.driver.as_deref().unwrap_or("none");
            items.push(Item {
                subject: format!("GPU {}", device.address),
                verdict: CheckState::Fail,
                text: "it is on the PCI bus, but the driver does not list it".to_owned(),
                evidence: format!(
                    "/sys/bus/pci/devices/{}: driver {driver}; NVML counts {}",
                    device.address, gpus.n_counted
                ),
            });
        }
    }
    if gpus.n_counted == 0 && items.is_empty() {
        return CheckAnswer::skipped("the driver lists no GPU, and none is on the PCI bus");
    }
    advise(CheckAnswer::from_items(count(gpus.gpus.len(), "GPU") + " present and answering", items))
        .value("gpus", gpus.gpus.len(), ValueKind::Same)
        .value("gpu-product", gpus.gpus.first().map_or("", |gpu| gpu.name.as_str()), ValueKind::Same)
}

fn total(text: String) -> Item {
    let evidence = "NVML and --gpus".to_owned();
    Item { subject: "GPUs".to_owned(), verdict: CheckState::Fail, text, evidence }
}

fn advise(answer: CheckAnswer) -> CheckAnswer {
    answer
        .advise(
            Impact::Harmless,
            "check when the GPU disappeared and what the driver logged",
            Some(
                "dmesg -T | grep -iE 'xid|fallen off|RmInitAdapter'; nvidia-smi -L; lspci -d 10de:"
                    .to_owned(),
            ),
        )
        .advise(
            Impact::Destructive,
            "take the node out of service and power-cycle it; if the GPU stays missing, replace it",
            None,
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{answer, gpus, healthy, is_sound, pci, verdict};
    use crate::view::Expectations;

    #[test]
    fn all_there() {
        is_sound(&CHECK);
    }

    #[test]
    fn off_the_bus() {
        let mut node = healthy();
        pci(&mut node).devices[7].is_gone = true;
        gpus(&mut node).gpus.remove(3);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["GPU 0000:1e:00.0".to_owned()]));
        // The driver does not start: the bus still shows the GPUs.
        node.gpus = ringleader_node::Part::default();
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Fail);
    }

    #[test]
    fn not_counted() {
        let mut node = healthy();
        gpus(&mut node).gpus.remove(5);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["GPU 0000:20:00.0".to_owned()]));
        // Passed to a virtual machine, or not granted to this container.
        pci(&mut node).devices[11].driver = Some("vfio-pci".to_owned());
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
        pci(&mut node).devices[11].driver = Some("nvidia".to_owned());
        gpus(&mut node).is_restricted = true;
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
    }

    #[test]
    fn lost_while_read() {
        let mut node = healthy();
        gpus(&mut node).gpus[2].failures.push(("nvmlDeviceGetPowerUsage".to_owned(), GPU_IS_LOST.to_owned()));
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["GPU 2 (0000:1d:00.0)".to_owned()]));
        // A missing permission is not a fault of the GPU.
        gpus(&mut node).gpus[2].failures[0].1 = "Insufficient Permissions".to_owned();
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
        // A GPU that could not be opened is named once.
        let list = gpus(&mut node);
        list.gpus.remove(6);
        list.failures.push((6, GPU_IS_LOST.to_owned()));
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["GPU 6".to_owned()]));
    }

    #[test]
    fn fewer_than_expected() {
        let mut node = healthy();
        let options = Expectations { n_gpus: Some(16), ..Expectations::default() };
        let said = (CHECK.run)(&NodeView::new(&node, &options));
        assert_eq!((said.verdict, said.items.len()), (CheckState::Fail, 1));
        assert_eq!(said.summary, "GPUs: 8 answer, 16 expected");
        gpus(&mut node).gpus.clear();
        assert_eq!(answer(&CHECK, &node).verdict, CheckState::Fail);
    }
}
