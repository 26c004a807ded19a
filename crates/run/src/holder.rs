//! The holder: only the parent of the launcher. It executes orders to start it, writes the job's output to files,
//! forwards signals, reaps children, and keeps the exit status. It also starts the supervisor, and restarts it if it
//! dies: the job does not depend on the supervisor. The holder works as PID 1 of a container or as the task of a
//! scheduler.
//!
//! If the holder dies, the attempt is lost: if it is PID 1, the container ends with it; otherwise nothing reads the
//! job's output any more.

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
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGWINCH, SIGXCPU, SIGXFSZ,
};

use crate::output::{Bounds, STREAMS, StreamWriter};
use crate::state::{Folder, HolderState, Launched, LauncherEnd, Order, SentSignal, now};
use crate::tree::{self, TreeProcess};

/// Interval between checks of orders, children and signals.
const NAP: Duration = Duration::from_millis(20);
/// Without an order to clean up, processes that an ended launcher left behind are ended after this.
const UNCLEANED: Duration = Duration::from_mins(2);
/// Longest wait for the supervisor after a job that received a request to end has lost its launcher.
const TOLD: Duration = Duration::from_secs(45);
/// How long such processes may take to exit by themselves.
const GRACE: Duration = Duration::from_secs(10);
/// A supervisor that exits sooner than this failed at startup.
const YOUNG: Duration = Duration::from_secs(5);
/// Consecutive supervisors that may fail at startup before the holder continues without one.
const MAX_YOUNG: u32 = 5;
/// Most signals that are recorded.
const MAX_TOLD: usize = 64;

/// Signals that end a job; forwarded to the launcher.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
/// Signals whose meaning the program defines; those for real-time programs have it, too.
const USERS: [i32; 8] = [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXCPU, SIGXFSZ];
/// The first and last signal for real-time programs. The C library reserves some below.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
/// Signals that suspend and continue the whole job: the launcher alone would leave its ranks running.
const SUSPENDING: [i32; 2] = [SIGTSTP, SIGCONT];

/// Parameters of a holder.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The state folder.
    pub folder: Folder,
    /// The supervisor's program and arguments.
    pub supervisor: Vec<OsString>,
    /// How much output is kept.
    pub bounds: Bounds,
    /// SIGUSR1 and SIGUSR2 go to the ranks instead of the launcher: torchrun would die and leave its workers behind.
    pub users_to_ranks: bool,
}

struct Holder {
    setup: Setup,
    held: HolderState,
    signals: Vec<(i32, Arc<AtomicUsize>)>,
    is_said: bool,
    /// The order to end was executed: no further supervisor is needed.
    is_over: bool,
    supervisor_began: Instant,
    n_young: u32,
    next_supervisor: Instant,
    ended_at: Option<Instant>,
    pumps: Vec<thread::JoinHandle<()>>,
}

/// Runs until the supervisor ends the run. Returns the exit code. Errors: before anything runs, the state cannot be
/// written or no supervisor can be started.
pub fn hold(setup: Setup) -> io::Result<u8> {
    // Orphans of the job become our children, as they do for PID 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut signals = Vec::new();
    for signal in ENDING.into_iter().chain(USERS).chain(SUSPENDING).chain([SIGWINCH]).chain(REAL_TIME) {
        let count = Arc::new(AtomicUsize::new(0));
        match signal_hook::flag::register_usize(signal, Arc::clone(&count), 1) {
            Ok(_) => signals.push((signal, count)),
            // The C library has reserved it.
            Err(_) if REAL_TIME.contains(&signal) => {}
            Err(error) => return Err(error),
        }
    }
    let held = inherited(&setup.folder)?;
    let mut holder = Holder {
        setup,
        held,
        signals,
        is_said: false,
        is_over: false,
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
            // With a full disk the holder continues: the job does not need the file.
            holder.is_said = holder.say().is_ok();
        }
        thread::sleep(NAP);
    }
}

