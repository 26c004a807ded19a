//! Modules, PCI devices, NUMA nodes, options of the kernel, services.

use ringleader_model::{PciAddress, PciDevice, Service, SourceKind, SystemFact};

use super::{MAX_ROWS, SystemReader, SystemTable};
use crate::ground::{Line, Sink};

/// Control bits of ACS that change where traffic between devices goes.
const ACS_BITS: [&str; 4] = ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"];

impl SystemReader {
    /// `Module                  Size  Used by`, or a line of /proc/modules.
    pub(super) fn modules(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let mut words = text.split_ascii_whitespace();
        let is_heading = words.next() == Some("Module")
            && words.next() == Some("Size")
            && words.next() == Some("Used")
            && words.next() == Some("by");
        let mut names = Vec::new();
        let is_row = text.contains(" Live 0x");
        if !is_heading && (!is_row || !module(&mut names, text)) {
            return false;
        }
        self.open(SystemTable::Modules(names), line, sink);
        true
    }

    /// `17:00.0 3D controller: NVIDIA Corporation …`; `ACSCtl:` alone where somebody filtered.
    pub(super) fn pci(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let mut devices = Vec::new();
        if let Some(device) = device(text, line.number) {
            devices.push(device);
        } else if let Some(bits) = text.strip_prefix("ACSCtl:") {
            let acs = Some((line.number, acs(bits)));
            devices.push(PciDevice { line: line.number, acs, ..PciDevice::default() });
        } else {
            return false;
        }
        self.open(SystemTable::Pci(devices), line, sink);
        true
    }

    /// /proc/cmdline, and what the kernel says of its IOMMU.
    pub(super) fn kernel_options(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let is_ours = text.starts_with("BOOT_IMAGE=")
            || text.starts_with("iommu: Default domain type: ")
            || text == "DMAR: IOMMU enabled";
        if is_ours {
            self.push(SourceKind::System, SystemFact::KernelOptions(text.into()), line, sink);
        }
        is_ours
    }

    /// `available: 2 nodes (0-1)`.
    pub(super) fn numa(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let rest = text.strip_prefix("available: ").and_then(|r| r.split_once(" nodes ("));
        if rest.is_none_or(|(n, _)| n.parse::<u32>().is_err()) {
            return false;
        }
        self.open(SystemTable::Numa(Vec::new()), line, sink);
        true
    }

    /// `● nvidia-fabricmanager.service - NVIDIA fabric manager service`.
    pub(super) fn service(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(name) = text.strip_prefix("Unit ").and_then(|r| r.strip_suffix(" could not be found.")) {
            let service = Service { name: name.into(), state: "not-found".into(), detail: Box::default() };
            self.push(SourceKind::System, SystemFact::Service(service), line, sink);
            return true;
        }
        let Some(rest) = text.strip_prefix(['●', '○', '×', '*', '↻']).map(str::trim_start) else {
            return false;
        };
        let name = rest.split(' ').next().unwrap_or(rest);
        if name.strip_suffix(".service").is_none() {
            return false;
        }
        self.open(SystemTable::Service(Service { name: name.into(), ..Service::default() }), line, sink);
        true
    }
}

