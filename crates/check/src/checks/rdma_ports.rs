//! # What it checks
//!
//! State and rate of the RDMA ports that a job would use, compared with the same port of cards of the same kind.
//!
//! # What fails
//!
//! A port that is down while most of its kind are active, or although NCCL_IB_HCA names it; one that waits for a
//! subnet manager (INIT, ARMED); one with a lower rate than most of its kind. If no port is active it only warns:
//! nothing may be plugged in. Not judged: ports that NCCL_IB_HCA excludes, virtual functions, and a card's second port
//! if it is empty on all cards.
//!
//! # What to do
//!
//! Check the cable and the switch port; for INIT, the subnet manager (`sminfo`). Keep the node out of jobs until the
//! port is active.
//!
//! # References
//!
//! Linux Documentation/ABI/stable/sysfs-class-infiniband; InfiniBand architecture, port states; NCCL user guide,
//! NCCL_IB_HCA; NVIDIA/nccl src/transport/net_ib/init.cc (only active ports are taken).

use std::collections::BTreeMap;

use ringleader_node::RdmaPort;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring::{self, Use};

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "rdma-ports",
    title: "RDMA ports are active at full rate",
    area: Area::Network,
    reads: &[Probe::Rdma, Probe::Jobs],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("rdma_ports.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let ports = match view.node.rdma.seen() {
        Ok(ports) => ports,
        Err(missing) => return missing.into(),
    };
    let used: Vec<(&RdmaPort, Use)> = ports.iter().map(|port| (port, wiring::use_of(view, port))).collect();
    let n_active = used.iter().filter(|(port, how)| is_active(port) && *how != Use::Excluded).count();
    let mut items: Vec<Item> = used.iter().filter_map(|(port, how)| judge(port, *how, &used)).collect();
    let is_any_bad = items.iter().any(|item| item.verdict > CheckState::Ok);
    if n_active == 0 && !is_any_bad && used.iter().any(|(_, how)| *how != Use::Excluded) {
        items.push(Item {
            subject: "all RDMA ports".to_owned(),
            verdict: CheckState::Warn,
            text: "none is active: NCCL goes over TCP".to_owned(),
            evidence: ports.iter().map(shown).collect::<Vec<_>>().join("; "),
        });
    }
    let mut rates: BTreeMap<String, u32> = BTreeMap::new();
    for (port, _) in used.iter().filter(|(port, how)| is_active(port) && *how != Use::Excluded) {
        *rates.entry(rate(port)).or_default() += 1;
    }
    let rates: Vec<String> = rates.iter().map(|(rate, n)| format!("{n} x {rate}")).collect();
    let mut firmware: Vec<String> =
        ports.iter().map(|port| format!("{} {}", port.board, port.firmware)).collect();
    firmware.sort();
    firmware.dedup();
    let summary = if rates.is_empty() { "no port in use".to_owned() } else { rates.join(", ") };
    CheckAnswer::from_items(summary, items)
        .advise(
            Impact::Harmless,
            "read the state that the link reports, then check the cable and the switch port",
            Some("ibstat; rdma link show; dmesg | grep -i mlx5".to_owned()),
        )
        .advise(Impact::Disruptive, "keep the node out of jobs until the port is active at full rate", None)
        .value("rdma.ports-active", n_active, ValueKind::Same)
        .value("rdma.rates", rates.join(", "), ValueKind::Same)
        .value("rdma.firmware", firmware.join(", "), ValueKind::Same)
}

fn is_active(port: &RdmaPort) -> bool {
    port.state == "ACTIVE"
}

fn rate(port: &RdmaPort) -> String {
    port.rate_gbps
        .map_or_else(|| "unknown rate".to_owned(), |rate| format!("{rate} Gb/s {}", port.link_layer))
}

fn shown(port: &RdmaPort) -> String {
    let rate =
        port.rate_gbps.map_or_else(String::new, |rate| format!(", rate {rate} Gb/s ({})", port.rate_text));
    let sm = if port.is_roce() { String::new() } else { format!(", sm_lid {}", port.sm_lid.unwrap_or(0)) };
    format!("{}: state {}, phys_state {}{rate}{sm}", port.name(), port.state, port.phys_state)
}

