//! # What it checks
//!
//! Errors, drops and lost carriers of the network cards and of the interfaces that NCCL uses, in two readings some
//! hundred milliseconds apart.
//!
//! # What fails
//!
//! Nothing: growth only warns. Errors count at any growth, drops from one packet in a thousand on: hosts constantly
//! drop what they do not understand (spanning tree, LLDP). Counts from before the first reading are shown without
//! blame.
//!
//! # What to do
//!
//! Errors: the cable or transceiver. Drops: rings too small or processors too busy (`ethtool -S`). A carrier that comes
//! and goes: the cable, the switch, or a driver that is being reset.
//!
//! # References
//!
//! Linux Documentation/networking/statistics.rst; Documentation/ABI/testing/sysfs-class-net.

use ringleader_model::plain_word;
use ringleader_node::Interface;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "interface-errors",
    title: "no errors on network interfaces now",
    area: Area::Network,
    reads: &[Probe::Network, Probe::Jobs],
    drains: false,
    is_quick: false,
    since: "0.2",
    doc: include_str!("interface_errors.rs"),
    run,
};

/// Fewer drops than this in a window are noise.
const MIN_DROPS: u64 = 10;
/// One packet in a thousand: this slows TCP on a fast link.
const DROPS_PER_PACKETS: u64 = 1_000;
/// A driver that comes up changes the carrier two to four times.
const FLAPS: u64 = 6;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let net = match view.node.net.seen() {
        Ok(net) => net,
        Err(missing) => return missing.into(),
    };
    let mut names: Vec<&str> = wiring::by_value(view, "NCCL_SOCKET_IFNAME")
        .into_keys()
        .flat_map(|list| net.nccl_interfaces(list, None))
        .map(|interface| interface.name.as_str())
        .collect();
    names.extend(net.interfaces.iter().filter(|i| i.is_physical && i.is_up).map(|i| i.name.as_str()));
    names.sort_unstable();
    names.dedup();
    let watched: Vec<&Interface> =
        names.into_iter().filter_map(|name| net.interface(name)).filter(|i| !i.is_loopback).collect();
    if watched.is_empty() {
        return CheckAnswer::skipped("no network interface is up");
    }
    let mut items: Vec<Item> = watched.iter().filter_map(|interface| earlier(interface)).collect();
    let n_twice = watched.iter().filter(|i| i.counters.values().any(|(_, second)| second.is_some())).count();
    if n_twice == 0 {
        let mut answer = CheckAnswer::skipped("the counters were read only once, which gives no rate");
        answer.items = items;
        return answer;
    }
    items.extend(watched.iter().flat_map(|interface| grown(interface)));
    let window_ms = watched.iter().map(|interface| interface.window_ms).max().unwrap_or(0);
    let odd = items.iter().find(|item| item.verdict > CheckState::Ok).map(|item| item.subject.clone());
    let mut answer =
        CheckAnswer::from_items(format!("{n_twice} interfaces, no error within {window_ms} ms"), items)
            .advise(
                Impact::Harmless,
                "check which counter of the card increases",
                odd.as_deref()
                    .and_then(plain_word)
                    .map(|name| format!("ethtool -S {name} | grep -v ': 0$'; ip -s -s link show dev {name}")),
            );
    for interface in watched {
        for (counter, key) in
            [("rx_errors", "rx-errors"), ("tx_errors", "tx-errors"), ("carrier_changes", "carrier-changes")]
        {
            if let Some((first, second)) = interface.counters.get(counter) {
                let key = format!("net.{}.{key}", interface.name);
                answer = answer.value(key, second.unwrap_or(*first), ValueKind::Counter);
            }
        }
    }
    answer
}

/// Growth of a counter, if it was read twice and not reset.
fn growth(interface: &Interface, name: &str) -> u64 {
    let Some((first, Some(second))) = interface.counters.get(name) else { return 0 };
    second.saturating_sub(*first)
}