/// State of the previous holder, after a power failure or the end of its container: its launcher is gone with unknown
/// status, and its unexecuted orders are void.
fn inherited(folder: &Folder) -> io::Result<HolderState> {
    let mut held: HolderState = folder.read("holder.json")?.unwrap_or_default();
    held.pid = std::process::id();
    (held.supervisor, held.refused, held.is_suspended) = (None, None, false);
    held.told.clear();
    while folder.order_at(held.obeyed + 1)?.is_some() {
        held.obeyed += 1;
    }
    if let Some(launched) = &held.launched
        && held.ended.is_none_or(|ended| ended.attempt != launched.attempt)
    {
        held.ended = Some(LauncherEnd {
            attempt: launched.attempt,
            at: now(),
            is_clean: true,
            ..LauncherEnd::default()
        });
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

    /// Reaps every child that has ended, ours or an orphan.
    fn reap(&mut self) {
        while let Ok(Some((child, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if Some(child) == self.launcher() {
                let attempt = self.held.launched.as_ref().map_or(0, |launched| launched.attempt);
                self.held.ended = Some(LauncherEnd {
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
            && !self.is_over
            && self.n_young <= MAX_YOUNG
            && Instant::now() >= self.next_supervisor
            // Its last order may be to end the run.
            && !matches!(self.setup.folder.order_at(self.held.obeyed + 1), Ok(Some(_)))
        {
            self.start_supervisor();
        }
    }

    fn start_supervisor(&mut self) {
        let Some((program, arguments)) = self.setup.supervisor.split_first() else { return };
        self.supervisor_began = Instant::now();
        // In its own process group: Ctrl-C of a terminal is meant for the job, and reaches it through us.
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
                self.held.told.push(SentSignal { signal: number, at: now() });
                // Recorded before the launcher acts on it.
                self.changed();
            }
            if SUSPENDING.contains(&number) {
                self.held.is_suspended = number == SIGTSTP;
                self.changed();
            }
            self.pass(number);
        }
    }

    /// Forwards a signal to the launcher, to its ranks, or to all of the job.
    fn pass(&self, number: i32) {
        let is_users = USERS.contains(&number) || REAL_TIME.contains(&number);
        let to_ranks = is_users && self.setup.users_to_ranks;
        if !to_ranks && !SUSPENDING.contains(&number) {
            // It is our child until we reap it, so its pid cannot be reused.
            let Some(launcher) = self.launcher() else { return };
            match Signal::from_named_raw(number) {
                Some(signal) => drop(rustix::process::kill_process(launcher, signal)),
                None => kill(number, launcher.as_raw_nonzero().get().unsigned_abs()),
            }
            return;
        }
        for member in self.members().iter().filter(|member| !to_ranks || is_rank(member)) {
            match Signal::from_named_raw(number) {
                Some(signal) => drop(tree::signal(member, signal)),
                None => kill(number, member.pid),
            }
        }
    }

    fn members(&self) -> Vec<TreeProcess> {
        tree::members(std::process::id(), self.held.supervisor)
    }

    /// Executes the next order. Returns the exit code once the holder should exit.
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
                self.is_over = true;
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
            return Err(io::Error::other(format!("attempt {last} was already started")));
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
            // In its own process group, reading from the terminal would stop it.
            command.stdin(Stdio::null());
        }
        let mut child = command.spawn()?;
        self.held.launched =
            Some(Launched { attempt: *attempt, generation: *generation, pid: child.id(), at: now() });
        (self.held.ended, self.held.is_suspended) = (None, false);
        self.ended_at = None;
        self.pumps.retain(|pump| !pump.is_finished());
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|out| Box::new(out) as _),
        ];
        for (stream, from) in STREAMS.into_iter().zip(streams) {
            let Some(from) = from else { continue };
            let writer = StreamWriter::new(&folder, stream, self.setup.bounds);
            self.pumps.push(thread::spawn(move || pump(from, writer)));
        }
        // `reap` collects its status.
        drop(child);
        Ok(())
    }

    /// Ends processes that an ended launcher left behind; never touches a later launcher.
    fn clean(&mut self, attempt: u32, grace: Duration) {
        let launched = self.held.launched.as_ref().map_or(0, |launched| launched.attempt);
        if launched > attempt || attempt != u32::MAX && self.launcher().is_some() {
            return;
        }
        let (own, supervisor) = (std::process::id(), self.held.supervisor);
        tree::end(
            || {
                // Zombies are not members, but something may wait for their pid.
                self.reap();
                tree::members(own, supervisor)
            },
            grace,
        );
        if let Some(ended) = &mut self.held.ended {
            ended.is_clean = true;
        }
    }

    /// Without a supervisor, or if it does not answer, the run ends with the launcher.
    fn alone(&mut self) -> Option<u8> {
        let is_without = self.held.supervisor.is_none() && self.n_young > MAX_YOUNG;
        let ended_at = self.ended_at;
        let is_over = self.launcher().is_none();
        if is_without && is_over {
            self.clean(u32::MAX, GRACE);
            self.changed();
            return Some(self.held.ended.map_or(1, |ended| ended.code()));
        }
        // Supervisors that cannot agree because their store is unreachable must not delay a requested end of the job.
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

    /// Writes the last output to its files before the exit code is known.
    fn finish(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        while self.pumps.iter().any(|pump| !pump.is_finished()) && Instant::now() < until {
            thread::sleep(NAP);
        }
        // The supervisor forwards the rest and exits; the wait for it is limited.
        let until = Instant::now() + Duration::from_secs(10);
        while self.held.supervisor.is_some() && Instant::now() < until {
            self.is_over = true;
            self.reap();
            thread::sleep(NAP);
        }
    }
}

/// Sends a signal for real-time programs, which has no name, with the program `kill`. It is reaped as every child is.
fn kill(number: i32, pid: u32) {
    let words = [format!("-{number}"), pid.to_string()];
    // Without that program the signal is lost.
    let _ = Command::new("kill").args(words).env(tree::MARK, "kill").stdin(Stdio::null()).spawn();
}

/// Whether a process has a rank number in its environment.
fn is_rank(member: &TreeProcess) -> bool {
    let proc = PathBuf::from("/proc");
    ringleader_collect::follow::rank_env(&proc, member.pid).is_some_and(|env| env.rank.is_some())
}

fn pump(mut from: impl Read, mut to: StreamWriter) {
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
