//! Agreement of several supervisors on one verdict and one next attempt. A pure state machine: the content of the
//! store, the state of its node and the time are arguments; it returns the actions to take.
//!
//! The store holds one [`Decree`], replaced only by the next number, and a [`Announcement`] for each live supervisor, which
//! expires with its lease. A proposal names the number that was read, so only one of several proposals wins. Every
//! start of a launcher belongs to a decree, and generations only grow: a node that returns late ends what it still runs
//! of an older generation, and starts nothing that was decided without it.
//!
//! ```text
//! (nothing) ─> Run 1 ─> Halt 1 ─> Run 2 ─> … ─> Done | Stop
//! ```
//! * `Run g`: the named nodes start generation g. A node whose launcher failed or whose job hangs proposes `Halt g`.
//! * `Halt g`: every node of g collects evidence, ends its part and announces that. When all live nodes have done so
//!   and the others have been silent for long enough, one node decides.
//! * A silent supervisor alone does not end the job; a silent supervisor together with a job that is known to hang does.
//! * An excluded or unreachable node rejoins once it has passed the preflight check and the policy's time is over
//!   ([`Out::is_back`]): at the next attempt, never during one.
//! * A node that cannot read or write the store starts nothing, and does not touch what runs.

use std::collections::BTreeMap;

use ringleader_model::Cause;
use ringleader_model::address::same_host;
use serde::{Deserialize, Serialize};

use crate::decide::{Decision, Failed};
use crate::journal::Chosen;
use crate::judgement::Judgement;

/// What all supervisors have agreed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decree {
    /// Number, from 1.
    pub seq: u64,
    /// Generation, from 1: grows with every attempt.
    pub generation: u64,
    /// When it was proposed, seconds since 1970 by the clock of the node that proposed it: the same on all nodes.
    #[serde(default)]
    pub at: f64,
    /// The action.
    pub what: What,
    /// Excluded nodes, in the order of their exclusion.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// Every node that was ever excluded, including those that have rejoined.
    #[serde(default)]
    pub outs: Vec<Out>,
    /// The newest failures, oldest first: a node that joins late has no other record of them. Budgets, back-off and repetition
    /// are counted from these.
    #[serde(default)]
    pub past: Vec<Failed>,
    /// Nodes and ranks of the attempts so far, each pair once, the newest last.
    #[serde(default)]
    pub worlds: Vec<World>,
    /// Why, sentence by sentence.
    #[serde(default)]
    pub why: Vec<String>,
    /// The diagnosis of the previous failure and the decision on it: every node writes it to its journal.
    #[serde(default)]
    pub judged: Option<Box<Judged>>,
}

impl Decree {
    /// The attempt whose failure it decides on.
    pub fn failed(&self) -> u32 {
        let is_run = matches!(self.what, What::Run { .. });
        self.generation.saturating_sub(u64::from(is_run)) as u32
    }
}

/// Size of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of ranks.
    pub ranks: u32,
}

/// Most sizes that are remembered.
const MAX_WORLDS: usize = 16;

impl World {
    /// The earlier sizes and a new one.
    pub fn with(before: &[Self], new: Option<Self>) -> Vec<Self> {
        let Some(new) = new else { return before.to_vec() };
        let others: Vec<Self> = before.iter().copied().filter(|world| *world != new).collect();
        let n_old = (others.len() + 1).saturating_sub(MAX_WORLDS);
        others.into_iter().skip(n_old).chain([new]).collect()
    }

    /// Ranks on each node, if all have as many.
    pub fn per_node(self) -> Option<u32> {
        let nodes = u32::try_from(self.nodes).ok().filter(|nodes| *nodes > 0)?;
        self.ranks.is_multiple_of(nodes).then_some(self.ranks / nodes).filter(|n| *n > 0)
    }
}

