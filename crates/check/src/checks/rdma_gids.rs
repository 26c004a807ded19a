//! # What it checks
//!
//! Whether each RoCE port that a job would use has a global identifier of RoCE v2 with an address, and whether the
//! index in NCCL_IB_GID_INDEX refers to one on every port.
//!
//! # What fails
//!
//! An index that is empty on a port, or of another kind than the port's RoCE v2 address. A port without any such
//! address, in a job of several nodes. Without a job it warns about a port that lacks what similar ports have.
//! InfiniBand needs no index. Different indices on different ports are no fault as long as NCCL chooses (2.21 and
//! later).
//!
//! # What to do
//!
//! Unset NCCL_IB_GID_INDEX, or set an index that is right on every port of every node; give each interface its address.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/net_ib/connect.cc (ncclIbGetGidIndex); NCCL user guide, NCCL_IB_GID_INDEX; Linux
//! Documentation/ABI/stable/sysfs-class-infiniband (gid_attrs).

use std::net::Ipv6Addr;

use ringleader_node::{Gid, RdmaPort};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring::{self, Use};

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "rdma-gids",
    title: "RoCE ports have their addresses",
    area: Area::Network,
    reads: &[Probe::Rdma, Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("rdma_gids.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let ports = match view.node.rdma.seen() {
        Ok(ports) => ports,
        Err(missing) => return missing.into(),
    };
    let roce: Vec<&RdmaPort> = ports
        .iter()
        .filter(|port| {
            port.is_roce() && port.state == "ACTIVE" && wiring::use_of(view, port) != Use::Excluded
        })
        .collect();
    if roce.is_empty() {
        return CheckAnswer::skipped("no RoCE port is in use");
    }
    let (readable, blind): (Vec<&RdmaPort>, Vec<&RdmaPort>) = roce
        .iter()
        .copied()
        .partition(|port| port.gids.is_empty() || port.gids.iter().any(|gid| !gid.kind.is_empty()));
    if readable.is_empty() {
        return CheckAnswer::skipped(format!("the GID types of {} are not readable here", blind[0].name()));
    }
    let mut items = Vec::new();
    for port in &readable {
        items.extend(told(view, port));
        if right(port).next().is_none() {
            items.push(without(view, port, &readable));
        }
    }
    let mut indices: Vec<u32> =
        readable.iter().filter_map(|port| right(port).next()).map(|gid| gid.index).collect();
    indices.sort_unstable();
    indices.dedup();
    let indices: Vec<String> = indices.iter().map(u32::to_string).collect();
    let summary = format!("{} RoCE ports, RoCE v2 at index {}", readable.len(), indices.join(", "));
    CheckAnswer::from_items(summary, items)
        .advise(
            Impact::Harmless,
            "compare the tables of all ports",
            Some(
                "grep -H . /sys/class/infiniband/*/ports/*/gid_attrs/types/* 2>/dev/null | grep v2"
                    .to_owned(),
            ),
        )
        .advise(
            Impact::Disruptive,
            "let NCCL choose the index (2.21 and later), and give each interface its address",
            Some("unset NCCL_IB_GID_INDEX".to_owned()),
        )
        .value("rdma.gid-index", indices.join(", "), ValueKind::Same)
}

fn address(gid: &Gid) -> Option<Ipv6Addr> {
    gid.gid.parse().ok()
}

fn is_v2(gid: &Gid) -> bool {
    gid.kind == "RoCE v2"
}

/// Entries of RoCE v2 with an IPv4 address.
fn right(port: &RdmaPort) -> impl Iterator<Item = &Gid> {
    port.gids
        .iter()
        .filter(|gid| is_v2(gid) && address(gid).is_some_and(|address| address.to_ipv4_mapped().is_some()))
}

/// Entries of RoCE v2 with a routable IPv6 address.
fn right_v6(port: &RdmaPort) -> impl Iterator<Item = &Gid> {
    port.gids.iter().filter(|gid| {
        is_v2(gid)
            && address(gid)
                .is_some_and(|address| address.to_ipv4_mapped().is_none() && !address.is_unicast_link_local())
    })
}

