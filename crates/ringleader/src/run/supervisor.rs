//! The supervisor of one node: follows the job's output, watches the job, collects evidence when it fails, and acts on
//! what all supervisors have agreed on. All of its state can be restored: the holder knows what runs, the journal what
//! was decided.

mod halting;
mod starting;
mod telling;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_hub::register::Register;
use ringleader_knowledge::signal;
use ringleader_model::Cause;
use ringleader_report::quote;
use ringleader_run::agree::{Act, Announcement, Config, Decree, Local, StateMachine, What};
use ringleader_run::decide::Failed;
use ringleader_run::doubt::Silence;
use ringleader_run::effective::AttemptSpan;
use ringleader_run::journal::{self, Chosen, Journal, Record, RunState};
use ringleader_run::judgement::{Diagnosed, Judgement};
use ringleader_run::next::{Next, ToDecide};
use ringleader_run::policy::Policy;
use ringleader_run::resume::{Checkpoints, Remark};
use ringleader_run::stall::{StallLook, StallState};
use ringleader_run::state::{Folder, HolderState, LauncherEnd, Order, RunRequest, now};
use ringleader_run::store::{Alone, SharedStore, Store};
use ringleader_watch::engine::Settings;
use serde::{Deserialize, Serialize};

use crate::exit::Code;
use crate::failure::Failure;
use crate::run::RunArgs;
use crate::run::attempt::{self, AttemptProgress, Passer};
use crate::run::council::Council;
use crate::run::duty::{self, Duty};
use crate::run::evidence::RemoteEvidence;
use crate::run::launch;
use crate::run::notice;
use crate::run::preflight::Examination;
use crate::watch::agent::{Agent, Target};
use crate::watch::eye::Eye;
use crate::watch::nodes::Nodes;

/// Interval between turns of the main loop.
const NAP: Duration = Duration::from_millis(40);
/// Interval between looks at the job.
const LOOK: Duration = Duration::from_millis(500);
/// Interval between writes of the metrics.
const METRICS: Duration = Duration::from_secs(10);
/// A hub participant that is silent for longer is considered dead.
const TTL: Duration = Duration::from_secs(10);
/// Deadline of a hub call.
const DEADLINE: Duration = Duration::from_secs(8);
/// A node that failed its preflight check is checked again after this.
const AGAIN: Duration = Duration::from_secs(30);
/// Time until all nodes know the result of a preflight check.
const MARGIN: Duration = Duration::from_secs(5);
/// Further looks for the number of ranks once it has been seen.
const N_LOOKS_MORE: u32 = 20;
/// Interval between decisions while further nodes are waited for.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// A node that was asked to end leaves without the others if the hub cannot be read for longer.
const UNREAD: Duration = Duration::from_secs(15);
/// How long a job that received a request to end may take before it is ended.
const TOLD: Duration = Duration::from_mins(2);

/// State that a supervisor leaves for its successor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Left {
    pid: u32,
    /// Generation that was ended and judged on this node.
    halted: u64,
    succeeded: u64,
    judgement: Option<Judgement>,
    bundle: Option<String>,
    step: Option<u64>,
    ranks: Option<u32>,
    traceback: Vec<String>,
    failed_at: Option<f64>,
    /// Number of the last decree that was acted on.
    seen: u64,
}

/// The current attempt.
struct Running {
    attempt: u32,
    generation: u64,
    path: PathBuf,
    passer: Passer,
    progress: AttemptProgress,
    eye: Option<Eye>,
    next_look: Instant,
    stall: StallState<Duty<Diagnosed>>,
    span: AttemptSpan,
    nodes: Vec<String>,
    /// Ranks of the whole job, as far as its processes have been seen.
    ranks: Option<u32>,
    /// Looks at the processes that are left: all ranks have started by then.
    n_looks: u32,
}

/// The report of this node on one failure, and its cause.
struct Own {
    attempt: u32,
    cause: Cause,
    text: String,
}

