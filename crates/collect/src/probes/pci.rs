//! The PCI bus as sysfs shows it: GPUs, NVSwitches, network cards, NVMe and bridges, with their error counters; and the
//! host's memory controllers. Reads files, writes none.

mod acs;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_node::{Pci, PciDevice};

use crate::request::{ReadingError, Request};
use crate::sysfs::{bytes, link_name, names, number, text};

/// Devices that are listed.
const MAX_DEVICES: usize = 4096;
/// Files of error counters and what each is called here.
const AER: [(&str, &str); 3] =
    [("aer_dev_correctable", "correctable"), ("aer_dev_nonfatal", "nonfatal"), ("aer_dev_fatal", "fatal")];

pub(super) fn take(request: &Request) -> Result<Pci, ReadingError> {
    let sys = &request.roots.sys;
    let bus = sys.join("bus/pci/devices");
    if !bus.is_dir() {
        return Err(ReadingError::Absent(format!("there is no PCI bus: {} is not there", bus.display())));
    }
    let mut pci = Pci {
        iommu: !names(&sys.join("class/iommu")).is_empty(),
        kernel_options: text(&request.roots.proc.join("cmdline")).unwrap_or_default(),
        memory_controllers: memory_controllers(&sys.join("devices/system/edac/mc")),
        virtual_machine: virtual_machine(request),
        ..Pci::default()
    };
    let started = Instant::now();
    for address in names(&bus) {
        let at = bus.join(&address);
        let Some(class) = hex(&at.join("class")) else { continue };
        let vendor = hex(&at.join("vendor")).unwrap_or(0);
        if is_wanted(class, vendor) && pci.devices.len() < MAX_DEVICES {
            pci.devices.push(device(sys, &at, address, class, vendor));
        }
    }
    if request.window_ms > 0 {
        thread::sleep(Duration::from_millis(request.window_ms).saturating_sub(started.elapsed()));
        for device in &mut pci.devices {
            for (name, value) in aer(&bus.join(&device.address)) {
                let grown = value.saturating_sub(device.aer.get(&name).copied().unwrap_or(0));
                if grown > 0 {
                    device.aer_grown.insert(name, grown);
                }
            }
        }
        pci.window_ms = Some(started.elapsed().as_millis() as u64);
    }
    Ok(pci)
}

/// GPUs of NVIDIA, its NVSwitches, network cards of all sorts, NVMe, bridges between buses.
fn is_wanted(class: u32, vendor: u32) -> bool {
    let is_nvidia = vendor == 0x10de;
    match (class >> 16, class >> 8) {
        (0x03, _) | (_, 0x0680) => is_nvidia,
        (0x02, _) | (_, 0x0108 | 0x0604) => true,
        _ => false,
    }
}

fn device(sys: &Path, at: &Path, address: String, class: u32, vendor: u32) -> PciDevice {
    // Of bridges their capabilities, of others whether they are there at all.
    let wanted = if class >> 8 == 0x0604 { 4096 } else { 64 };
    let config = bytes(&at.join("config"), wanted).unwrap_or_default();
    let iommu_group = link_name(&at.join("iommu_group")).and_then(|name| name.parse().ok());
    PciDevice {
        vendor,
        device: hex(&at.join("device")).unwrap_or(0),
        class,
        driver: link_name(&at.join("driver")),
        parent: parent(at),
        numa: number::<i64>(&at.join("numa_node")).and_then(|node| u32::try_from(node).ok()),
        iommu_domain: iommu_group
            .and_then(|group: u32| text(&sys.join(format!("kernel/iommu_groups/{group}/type")))),
        iommu_group,
        speed_gt_s: speed(&at.join("current_link_speed")),
        speed_max_gt_s: speed(&at.join("max_link_speed")),
        width: width(&at.join("current_link_width")),
        width_max: width(&at.join("max_link_width")),
        counts_errors: AER.iter().any(|(file, _)| at.join(file).exists()),
        aer: aer(at).into_iter().filter(|(_, value)| *value > 0).collect(),
        aer_grown: BTreeMap::new(),
        acs: acs::controls(&config),
        is_gone: config.get(..4).is_some_and(|ids| ids.iter().all(|byte| *byte == 0xff)),
        address,
    }
}

/// `0x10de`.
fn hex(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.trim().strip_prefix("0x")?, 16).ok()
}

/// `16.0 GT/s PCIe`; None for `Unknown`.
fn speed(path: &Path) -> Option<f64> {
    text(path)?.split_whitespace().next()?.parse().ok()
}

/// Lanes; 0 and 63 and more are what a link gives that is not there.
fn width(path: &Path) -> Option<u32> {
    number(path).filter(|lanes| (1..=32).contains(lanes))
}

/// The bridge above: the link in `bus/pci/devices` leads through all bridges down to the device.
fn parent(at: &Path) -> Option<String> {
    let path = std::fs::canonicalize(at).ok()?;
    let above = path.parent()?.file_name()?.to_string_lossy().into_owned();
    // `0000:00:01.0`; the root is `pci0000:00`.
    let is_address = above.contains('.') && above.contains(':') && !above.starts_with("pci");
    is_address.then_some(above)
}

