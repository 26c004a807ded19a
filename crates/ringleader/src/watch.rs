//! `ringleader watch`: follows a running job and names what stalls it.
//!
//! An [`agent`] looks at this node a few times a second; the engine of `ringleader_watch` says what has changed; on a
//! stall an [`incident`] collects the evidence and judges it by the path that `diagnose` takes. Everything shown, on the
//! screen, the page and in metrics, is one [`picture`].

pub(crate) mod agent;
mod args;
mod board;
pub(crate) mod child;
pub(crate) mod columns;
mod events;
pub(crate) mod eye;
mod guard;
mod heard;
mod hold;
pub(crate) mod hooks;
pub(crate) mod incident;
mod metrics;
mod named;
mod nan;
pub(crate) mod nodes;
mod otlp;
mod picture;
mod ras;
mod recording;
mod replay;
mod screen;
mod serve;
mod several;
mod stacks;
mod table;
mod tcp;
mod template;
pub(crate) mod words;

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_model::Cause;
use ringleader_watch::answer::Reason;
use ringleader_watch::engine::Settings;
use ringleader_watch::event::{Event, What};
use ringleader_watch::incidents::Incidents;
use ringleader_watch::inquiry::{Inquiries, JobEnd, JobLook};

use self::agent::{Agent, SharedPids, Target};
pub(crate) use self::args::WatchArgs;
use self::board::Board;
use self::child::Running;
use self::events::Teller;
use self::eye::Eye;
use self::heard::is_unheard;
use self::hold::{SharedVerdicts, steady_ns};
use self::incident::{Judged, ToCollect, worse};
use self::named::named;
use self::nan::Nan;
use self::nodes::Nodes;
use self::picture::Picture;
use crate::command::Subcommand;
use crate::exit::Code;
use crate::failure::Failure;

/// At the end an incident that is under way is waited for.
const LAST_WAIT: Duration = Duration::from_secs(20);
/// Interval between checks for a request to stop.
const NAP: Duration = Duration::from_millis(25);
/// Said where a later look finds no cause.
const SEES_LESS: &str = "another look at the same stall shows no more: the verdict before it stands";

impl Subcommand for WatchArgs {
    /// It may pass on the code of the command that it followed.
    fn run(&self) -> Result<ExitCode, Failure> {
        run(self)
    }
}

