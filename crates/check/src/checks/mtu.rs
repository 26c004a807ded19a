//! # What it checks
//!
//! Packet sizes: whether interfaces with the same role agree, and whether the path to the peers carries what the
//! interface sends.
//!
//! # What fails
//!
//! Large packets that are lost silently on the path of a job of several nodes: it will hang at its first large message.
//! It warns about interfaces that differ although they are behind RoCE ports of one kind, or match one list of
//! NCCL_SOCKET_IFNAME, and about a path narrower than the interface if a router reports that. The management interface
//! may differ.
//!
//! # What to do
//!
//! Set one MTU on all hosts and switches of a network; RoCE needs 4200 or more, or its packets carry 1024 bytes.
//!
//! # References
//!
//! Linux ip(7), IP_MTU_DISCOVER; linux include/rdma/ib_addr.h (iboe_get_mtu); NVIDIA, RoCE and MTU.

use std::collections::BTreeMap;

use ringleader_model::plain_word;
use ringleader_node::{Interface, NameList, Network, RdmaPort, Reach};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring::{self, Use};

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "mtu",
    title: "MTUs agree along the path",
    area: Area::Network,
    reads: &[Probe::Network, Probe::Rdma, Probe::Reach, Probe::Jobs],
    drains: false,
    // A silent peer takes until the deadline.
    is_quick: false,
    since: "0.2",
    doc: include_str!("mtu.rs"),
    run,
};

/// What the kernel subtracts from an interface's MTU for RDMA: headers of GRH, UDP, BTH, XRC, atomic, and the checksum.
const ROCE_HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let net = match view.node.net.seen() {
        Ok(net) => net,
        Err(missing) => return missing.into(),
    };
    let roce = behind_roce(view, net);
    let mut groups = roce.clone();
    groups.extend(named_together(view, net));
    let mut items: Vec<Item> = groups.iter().flat_map(|(role, members)| differing(role, members)).collect();
    let mut seen = std::collections::BTreeSet::new();
    items.retain(|item| seen.insert(item.subject.clone()));
    let measured: Vec<&Reach> =
        view.node.reach.get().into_iter().flatten().filter(|reach| reach.path_mtu.is_some()).collect();
    items.extend(measured.iter().filter_map(|reach| narrow(view, net, reach)));
    if groups.iter().all(|(_, members)| members.len() < 2) && measured.is_empty() {
        return CheckAnswer::skipped("no two interfaces have the same role, and no path was measured");
    }
    let mut sizes: Vec<u32> =
        roce.iter().flat_map(|(_, members)| members.iter().map(|member| member.mtu)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let rdma: Vec<String> =
        sizes.iter().map(|mtu| format!("{mtu} (RDMA packets of {})", rdma_mtu(*mtu))).collect();
    let mut parts = Vec::new();
    if !rdma.is_empty() {
        parts.push(format!("RoCE interfaces have {}", rdma.join(", ")));
    }
    if !measured.is_empty() {
        parts.push(format!("{} paths carry the interfaces' packet size", measured.len()));
    }
    if parts.is_empty() {
        parts.push("interfaces of the same role agree".to_owned());
    }
    let odd = items.iter().find(|item| item.verdict > CheckState::Ok).map(|item| item.subject.clone());
    let mut answer = CheckAnswer::from_items(parts.join("; "), items).advise(
        Impact::Disruptive,
        "set the same MTU on all hosts and switches of this network",
        odd.as_deref()
            .filter(|name| net.interface(name).is_some())
            .and_then(plain_word)
            .map(|name| format!("ip link set dev {name} mtu <size>")),
    );
    if !rdma.is_empty() {
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        answer = answer.value("rdma.interface-mtu", sizes.join(", "), ValueKind::Same);
    }
    answer
}

/// The largest RDMA packet that fits.
fn rdma_mtu(mtu: u32) -> u32 {
    let room = mtu.saturating_sub(ROCE_HEADERS);
    [4096, 2048, 1024, 512].into_iter().find(|size| *size <= room).unwrap_or(256)
}

