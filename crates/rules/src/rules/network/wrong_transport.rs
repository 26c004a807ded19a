//! # What it shows
//!
//! NCCL uses sockets although InfiniBand is available, or over the network between two ranks of one node.
//!
//! # Why it happens
//!
//! A plugin or setting on some nodes only, NICs that are not visible on one node, containers of one node that do
//! not see each other.
//!
//! # Evidence
//!
//! `Using network Socket` next to devices that `NET/IB : Using …` lists, or while other ranks use InfiniBand; `via
//! NET/…` between ranks of one host; `via SHM` between two GPUs that nvidia-smi shows to have NVLink between them and
//! access to each other.
//!
//! # What looks like it but is not
//!
//! Shared memory between GPUs of one host is correct where they have no NVLink or peer access (`topo -p2p r`: CNS, NS,
//! …), and intended where NCCL_P2P_DISABLE or NCCL_P2P_LEVEL is set (nccl-env-misconfigured). Hosts without InfiniBand
//! use sockets.
//!
//! # What to do
//!
//! Make the devices visible on every node and unset variables that forbid them.
//!
//! # References
//!
//! NVIDIA/nccl src/plugin/net.cc, src/transport.cc; user guide NCCL_IB_DISABLE, NCCL_NET, NCCL_P2P_DISABLE,
//! NCCL_SHM_DISABLE.

use std::collections::BTreeMap;

use ringleader_model::{
    Category, Cause, Cite, Confidence, Culprit, Evidence, Finding, GroupRank, Host, Impact, NcclProcess,
    Severity, SourceKind, Weight,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::gpus;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "wrong-transport",
    title: "a slower transport than the hardware offers",
    since: "0.1",
    doc: include_str!("wrong_transport.rs"),
    check,
};

/// Citations of channels or lines.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    Outcome::from_findings(
        sockets_beside_verbs(scene)
            .into_iter()
            .chain(network_inside_a_node(scene))
            .chain(shared_memory_beside_nvlink(scene))
            .collect(),
    )
}

fn draft(title: String, culprits: Vec<Culprit>, evidence: Vec<Evidence>) -> Draft {
    Draft::new(RULE.id, Cause::WrongTransport, title)
        .category(Category::Performance)
        .severity(Severity::Warning)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence)
}

fn has_verbs(process: &NcclProcess) -> bool {
    process.verbs_ports().any(|port| port.is_infiniband() || port.is_roce())
}

fn sockets_beside_verbs(scene: &Scene<'_>) -> Option<Finding> {
    let processes: Vec<&NcclProcess> = scene.nccl_logs().flat_map(|(_, log)| &log.processes).collect();
    let others_use_verbs = processes.iter().any(|p| p.uses_verbs());
    let slow: Vec<&&NcclProcess> =
        processes.iter().filter(|p| p.uses_sockets() && (has_verbs(p) || others_use_verbs)).collect();
    let evidence: Vec<Evidence> = slow
        .iter()
        .take(CITATIONS)
        .filter_map(|p| {
            let devices = p.ib_devices.as_deref().unwrap_or("no InfiniBand device");
            let text = format!("Using network Socket; {devices}");
            Some(Evidence { cite: p.first?, text, kind: SourceKind::NcclLog })
        })
        .collect();
    let culprits = slow.iter().fold(Vec::new(), |mut all, p| {
        add_culprit(&mut all, scene.culprit(&p.who));
        all
    });
    draft(
        format!("{}: data goes over sockets although InfiniBand is available", who(&culprits)),
        culprits,
        evidence,
    )
    .advise_command(
        Impact::Harmless,
        "check which devices this node has and what disables them",
        "ibv_devinfo -l; env | grep -E '^NCCL_(IB|NET)'",
    )
    .advise_command(Impact::Harmless, "turn a silent fall-back into an error", "NCCL_NET=IB")
    .build()
}

/// Two ranks of one host that go through shared memory, and the numbers of their GPUs.
struct Through<'a> {
    cite: Cite,
    text: String,
    host: &'a Host,
    gpus: (u32, u32),
    process: &'a NcclProcess,
}

