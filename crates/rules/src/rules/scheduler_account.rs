//! # What it shows
//!
//! The scheduler says why the job ended: a step or pod was killed for memory, taken away for another job, or its node
//! failed. Or the counters of its memory cgroup do.
//!
//! # Why it happens
//!
//! The memory limit of a step or container; preemption; eviction from a node under pressure; a node that died.
//!
//! # Evidence
//!
//! `OUT_OF_MEMORY`, `PREEMPTED` and `NODE_FAIL` of sacct, `CANCELLED … DUE TO PREEMPTION` of slurmstepd, `OOMKilled`,
//! `Evicted`, `Preempted` and `NodeNotReady` of Kubernetes, `oom_kill` of memory.events; ranks that died of SIGKILL.
//!
//! # What looks like it but is not
//!
//! A limit of time and a cancellation come after a hang as well: they explain nothing by themselves. Accounts of
//! other nodes and pods than the job's are not its. `oom_kill` counts since the group was made: without a rank that
//! was killed it is worth a word.
//!
//! # What to do
//!
//! Ask for more memory, or let the job be requeued and resume from its checkpoint.
//!
//! # References
//!
//! SchedMD/slurm sacct(1), JOB STATE CODES; kubernetes/kubernetes pkg/kubelet/eviction; Linux cgroup-v2, memory.events.

use ringleader_model::{
    Confidence, Culprit, Evidence, Finding, Host, Impact, Observation, SchedulerEvent, SchedulerKind,
    Severity, SourceKind, SystemFact, Weight,
};

use crate::correlate::Scene;
use crate::correlate::site::shown;
use crate::rule::{Draft, Input, Outcome, Rule};
use crate::told;

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "scheduler-account",
    title: "the scheduler ended the job",
    since: "0.1",
    reads: &[Input::Scheduler, Input::System, Input::TorchLog],
    doc: include_str!("scheduler_account.rs"),
    check,
};

/// SIGKILL, as Python, a shell and Slurm count it.
const KILLED: [i64; 2] = [-9, 137];
/// Citations of one finding.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for kind in [
        SchedulerKind::OutOfMemory,
        SchedulerKind::Preempted,
        SchedulerKind::Evicted,
        SchedulerKind::NodeFail,
    ] {
        findings.extend(told_of(scene, kind));
    }
    if !findings.iter().any(|f: &Finding| f.cause == "oom-killed") {
        findings.extend(group_killed(scene));
    }
    Outcome::from_findings(findings)
}

/// Ranks that were killed, with the launcher's word for it.
fn killed(scene: &Scene<'_>, host: Option<&Host>) -> Vec<(Culprit, Evidence)> {
    scene
        .conditions
        .all()
        .filter_map(|(rank, c)| {
            let exit = c.exit.as_ref().filter(|e| KILLED.contains(&e.code))?;
            let culprit = scene.roster.culprit_rank(rank);
            scene.may_be_on(host, culprit.host.as_ref()).then(|| (culprit, exit.evidence.clone()))
        })
        .collect()
}

/// The host of the job that an event names: its node, or a pod whose name is its host's.
fn host_of(scene: &Scene<'_>, event: &SchedulerEvent) -> Option<Host> {
    let hosts = scene.hosts();
    let pod = event.subject.rsplit('/').next().unwrap_or_default();
    let named = [event.node.as_deref().unwrap_or_default(), pod];
    hosts.into_iter().find(|h| named.contains(&&***h)).cloned()
}

fn told_of(scene: &Scene<'_>, kind: SchedulerKind) -> Option<Finding> {
    let hosts = scene.hosts();
    let events: Vec<(&Observation, &SchedulerEvent, Option<Host>)> = scene
        .system()
        .filter_map(|(o, fact)| match fact {
            SystemFact::Scheduler(event) if event.kind == kind => Some((o, event, host_of(scene, event))),
            _ => None,
        })
        .collect();
    // What names the job's own host comes first; of another node's event nothing can be told.
    let near: Vec<_> = events.iter().filter(|(.., host)| host.is_some()).collect();
    let is_bound = !near.is_empty();
    let events: Vec<_> = if is_bound { near } else { events.iter().collect() };
    let (_, event, host) = events.first()?;
    let dead: Vec<(Culprit, Evidence)> = killed(scene, host.as_ref());
    let is_tied = is_bound || !dead.is_empty() || hosts.is_empty() && scene.roster.members.is_empty();
    let subject = if event.subject.is_empty() { "the job" } else { &event.subject };
    let at = event.node.as_deref().map_or_else(String::new, |n| format!(" on {n}"));
    let (cause, title) = match kind {
        SchedulerKind::OutOfMemory => ("oom-killed", format!("{subject}{at} was killed for lack of memory")),
        SchedulerKind::Preempted => {
            ("process-killed", format!("{subject}{at} was preempted for another job"))
        }
        SchedulerKind::Evicted => ("process-killed", format!("{subject}{at} was evicted from its node")),
        _ => ("peer-process-died", format!("the scheduler lost the node of {subject}{at}")),
    };
    let mut culprits: Vec<Culprit> = Vec::new();
    for (culprit, _) in &dead {
        told::add_culprit(&mut culprits, culprit.clone());
    }
    if culprits.is_empty() {
        for (.., host) in events.iter().filter(|_| is_bound) {
            let on_host: Vec<Culprit> = scene
                .roster
                .members
                .iter()
                .filter(|m| host.is_some() && m.host == *host)
                .filter_map(|m| Some(scene.roster.culprit_rank(m.rank?)))
                .collect();
            // Several ranks on a node: which one it was is not told, unless all of them went.
            let all_go = kind != SchedulerKind::OutOfMemory;
            if all_go || on_host.len() == 1 {
                for culprit in on_host {
                    told::add_culprit(&mut culprits, culprit);
                }
            } else {
                told::add_culprit(&mut culprits, Culprit { host: host.clone(), ..Culprit::default() });
            }
        }
    }
    let draft = Draft::new(RULE.id, cause, title)
        .severity(if is_tied { Severity::Error } else { Severity::Info })
        .weight(if is_tied && kind != SchedulerKind::NodeFail { Weight::Stated } else { Weight::Derived })
        .confidence(if is_bound { Confidence::High } else { Confidence::Medium })
        .culprits(culprits)
        .evidence(events.iter().take(CITATIONS).map(|(o, ..)| shown(o, None, SourceKind::Scheduler, "")))
        .evidence(dead.into_iter().take(CITATIONS).map(|(_, e)| e));
    let draft = match kind {
        SchedulerKind::OutOfMemory => draft
            .advise_command(
                Impact::Harmless,
                "see the limit and what was used",
                "sacct -j <job> -o JobID,ReqMem,MaxRSS,State; kubectl describe pod <pod>",
            )
            .advise(Impact::Disruptive, "ask for more memory per node, or use fewer data-loader workers"),
        SchedulerKind::Preempted | SchedulerKind::Evicted => draft
            .advise_command(
                Impact::Harmless,
                "see who took the place",
                "scontrol show job <job>; kubectl get events --sort-by=.lastTimestamp",
            )
            .advise(
                Impact::Disruptive,
                "requeue the job and resume from its last checkpoint; a higher priority keeps its place",
            ),
        _ => draft
            .advise_command(
                Impact::Harmless,
                "see why the node is gone",
                "scontrol show node <node>; kubectl describe node <node>",
            )
            .advise(Impact::Disruptive, "start again without that node"),
    };
    draft.build()
}

