//! The nodes of the job, with their GPUs and network ports, and what is wrong with each.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::SeenGpu;
use ringleader_knowledge::interface::is_virtual;
use ringleader_knowledge::wording;
use ringleader_model::{
    ClockReasons, Culprit, Fact, Finding, GpuPath, GpuRow, Host, Machine, MachineGpu, MachineNic, NetFact,
    PciAddress, Rank, Severity, Verdict,
};

/// Nodes that are kept: a job of 4,096 GPUs has 512.
const MAX_MACHINES: usize = 512;
/// GPUs and ports of a node.
const MAX_GPUS: usize = 32;
const MAX_NICS: usize = 32;

#[derive(Default)]
struct MachineDraft {
    ranks: Vec<Rank>,
    gpus: Vec<MachineGpu>,
    nics: Vec<MachineNic>,
    paths: BTreeMap<(u32, u32), Box<str>>,
    card_paths: BTreeMap<(u32, Box<str>), Box<str>>,
    findings: Vec<usize>,
}

/// The nodes, those with faults first; and how many were left out.
pub(super) fn machines(scene: &Scene<'_>, verdict: &Verdict) -> (Vec<Machine>, usize) {
    let mut nodes: BTreeMap<Option<Host>, MachineDraft> = BTreeMap::new();
    for member in &scene.roster().members {
        let (Some(rank), Some(host)) = (member.rank, &member.host) else { continue };
        let node = nodes.entry(Some(host.clone())).or_default();
        node.ranks.push(rank);
        if let Some(gpu) = gpu_of(&mut node.gpus, member.gpu, member.nvml_dev) {
            gpu.rank = Some(rank);
        }
    }
    // Output that does not name its node is of the only one, or of an unknown one.
    let only = (nodes.len() == 1).then(|| nodes.keys().next().cloned().flatten()).flatten();
    for seen in &scene.gpus().seen {
        let host = seen.culprit.host.clone().or_else(|| seen.observation.who.host.clone());
        let node = nodes.entry(host.or_else(|| only.clone())).or_default();
        if let Some(gpu) = gpu_of(&mut node.gpus, seen.pci, seen.row.index) {
            look_at(gpu, seen);
        }
    }
    for observation in &scene.case().observations {
        let Fact::Gpus(table) = &observation.fact else { continue };
        if table.paths.is_empty() && table.card_paths.is_empty() {
            continue;
        }
        let host = observation.who.host.clone().or_else(|| only.clone());
        let node = nodes.entry(host).or_default();
        for path in &table.card_paths {
            if path.gpu < MAX_GPUS as u32
                && node.card_paths.len() < MAX_GPUS * MAX_NICS
                && is_pcie(&path.kind)
            {
                node.card_paths.entry((path.gpu, path.card.clone())).or_insert_with(|| path.kind.clone());
                gpu_of(&mut node.gpus, None, Some(path.gpu));
            }
        }
        for path in &table.paths {
            add_path(&mut node.paths, path);
            gpu_of(&mut node.gpus, None, Some(path.from));
            gpu_of(&mut node.gpus, None, Some(path.to));
        }
    }
    for (observation, fact) in scene.net() {
        let Some(nic) = nic(fact) else { continue };
        let host = scene.host_of(observation).or_else(|| only.clone());
        let node = nodes.entry(host).or_default();
        if let Some(known) = node.nics.iter_mut().find(|known| known.name == nic.name) {
            join(known, nic);
        } else if node.nics.len() < MAX_NICS {
            node.nics.push(nic);
        }
    }
    for (at, finding) in verdict.findings.iter().enumerate().filter(|(_, f)| f.severity > Severity::Info) {
        for culprit in &finding.culprits {
            mark(&mut nodes, culprit, finding, at);
        }
    }
    // A node with only one known rank adds no information.
    let has_more =
        |node: &MachineDraft| !node.gpus.is_empty() || !node.nics.is_empty() || !node.findings.is_empty();
    if nodes.len() < 2 && !nodes.values().any(has_more) {
        return (Vec::new(), 0);
    }
    let n_faults = |node: &MachineDraft| {
        let of_gpu = |gpu: &MachineGpu| gpu.faults.len() + gpu.findings.len();
        let down =
            node.nics.iter().filter(|nic| nic.is_up == Some(false) || !nic.findings.is_empty()).count();
        node.findings.len() + node.gpus.iter().map(of_gpu).sum::<usize>() + down
    };
    let mut nodes: Vec<(Option<Host>, MachineDraft)> = nodes.into_iter().collect();
    nodes.sort_by_key(|(host, node)| (std::cmp::Reverse(n_faults(node)), host.clone()));
    let n_left_out = nodes.len().saturating_sub(MAX_MACHINES);
    nodes.truncate(MAX_MACHINES);
    (nodes.into_iter().map(|(host, node)| machine(host, node)).collect(), n_left_out)
}