fn shown(port: &RdmaPort) -> String {
    let entries: Vec<String> =
        port.gids.iter().take(12).map(|gid| format!("[{}] {} {}", gid.index, gid.gid, gid.kind)).collect();
    if entries.is_empty() { "the table is empty".to_owned() } else { entries.join("; ") }
}

/// Judges the index that the job sets.
fn told(view: &NodeView<'_>, port: &RdmaPort) -> Vec<Item> {
    let mut items = Vec::new();
    for (value, ranks) in wiring::by_value(view, "NCCL_IB_GID_INDEX") {
        // A negative index: NCCL chooses.
        let Some(index) = value.and_then(|value| value.trim().parse::<u32>().ok()) else { continue };
        let chosen = port.gids.iter().find(|gid| gid.index == index);
        let good: Vec<u32> = right(port).chain(right_v6(port)).map(|gid| gid.index).collect();
        let what = match chosen {
            None => "is empty",
            Some(_) if good.contains(&index) || good.is_empty() => continue,
            Some(gid) if !is_v2(gid) => "is of RoCE v1",
            Some(_) => "is a link-local address",
        };
        let better =
            good.first().map_or_else(String::new, |index| format!("; RoCE v2 with an address is {index}"));
        items.push(Item {
            subject: port.name(),
            verdict: CheckState::Fail,
            text: format!("NCCL_IB_GID_INDEX={index} {what} here{better}"),
            evidence: format!("{}: NCCL_IB_GID_INDEX={index}; {}", wiring::named(&ranks), shown(port)),
        });
    }
    items
}

/// A port without an IPv4 address of RoCE v2.
fn without(view: &NodeView<'_>, port: &RdmaPort, all: &[&RdmaPort]) -> Item {
    let n_better =
        all.iter().filter(|other| wiring::are_alike(port, other) && right(other).next().is_some()).count();
    let is_used = wiring::is_multi_node(view);
    let wants_v6 = wiring::by_value(view, "NCCL_IB_ADDR_FAMILY").contains_key(&Some("AF_INET6"));
    let netdev = port.netdev.as_deref().unwrap_or("its interface");
    let (verdict, text) = if right_v6(port).next().is_some() {
        let is_ok = wants_v6 || !is_used;
        let hint = if is_ok { "" } else { ": NCCL looks for IPv4 unless NCCL_IB_ADDR_FAMILY=AF_INET6" };
        (if is_ok { CheckState::Ok } else { CheckState::Warn }, format!("has only IPv6 addresses{hint}"))
    } else {
        let text = format!("no RoCE v2 GID with an address: {netdev} has none");
        match (is_used, n_better) {
            (true, _) => (CheckState::Fail, text),
            (false, 0) => (CheckState::Ok, text),
            (false, n) => (CheckState::Warn, format!("{text}, while {n} ports like it have one")),
        }
    };
    Item { subject: port.name(), verdict, text, evidence: shown(port) }
}

#[cfg(test)]
mod tests {
    use ringleader_node::Part;

    use super::*;
    use crate::wiring::staging::{ask, blamed, node, port, rank};

    const LOCAL: &str = "fe80:0000:0000:0000:bace:f6ff:fe12:3456";
    const MAPPED: &str = "0000:0000:0000:0000:0000:ffff:0a00:0007";

    fn gid(index: u32, gid: &str, kind: &str) -> Gid {
        Gid { index, gid: gid.to_owned(), kind: kind.to_owned(), netdev: Some("eth2".to_owned()) }
    }

