//! Long operations that run in threads: collecting and judging evidence, ending an attempt, making a decision.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ringleader_model::{Cause, Class, Confidence};
use ringleader_run::agree::{Decree, Judged, Machine, Member, Out, What, World, first_traceback, together};
use ringleader_run::decide::{self, Action, Decision, Failed, Failure, Site};
use ringleader_run::judgement::Judgement;
use ringleader_run::policy::Policy;
use ringleader_run::state::now;
use ringleader_run::tree;
use rustix::process::Signal;

use crate::run::doubt::{self, Silence};
use crate::run::evidence::{self, Evidence};
use crate::run::judge;
use crate::run::resume::Checkpoints;
use crate::watch::incident::{self, ToCollect};

/// Interval between checks while processes end.
const NAP: Duration = Duration::from_millis(50);
/// Longest wait for a growing checkpoint beyond the grace period.
const SAVING: Duration = Duration::from_mins(1);

/// An operation in progress.
pub(crate) struct Duty<T> {
    answer: Receiver<T>,
}

impl<T: Send + 'static> Duty<T> {
    fn begin(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            // The supervisor may have exited.
            let _ = sender.send(work());
        });
        Self { answer }
    }

    /// The result, once there is one; the inner option is None if the thread panicked.
    #[expect(clippy::option_option, reason = "three outcomes: pending, panicked, a result")]
    pub(crate) fn taken(&self) -> Option<Option<T>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(Some(answer)),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(None),
        }
    }
}

/// Evidence and its diagnosis.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) judgement: Judgement,
    /// The report for people.
    pub(crate) text: String,
    /// The cause in that report; the verdict also rests on what is not in the evidence.
    pub(crate) cause: Cause,
    /// Ranks of this node that were observed running.
    pub(crate) ranks: Vec<u32>,
    /// Why the verdict does not explain the job's silence.
    pub(crate) doubt: Option<String>,
}

/// Collects the evidence, shares it with the other nodes, and judges it. `silence`: the job may only be busy.
pub(crate) fn collect(
    wanted: ToCollect,
    folder: PathBuf,
    silence: Option<Silence>,
    nodes: Vec<String>,
    share: Option<(Evidence, u64)>,
) -> Duty<Found> {
    Duty::begin(move || {
        let ranks = ranks_of(&wanted.events);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (bundle, _) = incident::collect(&wanted, &folder)?;
            // If it cannot be shared, this node's verdict still counts.
            let _ = share.map(|(evidence, generation)| evidence.share(generation, &bundle));
            incident::judge(&[bundle])
        }));
        let unjudged = |why: String| Found {
            judgement: Judgement::unjudged(&why),
            text: String::new(),
            cause: Cause::Undecided,
            ranks: ranks.clone(),
            doubt: None,
        };
        match outcome {
            Ok(Ok(judged)) => {
                let judgement = judge::judged(&judged.report, &judged.bundle, &nodes);
                let doubt = silence.and_then(|silence| doubt::of(&judged.report, &judgement, &silence));
                let (text, cause) = (shown(&judged.report), judged.report.verdict.cause());
                Found { judgement, text, cause, ranks: ranks.clone(), doubt }
            }
            Ok(Err(failure)) => unjudged(failure.message()),
            Err(_) => unjudged(crate::failure::our_bug()),
        }
    })
}

/// Ranks that occur in the watcher's events.
fn ranks_of(events: &str) -> Vec<u32> {
    let of_event = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        (event.get("event")?.as_str()? == "ranks").then_some(())?;
        let rank = |row: &serde_json::Value| row.get("rank")?.as_u64()?.try_into().ok();
        Some(event.get("ranks")?.as_array()?.iter().filter_map(rank).collect::<Vec<u32>>())
    };
    events.lines().rev().find_map(of_event).unwrap_or_default()
}

fn shown(report: &ringleader_report::json::Report) -> String {
    let look = crate::terminal::look(crate::terminal::Color::Never, None, ringleader_report::Detail::Usual);
    ringleader_report::text::render(report, &look)
}