fn judge(port: &RdmaPort, how: Use, all: &[(&RdmaPort, Use)]) -> Option<Item> {
    let alike: Vec<&RdmaPort> = all
        .iter()
        .filter(|(other, how)| *how != Use::Excluded && wiring::are_alike(port, other))
        .map(|(other, _)| *other)
        .collect();
    let up: Vec<&RdmaPort> = alike.iter().copied().filter(|other| is_active(other)).collect();
    let (verdict, text) = match port.state.as_str() {
        _ if how == Use::Excluded => (
            CheckState::Ok,
            (!is_active(port)).then(|| format!("{}, and the job does not use it", port.state))?,
        ),
        "ACTIVE" => slow(port, how, &up)?,
        "INIT" | "ARMED" => (
            CheckState::Fail,
            format!("{}: the link is up, and no subnet manager has configured it", port.state),
        ),
        state => {
            let text = format!("{state} ({})", port.phys_state);
            let n_down = alike.len() - up.len();
            match (how, up.len()) {
                (Use::Named, _) => (CheckState::Fail, format!("{text}, and NCCL_IB_HCA names it")),
                _ if port.is_virtual => (CheckState::Ok, format!("{text}; a virtual function")),
                (_, n) if n > n_down => (
                    CheckState::Fail,
                    format!("{text}, while {n} of {} ports like it are active", alike.len()),
                ),
                (_, 0) => (CheckState::Ok, format!("{text}, as are all ports like it")),
                (_, n) => {
                    (CheckState::Warn, format!("{text}; {n} of {} ports like it are active", alike.len()))
                }
            }
        }
    };
    Some(Item { subject: port.name(), verdict, text, evidence: shown(port) })
}

/// Whether an active port is slower than its peers, or than the card's PCIe link allows.
fn slow(port: &RdmaPort, how: Use, up: &[&RdmaPort]) -> Option<(CheckState, String)> {
    let rate = port.rate_gbps?;
    let best = up.iter().filter_map(|other| other.rate_gbps).fold(rate, f64::max);
    let n_best = up.iter().filter(|other| other.rate_gbps == Some(best)).count();
    if rate < best {
        let is_odd_one = n_best * 2 > up.len() || how == Use::Named;
        let verdict = if is_odd_one { CheckState::Fail } else { CheckState::Warn };
        let text = format!(
            "{rate} Gb/s ({}), while {n_best} of {} ports like it run at {best}",
            port.rate_text,
            up.len()
        );
        return Some((verdict, text));
    }
    if !port.is_roce() && port.rate_text.starts_with("1X") {
        return Some((
            CheckState::Warn,
            format!("runs on one lane of its cable ({rate} Gb/s, {})", port.rate_text),
        ));
    }
    let (now, most) =
        (bus_gbps(port.pcie_gt_s, port.pcie_width)?, bus_gbps(port.pcie_gt_s_max, port.pcie_width_max)?);
    (now < rate && now < most).then(|| {
        let link = format!("{} GT/s x{}", port.pcie_gt_s.unwrap_or(0.0), port.pcie_width.unwrap_or(0));
        let able =
            format!("{} GT/s x{}", port.pcie_gt_s_max.unwrap_or(0.0), port.pcie_width_max.unwrap_or(0));
        (
            CheckState::Warn,
            format!(
                "its PCIe link runs at {link} ({now:.0} Gb/s) of {able}: less than the port's {rate} Gb/s"
            ),
        )
    })
}