    /// Four ports whose address is at these indices; None: link-local only.
    fn roce(at: [Option<u32>; 4]) -> Vec<RdmaPort> {
        (0..4)
            .map(|n| {
                let mut port = RdmaPort { link_layer: "Ethernet".to_owned(), ..port(n) };
                port.gids = vec![gid(0, LOCAL, "IB/RoCE v1"), gid(1, LOCAL, "RoCE v2")];
                if let Some(index) = at[n as usize] {
                    port.gids.push(gid(index - 1, MAPPED, "IB/RoCE v1"));
                    port.gids.push(gid(index, MAPPED, "RoCE v2"));
                }
                port
            })
            .collect()
    }

    #[test]
    fn an_index_that_is_wrong_on_one_port_fails_there() {
        let told = |index| vec![rank(0, &[("NCCL_IB_GID_INDEX", index)])];
        let shifted = roce([Some(3), Some(3), Some(5), Some(3)]);
        let answer = ask(&CHECK, &node(shifted.clone(), vec![], told("3")));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_2/1"]), "empty there");
        assert!(answer.summary.contains("is 5"), "{}", answer.summary);
        let answer = ask(&CHECK, &node(roce([Some(3); 4]), vec![], told("2")));
        assert!(answer.summary.contains("RoCE v1"), "{}", answer.summary);
        let answer = ask(&CHECK, &node(roce([Some(3); 4]), vec![], told("1")));
        assert!(answer.summary.contains("link-local"), "{}", answer.summary);
        // Correct: the right index, or NCCL chooses, even if the tables differ.
        assert_eq!(ask(&CHECK, &node(roce([Some(3); 4]), vec![], told("3"))).verdict, CheckState::Ok);
        for free in [told("-1"), vec![rank(0, &[])], vec![]] {
            let answer = ask(&CHECK, &node(shifted.clone(), vec![], free));
            assert_eq!(answer.verdict, CheckState::Ok, "{answer:?}");
            assert!(answer.values.iter().any(|v| v.value == "3, 5"));
        }
    }

    #[test]
    fn a_port_without_an_address_fails_a_job_and_warns_among_better_ones() {
        let lacking = roce([Some(3), None, Some(3), Some(3)]);
        let answer = ask(&CHECK, &node(lacking.clone(), vec![], vec![rank(0, &[])]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_1/1"]));
        let answer = ask(&CHECK, &node(lacking.clone(), vec![], vec![]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["mlx5_1/1"]));
        let left_out = vec![rank(0, &[("NCCL_IB_HCA", "^mlx5_1")])];
        assert_eq!(ask(&CHECK, &node(lacking, vec![], left_out)).verdict, CheckState::Ok);
        assert_eq!(
            ask(&CHECK, &node(roce([None; 4]), vec![], vec![])).verdict,
            CheckState::Ok,
            "RoCE is not in use"
        );
    }

    #[test]
    fn ipv6_alone_is_well_if_the_job_says_so() {
        let mut ports = roce([None; 4]);
        for port in &mut ports {
            port.gids.push(gid(3, "2001:0db8:0000:0000:0000:0000:0000:0007", "RoCE v2"));
        }
        let told = vec![rank(0, &[("NCCL_IB_ADDR_FAMILY", "AF_INET6")])];
        assert_eq!(ask(&CHECK, &node(ports.clone(), vec![], told)).verdict, CheckState::Ok);
        assert_eq!(ask(&CHECK, &node(ports, vec![], vec![rank(0, &[])])).verdict, CheckState::Warn);
    }

    #[test]
    fn infiniband_and_unreadable_tables_are_skipped() {
        assert_eq!(ask(&CHECK, &node(vec![port(0)], vec![], vec![])).summary, "no RoCE port is in use");
        let mut blind = roce([Some(3); 4]);
        for gid in blind.iter_mut().flat_map(|port| &mut port.gids) {
            gid.kind = String::new();
        }
        assert_eq!(ask(&CHECK, &node(blind, vec![], vec![])).verdict, CheckState::Skipped);
        let mut none = node(vec![], vec![], vec![]);
        none.rdma = Part::default();
        assert_eq!(ask(&CHECK, &none).verdict, CheckState::Skipped);
    }
}