/// An attempt that is being ended.
struct Halting {
    generation: u64,
    is_stale: bool,
    collecting: Option<Duty<Diagnosed>>,
    /// Since when the evidence of this node is complete.
    collected: Option<Instant>,
    ending: Option<Duty<()>>,
    cleaning: bool,
    /// How the launcher ended, if it ended by itself.
    exit: Option<LauncherEnd>,
}

struct Supervisor<'a> {
    args: &'a RunArgs,
    policy: Policy,
    folder: Folder,
    asked: RunRequest,
    _seat: File,
    journal: Journal,
    records: Vec<Record>,
    state: RunState,
    machine: StateMachine,
    council: Council,
    held: HolderState,
    left: Left,
    member: Announcement,
    running: Option<Running>,
    halting: Option<Halting>,
    deciding: Option<Duty<Next>>,
    waits_for: Option<Postponed>,
    decided: u64,
    /// Generation whose evidence is complete.
    collected: u64,
    examination: Option<Examination>,
    examined: Instant,
    chosen: Option<Chosen>,
    told_at: Option<Instant>,
    /// Since when the hub cannot be read.
    unread: Option<Instant>,
    began: Instant,
    next_metrics: Instant,
    notices: Vec<thread::JoinHandle<Vec<String>>>,
    /// This node's own report on the newest failure.
    report: Option<Own>,
    excluded: Vec<String>,
    agreed: Option<Agreed>,
}

/// Why a decision waits for further nodes, and when it is tried again.
struct Postponed {
    why: String,
    until: Instant,
}

/// The part of the newest decree that says which attempt this node could join.
struct Agreed {
    generation: u64,
    /// This node belongs to the attempt.
    is_named: bool,
    /// The attempt is to run, not to be ended.
    is_run: bool,
}

/// Supervises the job that the holder of this folder runs, until the run is over.
pub(crate) fn supervise(args: &RunArgs, policy: Policy, state: &Path) -> Result<ExitCode, Failure> {
    let refused = |source| Failure::CannotWrite { path: state.to_owned(), source };
    let folder = Folder::open(state).map_err(refused)?;
    // Its predecessor may still be exiting.
    let until = Instant::now() + Duration::from_secs(5);
    let seat = loop {
        match folder.seat().map_err(refused)? {
            Some(seat) => break seat,
            None if Instant::now() >= until => {
                let why = "supervise: another supervisor is running".to_owned();
                return Err(Failure::Nodes { why, help: "each state folder has one supervisor" });
            }
            None => thread::sleep(NAP),
        }
    };
    let asked: RunRequest = folder.read("run.json").map_err(refused)?.unwrap_or_default();
    let (records, _) = journal::read(&folder.journal()).map_err(refused)?;
    let journal = Journal::open(&folder.journal()).map_err(refused)?;
    let left: Left = folder.read("supervisor.json").ok().flatten().unwrap_or_default();
    let node = asked.node.clone();
    let address = args.address.clone().unwrap_or_else(|| node.clone());
    let member = Announcement { node: node.clone(), address, ..Announcement::default() };
    let (store, is_alone) = store(args, &folder, &asked)?;
    let n_nodes = if is_alone { 1 } else { args.n_nodes() };
    let config = Config {
        node,
        n_nodes,
        min_nodes: if is_alone { 1 } else { args.n_least() },
        lost_after_s: args.lost_after.max(TTL.as_secs_f64() * 1.5),
        join_within_s: args.join_within,
        give_up_s: args.join_within.max(args.lost_after) + 2.0 * AGAIN.as_secs_f64(),
        examined_within_s: policy.preflight.longest().as_secs_f64() + MARGIN.as_secs_f64(),
        back_after_s: policy.exclude.back_after.map(|after| after.as_secs_f64()),
    };
    let state = records.last().map(|record| record.to).unwrap_or_default();
    let excluded = Vec::new();
    let mut supervisor = Supervisor {
        args,
        policy,
        asked,
        _seat: seat,
        journal,
        state,
        machine: StateMachine::new(config),
        council: Council::start(store, member.clone(), is_alone),
        held: HolderState::default(),
        member,
        running: None,
        halting: None,
        deciding: None,
        waits_for: None,
        decided: 0,
        collected: 0,
        examination: None,
        examined: Instant::now(),
        chosen: records.iter().rev().find_map(|record| record.checkpoint.clone()),
        told_at: None,
        unread: None,
        began: Instant::now(),
        next_metrics: Instant::now(),
        notices: Vec::new(),
        report: None,
        excluded,
        agreed: None,
        left: Left { pid: std::process::id(), ..left },
        folder,
        records,
    };
    supervisor.take_over();
    let code = supervisor.run();
    supervisor.council.leave();
    Ok(code)
}