fn grown(interface: &Interface) -> Vec<Item> {
    let item = |name: &str, text: String| {
        let (first, second) = interface.counters.get(name).copied().unwrap_or_default();
        Item {
            subject: interface.name.clone(),
            verdict: CheckState::Warn,
            text,
            evidence: format!("{name}: {first}, then {}", second.unwrap_or(first)),
        }
    };
    let mut items = Vec::new();
    let flaps = growth(interface, "carrier_changes");
    if flaps > 0 {
        let text = format!("the carrier changed {flaps} times within {} ms", interface.window_ms);
        items.push(item("carrier_changes", text));
    }
    for direction in ["rx", "tx"] {
        let total = format!("{direction}_errors");
        let errors = growth(interface, &total);
        if errors > 0 {
            // The individual kinds; on most drivers the total is their sum.
            let kinds: Vec<String> = interface
                .counters
                .keys()
                .filter(|name| name.starts_with(direction) && name.ends_with("_errors") && **name != total)
                .filter(|name| growth(interface, name) > 0)
                .map(|name| format!("{name} {}", growth(interface, name)))
                .collect();
            let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
            items.push(item(
                &total,
                format!("{total} grew by {errors} within {} ms{kinds}", interface.window_ms),
            ));
        }
        let dropped = format!("{direction}_dropped");
        let drops = growth(interface, &dropped);
        let packets = growth(interface, &format!("{direction}_packets"));
        if drops >= MIN_DROPS && drops.saturating_mul(DROPS_PER_PACKETS) > packets {
            let text = format!(
                "{drops} of {} packets were dropped within {} ms",
                packets + drops,
                interface.window_ms
            );
            items.push(item(&dropped, format!("{direction}: {text}")));
        }
    }
    items
}

/// Counts from before the first reading.
fn earlier(interface: &Interface) -> Option<Item> {
    let first = |name: &str| interface.counters.get(name).map_or(0, |(first, _)| *first);
    let flaps = interface.carrier_changes.unwrap_or(0);
    let mut counted: Vec<String> = ["rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped", "tx_dropped"]
        .iter()
        .filter(|name| first(name) > 0)
        .map(|name| format!("{name} {}", first(name)))
        .collect();
    if flaps >= FLAPS {
        counted.push(format!("carrier_changes {flaps}"));
    }
    (!counted.is_empty()).then(|| Item {
        subject: interface.name.clone(),
        verdict: CheckState::Ok,
        text: "counted before this check, since it was set up".to_owned(),
        evidence: counted.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Node, Part};

    use super::*;
    use crate::wiring::staging::{ask, blamed, interface, node, rank};

    fn counting(name: &str, values: &[(&str, u64, Option<u64>)]) -> Node {
        let mut one = interface(2, name, "10.0.0.7/24");
        one.window_ms = 400;
        one.counters = values.iter().map(|(name, a, b)| ((*name).to_owned(), (*a, *b))).collect();
        one.carrier_changes = one.counters.get("carrier_changes").map(|(first, _)| *first);
        node(vec![], vec![one], vec![])
    }

    #[test]
    fn errors_drops_and_carriers_that_grow_warn() {
        for values in [
            &[("rx_errors", 5, Some(6)), ("rx_crc_errors", 5, Some(6))][..],
            &[("tx_errors", 0, Some(1))],
            &[("carrier_changes", 2, Some(4))],
            &[("rx_packets", 1_000, Some(5_000)), ("rx_dropped", 0, Some(40))],
        ] {
            let answer = ask(&CHECK, &counting("eth0", values));
            assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["eth0"]), "{values:?}");
        }
    }

    #[test]
    fn old_counts_and_a_few_drops_do_not() {
        let old = [
            ("rx_errors", 900, Some(900)),
            ("carrier_changes", 40, Some(40)),
            ("rx_dropped", 7_000, Some(7_002)),
        ];
        let answer = ask(&CHECK, &counting("eth0", &old));
        assert_eq!(answer.verdict, CheckState::Ok, "{answer:?}");
        assert!(answer.items[0].evidence.contains("carrier_changes 40"), "they are shown");
        let busy = [("rx_packets", 0, Some(400_000)), ("rx_dropped", 0, Some(40))];
        assert_eq!(ask(&CHECK, &counting("eth0", &busy)).verdict, CheckState::Ok);
    }

    #[test]
    fn virtual_interfaces_count_only_where_nccl_takes_them() {
        let growing = [("rx_errors", 0, Some(9))];
        assert_eq!(ask(&CHECK, &counting("veth1", &growing)).verdict, CheckState::Skipped);
        let mut taken = counting("veth1", &growing);
        taken.jobs = Part::of(ringleader_node::Jobs {
            processes: vec![rank(0, &[("NCCL_SOCKET_IFNAME", "veth1")])],
            ..Default::default()
        });
        assert_eq!(ask(&CHECK, &taken).verdict, CheckState::Warn);
    }

    #[test]
    fn one_look_and_no_reading_are_skipped() {
        assert_eq!(ask(&CHECK, &counting("eth0", &[("rx_errors", 5, None)])).verdict, CheckState::Skipped);
        let mut none = counting("eth0", &[]);
        none.net = Part::default();
        assert_eq!(ask(&CHECK, &none).verdict, CheckState::Skipped);
    }
}
