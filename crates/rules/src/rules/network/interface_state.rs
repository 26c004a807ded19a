//! # What it shows
//!
//! The interface that NCCL uses has no link now (a bridge of containers or virtual machines never has one: the wrong
//! interface), carries smaller packets than on the other hosts, or is not there under
//! the name that was set.
//!
//! # Why it happens
//!
//! A cable or a port of a switch, an interface set down by an agent, an MTU that was raised on some hosts only, a name
//! that differs between hosts.
//!
//! # Evidence
//!
//! `ip addr`, `ip -br addr` and ethtool of a host of the job; the interface of NCCL's bootstrap there;
//! NCCL_SOCKET_IFNAME; pings that were too large for the path.
//!
//! # What looks like it but is not
//!
//! Interfaces that NCCL does not use may be down. Loopback and tunnels show no state. An MTU alone that all hosts
//! share is no fault.
//!
//! # What to do
//!
//! Bring the link back, or give all hosts the same MTU and all switches between them one that is large enough.
//!
//! # References
//!
//! iproute2 ip-address(8), ethtool(8), ping(8) -M do; NCCL user guide, NCCL_SOCKET_IFNAME.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::interface::is_of_host;
use ringleader_model::{
    Cause, Cite, Confidence, Finding, Host, Impact, Interface, NcclProcess, NetFact, Observation, Severity,
    SourceKind, Weight, plain_word,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::{shown, uses};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "interface-state",
    title: "the interface in use is down or configured differently",
    since: "0.1",
    doc: include_str!("interface_state.rs"),
    check,
};

struct SeenInterface<'a> {
    observation: &'a Observation,
    interface: &'a Interface,
    host: Option<Host>,
    users: Vec<(&'a NcclProcess, Cite)>,
}

/// More interfaces that are down say nothing more.
const MAX_FINDINGS: usize = 64;

fn check(scene: &Scene<'_>) -> Outcome {
    let all: Vec<SeenInterface<'_>> = scene
        .net()
        .filter_map(|(observation, fact)| {
            let NetFact::Interface(interface) = fact else { return None };
            let host = scene.host_of(observation);
            let users = scene.interface_users(host.as_ref(), interface);
            Some(SeenInterface { observation, interface, host, users })
        })
        .collect();
    let mut findings: Vec<Finding> =
        all.iter().filter_map(|seen| down(scene, seen, &all)).take(MAX_FINDINGS).collect();
    findings.extend(packets(scene, &all));
    findings.extend(too_large(scene, &all));
    findings.extend(unknown_name(scene, &all));
    Outcome::from_findings(findings)
}

fn of(host: Option<&Host>) -> String {
    host.map_or_else(String::new, |h| format!(" of {h}"))
}