/// `oom_kill` of a memory cgroup, where a rank was killed.
fn group_killed(scene: &Scene<'_>) -> Option<Finding> {
    let (observation, group, line, n) = scene.group_kills(None).next()?;
    let host = scene.host_of(observation);
    let dead = killed(scene, host.as_ref());
    let path = group.path.as_deref().unwrap_or("the memory cgroup");
    let limit = group.max.and_then(|(_, max)| max);
    let limit = limit.map_or_else(String::new, |b| format!(", whose limit is {} MiB", b >> 20));
    let title = format!("the kernel killed {n} of {path} for lack of memory{limit}");
    let is_tied = !dead.is_empty();
    Draft::new(RULE.id, "oom-killed", title.chars().take(110).collect::<String>())
        .severity(if is_tied { Severity::Error } else { Severity::Info })
        .weight(if is_tied { Weight::Stated } else { Weight::Derived })
        .confidence(if is_tied { Confidence::Medium } else { Confidence::Low })
        .culprits(dead.iter().map(|(c, _)| c.clone()))
        .evidence([shown(observation, Some(line), SourceKind::System, format!("oom_kill {n}"))])
        .evidence(dead.into_iter().map(|(_, e)| e))
        .advise_command(
            Impact::Harmless,
            "see which process it was",
            "dmesg -T | grep -iE \"oom|killed process\"",
        )
        .advise(
            Impact::Disruptive,
            "raise the limit of the job or container; shared memory counts against it too",
        )
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{MemoryGroup, SchedulerEvent, SchedulerKind, Severity, SystemFact};

    use super::RULE;
    use crate::staging::Stage;

    fn event(kind: SchedulerKind, subject: &str, node: &str) -> SchedulerEvent {
        let node = (!node.is_empty()).then(|| node.into());
        SchedulerEvent {
            scheduler: "Slurm".into(),
            kind,
            subject: subject.into(),
            node,
            ..SchedulerEvent::default()
        }
    }

    #[test]
    fn a_step_that_ran_out_of_memory() {
        Stage::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::OutOfMemory, "812.0", "node1"))
            .concludes(&RULE, "oom-killed 1, high");
        Stage::new()
            .failed(3, -9, true)
            .scheduled(event(SchedulerKind::OutOfMemory, "812.0", ""))
            .concludes(&RULE, "oom-killed 3, high");
    }

    #[test]
    fn a_pod_whose_name_is_the_host() {
        Stage::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::Evicted, "pod/node0", "gpu-7"))
            .concludes(&RULE, "process-killed 0, high");
    }

    #[test]
    fn preempted_and_lost() {
        Stage::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::Preempted, "812.0", "node0"))
            .concludes(&RULE, "process-killed 0, high");
        Stage::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::NodeFail, "", "node1"))
            .concludes(&RULE, "peer-process-died 1, high");
    }

    #[test]
    fn other_jobs_and_what_follows_a_hang() {
        let finding = Stage::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::OutOfMemory, "7.0", "node9"))
            .finding(&RULE);
        assert_eq!(finding.severity, Severity::Info);
        for kind in [
            SchedulerKind::TimeLimit,
            SchedulerKind::Cancelled,
            SchedulerKind::Failed,
            SchedulerKind::Completed,
        ] {
            Stage::new().two_verbs_nodes().scheduled(event(kind, "812.0", "node1")).silent(&RULE);
        }
    }

    #[test]
    fn counters_of_a_cgroup() {
        let group =
            |n| SystemFact::MemoryGroup(MemoryGroup { oom_kill: Some((5, n)), ..MemoryGroup::default() });
        Stage::new().failed(2, -9, true).system("", group(1)).concludes(&RULE, "oom-killed 2, high");
        assert_eq!(
            Stage::new().failed(2, 1, true).system("", group(1)).finding(&RULE).severity,
            Severity::Info
        );
        Stage::new().failed(2, -9, true).system("", group(0)).silent(&RULE);
    }
}
