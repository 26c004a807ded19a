//! The holder: parent of the launcher, and nothing more. It starts what it is ordered to, writes the job's output to files,
//! passes signals on, reaps, and keeps the exit status. It also starts the supervisor, again and again if that dies: the
//! job does not depend on it. It works as PID 1 of a container or as the task of a scheduler.
//!
//! If the holder dies the attempt is lost: as PID 1 its end is the end of all, and elsewhere the job's output has no
//! reader any more.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::output::{Bounds, STREAMS, Writer};
use crate::state::{Ended, Folder, Held, Launched, Order, Told, now};
use crate::tree::{self, Member};

/// Between two looks at orders, children and signals.
const NAP: Duration = Duration::from_millis(20);
/// Nobody ordered anything about what an ended launcher left behind: it is ended after this.
const UNCLEANED: Duration = Duration::from_mins(2);
/// A job that was told to end, and whose launcher has ended, is not held up for longer.
const TOLD: Duration = Duration::from_secs(45);
/// How long such processes may end by themselves.
const GRACE: Duration = Duration::from_secs(10);
/// A supervisor that ends sooner than this failed at its start.
const YOUNG: Duration = Duration::from_secs(5);
/// Supervisors that may fail at their start, one after the other, before the holder goes on without.
const MAX_YOUNG: u32 = 5;
/// Signals that are remembered.
const MAX_TOLD: usize = 64;

/// Signals that end a job, passed on to the launcher.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
/// Signals that mean what the program makes of them.
const USERS: [i32; 2] = [SIGUSR1, SIGUSR2];

/// What a holder is given.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The state folder.
    pub folder: Folder,
    /// The supervisor's program and arguments.
    pub supervisor: Vec<OsString>,
    /// How much of the output is kept.
    pub bounds: Bounds,
    /// SIGUSR1 and SIGUSR2 go to the ranks instead of the launcher: torchrun would die of them and leave its workers.
    pub users_to_ranks: bool,
}

struct Holder {
    setup: Setup,
    held: Held,
    signals: Vec<(i32, Arc<AtomicUsize>)>,
    is_said: bool,
    supervisor_began: Instant,
    n_young: u32,
    next_supervisor: Instant,
    ended_at: Option<Instant>,
    pumps: Vec<thread::JoinHandle<()>>,
}

/// Holds until the supervisor says that all is over. Returns the exit code. Errors: no state can be written, or no
/// supervisor started, before anything runs.
pub fn hold(setup: Setup) -> io::Result<u8> {
    // Orphans of the job become our children. PID 1 gets them anyway.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut signals = Vec::new();
    for signal in ENDING.into_iter().chain(USERS) {
        let count = Arc::new(AtomicUsize::new(0));
        signal_hook::flag::register_usize(signal, Arc::clone(&count), 1)?;
        signals.push((signal, count));
    }
    let held = inherited(&setup.folder)?;
    let mut holder = Holder {
        setup,
        held,
        signals,
        is_said: false,
        supervisor_began: Instant::now(),
        n_young: 0,
        next_supervisor: Instant::now(),
        ended_at: None,
        pumps: Vec::new(),
    };
    holder.say()?;
    holder.start_supervisor();
    loop {
        holder.reap();
        holder.pass_signals();
        if let Some(code) = holder.obey() {
            holder.finish();
            return Ok(code);
        }
        if let Some(code) = holder.alone() {
            holder.finish();
            return Ok(code);
        }
        if !holder.is_said {
            // With a full disk the holder goes on: the job does not rest on it.
            holder.is_said = holder.say().is_ok();
        }
        thread::sleep(NAP);
    }
}

/// What the holder before has left, after a loss of power or the end of its container: its launcher is gone, nobody knows
/// how, and orders that it had not carried out were meant for it.
fn inherited(folder: &Folder) -> io::Result<Held> {
    let mut held: Held = folder.read("holder.json")?.unwrap_or_default();
    held.pid = std::process::id();
    (held.supervisor, held.refused) = (None, None);
    held.told.clear();
    while folder.order_at(held.obeyed + 1)?.is_some() {
        held.obeyed += 1;
    }
    if let Some(launched) = &held.launched
        && held.ended.is_none_or(|ended| ended.attempt != launched.attempt)
    {
        held.ended = Some(Ended { attempt: launched.attempt, at: now(), is_clean: true, ..Ended::default() });
    }
    Ok(held)
}

