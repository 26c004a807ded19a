//! # What it shows
//!
//! The error counters of a port or interface that the job uses increased between two readings.
//!
//! # Why it happens
//!
//! A bad cable or transceiver, a link that retrains, a lossless class that loses packets.
//!
//! # Evidence
//!
//! Two readings of perfquery, sysfs or `ethtool -S` for one port; the device in NCCL's list of that host; errors that
//! ibdiagnet names for a node of the job.
//!
//! # What looks like it but is not
//!
//! A single reading has no time: counters count since the last reset, and an occasional symbol error is normal. Such
//! values are reported without blame. Relay errors, dropped management packets and waiting for credit are normal.
//!
//! # What to do
//!
//! Read the counters twice, a minute apart, while the job runs.
//!
//! # References
//!
//! Linux Documentation/ABI/stable/sysfs-class-infiniband; linux-rdma/rdma-core perfquery; mlx5 counters.

use std::collections::BTreeMap;

use ringleader_knowledge::port_counter::{self, Growth};
use ringleader_model::{
    Cause, Confidence, Evidence, Finding, Host, Impact, NetFact, Observation, PortCounters, Severity,
    SourceKind, Weight,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::{shown, uses};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "port-counters",
    title: "the error counters of a port increase",
    since: "0.1",
    doc: include_str!("port_counters.rs"),
    check,
};

/// What growth of a counter shows, from how much on. A link that is up never goes down and seldom recovers; a few late answers
/// are ordinary under load; InfiniBand allows 120 symbol errors an hour; a switch discards some packets of any burst. Chosen.
fn meaning(growth: Growth) -> (u64, Cause) {
    match growth {
        Growth::Down => (1, Cause::IbLinkDown),
        Growth::Recovered => (3, Cause::IbErrors),
        Growth::Refused => (10, Cause::IbErrors),
        Growth::Bits => (100, Cause::IbErrors),
        Growth::Discarded => (1_000, Cause::MtuOrPfc),
    }
}

/// Citations of one finding.
const CITATIONS: usize = 4;

/// One port of one host, or of one unnamed host's file.
type PortKey<'a> = (Option<Host>, &'a str, &'a str, u32, Option<u32>);

fn check(scene: &Scene<'_>) -> Outcome {
    let mut readings: BTreeMap<PortKey<'_>, Vec<(&Observation, &PortCounters)>> = BTreeMap::new();
    for (observation, fact) in scene.net() {
        let NetFact::Counters(counters) = fact else { continue };
        let host = scene.host_of(observation);
        // Files that name no host are of one port only if they lie together.
        let folder = if scene.names_host(observation) { "" } else { scene.folder(observation.cite) };
        let key = (host, folder, device_of(scene, counters), counters.port, counters.lid);
        readings.entry(key).or_default().push((observation, counters));
    }
    let mut findings = Vec::new();
    for (key, readings) in &readings {
        if readings.len() > 1 {
            findings.extend(grown(scene, key, readings));
        }
    }
    findings.extend(found_by_ibdiagnet(scene));
    Outcome::from_findings(findings)
}

/// The device, which perfquery leaves out: that of the port with this local identifier.
fn device_of<'a>(scene: &Scene<'a>, counters: &'a PortCounters) -> &'a str {
    if !counters.device.is_empty() {
        return &counters.device;
    }
    let Some(lid) = counters.lid.filter(|l| *l > 0 && *l < 0xffff) else { return "" };
    let mut ports = scene.net().filter_map(|(_, fact)| match fact {
        NetFact::Port(port) if port.lid == Some(lid) && !port.device.is_empty() => Some(&*port.device),
        _ => None,
    });
    ports.next().unwrap_or("")
}

