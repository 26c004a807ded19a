//! The start of an attempt, and taking over one that runs.

use std::thread;
use std::time::{Duration, Instant};

use ringleader_run::agree::{Decree, What};
use ringleader_run::effective::AttemptSpan;
use ringleader_run::journal::RunState;
use ringleader_run::judgement::Judgement;
use ringleader_run::stall::StallState;
use ringleader_run::state::Order;

use super::{Running, Supervisor};
use crate::run::attempt::{AttemptProgress, Passer};
use crate::run::launch::Fill;

/// Looks for the number of ranks after a start: torchrun may wait for other nodes first.
const N_LOOKS: u32 = 600;

impl Supervisor<'_> {
    pub(super) fn launch(&mut self, decree: &Decree) {
        let What::Run { nodes, checkpoint, .. } = &decree.what else { return };
        if self.halting.is_some() || self.member.ready_for < decree.generation && self.examination.is_some() {
            return;
        }
        let attempt = decree.generation as u32;
        if let Some(why) = self.member.unfit.clone() {
            // It was running when all agreed on it.
            self.left.halted = decree.generation;
            self.left.judgement =
                Some(Judgement::unjudged(&format!("{} cannot join: {why}", self.asked.node)));
            self.keep();
            self.go(RunState::Preflight, |_| {});
            return self.go(RunState::Failing, |_| {});
        }
        if self.state != RunState::Preflight {
            self.go(RunState::Preflight, |_| {});
        }
        let master = nodes.first().cloned().unwrap_or_default();
        let view = self.council.view().unwrap_or_default();
        let address =
            view.members.iter().find(|member| member.node == master).map(|member| member.address.clone());
        let fill = Fill {
            job: self.asked.job.clone(),
            generation: decree.generation,
            nodes: nodes.clone(),
            master: address.unwrap_or(master),
            node: self.asked.node.clone(),
            checkpoint: checkpoint.clone(),
        };
        let (generation, chosen) = (decree.generation, checkpoint.clone());
        self.go(RunState::Launching, |record| (record.generation, record.checkpoint) = (generation, chosen));
        let mut env = fill.env(attempt);
        self.add_env(&mut env, attempt);
        let order = Order::Launch { attempt, generation, argv: fill.argv(&self.asked.argv), env };
        let number = match self.folder.order(&order) {
            Ok(number) => number,
            Err(error) => return self.say(&format!("the order to start could not be written: {error}")),
        };
        let until = Instant::now() + Duration::from_secs(30);
        while self.held.obeyed < number && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
            self.read_held();
        }
        match self.held.launched {
            Some(launched) if launched.attempt == attempt => {
                self.attach(attempt, generation, launched.at);
                if let Some(running) = &mut self.running {
                    running.nodes.clone_from(nodes);
                    running.span.resumed_from = checkpoint.as_ref().and_then(|chosen| chosen.step);
                }
                self.say(&format!("attempt {attempt} runs, pid {}", launched.pid));
                self.remember_start(decree, nodes);
                self.go(RunState::Running, |_| {});
            }
            _ => {
                let why = self
                    .held
                    .refused
                    .clone()
                    .map_or_else(|| "the holder did not answer".to_owned(), |(_, why)| why);
                self.say(&format!("attempt {attempt} was not started: {why}"));
                let started = self.asked.argv.first().cloned().unwrap_or_default();
                self.left.halted = generation;
                self.left.judgement = Some(Judgement::unjudged(&format!("start {started}: {why}")));
                self.keep();
                self.go(RunState::Failing, |_| {});
            }
        }
    }

    fn add_env(&self, env: &mut Vec<(String, String)>, attempt: u32) {
        let mut add = |name: &str, value: String| {
            if std::env::var_os(name).is_none() {
                env.push((name.to_owned(), value));
            }
        };
        // Without this the last output would be lost in a buffer when the program is killed.
        add("PYTHONUNBUFFERED", "1".to_owned());
        if let Some(plugin) = crate::plugin::find() {
            add("NCCL_PROFILER_PLUGIN", plugin.display().to_string());
        }
        if let Some(rings) = &self.args.rings {
            add("RINGLEADER_RING_DIR", rings.display().to_string());
        }
        if let Ok(path) = self.folder.attempt(attempt) {
            add("TORCHELASTIC_ERROR_FILE", path.join("error.json").display().to_string());
        }
    }

    /// An earlier attempt has shown that the program's step numbers start again.
    fn resets(&self) -> bool {
        self.records.iter().any(|record| record.span.as_ref().is_some_and(|span| span.resets))
    }

    pub(super) fn attach(&mut self, attempt: u32, generation: u64, at: f64) {
        let Ok(path) = self.folder.attempt(attempt) else { return };
        let passer = match Passer::start(&self.folder, attempt) {
            Ok(passer) => passer,
            Err(error) => return self.say(&format!("output of attempt {attempt}: {error}")),
        };
        self.running = Some(Running {
            attempt,
            generation,
            passer,
            progress: AttemptProgress::new(&path, self.chosen.as_ref().and_then(|chosen| chosen.step)),
            path,
            eye: None,
            next_look: Instant::now(),
            stall: StallState::default(),
            span: AttemptSpan { began: at, ended: at, resets: self.resets(), ..AttemptSpan::default() },
            nodes: vec![self.asked.node.clone()],
            ranks: None,
            n_looks: N_LOOKS,
        });
    }
}
