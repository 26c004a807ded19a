//! What takes its time and is done in threads: evidence collected and judged, an attempt ended, a decision made.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ringleader_run::agree::{Decree, Judged, Machine, Member, Out, What, together};
use ringleader_run::checkpoint;
use ringleader_run::decide::{self, Action, Failed, Failure, Site};
use ringleader_run::journal::Chosen;
use ringleader_run::judgement::Judgement;
use ringleader_run::policy::Policy;
use ringleader_run::state::now;
use ringleader_run::tree;
use rustix::process::Signal;

use crate::run::evidence::{self, Evidence};
use crate::run::judge;
use crate::watch::incident::{self, ToCollect};

/// Between two looks while processes end.
const NAP: Duration = Duration::from_millis(50);
/// A checkpoint that grows is waited for no longer than this beyond the grace.
const SAVING: Duration = Duration::from_mins(1);

/// A thing under way.
pub(crate) struct Duty<T> {
    answer: Receiver<T>,
}

impl<T: Send + 'static> Duty<T> {
    fn begin(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            // The supervisor may have ended.
            let _ = sender.send(work());
        });
        Self { answer }
    }

    /// What came of it, once it is there; the inner one is None if its thread broke off.
    #[expect(clippy::option_option, reason = "three outcomes: not there yet, broken off, an answer")]
    pub(crate) fn taken(&self) -> Option<Option<T>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(Some(answer)),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(None),
        }
    }
}

/// Evidence and what it was found to be.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) judgement: Judgement,
    /// The report for people.
    pub(crate) text: String,
    /// Ranks of this node that were seen to run.
    pub(crate) ranks: Vec<u32>,
}

/// Collects what is wanted, passes it to the other nodes, and judges it.
pub(crate) fn collect(
    wanted: ToCollect,
    folder: PathBuf,
    nodes: Vec<String>,
    share: Option<(Evidence, u64)>,
) -> Duty<Found> {
    Duty::begin(move || {
        let ranks = ranks_of(&wanted.events);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (bundle, _) = incident::collect(&wanted, &folder)?;
            // Where it cannot be passed on, this node's verdict still counts.
            let _ = share.map(|(evidence, generation)| evidence.share(generation, &bundle));
            incident::judge(&[bundle])
        }));
        let unjudged = |why: String| Found {
            judgement: Judgement::unjudged(&why),
            text: String::new(),
            ranks: ranks.clone(),
        };
        match outcome {
            Ok(Ok(judged)) => Found {
                judgement: judge::judged(&judged.report, &judged.bundle, &nodes),
                text: shown(&judged.report),
                ranks: ranks.clone(),
            },
            Ok(Err(failure)) => unjudged(failure.message()),
            Err(_) => unjudged(crate::failure::our_bug()),
        }
    })
}

/// Ranks that the watcher saw, in its own events.
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
    /// The launcher passes SIGTERM on, and starts new workers if one ends otherwise.
    pub(crate) is_elastic: bool,
    /// The job has been told to end already.
    pub(crate) is_told: bool,
    pub(crate) checkpoints: Option<PathBuf>,
}

/// Ends what runs of an attempt, in the order that loses least: all ranks at once are asked, so that nobody waits for one
/// that is gone; a checkpoint that is being written is waited for; then the rest is killed.
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
                // What is stopped hears nothing else.
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
                // What waits for a driver may take longer: the holder goes on with it.
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

/// When anything in a folder of checkpoints was written last, and how long it is.
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

/// What a decision needs.
pub(crate) struct ToDecide {
    pub(crate) policy: Policy,
    pub(crate) past: Vec<Failed>,
    pub(crate) halted: Decree,
    pub(crate) members: Vec<Member>,
    pub(crate) fit: Vec<String>,
    /// Those of them that were left out until now.
    pub(crate) back: Vec<String>,
    pub(crate) n_nodes: usize,
    pub(crate) min_nodes: usize,
    pub(crate) resumed_from: Option<u64>,
    /// Own node.
    pub(crate) node: String,
    /// Reaches the evidence of other nodes.
    pub(crate) evidence: Option<Evidence>,
    /// A verdict for tests.
    pub(crate) planted: Option<PathBuf>,
}

/// Judges the evidence of all nodes and decides; answers with the next decree and remarks.
pub(crate) fn decide(wanted: ToDecide) -> Duty<(Decree, Vec<String>)> {
    Duty::begin(move || next(&wanted))
}

