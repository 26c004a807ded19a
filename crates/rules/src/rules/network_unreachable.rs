//! # What it shows
//! A rank is alive and waits like its peers, but they no longer reach it over the network.
//!
//! # Why it happens
//! A link, a switch, a firewall rule, a route that changed.
//!
//! # Evidence
//! RAS gets no answer from it while its process runs or its own watchdog timed out in the same collective;
//! the ranks of a ring stop one operation apart.
//!
//! # What looks like it but is not
//! A stopped process does not answer RAS either: its state is T and it prints nothing.
//!
//! # What to do
//! Test the path between that node and its neighbours.
//!
//! # References
//! NCCL RAS documentation.

use ringleader_model::{Confidence, Host, Impact, RankSet, Weight};

use crate::correlate::condition::ProcessState;
use crate::correlate::{Member, Scene};
use crate::drafting;
use crate::rule::{Draft, Input, Outcome, Rule};

/// The rule.
pub(super) static RULE: Rule = Rule {
    id: "network-unreachable",
    title: "a node stopped answering on the network",
    since: "0.1",
    reads: &[Input::Ras, Input::TorchLog, Input::Processes, Input::NcclLog, Input::FlightRecorder],
    doc: include_str!("network_unreachable.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    let several = |name: fn(&Member) -> Option<Host>| {
        let names: std::collections::BTreeSet<_> = scene.roster.members.iter().filter_map(name).collect();
        names.len() > 1
    };
    let several_nodes = several(|m| m.host.clone()) || several(|m| m.address.clone());
    for (rank, condition) in scene.conditions.all() {
        let Some(missing) = &condition.ras_missing else { continue };
        let running = matches!(condition.state, Some((ProcessState::Running | ProcessState::Sleeping, _)));
        // It lives: it printed its own timeout, or its stack was taken.
        let alive = running || condition.timed_out.is_some() || condition.stand.is_some();
        if !alive || condition.absent.is_some() || !several_nodes {
            continue;
        }
        let others: RankSet =
            scene.roster.members.iter().filter_map(|m| m.rank).filter(|r| *r != rank).collect();
        let signs = [&condition.timed_out, &condition.state.as_ref().map(|(_, e)| e.clone())]
            .into_iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>();
        findings.extend(
            Draft::new(
                RULE.id,
                "network-unreachable",
                format!("{} is alive but no longer answers on the network", drafting::rank(rank)),
            )
            .weight(Weight::Derived)
            .confidence(Confidence::Medium)
            .culprit(scene.roster.culprit_rank(rank))
            .victims(others)
            .evidence([missing.clone()])
            .evidence(signs)
            .advise_command(
                Impact::Harmless,
                "from another node, see whether it answers, then look at its interface",
                "ping -c 3 HOST; ssh HOST ip -s link",
            )
            .build(),
        );
    }
    Outcome::from_findings(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    fn two_nodes() -> Stage {
        let job =
            Stage::job(4).log(0, "node1", "").log(1, "node1", "").log(2, "node2", "").log(3, "node2", "");
        job.ras_of(&["ar:5", "ar:5", "ar:5", "-"], &[1, 1, 2, 2])
    }

    #[test]
    fn silent_to_ras_and_still_speaking() {
        two_nodes().timed_out(3, "ar:100", 6, 6).concludes(&RULE, "network-unreachable 3, high");
        two_nodes().ps("S S S R").concludes(&RULE, "network-unreachable 3, high");
    }

    #[test]
    fn a_stopped_process_does_not_answer_either() {
        two_nodes().ps("S S S T").silent(&RULE);
        two_nodes().silent(&RULE);
    }
}