fn machine(host: Option<Host>, mut node: MachineDraft) -> Machine {
    node.gpus.sort_by_key(|gpu| (gpu.index.is_none(), gpu.index, gpu.pci));
    node.nics.sort_by(|a, b| a.name.cmp(&b.name));
    Machine {
        host,
        ranks: node.ranks.into_iter().collect(),
        gpus: node.gpus,
        nics: node.nics,
        paths: node.paths.into_iter().map(|((from, to), kind)| (from, to, kind)).collect(),
        card_paths: node.card_paths.into_iter().map(|((gpu, card), kind)| (gpu, card, kind)).collect(),
        findings: node.findings,
    }
}

/// The GPU with this address, else with this index; a new one if there is none.
fn gpu_of(
    gpus: &mut Vec<MachineGpu>,
    pci: Option<PciAddress>,
    index: Option<u32>,
) -> Option<&mut MachineGpu> {
    let by_address = pci.and_then(|pci| gpus.iter().position(|gpu| gpu.pci == Some(pci)));
    let fits = |gpu: &MachineGpu| gpu.index == index && (gpu.pci.is_none() || pci.is_none());
    let by_index = || index.and_then(|_| gpus.iter().position(fits));
    let at = match by_address.or_else(by_index) {
        Some(at) => at,
        None if (pci.is_none() && index.is_none()) || gpus.len() >= MAX_GPUS => return None,
        None => {
            gpus.push(MachineGpu { index, pci, ..MachineGpu::default() });
            gpus.len() - 1
        }
    };
    let gpu = gpus.get_mut(at)?;
    gpu.pci = gpu.pci.or(pci);
    gpu.index = gpu.index.or(index);
    Some(gpu)
}

/// What a row of the driver's tools shows of a GPU.
fn look_at(gpu: &mut MachineGpu, seen: &SeenGpu<'_>) {
    let row = seen.row;
    gpu.rank = gpu.rank.or(seen.culprit.rank);
    if let Some(name) = row.name.as_ref().filter(|_| gpu.model.is_empty()) {
        gpu.model.clone_from(name);
    }
    let of = |value: Option<f32>, limit: Option<f32>, unit: &str| match (value, limit) {
        (Some(value), Some(limit)) => Some(format!("{value:.0} of {limit:.0} {unit}")),
        (Some(value), None) => Some(format!("{value:.0} {unit}")),
        (None, _) => None,
    };
    let clock = row.sm_clock_mhz.map(|mhz| match row.sm_clock_max_mhz {
        Some(max) => format!("{mhz} of {max} MHz"),
        None => format!("{mhz} MHz"),
    });
    let memory = row.memory_used_mib.map(|used| match row.memory_total_mib {
        Some(total) => format!("{used} of {total} MiB"),
        None => format!("{used} MiB"),
    });
    let values = [
        ("power", of(row.power_w, row.power_limit_w, "W")),
        ("utilisation", of(row.utilization_pct, None, "%")),
        ("temperature", of(row.temperature_c, None, "C")),
        ("memory", memory),
        ("clock", clock),
    ];
    for (name, value) in values {
        if let Some(value) = value.filter(|_| !gpu.values.iter().any(|(known, _)| *known == name)) {
            gpu.values.push((name, value));
        }
    }
    if gpu.links.is_none() && row.links.iter().any(|link| link.active.is_some()) {
        let active = row.links.iter().filter(|link| link.active == Some(true)).count();
        gpu.links = Some((active as u32, row.links.len() as u32));
    }
    for fault in faults(row) {
        if !gpu.faults.contains(&fault) {
            gpu.faults.push(fault);
        }
    }
}

