//! The PCI bus as sysfs shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The PCI bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pci {
    /// GPUs, NVSwitches, network cards, NVMe and all bridges, by address.
    pub devices: Vec<PciDevice>,
    /// Whether the kernel translates device addresses (/sys/class/iommu is not empty).
    pub iommu: bool,
    /// Command line of the kernel.
    pub kernel_options: String,
    /// Memory controllers of the host (EDAC): name, corrected errors, uncorrected errors.
    pub memory_controllers: Vec<(String, u64, u64)>,
    /// How this was found to be a virtual machine; None if it is not.
    pub virtual_machine: Option<String>,
    /// Time between the two readings of the error counters, milliseconds; None if there was only one.
    pub window_ms: Option<u64>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// `0000:1b:00.0`.
    pub address: String,
    /// Vendor id, `0x10de`.
    pub vendor: u32,
    /// Device id.
    pub device: u32,
    /// Class code, `0x030200`.
    pub class: u32,
    /// Driver bound to it.
    pub driver: Option<String>,
    /// Address of the bridge above; None at the root.
    pub parent: Option<String>,
    /// NUMA node; None if the firmware reports none.
    pub numa: Option<u32>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// How its DMA addresses are translated: `identity` (not at all), `DMA`, `DMA-FQ`.
    pub iommu_domain: Option<String>,
    /// Current link speed, GT/s.
    pub speed_gt_s: Option<f64>,
    /// Highest link speed, GT/s.
    pub speed_max_gt_s: Option<f64>,
    /// Current number of lanes.
    pub width: Option<u32>,
    /// Highest number of lanes.
    pub width_max: Option<u32>,
    /// Whether it has counters of advanced error reporting (AER).
    pub counts_errors: bool,
    /// AER counters that are not zero: `correctable`, `nonfatal`, `fatal`, and each named error
    /// (`correctable.BadTLP`).
    pub aer: BTreeMap<String, u64>,
    /// Their growth until the second reading; only those that grew.
    pub aer_grown: BTreeMap<String, u64>,
    /// Access Control Services of a bridge: the control bits that are set (`SrcValid`, `ReqRedir`); None if
    /// configuration space was unreadable (needs root) or the capability is missing.
    pub acs: Option<Vec<String>>,
    /// Whether configuration space reads as all ones: the device is off the bus.
    pub is_gone: bool,
}