/// Follows the job until it ends, or until a request to stop.
fn run(args: &WatchArgs) -> Result<ExitCode, Failure> {
    let folder = out_folder(args)?;
    let host = ringleader_collect::follow::host();
    let picture = Arc::new(Mutex::new(Picture::new(host.clone())));
    let shows_screen = !(args.json || args.once || args.no_screen || !args.replay.is_empty())
        && args.command.is_empty()
        && io::stdout().is_terminal()
        && io::stdin().is_terminal();
    let teller = Teller::new(args.json, shows_screen, !args.command.is_empty(), Arc::clone(&picture));
    let board = Board::new(Arc::clone(&picture));
    let exporter = exporter(args, &host, &board, &teller);
    let teller = exporter.iter().fold(teller, |teller, exporter| teller.exporting(exporter.clone()));
    let name = args.unstable_node.clone().unwrap_or_else(|| host.clone());
    let nodes = args.hub.as_deref().map(|hub| Nodes::join(hub, &name)).transpose()?;
    if let Some(address) = args.serve {
        let at = serve::start(address, board.clone()).map_err(|source| Failure::Serve { address, source })?;
        teller.note(format!("the page is at http://{at}/, metrics at http://{at}/metrics"));
    }
    if !args.replay.is_empty() {
        let code = replay::replay(&args.replay, settings(args), &teller)?;
        if !args.json {
            teller.table();
        }
        return Ok(code.into());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let asked_to_end = Arc::new(AtomicBool::new(false));
    let (target, child) = if args.command.is_empty() {
        listen(&stop, args.stay);
        (named(args, &teller)?, None)
    } else {
        let running = started(args, &folder, &teller, &asked_to_end)?;
        (Target::Pids(vec![running.pid()]), Some(running))
    };
    let screen = shows_screen.then(|| {
        let (picture, stop, stays) = (Arc::clone(&picture), Arc::clone(&stop), args.stay);
        thread::spawn(move || {
            let shown = screen::show(&picture, &stop);
            // Watching without a view would go on unseen, unless that is wanted.
            if !stays || !screen::CLOSED.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
            }
            shown
        })
    });
    let until = args.for_s.map(|limit| Instant::now() + Duration::from_secs_f64(limit));
    let front =
        Seat { group: Arc::default(), name: Arc::default(), picture, until, stop, kept: Arc::default() };
    let shared = Arc::new(args.clone());
    let watcher = |seat: Seat, target: Target, nodes: Option<Nodes>, child: Option<Running>| {
        let agent = Agent::new(target, args.rings.as_deref(), name.clone());
        Watch {
            args: Arc::clone(&shared),
            folder: folder.clone(),
            eye: Eye::new(agent, nodes, settings(args), !args.no_ras),
            teller: teller.of_job(&seat.name, &seat.picture),
            child,
            asked_to_end: Arc::clone(&asked_to_end),
            n_under_way: 0,
            incidents: Incidents::default(),
            n_verdicts: 0,
            worst: Code::NothingFound,
            stalled: BTreeSet::new(),
            verdicts: SharedVerdicts::default(),
            nan: Nan::new(),
            recording: None,
            inquiries: Inquiries::default(),
            words: mpsc::channel(),
            seat,
        }
    };
    let code = if matches!(target, Target::Rings) && nodes.is_none() {
        let make = |seat: Seat| {
            let group = Target::Group(Arc::clone(&seat.group));
            watcher(seat, group, None, None)
        };
        several::follow(args, &front, &board, &teller, &make)
    } else {
        watcher(front.clone(), target, nodes, child).follow().code
    };
    front.stop.store(true, Ordering::Relaxed);
    if let Some(exporter) = exporter {
        exporter.flush();
    }
    if let Some(screen) = screen {
        // The screen's own errors are reported here; a panic is our bug and reported at the top.
        match screen.join() {
            Ok(shown) => shown.map_err(Failure::Write)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        teller.last_words();
    }
    Ok(code)
}

/// What exports over OTLP, if the environment asks for it. A recording that is played again is no news.
fn exporter(args: &WatchArgs, host: &str, board: &Board, teller: &Teller) -> Option<otlp::Exporter> {
    if !args.replay.is_empty() {
        return None;
    }
    match otlp::Settings::read(|name| std::env::var(name).ok(), host) {
        Ok(settings) => settings.map(|settings| {
            let teller = teller.clone();
            otlp::Exporter::start(settings, board.clone(), move |text| teller.note(text))
        }),
        // A variable that is meant for the job, not for us, must not keep us from watching it.
        Err(why) => {
            teller.note(format!("no OTLP export: {why}"));
            None
        }
    }
}

/// What is under way is finished, the terminal and the hub are left as they were; who asks twice has it at once.
fn listen(stop: &Arc<AtomicBool>, stays: bool) {
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        if stays && signal == signal_hook::consts::SIGHUP {
            // A terminal that goes away ends nothing: noted, and not looked at.
            let _ = signal_hook::flag::register(signal, Arc::default());
            continue;
        }
        // Fails only for signals that cannot be handled.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(stop));
    }
}

/// What one job's watcher receives, and shares with its starter.
#[derive(Clone)]
struct Seat {
    /// Ranks of the job if none was named.
    group: SharedPids,
    /// What the job is called, once there are several.
    name: Arc<Mutex<Option<String>>>,
    picture: Arc<Mutex<Picture>>,
    /// When the watch ends, if the user set a time.
    until: Option<Instant>,
    /// Somebody wants to stop.
    stop: Arc<AtomicBool>,
    /// Bundles that were written, the oldest first.
    kept: Arc<Mutex<VecDeque<PathBuf>>>,
}

