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
//! A time limit and a cancellation also follow a hang: they explain nothing by themselves. Records of other nodes, pods
//! or Slurm ids do not count, nor does an end from before the job began, or another container of the rank's pod.
//! `oom_kill` counts since the cgroup was created: without a killed rank it is only a remark.
//!
//! # What to do
//!
//! Ask for more memory, or let the job be requeued and resume from its checkpoint.
//!
//! # References
//!
//! SchedMD/slurm sacct(1), JOB STATE CODES; kubernetes/kubernetes pkg/kubelet/eviction; Linux cgroup-v2, memory.events.

use ringleader_correlate::said::scheduler;

use ringleader_knowledge::signal::{SIGKILL, is_exit_by};
use ringleader_model::{
    Cause, Confidence, Culprit, Evidence, Finding, Host, Impact, Need, Observation, Scheduler,
    SchedulerEvent, SchedulerKind, Severity, SourceKind, Weight, plain_word,
};

use crate::drafting::TITLE_CHARS;
use crate::health;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::waits::posture::{Posture, looks};
use ringleader_correlate::when::failure::Way;
use ringleader_correlate::when::year::in_year;
use ringleader_correlate::who::culprits;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "scheduler-account",
    title: "the scheduler ended the job",
    since: "0.1",
    doc: include_str!("scheduler_account.rs"),
    check,
};

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
    if !findings.iter().any(|f: &Finding| f.cause == Cause::OomKilled) {
        findings.extend(group_killed(scene));
    }
    if findings.is_empty() {
        findings.extend(ended_by_signal(scene));
    }
    if findings.is_empty() {
        return out_of_time(scene);
    }
    Outcome::from_findings(findings)
}

/// A container or a job of Slurm that SIGKILL ended, while the job is in trouble; after the failure it is the clean-up.
fn ended_by_signal(scene: &Scene<'_>) -> Option<Finding> {
    /// The kubelet waits this long between SIGTERM and SIGKILL.
    const CLEAN_UP_NS: i64 = 30_000_000_000;
    health::trouble(scene)?;
    let failed = scene.failure().began().map(|(at, _)| at);
    let is_after = |e: &SchedulerEvent| match (e.ended_at, failed) {
        (Some(at), Some(failed)) => {
            in_year(at) > failed.saturating_add(CLEAN_UP_NS).saturating_add(at.error_ns)
        }
        _ => false,
    };
    let schedulers = scene.schedulers();
    let (observation, event, host) = schedulers.events().find_map(|(o, e)| {
        let is_killed =
            e.kind == SchedulerKind::Failed && e.exit_code.is_some_and(|code| is_exit_by(code, SIGKILL));
        let is_whole = e.scheduler == Scheduler::Slurm || e.n_containers.is_none_or(|n| n == 1);
        let is_ours = is_killed
            && is_whole
            && !is_after(e)
            && !schedulers.is_of_other_job(e)
            && scene.precedes_job(e.ended_at) != Some(true);
        // Where nothing but the account is known, its node is all there is.
        let alone = || e.node.as_deref().filter(|_| !scene.has_job()).map(Host::from);
        Some((o, e, schedulers.host_of(e).or_else(alone).filter(|_| is_ours)?))
    })?;
    let members = scene.roster().members.iter().filter(|m| m.host.as_ref() == Some(&host));
    let ranks: Vec<Culprit> = members.filter_map(|m| Some(scene.roster().culprit_rank(m.rank?))).collect();
    let culprits =
        if ranks.is_empty() { vec![Culprit { host: Some(host), ..Culprit::default() }] } else { ranks };
    let (job, command) = match event.scheduler {
        Scheduler::Slurm => (
            format!("job {} was ended by SIGKILL", event.subject),
            "sacct -j JOB -o JobID,State,ExitCode,MaxRSS,NodeList; journalctl -k on the node; ask who sends signals there",
        ),
        Scheduler::Kubernetes => (
            format!("{} was ended by SIGKILL (exit code 137)", event.subject),
            "kubectl describe pod <pod>; kubectl get events --sort-by=.lastTimestamp",
        ),
    };
    let when = if event.ended_at.is_some() { Confidence::Medium } else { Confidence::Low };
    Draft::new(RULE.id, Cause::ProcessKilled, job)
        .severity(Severity::Error)
        .weight(Weight::Derived)
        .confidence(when)
        .culprits(culprits)
        .evidence([shown(observation, None, SourceKind::Scheduler, "")])
        .advise_command(
            Impact::Harmless,
            "check when it ended and who ended it: a limit, an eviction, a node agent, a manual delete",
            command,
        )
        .build()
}