/// The exclusion of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Out {
    /// Its name.
    pub node: String,
    /// Time of the last exclusion: seconds since 1970 by the clock of the node that decided.
    pub at: f64,
    /// Number of exclusions so far.
    pub times: u32,
    /// The last exclusion was only because of its silence.
    pub was_lost: bool,
}

impl Out {
    /// The earlier exclusions and the new ones; `lost` are nodes excluded only because of their silence.
    pub fn with(before: &[Self], without: &[String], lost: &[String], at: f64) -> Vec<Self> {
        let mut outs = before.to_vec();
        for node in without {
            let was_lost = lost.contains(node);
            match outs.iter_mut().find(|out| out.node == *node) {
                Some(out) => (out.at, out.times, out.was_lost) = (at, out.times + 1, was_lost),
                None => outs.push(Self { node: node.clone(), at, times: 1, was_lost }),
            }
        }
        outs
    }

    /// Whether it may rejoin. `after_s`: the policy's time after the first exclusion, None for never; each further
    /// exclusion lasts four times as long. The first time, a node that was only silent may rejoin at once.
    pub fn is_back(&self, wall_s: f64, after_s: Option<f64>) -> bool {
        let Some(after_s) = after_s else { return false };
        let n = self.times.saturating_sub(u32::from(self.was_lost));
        let wait_s = if n == 0 { 0.0 } else { after_s * 4_f64.powi((n - 1).min(16) as i32) };
        wall_s >= self.at + wait_s
    }
}

/// A failure and the decision on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its diagnosis.
    pub verdict: Judgement,
    /// The decision.
    pub decision: Decision,
    /// The last step that any node printed.
    pub step: Option<u64>,
    /// Why the job was ended from outside, if it was.
    pub told: Option<String>,
    /// Node that decided: it alone calls schedulers and webhooks.
    #[serde(default)]
    pub by: String,
    /// The traceback of the first rank that failed, of all nodes.
    #[serde(default)]
    pub traceback: Vec<String>,
}

/// The action that a decree orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Run the attempt of this generation.
    Run {
        /// Nodes in rank order: the first hosts the rendezvous.
        nodes: Vec<String>,
        /// Pause before the start, seconds.
        pause_s: f64,
        /// The checkpoint to start from.
        checkpoint: Option<Chosen>,
    },
    /// End the attempt of this generation.
    Halt {
        /// Its nodes.
        nodes: Vec<String>,
        /// Node that asked for it.
        by: String,
    },
    /// The job is complete.
    Done,
    /// No further attempt.
    #[default]
    Stop,
}

/// What a supervisor announces to the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Announcement {
    /// Its node.
    pub node: String,
    /// Address under which other nodes reach it.
    pub address: String,
    /// Generation that it could join: its node has passed the preflight check for it.
    pub ready_for: u64,
    /// Why its node cannot join.
    pub unfit: Option<String>,
    /// Generation whose launcher runs on the node.
    pub running: Option<u64>,
    /// Generation whose launcher has succeeded.
    pub succeeded: u64,
    /// Generation that has been ended and judged on this node.
    pub halted: u64,
    /// Generation whose evidence has been collected on this node: its ranks may be ended.
    pub collected: u64,
    /// Path of its evidence.
    pub bundle: Option<String>,
    /// Its diagnosis.
    pub judgement: Option<Judgement>,
    /// The traceback of the first of its ranks that failed.
    pub traceback: Vec<String>,
    /// When its launcher ended by itself, seconds since 1970 by its own clock.
    pub failed_at: Option<f64>,
    /// Why the node was asked to end, if it was.
    pub told: Option<String>,
    /// Last training step printed in that generation.
    pub step: Option<u64>,
    /// Ranks of the whole job in that generation, as its ranks on this node have it in their environment.
    pub ranks: Option<u32>,
    /// Seconds since its job last made progress, 0 while the pause is a usual one; None if the node cannot see progress: its
    /// ranks may print no steps.
    pub still_s: Option<f64>,
}

/// Content of the store at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreView {
    /// The newest decree.
    pub decree: Option<Decree>,
    /// Live supervisors.
    pub members: Vec<Announcement>,
}

