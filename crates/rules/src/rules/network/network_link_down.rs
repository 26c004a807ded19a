//! # What it shows
//! A node lost its network while training: its own connection attempts fail at once because no route is left.
//!
//! # Why it happens
//! A cable, a switch port, an interface set down by an agent or a DHCP renewal.
//!
//! # Evidence
//! NCCL on that node: connect failed with 'Network is unreachable' or 'Network is down', after its
//! communicator had been up; the other nodes only see silence.
//!
//! # What looks like it but is not
//! 'Connection refused' (nothing listens there) and 'Connection timed out' (packets are lost on the way). The same
//! error before any communicator was up is a wrong interface.
//!
//! # What to do
//! Look at the interface and the kernel log of that node.
//!
//! # References
//! NCCL log grammar; connect(2): ENETUNREACH, ENETDOWN.

use ringleader_knowledge::wording;
use ringleader_model::{Cause, Confidence, Impact, RankSet, Weight};

use crate::drafting;
use crate::drafting::kernel::link_down;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::{NcclLine, Scene};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "network-link-down",
    title: "a node's interface lost its link mid-run",
    since: "0.1",
    doc: include_str!("network_link_down.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (_, log) in scene.nccl_logs() {
        for (at, process) in log.processes.iter().enumerate() {
            // By its log, or by its ring, which shows completed calls.
            let was_up = log.comms.iter().any(|c| c.process as usize == at && c.completed.is_some())
                || scene.rings().iter().any(|(observation, ring)| {
                    process.who.pid.is_some()
                        && observation.who.pid == process.who.pid
                        && ring.ops.iter().any(|op| op.ended_ns > 0)
                });
            if !was_up {
                continue;
            }
            let lines: Vec<_> = log
                .messages
                .iter()
                .filter(|m| m.process as usize == at && wording::has_no_way_out(&m.text))
                .map(|message| NcclLine { message, process: Some(process) })
                .collect();
            let Some(first) = lines.first() else { continue };
            let culprit = scene.culprit(&process.who);
            let name = culprit.rank.map_or_else(|| "a rank".to_owned(), drafting::rank);
            let node = culprit.host.clone().map_or_else(String::new, |h| format!(" (node {h})"));
            let suspect = scene.suspects().iter().find(|s| s.node.rank() == culprit.rank);
            let missed = culprit.rank.and_then(|r| scene.condition(r)).and_then(|c| c.ras_missing.clone());
            let others: RankSet = scene
                .roster()
                .members
                .iter()
                .filter_map(|m| m.rank)
                .filter(|r| Some(*r) != culprit.rank)
                .collect();
            findings.extend(
                Draft::new(RULE.id, Cause::NetworkLinkDown, format!("{name}{node} lost its network mid-run: no route is left on that node"))
                    .weight(Weight::Stated)
                    .confidence(Confidence::Medium)
                    .culprit(culprit)
                    .victims(others)
                    .evidence(lines.iter().take(3).map(NcclLine::evidence))
                    .evidence(missed)
                    .evidence(suspect.iter().flat_map(|s| s.evidence.iter().take(2).cloned()))
                    .at(first.at_ns())
                    .advise_command(Impact::Harmless, "look at the interface and its link on that node", "ip -s link; ip route; dmesg -T | grep -iE 'link is (down|up)|left promiscuous|disabled state'")
                    .advise(Impact::Disruptive, "take the node out of the job until its link is steady, then restart from the last checkpoint")
                    .build(),
            );
        }
    }
    if findings.is_empty()
        && let Some(draft) = link_down(scene, &RULE, Cause::NetworkLinkDown, false)
    {
        let draft = draft
            .advise_command(
                Impact::Harmless,
                "check when the link changed, and what the switch reports for that port",
                "dmesg -T | grep -iE \"link (is )?(down|up)\"; ethtool INTERFACE | grep -E \"Link|Speed\"; ethtool -S INTERFACE | grep -iE \"err|drop|discard\"",
            )
            .advise(Impact::Disruptive, "reseat or replace cable and transceiver, or move to another port");
        findings.extend(draft.build());
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const NO_ROUTE: &str = "socketStartConnect: Connect to 10.0.0.1<4711> failed : Network is unreachable";

    #[test]
    fn no_route_is_left_in_mid_run() {
        StagedCase::job(2)
            .log(0, "node1", "ar:1")
            .log(1, "node2", "ar:1")
            .warn("socket.cc:510", NO_ROUTE)
            .concludes(&RULE, "network-link-down 1, medium");
    }

    #[test]
    fn a_ring_shows_that_it_was_up() {
        let job = |script| {
            let job = StagedCase::job(2).rings_on(&[script; 2], &[1, 2]).process("node2", 101, Some(1));
            job.warn("misc/socket.cc:596", NO_ROUTE)
        };
        job("ar:9*12 ar:9?").concludes(&RULE, "network-link-down 1, medium");
        job("ar:9?").silent(&RULE);
    }

    #[test]
    fn others_that_do_not_answer() {
        let up = || StagedCase::job(2).log(0, "node1", "ar:1").log(1, "node2", "ar:1");
        for errno in ["Connection refused", "Connection timed out"] {
            up().warn("socket.cc:510", &NO_ROUTE.replace("Network is unreachable", errno)).silent(&RULE);
        }
    }

    #[test]
    fn before_any_communicator_was_up() {
        let start = StagedCase::new().process("node2", 101, Some(1)).comm(1, 2, 3, false);
        start.warn("socket.cc:510", NO_ROUTE).silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        StagedCase::new().link_state("ens1f0", "down", false).expect(&RULE, &["network-link-down"]);
        let job = || {
            let stage =
                StagedCase::new().two_ranks().about(|p| p.bootstrap = Some("ens1f0:192.0.2.2<0>".into()));
            stage.raised(Some(0), "RuntimeError", "boom", &[])
        };
        job().link_state("ens1f0", "down", false).at_s(BEGAN_S + 60).expect(&RULE, &["network-link-down"]);
        job().link_state("ens2f0", "down", false).at_s(BEGAN_S + 60).silent(&RULE);
    }

    #[test]
    fn links_that_are_set_up_or_torn_down() {
        // Never up, at boot.
        StagedCase::new().link_state("ens1f0", "down", false).up_s(12.0).silent(&RULE);
        // Removed at once.
        StagedCase::new()
            .link_state("veth1", "up", false)
            .up_s(400.0)
            .link_state("veth1", "down", false)
            .up_s(900.0)
            .link_state("veth1", "removed", false)
            .up_s(900.1)
            .silent(&RULE);
        // A job that runs well.
        let healthy = StagedCase::new().two_ranks().link_state("ens1f0", "down", false);
        assert_eq!(healthy.worth(&RULE), ["info Derived"]);
    }
}