/// How the watching of one job ended.
#[derive(Clone, Copy, Debug)]
struct WatchEnd {
    code: ExitCode,
    worst: Code,
    n_verdicts: u32,
}

impl Default for WatchEnd {
    fn default() -> Self {
        Self { code: ExitCode::SUCCESS, worst: Code::NothingFound, n_verdicts: 0 }
    }
}

/// Starts the command.
fn started(
    args: &WatchArgs,
    folder: &Path,
    teller: &Teller,
    asked_to_end: &Arc<AtomicBool>,
) -> Result<Running, Failure> {
    let is_recordable = args.record_late.is_some();
    let rings = args.rings.as_deref();
    let started = Running::start(&args.command, rings, folder, &incident::stem(), args.json, is_recordable);
    let (running, notes) = started.map_err(|error| Failure::Nodes {
        why: format!("start {}: {error}", args.command[0].to_string_lossy()),
        help: "is it a program that can be found? ringleader watch -- CMD ARGS…",
    })?;
    // Ctrl-C reaches the command from the terminal; we await its end and its exit code.
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Fails only for signals that cannot be handled.
        let _ = signal_hook::flag::register(signal, Arc::clone(asked_to_end));
    }
    for note in notes {
        teller.note(note);
    }
    Ok(running)
}

fn settings(args: &WatchArgs) -> Settings {
    let ns = |seconds: f64| (seconds * 1e9) as i64;
    Settings {
        stall_factor: args.stall_factor,
        stall_floor_ns: ns(args.stall_floor),
        first_floor_ns: ns(args.unstable_first_floor.max(args.stall_floor)),
        interval_ns: ns(args.interval),
        ..Settings::default()
    }
}

/// Where bundles go. With a directory for a hub that is a folder that all nodes see.
fn out_folder(args: &WatchArgs) -> Result<PathBuf, Failure> {
    let shared = args
        .hub
        .as_deref()
        .and_then(|hub| hub.strip_prefix("dir:"))
        .map(|hub| Path::new(hub).join("bundles"));
    let Some(folder) = args.out.clone().or(shared) else { return Ok(PathBuf::from(".")) };
    std::fs::create_dir_all(&folder)
        .map_err(|source| Failure::CannotWrite { path: folder.clone(), source })?;
    Ok(folder)
}

pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// What a thread of an incident has to tell.
enum IncidentMessage {
    Said(What),
    Judged(Box<Judged>),
    /// A verdict is held back: what it names may end by itself.
    Waits,
    /// What was judged is over, and it was never reported.
    Passed,
    /// Nothing could be collected, or judged.
    Unjudged,
    /// It is over, well or not.
    Done,
}

struct Watch {
    args: Arc<WatchArgs>,
    folder: PathBuf,
    eye: Eye,
    teller: Teller,
    child: Option<Running>,
    /// Somebody sent us SIGTERM or SIGINT while a command runs.
    asked_to_end: Arc<AtomicBool>,
    n_under_way: u32,
    incidents: Incidents,
    n_verdicts: u32,
    worst: Code,
    /// Communicators whose stall has been taken up.
    stalled: BTreeSet<String>,
    /// What was reported of the present stall.
    verdicts: SharedVerdicts,
    nan: Nan,
    /// Timelines are recorded, or were; set to end that early.
    recording: Option<Arc<AtomicBool>>,
    inquiries: Inquiries,
    /// What the threads of incidents say.
    words: (Sender<IncidentMessage>, Receiver<IncidentMessage>),
    seat: Seat,
}

impl Watch {
    /// Until the job ends, or until a request to stop.
    fn follow(mut self) -> WatchEnd {
        let code = self.run();
        if let Some(stop) = &self.recording {
            stop.store(true, Ordering::Relaxed);
        }
        WatchEnd { code, worst: self.worst, n_verdicts: self.n_verdicts }
    }