/// Interfaces with one role.
type SameNetwork<'a> = (String, Vec<&'a Interface>);

/// Interfaces behind RoCE ports in use, by kind of card.
fn behind_roce<'a>(view: &NodeView<'_>, net: &'a Network) -> Vec<SameNetwork<'a>> {
    let ports = view.node.rdma.get().map_or(&[][..], Vec::as_slice);
    let mut groups: BTreeMap<String, Vec<&Interface>> = BTreeMap::new();
    for port in ports.iter().filter(|port| {
        port.is_roce()
            && port.state == "ACTIVE"
            && !port.is_virtual
            && wiring::use_of(view, port) != Use::Excluded
    }) {
        let first =
            ports.iter().find(|other| wiring::are_alike(port, other)).map_or(String::new(), RdmaPort::name);
        let Some(interface) = port.netdev.as_deref().and_then(|name| net.interface(name)) else { continue };
        let members = groups.entry(first).or_default();
        if members.iter().all(|member| member.name != interface.name) {
            members.push(interface);
        }
    }
    groups.into_values().map(|members| ("RoCE interfaces of the same kind".to_owned(), members)).collect()
}

/// Interfaces that match one list of NCCL_SOCKET_IFNAME, and those of IPoIB, which NCCL groups by itself.
fn named_together<'a>(view: &NodeView<'_>, net: &'a Network) -> Vec<SameNetwork<'a>> {
    let mut groups: Vec<SameNetwork<'_>> = wiring::by_value(view, "NCCL_SOCKET_IFNAME")
        .into_keys()
        .flatten()
        .filter(|list| list.len() > 1 && !NameList::new(list).is_exclusion)
        .map(|list| {
            (format!("interfaces of NCCL_SOCKET_IFNAME={list}"), net.nccl_interfaces(Some(list), None))
        })
        .collect();
    groups.push(("IPoIB interfaces".to_owned(), net.nccl_interfaces(Some("ib"), None)));
    groups
}

/// Members that differ from most of their group, or from the largest value if there is no majority.
fn differing(role: &str, members: &[&Interface]) -> Vec<Item> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for member in members {
        *counts.entry(member.mtu).or_default() += 1;
    }
    let Some((usual, n)) = counts.iter().max_by_key(|(mtu, n)| (**n, **mtu)).map(|(mtu, n)| (*mtu, *n))
    else {
        return Vec::new();
    };
    members
        .iter()
        .filter(|member| member.mtu != usual)
        .map(|member| Item {
            subject: member.name.clone(),
            verdict: CheckState::Warn,
            text: format!("MTU {}, while {n} of {} {role} have {usual}", member.mtu, members.len()),
            evidence: members.iter().map(|m| format!("{} {}", m.name, m.mtu)).collect::<Vec<_>>().join(", "),
        })
        .collect()
}