/// What a PCIe link carries in one direction, Gb/s: 8b/10b below generation 3, 128b/130b above (the flits of
/// generation 6 cost about as much).
fn bus_gbps(gt_s: Option<f64>, width: Option<u32>) -> Option<f64> {
    let (gt_s, width) = (gt_s?, width.filter(|width| *width > 0)?);
    let coding = if gt_s < 8.0 { 0.8 } else { 128.0 / 130.0 };
    Some(gt_s * f64::from(width) * coding)
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Outcome, Part};

    use super::*;
    use crate::wiring::staging::{ask, blamed, node, port, rank};

    fn ports(change: impl Fn(u32, &mut RdmaPort)) -> Vec<RdmaPort> {
        (0..8)
            .map(|n| {
                let mut port = port(n);
                change(n, &mut port);
                port
            })
            .collect()
    }

    fn down(port: &mut RdmaPort) {
        port.state = "DOWN".to_owned();
        port.phys_state = "Polling".to_owned();
    }

    #[test]
    fn one_down_among_active_ones_fails_by_name() {
        let node = node(
            ports(|n, port| {
                if n == 3 {
                    down(port);
                }
            }),
            vec![],
            vec![],
        );
        let answer = ask(&CHECK, &node);
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_3/1"]));
        assert!(answer.summary.contains("7 of 8"), "{}", answer.summary);
        assert!(answer.values.iter().any(|v| v.key == "rdma.ports-active" && v.value == "7"));
    }

    #[test]
    fn second_ports_that_are_empty_on_all_cards_are_no_trouble() {
        let mut all = ports(|_, _| {});
        all.extend(ports(|n, port| {
            port.device = format!("mlx5_{}", n + 8);
            port.pci = Some(format!("0000:{:02x}:00.1", 0x18 + n));
            down(port);
        }));
        let answer = ask(&CHECK, &node(all.clone(), vec![], vec![]));
        assert_eq!(answer.verdict, CheckState::Ok, "{answer:?}");
        assert_eq!(answer.summary, "8 x 400 Gb/s InfiniBand");
        // The same, but the job selects one of them.
        let told = rank(0, &[("NCCL_IB_HCA", "=mlx5_0:1,mlx5_9:1")]);
        let answer = ask(&CHECK, &node(all, vec![], vec![told]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_9/1"]));
    }

    #[test]
    fn a_port_that_the_job_leaves_out_may_be_down() {
        let told = rank(0, &[("NCCL_IB_HCA", "^mlx5_3")]);
        let answer = ask(
            &CHECK,
            &node(
                ports(|n, port| {
                    if n == 3 {
                        down(port);
                    }
                }),
                vec![],
                vec![told],
            ),
        );
        assert_eq!(answer.verdict, CheckState::Ok, "{answer:?}");
    }

    #[test]
    fn a_port_without_a_subnet_manager_is_told_apart() {
        let all = ports(|n, port| {
            if n == 5 {
                port.state = "INIT".to_owned();
                port.sm_lid = Some(0);
            }
        });
        let answer = ask(&CHECK, &node(all, vec![], vec![]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_5/1"]));
        assert!(answer.summary.contains("subnet manager"));
    }

    #[test]
    fn a_slower_port_fails_and_two_kinds_of_card_do_not() {
        let slow = ports(|n, port| {
            if n == 2 {
                port.rate_gbps = Some(200.0);
            }
        });
        let answer = ask(&CHECK, &node(slow, vec![], vec![]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_2/1"]));
        let storage = ports(|n, port| {
            if n >= 6 {
                port.rate_gbps = Some(200.0);
                port.board = "MT_0000000223".to_owned();
            }
        });
        assert_eq!(ask(&CHECK, &node(storage, vec![], vec![])).verdict, CheckState::Ok);
    }

    #[test]
    fn a_narrow_place_on_the_bus_warns_and_a_slot_made_so_does_not() {
        let at = |width_max| {
            ports(move |n, port| {
                (port.pcie_gt_s, port.pcie_gt_s_max) = (Some(32.0), Some(32.0));
                (port.pcie_width, port.pcie_width_max) = (Some(if n == 1 { 8 } else { 16 }), Some(width_max));
            })
        };
        let answer = ask(&CHECK, &node(at(16), vec![], vec![]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["mlx5_1/1"]));
        assert_eq!(ask(&CHECK, &node(at(8), vec![], vec![])).verdict, CheckState::Ok);
    }

    #[test]
    fn an_unused_card_warns_and_no_card_is_skipped() {
        let answer = ask(&CHECK, &node(ports(|_, port| down(port)), vec![], vec![]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["all RDMA ports"]));
        let mut none = node(vec![], vec![], vec![]);
        none.rdma = Part { outcome: Outcome::Absent("no RDMA device".to_owned()), ..Part::default() };
        let answer = ask(&CHECK, &none);
        assert_eq!((answer.verdict, answer.summary.as_str()), (CheckState::Skipped, "no RDMA device"));
        none.rdma = Part::default();
        assert_eq!(ask(&CHECK, &none).verdict, CheckState::Skipped);
    }
}
