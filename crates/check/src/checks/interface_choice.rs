//! # What it checks
//!
//! Which interface NCCL and gloo choose on this node, by their own rules and the job's settings; and whether a peer
//! answers to its address.
//!
//! # What fails
//!
//! A setting that matches no interface, or only one that is down or has no address. Loopback or a container bridge
//! in a job of several nodes. An interface to whose address the master does not answer, although it answers to
//! another one. RDMA devices named by NCCL_IB_HCA that do not exist here. On a single node, loopback is fine.
//!
//! # What to do
//!
//! Name the interface that reaches the peers, on every host.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/socket.cc (ncclFindInterfaces), src/os/linux.cc; pytorch/pytorch
//! torch/csrc/distributed/c10d/ProcessGroupGloo.cpp; NCCL user guide, NCCL_SOCKET_IFNAME, NCCL_IB_HCA; UCX,
//! UCX_NET_DEVICES.

use std::collections::BTreeMap;

use ringleader_node::{Interface, NameList, Network, Outcome, Process, ReachFailure};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "interface-choice",
    title: "the interface that NCCL uses",
    area: Area::Network,
    reads: &[Probe::Network, Probe::Rdma, Probe::Reach, Probe::Jobs],
    drains: false,
    // A silent peer takes until the deadline.
    is_quick: false,
    since: "0.2",
    doc: include_str!("interface_choice.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let net = match view.node.net.seen() {
        Ok(net) => net,
        Err(missing) => return missing.into(),
    };
    // Ranks by their settings.
    let mut groups: BTreeMap<(Option<&str>, Option<&str>), Vec<&Process>> = BTreeMap::new();
    for rank in wiring::ranks_here(view) {
        let key = (rank.variable("NCCL_SOCKET_IFNAME"), rank.variable("NCCL_SOCKET_FAMILY"));
        groups.entry(key).or_default().push(rank);
    }
    if groups.is_empty() {
        if view.ranks().next().is_some() {
            return CheckAnswer::skipped(
                "the ranks are in another network namespace or their environment is hidden: run it as root, or inside their container",
            );
        }
        groups.insert((None, None), Vec::new());
    }
    let mut items = Vec::new();
    let mut chosen: Vec<&str> = Vec::new();
    for ((list, family), ranks) in &groups {
        let found = net.nccl_interfaces(*list, *family);
        match found.first() {
            None => items.push(nothing(net, *list, *family, ranks)),
            Some(first) => {
                chosen.push(&first.name);
                items.extend(nowhere(net, first, *list, ranks));
                items.extend(unanswered(view, first, *list));
            }
        }
    }
    items.extend(gloo(view, net));
    items.extend(devices(view, net));
    chosen.dedup();
    let addresses: Vec<String> = chosen
        .iter()
        .filter_map(|name| {
            let address = net.interface(name)?.usable_addresses().next()?;
            Some(format!("{name} ({address})"))
        })
        .collect();
    let would = if groups.values().any(|ranks| !ranks.is_empty()) { "takes" } else { "would take" };
    CheckAnswer::from_items(format!("NCCL {would} {}", addresses.join(", ")), items)
        .advise(
            Impact::Harmless,
            "list the interfaces and which one leads to a peer",
            Some("ip -br addr; ip route get <address of a peer>".to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "name that interface on every host, for NCCL and gloo alike",
            Some("export NCCL_SOCKET_IFNAME==<interface> GLOO_SOCKET_IFNAME=<interface>".to_owned()),
        )
        .value("net.nccl-interface", chosen.join(", "), ValueKind::Same)
}

fn subject(ranks: &[&Process]) -> String {
    if ranks.is_empty() { "NCCL's choice".to_owned() } else { wiring::named(ranks) }
}

fn shown(interface: &Interface) -> String {
    let up = if interface.is_up { "up" } else { "down" };
    format!("{} {up}/{} {}", interface.name, interface.operstate, interface.addresses.join(" "))
}

fn table(net: &Network) -> String {
    net.interfaces.iter().take(16).map(shown).collect::<Vec<_>>().join("; ")
}

/// No interface matches.
fn nothing(net: &Network, list: Option<&str>, family: Option<&str>, ranks: &[&Process]) -> Item {
    let family = family.map_or_else(String::new, |family| format!(", NCCL_SOCKET_FAMILY={family}"));
    let text = match list.filter(|list| list.len() > 1) {
        None => "no interface is up with an address".to_owned(),
        Some(list) => {
            let named = NameList::new(list);
            let there: Vec<&Interface> =
                net.interfaces.iter().filter(|interface| named.takes(&interface.name, None)).collect();
            match there.first() {
                None => format!("no interface matches NCCL_SOCKET_IFNAME={list}"),
                Some(first) if !first.is_running() => {
                    format!("NCCL_SOCKET_IFNAME={list}: {} is down", first.name)
                }
                Some(first) => format!("NCCL_SOCKET_IFNAME={list}: {} has no address{family}", first.name),
            }
        }
    };
    let verdict = if ranks.is_empty() { CheckState::Warn } else { CheckState::Fail };
    Item { subject: subject(ranks), verdict, text, evidence: table(net) }
}