fn down(scene: &Scene<'_>, seen: &SeenInterface<'_>, all: &[SeenInterface<'_>]) -> Option<Finding> {
    let interface = seen.interface;
    if interface.is_up() != Some(false) || seen.users.is_empty() {
        return None;
    }
    let again = all.iter().any(|o| {
        o.host == seen.host && o.interface.name == interface.name && o.interface.is_up() == Some(true)
    });
    if again {
        return None;
    }
    let failed = scene.has_failed() && seen.host.is_some();
    // A bridge of containers or virtual machines has no link of its own: NCCL should not use it.
    let is_local = is_of_host(&interface.name);
    let cause = if is_local { Cause::WrongInterface } else { Cause::NetworkLinkDown };
    let what = if is_local { "leads to no other host" } else { "has no link" };
    let title = format!("{}{}, which NCCL uses, {what}", interface.name, of(seen.host.as_ref()));
    let draft = Draft::new(RULE.id, cause, title)
        .severity(if failed { Severity::Error } else { Severity::Warning })
        .weight(if failed { Weight::Stated } else { Weight::Derived })
        .confidence(Confidence::Medium)
        .culprits(scene.culprits_of(seen.users.iter().map(|(p, _)| *p)))
        .evidence([shown(seen.observation, None, SourceKind::Network, "")])
        .evidence(seen.users.iter().take(2).map(|(p, cite)| uses(p, *cite)));
    if is_local {
        return drafting::advise_interface(draft).build();
    }
    draft
        .advise_made(
            Impact::Harmless,
            "look at the link on that node",
            plain_word(&interface.name)
                .map(|name| format!("ip -s link show {name}; ethtool {name}; dmesg -T | grep -i 'link is'")),
        )
        .advise(
            Impact::Disruptive,
            "take the node out of the job until its link is steady, then restart from the last checkpoint",
        )
        .build()
}

/// Largest packets that differ between the hosts of the job, on the interfaces in use.
fn packets(scene: &Scene<'_>, all: &[SeenInterface<'_>]) -> Option<Finding> {
    let used: Vec<&SeenInterface<'_>> =
        all.iter().filter(|s| !s.users.is_empty() && s.host.is_some() && s.interface.mtu.is_some()).collect();
    let mut by_mtu: BTreeMap<u32, BTreeSet<&Host>> = BTreeMap::new();
    for seen in &used {
        if let (Some(mtu), Some(host)) = (seen.interface.mtu, &seen.host) {
            by_mtu.entry(mtu).or_default().insert(host);
        }
    }
    let (least, _) = by_mtu.first_key_value()?;
    let (most, _) = by_mtu.last_key_value()?;
    if least == most {
        return None;
    }
    let usual = by_mtu.iter().max_by_key(|(mtu, hosts)| (hosts.len(), **mtu)).map(|(mtu, _)| *mtu)?;
    let odd: Vec<&&SeenInterface<'_>> = used.iter().filter(|s| s.interface.mtu != Some(usual)).collect();
    // Two halves do not show who is wrong.
    let is_half = by_mtu
        .values()
        .map(BTreeSet::len)
        .max()
        .is_some_and(|n| n * 2 <= by_mtu.values().map(BTreeSet::len).sum());
    let culprits = if is_half {
        Vec::new()
    } else {
        scene.culprits_of(odd.iter().flat_map(|s| &s.users).map(|(p, _)| *p))
    };
    let title = format!("hosts of the job have different MTUs: {least} and {most} bytes");
    advised(
        Draft::new(RULE.id, Cause::MtuOrPfc, title)
            .severity(if scene.has_failed() { Severity::Error } else { Severity::Warning })
            .confidence(Confidence::Medium)
            .at_most(Confidence::Medium)
            .culprits(culprits)
            .evidence(odd.iter().take(2).map(|s| shown(s.observation, None, SourceKind::Network, "")))
            .evidence(
                used.iter()
                    .find(|s| s.interface.mtu == Some(usual))
                    .map(|s| shown(s.observation, None, SourceKind::Network, "")),
            ),
    )
    .build()
}

/// A ping that had to go in one piece and was larger than some link on the way takes, though the interface takes it.
fn too_large(scene: &Scene<'_>, all: &[SeenInterface<'_>]) -> Option<Finding> {
    let local: u32 =
        all.iter().filter(|s| !s.users.is_empty()).filter_map(|s| s.interface.mtu).max().unwrap_or(0);
    let (observation, reach, limit) = scene.net().find_map(|(o, fact)| match fact {
        NetFact::Reach(reach) => {
            let limit = reach.too_large_for?;
            (limit < local && reach.payload_bytes.is_none_or(|p| p.saturating_add(28) <= local))
                .then_some((o, reach, limit))
        }
        _ => None,
    })?;
    let title =
        format!("the path to {} carries packets of {limit} bytes, the interface sends {local}", reach.host);
    advised(
        Draft::new(RULE.id, Cause::MtuOrPfc, title)
            .severity(if scene.has_failed() { Severity::Error } else { Severity::Warning })
            .confidence(Confidence::Medium)
            .evidence([shown(observation, None, SourceKind::Network, "")]),
    )
    .build()
}

fn advised(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "check which size gets through to a peer",
            "ping -M do -s 8972 -c 3 <peer>; ping -M do -s 1472 -c 3 <peer>",
        )
        .advise(Impact::Disruptive, "give all hosts of the job and all switches between them the same MTU")
}