    fn run(&mut self) -> ExitCode {
        let interval = Duration::from_secs_f64(self.args.interval);
        let mut n_looks = 0_u32;
        loop {
            let next = Instant::now() + interval;
            self.look();
            n_looks += 1;
            self.hear();
            if self.args.once && n_looks >= LOOKS_ONCE {
                self.tell_once();
                return self.code();
            }
            let is_over = self.is_over();
            let is_time_up = self.seat.until.is_some_and(|until| Instant::now() >= until);
            let is_enough = self.args.until_verdict && self.n_verdicts > 0 && self.n_under_way == 0;
            // Somebody else may hear of it: a page, a hub, a hook; and a command has an end of its own.
            let is_heard_elsewhere = self.args.stay
                || self.child.is_some()
                || self.eye.nodes.is_some()
                || self.args.serve.is_some()
                || self.teller.is_exporting()
                || self.args.on_stall.is_some()
                || self.args.webhook.is_some();
            if is_over {
                return self.ended();
            }
            let wants_to_stop = || self.seat.stop.load(Ordering::Relaxed);
            if is_time_up || is_enough || wants_to_stop() || is_unheard() && !is_heard_elsewhere {
                self.wait_for_incidents();
                if is_time_up {
                    self.tell_end();
                }
                return self.code();
            }
            while Instant::now() < next && !self.seat.stop.load(Ordering::Relaxed) {
                if self.asked_to_end.swap(false, Ordering::Relaxed)
                    && let Some(child) = &self.child
                {
                    child.terminate();
                }
                self.hear();
                thread::sleep(NAP.min(next.saturating_duration_since(Instant::now())));
            }
        }
    }

    /// A run that ends by the clock says so, and what it has seen: silence could be either.
    fn tell_end(&self) {
        let (n_stalls, n_ranks) = {
            let picture = self.seat.picture.lock().unwrap_or_else(PoisonError::into_inner);
            (picture.n_stalls, picture.n_ranks)
        };
        let seconds = self.args.for_s.unwrap_or_default();
        let stalls = words::count(usize::try_from(n_stalls).unwrap_or(usize::MAX), "stall");
        let verdicts = words::count(self.n_verdicts as usize, "verdict");
        let job = if n_ranks == 0 { "no job is there" } else { "the job runs on" };
        self.teller.note(format!("watched for {seconds} s (--for): {stalls}, {verdicts}; {job}"));
    }

    /// One look at the job.
    fn look(&mut self) {
        let looked = self.eye.look(now_ns());
        looked.notes.into_iter().for_each(|note| self.teller.note(note));
        for event in &looked.events {
            self.react(event, looked.is_analyser);
            self.teller.say(event);
        }
        for request in looked.requests {
            self.collect_for(request);
        }
        let mut picture = self.seat.picture.lock().unwrap_or_else(PoisonError::into_inner);
        picture.see(self.eye.view());
        if looked.tree.is_some() {
            picture.stacks = looked.tree;
        }
        drop(picture);
        let own = self.child.as_ref().map(Running::logs).unwrap_or_default();
        if self.args.once {
            return;
        }
        let look = JobLook {
            view: self.eye.view(),
            prints_nan: self.nan.is_due_in(own, self.eye.agent.logs()),
            is_late: self.eye.is_late(),
            is_without_ranks: self.eye.is_without_ranks(),
            is_stalled: !self.stalled.is_empty(),
        };
        for (why, reason) in self.inquiries.due(&look, steady_ns()) {
            self.begin(why.to_owned(), reason, steady_ns());
        }
    }

