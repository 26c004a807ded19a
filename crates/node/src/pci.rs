//! The PCI bus as sysfs shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pci {
    /// GPUs, NVSwitches, network cards, NVMe and all bridges, by address.
    pub devices: Vec<PciDevice>,
    /// The kernel translates addresses of devices (/sys/class/iommu is not empty).
    pub iommu: bool,
    /// Command line of the kernel.
    pub kernel_options: String,
    /// Memory controllers of the host (EDAC): name, corrected, uncorrected.
    pub memory_controllers: Vec<(String, u64, u64)>,
    /// This is a virtual machine: what gave it away.
    pub virtual_machine: Option<String>,
    /// Time between the two looks at the error counters, milliseconds; None if there was one look.
    pub window_ms: Option<u64>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// `0000:1b:00.0`.
    pub address: String,
    /// Vendor, `0x10de`.
    pub vendor: u32,
    /// Device.
    pub device: u32,
    /// Class, `0x030200`.
    pub class: u32,
    /// Driver bound to it.
    pub driver: Option<String>,
    /// Address of the bridge above; None at the root.
    pub parent: Option<String>,
    /// NUMA node; None if the firmware tells none.
    pub numa: Option<u32>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// How its addresses are translated: `identity` (not at all), `DMA`, `DMA-FQ`.
    pub iommu_domain: Option<String>,
    /// GT/s now, and most.
    pub speed_gt_s: Option<f64>,
    /// Most.
    pub speed_max_gt_s: Option<f64>,
    /// Lanes now.
    pub width: Option<u32>,
    /// Most.
    pub width_max: Option<u32>,
    /// It has counters of advanced error reporting (AER).
    pub counts_errors: bool,
    /// AER counters that are not zero: `correctable`, `nonfatal`, `fatal`, each with its named errors
    /// (`correctable.BadTLP`).
    pub aer: BTreeMap<String, u64>,
    /// By how much they grew until the second look; only those that did.
    pub aer_grown: BTreeMap<String, u64>,
    /// Access Control Services of a bridge: the control bits that are on (`SrcValid`, `ReqRedir`); None if
    /// configuration space was not readable (needs root) or there is no such capability.
    pub acs: Option<Vec<String>>,
    /// Configuration space reads as all ones: the device is off the bus.
    pub is_gone: bool,
}