/// Counters of advanced error reporting, by `nonfatal` for the total and `nonfatal.CmpltTO` for each error.
fn aer(at: &Path) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (file, kind) in AER {
        for line in text(&at.join(file)).unwrap_or_default().lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse() else { continue };
            let name = name.trim();
            let key = if name.starts_with("TOTAL_") { kind.to_owned() } else { format!("{kind}.{name}") };
            counters.insert(key, value);
        }
    }
    counters
}

fn memory_controllers(at: &Path) -> Vec<(String, u64, u64)> {
    names(at)
        .into_iter()
        .filter(|name| name.starts_with("mc") && name[2..].bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|name| {
            let count = |file: &str| number(&at.join(&name).join(file));
            let (corrected, uncorrected) = (count("ce_count")?, count("ue_count")?);
            Some((name, corrected, uncorrected))
        })
        .collect()
}

/// What gives a virtual machine away.
fn virtual_machine(request: &Request) -> Option<String> {
    let flags = text(&request.roots.proc.join("cpuinfo")).unwrap_or_default();
    let is_guest = flags
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    let product = text(&request.roots.sys.join("class/dmi/id/product_name")).unwrap_or_default();
    let is_virtual_product =
        ["KVM", "Virtual Machine", "VMware", "Google Compute Engine", "Standard PC", "HVM domU"]
            .iter()
            .any(|word| product.contains(word));
    match (is_guest, is_virtual_product) {
        (_, true) => Some(format!("the board calls itself {product}")),
        (true, false) => Some("the processor's flag hypervisor".to_owned()),
        (false, false) => {
            text(&request.roots.sys.join("hypervisor/type")).map(|kind| format!("hypervisor {kind}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::request::Roots;

    /// A tree like that of a real machine: root port, switch, GPU and NIC.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/devices/pci0000:00");
        let bus = root.path().join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        let port = "0000:00:01.0";
        let gpu = "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:1b:00.0";
        for (path, class, vendor) in [
            (port, "0x060400", "0x8086"),
            ("0000:00:01.0/0000:01:00.0", "0x060400", "0x1000"),
            ("0000:00:01.0/0000:01:00.0/0000:02:00.0", "0x060400", "0x1000"),
            (gpu, "0x030200", "0x10de"),
            ("0000:00:02.0", "0x030000", "0x1a03"),
            ("0000:00:03.0", "0x068000", "0x10de"),
        ] {
            let at = devices.join(path);
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("class"), class).unwrap();
            fs::write(at.join("vendor"), vendor).unwrap();
            fs::write(at.join("device"), "0x2335\n").unwrap();
            fs::write(at.join("numa_node"), "-1\n").unwrap();
            symlink(&at, bus.join(at.file_name().unwrap())).unwrap();
        }
        let at = devices.join(gpu);
        fs::write(at.join("current_link_speed"), "2.5 GT/s PCIe\n").unwrap();
        fs::write(at.join("max_link_speed"), "32.0 GT/s PCIe\n").unwrap();
        fs::write(at.join("current_link_width"), "16\n").unwrap();
        fs::write(at.join("max_link_width"), "16\n").unwrap();
        fs::write(at.join("aer_dev_correctable"), "RxErr 0\nBadTLP 3\nTOTAL_ERR_COR 3\n").unwrap();
        fs::write(at.join("aer_dev_fatal"), "Undefined 0\nTOTAL_ERR_FATAL 0\n").unwrap();
        fs::write(at.join("config"), [0xff_u8; 64]).unwrap();
        let groups = root.path().join("sys/kernel/iommu_groups/7");
        fs::create_dir_all(&groups).unwrap();
        fs::write(groups.join("type"), "identity\n").unwrap();
        symlink(&groups, at.join("iommu_group")).unwrap();
        let mc = root.path().join("sys/devices/system/edac/mc/mc0");
        fs::create_dir_all(&mc).unwrap();
        fs::write(mc.join("ce_count"), "5\n").unwrap();
        fs::write(mc.join("ue_count"), "1\n").unwrap();
        root
    }

    #[test]
    fn a_gpu_behind_a_switch() {
        let root = tree();
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        let pci = take(&request).unwrap();
        let addresses: Vec<&str> = pci.devices.iter().map(|d| d.address.as_str()).collect();
        // The board's own graphics are no GPU of a job.
        assert_eq!(
            addresses,
            ["0000:00:01.0", "0000:00:03.0", "0000:01:00.0", "0000:02:00.0", "0000:1b:00.0"]
        );
        let gpu = &pci.devices[4];
        assert_eq!(gpu.parent.as_deref(), Some("0000:02:00.0"));
        assert_eq!(pci.devices[0].parent, None);
        assert_eq!((gpu.speed_gt_s, gpu.speed_max_gt_s, gpu.width), (Some(2.5), Some(32.0), Some(16)));
        assert_eq!(
            gpu.aer,
            BTreeMap::from([("correctable".to_owned(), 3), ("correctable.BadTLP".to_owned(), 3)])
        );
        assert!(gpu.is_gone);
        assert_eq!(gpu.numa, None);
        assert_eq!(gpu.iommu_domain.as_deref(), Some("identity"));
        assert_eq!(pci.memory_controllers, [("mc0".to_owned(), 5, 1)]);
        assert!(!pci.iommu);
        assert_eq!(pci.virtual_machine, None);
    }

    #[test]
    fn no_bus() {
        let root = tempfile::tempdir().unwrap();
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        assert!(matches!(take(&request), Err(ReadingError::Absent(_))));
    }
}
