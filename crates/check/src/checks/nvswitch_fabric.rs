//! # What it checks
//!
//! On a machine with NVSwitch: whether the GPUs have joined the fabric, the health of the fabric, and the Fabric
//! Manager.
//!
//! # What fails
//!
//! A GPU whose registration has not started, is in progress or ended with an error; a fabric that reports bad health,
//! bad routes, wrong wiring or reduced bandwidth; a Fabric Manager that has failed or is stopped, if the switches are
//! on this machine's bus and the GPUs do not report that they are ready. In a virtual machine it runs on the host. It
//! warns about a Fabric Manager of another version than the driver.
//!
//! # What to do
//!
//! Start the service while no process uses the GPUs; its version must equal the driver's. In progress for minutes means
//! that it does not find its switches or GPUs: read its log.
//!
//! # References
//!
//! NVIDIA, Fabric Manager User Guide; NVML API, nvmlDeviceGetGpuFabricInfoV.

use ringleader_node::{Gpu, Service};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, item, of, switches};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "nvswitch-fabric",
    title: "NVSwitch fabric",
    area: Area::NvLink,
    reads: &[Probe::Gpus, Probe::Pci, Probe::Services],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("nvswitch_fabric.rs"),
    run,
};

/// NVML's health mask: shift of a pair of bits (1 = true), its meaning, its severity.
const HEALTH: [(u32, &str, CheckState); 4] = [
    (0, "its NVLink bandwidth is degraded", CheckState::Fail),
    (2, "its routes are being recovered", CheckState::Warn),
    (4, "its routes are unhealthy", CheckState::Fail),
    (6, "it is recovering from an access timeout", CheckState::Warn),
];
/// The four bits above: what is wrong with the configuration; 0 and 1 are fine.
const CONFIGURATION: [&str; 4] = [
    "wrong system GUID",
    "wrong serial number of the chassis",
    "it is not in any partition",
    "too few NVLinks",
];

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let n_switches = view.node.pci.get().map_or(0, |pci| switches(pci).count());
    let has_fabric = |gpu: &&Gpu| gpu.fabric_state.as_deref().is_some_and(|state| state != "not-supported");
    let n_fabric = gpus.gpus.iter().filter(has_fabric).count();
    if n_fabric == 0 && n_switches == 0 {
        return CheckAnswer::skipped("no NVSwitch here");
    }
    let mut items: Vec<Item> = gpus.gpus.iter().flat_map(joined).collect();
    let is_ready = n_fabric > 0 && items.iter().all(|item| item.verdict < CheckState::Fail);
    let service = view.node.services.get().and_then(|services| {
        services.iter().find(|service| service.name.starts_with("nvidia-fabricmanager"))
    });
    items.extend(
        service.and_then(|service| manager(service, gpus.driver_version.as_deref(), is_ready, n_switches)),
    );
    if items.is_empty() && !is_ready && service.is_none() {
        let why =
            view.node.services.seen().err().map_or("it is not among the services".to_owned(), |m| m.why);
        return CheckAnswer::skipped(format!(
            "these GPUs do not report their state, and the Fabric Manager's is unknown: {why}"
        ));
    }
    let ok = if is_ready {
        format!("{} joined the fabric", count(n_fabric, "GPU"))
    } else {
        format!("the Fabric Manager runs, {} on the bus", count(n_switches, "NVSwitch"))
    };
    let mut answer = CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "compare the service with the driver, and read its log",
            Some(
                "systemctl status nvidia-fabricmanager; nv-fabricmanager --version; tail -50 /var/log/fabricmanager.log; nvidia-smi -q | grep -iA6 fabric"
                    .to_owned(),
            ),
        )
        .advise(
            Impact::Destructive,
            "with all GPU processes of the node stopped, restart the service; reboot if that does not help",
            Some("systemctl restart nvidia-fabricmanager".to_owned()),
        );
    if let Some(version) = service.and_then(|service| service.version.as_deref()) {
        answer = answer.value("fabric-manager-version", version, ValueKind::Same);
    }
    // Nodes of one multi-node NVLink domain have the same value; other nodes have none.
    if let Some(cluster) = gpus.gpus.iter().find_map(|gpu| gpu.fabric_cluster.as_deref()) {
        answer = answer.value("fabric-cluster", cluster, ValueKind::Same);
    }
    answer
}