/// Settings that are fixed for the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// This node.
    pub node: String,
    /// Number of nodes the job is started on, if available.
    pub n_nodes: usize,
    /// Smallest number of nodes that it can run on.
    pub min_nodes: usize,
    /// A supervisor that is silent for longer is lost, seconds. Must be longer than a lease.
    pub lost_after_s: f64,
    /// How long to wait for nodes before the job starts with fewer than `n_nodes`, seconds.
    pub join_within_s: f64,
    /// How long to wait while too few nodes are available, before the job is given up, seconds.
    pub give_up_s: f64,
    /// How long to wait for the preflight checks of live nodes after an attempt is over, seconds.
    pub examined_within_s: f64,
    /// Time after which an excluded node may rejoin, seconds; None: never.
    pub back_after_s: Option<f64>,
}

/// State of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Local {
    /// What is announced to the others.
    pub member: Announcement,
    /// The highest generation ever started on this node: the holder keeps it.
    pub launched: u64,
    /// Why the running attempt should be ended: its launcher failed, it hangs, the node was asked to end.
    pub wants_halt: Option<String>,
    /// Seconds since 1970.
    pub wall_s: f64,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Write this decree if its predecessor is still the newest.
    Propose(Decree),
    /// Start the launcher.
    Launch(Decree),
    /// Collect evidence, end the launcher of this generation, judge.
    Halt {
        /// Generation.
        generation: u64,
        /// It is older than the decree: do not judge it.
        is_stale: bool,
    },
    /// Decide what follows this generation, and propose it with [`StateMachine::next`].
    Decide {
        /// The halted decree, without the excluded nodes that may rejoin.
        halted: Decree,
        /// Members that have halted, with their diagnoses.
        members: Vec<Announcement>,
        /// Nodes that can join the next attempt: those of this attempt first, formerly excluded ones last.
        fit: Vec<String>,
        /// Those of `fit` that were excluded until now.
        back: Vec<String>,
        /// Waiting for further nodes is over.
        is_late: bool,
    },
    /// The run is over.
    Finish(Decree),
}

/// The state machine of one node.
#[derive(Clone, Debug)]
pub struct StateMachine {
    config: Config,
    began: Option<f64>,
    /// Since when nodes of the attempt are missing from the members.
    absent: BTreeMap<String, f64>,
    /// The newest decree, and since when.
    since: (u64, f64),
    /// The decree whose attempt has ended completely, and since when.
    settled: (u64, f64),
}

impl StateMachine {
    /// A new machine without any knowledge.
    pub fn new(config: Config) -> Self {
        Self { config, began: None, absent: BTreeMap::new(), since: (0, 0.0), settled: (0, 0.0) }
    }

    /// One step. `view` is None while the store cannot be read.
    pub fn step(&mut self, now: f64, view: Option<&StoreView>, local: &Local) -> Vec<Act> {
        let began = *self.began.get_or_insert(now);
        let Some(view) = view else { return Vec::new() };
        let Some(decree) = &view.decree else { return self.first(now - began, view, local) };
        if self.since.0 != decree.seq {
            self.since = (decree.seq, now);
        }
        self.note_absent(now, view, decree);
        let mut acts = Vec::new();
        // Regardless of the decree, an older generation must not continue to run.
        if let Some(running) = local.member.running
            && running < decree.generation
        {
            acts.push(Act::Halt { generation: running, is_stale: true });
            return acts;
        }
        match &decree.what {
            What::Run { nodes, pause_s, .. } => {
                self.run(now, view, local, decree, nodes, *pause_s, &mut acts);
            }
            What::Halt { nodes, .. } => self.halt(now, view, local, decree, nodes, &mut acts),
            What::Done | What::Stop => acts.push(match local.member.running {
                Some(generation) => Act::Halt { generation, is_stale: true },
                None => Act::Finish(decree.clone()),
            }),
        }
        acts
    }

