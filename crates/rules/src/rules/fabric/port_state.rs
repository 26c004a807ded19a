//! # What it shows
//!
//! A port that NCCL uses is not active now, or runs at a lower rate than the others of the job.
//!
//! # Why it happens
//!
//! A cable or transceiver, a switch port that is down, no subnet manager (state INIT), a link that trained at a lower
//! rate or width.
//!
//! # Evidence
//!
//! ibstat, ibstatus, ibv_devinfo, `rdma link`, mlxlink or sysfs, joined to the device that NCCL's log of that host lists.
//!
//! # What looks like it but is not
//!
//! A port that no rank uses may stay down. Storage NICs have other rates: only devices in NCCL's list are compared. If
//! no host is named and several have the device, none is blamed.
//!
//! # What to do
//!
//! Check the cable and the switch port; take the node out of jobs until the port is active.
//!
//! # References
//!
//! linux-rdma/rdma-core ibstat, ibv_devinfo; InfiniBand architecture, port states; NCCL log grammar.

use std::collections::BTreeSet;

use ringleader_knowledge::remedy;
use ringleader_model::{
    Cause, Confidence, Finding, Host, Impact, NetFact, Observation, RdmaPort, Severity, SourceKind, Weight,
    median, plain_word,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::{VerbsUser, shown, uses};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "port-state",
    title: "a port in use is down or slow",
    since: "0.1",
    doc: include_str!("port_state.rs"),
    check,
};

struct SeenPort<'a> {
    observation: &'a Observation,
    port: &'a RdmaPort,
    host: Option<Host>,
    users: Vec<VerbsUser<'a>>,
}

/// A port by host, device and number.
type Name<'s> = (Option<&'s Host>, &'s str, u32);

impl SeenPort<'_> {
    fn name(&self) -> Name<'_> {
        (self.host.as_ref(), &self.port.device, self.port.port)
    }
}

/// More ports that are down say nothing more.
const MAX_FINDINGS: usize = 64;

/// Rates of ports come in steps of a factor of two or so: below this share of its peers' a port is slower, not rounded.
const SLOW_SHARE: f64 = 0.9;

fn check(scene: &Scene<'_>) -> Outcome {
    let ports: Vec<SeenPort<'_>> = scene
        .net()
        .filter_map(|(observation, fact)| {
            let NetFact::Port(port) = fact else { return None };
            let host = scene.host_of(observation);
            let users = scene.verbs_users(host.as_ref(), &port.device, port.port);
            Some(SeenPort { observation, port, host, users })
        })
        .collect();
    let up: BTreeSet<Name<'_>> =
        ports.iter().filter(|s| s.port.is_up() == Some(true)).map(SeenPort::name).collect();
    let mut findings: Vec<Finding> =
        ports.iter().filter_map(|seen| down(scene, seen, &up)).take(MAX_FINDINGS).collect();
    findings.extend(slower(scene, &ports));
    Outcome::from_findings(findings)
}

fn down(scene: &Scene<'_>, seen: &SeenPort<'_>, up: &BTreeSet<Name<'_>>) -> Option<Finding> {
    let port = seen.port;
    if port.is_up() != Some(false) || seen.users.is_empty() {
        return None;
    }
    // The same port was seen up elsewhere in the evidence: it is not known which is newer.
    let again = up.contains(&seen.name());
    let is_sure = seen.host.is_some() && !again;
    let state = port.state.as_deref().unwrap_or("DOWN");
    let physical = port.phys_state.as_deref().map_or_else(String::new, |p| format!(", {p}"));
    let at = seen.host.as_ref().map_or_else(String::new, |h| format!(" of {h}"));
    let title = format!("port {}/{}{at}, which NCCL uses, is {state}{physical}", port.device, port.port);
    let culprits = if is_sure { scene.culprits_of(seen.users.iter().map(|u| u.process)) } else { Vec::new() };
    let failed = scene.has_failed() && is_sure;
    Draft::new(RULE.id, Cause::IbLinkDown, title)
        .severity(if failed { Severity::Error } else { Severity::Warning })
        .weight(if failed { Weight::Stated } else { Weight::Derived })
        .confidence(if is_sure { Confidence::Medium } else { Confidence::Low })
        .culprits(culprits)
        .evidence([shown(seen.observation, None, SourceKind::Network, "")])
        .evidence(seen.users.iter().take(2).filter_map(|u| Some(uses(u.process, u.process.first?))))
        .advise_made(
            Impact::Harmless,
            "look at the port, its cable and the switch's end",
            plain_word(&port.device).map(|device| format!("ibstat {device}; mlxlink -d {device} -m -c")),
        )
        .advise_command(Impact::Harmless, "check when it went down", remedy::SHOW_LINK_CHANGES)
        .advise(
            Impact::Disruptive,
            "reseat or replace cable and transceiver; INIT means that no subnet manager answers",
        )
        .build()
}