/// How to end an attempt.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) holder: u32,
    pub(crate) launcher: u32,
    pub(crate) grace: Duration,
    /// The launcher forwards SIGTERM, and starts new workers if a worker ends in any other way.
    pub(crate) is_elastic: bool,
    /// The job has already been asked to end.
    pub(crate) is_told: bool,
    pub(crate) checkpoints: Option<PathBuf>,
}

/// Ends the processes of an attempt with the least loss: asks all ranks at the same time, so that none waits for a rank
/// that is gone; waits for a checkpoint that is being written; then kills the rest.
pub(crate) fn end(how: End) -> Duty<()> {
    Duty::begin(move || {
        let own = std::process::id();
        let members = || tree::members(how.holder, Some(own));
        let begun = Instant::now();
        for member in members().iter().filter(|_| !how.is_told) {
            let is_launcher = member.pid == how.launcher;
            if is_launcher || !how.is_elastic && is_rank(member.pid) {
                tree::signal(member, Signal::TERM);
            }
            if member.state == "T" {
                // A stopped process receives no other signal.
                tree::signal(member, Signal::CONT);
                tree::signal(member, Signal::TERM);
            }
        }
        let mut saved = newest(how.checkpoints.as_deref());
        let mut saving = Instant::now();
        loop {
            let left = members();
            if left.is_empty() {
                return;
            }
            let late = begun.elapsed().saturating_sub(how.grace);
            if !late.is_zero() {
                let found = newest(how.checkpoints.as_deref());
                if found != saved {
                    (saved, saving) = (found, Instant::now());
                }
                let is_saving = saving.elapsed() < Duration::from_secs(2) && late < SAVING && saved.is_some();
                if !is_saving || late >= SAVING {
                    for member in &left {
                        tree::signal(member, Signal::KILL);
                    }
                }
                // Processes that wait for a driver may take longer: the holder takes care of them.
                if late >= SAVING + Duration::from_secs(10) {
                    return;
                }
            }
            thread::sleep(NAP);
        }
    })
}

fn is_rank(pid: u32) -> bool {
    ringleader_collect::follow::rank_env(Path::new("/proc"), pid).is_some_and(|env| env.rank.is_some())
}

/// Newest modification time in a folder of checkpoints, and the length of that file.
fn newest(dir: Option<&Path>) -> Option<(SystemTime, u64)> {
    fn look(dir: &Path, depth: u32, newest: &mut Option<(SystemTime, u64)>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(1_000) {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth > 0 {
                look(&entry.path(), depth - 1, newest);
            } else if let Ok(modified) = metadata.modified() {
                *newest = (*newest).max(Some((modified, metadata.len())));
            }
        }
    }
    let mut found = None;
    look(dir?, 2, &mut found);
    found
}

/// Input of a decision.
pub(crate) struct ToDecide {
    pub(crate) policy: Policy,
    pub(crate) past: Vec<Failed>,
    pub(crate) halted: Decree,
    pub(crate) members: Vec<Member>,
    pub(crate) fit: Vec<String>,
    /// Those that were excluded until now.
    pub(crate) back: Vec<String>,
    pub(crate) n_nodes: usize,
    pub(crate) min_nodes: usize,
    pub(crate) resumed_from: Option<u64>,
    /// Ranks on each node by the command line.
    pub(crate) per_node: Option<u32>,
    /// Waiting for further nodes is over.
    pub(crate) is_late: bool,
    /// This node.
    pub(crate) node: String,
    /// Access to the evidence of other nodes.
    pub(crate) evidence: Option<Evidence>,
    /// A verdict for tests.
    pub(crate) planted: Option<PathBuf>,
}

/// Outcome of a decision.
pub(crate) enum Next {
    /// The next decree, and remarks.
    Decree(Box<Decree>, Vec<String>),
    /// Further nodes are waited for, and why.
    Wait(String),
}

/// Judges the evidence of all nodes and decides.
pub(crate) fn decide(wanted: ToDecide) -> Duty<Next> {
    Duty::begin(move || next(&wanted))
}

