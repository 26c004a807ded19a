//! From the verdict on a failed attempt to the next decree. Pure: what was read of the checkpoints, the time and chance are
//! arguments.

use ringleader_model::{Cause, Class, Confidence};

use crate::agree::{Announcement, Decree, Judged, Out, StateMachine, What, World, first_traceback};
use crate::decide::{self, Action, AttemptFailure, Decision, Failed, Site};
use crate::judgement::{Culprit, Judgement};
use crate::policy::Policy;
use crate::resume::{Checkpoints, Remark};

/// Input of a decision.
#[derive(Clone, Debug)]
pub struct ToDecide {
    /// The rules for restarts.
    pub policy: Policy,
    /// Earlier failures, oldest first.
    pub past: Vec<Failed>,
    /// The decree that ended the attempt.
    pub halted: Decree,
    /// The live nodes.
    pub members: Vec<Announcement>,
    /// Nodes that may join the next attempt.
    pub fit: Vec<String>,
    /// Those that were excluded until now.
    pub back: Vec<String>,
    /// Number of nodes that the job runs on.
    pub n_nodes: usize,
    /// Smallest number of nodes by the command line.
    pub min_nodes: usize,
    /// Step of the checkpoint that the attempt was started from.
    pub resumed_from: Option<u64>,
    /// Ranks on each node by the command line.
    pub per_node: Option<u32>,
    /// Waiting for further nodes is over.
    pub is_late: bool,
    /// This node.
    pub node: String,
}

/// What a decision takes from the world.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Now, seconds since 1970.
    pub at: f64,
    /// A random number from 0 to 1.
    pub chance: f64,
    /// How often the scheduler has requeued the job; None without a scheduler that could.
    pub requeued: Option<u32>,
}

/// Outcome of a decision.
#[derive(Clone, Debug)]
pub enum Next {
    /// The next decree, and remarks.
    Decree(Box<Decree>, Vec<Remark>),
    /// Further nodes are waited for, and why.
    Wait(String),
}

impl ToDecide {
    /// Nodes of the attempt.
    pub fn nodes(&self) -> Vec<String> {
        match &self.halted.what {
            What::Halt { nodes, .. } | What::Run { nodes, .. } => nodes.clone(),
            What::Done | What::Stop => Vec::new(),
        }
    }

    /// The sizes of the attempts, including the halted one.
    pub fn worlds(&self) -> Vec<World> {
        let ranks = self.members.iter().filter_map(|member| member.ranks).max();
        World::with(&self.halted.worlds, ranks.map(|ranks| World { nodes: self.nodes().len(), ranks }))
    }
}

/// Decides what follows a failed attempt. `verdict` is that of the nodes that are left; `remarks` are added to.
pub fn next(
    wanted: &ToDecide,
    verdict: Judgement,
    checkpoints: Checkpoints<'_>,
    moment: Moment,
    mut remarks: Vec<Remark>,
) -> Next {
    let nodes = wanted.nodes();
    let is_here = |node: &String| wanted.members.iter().any(|member| member.node == *node);
    let lost: Vec<String> = nodes.iter().filter(|node| !is_here(node)).cloned().collect();
    let verdict = if lost.is_empty() { verdict } else { lost_nodes(&lost, verdict) };
    let step = wanted.members.iter().filter_map(|member| member.step).max();
    let told = wanted.members.iter().find_map(|member| member.told.clone());
    let failure = AttemptFailure {
        attempt: wanted.halted.generation as u32,
        at: moment.at,
        judgement: &verdict,
        told: told.as_deref(),
        step,
        resumed_from: wanted.resumed_from,
    };
    let (n_nodes, min_nodes) = (wanted.n_nodes.max(1), wanted.min_nodes.max(1));
    let spares: Vec<String> = wanted.fit.iter().filter(|node| !nodes.contains(node)).cloned().collect();
    let is_alone = wanted.n_nodes <= 1 && spares.is_empty();
    let n_least = checkpoints.least(min_nodes, n_nodes);
    let stays = |node: &&String| is_alone || wanted.fit.contains(node) || lost.contains(node);
    let site = Site {
        nodes: nodes.iter().filter(stays).cloned().collect(),
        n_given: wanted.fit.len().max(nodes.len() + spares.len()) + wanted.halted.excluded.len(),
        spares,
        excluded: wanted.halted.excluded.clone(),
        min_nodes: n_least,
        requeued: moment.requeued,
    };
    let mut decision = decide::decide(&wanted.policy, &wanted.past, &failure, &site, moment.chance);
    if verdict.class == Class::Node {
        checkpoints.reason(min_nodes, n_least).into_iter().for_each(|why| decision.say(why));
    }
    if wanted.fit.len() < min_nodes && matches!(decision.action, Action::Restart { .. }) {
        stop_short(&mut decision, wanted);
    }
    if matches!(decision.action, Action::Restart { .. }) && !wanted.back.is_empty() {
        let names = wanted.back.join(", ");
        decision.say(format!("{names}: was left out, has passed the preflight check again and may join"));
    }
    let mut size = Ok(n_nodes);
    if let Action::Restart { without, .. } = &decision.action
        && !is_alone
    {
        let n_fit = wanted.fit.iter().filter(|node| !without.contains(node)).count();
        size = checkpoints.nodes(min_nodes, n_fit.min(n_nodes));
    }
    match &size {
        // The missing nodes may return.
        Err(why) if !wanted.is_late => return Next::Wait(why.clone()),
        Err(why) => {
            decision.stop();
            decision.say(why.clone());
        }
        Ok(_) => {}
    }
    let mut excluded = wanted.halted.excluded.clone();
    let what = match &decision.action {
        Action::Requeue { .. } | Action::Stop => What::Stop,
        Action::Restart { without, pause_s } => {
            excluded.extend(without.iter().cloned());
            let joins = |node: &&String| !excluded.contains(node);
            let nodes: Vec<String> =
                wanted.fit.iter().filter(joins).take(size.unwrap_or(n_nodes)).cloned().collect();
            let (checkpoint, said) = checkpoints.chosen(nodes.len());
            remarks.extend(said);
            What::Run { nodes, pause_s: *pause_s, checkpoint }
        }
    };
    let why = decision.why.iter().map(|why| why.to_string()).collect();
    let mut decree = StateMachine::next(&wanted.halted, what, excluded, why);
    decree.worlds = wanted.worlds();
    decree.outs = Out::with(&wanted.halted.outs, decision.action.without(), &lost, failure.at);
    let failed = Failed {
        attempt: failure.attempt,
        at: failure.at,
        judgement: verdict.clone(),
        charged: decision.charged,
        step,
        resumed_from: wanted.resumed_from,
    };
    decree.past = decide::remembered(&wanted.past, failed);
    let (traceback, by) = (first_traceback(&wanted.members), wanted.node.clone());
    decree.judged = Some(Box::new(Judged { verdict, decision, step, told, by, traceback }));
    Next::Decree(Box::new(decree), remarks)
}