    fn react(&mut self, event: &Event, is_analyser: bool) {
        match &event.what {
            What::Stall(stall) => {
                let is_new = self.stalled.insert(stall.comm.clone());
                self.verdicts.lock().stalled();
                // Communicators that stall together have one cause, and the evidence is of the whole job.
                let is_same = self.incidents.is_same(&self.eye.agent.rank_pids(), steady_ns());
                if is_analyser && !self.args.once && is_new && !is_same {
                    let since_ns = steady_ns() - (stall.after_s * 1e9) as i64;
                    self.begin(format!("stall: {}", words::headline(stall)), Reason::Incident, since_ns);
                }
            }
            What::Recovered { comm, .. } => {
                self.stalled.remove(comm);
                if self.stalled.is_empty() {
                    self.verdicts.lock().recovered();
                }
            }
            // What its next ranks stall in is something else.
            What::Over { comm, .. } => {
                self.stalled.remove(comm);
            }
            What::Waiting(_) => self.inquiries.waits(steady_ns()),
            What::Straggler(late) if late.is_worth_a_look() && is_analyser => {
                if self.inquiries.is_late(late, steady_ns()) {
                    self.eye.remember(late.clone());
                }
                if late.persistent {
                    self.record(late.rank);
                }
            }
            _ => {}
        }
    }

    /// Records timelines of the ranks of this machine, once and if that is wanted.
    fn record(&mut self, late: u32) {
        let (Some(ms), None) = (self.args.record_late, &self.recording) else { return };
        let stop = Arc::new(AtomicBool::new(false));
        self.recording = Some(Arc::clone(&stop));
        let pids = self.eye.agent.rank_pids();
        let wanted =
            recording::ToRecord { folder: self.folder.clone(), stem: incident::stem(), pids, ms, late };
        self.teller.note(format!(
            "rank {late} is persistently late: the ranks of this machine record {ms} ms, which slows them during that time"
        ));
        let sender = self.words.0.clone();
        thread::spawn(move || {
            // The watcher may have ended.
            let note = |text: &str| {
                let _ = sender.send(IncidentMessage::Said(What::Note { text: text.to_owned() }));
            };
            match recording::record(&wanted, &note, &stop) {
                Ok(text) => note(&text),
                Err(_) if stop.load(Ordering::Relaxed) => {}
                Err(failure) => note(&format!("no timelines: {}", failure.message().trim_end())),
            }
        });
    }

    fn wanted(&self, why: String) -> ToCollect {
        self.eye.wanted(why, self.child.as_ref().map(|child| child.logs().to_vec()).unwrap_or_default())
    }