fn grown(
    scene: &Scene<'_>,
    key: &PortKey<'_>,
    readings: &[(&Observation, &PortCounters)],
) -> Option<Finding> {
    let (host, _, device, port, _) = key;
    // Counters only grow: the smallest reading is the oldest, in any order of the files.
    let growth = |name: &str| -> Option<(u64, Evidence)> {
        let values = readings.iter().flat_map(|(o, c)| {
            c.errors.iter().filter(|(_, n, _)| **n == *name).map(move |(line, _, v)| (*v, *o, *line))
        });
        let all: Vec<(u64, &Observation, u32)> = values.collect();
        let (low, high) = (all.iter().min_by_key(|v| v.0)?, all.iter().max_by_key(|v| v.0)?);
        let text = format!("{name}: {} to {}", low.0, high.0);
        Some((high.0 - low.0, shown(high.1, Some(high.2), SourceKind::Network, text)))
    };
    let mut cause = None;
    let mut evidence = Vec::new();
    for kind in Growth::ALL {
        let (least, meaning) = meaning(kind);
        for name in port_counter::growing(kind) {
            let Some((_, proof)) = growth(name).filter(|(n, _)| *n >= least) else { continue };
            if *cause.get_or_insert(meaning) == meaning {
                evidence.push(proof);
            }
        }
    }
    let cause = cause?;
    let users =
        if device.is_empty() { Vec::new() } else { scene.verbs_users(host.as_ref(), device, (*port).max(1)) };
    let is_used = !users.is_empty() && host.is_some();
    let at = host.as_ref().map_or_else(String::new, |h| format!(" of {h}"));
    let name = if device.is_empty() { "a port".to_owned() } else { format!("{device}/{port}") };
    let what = if cause == Cause::IbLinkDown { "the link went down" } else { "errors grow" };
    let failed = is_used && scene.has_failed();
    Draft::new(RULE.id, cause, format!("{name}{at}: {what} between two readings of its counters"))
        .severity(match (is_used, failed) {
            (_, true) => Severity::Error,
            (true, _) => Severity::Warning,
            (false, _) => Severity::Info,
        })
        .weight(Weight::Derived)
        .confidence(if is_used { Confidence::Medium } else { Confidence::Low })
        .culprits(if is_used { scene.culprits_of(users.iter().map(|u| u.process)) } else { Vec::new() })
        .evidence(evidence.into_iter().take(CITATIONS))
        .evidence(users.iter().take(1).filter_map(|u| Some(uses(u.process, u.process.first?))))
        .advise_command(
            Impact::Harmless,
            "read the counters twice, a minute apart",
            "perfquery -x; sleep 60; perfquery -x",
        )
        .advise(Impact::Disruptive, "clean or replace the cable of a port whose errors increase; keep the node out of jobs until they stop")
        .build()
}

/// Errors that name a node of the job.
fn found_by_ibdiagnet(scene: &Scene<'_>) -> Option<Finding> {
    let hosts = scene.hosts();
    let named: Vec<(&Observation, &Host)> = scene
        .net()
        .filter_map(|(observation, fact)| {
            let NetFact::Fabric { is_error: true, nodes, .. } = fact else { return None };
            let host = hosts.iter().find(|host| nodes.contains(host))?;
            Some((observation, *host))
        })
        .collect();
    let (_, host) = named.first()?;
    let culprits = scene.roster().members.iter().filter(|m| m.host.as_ref() == Some(host));
    let culprits = culprits.filter_map(|m| m.rank).map(|r| scene.roster().culprit_rank(r));
    Draft::new(RULE.id, Cause::IbErrors, format!("ibdiagnet finds errors at {host}"))
        .severity(Severity::Warning)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(named.iter().take(CITATIONS).map(|(o, _)| shown(o, None, SourceKind::Network, "")))
        .advise_command(Impact::Harmless, "read its whole report", "ibdiagnet -P all=1 --pm_pause_time 60")
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::NetFact;

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn errors_that_grow() {
        StagedCase::new()
            .two_verbs_nodes()
            .counted("node1", "mlx5_0", "symbol_error", 7)
            .counted("node1", "mlx5_0", "symbol_error", 9_007)
            .concludes(&RULE, "ib-errors 1, high");
        StagedCase::new()
            .two_verbs_nodes()
            .counted("node1", "mlx5_0", "link_downed", 2)
            .counted("node1", "mlx5_0", "link_downed", 3)
            .concludes(&RULE, "ib-link-down 1, high");
    }

    #[test]
    fn one_reading_and_small_growth_blame_nobody() {
        StagedCase::new().two_verbs_nodes().counted("node1", "mlx5_0", "symbol_error", 65_535).silent(&RULE);
        StagedCase::new()
            .two_verbs_nodes()
            .counted("node1", "mlx5_0", "symbol_error", 7)
            .counted("node1", "mlx5_0", "symbol_error", 9)
            .silent(&RULE);
        // Two ports, one reading each.
        StagedCase::new()
            .two_verbs_nodes()
            .counted("node0", "mlx5_0", "symbol_error", 7)
            .counted("node1", "mlx5_0", "symbol_error", 9_007)
            .silent(&RULE);
    }

    #[test]
    fn a_port_that_nobody_uses_is_told_only() {
        let finding = StagedCase::new()
            .two_verbs_nodes()
            .counted("node1", "mlx5_7", "symbol_error", 7)
            .counted("node1", "mlx5_7", "symbol_error", 9_007)
            .finding(&RULE);
        assert_eq!(finding.severity, ringleader_model::Severity::Info);
        assert!(finding.culprits.is_empty());
    }

    #[test]
    fn ibdiagnet_names_a_node() {
        let error =
            |node: &str| NetFact::Fabric { is_error: true, nodes: vec![node.into()], text: "".into() };
        StagedCase::new().two_verbs_nodes().net("", error("node1")).expect(&RULE, &["ib-errors 1"]);
        StagedCase::new().two_verbs_nodes().net("", error("leaf7")).silent(&RULE);
    }
}