/// NCCL_SOCKET_IFNAME names an interface that a host, whose interfaces are all listed, does not have.
fn unknown_name(scene: &Scene<'_>, all: &[SeenInterface<'_>]) -> Option<Finding> {
    for (_, log) in scene.nccl_logs() {
        for setting in log.settings.iter().filter(|s| &*s.name == "NCCL_SOCKET_IFNAME") {
            let Some(process) = log.processes.get(setting.process as usize) else { continue };
            let Some(host) = process.who.host.as_ref() else { continue };
            let mine: Vec<&SeenInterface<'_>> =
                all.iter().filter(|s| s.host.as_ref() == Some(host)).collect();
            // The list is whole if loopback is in it. `^` excludes, `=` is exact, a plain name is a prefix.
            if !mine.iter().any(|s| &*s.interface.name == "lo") || setting.value.starts_with('^') {
                continue;
            }
            let exact = setting.value.starts_with('=');
            let names =
                setting.value.trim_start_matches('=').split(',').map(str::trim).filter(|n| !n.is_empty());
            let is_there = |name: &str| {
                mine.iter().any(|s| {
                    if exact { &*s.interface.name == name } else { s.interface.name.starts_with(name) }
                })
            };
            let names: Vec<&str> = names.collect();
            if names.is_empty() || names.iter().any(|n| is_there(n)) {
                continue;
            }
            let title =
                format!("{host} has no interface {}, which NCCL_SOCKET_IFNAME names", names.join(", "));
            return Draft::new(RULE.id, Cause::WrongInterface, title)
                .severity(if scene.has_failed() { Severity::Error } else { Severity::Warning })
                .weight(Weight::Stated)
                .confidence(Confidence::Medium)
                .culprit(scene.culprit(&process.who))
                .cite(setting.cite, SourceKind::NcclLog, format!("{} set to {}", setting.name, setting.value))
                .evidence(mine.iter().take(3).map(|s| shown(s.observation, None, SourceKind::Network, "")))
                .advise_command(
                    Impact::Harmless,
                    "name an interface that every host has, or exclude those that do not lead to the peers",
                    "NCCL_SOCKET_IFNAME=^lo,docker0",
                )
                .build();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use ringleader_model::{NetFact, Reach};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn nodes() -> StagedCase {
        let on = |stage: StagedCase, host: &str, pid, rank, address: &str| {
            stage
                .process(host, pid, Some(rank))
                .about(|p| p.bootstrap = Some(format!("eth0:{address}<0>").into()))
                .comm(rank, 2, 1, true)
        };
        let stage = on(StagedCase::new(), "node0", 10, 0, "192.0.2.1");
        on(stage, "node1", 11, 1, "192.0.2.2")
    }

    #[test]
    fn the_interface_in_use_has_no_link() {
        nodes().interface("node1", "eth0", "DOWN", 1500, "").concludes(&RULE, "network-link-down 1, high");
        // The address shows whose output it is.
        nodes()
            .interface("", "eth0", "DOWN", 1500, "192.0.2.2")
            .concludes(&RULE, "network-link-down 1, high");
    }

    #[test]
    fn a_bridge_that_leads_nowhere() {
        nodes()
            .about(|p| p.bootstrap = Some("virbr0:192.168.122.1<0>".into()))
            .interface("node1", "virbr0", "DOWN", 1500, "192.168.122.1")
            .concludes(&RULE, "wrong-interface 1, high");
    }

    #[test]
    fn interfaces_that_nobody_uses() {
        nodes().interface("node1", "ifb0", "DOWN", 1500, "").silent(&RULE);
        nodes().interface("node1", "eth0", "UP", 1500, "192.0.2.2").silent(&RULE);
        nodes().interface("node1", "lo", "UNKNOWN", 65536, "127.0.0.1").silent(&RULE);
        // Of an unknown host: every node has an eth0.
        nodes().interface("", "eth0", "DOWN", 1500, "").silent(&RULE);
    }

    #[test]
    fn packets_of_two_sizes() {
        nodes()
            .interface("node0", "eth0", "UP", 9000, "192.0.2.1")
            .interface("node1", "eth0", "UP", 1500, "192.0.2.2")
            .concludes(&RULE, "mtu-or-pfc , medium");
        nodes()
            .interface("node0", "eth0", "UP", 9000, "192.0.2.1")
            .interface("node1", "eth0", "UP", 9000, "192.0.2.2")
            .interface("node1", "docker0", "UP", 1500, "198.51.100.1")
            .silent(&RULE);
    }

    #[test]
    fn a_way_that_takes_less() {
        let ping = |limit| {
            let reach = Reach {
                tool: "ping".into(),
                host: "node0".into(),
                too_large_for: Some(limit),
                payload_bytes: Some(8972),
                ..Reach::default()
            };
            nodes().interface("node1", "eth0", "UP", 9000, "192.0.2.2").net("node1", NetFact::Reach(reach))
        };
        ping(1500).concludes(&RULE, "mtu-or-pfc , medium");
        ping(9000).silent(&RULE);
    }

    #[test]
    fn a_name_that_the_host_does_not_have() {
        let named = |name: &str| {
            nodes()
                .setting("NCCL_SOCKET_IFNAME", name)
                .interface("node1", "lo", "UNKNOWN", 65536, "127.0.0.1")
                .interface("node1", "eth0", "UP", 1500, "192.0.2.2")
        };
        named("ib0").concludes(&RULE, "wrong-interface 1, high");
        named("eth").silent(&RULE);
        named("^ib0").silent(&RULE);
    }
}
