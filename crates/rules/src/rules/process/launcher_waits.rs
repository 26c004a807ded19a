//! # What it shows
//! A launcher waits in its rendezvous: not all nodes have come, and no rank has been started.
//!
//! # Why it happens
//! The launcher of another node was not started, ended, was given another number of nodes, another address or another id,
//! or does not reach the master.
//!
//! # Evidence
//! Its stack, twice; its command line.
//!
//! # What looks like it but is not
//! The nodes of a job start within seconds or minutes of each other: a single look shows no more than that. Ranks that
//! are there and wait for others are another matter.
//!
//! # What to do
//! On the other nodes see whether the launcher runs, with the same number of nodes, address and id, and whether the
//! master's port answers from there.
//!
//! # References
//! PyTorch docs, torchrun, rendezvous; pytorch/pytorch torch/distributed/elastic/agent/server/api.py, _rendezvous.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::process::condition::is_marked;
use ringleader_knowledge::command;
use ringleader_knowledge::place::marks;
use ringleader_model::{
    Cause, Confidence, Evidence, Frame, Host, Impact, Observation, Pid, ProcessStacks, SourceKind, Weight,
};

use crate::rule::{Draft, Outcome, Rule};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "launcher-waits",
    title: "a launcher waits for the other nodes",
    since: "0.3",
    doc: include_str!("launcher_waits.rs"),
    check,
};

/// Options with the number of nodes.
const NODES: &[&str] = &["nnodes", "num_nodes", "num_machines"];

/// Stacks of one launcher.
type Looks<'a> = Vec<(&'a Observation, &'a ProcessStacks)>;

fn check(scene: &Scene<'_>) -> Outcome {
    // Where ranks are, they have more to say.
    if scene.conditions().all().any(|(_, condition)| condition.stand.is_some()) {
        return Outcome::Clear;
    }
    let mut launchers: BTreeMap<(Option<&Host>, Option<Pid>), Looks<'_>> = BTreeMap::new();
    for (observation, stacks) in scene.stacks().filter(|(_, stacks)| frames(stacks).any(is_rendezvous)) {
        launchers.entry((observation.who.host.as_ref(), stacks.pid)).or_default().push((observation, stacks));
    }
    let Some(((_, pid), looks)) = launchers.into_iter().max_by_key(|(_, looks)| looks.len()) else {
        return Outcome::Clear;
    };
    let rows = scene.process_tables().flat_map(|(_, table)| &table.rows);
    let listed = rows.filter(|row| pid.is_some() && row.pid == pid).map(|row| &*row.command);
    let mut commands = looks.iter().filter_map(|(_, stacks)| stacks.command.as_deref()).chain(listed);
    let n_nodes = commands.find_map(|line| command::option(line, NODES).filter(|n| *n > 1));
    let is_outside = looks.iter().all(|(_, stacks)| frames(stacks).any(connects));
    let waits = match (is_outside, n_nodes) {
        (true, Some(n)) => format!("does not reach the master of its {n} nodes"),
        (true, None) => "does not reach the master".to_owned(),
        (false, Some(n)) => format!("waits for the other ones of {n} nodes"),
        (false, None) => "waits for other nodes".to_owned(),
    };
    let title = format!("the launcher {waits}: it is in the rendezvous, and no rank has been started here");
    let evidence = looks.iter().take(2).filter_map(|(observation, stacks)| {
        let frame = frames(stacks).find(|frame| is_rendezvous(frame))?;
        let text = format!("{} ({}:{})", frame.function, frame.file, frame.line);
        Some(Evidence { cite: observation.cite, text, kind: SourceKind::Stacks })
    });
    let draft = Draft::new(RULE.id, Cause::MissingRank, title)
        .weight(Weight::Derived)
        .confidence(if looks.len() > 1 { Confidence::Medium } else { Confidence::Low })
        .evidence(evidence)
        .advise_command(
            Impact::Harmless,
            "on the other nodes see whether the launcher runs, with the same number of nodes, address and id",
            "ps -eo pid,etime,args | grep -E 'torchrun|distributed.run|accelerate'",
        )
        .advise(
            Impact::Harmless,
            "from there, see whether the name of the master resolves and its port answers",
        );
    Outcome::from_findings(draft.build().into_iter().collect())
}

fn frames(stacks: &ProcessStacks) -> impl Iterator<Item = &Frame> {
    stacks.threads.iter().flat_map(|thread| &thread.frames)
}

fn is_rendezvous(frame: &Frame) -> bool {
    is_marked(marks::LAUNCHER_RENDEZVOUS, frame)
}

/// It tries to connect to the store that the first node serves.
fn connects(frame: &Frame) -> bool {
    is_marked(marks::STORE_CONNECTION, frame)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Frame, Pid, ProcessStacks, SourceKind, ThreadStack, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const WAITS: (&str, u32, &str) =
        ("torch/distributed/elastic/agent/server/api.py", 514, "SimpleElasticAgent._rendezvous");
    const RUNS: (&str, u32, &str) =
        ("torch/distributed/elastic/agent/server/api.py", 902, "SimpleElasticAgent._invoke_run");

    fn launcher(stage: StagedCase, frames: &[(&str, u32, &str)]) -> StagedCase {
        launcher_on(stage, None, frames)
    }

    fn launcher_on(stage: StagedCase, host: Option<&str>, frames: &[(&str, u32, &str)]) -> StagedCase {
        let frames = frames.iter().map(|(file, line, function)| Frame {
            function: (*function).into(),
            file: (*file).into(),
            line: *line,
        });
        let thread = ThreadStack { frames: frames.collect(), ..ThreadStack::default() };
        let stacks = ProcessStacks {
            pid: Some(Pid(77)),
            command: Some("torchrun --nnodes=2 --nproc-per-node=8 train.py".into()),
            threads: vec![thread],
            ..ProcessStacks::default()
        };
        let who = Who { host: host.map(Into::into), ..Who::default() };
        stage.push(SourceKind::Stacks, who, Fact::Stacks(Box::new(stacks)))
    }

    #[test]
    fn one_look_and_two() {
        let once = || launcher(StagedCase::job(1), &[WAITS, RUNS]);
        once().concludes(&RULE, "missing-rank , low");
        let twice = launcher(once(), &[WAITS, RUNS]);
        assert!(twice.finding(&RULE).title.contains("waits for the other ones of 2 nodes"));
        twice.concludes(&RULE, "missing-rank , medium");
        // Launchers of two nodes, each seen once, whose pids are the same.
        let apart = launcher_on(StagedCase::job(1), Some("n1"), &[WAITS, RUNS]);
        launcher_on(apart, Some("n2"), &[WAITS, RUNS]).concludes(&RULE, "missing-rank , low");
        let connects = ("libtorch_cpu.so", 0, "c10d::detail::TCPClient::connect");
        let outside = launcher(StagedCase::job(1), &[connects, WAITS, RUNS]);
        assert!(outside.finding(&RULE).title.contains("does not reach the master of its 2 nodes"));
    }

    #[test]
    fn a_launcher_of_ranks() {
        launcher(StagedCase::job(1), &[RUNS]).silent(&RULE);
        let rank = [("train.py", 9, "main")];
        launcher(launcher(StagedCase::job(1), &[WAITS, RUNS]), &[WAITS, RUNS]).stands(0, &rank).silent(&RULE);
    }
}