fn joined(gpu: &Gpu) -> Vec<Item> {
    let Some(state) = gpu.fabric_state.as_deref() else { return Vec::new() };
    let mask = gpu.fabric_health_mask.unwrap_or(0);
    let evidence = format!(
        "NVML, fabric: state {state}, status {}, health mask {mask:#x}, summary {}",
        gpu.fabric_status.map_or("-".to_owned(), |n| n.to_string()),
        gpu.fabric_health_summary.map_or("-".to_owned(), |n| n.to_string()),
    );
    let one = |verdict, text: String| vec![item(gpu, verdict, text, evidence.clone())];
    match (state, gpu.fabric_status) {
        ("not-supported", _) => return Vec::new(),
        ("not-started", _) => {
            return one(CheckState::Fail, "it has not begun to join the NVSwitch fabric".to_owned());
        }
        ("in-progress", _) => {
            return one(CheckState::Fail, "it waits to join the NVSwitch fabric".to_owned());
        }
        ("completed", Some(status)) if status != 0 => {
            return one(
                CheckState::Fail,
                format!("joining the NVSwitch fabric ended with NVML error {status}"),
            );
        }
        _ => {}
    }
    let mut said: Vec<(CheckState, &str)> = HEALTH
        .iter()
        .filter(|(shift, ..)| mask >> shift & 3 == 1)
        .map(|(_, text, verdict)| (*verdict, *text))
        .collect();
    if let Some(text) = (mask >> 8 & 0xf).checked_sub(2).and_then(|n| CONFIGURATION.get(n as usize)) {
        said.push((CheckState::Fail, text));
    }
    match gpu.fabric_health_summary {
        Some(2) if said.is_empty() => said.push((CheckState::Fail, "its fabric is unhealthy")),
        Some(3) if said.is_empty() => said.push((CheckState::Warn, "its fabric has limited capacity")),
        _ => {}
    }
    said.into_iter().map(|(verdict, text)| item(gpu, verdict, text.to_owned(), evidence.clone())).collect()
}

fn manager(service: &Service, driver: Option<&str>, is_ready: bool, n_switches: usize) -> Option<Item> {
    let state =
        if service.load == "loaded" || service.load == "process" { &service.active } else { &service.load };
    let is_down = state != "active" && state != "activating";
    let (verdict, text) = if is_down && !is_ready && n_switches > 0 {
        (
            CheckState::Fail,
            format!("it is {state}, but the GPUs need it: {} on the bus", count(n_switches, "NVSwitch")),
        )
    } else if !is_down
        && let (Some(own), Some(driver)) = (service.version.as_deref(), driver.filter(|_| n_switches > 0))
    {
        if own == driver {
            return None;
        }
        (CheckState::Warn, format!("it has version {own}, the driver {driver}: they must be the same"))
    } else {
        return None;
    };
    Some(Item {
        subject: service.name.clone(),
        verdict,
        text,
        evidence: format!("systemctl show: {} {} {}", service.load, service.active, service.sub),
    })
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Node, Part, PciDevice};

    use super::*;
    use crate::staging_gpus::{answer, healthy, is_sound, node, pci, verdict};

    fn with_switch(mut node: Node, load: &str, active: &str, version: Option<&str>) -> Node {
        let address = "0000:05:00.0".to_owned();
        pci(&mut node).devices.push(PciDevice {
            address,
            vendor: 0x10de,
            class: 0x06_8000,
            ..PciDevice::default()
        });
        node.services = Part::of(vec![Service {
            name: "nvidia-fabricmanager.service".to_owned(),
            load: load.to_owned(),
            active: active.to_owned(),
            version: version.map(str::to_owned),
            ..Service::default()
        }]);
        node
    }

    #[test]
    fn states() {
        is_sound(&CHECK);
        for state in ["not-started", "in-progress"] {
            let one = node(8, |n, gpu| {
                if n == 0 {
                    gpu.fabric_state = Some(state.to_owned());
                }
            });
            assert_eq!(verdict(&CHECK, &one), (CheckState::Fail, vec!["GPU 0 (0000:1b:00.0)".to_owned()]));
        }
        let refused = node(8, |_, gpu| gpu.fabric_status = Some(999));
        assert_eq!(verdict(&CHECK, &refused).0, CheckState::Fail);
        let none = node(8, |_, gpu| gpu.fabric_state = Some("not-supported".to_owned()));
        assert_eq!(verdict(&CHECK, &none).0, CheckState::Skipped);
    }

    #[test]
    fn health() {
        let with = |mask: u32| {
            node(8, move |n, gpu| {
                if n == 6 {
                    gpu.fabric_health_mask = Some(mask);
                }
            })
        };
        for (mask, worst, word) in [
            (0x1a9, CheckState::Fail, "bandwidth is degraded"),
            (0x1a6, CheckState::Warn, "routes are being recovered"),
            (0x5aa, CheckState::Fail, "too few NVLinks"),
        ] {
            let said = answer(&CHECK, &with(mask));
            assert_eq!(said.verdict, worst, "{mask:#x}");
            assert!(said.summary.contains(word), "{}", said.summary);
        }
        assert_eq!(answer(&CHECK, &with(0)).verdict, CheckState::Ok);
    }

    #[test]
    fn the_service_counts_where_it_is_needed() {
        let name = vec!["nvidia-fabricmanager.service".to_owned()];
        // Ready, regardless of what prepared them: in a virtual machine that is the host.
        assert_eq!(verdict(&CHECK, &with_switch(healthy(), "not-found", "inactive", None)).0, CheckState::Ok);
        // GPUs that do not report a state (A100), with switches on the bus.
        let silent = || node(8, |_, gpu| gpu.fabric_state = Some("not-supported".to_owned()));
        assert_eq!(
            verdict(&CHECK, &with_switch(silent(), "loaded", "failed", None)),
            (CheckState::Fail, name.clone())
        );
        assert_eq!(
            verdict(&CHECK, &with_switch(silent(), "loaded", "active", Some("580.159.04"))).0,
            CheckState::Ok
        );
        let other = with_switch(healthy(), "loaded", "active", Some("580.95.05"));
        assert_eq!(verdict(&CHECK, &other), (CheckState::Warn, name));
    }
}