/// `nvidia_uvm           1531904  2`.
pub(super) fn module(names: &mut Vec<Box<str>>, text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let (Some(name), Some(size), Some(used)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    if size.parse::<u64>().is_err() || used.parse::<i64>().is_err() {
        return false;
    }
    if names.len() < MAX_ROWS {
        names.push(name.into());
    }
    true
}

/// Whether lspci's class and name are those of an NVIDIA GPU.
pub(super) fn is_gpu(name: &str) -> bool {
    ["3D controller: NVIDIA", "VGA compatible controller: NVIDIA", "Display controller: NVIDIA"]
        .iter()
        .any(|class| name.starts_with(class))
}

/// Whether a line begins with an address of PCI and names what is there.
pub(super) fn may_be_device(line: &[u8]) -> bool {
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (address, name) = line.split_at_checked(end).unwrap_or((line, b""));
    let is_hex = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
    address.len() >= 7
        && address.iter().all(is_hex)
        && matches!(address, [.., b'.', _])
        && memchr::memmem::find(name, b": ").is_some()
}

/// The heading of one device.
fn device(text: &str, line: u32) -> Option<PciDevice> {
    let (address, name) = text.split_once(' ')?;
    // The function is one figure: `10:00:01.012` is a time of day.
    let is_address = address.rsplit_once('.').is_some_and(|(_, function)| function.len() == 1)
        && address.len() >= 7
        && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.');
    if !is_address || !name.contains(": ") {
        return None;
    }
    let address = PciAddress::parse(address)?;
    Some(PciDevice { line, address: Some(address), name: name.into(), ..PciDevice::default() })
}

/// A line below a device's heading, indented; or the next device.
pub(super) fn pci_field(devices: &mut Vec<PciDevice>, text: &str, line: u32) -> bool {
    if !text.starts_with([' ', '\t']) {
        let next = device(text, line).or_else(|| {
            let acs = Some((line, acs(text.strip_prefix("ACSCtl:")?)));
            Some(PciDevice { line, acs, ..PciDevice::default() })
        });
        let Some(next) = next else { return false };
        if devices.len() < MAX_ROWS {
            devices.push(next);
        }
        return true;
    }
    let text = text.trim_start();
    let Some(open) = devices.last_mut() else { return false };
    let Some((key, value)) = text.split_once(':') else { return true };
    match key {
        "LnkCap" => open.link_max = link(value),
        "LnkSta" => open.link = link(value).map(|(lanes, speed)| (line, lanes, speed)),
        "ACSCtl" if open.acs.is_some() && open.address.is_none() => {
            devices.push(PciDevice { line, acs: Some((line, acs(value))), ..PciDevice::default() });
        }
        "ACSCtl" => open.acs = Some((line, acs(value))),
        "Kernel driver in use" => open.driver = Some(value.trim().into()),
        _ => {}
    }
    true
}

/// `Port #0, Speed 32GT/s, Width x16, ASPM …`, `Speed 16GT/s (downgraded), Width x8 (downgraded)`.
fn link(value: &str) -> Option<(u32, f64)> {
    let speed = value.split_once("Speed ")?.1.split_once("GT/s")?.0.parse().ok()?;
    let width = value.split_once("Width x")?.1;
    let digits = width.bytes().take_while(u8::is_ascii_digit).count();
    Some((width.get(..digits)?.parse().ok()?, speed))
}

fn acs(bits: &str) -> Vec<Box<str>> {
    let set = bits.split_ascii_whitespace().filter_map(|w| w.strip_suffix('+'));
    set.filter(|b| ACS_BITS.contains(b)).map(Into::into).collect()
}

/// `node 0 cpus: 0 1 2`, `node 0 size: 4699 MB`.
pub(super) fn numa_line(nodes: &mut Vec<(u32, u32, u64)>, text: &str) -> bool {
    let Some((number, rest)) = text.strip_prefix("node ").and_then(|r| r.split_once(' ')) else {
        return false;
    };
    let Ok(number) = number.parse() else { return text.starts_with("node distances") };
    if let Some(list) = rest.strip_prefix("cpus:") {
        if nodes.len() < MAX_ROWS {
            nodes.push((number, list.split_ascii_whitespace().count() as u32, 0));
        }
    } else if let Some(size) = rest.strip_prefix("size: ").and_then(|r| r.strip_suffix(" MB"))
        && let Some(node) = nodes.iter_mut().find(|(n, ..)| *n == number)
    {
        node.2 = size.parse().unwrap_or(0);
    }
    true
}

/// `     Active: active (running) since …`.
pub(super) fn service_field(service: &mut Service, text: &str) -> bool {
    let Some((key, value)) = text.split_once(": ") else { return false };
    if key == "Active" {
        let (state, detail) = value.split_once(' ').unwrap_or((value, ""));
        service.state = state.into();
        service.detail =
            detail.strip_prefix('(').and_then(|d| d.split_once(')')).map_or("", |(d, _)| d).into();
    }
    matches!(
        key,
        "Active" | "Loaded" | "Main PID" | "Process" | "Tasks" | "Docs" | "Status" | "Memory" | "CGroup"
    )
}
