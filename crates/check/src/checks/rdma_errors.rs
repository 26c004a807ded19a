//! # What it checks
//!
//! Error counters of the RDMA ports that a job would use, in two readings some hundred milliseconds apart.
//!
//! # What fails
//!
//! A link that went down between the readings; physical errors at ten per second or more. Other growth of an error
//! counter warns. Counts from before the first reading are only shown: counters run since the last reset.
//! Out-of-sequence packets on InfiniBand are a result of adaptive routing, and congestion marks are how RoCE
//! regulates itself: both are only shown.
//!
//! # What to do
//!
//! Physical errors: clean or replace the cable or transceiver. Timeouts and sequence errors without them: the path
//! or the peer, and over Ethernet the lossless class (PFC).
//!
//! # References
//!
//! Linux Documentation/ABI/stable/sysfs-class-infiniband; NVIDIA, Understanding mlx5 Linux Counters; InfiniBand
//! architecture, port counters.

use ringleader_knowledge::port_counter::{self, PortTrouble};
use ringleader_node::RdmaPort;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring::{self, Use};

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "rdma-errors",
    title: "no errors on RDMA ports now",
    area: Area::Network,
    reads: &[Probe::Rdma, Probe::Jobs],
    drains: true,
    is_quick: false,
    since: "0.2",
    doc: include_str!("rdma_errors.rs"),
    run,
};

/// InfiniBand allows 120 symbol errors per hour: one within the window is chance in one of eighty cases, two are not
/// chance.
const CHANCE: u64 = 1;
/// Three hundred times what InfiniBand allows: the link is bad, not unlucky.
const BAD_PER_S: f64 = 10.0;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let ports = match view.node.rdma.seen() {
        Ok(ports) => ports,
        Err(missing) => return missing.into(),
    };
    let used: Vec<&RdmaPort> = ports
        .iter()
        .filter(|port| port.state == "ACTIVE" || wiring::use_of(view, port) == Use::Named)
        .collect();
    let used: Vec<&RdmaPort> =
        used.into_iter().filter(|port| wiring::use_of(view, port) != Use::Excluded).collect();
    if used.is_empty() {
        return CheckAnswer::skipped("no RDMA port is in use");
    }
    let mut items: Vec<Item> = used.iter().filter_map(|port| earlier(port)).collect();
    let n_twice =
        used.iter().filter(|port| port.counters.values().any(|(_, second)| second.is_some())).count();
    if n_twice == 0 {
        let mut answer = CheckAnswer::skipped("the counters were read only once, which gives no rate");
        answer.items = items;
        return answer;
    }
    items.extend(used.iter().flat_map(|port| grown(port)));
    let window_ms = used.iter().map(|port| port.window_ms).max().unwrap_or(0);
    let mut answer = CheckAnswer::from_items(format!("{n_twice} ports, no error within {window_ms} ms"), items)
        .advise(
            Impact::Harmless,
            "read the counters twice, a minute apart, while the job runs",
            Some("grep -H . /sys/class/infiniband/*/ports/*/counters/{symbol_error,link_downed,port_rcv_errors} /sys/class/infiniband/*/ports/*/hw_counters/*err*".to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "clean or replace the cable of a port whose errors increase, and keep the node out of jobs until they stop",
            None,
        );
    for port in used {
        for name in ["link_downed", "symbol_error", "port_rcv_errors"] {
            if let Some((first, second)) = port.counters.get(name) {
                let key = format!("rdma.{}.{name}", port.name());
                answer = answer.value(key, second.unwrap_or(*first), ValueKind::Counter);
            }
        }
    }
    answer
}

/// Growth between the readings.
fn grown(port: &RdmaPort) -> Vec<Item> {
    let seconds = port.window_ms.max(1) as f64 / 1e3;
    port_counter::of_port()
        .filter_map(|(name, trouble)| {
            let (first, second) = port.counters.get(name)?;
            let second = (*second)?;
            // A counter that was reset between the readings did not grow.
            let growth = second.checked_sub(*first).filter(|growth| *growth > 0)?;
            let rate = growth as f64 / seconds;
            // InfiniBand spreads packets over several paths on purpose.
            let is_by_design = name == "out_of_sequence" && !port.is_roce();
            let (verdict, meaning) = match trouble {
                _ if is_by_design => (CheckState::Ok, "adaptive routing reorders packets"),
                PortTrouble::Down => (CheckState::Fail, "the link went down"),
                PortTrouble::Physical if name == "symbol_error" && growth <= CHANCE => {
                    (CheckState::Ok, "a single one may be chance")
                }
                PortTrouble::Physical if rate >= BAD_PER_S => (CheckState::Fail, "bits are lost on the link"),
                PortTrouble::Physical => (CheckState::Warn, "bits are lost on the link"),
                PortTrouble::Transport if name.contains("rnr") || name == "out_of_buffer" => {
                    (CheckState::Warn, "the receiver does not keep up")
                }
                PortTrouble::Transport => (CheckState::Warn, "packets or their answers are lost or refused"),
                PortTrouble::Shown => (CheckState::Ok, "congestion control at work"),
            };
            Some(Item {
                subject: port.name(),
                verdict,
                text: format!("{name} grew by {growth} within {} ms: {meaning}", port.window_ms),
                evidence: format!("{name}: {first}, then {second}"),
            })
        })
        .collect()
}