/// A limit of time that ended the job explains nothing, and is no health.
fn out_of_time(scene: &Scene<'_>) -> Outcome {
    let schedulers = scene.schedulers();
    let is_unknown = scene.hosts().is_empty();
    let limit = schedulers.events().map(|(_, e)| e).find(|e| {
        e.kind == SchedulerKind::TimeLimit
            && (is_unknown || schedulers.covers_job(e))
            && !schedulers.is_of_other_job(e)
            && scene.precedes_job(e.ended_at) != Some(true)
    });
    let Some(limit) = limit.filter(|_| !scene.course().ended_in_order()) else { return Outcome::Clear };
    let subject = if limit.subject.is_empty() { "the job" } else { &limit.subject };
    if let Some(finding) = at_work_until(scene, limit, subject) {
        return Outcome::Found(vec![finding]);
    }
    Outcome::Undecided(vec![Need {
        question: format!(
            "the scheduler ended {subject} at its time limit: did it make progress until then, or hang?"
        ),
        command: format!(
            "sacct -j {} -o JobID,State,Start,End,Timelimit,NodeList",
            plain_word(scheduler::job(limit)).unwrap_or("<job>")
        ),
        ..Need::default()
    }])
}

/// A job that made steps, and in which nothing timed out or waits for another, was at work when its time was over.
fn at_work_until(scene: &Scene<'_>, limit: &SchedulerEvent, subject: &str) -> Option<Finding> {
    let has_stalled = scene.failure().has(Way::TimedOut)
        || scene.failure().has(Way::Stuck)
        || !scene.suspects().is_empty()
        || !scene.stood_still().is_empty()
        // Somebody looked where it stands, and it waited.
        || looks(scene.conditions()).iter().any(|look| look.posture == Posture::InCollective);
    if has_stalled || !scene.course().text().advances() {
        return None;
    }
    let schedulers = scene.schedulers();
    let (observation, _) = schedulers.events().find(|(_, e)| std::ptr::eq(*e, limit))?;
    Draft::new(RULE.id, Cause::StoppedFromOutside, format!("the scheduler ended {subject} at its time limit"))
        .severity(Severity::Error)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .evidence([shown(observation, None, SourceKind::Scheduler, "")])
        .advise(
            Impact::Harmless,
            "ask for more time, or save a checkpoint before the limit and resume from it",
        )
        .build()
}

/// Ranks that were killed, with the launcher's word for it.
fn killed(scene: &Scene<'_>, host: Option<&Host>) -> Vec<(Culprit, Evidence)> {
    scene
        .fates()
        .all()
        .filter_map(|(rank, fate)| {
            let exit = fate.ended_by(SIGKILL)?;
            let culprit = scene.roster().culprit_rank(rank);
            scene.may_be_on(host, culprit.host.as_ref()).then(|| (culprit, exit.evidence.clone()))
        })
        .collect()
}

/// The nodes of `srun: error: Node failure on node3`. What Slurm says of a step names only where its batch script ran.
fn failed_nodes<'a>(events: impl Iterator<Item = &'a SchedulerEvent>) -> impl Iterator<Item = Culprit> {
    let nodes = events.filter(|event| event.subject.is_empty()).filter_map(|event| event.node.as_deref());
    let one = nodes.filter(|node| !node.contains(['[', ',']));
    one.map(|node| Culprit { host: Some(node.into()), ..Culprit::default() })
}

