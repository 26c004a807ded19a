//! # What it shows
//!
//! A test from one host of the job to another got no answer, or the network rejected it.
//!
//! # Why it happens
//!
//! A firewall, a security group or a network policy; no route between two networks.
//!
//! # Evidence
//!
//! `nc -zv`, bash's /dev/tcp and ping to an address or host of the job, while no communicator ever got ready.
//!
//! # What looks like it but is not
//!
//! `Connection refused` means that the host answers but nothing listens on that port now: after a job has ended that is
//! normal. Hosts outside the job, and jobs that had been running, are ignored. Many networks drop ping.
//!
//! # What to do
//!
//! Open all ports between the hosts of the job.
//!
//! # References
//!
//! nc(1), ncat(1), ping(8); NCCL user guide, troubleshooting, networking.

use ringleader_model::address;
use std::collections::BTreeSet;

use ringleader_model::{
    Cause, Confidence, Impact, NetFact, Observation, Reach, ReachOutcome, SourceKind, TorchEvent, Weight,
};

use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "path-test",
    title: "a host of the job cannot be reached",
    since: "0.1",
    doc: include_str!("path_test.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let names = names(scene);
    let concerns = |reach: &Reach| names.iter().any(|n| *n == *reach.host);
    let tests: Vec<(&Observation, &Reach)> = scene
        .net()
        .filter_map(|(o, fact)| match fact {
            NetFact::Reach(reach) if concerns(reach) => Some((o, reach)),
            _ => None,
        })
        .collect();
    // NCCL needs ports; an echo that is dropped proves nothing.
    let unanswered: Vec<_> = tests
        .iter()
        .filter(|(_, r)| {
            r.port.is_some() && matches!(r.outcome, ReachOutcome::TimedOut | ReachOutcome::NoRoute)
        })
        .collect();
    let Some((_, first)) = unanswered.first() else { return Outcome::Clear };
    if scene.got_going([]) {
        return Outcome::Clear;
    }
    let echoes = tests.iter().find(|(_, r)| r.host == first.host && r.outcome == ReachOutcome::Answers);
    let no_route = first.outcome == ReachOutcome::NoRoute && echoes.is_none();
    let how = if no_route { "cannot be reached" } else { "does not answer" };
    let title = format!("{} port {} {how}", first.host, first.port.unwrap_or_default());
    let words: Vec<_> = scene
        .statements()
        .filter(|s| matches!(s.event, TorchEvent::Store(event) if event.unreached().is_some()))
        .take(2)
        .map(|s| s.evidence())
        .collect();
    found(
        Draft::new(RULE.id, Cause::FirewallOrPort, title)
            .weight(if words.is_empty() { Weight::Derived } else { Weight::Stated })
            .confidence(Confidence::Medium)
            .evidence(unanswered.iter().take(3).map(|(o, _)| shown(o, None, SourceKind::Network, "")))
            .evidence(echoes.map(|(o, _)| shown(o, None, SourceKind::Network, "")))
            .evidence(words)
            .advise_command(
                Impact::Harmless,
                "look for packet filters on both hosts",
                "nft list ruleset; iptables -L -n; firewall-cmd --list-all",
            )
            .advise(
                Impact::Disruptive,
                "let all TCP ports through between the hosts of the job: NCCL picks its ports at run time",
            ),
    )
}

/// Names and addresses of the job's hosts and of its rendezvous.
fn names(scene: &Scene<'_>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for member in &scene.roster().members {
        names.extend(member.host.iter().chain(&member.address).map(ToString::to_string));
    }
    for statement in scene.statements() {
        let TorchEvent::Store(event) = statement.event else { continue };
        names.extend(event.unreached().and_then(address::host).map(str::to_owned));
    }
    names.remove("");
    names
}

#[cfg(test)]
mod tests {
    use ringleader_model::{NetFact, Reach, ReachOutcome, StoreEvent};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn tested(host: &str, port: Option<u32>, outcome: ReachOutcome) -> NetFact {
        NetFact::Reach(Reach { tool: "nc".into(), host: host.into(), port, outcome, ..Reach::default() })
    }

    fn starting() -> StagedCase {
        let event = StoreEvent::ConnectFailed {
            address: "[192.0.2.1]:29500".into(),
            errno: Some(110),
            text: "Connection timed out".into(),
        };
        StagedCase::new().store(Some(4), event, "errno: 110 - Connection timed out")
    }

    #[test]
    fn the_rendezvous_does_not_answer() {
        starting()
            .net("node1", tested("192.0.2.1", None, ReachOutcome::Answers))
            .net("node1", tested("192.0.2.1", Some(29500), ReachOutcome::TimedOut))
            .concludes(&RULE, "firewall-or-port , high");
    }

    #[test]
    fn what_answers_or_does_not_concern_the_job() {
        for outcome in [ReachOutcome::Answers, ReachOutcome::Refused] {
            starting().net("node1", tested("192.0.2.1", Some(29500), outcome)).silent(&RULE);
        }
        starting().net("node1", tested("192.0.2.99", Some(22), ReachOutcome::TimedOut)).silent(&RULE);
        starting().net("node1", tested("192.0.2.1", None, ReachOutcome::TimedOut)).silent(&RULE);
    }

    #[test]
    fn a_job_that_ran() {
        StagedCase::new()
            .two_verbs_nodes()
            .net("node1", tested("node0", Some(29500), ReachOutcome::TimedOut))
            .silent(&RULE);
    }
}