/// The choice reaches nothing beyond the host.
fn nowhere(net: &Network, first: &Interface, list: Option<&str>, ranks: &[&Process]) -> Option<Item> {
    let what = wiring::leads_nowhere(&first.name)?;
    let is_multi = ranks.iter().any(|rank| wiring::spans_nodes(rank) == Some(true));
    let better = net.interfaces.iter().find(|interface| {
        interface.is_physical && interface.is_running() && interface.usable_addresses().next().is_some()
    });
    let verdict = match (is_multi, ranks.is_empty(), better) {
        (true, _, _) => CheckState::Fail,
        (false, true, Some(_)) => CheckState::Warn,
        _ => return None,
    };
    let why = list
        .map_or_else(|| "by its default order".to_owned(), |list| format!("by NCCL_SOCKET_IFNAME={list}"));
    let better = better.map_or_else(String::new, |interface| format!("; {} leads out", interface.name));
    Some(Item {
        subject: subject(ranks),
        verdict,
        text: format!("NCCL uses {} {why}: {what}, which no other node reaches{better}", first.name),
        evidence: table(net),
    })
}

/// Nothing answers to the interface's address.
fn unanswered(view: &NodeView<'_>, first: &Interface, list: Option<&str>) -> Option<Item> {
    let reach = view.node.reach.get()?;
    let tried: Vec<_> =
        reach.iter().filter(|r| r.interface.as_deref() == Some(first.name.as_str())).collect();
    let is_lost =
        |kind| matches!(kind, Some(ReachFailure::TimedOut | ReachFailure::NoRoute | ReachFailure::Other));
    if tried.iter().any(|r| r.answered_ms.is_some()) {
        return None;
    }
    // A peer that answers no node says nothing about our interface.
    let lost = tried.iter().find(|r| {
        is_lost(r.failure_kind)
            && reach.iter().any(|other| {
                other.interface.is_none() && other.target == r.target && other.answered_ms.is_some()
            })
    })?;
    let list = list.map_or_else(String::new, |list| format!("NCCL_SOCKET_IFNAME={list}: "));
    Some(Item {
        subject: first.name.clone(),
        verdict: CheckState::Fail,
        text: format!("{list}{} does not answer on this interface's address, only on others", lost.target),
        evidence: format!(
            "connected from {}: {}",
            first.addresses.join(" "),
            lost.failure.as_deref().unwrap_or("no answer")
        ),
    })
}

/// GLOO_SOCKET_IFNAME: complete names, separated by commas.
fn gloo(view: &NodeView<'_>, net: &Network) -> Vec<Item> {
    let mut items = Vec::new();
    for (list, ranks) in wiring::by_value(view, "GLOO_SOCKET_IFNAME") {
        for name in list.unwrap_or_default().split(',').filter(|name| !name.is_empty()) {
            let is_multi = ranks.iter().any(|rank| wiring::spans_nodes(rank) == Some(true));
            let text = match net.interface(name) {
                None => "is not on this node".to_owned(),
                Some(interface) if !interface.is_up => "is down".to_owned(),
                Some(interface) if interface.addresses.is_empty() => "has no address".to_owned(),
                Some(_) => match wiring::leads_nowhere(name).filter(|_| is_multi) {
                    Some(what) => format!("is {what}, which no other node reaches"),
                    None => continue,
                },
            };
            items.push(Item {
                subject: subject(&ranks),
                verdict: CheckState::Fail,
                text: format!("GLOO_SOCKET_IFNAME: {name} {text}"),
                evidence: table(net),
            });
        }
    }
    items
}