/// Channels over shared memory between ranks whose GPUs are known.
fn over_shared_memory<'a>(scene: &Scene<'a>) -> Vec<Through<'a>> {
    let mut seat: BTreeMap<(u64, GroupRank), (&Host, u32)> = BTreeMap::new();
    for (_, log) in scene.nccl_logs() {
        for comm in &log.comms {
            let host = log.processes.get(comm.process as usize).and_then(|p| p.who.host.as_ref());
            if let (Some(id), Some(host), Some(gpu)) = (comm.comm_id, host, comm.nvml_dev) {
                seat.insert((id, comm.rank), (host, gpu));
            }
        }
    }
    let mut found = Vec::new();
    for (_, log) in scene.nccl_logs() {
        for link in log.links.iter().filter(|l| l.is_shared_memory() && l.from != l.to) {
            let mut comms = log.comms.iter().filter(|c| c.process == link.process);
            let (Some(Some(id)), None) = (comms.next().map(|c| c.comm_id), comms.next()) else { continue };
            let (Some(a), Some(b)) = (seat.get(&(id, link.from)), seat.get(&(id, link.to))) else { continue };
            let Some(process) = log.processes.get(link.process as usize) else { continue };
            let by_order = log.settings.iter().any(|s| {
                s.process == link.process && matches!(&*s.name, "NCCL_P2P_DISABLE" | "NCCL_P2P_LEVEL")
            });
            if a.0 == b.0 && a.1 != b.1 && !by_order {
                let text = format!("{} -> {} via {} on {}", link.from.0, link.to.0, link.transport, a.0);
                found.push(Through { cite: link.cite, text, host: a.0, gpus: (a.1, b.1), process });
            }
        }
    }
    found
}

fn shared_memory_beside_nvlink(scene: &Scene<'_>) -> Option<Finding> {
    let mut culprits = Vec::new();
    let mut evidence = Vec::new();
    let mut is_allowed = false;
    for through in over_shared_memory(scene) {
        let pair = gpus::pair(scene.case(), Some(through.host), through.gpus.0, through.gpus.1);
        let Some(nvlink) = pair.nvlink else { continue };
        // Without access to each other shared memory is what is left: p2p-unsupported.
        if pair.access.as_ref().is_some_and(|(kind, _)| &**kind != "OK") {
            continue;
        }
        is_allowed |= pair.access.is_some();
        add_culprit(&mut culprits, scene.culprit(&through.process.who));
        if evidence.len() < 2 * CITATIONS {
            evidence.push(Evidence { cite: through.cite, text: through.text, kind: SourceKind::NcclLog });
            evidence.extend([nvlink].into_iter().chain(pair.access.map(|(_, e)| e)));
        }
    }
    let title = format!("{}: shared memory is used between GPUs that are linked by NVLink", who(&culprits));
    draft(title, culprits, evidence)
        // A container may show nvidia-smi other GPUs than the rank's: without the access matrix less is sure.
        .at_most(if is_allowed { Confidence::High } else { Confidence::Medium })
        .advise_command(
            Impact::Harmless,
            "check why NCCL does not go over NVLink",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,GRAPH … ; nvidia-smi topo -p2p r; nvidia-smi nvlink -s",
        )
        .advise(
            Impact::Harmless,
            "run the ranks of a node in one container, or share IPC and process namespaces between its containers",
        )
        .build()
}

