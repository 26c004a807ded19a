use ringleader_correlate::Scene;
use ringleader_model::{
    Cause, Culprit, Fact, Host, HostAt, HostReach, Named, Rank, Said, SaidForm, Scheduler, SchedulerEvent,
    SchedulerKind, SourceKind, Who,
};

use super::{absent, ended_on, name_others, of, of_stack};
use crate::trial::{StagedCase, Trial as _};

/// A line of a log that names machines, and the machine that prints it.
fn says(stage: StagedCase, from: &str, text: &str, names: &[&str], exit: Option<i64>) -> StagedCase {
    let mut rows = Vec::new();
    ringleader_knowledge::message::classify(text, &mut rows);
    let mut stage = stage;
    let source = stage.source(SourceKind::PlainText);
    let last = stage.cite(source);
    let said = Said {
        template: ringleader_knowledge::form::template(text).into(),
        count: 1,
        last,
        last_at: None,
        form: SaidForm { exit, is_end: exit.is_some(), ..SaidForm::default() },
        named: Named { hosts: names.iter().map(|name| Host::from(*name)).collect(), ..Named::default() },
        rows: rows.iter().map(|m| m.row.id()).collect(),
        is_read: false,
    };
    let host = (!from.is_empty()).then(|| Host::from(from));
    stage.push(SourceKind::PlainText, Who { host, ..Who::default() }, Fact::Said(Box::new(said)))
}

fn on_machines(names: &[&str]) -> StagedCase {
    names.iter().fold(StagedCase::new(), |stage, name| {
        let mark = HostAt { line: 1, host: Some(Host::from(*name)), reach: HostReach::Session };
        stage.push(SourceKind::PlainText, Who::default(), Fact::Hosts(vec![mark].into()))
    })
}

const OOM: &str = "Memory on the node (IP: 10.0.0.7, ID: a1b2c3) where the task (actor ID: 8d04, pid=1411, memory used=122.87GB) \
                   was running was 957.33GB / 1007.51GB (0.950194), which exceeds the memory usage threshold of 0.95.";
const LOST: &str = "The node with node id: 0a31 and address: 10.0.0.51 and node name: 10.0.0.51 has been marked dead because \
                    the detector has missed too many heartbeats from it.";

/// The machine that the finding of the table on this stage accuses.
fn accused(stage: &StagedCase) -> Option<String> {
    let finding = stage.finding(&crate::rules::program::message_names_cause::RULE);
    of(&Scene::new(&stage.case), &finding).map(|host| host.to_string())
}

#[test]
fn the_machine_that_a_statement_of_the_cause_names() {
    assert_eq!(accused(&says(StagedCase::new(), "", OOM, &["10.0.0.7"], None)).as_deref(), Some("10.0.0.7"));
    // Two, and the name of the loopback.
    assert_eq!(accused(&says(StagedCase::new(), "", OOM, &["10.0.0.7", "10.0.0.8"], None)), None);
    assert_eq!(accused(&says(StagedCase::new(), "", OOM, &["localhost"], None)), None);
}

#[test]
fn of_two_machines_the_lost_one_is_not_the_one_that_says_so() {
    let named = |others: &[&str]| {
        let stage = says(on_machines(others), "spark-a", LOST, &["10.0.0.51"], None);
        let finding = stage.finding(&crate::rules::program::message_names_cause::RULE);
        let mut culprits = [Culprit { host: Some("10.0.0.51".into()), ..Culprit::default() }];
        name_others(&Scene::new(&stage.case), &finding, &mut culprits);
        culprits[0].host.as_ref().map(ToString::to_string)
    };
    assert_eq!(named(&["spark-b"]).as_deref(), Some("spark-b"));
    assert_eq!(named(&["spark-b", "spark-c"]).as_deref(), Some("10.0.0.51"));
    assert_eq!(named(&[]).as_deref(), Some("10.0.0.51"));
}

#[test]
fn where_tasks_ended_by_themselves() {
    let ended = |stage: StagedCase| ended_on(&Scene::new(&stage.case)).map(|host| host.to_string());
    let exit = |stage, host: &str| {
        let text = format!("srun: error: {host}: task 0: Exited with exit code 2");
        says(stage, "", &text, &[host], Some(2))
    };
    assert_eq!(ended(exit(StagedCase::new(), "node064")).as_deref(), Some("node064"));
    assert_eq!(ended(exit(exit(StagedCase::new(), "node064"), "node065")), None);
    // The first node of a job that is ended says nothing of who is at fault.
    let cancelled = "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2024-02-01T10:11:12 ***";
    assert_eq!(ended(says(StagedCase::new(), "", cancelled, &["node1"], None)), None);
}

#[test]
fn the_node_on_which_nobody_speaks() {
    let job = |nodes: &str| {
        let stage = says(StagedCase::new(), "node1", OOM, &[], None);
        stage.scheduled(SchedulerEvent {
            scheduler: Scheduler::Slurm,
            kind: SchedulerKind::Running,
            subject: "311".into(),
            node: Some(nodes.into()),
            ..SchedulerEvent::default()
        })
    };
    let missing = |nodes: &str| {
        let stage = job(nodes);
        let finding = stage.finding(&crate::rules::program::message_names_cause::RULE);
        absent(&Scene::new(&stage.case), &finding).map(|host| host.to_string())
    };
    assert_eq!(missing("node[1-2]").as_deref(), Some("node2"));
    // Of several it may be each, and another job has other nodes.
    assert_eq!(missing("node[1-3]"), None);
    assert_eq!(missing("node[7-8]"), None);
}

#[test]
fn a_name_that_is_not_found_is_no_culprit_unless_it_is_a_known_machine() {
    const TEXT: &str = "RuntimeError: [Gloo] Rank 0: getaddrinfo(master-0): Name or service not known";
    let accused = |stage: StagedCase| {
        let mut finding = says(StagedCase::new(), "", OOM, &[], None)
            .finding(&crate::rules::program::message_names_cause::RULE);
        finding.cause = Cause::HostnameResolution;
        let stage = says(stage, "", TEXT, &["master-0"], None);
        of(&Scene::new(&stage.case), &finding).map(|host| host.to_string())
    };
    assert_eq!(accused(StagedCase::new()), None);
}

#[test]
fn where_the_stack_of_a_rank_was_printed() {
    let stage = StagedCase::new().process("", 100, Some(0)).stands(0, &[("/srv/train.py", 90, "main")]);
    assert_eq!(of_stack(&Scene::new(&stage.case), Rank(0)), None);
    // The prompt above it.
    let source = stage.case.observations.iter().rev().find(|o| matches!(o.fact, Fact::Stacks(_)));
    let source = source.expect("a stack").cite.source;
    let mark = HostAt { line: 1, host: Some("spark-n1".into()), reach: HostReach::Session };
    let mut stage = stage.push(SourceKind::PlainText, Who::default(), Fact::Hosts(vec![mark].into()));
    stage.case.observations.last_mut().expect("the mark").cite.source = source;
    let scene = Scene::new(&stage.case);
    assert_eq!(of_stack(&scene, Rank(0)).as_deref(), Some("spark-n1"));
    assert_eq!(of_stack(&scene, Rank(1)), None);
}
