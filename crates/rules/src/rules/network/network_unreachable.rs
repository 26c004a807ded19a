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

use ringleader_model::{
    Cause, Confidence, Culprit, Finding, Host, Impact, RankSet, RingStage, Weight, plain_word,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::process::fate::Fate;
use ringleader_correlate::track::GroupRecorder;
use ringleader_correlate::waits::inside::{self, Broken};
use ringleader_correlate::{Member, Scene};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "network-unreachable",
    title: "a node stopped answering on the network",
    since: "0.1",
    doc: include_str!("network_unreachable.rs"),
    check,
};

/// No transfer within a healthy network takes as long, ns.
const LOST_NS: i64 = 3_000_000_000;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    let several = |name: fn(&Member) -> Option<Host>| {
        let names: std::collections::BTreeSet<_> = scene.roster().members.iter().filter_map(name).collect();
        names.len() > 1
    };
    let several_nodes = several(|m| m.host.clone()) || several(|m| m.address.clone());
    for (rank, condition) in scene.conditions().all() {
        let Some(missing) = &condition.ras_missing else { continue };
        if !several_nodes || !scene.fate(rank).is_some_and(Fate::lives) {
            continue;
        }
        let others: RankSet =
            scene.roster().members.iter().filter_map(|m| m.rank).filter(|r| *r != rank).collect();
        let signs = [&condition.timed_out, &condition.state.as_ref().map(|(_, e)| e.clone())]
            .into_iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>();
        findings.extend(
            Draft::new(
                RULE.id,
                Cause::NetworkUnreachable,
                format!("{} is alive but no longer answers on the network", drafting::rank(rank)),
            )
            .weight(Weight::Derived)
            .confidence(Confidence::Medium)
            .culprit(scene.roster().culprit_rank(rank))
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
    findings.extend(by_rings(scene));
    Outcome::from_findings(findings)
}

/// By the rings: all have entered an operation and their kernels run, and between some of them data does not pass. The
/// node, or else the rank, on which all such pairs end is named; where there is none, both ends of a pair are.
fn by_rings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(waits) = scene.waits_of(GroupRecorder::Ring) else { return Vec::new() };
    // A job at work has all kinds of things in flight for a moment. Data that was given to the network and has not come
    // for seconds is lost on the way, whatever the job's rhythm, though it may yet be sent again.
    let is_stalled = scene.ledger().is_stalled();
    let is_lost = |b: &Broken| is_stalled || b.silent_ns >= LOST_NS;
    let mut findings = Vec::new();
    for front in waits.all_in.iter().filter_map(|at| waits.fronts.get(*at)) {
        let Some(group) = scene.ledger().groups().get(front.group) else { continue };
        let answers = |member: usize| {
            let Some(rank) = group.rank(member) else { return true };
            scene.fate(rank).is_none_or(Fate::can_answer)
        };
        let launched = inside::members(group, front).iter().any(|i| i.op.stage() == RingStage::Launched);
        let broken: Vec<Broken> = inside::broken_pairs(group, front)
            .into_iter()
            .filter(|b| !launched && is_lost(b) && answers(b.from) && answers(b.to))
            .collect();
        let Some(first) = broken.first() else { continue };
        let pairs: Vec<[Culprit; 2]> = broken
            .iter()
            .filter_map(|b| Some([group.rank(b.from)?, group.rank(b.to)?]))
            .map(|pair| pair.map(|rank| scene.roster().culprit_rank(rank)))
            .collect();
        let culprits = common(&pairs);
        let name = |member: usize| match group.rank(member).map(|r| scene.roster().culprit_rank(r)) {
            Some(Culprit { rank: Some(rank), host: Some(host), .. }) => format!("rank {} ({host})", rank.0),
            Some(Culprit { rank: Some(rank), .. }) => drafting::rank(rank),
            _ => format!("member {member}"),
        };
        let title = format!("data from {} to {} does not arrive", name(first.from), name(first.to));
        let victims: RankSet = front.waiting.iter().filter_map(|m| group.rank(*m)).collect();
        let host = |c: &Culprit| c.host.as_ref().map_or_else(|| "HOST".to_owned(), ToString::to_string);
        let peer = pairs.first().map_or_else(|| "HOST".to_owned(), |[_, to]| host(to));
        findings.extend(
            Draft::new(RULE.id, Cause::NetworkUnreachable, title)
                .weight(Weight::Derived)
                .confidence(if is_stalled { Confidence::Medium } else { Confidence::Low })
                .culprits(culprits)
                .victims(victims)
                .evidence(broken.iter().take(4).flat_map(|b| b.evidence.iter().cloned()))
                .at(front.since_ns)
                .advise_made(
                    Impact::Harmless,
                    "from the sender's node, see whether the receiver's answers, then look at the interface that NCCL uses",
                    plain_word(&peer).map(|peer| format!("ping -c 3 {peer}; ssh {peer} ip -s link")),
                )
                .build(),
        );
    }
    findings
}