/// Ports in use whose rate is below that of most others in use.
fn slower(scene: &Scene<'_>, all: &[SeenPort<'_>]) -> Option<Finding> {
    let used: Vec<&SeenPort<'_>> = all
        .iter()
        .filter(|s| !s.users.is_empty() && s.host.is_some() && s.port.is_up() != Some(false))
        .filter(|s| s.port.rate_gbps.is_some_and(|r| r > 0.0))
        .collect();
    // Machines have rails of several speeds and layers: a port's peers are its namesakes on other hosts, or with too few
    // of them all ports of its layer.
    let peers = |of: &SeenPort<'_>| -> Vec<f64> {
        let rates = |is_peer: &dyn Fn(&SeenPort<'_>) -> bool| -> Vec<f64> {
            let mut rates: Vec<f64> = used
                .iter()
                .filter(|s| s.port.link_layer == of.port.link_layer && is_peer(s))
                .filter_map(|s| s.port.rate_gbps)
                .collect();
            rates.sort_by(f64::total_cmp);
            rates
        };
        let namesakes = rates(&|s| s.port.device == of.port.device && s.port.port == of.port.port);
        if namesakes.len() >= 3 { namesakes } else { rates(&|_| true) }
    };
    let mut typical = 0.0;
    let mut slow: Vec<&&SeenPort<'_>> = Vec::new();
    for port in &used {
        let peers = peers(port);
        let Some(usual) = median::upper(peers.iter().copied()) else { continue };
        let is_slow = |rate: f64| rate < SLOW_SHARE * usual;
        // Half of them being slower is how the machines are built.
        let n_slow = peers.iter().filter(|r| is_slow(**r)).count();
        if n_slow * 2 < peers.len() && port.port.rate_gbps.is_some_and(is_slow) {
            typical = usual;
            slow.push(port);
        }
    }
    let first = slow.first()?;
    let peer = used.iter().find(|s| s.port.rate_gbps.is_some_and(|r| r >= typical));
    let title = format!(
        "port {}/{} of {} runs at {} Gb/s, its peers at {typical} Gb/s",
        first.port.device,
        first.port.port,
        first.host.as_deref().unwrap_or_default(),
        first.port.rate_gbps.unwrap_or_default()
    );
    Draft::new(RULE.id, Cause::SlowLink, title)
        .severity(Severity::Warning)
        .confidence(Confidence::Medium)
        .culprits(scene.culprits_of(slow.iter().flat_map(|s| &s.users).map(|u| u.process)))
        .evidence(slow.iter().take(3).map(|s| shown(s.observation, None, SourceKind::Network, "")))
        .evidence(peer.map(|s| shown(s.observation, None, SourceKind::Network, "")))
        .evidence(first.users.iter().take(1).filter_map(|u| Some(uses(u.process, u.process.first?))))
        .advise_made(
            Impact::Harmless,
            "check which rate and width it supports, and what limits it",
            plain_word(&first.port.device).map(|device| format!("mlxlink -d {device} -m -c -e")),
        )
        .advise(
            Impact::Disruptive,
            "reseat or replace the cable; a link that runs on fewer lanes has a bad lane",
        )
        .build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const UP: (&str, &str) = ("ACTIVE", "LINKUP");
    const DOWN: (&str, &str) = ("DOWN", "POLLING");

    #[test]
    fn a_port_in_use_is_down() {
        StagedCase::new()
            .two_verbs_nodes()
            .port("node1", "mlx5_1", DOWN, 10.0)
            .concludes(&RULE, "ib-link-down 1, high");
        StagedCase::new()
            .two_verbs_nodes()
            .port("node0", "mlx5_0", ("INIT", "LINKUP"), 400.0)
            .concludes(&RULE, "ib-link-down 0, high");
    }

    #[test]
    fn without_a_host_nobody_is_blamed() {
        StagedCase::new()
            .two_verbs_nodes()
            .port("", "mlx5_1", DOWN, 10.0)
            .concludes(&RULE, "ib-link-down , low");
    }

    #[test]
    fn a_port_that_nobody_uses() {
        StagedCase::new().two_verbs_nodes().port("node1", "mlx5_5", DOWN, 10.0).silent(&RULE);
        StagedCase::new().two_verbs_nodes().port("node7", "mlx5_1", DOWN, 10.0).silent(&RULE);
        StagedCase::new().port("node1", "mlx5_1", DOWN, 10.0).silent(&RULE);
    }

    #[test]
    fn one_port_slower_than_its_peers() {
        let three = |rate| {
            StagedCase::new()
                .two_verbs_nodes()
                .port("node0", "mlx5_0", UP, 400.0)
                .port("node0", "mlx5_1", UP, 400.0)
                .port("node1", "mlx5_0", UP, rate)
                .port("node1", "mlx5_4", UP, 25.0)
        };
        three(100.0).concludes(&RULE, "slow-link 1, high");
        three(400.0).silent(&RULE);
    }
}