impl Holder {
    fn say(&mut self) -> io::Result<()> {
        self.setup.folder.write("holder.json", &self.held)
    }

    fn changed(&mut self) {
        self.is_said = self.say().is_ok();
    }

    fn launcher(&self) -> Option<Pid> {
        let launched = self.held.launched.as_ref()?;
        let is_over = self.held.ended.as_ref().is_some_and(|ended| ended.attempt == launched.attempt);
        if is_over { None } else { pid(launched.pid) }
    }

    /// Takes the status of every child that has ended, ours or an orphan.
    fn reap(&mut self) {
        while let Ok(Some((child, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if Some(child) == self.launcher() {
                let attempt = self.held.launched.as_ref().map_or(0, |launched| launched.attempt);
                self.held.ended = Some(Ended {
                    attempt,
                    code: status.exit_status(),
                    signal: status.terminating_signal(),
                    at: now(),
                    is_clean: false,
                });
                self.ended_at = Some(Instant::now());
                self.changed();
            } else if Some(child) == self.held.supervisor.and_then(pid) {
                self.held.supervisor = None;
                let is_young = self.supervisor_began.elapsed() < YOUNG;
                self.n_young = if is_young { self.n_young + 1 } else { 0 };
                self.next_supervisor = Instant::now() + NAP * (1 << self.n_young.min(8));
                self.changed();
            }
        }
        if self.held.supervisor.is_none()
            && self.n_young <= MAX_YOUNG
            && Instant::now() >= self.next_supervisor
            // Its last order may be that all is over.
            && !matches!(self.setup.folder.order_at(self.held.obeyed + 1), Ok(Some(_)))
        {
            self.start_supervisor();
        }
    }

    fn start_supervisor(&mut self) {
        let Some((program, arguments)) = self.setup.supervisor.split_first() else { return };
        self.supervisor_began = Instant::now();
        // A group of its own: a terminal's Ctrl-C is for the job, and reaches it through us.
        let started = Command::new(program)
            .args(arguments)
            .env(tree::MARK, self.setup.folder.path())
            .stdin(Stdio::null())
            .process_group(0)
            .spawn();
        if let Ok(child) = started {
            self.held.supervisor = Some(child.id());
            self.held.n_supervisors += 1;
        } else {
            self.n_young += 1;
            self.next_supervisor = Instant::now() + Duration::from_secs(1);
        }
        self.changed();
    }

    fn pass_signals(&mut self) {
        let due: Vec<i32> = self
            .signals
            .iter()
            .filter(|(_, count)| count.swap(0, Ordering::Relaxed) > 0)
            .map(|(signal, _)| *signal)
            .collect();
        for number in due {
            let is_ending = ENDING.contains(&number);
            if is_ending && self.held.told.len() < MAX_TOLD {
                self.held.told.push(Told { signal: number, at: now() });
                // It is known before the launcher acts on it.
                self.changed();
            }
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            if USERS.contains(&number) && self.setup.users_to_ranks {
                for member in self.members().iter().filter(|member| is_rank(member)) {
                    tree::signal(member, signal);
                }
            } else if let Some(launcher) = self.launcher() {
                // It is ours until we reap it: its number cannot be another's.
                let _ = rustix::process::kill_process(launcher, signal);
            }
        }
    }

    fn members(&self) -> Vec<Member> {
        tree::members(std::process::id(), self.held.supervisor)
    }

    /// Carries out the next order. Returns the exit code once it is to end.
    fn obey(&mut self) -> Option<u8> {
        let number = self.held.obeyed + 1;
        let order = self.setup.folder.order_at(number).ok().flatten()?;
        let outcome = match &order {
            Order::Launch { .. } => self.launch(&order),
            Order::Clean { attempt, grace_ms } => {
                self.clean(*attempt, Duration::from_millis(*grace_ms));
                Ok(())
            }
            Order::End { code } => {
                self.held.obeyed = number;
                self.clean(u32::MAX, GRACE);
                self.changed();
                return Some(code.or(self.held.ended.map(|ended| ended.code())).unwrap_or(1));
            }
        };
        self.held.obeyed = number;
        if let Err(error) = outcome {
            self.held.refused = Some((number, error.to_string()));
        }
        self.changed();
        None
    }

    fn launch(&mut self, order: &Order) -> io::Result<()> {
        let Order::Launch { attempt, generation, argv, env } = order else { return Ok(()) };
        let last = self.held.launched.as_ref().map_or(0, |launched| launched.attempt);
        if *attempt <= last || self.launcher().is_some() {
            return Err(io::Error::other(format!("attempt {last} was started before")));
        }
        if !self.held.told.is_empty() {
            return Err(io::Error::other("the job received a request to end"));
        }
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.setup.folder.attempt(*attempt)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(env.iter().map(|(key, value)| (key, value))).env_remove(tree::MARK);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if io::stdin().is_terminal() {
            // In a group of its own it could not read from the terminal: it would be stopped.
            command.stdin(Stdio::null());
        }
        let mut child = command.spawn()?;
        self.held.launched =
            Some(Launched { attempt: *attempt, generation: *generation, pid: child.id(), at: now() });
        self.held.ended = None;
        self.ended_at = None;
        self.pumps.retain(|pump| !pump.is_finished());
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|out| Box::new(out) as _),
        ];
        for (stream, from) in STREAMS.into_iter().zip(streams) {
            let Some(from) = from else { continue };
            let writer = Writer::new(&folder, stream, self.setup.bounds);
            self.pumps.push(thread::spawn(move || pump(from, writer)));
        }
        // Its status is taken by `reap`.
        drop(child);
        Ok(())
    }