    /// The successor of a halted decree.
    pub fn next(halted: &Decree, what: What, excluded: Vec<String>, why: Vec<String>) -> Decree {
        let generation = match what {
            What::Run { .. } => halted.generation + 1,
            _ => halted.generation,
        };
        let (outs, past, worlds) = (halted.outs.clone(), halted.past.clone(), halted.worlds.clone());
        Decree {
            seq: halted.seq + 1,
            generation,
            at: 0.0,
            what,
            excluded,
            outs,
            past,
            worlds,
            why,
            judged: None,
        }
    }

    fn is_leader(&self, view: &StoreView) -> bool {
        view.members.iter().map(|member| &member.node).min() == Some(&self.config.node)
    }

    fn first(&self, waited_s: f64, view: &StoreView, local: &Local) -> Vec<Act> {
        if let Some(why) = local.member.told.clone().filter(|_| self.is_leader(view)) {
            let decree = Decree { seq: 1, what: What::Stop, why: vec![why], ..Decree::default() };
            return vec![Act::Propose(decree)];
        }
        let fit = Self::fit(view, 1, &[], &[], &[]);
        let least = self.config.min_nodes.max(1);
        let is_late = waited_s >= self.config.join_within_s;
        let is_enough = fit.len() >= self.config.n_nodes || fit.len() >= least && is_late;
        let is_hopeless = waited_s >= self.config.give_up_s;
        if !self.is_leader(view) || !(is_enough || is_hopeless) {
            return Vec::new();
        }
        if !is_enough {
            let unfit = view.members.iter().filter_map(|member| Some((&member.node, member.unfit.as_ref()?)));
            let mut why = vec![format!("{} nodes of {least} could join within {:.0} s", fit.len(), waited_s)];
            why.extend(unfit.map(|(node, reason)| format!("{node}: {reason}")));
            return vec![Act::Propose(Decree { seq: 1, what: What::Stop, why, ..Decree::default() })];
        }
        let nodes: Vec<String> = fit.into_iter().take(self.config.n_nodes.max(1)).collect();
        let what = What::Run { nodes, pause_s: 0.0, checkpoint: None };
        vec![Act::Propose(Decree { seq: 1, generation: 1, what, ..Decree::default() })]
    }

    /// Nodes that could join a generation: those in `first`, then the others by name, those in `last` at the end.
    fn fit(
        view: &StoreView,
        generation: u64,
        first: &[String],
        last: &[String],
        excluded: &[String],
    ) -> Vec<String> {
        let can = |member: &&Announcement| {
            member.ready_for >= generation
                && member.unfit.is_none()
                && member.told.is_none()
                && member.running.is_none()
                && !excluded.iter().any(|node| same_host(node, &member.node))
        };
        let mut fit: Vec<String> =
            view.members.iter().filter(can).map(|member| member.node.clone()).collect();
        fit.sort_by_key(|node| {
            let place = first.iter().position(|named| named == node).unwrap_or(usize::MAX);
            (place, last.contains(node), node.clone())
        });
        fit
    }

    fn note_absent(&mut self, now: f64, view: &StoreView, decree: &Decree) {
        let (What::Run { nodes, .. } | What::Halt { nodes, .. }) = &decree.what else { return };
        let is_there = |node: &String| view.members.iter().any(|member| member.node == *node);
        self.absent.retain(|node, _| nodes.contains(node) && !is_there(node));
        for node in nodes.iter().filter(|node| !is_there(node)) {
            self.absent.entry(node.clone()).or_insert(now);
        }
    }

    /// Whether a node has been silent long enough to be lost.
    fn is_lost(&self, now: f64, node: &str) -> bool {
        self.absent.get(node).is_some_and(|since| now - since >= self.config.lost_after_s)
    }