/// What is wrong with a GPU by its own row.
fn faults(row: &GpuRow) -> Vec<String> {
    let mut faults = Vec::new();
    let mut add = |is: bool, text: String| {
        if is {
            faults.push(text);
        }
    };
    add(row.has_error, "the driver cannot reach it (ERR!)".to_owned());
    let errors = row.volatile.uncorrected().max(row.uncorrected_errors).unwrap_or(0);
    add(errors > 0, format!("{errors} uncorrectable memory errors"));
    add(row.rows.failed == Some(true), "row remapping failed".to_owned());
    add(row.rows.pending == Some(true), "row remapping waits for a reset".to_owned());
    let held = ClockReasons::HW_SLOWDOWN | ClockReasons::HW_THERMAL | ClockReasons::HW_POWER_BRAKE;
    add(row.clock_reasons.is_some_and(|r| r.any(held)), "slowed down by hardware".to_owned());
    let down = row.links.iter().filter(|link| link.active == Some(false)).count();
    add(down > 0, format!("{down} of {} NVLinks inactive", row.links.len()));
    let narrow = matches!((row.pcie.width, row.pcie.width_max), (Some(now), Some(max)) if now < max);
    let lanes = |width: Option<u8>| width.unwrap_or(0);
    add(narrow, format!("PCIe x{} of x{}", lanes(row.pcie.width), lanes(row.pcie.width_max)));
    let action = row.recovery_action.as_deref().filter(|a| !matches!(*a, "None" | "N/A" | ""));
    add(action.is_some(), format!("the driver requests: {}", action.unwrap_or_default()));
    let health = row.fabric_health.iter().find(|h| wording::is_ill_fabric(h));
    add(health.is_some(), format!("fabric: {}", health.map_or("", |h| &**h)));
    faults
}

fn nic(fact: &NetFact) -> Option<MachineNic> {
    match fact {
        NetFact::Port(port) if !port.device.is_empty() => Some(MachineNic {
            name: if port.port > 1 {
                format!("{}/{}", port.device, port.port).into()
            } else {
                port.device.clone()
            },
            state: port.state.clone().or_else(|| port.phys_state.clone()).unwrap_or_default(),
            rate_gbps: port.rate_gbps,
            is_up: port.is_up(),
            findings: Vec::new(),
        }),
        NetFact::Interface(interface) if !is_virtual(&interface.name) => Some(MachineNic {
            name: interface.name.clone(),
            state: interface.state.clone().unwrap_or_default(),
            rate_gbps: interface.speed_mbps.map(|mbps| mbps as f64 / 1e3),
            is_up: interface.is_up(),
            findings: Vec::new(),
        }),
        _ => None,
    }
}

fn join(known: &mut MachineNic, other: MachineNic) {
    if known.state.is_empty() {
        known.state = other.state;
    }
    known.rate_gbps = known.rate_gbps.or(other.rate_gbps);
    // One tool that sees it down is enough.
    known.is_up = match (known.is_up, other.is_up) {
        (Some(a), Some(b)) => Some(a && b),
        (a, b) => a.or(b),
    };
}

/// A way over PCIe and between processors, by its kind.
fn is_pcie(kind: &str) -> bool {
    matches!(kind, "PIX" | "PXB" | "PHB" | "NODE" | "SYS")
}

/// A path that `topo -m` shows; what it says of peer access is no path.
fn add_path(paths: &mut BTreeMap<(u32, u32), Box<str>>, path: &GpuPath) {
    let is_path = path.is_nvlink() || is_pcie(&path.kind);
    let both = (path.from.min(path.to), path.from.max(path.to));
    if is_path && both.0 != both.1 && both.1 < MAX_GPUS as u32 {
        paths.entry(both).or_insert_with(|| path.kind.clone());
    }
}

/// Whether a text names a port: `port mlx5_0/1 of node1`.
fn names(text: &str, nic: &str) -> bool {
    text.match_indices(nic).any(|(at, _)| {
        let before = text.get(..at).and_then(|head| head.chars().next_back());
        let after = text.get(at + nic.len()..).and_then(|tail| tail.chars().next());
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Marks what a finding accuses: ports that it names, else a GPU, else the node.
fn mark(nodes: &mut BTreeMap<Option<Host>, MachineDraft>, culprit: &Culprit, finding: &Finding, at: usize) {
    let by_host = culprit.host.as_ref().filter(|host| nodes.contains_key(&Some((*host).clone())));
    let by_rank = || {
        let rank = culprit.rank?;
        nodes.iter().find(|(_, node)| node.ranks.contains(&rank)).and_then(|(host, _)| host.clone())
    };
    let Some(host) = by_host.cloned().or_else(by_rank) else { return };
    let Some(node) = nodes.get_mut(&Some(host)) else { return };
    let mut is_of_port = false;
    for nic in node.nics.iter_mut().filter(|nic| names(&finding.title, &nic.name)) {
        is_of_port = true;
        if !nic.findings.contains(&at) {
            nic.findings.push(at);
        }
    }
    if is_of_port {
        return;
    }
    let is_meant = |gpu: &&mut MachineGpu| {
        culprit.gpu.is_some() && gpu.pci == culprit.gpu || culprit.rank.is_some() && gpu.rank == culprit.rank
    };
    let list = match node.gpus.iter_mut().find(is_meant) {
        Some(gpu) => &mut gpu.findings,
        None => &mut node.findings,
    };
    if !list.contains(&at) {
        list.push(at);
    }
}