    /// Ends what is left of a launcher that has ended; of a later one nothing is touched.
    fn clean(&mut self, attempt: u32, grace: Duration) {
        let launched = self.held.launched.as_ref().map_or(0, |launched| launched.attempt);
        if launched > attempt || attempt != u32::MAX && self.launcher().is_some() {
            return;
        }
        let (own, supervisor) = (std::process::id(), self.held.supervisor);
        tree::end(
            || {
                // Zombies are no members, but their number may be waited for.
                self.reap();
                tree::members(own, supervisor)
            },
            grace,
        );
        if let Some(ended) = &mut self.held.ended {
            ended.is_clean = true;
        }
    }

    /// Without a supervisor that could decide, or one that answers, the job ends when its launcher has.
    fn alone(&mut self) -> Option<u8> {
        let is_without = self.held.supervisor.is_none() && self.n_young > MAX_YOUNG;
        let ended_at = self.ended_at;
        let is_over = self.launcher().is_none();
        if is_without && is_over {
            self.clean(u32::MAX, GRACE);
            self.changed();
            return Some(self.held.ended.map_or(1, |ended| ended.code()));
        }
        // Supervisors that cannot agree, because their store is away, must not hold up the end of a job that was told to end.
        let told_s = self.held.told.first().map_or(0.0, |told| now() - told.at);
        if is_over && told_s > TOLD.as_secs_f64() {
            self.clean(u32::MAX, GRACE);
            self.changed();
            return Some(self.held.ended.map_or(1, |ended| ended.code()));
        }
        let is_left = self.held.ended.is_some_and(|ended| !ended.is_clean);
        if is_left && ended_at.is_some_and(|at| at.elapsed() > UNCLEANED) {
            self.clean(u32::MAX, GRACE);
            self.changed();
        }
        None
    }

    /// The last output reaches its files before the code is known.
    fn finish(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        while self.pumps.iter().any(|pump| !pump.is_finished()) && Instant::now() < until {
            thread::sleep(NAP);
        }
        // The supervisor passes the rest on and ends; it is not waited for longer than that.
        let until = Instant::now() + Duration::from_secs(10);
        while self.held.supervisor.is_some() && Instant::now() < until {
            self.n_young = MAX_YOUNG + 1;
            self.reap();
            thread::sleep(NAP);
        }
    }
}

/// A process that carries a rank's number.
fn is_rank(member: &Member) -> bool {
    let proc = PathBuf::from("/proc");
    ringleader_collect::follow::rank_env(&proc, member.pid).is_some_and(|env| env.rank.is_some())
}

fn pump(mut from: impl Read, mut to: Writer) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => to.write(buffer.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