/// RDMA devices named in the settings.
fn devices(view: &NodeView<'_>, net: &Network) -> Vec<Item> {
    let ports = match &view.node.rdma.outcome {
        Outcome::Seen(ports) => ports.as_slice(),
        Outcome::Absent(_) => &[],
        _ => return Vec::new(),
    };
    let mut here: Vec<&str> = ports.iter().map(|port| port.device.as_str()).collect();
    here.dedup();
    let evidence =
        if here.is_empty() { "no RDMA device".to_owned() } else { format!("devices: {}", here.join(" ")) };
    let mut items = Vec::new();
    for (list, ranks) in wiring::by_value(view, "NCCL_IB_HCA") {
        let Some(value) = list else { continue };
        let list = NameList::new(value);
        if list.is_exclusion
            || list.names.is_empty()
            || ranks.iter().all(|r| r.number("NCCL_IB_DISABLE") == Some(1))
        {
            continue;
        }
        let is_there = |entry: &(String, Option<u32>)| {
            ports.iter().any(|port| list.means(entry, &port.device, Some(port.port)))
        };
        let missing: Vec<&str> =
            list.names.iter().filter(|entry| !is_there(entry)).map(|(name, _)| name.as_str()).collect();
        let is_multi = ranks.iter().any(|rank| wiring::spans_nodes(rank) == Some(true));
        let (verdict, text) = if missing.len() == list.names.len() {
            let verdict = if is_multi { CheckState::Fail } else { CheckState::Warn };
            (verdict, format!("NCCL_IB_HCA={value} matches no device: NCCL goes over TCP"))
        } else {
            // `mlx5,bnxt_re` is one setting for several kinds of nodes; `mlx5_7` names one device.
            let Some(name) = missing.iter().find(|name| name.ends_with(|c: char| c.is_ascii_digit())) else {
                continue;
            };
            (CheckState::Warn, format!("NCCL_IB_HCA names {name}, which is not on this node"))
        };
        items.push(Item { subject: subject(&ranks), verdict, text, evidence: evidence.clone() });
    }
    for (list, ranks) in wiring::by_value(view, "UCX_NET_DEVICES") {
        for entry in list.unwrap_or_default().split(',').filter(|entry| !entry.is_empty() && *entry != "all")
        {
            let name = entry.split(':').next().unwrap_or(entry).trim_start_matches('^');
            // A pattern.
            let is_known = name.contains(['*', '[']) || here.contains(&name) || net.interface(name).is_some();
            if !is_known {
                items.push(Item {
                    subject: subject(&ranks),
                    verdict: CheckState::Warn,
                    text: format!("UCX_NET_DEVICES names {name}, which is not on this node"),
                    evidence: evidence.clone(),
                });
            }
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Node, Part, Reach};

    use super::*;
    use crate::wiring::staging::{ask, blamed, interface, node, port, rank};

    fn interfaces() -> Vec<Interface> {
        vec![
            interface(1, "lo", "127.0.0.1/8"),
            interface(2, "eth0", "10.0.0.7/24"),
            interface(3, "docker0", "172.17.0.1/16"),
            Interface { is_up: false, operstate: "down".to_owned(), ..interface(4, "eth1", "10.0.1.7/24") },
            interface(5, "eth2", ""),
        ]
    }

    fn told(name: &str, value: &str) -> Node {
        node(vec![port(0), port(1)], interfaces(), vec![rank(0, &[(name, value)]), rank(1, &[(name, value)])])
    }

    #[test]
    fn without_settings_it_is_the_first_real_one() {
        let answer = ask(&CHECK, &node(vec![], interfaces(), vec![]));
        assert_eq!(
            (answer.verdict, answer.summary.as_str()),
            (CheckState::Ok, "NCCL would take eth0 (10.0.0.7)")
        );
        let answer = ask(&CHECK, &told("NCCL_DEBUG", "INFO"));
        assert_eq!((answer.verdict, answer.summary.as_str()), (CheckState::Ok, "NCCL takes eth0 (10.0.0.7)"));
    }

    #[test]
    fn a_setting_that_nothing_fits_fails_and_says_why() {
        for (value, why) in [
            ("bond0", "no interface matches NCCL_SOCKET_IFNAME=bond0"),
            ("=eth", "no interface matches"),
            ("eth1", "eth1 is down"),
            ("eth2", "eth2 has no address"),
            ("^eth,lo,docker", "no interface matches"),
        ] {
            let answer = ask(&CHECK, &told("NCCL_SOCKET_IFNAME", value));
            assert_eq!(blamed(&answer), ["2 ranks (pid 4711, 4712)"], "{value}");
            assert_eq!(answer.verdict, CheckState::Fail);
            assert!(answer.summary.contains(why), "{value}: {}", answer.summary);
        }
        for value in ["eth0", "=eth0", "eth", "^docker,lo", "e"] {
            assert_eq!(ask(&CHECK, &told("NCCL_SOCKET_IFNAME", value)).verdict, CheckState::Ok, "{value}");
        }
    }

    #[test]
    fn a_bridge_or_loopback_fails_between_nodes_and_is_well_on_one() {
        for value in ["docker0", "lo"] {
            let answer = ask(&CHECK, &told("NCCL_SOCKET_IFNAME", value));
            assert_eq!(answer.verdict, CheckState::Fail, "{value}");
            assert!(answer.summary.contains("no other node reaches"), "{}", answer.summary);
            let alone = rank(0, &[("NCCL_SOCKET_IFNAME", value), ("WORLD_SIZE", "2")]);
            assert_eq!(
                ask(&CHECK, &node(vec![], interfaces(), vec![alone])).verdict,
                CheckState::Ok,
                "{value}"
            );
        }
        // A bridge that NCCL does not recognise as one, before the real interface.
        let mut with_bridge = interfaces();
        with_bridge.push(interface(0, "cni0", "10.244.0.1/24"));
        let answer = ask(&CHECK, &node(vec![], with_bridge.clone(), vec![rank(0, &[])]));
        assert_eq!(answer.verdict, CheckState::Fail);
        assert!(
            answer.summary.contains("cni0") && answer.summary.contains("eth0 leads out"),
            "{}",
            answer.summary
        );
        assert_eq!(ask(&CHECK, &node(vec![], with_bridge, vec![])).verdict, CheckState::Warn);
    }

    #[test]
    fn gloo_takes_whole_names() {
        for (value, why) in
            [("eth", "is not on"), ("eth1", "is down"), ("eth0,eth2", "has no address"), ("lo", "loopback")]
        {
            let answer = ask(&CHECK, &told("GLOO_SOCKET_IFNAME", value));
            assert_eq!(answer.verdict, CheckState::Fail, "{value}");
            assert!(answer.summary.contains(why), "{}", answer.summary);
        }
        assert_eq!(ask(&CHECK, &told("GLOO_SOCKET_IFNAME", "eth0")).verdict, CheckState::Ok);
    }

    #[test]
    fn devices_that_are_named_must_be_there() {
        for (name, value, verdict) in [
            ("NCCL_IB_HCA", "mlx5_7", CheckState::Fail),
            ("NCCL_IB_HCA", "=mlx5", CheckState::Fail),
            ("NCCL_IB_HCA", "mlx5_0,mlx5_7", CheckState::Warn),
            ("NCCL_IB_HCA", "mlx5,bnxt_re", CheckState::Ok),
            ("NCCL_IB_HCA", "^mlx5_7", CheckState::Ok),
            ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1", CheckState::Ok),
            ("UCX_NET_DEVICES", "mlx5_7:1", CheckState::Warn),
            ("UCX_NET_DEVICES", "mlx5_0:1,eth0", CheckState::Ok),
            ("UCX_NET_DEVICES", "all", CheckState::Ok),
        ] {
            assert_eq!(ask(&CHECK, &told(name, value)).verdict, verdict, "{name}={value}");
        }
        let mut unread = told("NCCL_IB_HCA", "mlx5_7");
        unread.rdma = Part::default();
        assert_eq!(ask(&CHECK, &unread).verdict, CheckState::Ok, "devices that nobody read are not missing");
    }

    #[test]
    fn an_interface_that_reaches_nobody_fails() {
        let tried = |interface: Option<&str>, kind: Option<ReachFailure>| Reach {
            purpose: "interface".to_owned(),
            target: "10.9.9.9:29500".to_owned(),
            interface: interface.map(str::to_owned),
            answered_ms: kind.is_none().then_some(0.3),
            failure: kind.map(|_| "no answer from 10.9.9.9 within 800 ms".to_owned()),
            failure_kind: kind,
            ..Reach::default()
        };
        let mut node = told("NCCL_SOCKET_IFNAME", "eth0");
        node.reach = Part::of(vec![tried(None, None), tried(Some("eth0"), Some(ReachFailure::TimedOut))]);
        let answer = ask(&CHECK, &node);
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["eth0"]));
        // The peer answers no node: another check reports that.
        node.reach = Part::of(vec![
            tried(None, Some(ReachFailure::TimedOut)),
            tried(Some("eth0"), Some(ReachFailure::TimedOut)),
        ]);
        assert_eq!(ask(&CHECK, &node).verdict, CheckState::Ok);
        node.reach = Part::of(vec![tried(None, None), tried(Some("eth0"), None)]);
        assert_eq!(ask(&CHECK, &node).verdict, CheckState::Ok);
    }

    #[test]
    fn ranks_of_another_namespace_and_no_reading_are_skipped() {
        let mut node = told("NCCL_SOCKET_IFNAME", "bond0");
        if let Outcome::Seen(net) = &mut node.net.outcome {
            net.namespace = Some(1);
        }
        if let Outcome::Seen(jobs) = &mut node.jobs.outcome {
            for process in &mut jobs.processes {
                process.net_namespace = Some(2);
            }
        }
        assert_eq!(ask(&CHECK, &node).verdict, CheckState::Skipped);
        node.net = Part::default();
        assert_eq!(ask(&CHECK, &node).verdict, CheckState::Skipped);
    }
}