fn next(wanted: &ToDecide) -> (Decree, Vec<String>) {
    let nodes = match &wanted.halted.what {
        What::Halt { nodes, .. } | What::Run { nodes, .. } => nodes.clone(),
        What::Done | What::Stop => Vec::new(),
    };
    let mut notes = Vec::new();
    let mut verdict =
        planted(wanted.planted.as_deref()).unwrap_or_else(|| judged_together(wanted, &nodes, &mut notes));
    let lost: Vec<String> = nodes
        .iter()
        .filter(|node| !wanted.members.iter().any(|member| member.node == **node))
        .cloned()
        .collect();
    if !lost.is_empty() {
        // No evidence speaks of it, but the whole job has seen that it is gone.
        verdict = Judgement {
            cause: "node-lost".to_owned(),
            class: ringleader_model::Class::Node,
            confidence: ringleader_model::Confidence::High,
            summary: format!("{}: its supervisor is silent and the job hangs", lost.join(", ")),
            culprits: lost
                .iter()
                .map(|node| ringleader_run::judgement::Culprit {
                    host: Some(node.clone()),
                    ..Default::default()
                })
                .collect(),
            ..verdict
        };
    }
    let step = wanted.members.iter().filter_map(|member| member.step).max();
    let told = wanted.members.iter().find_map(|member| member.told.clone());
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
    let site = Site {
        nodes: if is_alone {
            nodes.clone()
        } else {
            nodes.iter().filter(|node| fit_of.contains(node) || lost.contains(node)).cloned().collect()
        },
        spares,
        excluded: wanted.halted.excluded.clone(),
        min_nodes: wanted.min_nodes,
        n_given,
        requeued: requeued(),
    };
    let mut decision = decide::decide(&wanted.policy, &wanted.past, &failure, &site, chance());
    if wanted.fit.len() < wanted.min_nodes.max(1) && matches!(decision.action, Action::Restart { .. }) {
        decision.action = Action::Stop;
        let least = wanted.min_nodes.max(1);
        decision
            .why
            .push(format!("{} nodes can join the next attempt, and it needs {least}", wanted.fit.len()));
        let unfit = wanted.members.iter().filter_map(|member| Some((&member.node, member.unfit.as_ref()?)));
        decision.why.extend(unfit.map(|(node, why)| format!("{node}: {why}")));
    }
    if matches!(decision.action, Action::Restart { .. }) && !wanted.back.is_empty() {
        let names = wanted.back.join(", ");
        decision.why.push(format!("{names}: left out before, has passed the examination again and may join"));
    }
    let mut excluded = wanted.halted.excluded.clone();
    let what = match &decision.action {
        Action::Requeue { .. } | Action::Stop => What::Stop,
        Action::Restart { without, pause_s } => {
            excluded.extend(without.iter().cloned());
            let joins = |node: &&String| !excluded.contains(node);
            let nodes: Vec<String> =
                wanted.fit.iter().filter(joins).take(wanted.n_nodes.max(1)).cloned().collect();
            let (checkpoint, said) = newest_checkpoint(&wanted.policy);
            notes.extend(said);
            What::Run { nodes, pause_s: *pause_s, checkpoint }
        }
    };
    let why = decision.why.clone();
    let mut decree = Machine::next(&wanted.halted, what, excluded, why);
    decree.outs = Out::with(&wanted.halted.outs, decision.action.without(), &lost, failure.at);
    decree.judged = Some(Box::new(Judged { verdict, decision, step, told, by: wanted.node.clone() }));
    (decree, notes)
}

/// How often Slurm has started this job again; None where no scheduler could.
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
    // Used once.
    std::fs::remove_file(path).ok()?;
    Some(judgement)
}

/// Bundles of all nodes are judged as one job: those that can be read from here, and those that their nodes have put into the
/// hub. Where there is only one, the most certain verdict of all nodes counts.
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
            if matches!(joint.cause.as_str(), "none" | "undecided") { apart } else { joint }
        }
        _ => apart,
    }
}

/// The newest checkpoint that is complete, and what is to be said of it.
pub(crate) fn newest_checkpoint(policy: &Policy) -> (Option<Chosen>, Vec<String>) {
    let Some(dir) = &policy.checkpoint.dir else { return (None, Vec::new()) };
    let options = checkpoint::Options { hash: policy.checkpoint.hash };
    match checkpoint::search(Path::new(dir), options) {
        Ok(search) => {
            let mut notes = search.notes.clone();
            for passed in search.passed_over() {
                notes.push(format!("checkpoint passed over: {passed}"));
            }
            if let Some(found) = search.chosen() {
                let step = found.step.map_or_else(String::new, |step| format!(" of step {step}"));
                notes.push(format!("checkpoint{step}: {} ({})", found.path.display(), found.layout.name()));
            }
            (search.record(), notes)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, Vec::new()),
        Err(error) => (None, vec![format!("checkpoints in {dir}: {error}")]),
    }
}