fn told_of(scene: &Scene<'_>, kind: SchedulerKind) -> Option<Finding> {
    let hosts = scene.hosts();
    let schedulers = scene.schedulers();
    // Ended before this job began, or an id whose nodes are not this job's.
    let is_other = |event: &SchedulerEvent| {
        scene.precedes_job(event.ended_at) == Some(true) || schedulers.is_of_other_job(event)
    };
    let events: Vec<(&Observation, &SchedulerEvent, Option<Host>)> = schedulers
        .events()
        .filter(|(_, event)| event.kind == kind && !is_other(event))
        .map(|(o, event)| (o, event, schedulers.host_of(event)))
        .collect();
    // What names the job's own host comes first; an event of another node shows nothing.
    let near: Vec<_> = events.iter().filter(|(.., host)| host.is_some()).collect();
    let is_bound = !near.is_empty();
    let events: Vec<_> = if is_bound { near } else { events.iter().collect() };
    let (_, event, host) = events.first()?;
    let dead: Vec<(Culprit, Evidence)> = killed(scene, host.as_ref());
    // One container of several: only its own end shows whether the rank ran in it.
    let may_be_helper = event.n_containers.is_some_and(|n| n > 1) && dead.is_empty();
    let is_bound = is_bound && !may_be_helper;
    let is_alone = hosts.is_empty() && scene.roster().members.is_empty();
    // An account of one job alone is of this one.
    let is_only = kind == SchedulerKind::NodeFail && schedulers.is_only_job(event);
    let is_tied = is_bound || !dead.is_empty() || is_alone || is_only;
    let subject = match (&*event.subject, &event.container) {
        ("", _) => "the job".to_owned(),
        (subject, Some(container)) => format!("container {container} of {subject}"),
        (subject, None) => subject.to_owned(),
    };
    let at = event.node.as_deref().map_or_else(String::new, |n| format!(" on {n}"));
    let (cause, title) = match kind {
        SchedulerKind::OutOfMemory => {
            (Cause::OomKilled, format!("{subject}{at} was killed for lack of memory"))
        }
        SchedulerKind::Preempted => {
            (Cause::ProcessKilled, format!("{subject}{at} was preempted for another job"))
        }
        SchedulerKind::Evicted => (Cause::ProcessKilled, format!("{subject}{at} was evicted from its node")),
        // Of which job it was is not known: that of this one may only look the same.
        _ if !is_tied => (Cause::PeerProcessDied, format!("the scheduler lost the node of {subject}{at}")),
        _ => (Cause::NodeLost, format!("the scheduler lost the node of {subject}{at}")),
    };
    let mut culprits: Vec<Culprit> = Vec::new();
    for (culprit, _) in &dead {
        culprits::add_culprit(&mut culprits, culprit.clone());
    }
    if culprits.is_empty() {
        for (.., host) in events.iter().filter(|_| is_bound) {
            let on_host: Vec<Culprit> = scene
                .roster()
                .members
                .iter()
                .filter(|m| host.is_some() && m.host == *host)
                .filter_map(|m| Some(scene.roster().culprit_rank(m.rank?)))
                .collect();
            // Several ranks on a node: which one it was is not known, unless all of them went.
            let all_go = kind != SchedulerKind::OutOfMemory;
            if all_go || on_host.len() == 1 {
                for culprit in on_host {
                    culprits::add_culprit(&mut culprits, culprit);
                }
            } else {
                culprits::add_culprit(&mut culprits, Culprit { host: host.clone(), ..Culprit::default() });
            }
        }
    }
    if culprits.is_empty() && kind == SchedulerKind::NodeFail {
        culprits.extend(failed_nodes(events.iter().map(|(_, event, _)| *event)));
    }
    let is_stated = is_tied && (kind != SchedulerKind::NodeFail || is_only);
    let draft = Draft::new(RULE.id, cause, title)
        .severity(if is_tied { Severity::Error } else { Severity::Info })
        .weight(if is_stated { Weight::Stated } else { Weight::Derived })
        .confidence(if is_bound { Confidence::High } else { Confidence::Medium })
        .culprits(culprits)
        .evidence(events.iter().take(CITATIONS).map(|(o, ..)| shown(o, None, SourceKind::Scheduler, "")))
        .evidence(dead.into_iter().take(CITATIONS).map(|(_, e)| e));
    let draft = match kind {
        SchedulerKind::OutOfMemory => draft
            .advise_command(
                Impact::Harmless,
                "check the limit and what was used",
                "sacct -j <job> -o JobID,ReqMem,MaxRSS,State; kubectl describe pod <pod>",
            )
            .advise(Impact::Harmless, "ask for more memory per node, or use fewer data-loader workers"),
        SchedulerKind::Preempted | SchedulerKind::Evicted => draft
            .advise_command(
                Impact::Harmless,
                "check which job took its place",
                "scontrol show job <job>; kubectl get events --sort-by=.lastTimestamp",
            )
            .advise(
                Impact::Disruptive,
                "requeue the job and resume from its last checkpoint; a higher priority prevents preemption",
            ),
        _ => draft
            .advise_command(
                Impact::Harmless,
                "check why the node is gone",
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
    Draft::new(RULE.id, Cause::OomKilled, title.chars().take(TITLE_CHARS).collect::<String>())
        .severity(if is_tied { Severity::Error } else { Severity::Info })
        .weight(if is_tied { Weight::Stated } else { Weight::Derived })
        .confidence(if is_tied { Confidence::Medium } else { Confidence::Low })
        .culprits(dead.iter().map(|(c, _)| c.clone()))
        .evidence([shown(observation, Some(line), SourceKind::System, format!("oom_kill {n}"))])
        .evidence(dead.into_iter().map(|(_, e)| e))
        .advise_command(
            Impact::Harmless,
            "check which process it was",
            "dmesg -T | grep -iE \"oom|killed process\"",
        )
        .advise(
            Impact::Harmless,
            "raise the limit of the job or container; shared memory counts against it too",
        )
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{
        MemoryGroup, Scheduler, SchedulerEvent, SchedulerKind, Severity, SystemFact, WallTime,
    };

    use super::RULE;
    use crate::rule::Outcome;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::Scene;

    fn event(kind: SchedulerKind, subject: &str, node: &str) -> SchedulerEvent {
        let node = (!node.is_empty()).then(|| node.into());
        SchedulerEvent {
            scheduler: Scheduler::Slurm,
            kind,
            subject: subject.into(),
            node,
            ..SchedulerEvent::default()
        }
    }

    #[test]
    fn a_step_that_ran_out_of_memory() {
        StagedCase::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::OutOfMemory, "812.0", "node1"))
            .concludes(&RULE, "oom-killed 1, high");
        StagedCase::new()
            .failed(3, -9, true)
            .scheduled(event(SchedulerKind::OutOfMemory, "812.0", ""))
            .concludes(&RULE, "oom-killed 3, high");
    }

    #[test]
    fn a_pod_whose_name_is_the_host() {
        StagedCase::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::Evicted, "pod/node0", "gpu-7"))
            .concludes(&RULE, "process-killed 0, high");
    }

    #[test]
    fn preempted_and_lost() {
        StagedCase::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::Preempted, "812.0", "node0"))
            .concludes(&RULE, "process-killed 0, high");
        StagedCase::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::NodeFail, "", "node1"))
            .concludes(&RULE, "node-lost 1, high");
    }

    #[test]
    fn the_only_job_of_an_account_lost_its_nodes() {
        let lost = |id: &str| event(SchedulerKind::NodeFail, id, "c[009-010]");
        let one = || StagedCase::new().two_ranks().scheduled(lost("98820"));
        one().concludes(&RULE, "node-lost , medium");
        // Of which of two jobs the evidence is, nothing shows.
        let two = one().scheduled(event(SchedulerKind::Running, "98821", "c011"));
        assert_eq!(two.finding(&RULE).severity, Severity::Info);
        // srun names the node, Slurm's word on the step the first one.
        let said = StagedCase::new().scheduled(event(SchedulerKind::NodeFail, "", "c015"));
        let finding = said.scheduled(event(SchedulerKind::NodeFail, "77.0", "c014")).finding(&RULE);
        let hosts: Vec<_> = finding.culprits.iter().filter_map(|c| c.host.as_deref()).collect();
        assert_eq!(hosts, ["c015"]);
    }

    #[test]
    fn other_jobs_and_what_follows_a_hang() {
        let finding = StagedCase::new()
            .two_verbs_nodes()
            .scheduled(event(SchedulerKind::OutOfMemory, "7.0", "node9"))
            .finding(&RULE);
        assert_eq!(finding.severity, Severity::Info);
        for kind in [SchedulerKind::Cancelled, SchedulerKind::Failed, SchedulerKind::Completed] {
            StagedCase::new().two_verbs_nodes().scheduled(event(kind, "812.0", "node1")).silent(&RULE);
        }
    }

    #[test]
    fn an_earlier_life_and_a_helper_of_the_pod() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let ended = |s: i64, n| SchedulerEvent {
            scheduler: Scheduler::Kubernetes,
            container: Some("shipper".into()),
            n_containers: Some(n),
            ended_at: Some(WallTime { ns: s * 1_000_000_000, error_ns: 0, has_year: true }),
            ..event(SchedulerKind::OutOfMemory, "pod/node0", "gpu-7")
        };
        let job = || StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        job().scheduled(ended(BEGAN_S - 86_400, 1)).silent(&RULE);
        job().scheduled(ended(BEGAN_S + 300, 1)).expect(&RULE, &["oom-killed"]);
        // Which container the rank was in is not known, and no rank died of SIGKILL.
        assert_eq!(job().scheduled(ended(BEGAN_S + 300, 2)).finding(&RULE).severity, Severity::Info);
    }

    #[test]
    fn a_pod_that_sigkill_ended() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let ended = |s: Option<i64>, code| SchedulerEvent {
            scheduler: Scheduler::Kubernetes,
            exit_code: Some(code),
            ended_at: s.map(|s| WallTime { ns: s * 1_000_000_000, error_ns: 0, has_year: true }),
            ..event(SchedulerKind::Failed, "pod/node0", "gpu-7")
        };
        let job = || {
            let stage = StagedCase::new().two_ranks().raised(Some(0), "DistBackendError", "boom", &[]);
            stage.at_s(BEGAN_S + 600)
        };
        job().scheduled(ended(None, 137)).expect(&RULE, &["process-killed 0-1"]);
        job().scheduled(ended(Some(BEGAN_S + 590), 137)).expect(&RULE, &["process-killed 0-1"]);
        // Whoever cleaned up; another code; of yesterday; a job that is well.
        job().scheduled(ended(Some(BEGAN_S + 900), 137)).silent(&RULE);
        job().scheduled(ended(None, 1)).silent(&RULE);
        job().scheduled(ended(Some(BEGAN_S - 86_400), 137)).silent(&RULE);
        StagedCase::new().two_ranks().scheduled(ended(None, 137)).silent(&RULE);
    }

    #[test]
    fn of_several_jobs_the_newest_on_all_of_its_hosts() {
        let table = |of_ours: SchedulerKind, of_other: SchedulerKind| {
            let stage = StagedCase::new().two_verbs_nodes();
            let stage = stage.scheduled(event(of_other, "790", "node1"));
            let stage = stage.scheduled(event(of_other, "790.0", "node1"));
            stage.scheduled(event(of_ours, "812", "node[0-1]"))
        };
        table(SchedulerKind::Failed, SchedulerKind::OutOfMemory).silent(&RULE);
        table(SchedulerKind::Running, SchedulerKind::OutOfMemory).silent(&RULE);
        let ours = table(SchedulerKind::Failed, SchedulerKind::Completed);
        let ours = ours.scheduled(event(SchedulerKind::OutOfMemory, "812.0", "node1"));
        ours.concludes(&RULE, "oom-killed 1, high");
    }

    #[test]
    fn a_limit_of_time_is_no_health() {
        let asks = |kind| {
            let stage = StagedCase::new().two_verbs_nodes().scheduled(event(kind, "812", "node[0-1]"));
            matches!((RULE.check)(&Scene::new(&stage.case)), Outcome::Undecided(_))
        };
        assert!(asks(SchedulerKind::TimeLimit));
        assert!(!asks(SchedulerKind::Completed));
    }

    #[test]
    fn counters_of_a_cgroup() {
        let group =
            |n| SystemFact::MemoryGroup(MemoryGroup { oom_kill: Some((5, n)), ..MemoryGroup::default() });
        StagedCase::new().failed(2, -9, true).system("", group(1)).concludes(&RULE, "oom-killed 2, high");
        assert_eq!(
            StagedCase::new().failed(2, 1, true).system("", group(1)).finding(&RULE).severity,
            Severity::Info
        );
        StagedCase::new().failed(2, -9, true).system("", group(0)).silent(&RULE);
    }
}
