//! Which machine a verdict accuses: the one of the lines that decide, of the tasks that ended, or that is not there.

use std::collections::BTreeSet;

use ringleader_correlate::Scene;
use ringleader_correlate::said::statements::Stated;
use ringleader_knowledge::message::{About, Role};
use ringleader_model::address::{is_loopback_name, same_host};
use ringleader_model::{Cause, Culprit, Finding, Host, Rank, Said, hostlist};

use super::{ENDED_BY_OTHERS, is_address, is_of_others};

/// Most nodes of a job that is looked at.
const MAX_NODES: usize = 4_096;

/// The one machine that all lines which decide are about, unless another machine says the same.
pub(super) fn of(scene: &Scene<'_>, finding: &Finding) -> Option<Host> {
    let machines = scene.machines();
    let mut named: BTreeSet<&Host> = BTreeSet::new();
    let mut from: BTreeSet<&Host> = finding.evidence.iter().filter_map(|e| machines.at(e.cite)).collect();
    for stated in scene.stated().all() {
        let is_cited = stated.utterances.iter().any(|u| {
            let cite = u.observation.cite;
            finding.evidence.iter().any(|e| e.cite.source == cite.source && e.cite.line == cite.line)
        });
        if is_cited {
            from.extend(stated.utterances.iter().filter_map(|u| machines.at(u.observation.cite)));
            named.extend(stated.utterances.iter().flat_map(|u| &u.said.named.hosts));
        }
    }
    if named.is_empty() && (is_of_others(finding.cause) || from.is_empty()) {
        // Where words decided, or a line that names nobody, the statements of this cause name it.
        let is_of = |stated: &&Stated<'_>| {
            let is_named =
                stated.row().is_some_and(|row| row.about() == About::Named && row.role() > Role::Echo);
            let causes = stated.causes();
            is_named
                && if is_of_others(finding.cause) {
                    causes.contains(&finding.cause)
                        || is_lost(finding.cause) && causes.iter().copied().any(is_lost)
                } else {
                    causes.first() == Some(&finding.cause)
                }
        };
        let all = scene.stated().all().iter().filter(is_of);
        named.extend(all.flat_map(|stated| &stated.utterances).flat_map(|u| &u.said.named.hosts));
    }
    named.retain(|host| !is_loopback_name(host) && !host.starts_with("127."));
    // Who cannot be found is not who has the fault, unless it looks for itself.
    if finding.cause == Cause::HostnameResolution {
        named.retain(|host| machines.all().any(|known| known == *host));
    }
    let found = if is_of_others(finding.cause) || from.is_empty() { named } else { from };
    one(&found)
}

/// A launcher that loses its daemon has lost the node, and the other way round.
fn is_lost(cause: Cause) -> bool {
    matches!(cause, Cause::NodeLost | Cause::LauncherFailure)
}

/// The machine of a set of one.
fn one(hosts: &BTreeSet<&Host>) -> Option<Host> {
    hosts.first().filter(|_| hosts.len() == 1).map(|host| (*host).clone())
}

/// The one machine whose tasks a launcher saw end by themselves.
pub(super) fn ended_on(scene: &Scene<'_>) -> Option<Host> {
    // Slurm says of a job's first node that it ends the job there, whoever is at fault.
    let is_own = |stated: &&Stated<'_>| stated.causes().first() != Some(&Cause::StoppedFromOutside);
    let ends = scene.stated().all().iter().filter(is_own).flat_map(|stated| {
        let is_stated = stated.row().is_some_and(|row| row.role() == Role::States);
        let is_own = move |code: Option<i64>| code.map_or(is_stated, |code| !ENDED_BY_OTHERS.contains(&code));
        let is_end = |u: &Said| u.form.is_end || !u.named.ranks.is_empty();
        stated.utterances.iter().filter(move |u| is_end(u.said) && is_own(u.said.form.exit))
    });
    let hosts: BTreeSet<&Host> = ends.flat_map(|u| &u.said.named.hosts).collect();
    one(&hosts)
}

/// The machine on which the stack of a rank was printed.
pub(super) fn of_stack(scene: &Scene<'_>, rank: Rank) -> Option<Host> {
    let stand = scene.condition(rank)?.stand.as_ref()?;
    scene.machines().at(stand.evidence.cite).cloned()
}

/// The one node of the job, as its scheduler has it, on which nobody speaks and none of the decisive lines was printed.
pub(super) fn absent(scene: &Scene<'_>, finding: &Finding) -> Option<Host> {
    let machines = scene.machines();
    let mut here: BTreeSet<&Host> = finding.evidence.iter().filter_map(|e| machines.at(e.cite)).collect();
    here.extend(scene.roster().members.iter().filter_map(|m| m.host.as_ref()));
    let schedulers = scene.schedulers();
    let rows = schedulers.events().filter_map(|(_, event)| event.node.as_deref());
    let of_job = rows.filter_map(|nodes| {
        let nodes = hostlist::parse(nodes).ok().filter(|nodes| (2..=MAX_NODES).contains(&nodes.len()))?;
        let holds = |host: &&Host| nodes.iter().any(|node| same_host(node, host));
        (!here.is_empty() && here.iter().all(holds)).then_some(nodes)
    });
    let absent: BTreeSet<String> = of_job
        .flat_map(|nodes| nodes.into_iter().filter(|node| !here.iter().any(|host| same_host(node, host))))
        .collect();
    absent.first().filter(|_| absent.len() == 1).map(|node| Host::from(node.as_str()))
}

/// A survivor knows the machine that it has lost by its address. Of two machines that the evidence names it is not the one
/// that says so.
pub(super) fn name_others(scene: &Scene<'_>, finding: &Finding, culprits: &mut [Culprit]) {
    let machines = scene.machines();
    let names: BTreeSet<&Host> = machines.all().filter(|host| !is_address(host)).collect();
    let n_addresses = machines.all().count() - names.len();
    let speakers: BTreeSet<&Host> = finding.evidence.iter().filter_map(|e| machines.at(e.cite)).collect();
    let [culprit] = culprits else { return };
    if names.len() != 2 || n_addresses > 1 || !culprit.host.as_ref().is_some_and(is_address) {
        return;
    }
    let others: BTreeSet<&Host> = names.iter().filter(|name| !speakers.contains(**name)).copied().collect();
    let is_told = speakers.len() == 1 && speakers.iter().all(|host| names.contains(*host));
    if let Some(other) = one(&others).filter(|_| is_told) {
        culprit.host = Some(other);
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