fn network_inside_a_node(scene: &Scene<'_>) -> Option<Finding> {
    let mut host_of: BTreeMap<(u64, GroupRank), &Host> = BTreeMap::new();
    for (_, log) in scene.nccl_logs() {
        for comm in &log.comms {
            let host = log.processes.get(comm.process as usize).and_then(|p| p.who.host.as_ref());
            if let (Some(id), Some(host)) = (comm.comm_id, host) {
                host_of.insert((id, comm.rank), host);
            }
        }
    }
    let mut pairs: Vec<(Cite, String, &NcclProcess)> = Vec::new();
    for (_, log) in scene.nccl_logs() {
        for link in log.links.iter().filter(|l| l.is_network() && l.from != l.to) {
            // A link does not name its communicator: the process must have but one.
            let mut comms = log.comms.iter().filter(|c| c.process == link.process);
            let (Some(Some(id)), None) = (comms.next().map(|c| c.comm_id), comms.next()) else { continue };
            let (Some(a), Some(b)) = (host_of.get(&(id, link.from)), host_of.get(&(id, link.to))) else {
                continue;
            };
            let Some(process) = log.processes.get(link.process as usize) else { continue };
            if a == b {
                pairs.push((
                    link.cite,
                    format!("{} -> {} via {} on {a}", link.from.0, link.to.0, link.transport),
                    process,
                ));
            }
        }
    }
    let culprits = pairs.iter().fold(Vec::new(), |mut all, (_, _, p)| {
        add_culprit(&mut all, scene.culprit(&p.who));
        all
    });
    let evidence = pairs
        .into_iter()
        .take(CITATIONS)
        .map(|(cite, text, _)| Evidence { cite, text, kind: SourceKind::NcclLog })
        .collect();
    draft(format!("{}: ranks of one node communicate over the network", who(&culprits)), culprits, evidence)
        .advise_command(Impact::Harmless, "check whether direct access and shared memory are disabled", "env | grep -E '^NCCL_(P2P|SHM|CUMEM|HOSTID)'; df -h /dev/shm")
        .advise(Impact::Harmless, "run the ranks of a node in one container, or share IPC namespace and /dev/shm between its containers")
        .build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn sockets_although_devices_are_listed() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .about(|p| {
                p.network = Some("Socket".into());
                p.ib_devices = Some("[0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>".into());
            })
            .expect(&RULE, &["wrong-transport 0"]);
    }

    #[test]
    fn one_node_on_sockets_while_the_others_use_verbs() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .about(|p| p.network = Some("IB".into()))
            .process("node1", 1, Some(1))
            .about(|p| p.network = Some("Socket".into()))
            .expect(&RULE, &["wrong-transport 1"]);
    }

    #[test]
    fn the_network_inside_a_node() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .comm(0, 2, 1, true)
            .link(0, 1, "NET/Socket/0")
            .process("node0", 2, Some(1))
            .comm(1, 2, 2, true)
            .expect(&RULE, &["wrong-transport 0"]);
    }

    /// Two ranks of one node on GPUs 0 and 1 that go through shared memory.
    fn through_shared_memory() -> StagedCase {
        let gpu = |stage: StagedCase, nvml| {
            let mut stage = stage;
            for o in &mut stage.case.observations {
                if let ringleader_model::Fact::Nccl(log) = &mut o.fact {
                    log.comms.iter_mut().filter(|c| c.rank.0 == nvml).for_each(|c| c.nvml_dev = Some(nvml));
                }
            }
            stage
        };
        let stage = StagedCase::new()
            .process("node0", 1, Some(0))
            .comm(0, 2, 1, true)
            .link(0, 1, "SHM/direct/direct")
            .process("node0", 2, Some(1))
            .comm(1, 2, 2, true);
        gpu(gpu(stage, 0), 1)
    }

    #[test]
    fn shared_memory_although_there_is_nvlink() {
        let nvlink = || through_shared_memory().topology(&["X NV18", "NV18 X"]);
        nvlink().topology(&["X OK", "OK X"]).concludes(&RULE, "wrong-transport 0, high");
        // By order; without access; without NVLink; with nothing known of the paths.
        through_shared_memory().setting("NCCL_P2P_DISABLE", "1").silent(&RULE);
        nvlink().topology(&["X CNS", "CNS X"]).silent(&RULE);
        through_shared_memory().topology(&["X PHB", "PHB X"]).topology(&["X OK", "OK X"]).silent(&RULE);
        through_shared_memory().silent(&RULE);
    }

    #[test]
    fn sockets_without_devices_and_between_nodes_are_right() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .about(|p| {
                p.network = Some("Socket".into());
                p.ib_devices = Some("[RO]; OOB eth0:10.77.0.10<0>".into());
            })
            .comm(0, 2, 1, true)
            .link(0, 1, "NET/Socket/0")
            .process("node1", 2, Some(1))
            .about(|p| p.network = Some("Socket".into()))
            .comm(1, 2, 2, true)
            .silent(&RULE);
    }
}
