//! # What it shows
//!
//! Connections to a peer get no answer, or are refused by the network itself.
//!
//! # Why it happens
//!
//! A firewall between the hosts, a security group, a network policy: NCCL opens ports of its own choice, so one
//! open port is not enough.
//!
//! # Evidence
//!
//! `Connection timed out` or `No route to host` on connect, during start. A rendezvous that got no answer while `ss` on
//! its host shows that it listens.
//!
//! # What looks like it but is not
//!
//! `Connection refused` means that the host answers but nothing listens. The same errors in the middle of a run mean a
//! lost node or link.
//!
//! # What to do
//!
//! Open all ports between the hosts of the job.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/socket.cc; user guide, troubleshooting, networking; Linux errno 110, 113.

use ringleader_model::address::{self, is_loopback_name, same_host};
use ringleader_model::{
    Cause, Confidence, Finding, Impact, Need, SourceKind, StoreEvent, TorchEvent, Weight, plain_word,
};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::who::culprits::who;
use ringleader_correlate::who::tools::shown;
use ringleader_correlate::{Scene, TorchStatement};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "firewall-or-port",
    title: "packets are filtered",
    since: "0.1",
    doc: include_str!("firewall_or_port.rs"),
    check,
};

/// ETIMEDOUT and EHOSTUNREACH: nothing came back, or a router or filter said no.
const FILTERED: [i32; 2] = [110, 113];

fn check(scene: &Scene<'_>) -> Outcome {
    let told = ClaimsOfCause::of(scene, Cause::FirewallOrPort);
    if scene.got_going(told.iter().flat_map(ClaimsOfCause::cites)) {
        // Ports were open when the communicators were made: a later failure is of another kind.
        return Outcome::Clear;
    }
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(told) = told {
        let title = format!("{}: connections to a peer get no answer", told.who());
        findings.extend(advised(told.draft(&RULE, Cause::FirewallOrPort, title)).build());
    } else {
        findings.extend(store_filtered(scene));
    }
    if !findings.is_empty() {
        return Outcome::Found(findings);
    }
    let unanswered = scene.statements().find_map(|s| match s.event {
        TorchEvent::Store(StoreEvent::ConnectTimeout { address, .. }) => Some(address),
        _ => None,
    });
    match unanswered {
        Some(address) if let Some(draft) = listened(scene, address) => {
            Outcome::from_findings(advised(draft).build().into_iter().collect())
        }
        Some(address) => Outcome::Undecided(vec![Need {
            question: format!("does rank 0 listen at {address}, and does the network let others through?"),
            command: address::host_and_port(address)
                .and_then(|(host, port)| Some((plain_word(host)?, port)))
                .map_or_else(
                    || "ss -ltnp".to_owned(),
                    |(host, port)| format!("on rank 0's host: ss -ltnp; on another: nc -vz {host} {port}"),
                ),
            ..Need::default()
        }]),
        None => Outcome::Clear,
    }
}

/// The server waits at its port, and no peer reaches it.
fn listened(scene: &Scene<'_>, address: &str) -> Option<Draft> {
    let (host, port) = address::host_and_port(address)?;
    let of_member = |shown: &str| {
        scene
            .roster()
            .members
            .iter()
            .any(|m| m.host.as_deref() == Some(shown) && m.address.as_deref() == Some(host))
    };
    // A loopback address is reached from its own host only; that one listens there says nothing of others.
    let (observation, ..) = scene.listeners(port).find(|(o, local, _)| {
        scene.host_of(o).is_some_and(|h| same_host(&h, host) || of_member(&h))
            && !address::host(local).is_some_and(is_loopback_name)
    })?;
    let waited = scene.statements().filter(|s| {
        matches!(s.event, TorchEvent::Store(StoreEvent::ConnectTimeout { .. }))
            && s.who().host.as_deref().is_none_or(|h| !same_host(h, host))
    });
    let waited: Vec<TorchStatement<'_>> = waited.collect();
    let culprits: Vec<_> =
        waited.iter().filter(|s| !s.who().is_nobody()).map(|s| scene.culprit(s.who())).collect();
    let title = format!("port {port} of {host} is open, but {} gets no answer from it", who(&culprits));
    // Whether it listened in time is not known: a server that came late looks the same.
    let draft = Draft::new(RULE.id, Cause::FirewallOrPort, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Low)
        .culprits(culprits)
        .evidence(waited.iter().take(3).map(TorchStatement::evidence))
        .evidence([shown(observation, None, SourceKind::Network, "")]);
    (!waited.is_empty()).then_some(draft)
}