fn next(wanted: &ToDecide) -> Next {
    let nodes = nodes_of(&wanted.halted);
    let mut notes = Vec::new();
    let mut verdict =
        planted(wanted.planted.as_deref()).unwrap_or_else(|| judged_together(wanted, &nodes, &mut notes));
    let lost: Vec<String> = nodes
        .iter()
        .filter(|node| !wanted.members.iter().any(|member| member.node == **node))
        .cloned()
        .collect();
    if !lost.is_empty() {
        verdict = lost_nodes(&lost, verdict);
    }
    let step = wanted.members.iter().filter_map(|member| member.step).max();
    let told = wanted.members.iter().find_map(|member| member.told.clone());
    let traceback = first_traceback(&wanted.members);
    let failure = Failure {
        attempt: wanted.halted.generation as u32,
        at: now(),
        judgement: &verdict,
        told: told.as_deref(),
        step,
        resumed_from: wanted.resumed_from,
    };
    let fit_of: Vec<String> = wanted.fit.iter().filter(|node| nodes.contains(node)).cloned().collect();
    let spares: Vec<String> = wanted.fit.iter().filter(|node| !nodes.contains(node)).cloned().collect();
    let n_given = wanted.fit.len().max(nodes.len() + spares.len()) + wanted.halted.excluded.len();
    let is_alone = wanted.n_nodes <= 1 && spares.is_empty();
    let worlds = worlds(wanted, &nodes);
    let checkpoints = Checkpoints::look(&wanted.policy, &worlds, wanted.per_node);
    let n_least = checkpoints.least(wanted.min_nodes.max(1), wanted.n_nodes.max(1));
    let site = Site {
        nodes: if is_alone {
            nodes.clone()
        } else {
            nodes.iter().filter(|node| fit_of.contains(node) || lost.contains(node)).cloned().collect()
        },
        spares,
        excluded: wanted.halted.excluded.clone(),
        min_nodes: n_least,
        n_given,
        requeued: requeued(),
    };
    let mut decision = decide::decide(&wanted.policy, &wanted.past, &failure, &site, chance());
    if verdict.class == Class::Node {
        decision.why.extend(checkpoints.reason(wanted.min_nodes.max(1), n_least));
    }
    if wanted.fit.len() < wanted.min_nodes.max(1) && matches!(decision.action, Action::Restart { .. }) {
        stop_short(&mut decision, wanted);
    }
    if matches!(decision.action, Action::Restart { .. }) && !wanted.back.is_empty() {
        let names = wanted.back.join(", ");
        decision
            .why
            .push(format!("{names}: was left out, has passed the preflight check again and may join"));
    }
    let mut size = Ok(wanted.n_nodes.max(1));
    if let Action::Restart { without, .. } = &decision.action
        && !is_alone
    {
        let n_fit = wanted.fit.iter().filter(|node| !without.contains(node)).count();
        size = checkpoints.nodes(wanted.min_nodes.max(1), n_fit.min(wanted.n_nodes.max(1)));
    }
    match &size {
        // The missing nodes may return.
        Err(why) if !wanted.is_late => return Next::Wait(why.clone()),
        Err(why) => {
            stop(&mut decision);
            decision.why.push(why.clone());
        }
        Ok(_) => {}
    }
    let mut excluded = wanted.halted.excluded.clone();
    let what = match &decision.action {
        Action::Requeue { .. } | Action::Stop => What::Stop,
        Action::Restart { without, pause_s } => {
            excluded.extend(without.iter().cloned());
            let joins = |node: &&String| !excluded.contains(node);
            let size = size.unwrap_or(wanted.n_nodes.max(1));
            let nodes: Vec<String> = wanted.fit.iter().filter(joins).take(size).cloned().collect();
            let (checkpoint, said) = checkpoints.chosen(nodes.len());
            notes.extend(said);
            What::Run { nodes, pause_s: *pause_s, checkpoint }
        }
    };
    let why = decision.why.clone();
    let mut decree = Machine::next(&wanted.halted, what, excluded, why);
    decree.worlds = worlds;
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
    decree.judged =
        Some(Box::new(Judged { verdict, decision, step, told, by: wanted.node.clone(), traceback }));
    Next::Decree(Box::new(decree), notes)
}