/// Counts from before the first reading.
fn earlier(port: &RdmaPort) -> Option<Item> {
    let counted: Vec<String> = port_counter::of_port()
        .filter(|(_, trouble)| *trouble != PortTrouble::Shown)
        .filter_map(|(name, _)| {
            let (first, _) = port.counters.get(name).filter(|(first, _)| *first > 0)?;
            Some(format!("{name} {first}"))
        })
        .collect();
    (!counted.is_empty()).then(|| Item {
        subject: port.name(),
        verdict: CheckState::Ok,
        text: "errors before this check, since its counters were reset".to_owned(),
        evidence: counted.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use ringleader_node::Part;

    use super::*;
    use crate::wiring::staging::{ask, blamed, node, port, rank};

    fn counting(values: &[(&str, u64, Option<u64>)]) -> Vec<RdmaPort> {
        let mut all = vec![port(0), port(1)];
        for (name, first, second) in values {
            all[1].counters.insert((*name).to_owned(), (*first, *second));
        }
        all[0].counters.insert("symbol_error".to_owned(), (0, values[0].2.map(|_| 0)));
        for port in &mut all {
            port.window_ms = 400;
        }
        all
    }

    #[test]
    fn a_link_that_went_down_and_a_bad_cable_fail() {
        for (name, second) in [("link_downed", 6), ("symbol_error", 45), ("port_rcv_errors", 9)] {
            let answer = ask(&CHECK, &node(counting(&[(name, 5, Some(second))]), vec![], vec![]));
            assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["mlx5_1/1"]), "{name}");
        }
    }

    #[test]
    fn lost_packets_and_a_few_bits_warn() {
        for name in ["local_ack_timeout_err", "packet_seq_err", "rnr_nak_retry_err", "symbol_error"] {
            let answer = ask(&CHECK, &node(counting(&[(name, 5, Some(8))]), vec![], vec![]));
            assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["mlx5_1/1"]), "{name}");
        }
    }

    #[test]
    fn a_long_life_adaptive_routing_and_congestion_marks_are_no_errors() {
        let old = counting(&[("symbol_error", 90_000, Some(90_001)), ("link_downed", 14, Some(14))]);
        let answer = ask(&CHECK, &node(old, vec![], vec![]));
        assert_eq!(answer.verdict, CheckState::Ok, "{answer:?}");
        assert!(answer.items.iter().any(|item| item.evidence.contains("link_downed 14")), "they are shown");
        let busy = counting(&[("out_of_sequence", 1, Some(900)), ("np_cnp_sent", 5, Some(9_000))]);
        assert_eq!(ask(&CHECK, &node(busy.clone(), vec![], vec![])).verdict, CheckState::Ok);
        let mut roce = busy;
        roce[1].link_layer = "Ethernet".to_owned();
        assert_eq!(ask(&CHECK, &node(roce, vec![], vec![])).verdict, CheckState::Warn);
    }

    #[test]
    fn a_port_that_the_job_leaves_out_is_not_judged() {
        let told = rank(0, &[("NCCL_IB_HCA", "=mlx5_0")]);
        let answer = ask(&CHECK, &node(counting(&[("link_downed", 5, Some(6))]), vec![], vec![told]));
        assert_eq!(answer.verdict, CheckState::Ok, "{answer:?}");
    }

    #[test]
    fn one_look_and_no_reading_are_skipped() {
        let answer = ask(&CHECK, &node(counting(&[("link_downed", 5, None)]), vec![], vec![]));
        assert_eq!(answer.verdict, CheckState::Skipped);
        let mut none = node(vec![], vec![], vec![]);
        none.rdma = Part::default();
        assert_eq!(ask(&CHECK, &none).verdict, CheckState::Skipped);
    }
}