    #[expect(clippy::too_many_arguments, reason = "the matched parts of a decree")]
    fn run(
        &self,
        now: f64,
        view: &StoreView,
        local: &Local,
        decree: &Decree,
        nodes: &[String],
        pause_s: f64,
        acts: &mut Vec<Act>,
    ) {
        let generation = decree.generation;
        let halt = |by: &str, why: String| {
            let what = What::Halt { nodes: nodes.to_vec(), by: by.to_owned() };
            Act::Propose(Self::next(decree, what, decree.excluded.clone(), vec![why]))
        };
        if nodes.contains(&self.config.node) {
            // A node that lost power does not know how the attempt ended.
            let is_gone = local.launched >= generation
                && local.member.running.is_none()
                && local.member.succeeded < generation;
            if let Some(why) = &local.wants_halt {
                acts.push(halt(&self.config.node, why.clone()));
            } else if local.member.halted >= generation {
                // It could not be started.
                acts.push(halt(&self.config.node, format!("{} could not start it", self.config.node)));
            } else if is_gone {
                acts.push(halt(&self.config.node, format!("the job on {} is gone", self.config.node)));
            } else if local.launched < generation
                && local.member.halted < generation
                && now - self.since.1 >= pause_s
            {
                // A generation that was ended here is not started again, even if its decree is read late.
                acts.push(Act::Launch(decree.clone()));
            }
        }
        if !self.is_leader(view) {
            return;
        }
        let of = |node: &String| view.members.iter().find(|member| member.node == *node);
        let has_succeeded = |node: &&String| of(node).is_some_and(|member| member.succeeded >= generation);
        let n_succeeded = nodes.iter().filter(has_succeeded).count();
        let silent: Vec<&str> =
            nodes.iter().filter(|node| !has_succeeded(node)).map(String::as_str).collect();
        // A node may be lost after its part was done: if most nodes have succeeded, the job has succeeded.
        if n_succeeded * 2 > nodes.len() && silent.iter().all(|node| self.is_lost(now, node)) {
            let why = if silent.is_empty() {
                Vec::new()
            } else {
                vec![format!("{} is silent; the job succeeded on all others", silent.join(", "))]
            };
            acts.push(Act::Propose(Self::next(decree, What::Done, decree.excluded.clone(), why)));
            return;
        }
        if acts.iter().any(|act| matches!(act, Act::Propose(_))) {
            return;
        }
        let told = view.members.iter().find(|member| nodes.contains(&member.node) && member.told.is_some());
        if let Some(member) = told {
            acts.push(halt(&member.node, format!("{} was asked to end", member.node)));
            return;
        }
        // A silent supervisor alone is not a failure of the job; together with a hanging job it is. One node must know that
        // the job hangs, and none that it goes on: a node that sees no steps knows neither.
        let hangs = |member: &Announcement| match (member.running, member.still_s) {
            (None, _) => Some(true),
            (Some(_), still_s) => still_s.map(|still_s| still_s >= self.config.lost_after_s),
        };
        let known: Vec<bool> = nodes.iter().filter_map(of).filter_map(hangs).collect();
        let is_still = !known.is_empty() && known.iter().all(|hangs| *hangs);
        let has_begun = now - self.since.1 >= pause_s + self.config.lost_after_s;
        let lost: Vec<&str> =
            nodes.iter().filter(|node| self.is_lost(now, node)).map(String::as_str).collect();
        if !lost.is_empty() && is_still && has_begun {
            acts.push(halt(&self.config.node, format!("{} is silent and the job hangs", lost.join(", "))));
        }
    }

