//! Shared by the checks of GPUs: the name of a GPU, whether it is busy, and its peers.

use ringleader_node::{Gpu, Gpus, Missing, Pci, PciDevice};

use crate::answer::{CheckAnswer, CheckState, Item};
use crate::view::NodeView;

/// Utilization from which a GPU counts as busy; below it may be between two steps.
const BUSY_PCT: u32 = 50;

/// `GPU 3 (0000:5d:00.0)`.
pub(crate) fn name(gpu: &Gpu) -> String {
    if gpu.pci.is_empty() { format!("GPU {}", gpu.index) } else { format!("GPU {} ({})", gpu.index, gpu.pci) }
}

/// An item about a GPU.
pub(crate) fn item(gpu: &Gpu, verdict: CheckState, text: String, evidence: String) -> Item {
    Item { subject: name(gpu), verdict, text, evidence }
}

/// The GPUs, if there is one to judge.
///
/// # Errors
/// The answer of a check without GPUs.
pub(crate) fn of<'a>(view: &NodeView<'a>) -> Result<&'a Gpus, CheckAnswer> {
    let gpus = view.node.gpus.seen().map_err(|missing: Missing| CheckAnswer::skipped(missing.why))?;
    if gpus.gpus.is_empty() {
        return Err(CheckAnswer::skipped("no GPU answers"));
    }
    Ok(gpus)
}

/// Whether it is busy at the moment; None if the utilization is unknown.
pub(crate) fn is_busy(gpu: &Gpu) -> Option<bool> {
    gpu.utilization_pct.map(|pct| pct >= BUSY_PCT)
}

/// Other GPUs of the same product.
pub(crate) fn peers<'a>(gpu: &'a Gpu, gpus: &'a Gpus) -> impl Iterator<Item = &'a Gpu> {
    gpus.gpus.iter().filter(move |other| other.index != gpu.index && other.name == gpu.name)
}

/// NVIDIA's GPUs on the bus.
pub(crate) fn on_bus(pci: &Pci) -> impl Iterator<Item = &PciDevice> {
    pci.devices.iter().filter(|device| device.vendor == 0x10de && device.class >> 16 == 0x03)
}

/// NVIDIA's NVSwitches on the bus.
pub(crate) fn switches(pci: &Pci) -> impl Iterator<Item = &PciDevice> {
    pci.devices.iter().filter(|device| device.vendor == 0x10de && device.class >> 8 == 0x0680)
}

/// `1 GPU`, `8 GPUs`.
pub(crate) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