fn advised(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "test the path on a port of your choice",
            "nc -l 12345 on one host, nc -vz <host> 12345 on the other",
        )
        .advise_command(
            Impact::Harmless,
            "look for packet filters on both hosts",
            "nft list ruleset; iptables -L -n; firewall-cmd --list-all",
        )
        .advise(
            Impact::Disruptive,
            "let all TCP ports through between the hosts of the job: NCCL picks its ports at run time",
        )
}

fn store_filtered(scene: &Scene<'_>) -> Option<Finding> {
    let filtered: Vec<TorchStatement<'_>> = scene
        .statements()
        .filter(|s| {
            matches!(s.event, TorchEvent::Store(StoreEvent::ConnectFailed { errno: Some(n), .. }) if FILTERED.contains(n))
        })
        .collect();
    let culprits: Vec<_> =
        filtered.iter().filter(|s| !s.who().is_nobody()).map(|s| scene.culprit(s.who())).collect();
    let title = format!("{}: the rendezvous host does not answer", who(&culprits));
    let draft = Draft::new(RULE.id, Cause::FirewallOrPort, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(filtered.iter().take(4).map(TorchStatement::evidence));
    advised(draft).build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn nccl_gets_no_answer() {
        StagedCase::new()
            .process("node1", 1, Some(1))
            .warn("misc/socket.cc:500", "socketPollConnect: connect to 10.0.0.1<44444> returned Connection timed out, exceeded error retry count after 35 attempts")
            .expect(&RULE, &["firewall-or-port 1"]);
    }

    #[test]
    fn torch_gets_no_answer() {
        let event = super::StoreEvent::ConnectFailed {
            address: "[10.0.0.1]:29500".into(),
            errno: Some(113),
            text: "No route to host".into(),
        };
        StagedCase::new()
            .store(Some(4), event, "errno: 113 - No route to host")
            .expect(&RULE, &["firewall-or-port 4"]);
    }

    #[test]
    fn refused_means_that_the_host_answers() {
        StagedCase::new()
            .process("node1", 1, Some(1))
            .warn("misc/socket.cc:500", "socketPollConnect: connect to 10.0.0.1<44444> returned Connection refused, exceeded error retry count after 35 attempts")
            .silent(&RULE);
    }

    #[test]
    fn a_server_that_listens_and_is_not_reached() {
        let waits = |who: u32| {
            let event =
                super::StoreEvent::ConnectTimeout { address: "(node0, 29500)".into(), text: "".into() };
            StagedCase::new().store(Some(who), event, "timed out while trying to connect to (node0, 29500)")
        };
        let listens = |local: &str| ringleader_model::NetFact::Listener { local: local.into(), holder: None };
        waits(4).net("node0", listens("*:29500")).expect(&RULE, &["firewall-or-port 4"]);
        // Another port, another host: still a question.
        waits(4).net("node0", listens("*:29501")).silent(&RULE);
        waits(4).net("node1", listens("*:29500")).silent(&RULE);
    }

    #[test]
    fn a_running_job_had_open_ports() {
        StagedCase::new()
            .process("node1", 1, Some(1))
            .comm(1, 2, 1, true)
            .warn(
                "misc/socket.cc:500",
                "socketProgressOpt: Call to recv from 10.0.0.1<44444> failed : No route to host",
            )
            .silent(&RULE);
    }
}
