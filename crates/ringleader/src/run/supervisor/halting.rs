//! The end of an attempt: collect evidence, end its processes with the least loss, then clean up after them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringleader_run::agree::{Decree, collecting};
use ringleader_run::effective::AttemptSpan;
use ringleader_run::journal::RunState;
use ringleader_run::judge;
use ringleader_run::judgement::{Diagnosed, Judgement};
use ringleader_run::state::Order;
use ringleader_run::traceback;

use super::{Halting, Own, Supervisor, TOLD, UNREAD};
use crate::run::{attempt, duty, launch};

/// Longest wait for the evidence of other nodes.
const COLLECTED: Duration = Duration::from_secs(10);

impl Own {
    fn new(generation: u64, found: &Diagnosed) -> Self {
        Self { attempt: generation as u32, cause: found.cause, text: found.text.clone() }
    }
}

impl Supervisor<'_> {
    /// Starts to end an attempt, evidence first.
    pub(super) fn halt(&mut self, generation: u64, is_stale: bool) {
        if self.halting.is_some() {
            return;
        }
        let was_launched = self.held.launched.is_some_and(|launched| launched.generation == generation);
        let exit = self.ended();
        let mut halting = Halting {
            generation,
            is_stale,
            collecting: None,
            collected: None,
            ending: None,
            cleaning: false,
            exit,
        };
        if !is_stale && was_launched && self.state == RunState::Running {
            let span =
                self.running.as_ref().map(|running| AttemptSpan { has_failed: true, ..running.span.clone() });
            self.go(RunState::Failing, |record| (record.exit, record.span) = (exit, span));
        }
        let nodes = self.nodes();
        let evidence = self.evidence();
        if !is_stale {
            // A job may end before it was first looked at.
            self.open_eye();
        }
        if let Some(running) =
            self.running.as_mut().filter(|running| running.generation == generation && !is_stale)
        {
            running.span.has_failed = true;
            halting.collecting = match running.stall.found() {
                Some(found) => {
                    let judgement = found.judgement.clone();
                    // The launcher has seen the end of its ranks for the length of the stall.
                    let judgement = if exit.is_none() && launch::is_elastic(&self.asked.argv) {
                        judge::with_live_launcher(judgement, || attempt::facts(&running.path), &found.ranks)
                    } else {
                        judgement
                    };
                    self.left.judgement = Some(judgement);
                    self.left.bundle.clone_from(&found.judgement.bundle);
                    self.report = Some(Own::new(generation, &found));
                    None
                }
                None => running.eye.as_mut().map(|eye| {
                    // The last records of ranks that have just ended.
                    eye.look(crate::watch::now_ns());
                    let wanted =
                        eye.wanted("the attempt failed".to_owned(), attempt::evidence(&running.path));
                    let share = evidence.map(|evidence| (evidence, generation));
                    duty::collect(wanted, running.path.clone(), None, nodes, share)
                }),
            };
        }
        if halting.collecting.is_some() && self.state == RunState::Failing {
            self.go(RunState::Collecting, |_| {});
        }
        self.halting = Some(halting);
    }

    /// Continues to end an attempt.
    pub(super) fn halt_on(&mut self) {
        let Some(mut halting) = self.halting.take() else { return };
        if let Some(collecting) = &halting.collecting {
            let Some(found) = collecting.taken() else {
                self.halting = Some(halting);
                return;
            };
            halting.collecting = None;
            let judgement = found.as_ref().map(|found| found.judgement.clone());
            let seen = found.as_ref().map(|found| found.ranks.clone()).unwrap_or_default();
            let path = self.running.as_ref().map(|running| running.path.clone());
            let output = || path.map(|path| attempt::facts(&path)).unwrap_or_default();
            let judgement = judgement.map(|judgement| {
                // An exit that follows our own SIGTERM means nothing.
                let exit = halting.exit.as_ref();
                if let Some(told) = self.told() {
                    return judge::with_told(judgement, &told);
                }
                let judgement = judge::with_exit(judgement, exit, &self.asked.node, &seen);
                if exit.is_some() { judge::with_table(judgement, output, &seen) } else { judgement }
            });
            self.left.judgement =
                Some(judgement.unwrap_or_else(|| Judgement::unjudged("the collection was interrupted")));
            self.left.bundle = self.left.judgement.as_ref().and_then(|judgement| judgement.bundle.clone());
            self.report = found.as_ref().map(|found| Own::new(halting.generation, found));
        }
        let is_over = self.ended().is_some() || self.held.launched.is_none();
        self.collected = self.collected.max(halting.generation);
        let since = *halting.collected.get_or_insert_with(Instant::now);
        if !is_over && halting.ending.is_none() && self.waits(&halting, since) {
            self.halting = Some(halting);
            return;
        }
        if !is_over && halting.ending.is_none() {
            let how = duty::Termination {
                holder: self.held.pid,
                launcher: self.held.launched.map_or(0, |launched| launched.pid),
                grace: Duration::from_secs_f64(self.args.end_grace.max(0.0)),
                is_elastic: launch::dies_of_user_signals(&self.asked.argv),
                is_told: self.told().is_some(),
                checkpoints: self.policy.checkpoint.dir.as_ref().map(PathBuf::from),
            };
            halting.ending = Some(duty::end(how));
        }
        if !is_over {
            self.halting = Some(halting);
            return;
        }
        let launched = self.held.launched.map_or(0, |launched| launched.attempt);
        if !halting.cleaning && launched > 0 && self.is_running() {
            let grace_ms = (self.args.end_grace.max(0.0) * 1000.0) as u64;
            halting.cleaning = self.folder.order(&Order::Clean { attempt: launched, grace_ms }).is_ok();
        }
        if self.is_running() {
            self.halting = Some(halting);
            return;
        }
        self.halted(&halting);
    }

    /// Waits with the end of the ranks until other nodes have their evidence, too.
    fn waits(&self, halting: &Halting, since: Instant) -> bool {
        if halting.is_stale || self.told().is_some() || since.elapsed() >= COLLECTED {
            return false;
        }
        let members = self.council.view().map(|view| view.members).unwrap_or_default();
        let others: Vec<_> = members.into_iter().filter(|member| member.node != self.asked.node).collect();
        !collecting(&others, &self.nodes(), halting.generation).is_empty()
    }

    /// A node that was asked to end, and cannot reach the others, ends its part of the job and leaves: they cannot agree with it. The
    /// job has its usual time to save.
    pub(super) fn leave_alone(&mut self, is_read: bool) -> Option<Decree> {
        let since = *self.unread.get_or_insert_with(Instant::now);
        if is_read {
            self.unread = None;
            return None;
        }
        let told = self.told()?;
        if since.elapsed() < UNREAD || self.halting.is_some() {
            return None;
        }
        if self.is_running() {
            let is_late = self.told_at.is_some_and(|at| at.elapsed() > TOLD);
            if self.ended().is_some() || is_late {
                self.halt(self.held.launched.map_or(0, |launched| launched.generation), true);
            }
            return None;
        }
        let why = vec![told, "the hub does not answer: this node leaves without the others".to_owned()];
        self.say(&why.join("; "));
        Some(Decree {
            generation: self.held.launched.map_or(0, |launched| launched.generation),
            why,
            ..Decree::default()
        })
    }

    /// All processes of the attempt are gone.
    fn halted(&mut self, halting: &Halting) {
        let is_success = self.ended().is_some_and(|ended| ended.is_success()) && self.told().is_none();
        if let Some(running) = &mut self.running {
            running.progress.look();
            running.passer.finish();
            running.progress.note(&mut running.span);
            self.left.step = running.span.step();
            self.left.ranks = running.ranks;
        }
        if halting.is_stale && is_success {
            return;
        }
        if !halting.is_stale {
            let files = self.running.as_ref().map(|running| attempt::evidence(&running.path));
            self.left.traceback = traceback::first(&files.unwrap_or_default());
            self.left.failed_at = halting.exit.map(|exit| exit.at);
        }
        self.left.halted = self.left.halted.max(halting.generation);
        self.keep();
        if !halting.is_stale && !matches!(self.state, RunState::Deciding | RunState::Backoff) {
            let span = self.running.as_ref().map(|running| running.span.clone());
            self.go(RunState::Deciding, |record| record.span = span);
        }
    }
}