/// There is no evidence of the cause, but the whole job has seen that these nodes are gone.
fn lost_nodes(lost: &[String], verdict: Judgement) -> Judgement {
    let culprit = |node: &String| Culprit { host: Some(node.clone()), ..Culprit::default() };
    Judgement {
        cause: Cause::NodeLost.into(),
        class: Class::Node,
        confidence: Confidence::High,
        summary: format!("{}: its supervisor is silent and the job hangs", lost.join(", ")),
        culprits: lost.iter().map(culprit).collect(),
        ..verdict
    }
}

/// Too few nodes can join: the job stops.
fn stop_short(decision: &mut Decision, wanted: &ToDecide) {
    decision.stop();
    let least = wanted.min_nodes.max(1);
    decision.say(format!("{} nodes can join the next attempt; it needs {least}", wanted.fit.len()));
    for member in &wanted.members {
        if let Some(why) = &member.unfit {
            decision.say(format!("{}: {why}", member.node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(fit: &[&str]) -> ToDecide {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let halted = Decree {
            generation: 1,
            what: What::Halt { nodes: names(&["n0", "n1"]), by: "n0".to_owned() },
            ..Decree::default()
        };
        let member = |node: &str| Announcement {
            node: node.to_owned(),
            unfit: (!fit.contains(&node)).then(|| "a GPU is gone".to_owned()),
            ..Announcement::default()
        };
        ToDecide {
            policy: Policy::default(),
            past: Vec::new(),
            halted,
            members: vec![member("n0"), member("n1")],
            fit: names(fit),
            back: Vec::new(),
            n_nodes: 2,
            min_nodes: 2,
            resumed_from: None,
            per_node: None,
            is_late: true,
            node: "n0".to_owned(),
        }
    }

    fn decreed(wanted: &ToDecide) -> Decree {
        let checkpoints = Checkpoints::look(&wanted.policy, &[], None);
        let moment = Moment { at: 100.0, chance: 0.5, requeued: None };
        match next(wanted, Judgement::unjudged("it failed"), checkpoints, moment, Vec::new()) {
            Next::Decree(decree, _) => *decree,
            Next::Wait(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_restart_that_too_few_can_join_says_nothing_of_its_budget() {
        let decree = decreed(&wanted(&["n0", "n1"]));
        assert!(matches!(&decree.what, What::Run { nodes, .. } if nodes.len() == 2));
        assert!(decree.why.iter().any(|why| why.starts_with("unknown restart 1 of")), "{:?}", decree.why);
        let decree = decreed(&wanted(&["n0"]));
        assert_eq!(decree.what, What::Stop);
        let said = ["1 nodes can join the next attempt; it needs 2", "n1: a GPU is gone"];
        assert_eq!(decree.why, said);
    }

    #[test]
    fn a_node_without_a_supervisor_is_lost() {
        let mut wanted = wanted(&["n0", "n2"]);
        wanted.members.pop();
        let decree = decreed(&wanted);
        let judged = decree.judged.unwrap();
        assert_eq!((judged.verdict.class, judged.verdict.hosts()), (Class::Node, vec!["n1".to_owned()]));
        assert_eq!(judged.verdict.cause, Cause::NodeLost);
    }
}