/// The node in all pairs, if there is only one; else the rank; else all.
fn common(pairs: &[[Culprit; 2]]) -> Vec<Culprit> {
    let all: Vec<&Culprit> = pairs.iter().flatten().collect();
    let only = |is_same: &dyn Fn(&Culprit, &Culprit) -> bool| {
        let in_all = |c: &&&Culprit| pairs.iter().all(|pair| pair.iter().any(|other| is_same(c, other)));
        let found: Vec<&&Culprit> = all.iter().filter(in_all).collect();
        let first = found.first().copied()?;
        found
            .iter()
            .all(|c| is_same(c, first))
            .then(|| found.into_iter().map(|c| (*c).clone()).collect::<Vec<_>>())
    };
    // Nodes that all are called the same, or one node, tell nothing apart.
    let several = all.iter().any(|c| all.first().is_some_and(|first| first.host != c.host));
    let by_host = only(&|a, b| a.host.is_some() && a.host == b.host).filter(|_| several);
    let by_rank = || only(&|a, b| a.rank == b.rank);
    by_host.or_else(by_rank).unwrap_or_else(|| all.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn two_nodes() -> StagedCase {
        let job = StagedCase::job(4)
            .log(0, "node1", "")
            .log(1, "node1", "")
            .log(2, "node2", "")
            .log(3, "node2", "");
        job.ras_of(&["ar:5", "ar:5", "ar:5", "-"], &[1, 1, 2, 2])
    }

    #[test]
    fn silent_to_ras_and_still_speaking() {
        two_nodes().timed_out(3, "ar:100", 6, 6).concludes(&RULE, "network-unreachable 3, high");
        two_nodes().ps("S S S R").concludes(&RULE, "network-unreachable 3, high");
    }

    #[test]
    fn data_that_does_not_arrive() {
        use ringleader_model::RingPhase::{RecvNet, SendGpu, SendNet};
        let job = || StagedCase::job(3).rings_on(&["ar:9*12 ar:9?"; 3], &[1, 2, 3]);
        // The ring 0 > 1 > 2 > 0: what 1 sends does not reach 2, so 2 has nothing for 0, and 0 nothing for 1.
        let ring = |job: StagedCase| {
            job.proxy(0, 1, SendGpu)
                .proxy(1, 0, RecvNet)
                .proxy(1, 2, SendNet)
                .proxy(2, 1, RecvNet)
                .proxy(2, 0, SendGpu)
                .proxy(0, 2, RecvNet)
        };
        ring(job()).concludes(&RULE, "network-unreachable 1-2, medium");
        // Both ways, and through a second neighbour: the node in all of them.
        let both = ring(job()).proxy(2, 0, SendNet).proxy(2, 1, SendNet).proxy(1, 2, RecvNet);
        both.concludes(&RULE, "network-unreachable 2, medium");
        // Steps that rank 0 sent have not come to rank 1, nor those of rank 2 to rank 0.
        let sent = |job: StagedCase, rank: u32, to: u32| {
            job.change_ring(rank, |ring| {
                let sends = ring.waits.iter_mut().filter(|w| w.is_send && w.peer == to);
                sends.for_each(|w| w.steps.0 += 2);
            })
        };
        let starved = || {
            (0..3).fold(job(), |job, rank| {
                job.proxy(rank, (rank + 1) % 3, SendGpu).proxy(rank, (rank + 2) % 3, RecvNet)
            })
        };
        sent(sent(starved(), 0, 1), 2, 0).concludes(&RULE, "network-unreachable 0, medium");
        starved().silent(&RULE);
        // A moment of a job at work; a process that is stopped.
        ring(job().rings_read_after(200)).silent(&RULE);
        // Not yet long for a job that pauses for as long, but far too long on the way.
        let pauses = |ring: &mut ringleader_model::RingRecord| {
            for op in ring.ops.iter_mut().filter(|op| op.number < 10) {
                op.enqueued_ns -= 20_000_000_000;
                op.started_ns -= 20_000_000_000;
                op.ended_ns -= 20_000_000_000;
            }
        };
        let paused = |ms| ring(job().rings_read_after(ms)).each_ring(pauses);
        paused(5_000).concludes(&RULE, "network-unreachable 1-2, low");
        paused(1_000).silent(&RULE);
        ring(job()).ps("S S T").silent(&RULE);
        // One GPU has not begun: then it is that which the others wait for.
        ring(StagedCase::job(3).rings_on(&["ar:9*12 ar:9?", "ar:9*12 ar:9!", "ar:9*12 ar:9?"], &[1, 2, 3]))
            .silent(&RULE);
        job().silent(&RULE);
    }

    #[test]
    fn a_stopped_process_does_not_answer_either() {
        two_nodes().ps("S S S T").silent(&RULE);
        two_nodes().silent(&RULE);
    }
}