/// There is no evidence of the cause, but the whole job has seen that these nodes are gone.
fn lost_nodes(lost: &[String], verdict: Judgement) -> Judgement {
    let culprit =
        |node: &String| ringleader_run::judgement::Culprit { host: Some(node.clone()), ..Default::default() };
    Judgement {
        cause: Cause::NodeLost.into(),
        class: Class::Node,
        confidence: Confidence::High,
        summary: format!("{}: its supervisor is silent and the job hangs", lost.join(", ")),
        culprits: lost.iter().map(culprit).collect(),
        ..verdict
    }
}

/// The restart that was decided on is not possible.
fn stop(decision: &mut Decision) {
    let restart = format!("{} restart ", decision.charged);
    decision.why.retain(|why| !why.starts_with(&restart));
    decision.action = Action::Stop;
}

/// Too few nodes can join: the job stops.
fn stop_short(decision: &mut Decision, wanted: &ToDecide) {
    stop(decision);
    let least = wanted.min_nodes.max(1);
    decision.why.push(format!("{} nodes can join the next attempt; it needs {least}", wanted.fit.len()));
    let unfit = wanted.members.iter().filter_map(|member| Some((&member.node, member.unfit.as_ref()?)));
    decision.why.extend(unfit.map(|(node, why)| format!("{node}: {why}")));
}

fn nodes_of(halted: &Decree) -> Vec<String> {
    match &halted.what {
        What::Halt { nodes, .. } | What::Run { nodes, .. } => nodes.clone(),
        What::Done | What::Stop => Vec::new(),
    }
}

/// The sizes of the attempts, including the halted one.
fn worlds(wanted: &ToDecide, nodes: &[String]) -> Vec<World> {
    let ranks = wanted.members.iter().filter_map(|member| member.ranks).max();
    World::with(&wanted.halted.worlds, ranks.map(|ranks| World { nodes: nodes.len(), ranks }))
}

/// How often Slurm has requeued this job; None without a scheduler that could.
fn requeued() -> Option<u32> {
    std::env::var_os("SLURM_JOB_ID")?;
    let count = std::env::var("SLURM_RESTART_COUNT").ok();
    Some(count.and_then(|count| count.parse().ok()).unwrap_or(0))
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64
}

fn planted(path: Option<&Path>) -> Option<Judgement> {
    let path = path?;
    let judgement = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    // It is used only once.
    std::fs::remove_file(path).ok()?;
    Some(judgement)
}

/// Judges the bundles of all nodes as one job: those readable from here, and those that their nodes put into the hub.
/// If there is only one, the most certain verdict of all nodes counts.
fn judged_together(wanted: &ToDecide, nodes: &[String], notes: &mut Vec<String>) -> Judgement {
    let members = &wanted.members;
    let bundles = evidence::of_all(members, wanted.evidence.as_ref(), wanted.halted.generation, notes);
    let apart = together(members);
    if members.len() < 2 || bundles.len() < 2 {
        return apart;
    }
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| incident::judge(&bundles))) {
        Ok(Ok(judged)) => {
            let joint = judge::judged(&judged.report, &judged.bundle, nodes);
            // A node's own verdict also rests on how its launcher ended, which no bundle shows.
            let is_weaker = judge::says_no_cause(&joint) && !judge::says_no_cause(&apart);
            // A node has seen that the job went on after it.
            let is_doubted = members.iter().filter_map(|member| member.judgement.as_ref()?.doubted.as_ref());
            let is_doubted = is_doubted.into_iter().any(|cause| *cause == joint.cause);
            let says_nothing = joint.cause.says_nothing();
            if is_weaker || is_doubted || says_nothing { apart } else { joint }
        }
        _ => apart,
    }
}