fn store(args: &RunArgs, folder: &Folder, asked: &RunRequest) -> Result<(Box<dyn Store>, bool), Failure> {
    let Some(hub) = &args.hub else { return Ok((Box::new(Alone::new(folder.path())), true)) };
    let register =
        Register::open(hub, &asked.job, &asked.node, TTL, DEADLINE).map_err(|error| Failure::Nodes {
            why: error.to_string(),
            help: "--hub dir:/shared/folder or --hub etcd://host:2379/job",
        })?;
    Ok((Box::new(SharedStore::new(register)), false))
}

impl Supervisor<'_> {
    /// Prints a line for people, to the same stream as the job's output.
    #[expect(clippy::unused_self, reason = "called like the other methods of the supervisor")]
    fn say(&self, text: &str) {
        for line in text.lines() {
            // Standard error may be closed.
            let _ = writeln!(io::stderr().lock(), "ringleader: {}", quote::plain(line));
        }
    }

    fn keep(&self) {
        // If the disk is full, the next supervisor judges again.
        let _ = self.folder.write("supervisor.json", &self.left);
    }

    /// Continues where the previous supervisor stopped.
    fn take_over(&mut self) {
        self.keep();
        self.read_held();
        if self.records.is_empty() {
            self.tell_share();
            return;
        }
        self.say("a new supervisor took over; the job was not affected");
        if let Some(launched) = self.held.launched.filter(|_| self.is_running()) {
            self.attach(launched.attempt, launched.generation, launched.at);
            let why = vec!["a new supervisor took over".to_owned()];
            self.go(RunState::Running, |record| record.why = why);
        }
    }

    fn is_running(&self) -> bool {
        let Some(launched) = &self.held.launched else { return false };
        !self.held.ended.is_some_and(|ended| ended.attempt == launched.attempt && ended.is_clean)
    }

    fn read_held(&mut self) {
        if let Ok(Some(held)) = self.folder.read::<HolderState>("holder.json") {
            self.held = held;
        }
    }

    /// Runs until the job is over.
    fn run(&mut self) -> ExitCode {
        loop {
            self.read_held();
            self.follow();
            self.examine();
            if let Some(why) = self.council.trouble() {
                self.say(&format!(
                    "the hub does not answer; the running job continues, nothing new is started: {why}"
                ));
            }
            let local = self.local();
            self.council.tell(&local.member);
            self.member = local.member.clone();
            let view = self.council.view();
            if let Some(decree) = view.as_ref().and_then(|view| view.decree.clone()) {
                self.see(&decree);
            }
            let mut is_over = None;
            for act in self.machine.step(self.began.elapsed().as_secs_f64(), view.as_ref(), &local) {
                if let Some(decree) = self.act(act) {
                    is_over = Some(decree);
                }
            }
            if let Some(decree) = self.leave_alone(view.is_some()) {
                is_over = Some(decree);
            }
            self.halt_on();
            self.decide_on();
            if self.is_orphan() {
                self.say("the holder is gone: the attempt is lost and there is nothing left to supervise");
                return Code::Refused.into();
            }
            if let Some(decree) = is_over {
                return self.finish(&decree);
            }
            self.show();
            thread::sleep(NAP);
        }
    }

    fn is_orphan(&self) -> bool {
        self.held.pid != 0 && ringleader_collect::follow::process("/proc".as_ref(), self.held.pid).is_none()
    }

    /// The nodes of the newest attempt.
    fn nodes(&self) -> Vec<String> {
        self.running.as_ref().map_or_else(|| vec![self.asked.node.clone()], |running| running.nodes.clone())
    }

    fn ended(&self) -> Option<LauncherEnd> {
        let launched = self.held.launched.as_ref()?;
        self.held.ended.filter(|ended| ended.attempt == launched.attempt)
    }

    fn told(&self) -> Option<String> {
        let told = self.held.told.first()?;
        let name = signal::get(told.signal.into()).map_or("a signal", |signal| signal.name);
        Some(format!("{name} received on {}", self.asked.node))
    }

    fn local(&mut self) -> Local {
        let launched = self.held.launched.map_or(0, |launched| launched.generation);
        let ended = self.ended();
        let told = self.told();
        if told.is_some() {
            self.told_at.get_or_insert_with(Instant::now);
        }
        let is_well = ended.is_some_and(|ended| ended.is_success() && ended.is_clean) && told.is_none();
        if is_well && self.left.halted < launched && self.left.succeeded < launched {
            self.left.succeeded = launched;
            self.keep();
        }
        let step = self.running.as_ref().and_then(|running| running.span.step());
        let still_s = self.running.as_ref().and_then(|running| running.still_s(self.args.silence_floor));
        let member = Announcement {
            running: self.is_running().then_some(launched),
            succeeded: self.left.succeeded,
            halted: self.left.halted,
            collected: self.collected.max(self.left.halted),
            judgement: self.left.judgement.clone(),
            bundle: self.left.bundle.clone(),
            traceback: self.left.traceback.clone(),
            failed_at: self.left.failed_at,
            told: told.clone(),
            step: step.or(self.left.step),
            ranks: self.running.as_ref().and_then(|running| running.ranks).or(self.left.ranks),
            still_s,
            ..self.member.clone()
        };
        let is_judged = self.left.halted >= launched;
        let wants_halt = match ended {
            Some(ended) if !ended.is_success() && !is_judged => {
                Some(format!("the launcher ended with {}", ended.words()))
            }
            Some(_) if told.is_some() && !is_judged => told,
            Some(_) => None,
            // The signal has been forwarded, and the job may save before it ends.
            None if self.told_at.is_some_and(|at| at.elapsed() > TOLD) => told,
            None => self.running.as_ref().and_then(|running| running.stall.wants_halt()),
        };
        Local { member, launched, wants_halt, wall_s: now() }
    }

    /// Runs the preflight check for the next attempt that the node could join.
    fn examine(&mut self) {
        let next = self.next_generation();
        if let Some(examination) = &self.examination
            && let Some(answer) = examination.taken()
        {
            let unfit = answer.err();
            if let Some(why) = unfit.as_ref().filter(|why| self.member.unfit.as_ref() != Some(why)) {
                self.say(&format!("this node cannot join an attempt: {why}"));
            }
            let is_apart = self.agreed.as_ref().is_some_and(|agreed| !agreed.is_named);
            if unfit.is_none() && (is_apart || self.member.unfit.is_some()) {
                self.say(&format!("this node could join attempt {}", examination.generation));
            }
            self.member.unfit = unfit;
            self.member.ready_for = examination.generation;
            self.examination = None;
            self.examined = Instant::now();
        }
        // A node that failed is checked again: it may have been repaired.
        let is_mended = self.member.unfit.is_some() && self.examined.elapsed() > AGAIN;
        let is_due = self.member.ready_for < next || is_mended;
        let is_idle = !self.is_running() || self.held.ended.is_some();
        if is_due && is_idle && self.examination.is_none() {
            self.examination = Some(Examination::begin(self.policy.preflight.clone(), next));
        }
    }

    /// The attempt that this node could start next: the agreed one, if this node takes part and has not started it,
    /// else the one after it.
    fn next_generation(&self) -> u64 {
        let begun =
            self.held.launched.map_or(0, |launched| launched.generation).max(self.left.seen_generation());
        match &self.agreed {
            Some(agreed) if agreed.is_named && agreed.is_run && agreed.generation > begun => {
                agreed.generation
            }
            Some(agreed) => begun.max(agreed.generation) + 1,
            None => begun + 1,
        }
    }

    /// Handles a decree that is new to this node.
    fn see(&mut self, decree: &Decree) {
        let (nodes, is_run) = match &decree.what {
            What::Run { nodes, .. } => (nodes.as_slice(), true),
            What::Halt { nodes, .. } => (nodes.as_slice(), false),
            What::Done | What::Stop => (&[][..], false),
        };
        let is_named = nodes.contains(&self.asked.node);
        self.agreed = Some(Agreed { generation: decree.generation, is_named, is_run });
        if decree.seq <= self.left.seen {
            return;
        }
        let is_late = self.left.seen == 0 && decree.seq > 1;
        self.left.seen = decree.seq;
        self.keep();
        if matches!(decree.what, What::Halt { .. }) && !is_named {
            // A check from before that attempt may be out of date.
            self.member.ready_for = self.member.ready_for.min(decree.generation);
        }
        self.excluded.clone_from(&decree.excluded);
        match &decree.judged {
            // It was made before this node joined, and all others have acted on it.
            Some(judged) if is_late => {
                let cause = &judged.verdict.cause;
                self.say(&format!("this node joined after attempt {} failed: {cause}", decree.failed()));
            }
            Some(judged) => self.tell_decision(decree, judged),
            None => {}
        }
        if let What::Run { checkpoint, .. } = &decree.what {
            self.chosen.clone_from(checkpoint);
        }
    }

    fn act(&mut self, act: Act) -> Option<Decree> {
        match act {
            Act::Propose(mut decree) => {
                decree.at = now();
                if decree.seq == 1 {
                    self.choose_first(&mut decree);
                }
                self.council.propose(decree);
            }
            Act::Launch(decree) => self.launch(&decree),
            Act::Halt { generation, is_stale } => self.halt(generation, is_stale),
            Act::Decide { halted, members, fit, back, is_late } => {
                self.decide(halted, members, fit, back, is_late);
            }
            Act::Finish(decree) => return Some(decree),
        }
        None
    }

    /// The checkpoint of the first attempt; none starts if its ranks can load none of several.
    fn choose_first(&mut self, decree: &mut Decree) {
        let What::Run { nodes, checkpoint, .. } = &mut decree.what else { return };
        let checkpoints =
            Checkpoints::look(&self.policy, &[], launch::per_node(&self.asked.argv, self.args.hub.is_some()));
        let n_least = if self.args.hub.is_none() { 1 } else { self.args.n_least().min(nodes.len()) };
        let remarks = match checkpoints.nodes(n_least, nodes.len()) {
            Ok(size) => {
                nodes.truncate(size);
                let (chosen, remarks) = checkpoints.chosen(size);
                *checkpoint = chosen;
                remarks
            }
            Err(why) => {
                (decree.generation, decree.what) = (0, What::Stop);
                decree.why.push(why.clone());
                vec![Remark::Other(why)]
            }
        };
        if self.decided == 0 {
            for remark in &remarks {
                self.say(remark.text());
            }
        }
        self.decided = self.decided.max(1);
    }

    /// Looks at the running job.
    fn follow(&mut self) {
        let is_over = self.ended().is_some();
        let silence = Duration::from_secs_f64(self.args.silence_floor.max(0.1));
        let evidence = self.evidence();
        let Some(running) = &mut self.running else { return };
        running.progress.look();
        running.progress.note(&mut running.span);
        running.span.ended = now();
        if is_over {
            let ended = self.held.ended;
            if ended.is_some_and(|ended| ended.is_success() && !ended.is_clean) && self.halting.is_none() {
                self.clean_after_success();
            }
            return;
        }
        if self.held.is_suspended {
            running.progress.wait();
            running.stall = StallState::default();
            return;
        }
        if Instant::now() < running.next_look {
            return;
        }
        running.next_look = Instant::now() + LOOK;
        if running.n_looks > 0 {
            let launcher = self.held.launched.map_or(0, |launched| launched.pid);
            let is_elastic = launch::is_elastic(&self.asked.argv);
            running.ranks = running.ranks.max(attempt::ranks(self.held.pid, launcher, is_elastic));
            let n_left = if running.ranks.is_some() { N_LOOKS_MORE } else { u32::MAX };
            running.n_looks = (running.n_looks - 1).min(n_left);
        }
        self.open_eye();
        let Some(running) = &mut self.running else { return };
        let Some(eye) = &mut running.eye else { return };
        let looked = eye.look(crate::watch::now_ns());
        let is_analyser = looked.is_analyser;
        let output = attempt::evidence(&running.path);
        for request in looked.requests {
            let wanted = eye.wanted(request.why(), output.clone());
            let folder = running.path.clone();
            thread::spawn(move || {
                let outcome = crate::watch::incident::collect(&wanted, &folder).map(|(path, _)| path);
                request.answer(outcome.map_err(|failure| failure.message()));
            });
        }
        let patience = running.progress.patience(silence);
        let seen = StallLook {
            is_analyser: looked.is_analyser,
            still: running.progress.still(),
            patience,
            is_past: eye.is_past(),
        };
        running.stall.see(&duty::reports(&looked.events), &seen, Instant::now());
        let folder = running.path.clone();
        let silence = Silence { folder: folder.clone(), before: running.progress.before() };
        let nodes = running.nodes.clone();
        let grace = self.policy.stall_grace;
        let share = evidence.map(|evidence| (evidence, running.generation));
        let said = running.stall.turn(Instant::now(), grace, |why| {
            duty::collect(eye.wanted(why, output), folder, Some(silence), nodes, share)
        });
        let was = self.state;
        for word in &said {
            self.say(word);
        }
        let is_collecting = self.running.as_ref().is_some_and(|running| running.stall.is_open());
        match (was, is_collecting) {
            (RunState::Running, true) => self.turn_to(RunState::Collecting, said, is_analyser),
            (RunState::Collecting, false) if self.halting.is_none() => {
                let why = if said.is_empty() { vec!["the job continues".to_owned()] } else { said };
                self.turn_to(RunState::Running, why, is_analyser);
            }
            _ => {}
        }
    }

    /// A stall or its end: recorded and reported.
    fn turn_to(&mut self, to: RunState, why: Vec<String>, is_analyser: bool) {
        self.go(to, |record| record.why = why);
        if let Some(record) = self.records.last() {
            self.notices.extend(notice::pass_on(self.args, record, is_analyser));
        }
    }

    /// Access to the evidence of other nodes; None on a single node.
    fn evidence(&self) -> Option<RemoteEvidence> {
        let hub = self.args.hub.clone()?;
        Some(RemoteEvidence::new(hub, &self.asked.job, &self.asked.node, self.folder.path()))
    }

    /// Starts watching the job's ranks, unless it already does.
    fn open_eye(&mut self) {
        let Some(running) = self.running.as_mut().filter(|running| running.eye.is_none()) else { return };
        let launcher = self.held.launched.map_or(0, |launched| launched.pid);
        let node = self.asked.node.clone();
        let agent = Agent::new(Target::Pids(vec![launcher]), self.args.rings.as_deref(), node.clone());
        // An unreachable hub counts as none; the council has reported it.
        let nodes = self.args.hub.as_ref().and_then(|hub| Nodes::join(hub, &node).ok());
        let settings = Settings {
            stall_floor_ns: (self.args.stall_floor * 1e9) as i64,
            interval_ns: LOOK.as_nanos() as i64,
            ..Settings::default()
        };
        running.eye = Some(Eye::new(agent, nodes, settings, !self.args.no_ras));
    }

    fn clean_after_success(&mut self) {
        let Some(launched) = self.held.launched else { return };
        let ended = self.ended();
        let order = Order::Clean { attempt: launched.attempt, grace_ms: 5_000 };
        if self.folder.order(&order).is_ok() {
            self.halting = Some(Halting {
                generation: launched.generation,
                is_stale: true,
                collecting: None,
                collected: None,
                ending: None,
                cleaning: true,
                exit: ended,
            });
        }
    }

    fn decide(
        &mut self,
        halted: Decree,
        members: Vec<Announcement>,
        fit: Vec<String>,
        back: Vec<String>,
        is_late: bool,
    ) {
        let waits = self.waits_for.as_ref().is_some_and(|waits| waits.until > Instant::now());
        if self.deciding.is_some() || self.decided > halted.seq || waits {
            return;
        }
        self.decided = halted.seq + 1;
        let is_alone = self.args.hub.is_none();
        let n_nodes = if is_alone { 1 } else { self.args.n_nodes() };
        let wanted = ToDecide {
            policy: self.policy.clone(),
            past: self.past(&halted),
            halted,
            members,
            fit,
            back,
            n_nodes,
            min_nodes: if is_alone { 1 } else { self.args.n_least() },
            per_node: launch::per_node(&self.asked.argv, self.args.hub.is_some()),
            is_late: is_late || is_alone,
            node: self.asked.node.clone(),
            resumed_from: self.chosen.as_ref().and_then(|chosen| chosen.step),
        };
        let planted = self.args.unstable_verdict.clone();
        self.deciding = Some(duty::decide(wanted, self.evidence(), planted));
    }

    /// The failures that all nodes know; after a requeue, which has a hub of its own, those of this node's journal.
    fn past(&self, halted: &Decree) -> Vec<Failed> {
        if halted.past.is_empty() { journal::failures(&self.records) } else { halted.past.clone() }
    }

    fn decide_on(&mut self) {
        let Some(answer) = self.deciding.as_ref().and_then(Duty::taken) else { return };
        self.deciding = None;
        match answer {
            Some(Next::Wait(why)) => {
                self.decided = 0;
                let is_new = self.waits_for.as_ref().is_none_or(|waits| waits.why != why);
                if is_new {
                    self.say(&format!("waiting for further nodes: {why}"));
                }
                self.waits_for = Some(Postponed { why, until: Instant::now() + ASK_AGAIN });
            }
            Some(Next::Decree(mut decree, remarks)) => {
                self.waits_for = None;
                decree.at = now();
                // What concerns a chosen checkpoint is told together with it.
                let has_chosen = matches!(&decree.what, What::Run { checkpoint: Some(_), .. });
                let is_told = |remark: &Remark| match remark {
                    Remark::OfChoice(_) if has_chosen => true,
                    Remark::OfChoice(text) | Remark::Other(text) => decree.why.contains(text),
                };
                for remark in remarks.iter().filter(|remark| !is_told(remark)) {
                    self.say(remark.text());
                }
                self.council.propose(*decree);
                // If the proposal fails, the decision is made again.
                self.decided = 0;
            }
            None => self.decided = 0,
        }
    }

    /// Records a transition.
    fn go(&mut self, to: RunState, fill: impl FnOnce(&mut Record)) {
        let running = self.running.as_ref();
        let mut record = Record {
            at: now(),
            generation: running.map_or(0, |running| running.generation),
            attempt: running.map_or(0, |running| running.attempt),
            node: self.asked.node.clone(),
            from: self.state,
            to,
            ..Record::default()
        };
        fill(&mut record);
        if !self.state.may(to) && self.state != to {
            record.why.push(format!(
                "a supervisor cannot enter the state {} after {}",
                to.name(),
                self.state.name()
            ));
        }
        self.state = to;
        if let Err(error) = self.journal.append(&record) {
            self.say(&format!("the journal cannot be written: {error}"));
        }
        journal::SCHEMA.clone_into(&mut record.schema);
        self.records.push(record);
        self.next_metrics = Instant::now();
    }
}

impl Running {
    /// Seconds without progress, as far as known: from printed steps, and from what NCCL has completed.
    fn still_s(&self, floor_s: f64) -> Option<f64> {
        let floor = Duration::from_secs_f64(floor_s.max(0.1));
        let of_steps = self.progress.known_still(floor);
        let of_calls = self.eye.as_ref().and_then(Eye::still);
        // Whatever moves shows that the job does.
        of_steps.into_iter().chain(of_calls).min().map(|still| still.as_secs_f64())
    }
}

impl Left {
    fn seen_generation(&self) -> u64 {
        self.halted.max(self.succeeded)
    }
}
