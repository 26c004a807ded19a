//! Long operations that run in threads: collecting and judging evidence, ending an attempt, making a decision.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ringleader_model::Cause;
use ringleader_run::agree::together;
use ringleader_run::doubt::{self, Silence};
use ringleader_run::judge;
use ringleader_run::judgement::{Diagnosed, Judgement};
use ringleader_run::next::{self, Moment, Next, ToDecide};
use ringleader_run::resume::{Checkpoints, Remark};
use ringleader_run::stall::{EngineReport, Examination};
use ringleader_run::state::now;
use ringleader_run::tree;
use ringleader_watch::event::{Event, What};
use rustix::process::Signal;

use crate::Diagnosis;
use crate::failure::Failure;
use crate::run::evidence::{self, RemoteEvidence};
use crate::watch::incident::{self, ToCollect};
use crate::watch::words;

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

impl Examination for Duty<Diagnosed> {
    fn taken(&self) -> Option<Option<Diagnosed>> {
        Self::taken(self)
    }
}

/// What the engine reports of stuck operations.
pub(crate) fn reports(events: &[Event]) -> Vec<EngineReport> {
    let report = |event: &Event| match &event.what {
        What::Stall(stall) => Some(EngineReport::Stuck(words::headline(stall))),
        What::Recovered { .. } | What::Over { .. } => Some(EngineReport::Moving),
        _ => None,
    };
    events.iter().filter_map(report).collect()
}

/// Collects the evidence, shares it with the other nodes, and judges it. `silence`: the job may only be busy.
pub(crate) fn collect(
    wanted: ToCollect,
    folder: PathBuf,
    silence: Option<Silence>,
    nodes: Vec<String>,
    share: Option<(RemoteEvidence, u64)>,
) -> Duty<Diagnosed> {
    Duty::begin(move || {
        let ranks = ranks_of(&wanted.events);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (bundle, _) = incident::collect(&wanted, &folder)?;
            // If it cannot be shared, this node's verdict still counts.
            let _ = share.map(|(evidence, generation)| evidence.share(generation, &bundle));
            let diagnosis = crate::diagnose(std::slice::from_ref(&bundle), false)?;
            let report = diagnosis.report();
            Ok::<_, Failure>((diagnosis, report, bundle))
        }));
        let unjudged = |why: String| Diagnosed {
            judgement: Judgement::unjudged(&why),
            text: String::new(),
            cause: Cause::Undecided,
            ranks: ranks.clone(),
            doubt: None,
        };
        match outcome {
            Ok(Ok((diagnosis, report, bundle))) => {
                let Diagnosis { case, verdict, picture } = &diagnosis;
                let judgement = judge::judged(case, verdict, &bundle, &nodes);
                let doubt = silence.and_then(|silence| doubt::of(verdict, picture, &judgement, &silence));
                let (text, cause) = (shown(&report), verdict.cause);
                Diagnosed { judgement, text, cause, ranks: ranks.clone(), doubt }
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
pub(crate) struct Termination {
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
pub(crate) fn end(how: Termination) -> Duty<()> {
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

/// Judges the evidence of all nodes and decides. `from`: access to the evidence of other nodes; `verdict`: a file with one, for tests.
pub(crate) fn decide(wanted: ToDecide, from: Option<RemoteEvidence>, verdict: Option<PathBuf>) -> Duty<Next> {
    Duty::begin(move || {
        let mut notes = Vec::new();
        let verdict = planted(verdict.as_deref())
            .unwrap_or_else(|| judged_together(&wanted, from.as_ref(), &mut notes));
        let worlds = wanted.worlds();
        let checkpoints = Checkpoints::look(&wanted.policy, &worlds, wanted.per_node);
        let moment = Moment { at: now(), chance: chance(), requeued: requeued() };
        let remarks = notes.into_iter().map(Remark::Other).collect();
        next::next(&wanted, verdict, checkpoints, moment, remarks)
    })
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
fn judged_together(wanted: &ToDecide, from: Option<&RemoteEvidence>, notes: &mut Vec<String>) -> Judgement {
    let members = &wanted.members;
    let bundles = evidence::of_all(members, from, wanted.halted.generation, notes);
    let [bundle, _, ..] = bundles.as_slice() else { return together(members) };
    if members.len() < 2 {
        return together(members);
    }
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| crate::diagnose(&bundles, false))) {
        Ok(Ok(diagnosis)) => {
            let joint = judge::judged(&diagnosis.case, &diagnosis.verdict, bundle, &wanted.nodes());
            judge::weighed(joint, members)
        }
        _ => together(members),
    }
}
