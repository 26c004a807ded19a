//! What the supervisor reports: decisions, metrics, the final summary.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use ringleader_run::agree::{Decree, Judged, What};
use ringleader_run::decide::{self, Action};
use ringleader_run::effective;
#[cfg(feature = "history")]
use ringleader_run::history::{History, HistoryError};
use ringleader_run::journal::{self, Record, RunState};
use ringleader_run::policy::Mode;
use ringleader_run::site;
use ringleader_run::state::Order;
use ringleader_run::traceback;

use super::{METRICS, Supervisor};
use crate::exit::Code;
use crate::run::metrics::{self, Shown};
use crate::run::{attempt, notice, scheduler, statement};

/// Lines of evidence printed with a decision; the journal has all.
const MAX_QUOTED: usize = 3;

impl Supervisor<'_> {
    pub(super) fn tell_decision(&mut self, decree: &Decree, judged: &Judged) {
        let to = if matches!(decree.what, What::Run { .. }) { RunState::Backoff } else { RunState::Stopped };
        let checkpoint = match &decree.what {
            What::Run { checkpoint, .. } => checkpoint.clone(),
            _ => None,
        };
        // What is stopped repeats nothing.
        let step_lost = judged.step.filter(|_| to == RunState::Backoff).map(|step| {
            let from = checkpoint.as_ref().and_then(|chosen| chosen.step).unwrap_or(0);
            step.saturating_sub(from)
        });
        let verdict = &judged.verdict;
        self.say(&format!("{} ({}): {}", verdict.cause, verdict.class, verdict.summary));
        for cited in verdict.evidence.iter().take(MAX_QUOTED) {
            let line = cited.line.map_or_else(String::new, |line| format!(":{line}"));
            let text = cited.text.lines().next().unwrap_or_default();
            self.say(&format!("  {}{line}: {text}", cited.source));
        }
        for why in &decree.why {
            self.say(why);
        }
        if let Some(chosen) = &checkpoint {
            let step = chosen.step.map_or_else(String::new, |step| format!(" of step {step}"));
            let lost = step_lost.map_or_else(String::new, |lost| format!(", {lost} steps to repeat"));
            self.say(&format!("next: from the checkpoint{step}, {}{lost}", chosen.path));
            for passed in &chosen.passed_over {
                self.say(&format!("checkpoint skipped: {passed}"));
            }
        } else if let (RunState::Backoff, Some(lost)) = (to, step_lost) {
            self.say(&format!("next: from the beginning, {lost} steps to repeat"));
        }
        if self.state == RunState::Running || self.state == RunState::Preflight {
            // A spare or a node that was unreachable: the decision was made without it.
            self.go(RunState::Failing, |_| {});
        }
        if self.state != RunState::Deciding {
            self.go(RunState::Deciding, |_| {});
        }
        // A node that was left out of this attempt has times of an earlier one.
        let attempt = decree.failed();
        let running = self.running.as_ref().filter(|running| running.attempt == attempt);
        let span = running.map(|running| running.span.clone());
        let (decision, why, verdict) = (judged.decision.clone(), decree.why.clone(), verdict.clone());
        let generation = decree.generation;
        self.go(to, |record| {
            record.verdict = Some(verdict);
            record.decision = Some(decision);
            record.why = why;
            record.step_lost = step_lost;
            record.checkpoint = checkpoint;
            record.span = span;
            (record.generation, record.attempt) = (generation, attempt);
        });
        self.write_down(decree, judged);
        let record = self.records.last().cloned().unwrap_or_default();
        let is_ours = judged.by.is_empty() || judged.by == self.asked.node;
        self.notices.extend(notice::pass_on(self.args, &record, is_ours));
        self.remember_decision(decree, &record);
        if is_ours {
            self.site(decree, judged);
        }
    }

    /// Says before a node fails that the policy never excludes one.
    pub(super) fn tell_share(&self) {
        let (n_nodes, share) = (self.args.n_nodes(), self.policy.exclude.max_share);
        if self.args.hub.is_some() && n_nodes > 1 && decide::allowed(share, n_nodes) == 0 {
            self.say(&format!(
                "at most 0 of {n_nodes} nodes may be excluded ([exclude] max_share = {share})"
            ));
        }
    }

    /// Writes the decision into the folder of the attempt.
    fn write_down(&self, decree: &Decree, judged: &Judged) {
        let attempt = decree.failed();
        let own = self.report.as_ref().filter(|own| own.attempt == attempt);
        let text = statement::of(decree, judged, own.map(|own| (own.cause, own.text.as_str())));
        let written =
            self.folder.attempt(attempt).and_then(|path| std::fs::write(path.join("decision.txt"), text));
        if let Err(error) = written {
            self.say(&format!("decision.txt of attempt {attempt} cannot be written: {error}"));
        }
    }

    /// Commands for the scheduler about excluded nodes.
    fn site(&mut self, decree: &Decree, judged: &Judged) {
        let action = &judged.decision.action;
        let wanted = site::Wanted {
            job: self.asked.job.clone(),
            nodes: action.without().to_vec(),
            why: decree.why.join("; "),
            requeue: matches!(action, Action::Requeue { .. }),
        };
        let environment: Vec<(String, String)> = std::env::vars().collect();
        let commands = site::commands(&wanted, &environment);
        if self.policy.exclude.mode == Mode::Act && !commands.is_empty() {
            self.notices.push(scheduler::call(commands));
            return;
        }
        for command in commands {
            let line = command.argv.join(" ");
            self.say(&format!("would run ({}; [exclude] mode = \"act\" runs it): {line}", command.right));
        }
    }

    /// Several nodes may share the file.
    #[cfg(feature = "history")]
    fn remember(&self, add: impl FnOnce(&str, &mut History) -> Result<(), HistoryError>) {
        let Some(path) = notice::history(self.args.history.as_ref(), self.args.no_history) else { return };
        let outcome = History::open(&path).and_then(|mut history| add(&self.asked.job, &mut history));
        if let Err(error) = outcome {
            self.say(&format!("history in {}: {error}", path.display()));
        }
    }

    #[cfg(feature = "history")]
    fn remember_decision(&self, decree: &Decree, record: &Record) {
        self.remember(|job, history| history.add(job, decree.at, record));
    }

    #[cfg(feature = "history")]
    pub(super) fn remember_start(&self, decree: &Decree, nodes: &[String]) {
        let attempt = decree.generation as u32;
        self.remember(|job, history| history.began(job, decree.at, attempt, nodes));
    }

    #[cfg(not(feature = "history"))]
    fn remember_decision(&self, _decree: &Decree, _record: &Record) {}

    #[cfg(not(feature = "history"))]
    pub(super) fn remember_start(&self, _decree: &Decree, _nodes: &[String]) {}

    fn effective(&self) -> effective::Effective {
        let mut spans = journal::spans(&self.records);
        if let Some(running) = self.running.as_ref().filter(|_| !self.state.is_end()) {
            spans.retain(|span| (span.began - running.span.began).abs() > 1e-6);
            spans.push(running.span.clone());
        }
        effective::of(&spans)
    }

    /// Writes metrics and reports the results of notices.
    pub(super) fn show(&mut self) {
        for notice in std::mem::take(&mut self.notices) {
            if notice.is_finished() {
                notice.join().unwrap_or_default().iter().for_each(|said| self.say(said));
            } else {
                self.notices.push(notice);
            }
        }
        if Instant::now() < self.next_metrics {
            return;
        }
        self.next_metrics = Instant::now() + METRICS;
        let Some(path) = &self.args.metrics else { return };
        let failures = journal::failures(&self.records);
        let shown = Shown {
            job: &self.asked.job,
            node: &self.asked.node,
            state: self.state,
            generation: self.running.as_ref().map_or(0, |running| running.generation),
            step: self.running.as_ref().and_then(|running| running.span.step()),
            excluded: self.excluded.len(),
            failures: &failures,
            effective: self.effective(),
        };
        if let Err(error) = metrics::write(path, &shown) {
            self.say(&format!("metrics in {}: {error}", path.display()));
        }
    }

    /// The final summary.
    pub(super) fn finish(&mut self, decree: &Decree) -> ExitCode {
        let is_done = decree.what == What::Done;
        if let Some(running) = &mut self.running {
            running.progress.look();
            running.passer.finish();
            running.progress.note(&mut running.span);
        }
        let to = if is_done { RunState::Done } else { RunState::Stopped };
        if self.state != to {
            let span = self.running.as_ref().map(|running| running.span.clone());
            let (exit, why) = (self.ended(), decree.why.clone());
            self.go(to, |record| (record.exit, record.span, record.why) = (exit, span, why));
        }
        if !is_done {
            self.tell_stop(decree);
        }
        let effective = self.effective();
        let mut line =
            format!("{}: {} attempts, {} failed", to.name(), effective.n_attempts, effective.n_failures);
        if let Some(n) = effective.steps_repeated {
            let _ = write!(line, ", {n} steps repeated");
        }
        if let Some(s) = effective.mean_time_to_failure_s {
            let _ = write!(line, ", a failure every {s:.0} s");
        }
        if let Some(ratio) = effective.ratio {
            let _ =
                write!(line, ", effective training time {:.0} % of {:.0} s", ratio * 100.0, effective.wall_s);
        }
        self.say(&line);
        self.next_metrics = Instant::now();
        self.show();
        for notice in std::mem::take(&mut self.notices) {
            notice.join().unwrap_or_default().iter().for_each(|said| self.say(said));
        }
        let code = if is_done { Code::NothingFound } else { Code::Findings };
        // Without a started launcher the code is ours. A node that was left out of a job that succeeded reports
        // success: a scheduler takes the highest code of all nodes as the job's.
        let of_ours = match self.held.launched {
            None => Some(if is_done { 0 } else { Code::Refused as u8 }),
            Some(launched) => (is_done && launched.generation < decree.generation).then_some(0),
        };
        if let Err(error) = self.folder.order(&Order::End { code: of_ours }) {
            self.say(&format!("the order to end could not be written: {error}"));
        }
        code.into()
    }

    fn tell_stop(&self, decree: &Decree) {
        let files: Vec<PathBuf> =
            self.running.as_ref().map(|running| attempt::evidence(&running.path)).unwrap_or_default();
        let judged = decree.judged.as_ref();
        let of_all = judged.map(|judged| judged.traceback.clone()).filter(|lines| !lines.is_empty());
        let traceback = of_all.unwrap_or_else(|| traceback::first(&files));
        let is_external = judged.is_some_and(|judged| judged.told.is_some());
        if !traceback.is_empty() && !is_external {
            self.say("stopped. The first rank that failed said:");
            for line in &traceback {
                self.say(&format!("  {line}"));
            }
        }
        let Some(own) = self.report.as_ref().filter(|own| !own.text.is_empty() && !is_external) else {
            return;
        };
        let attempt = decree.failed();
        if judged.is_none_or(|judged| judged.verdict.cause == own.cause) {
            self.say(&own.text);
        } else if let Ok(path) = self.folder.attempt(attempt) {
            // It would contradict the verdict that was decided on.
            self.say(&format!("the evidence of this node alone: {}", path.join("decision.txt").display()));
        }
    }
}