/// A path that carries less than the interface sends.
fn narrow(view: &NodeView<'_>, net: &Network, reach: &Reach) -> Option<Item> {
    let path_mtu = reach.path_mtu?;
    let address = |text: &str| text.parse().ok();
    let interface = reach
        .interface
        .as_deref()
        .and_then(|name| net.interface(name))
        .or_else(|| net.owner_of(reach.from.as_deref().and_then(address)?))
        .or_else(|| {
            net.interface(&net.route_to(reach.addresses.first().and_then(|a| address(a))?)?.interface)
        })?;
    if path_mtu >= interface.mtu {
        return None;
    }
    let (verdict, what) = match (reach.large_vanish, wiring::is_multi_node(view)) {
        (true, true) => (CheckState::Fail, "larger packets are dropped silently"),
        (true, false) => (CheckState::Warn, "larger packets are dropped silently"),
        (false, _) => (CheckState::Warn, "a router on the path accepts no larger ones"),
    };
    Some(Item {
        subject: reach.target.clone(),
        verdict,
        text: format!(
            "the path carries {path_mtu} of the {} bytes that {} sends: {what}",
            interface.mtu, interface.name
        ),
        evidence: format!(
            "packets with DF set to {}: {path_mtu} arrived",
            reach.addresses.first().unwrap_or(&reach.host)
        ),
    })
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Node, Part};

    use super::*;
    use crate::wiring::staging::{ask, blamed, interface, node, port, rank};

    /// Four RoCE ports over eth2 to eth5, and a management interface of 1500.
    fn roce(mtus: [u32; 4]) -> Node {
        let ports = (0..4).map(|n| RdmaPort {
            link_layer: "Ethernet".to_owned(),
            netdev: Some(format!("eth{}", n + 2)),
            ..port(n)
        });
        let mut interfaces = vec![interface(2, "eth0", "10.0.0.7/24")];
        interfaces.extend((0..4_u32).map(|n| Interface {
            mtu: mtus[n as usize],
            ..interface(n + 4, &format!("eth{}", n + 2), &format!("10.1.{n}.7/24"))
        }));
        node(ports.collect(), interfaces, vec![])
    }

    fn path(path_mtu: u32, large_vanish: bool) -> Reach {
        Reach {
            purpose: "peer".to_owned(),
            target: "10.1.0.8:22".to_owned(),
            addresses: vec!["10.1.0.8".to_owned()],
            from: Some("10.1.0.7".to_owned()),
            answered_ms: Some(0.1),
            path_mtu: Some(path_mtu),
            large_vanish,
            ..Reach::default()
        }
    }

    #[test]
    fn the_odd_one_among_roce_interfaces_warns() {
        let answer = ask(&CHECK, &roce([9000, 9000, 1500, 9000]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["eth4"]));
        let answer = ask(&CHECK, &roce([9000; 4]));
        assert_eq!(
            (answer.verdict, answer.summary.as_str()),
            (CheckState::Ok, "RoCE interfaces have 9000 (RDMA packets of 4096)")
        );
        assert_eq!(ask(&CHECK, &roce([1500; 4])).verdict, CheckState::Ok, "small but alike");
    }

    #[test]
    fn interfaces_of_one_list_must_agree() {
        let told = |value: &str| {
            let mut node = node(
                vec![],
                vec![interface(2, "eth0", "10.0.0.7/24")],
                vec![rank(0, &[("NCCL_SOCKET_IFNAME", value)])],
            );
            if let ringleader_node::Outcome::Seen(net) = &mut node.net.outcome {
                net.interfaces.push(Interface { mtu: 9000, ..interface(3, "eth1", "10.1.0.7/24") });
            }
            node
        };
        let answer = ask(&CHECK, &told("eth0,eth1"));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["eth0"]));
        assert_eq!(ask(&CHECK, &told("=eth1")).verdict, CheckState::Skipped, "the other does other work");
        assert_eq!(ask(&CHECK, &told("^docker")).verdict, CheckState::Skipped);
    }

    #[test]
    fn a_path_narrower_than_the_interface_is_named() {
        let with = |reach: Reach, ranks| {
            let mut node = roce([9000; 4]);
            node.reach = Part::of(vec![reach]);
            node.jobs = Part::of(ringleader_node::Jobs { processes: ranks, ..Default::default() });
            ask(&CHECK, &node)
        };
        let answer = with(path(1500, false), vec![]);
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["10.1.0.8:22"]));
        assert!(answer.summary.contains("1500 of the 9000 bytes that eth2 sends"), "{}", answer.summary);
        assert_eq!(with(path(1500, true), vec![rank(0, &[])]).verdict, CheckState::Fail);
        assert_eq!(with(path(9000, false), vec![rank(0, &[])]).verdict, CheckState::Ok);
    }

    #[test]
    fn one_interface_and_no_reading_are_skipped() {
        let mut one = node(vec![], vec![interface(2, "eth0", "10.0.0.7/24")], vec![]);
        assert_eq!(ask(&CHECK, &one).verdict, CheckState::Skipped);
        one.net = Part::default();
        assert_eq!(ask(&CHECK, &one).verdict, CheckState::Skipped);
    }

    #[test]
    fn rdma_packets_fit_into_the_interfaces_mtu() {
        assert_eq!([1500, 4191, 4192, 9000].map(rdma_mtu), [1024, 2048, 4096, 4096]);
    }
}