    fn halt(
        &mut self,
        now: f64,
        view: &StoreView,
        local: &Local,
        decree: &Decree,
        nodes: &[String],
        acts: &mut Vec<Act>,
    ) {
        let generation = decree.generation;
        if local.member.running == Some(generation)
            || nodes.contains(&self.config.node) && local.member.halted < generation
        {
            acts.push(Act::Halt { generation, is_stale: false });
        }
        if !self.is_leader(view) {
            return;
        }
        let has_halted = |node: &String| {
            view.members
                .iter()
                .any(|member| member.node == *node && member.halted >= generation && member.running.is_none())
        };
        let is_settled = nodes.iter().all(|node| has_halted(node) || self.is_lost(now, node));
        // No live node knows how it ended: the others might still run it.
        if !is_settled || !nodes.iter().any(has_halted) {
            return;
        }
        if self.settled.0 != decree.seq {
            self.settled = (decree.seq, now);
        }
        let stays = self.still_out(decree, local.wall_s);
        let fit = Self::fit(view, generation + 1, nodes, &decree.excluded, &stays);
        let is_told = view.members.iter().any(|member| member.told.is_some());
        let is_late = now - self.since.1 >= self.config.give_up_s;
        if fit.len() < self.config.min_nodes.max(1) && !is_told && !is_late {
            return;
        }
        // Waits for the preflight check of every live node: otherwise it could join only after the next failure.
        let is_open = |member: &Announcement| {
            member.ready_for <= generation && !stays.iter().any(|node| same_host(node, &member.node))
        };
        let waited_s = now - self.settled.1;
        if view.members.iter().any(is_open) && !is_told && waited_s < self.config.examined_within_s {
            return;
        }
        let members = view.members.iter().filter(|member| nodes.contains(&member.node)).cloned().collect();
        let (back, excluded): (Vec<String>, Vec<String>) =
            decree.excluded.iter().cloned().partition(|node| fit.contains(node));
        let halted = Decree { excluded, ..decree.clone() };
        acts.push(Act::Decide { halted, members, fit, back, is_late: is_late || is_told });
    }

    /// Excluded nodes that may not rejoin yet.
    fn still_out(&self, decree: &Decree, wall_s: f64) -> Vec<String> {
        let is_back = |node: &str| {
            let out = decree.outs.iter().find(|out| out.node == node);
            out.is_some_and(|out| out.is_back(wall_s, self.config.back_after_s))
        };
        decree.excluded.iter().filter(|node| !is_back(node)).cloned().collect()
    }
}

/// Combines the verdicts of several nodes on one failure: the most certain one; among equals one that names more than a
/// consequence, then the first by node name. Members without a finding do not count.
pub fn together(members: &[Announcement]) -> Judgement {
    let rank = |member: &&Announcement| {
        let judgement = member.judgement.as_ref()?;
        let is_consequence = matches!(
            judgement.cause.known(),
            Some(
                Cause::None
                    | Cause::Undecided
                    | Cause::PeerProcessDied
                    | Cause::NetworkUnreachable
                    | Cause::MissingRank
            )
        );
        Some((!is_consequence, judgement.confidence, std::cmp::Reverse(member.node.clone())))
    };
    let best = members.iter().filter(|member| member.judgement.is_some()).max_by_key(rank);
    best.and_then(|member| member.judgement.clone())
        .unwrap_or_else(|| Judgement::unjudged("no node could judge the failure"))
}

/// Nodes that still run this generation and have not yet collected its evidence. Once ranks of one node are ended, those of the
/// others report that: the evidence would show it instead of the failure.
pub fn collecting<'a>(members: &'a [Announcement], nodes: &[String], generation: u64) -> Vec<&'a str> {
    let is_open = |member: &&Announcement| {
        nodes.contains(&member.node) && member.running == Some(generation) && member.collected < generation
    };
    members.iter().filter(is_open).map(|member| member.node.as_str()).collect()
}

/// The traceback that a person should see first: of the node whose launcher failed first. Others were ended, or failed as a
/// consequence.
pub fn first_traceback(members: &[Announcement]) -> Vec<String> {
    let at = |member: &&Announcement| member.failed_at.unwrap_or(f64::INFINITY);
    let with = members.iter().filter(|member| !member.traceback.is_empty());
    with.min_by(|a, b| at(a).total_cmp(&at(b))).map(|member| member.traceback.clone()).unwrap_or_default()
}

#[cfg(test)]
mod simulation;