    /// Collects, judges and passes on, in a thread. `since_ns`: start of what is judged, as [`steady_ns`].
    fn begin(&mut self, why: String, reason: Reason, since_ns: i64) {
        if self.incidents.n() >= Incidents::MOST && !self.args.stay {
            self.teller
                .note(format!("no more than {} incidents are collected in one run: {why}", Incidents::MOST));
            return;
        }
        if reason.is_of_an_incident() {
            self.incidents.begin(self.eye.agent.rank_pids(), steady_ns());
        }
        self.n_under_way += 1;
        self.doing(Some("collecting evidence"));
        let mut wanted = self.wanted(why);
        if matches!(reason, Reason::Slow) {
            wanted.sampled = self.eye.sampled();
        }
        let (folder, sender) = (self.folder.clone(), self.words.0.clone());
        let asker = match reason {
            Reason::Incident => self.eye.nodes.as_ref().map(Nodes::asker),
            _ => None,
        };
        let hooks = (self.args.on_stall.clone(), self.args.webhook.clone());
        let template = self.args.webhook_template.clone();
        let (verdicts, hold_ns) = (self.verdicts.clone(), (self.args.hold * 1e9) as i64);
        let (n_recoveries, n_stalls) = verdicts.counts();
        thread::spawn(move || {
            let say = |what| {
                // The watcher may have ended.
                let _ = sender.send(IncidentMessage::Said(what));
            };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let asked = asker.and_then(|asker| asker.ask(&wanted.why));
                let (bundle, failed) = incident::collect(&wanted, &folder)?;
                if reason.is_a_question() {
                    let judged = incident::judge(std::slice::from_ref(&bundle))?;
                    // A rank may be late because it comes to a stop: the verdict on that then says more.
                    let is_overtaken =
                        matches!(reason, Reason::Slow) && verdicts.lock().n_stalls() > n_stalls;
                    let is_news =
                        judged.answer.answers(reason) || verdicts.lock().is_revised_by(&judged.answer);
                    if is_overtaken || !is_news {
                        // It is ours, and nobody was told of it.
                        let _ = std::fs::remove_file(&bundle);
                        return Ok::<_, Failure>(None);
                    }
                    say(What::Bundle { path: bundle.display().to_string() });
                    // A verdict on a job that runs is none on a stall that may follow.
                    if matches!(reason, Reason::Doubt { .. }) {
                        verdicts.lock().report(&judged.answer, steady_ns());
                    }
                    return Ok(Some(judged));
                }
                if let Some(failed) = failed {
                    say(What::Note { text: failed.message().trim_end().to_owned() });
                }
                let mut bundles = vec![bundle.clone()];
                if let Some(asked) = asked {
                    let (more, notes) = asked.gather();
                    bundles.extend(more);
                    for text in notes {
                        say(What::Note { text });
                    }
                }
                let judged = incident::judge(&bundles);
                if let Ok(judged) = &judged {
                    let sees_less = verdicts.lock().sees_less(&judged.answer, steady_ns());
                    if sees_less {
                        say(What::Note { text: SEES_LESS.to_owned() });
                    } else if judged.answer.may_pass() {
                        let _ = sender.send(IncidentMessage::Waits);
                    }
                    if sees_less || verdicts.passes(judged, since_ns, hold_ns, n_recoveries) {
                        // It is ours, and nobody was told of it.
                        let _ = std::fs::remove_file(&bundle);
                        let _ = sender.send(IncidentMessage::Passed);
                        return Ok(None);
                    }
                    verdicts.lock().report(&judged.answer, steady_ns());
                }
                say(What::Bundle { path: bundle.display().to_string() });
                judged.map(Some)
            }));
            match outcome {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(judged))) => {
                    let _ = sender.send(IncidentMessage::Judged(Box::new(judged.clone())));
                    for text in hooks::pass_on(&judged, hooks, template.as_ref()) {
                        say(What::Note { text });
                    }
                }
                // Nothing is judged, but the stall is known and reported.
                Ok(Err(failure)) => {
                    let text = failure.message().trim_end().to_owned();
                    say(What::Note { text: text.clone() });
                    let _ = sender.send(IncidentMessage::Unjudged);
                    for text in hooks::pass_on_unjudged(&wanted, &text, hooks, template.as_ref()) {
                        say(What::Note { text });
                    }
                }
                Err(_) => {
                    say(What::Note { text: crate::failure::our_bug() });
                    let _ = sender.send(IncidentMessage::Unjudged);
                }
            }
            let _ = sender.send(IncidentMessage::Done);
        });
    }

    /// Another node judges and wants what is here.
    fn collect_for(&mut self, request: nodes::CollectRequest) {
        let (wanted, folder, sender) =
            (self.wanted(request.why()), self.folder.clone(), self.words.0.clone());
        self.n_under_way += 1;
        thread::spawn(move || {
            let outcome = incident::collect(&wanted, &folder).map(|(path, _)| path);
            if let Ok(path) = &outcome {
                let _ = sender.send(IncidentMessage::Said(What::Bundle { path: path.display().to_string() }));
            }
            request.answer(outcome.map_err(|failure| failure.message()));
            let _ = sender.send(IncidentMessage::Done);
        });
    }

    /// What incidents have said meanwhile.
    fn hear(&mut self) {
        while let Ok(word) = self.words.1.try_recv() {
            self.take(word);
        }
    }

    fn take(&mut self, word: IncidentMessage) {
        match word {
            IncidentMessage::Said(what) => {
                if let What::Bundle { path } = &what {
                    self.keep(PathBuf::from(path));
                }
                self.teller.say(&Event::new(now_ns(), what));
            }
            IncidentMessage::Judged(judged) => {
                self.n_verdicts += 1;
                self.inquiries.answered(&judged.answer);
                self.worst = worse(self.worst, judged.answer.cause());
                if let Some(nodes) = &self.eye.nodes {
                    nodes.record(&judged);
                }
                self.teller.verdict(&judged);
                self.doing(None);
            }
            IncidentMessage::Waits => self.doing(Some("judged; waiting whether it goes on by itself")),
            IncidentMessage::Passed => {
                self.incidents.passed();
                self.stalled.clear();
            }
            IncidentMessage::Unjudged => self.worst = worse(self.worst, Cause::Undecided),
            IncidentMessage::Done => {
                self.n_under_way = self.n_under_way.saturating_sub(1);
                if self.n_under_way == 0 {
                    self.doing(None);
                }
            }
        }
    }

    /// Of a watcher that stays for months only the newest bundles stay.
    fn keep(&self, bundle: PathBuf) {
        let mut kept = self.seat.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(bundle);
        while self.args.stay && kept.len() > self.args.keep.max(1) {
            if let Some(oldest) = kept.pop_front() {
                // Somebody may have taken it away.
                let _ = std::fs::remove_file(oldest);
            }
        }
    }

    fn doing(&self, what: Option<&str>) {
        self.seat.picture.lock().unwrap_or_else(PoisonError::into_inner).doing = what.map(str::to_owned);
    }

    fn wait_for_incidents(&mut self) {
        self.verdicts.lock().over();
        let until = Instant::now()
            + LAST_WAIT
            + hooks::patience(self.args.on_stall.is_some(), self.args.webhook.is_some());
        while self.n_under_way > 0 {
            let Ok(word) = self.words.1.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                self.teller.note("an incident was not finished in time".to_owned());
                return;
            };
            self.take(word);
        }
    }

    fn is_over(&mut self) -> bool {
        match &mut self.child {
            // What it started may outlive it for a moment: it tells its ranks to end, then it ends.
            Some(child) => child.ended().is_some(),
            None => self.eye.agent.is_over(),
        }
    }

    /// The job is gone. If it did not end in order, what is left is collected and judged.
    fn ended(&mut self) -> ExitCode {
        // The last words of ranks that have just ended.
        self.look();
        let status = self.child.as_mut().and_then(Running::ended);
        let how = match status {
            Some(status) => format!("the command ended with {status}"),
            None => "all of its processes have ended".to_owned(),
        };
        let cut_off = self.eye.agent.cut_off();
        let is_bad = status.map_or(!cut_off.is_empty(), |status| !status.success());
        // What brought it down may have been judged just now.
        let is_judged = self.n_verdicts + self.n_under_way > 0 && self.incidents.is_end_of_last(steady_ns());
        self.wait_for_incidents();
        self.teller.say(&Event::new(now_ns(), What::Ended { how: how.clone() }));
        if let (true, Some(child)) = (is_bad, &self.child) {
            for line in child.last_words() {
                self.teller.note(format!("its last words: {line}"));
            }
        }
        let end = JobEnd {
            is_judged,
            is_bad,
            was_seen: !self.eye.agent.never_seen(),
            has_command: self.child.is_some(),
            has_verdict: self.n_verdicts > 0,
        };
        let prints_nan = || self.child.as_ref().is_some_and(|child| nan::is_in(child.logs()));
        let reason = self.inquiries.at_end(end, &self.verdicts.lock(), prints_nan, steady_ns());
        if let Some(reason) = reason
            && !self.args.once
        {
            self.begin(how, reason, steady_ns());
            self.wait_for_incidents();
        }
        let code = match status {
            Some(status) => ExitCode::from(child::code(status)),
            None => self.code(),
        };
        if let Some(child) = self.child.take() {
            child.finish(is_bad || self.incidents.n() > 0);
        }
        code
    }

    fn tell_once(&mut self) {
        let view = self.eye.view();
        self.teller.once(view);
        if !view.stalls.is_empty() {
            self.worst = Code::Findings;
        }
    }

    fn code(&mut self) -> ExitCode {
        if let Some(child) = self.child.take() {
            child.finish(true);
        }
        self.worst.into()
    }
}

/// Looks that `--once` takes: rates need two.
const LOOKS_ONCE: u32 = 3;
