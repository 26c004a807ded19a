//! The condition of each rank's process: alive and where, stopped, dead and how.

use std::collections::BTreeMap;

use ringleader_knowledge::place::{self, Activity, marks};
use ringleader_model::{
    Case, Cite, Evidence, Fact, Frame, NcclLog, Observation, Pid, ProcessRow, ProcessStacks, ProcessTable,
    Rank, RasReport, SourceKind, StackTool, ThreadStack, TorchEvent, WallTime, WatchEvent, WatchedEnd,
    user_frame,
};

use crate::operation::clock;
use crate::prepare::rings::{Horizon, rings};
use crate::when::year::in_year;
use crate::who::roster::Roster;

/// State letter of a process list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// R.
    Running,
    /// S, I.
    Sleeping,
    /// D.
    Uninterruptible,
    /// T, t.
    Stopped,
    /// Z, X.
    Zombie,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct ProcessExit {
    /// Exit code; negative = signal.
    pub code: i64,
    /// The launcher says this was the first failure it noticed.
    pub is_root: bool,
    /// As cited.
    pub evidence: Evidence,
}

/// Frames of Python within which a wait for the GPU is the wait of the innermost call: wrappers of torch are fewer.
const NEAR_FRAMES: u32 = 12;

/// Processes that ended within this many seconds ended together: a watcher looks twice a second, and a GPU takes time to be given
/// back.
const TOGETHER_S: i64 = 3;

/// Where a process is in its program.
#[derive(Clone, Debug)]
pub struct ProgramPosition {
    /// Frames of the main thread, innermost first.
    pub frames: Vec<Frame>,
    /// py-spy's active/idle.
    pub active: Option<bool>,
    /// Another thread that holds Python's lock, and that thread's stack.
    pub gil_holder: Option<(Box<str>, Evidence)>,
    /// As cited.
    pub evidence: Evidence,
}

/// What a process does outside.
#[derive(Clone, Debug)]
pub struct Busy {
    /// What.
    pub place: &'static Activity,
    /// The thread that holds Python's lock.
    pub holder: Option<Box<str>>,
    /// The frame that says so, unless it is the thread's innermost one; or the thread that holds the lock.
    pub evidence: Option<Evidence>,
}

impl Busy {
    /// `in the data loader`.
    pub fn words(&self) -> String {
        match &self.holder {
            Some(holder) => format!("{}, which thread {holder} holds", self.place.text),
            None => self.place.text.to_owned(),
        }
    }

    /// It stalls with the storage below it.
    pub fn is_on_files(&self) -> bool {
        matches!(self.place.id, place::ids::DATA_LOADER | place::ids::CHECKPOINT | place::ids::STORAGE)
    }
}

impl ProgramPosition {
    /// Innermost frame of the user's own code.
    pub fn place(&self) -> Option<&Frame> {
        // Stacks name installed files by a path below their package directory, as they do a program's own files. What
        // is known to be a library is none of the program's.
        let library = place::of_stack(&self.names()).filter(|(_, at)| {
            self.frames.get(*at).is_some_and(|f| f.file.contains('/') && !f.file.starts_with('/'))
        });
        let outside = library.and_then(|(_, at)| user_frame(self.frames.get(at + 1..)?));
        outside.or_else(|| user_frame(&self.frames))
    }

    /// The main thread waits for the GPU or inside torch.distributed: it does not hold others up.
    pub fn waits_in_gpu_or_collective(&self) -> bool {
        self.frames.iter().filter(|f| !f.is_native()).take(4).any(|f| {
            is_marked(marks::GPU_CALL, f) || is_marked(marks::TORCH_COLLECTIVE, f) && !self.is_leaving()
        }) || self.waits_for_gpu()
    }

    /// The main thread is inside a call that waits for other ranks, and not on its way out.
    pub fn is_in_collective(&self) -> bool {
        let names = self.names();
        let known = place::of_stack(&names).is_some_and(|(place, _)| place.waits_for_ranks);
        let of_torch = |f: &Frame| is_marked(marks::TORCH_COLLECTIVE, f);
        known || self.frames.iter().filter(|f| !f.is_native()).take(4).any(of_torch) && !self.is_leaving()
    }

    /// Functions and files, innermost first.
    fn names(&self) -> Vec<(&str, &str)> {
        self.frames.iter().map(|f| (&*f.function, &*f.file)).collect()
    }

    /// What it does there, by its frames.
    pub fn activity(&self) -> Option<Busy> {
        let told = place::of_stack(&self.names());
        // A thread that waits with no sign for what, while another thread holds Python's lock, waits for that lock.
        if let Some((holder, evidence)) = &self.gil_holder
            && told.is_none_or(|(place, _)| matches!(place.id, place::ids::GIL | place::ids::LOCK))
            && let Some(place) = place::all().iter().find(|p| p.id == place::ids::GIL)
        {
            return Some(Busy { place, holder: Some(holder.clone()), evidence: Some(evidence.clone()) });
        }
        let (place, at) = told?;
        let frame = self.frames.get(at)?;
        let text = format!("its stack goes through {} ({}:{})", frame.function, frame.file, frame.line);
        let evidence = Evidence { text, ..self.evidence.clone() };
        Some(Busy { place, holder: None, evidence: (at > 0).then_some(evidence) })
    }

    /// The main thread waits for work on the GPU to end: in Python's `synchronize`, or below it in the CUDA runtime.
    pub fn waits_for_gpu(&self) -> bool {
        // Between CUDA's call and the kernel's lie frames of the driver without names.
        let mut n_python = 0;
        let near = self.frames.iter().take_while(|f| {
            n_python += u32::from(!f.is_native());
            n_python <= NEAR_FRAMES
        });
        near.into_iter().any(|f| is_marked(marks::GPU_WAIT, f))
    }

    /// The main thread is on its way out: tearing down, at exit.
    pub fn is_leaving(&self) -> bool {
        // Python ends, or the C library does: no frame of Python is left then.
        let ends = |f: &Frame| {
            if f.is_native() {
                return is_marked(marks::NATIVE_EXIT, f);
            }
            let of_framework = f.owner() == ringleader_model::FrameOwner::Framework;
            of_framework && is_marked(marks::FRAMEWORK_EXIT, f) || is_marked(marks::PROGRAM_EXIT, f)
        };
        self.frames.iter().any(ends)
    }

    /// The main thread is setting up the job.
    pub fn is_joining(&self) -> bool {
        self.frames.iter().any(|f| is_marked(marks::JOINING, f))
    }
}

/// How a process closed its communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It destroyed them, or its ring says that all were closed in order.
    Destroyed,
    /// It aborted one, which torch does on any way out.
    Aborted,
}

/// What is known of one rank's process.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// From a process list, with the row.
    pub state: Option<(ProcessState, Evidence)>,
    /// Kernel function it sleeps in.
    pub wchan: Option<Box<str>>,
    /// Share of a processor since its start, percent.
    pub cpu_pct: Option<f32>,
    /// A list of processes of its node has its peers and not it.
    pub absent: Option<Evidence>,
    /// Its ring was read while it lived.
    pub ring_live: Option<Evidence>,
    /// Its ring shows nothing in flight.
    pub ring_idle: bool,
    /// Its ring ends before those of processes of the same node that live.
    pub(crate) ring_gone: Option<Evidence>,
    /// The account of its end by its launcher, its watcher or its ring.
    pub(crate) exit: Option<ProcessExit>,
    /// Its own crash report.
    pub crash: Option<(Box<str>, Vec<ThreadStack>, Evidence)>,
    /// Main thread's stack while alive.
    pub stand: Option<ProgramPosition>,
    /// Stacks that show it in the same place, this one among them.
    pub n_same_looks: u32,
    /// Two threads of its program are inside collectives at the same time.
    pub two_inside: Option<Evidence>,
    /// The stack tool failed on it, and why.
    pub stand_failure: Option<(Box<str>, Evidence)>,
    /// RAS got no answer from it.
    pub ras_missing: Option<Evidence>,
    /// It closed its communicators, and how.
    pub comm_closed: Option<(Farewell, Evidence)>,
    /// Its watchdog reported a timeout.
    pub timed_out: Option<Evidence>,
    /// It raised an exception of its own.
    pub exception: Option<Evidence>,
}

/// Conditions of all ranks that the evidence shows.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    by_rank: BTreeMap<Rank, Condition>,
    has_failure_table: bool,
    /// A watcher saw all of the job's processes end.
    is_over: bool,
}

impl Condition {
    /// Signs that its process left: the list of processes, RAS, its own log or ring.
    pub(crate) fn signs_of_leaving(&self) -> Vec<Evidence> {
        let closed = self.comm_closed.as_ref().map(|(_, evidence)| evidence);
        let signs = [self.absent.as_ref(), self.ras_missing.as_ref(), closed];
        signs.into_iter().flatten().cloned().collect()
    }

    /// What its process does outside: by its stack, else by the kernel's function that it sleeps in.
    pub fn busy(&self) -> Option<Busy> {
        let by_stack = self.stand.as_ref().and_then(ProgramPosition::activity);
        let by_kernel = || {
            let place = place::of_wait(self.wchan.as_deref()?)?;
            Some(Busy { place, holder: None, evidence: None })
        };
        by_stack.or_else(by_kernel)
    }
}

impl Conditions {
    /// Condition of a rank; empty if nothing is known.
    pub fn get(&self, rank: Rank) -> Option<&Condition> {
        self.by_rank.get(&rank)
    }

    /// Any launcher printed its table of failures.
    pub fn has_failure_table(&self) -> bool {
        self.has_failure_table
    }

    /// All ranks with a known condition.
    pub fn all(&self) -> impl Iterator<Item = (Rank, &Condition)> {
        self.by_rank.iter().map(|(rank, condition)| (*rank, condition))
    }

    /// Collects the conditions that a case shows.
    pub fn new(case: &Case, roster: &Roster) -> Self {
        let mut conditions = Self::default();
        for observation in &case.observations {
            match &observation.fact {
                Fact::Processes(table) => conditions.join_processes(roster, table, observation.cite),
                Fact::Stacks(stacks) => conditions.join_stacks(roster, stacks, observation),
                Fact::Nccl(log) => conditions.join_nccl(roster, log),
                Fact::Ras(report) => conditions.join_ras(roster, report, observation.cite),
                Fact::Torch(event) => conditions.join_torch(roster, event, observation),
                Fact::Watch(WatchEvent::Gone(ended, is_all)) => {
                    conditions.join_ends(ended, *is_all, observation.cite);
                }
                _ => {}
            }
        }
        conditions.join_rings(case, roster);
        // A process whose stack was taken is alive, even if a list lacks it: the list may have been cut.
        for condition in conditions.by_rank.values_mut().filter(|c| c.stand.is_some()) {
            condition.absent = None;
            condition.ring_gone = None;
        }
        conditions
    }

    /// Where a process is in its program, or why its stack could not be taken.
    fn join_stacks(&mut self, roster: &Roster, stacks: &ProcessStacks, observation: &Observation) {
        // What is written above a stack says whose it is; numbers of processes recur on other nodes.
        let host = observation.who.host.as_ref();
        let by_pid = || roster.rank_of(stacks.pid?, host);
        let Some(rank) = observation.who.rank.or_else(by_pid) else { return };
        let cite = observation.cite;
        let evidence = |text| Evidence { cite, text, kind: SourceKind::Stacks };
        let condition = self.by_rank.entry(rank).or_default();
        if let Some(failure) = &stacks.failure {
            let said = evidence(observation.text.to_string());
            condition.stand_failure.get_or_insert((failure.clone(), said));
        }
        let inside: Vec<String> = stacks.threads.iter().filter_map(stand_in_collective).collect();
        if inside.len() > 1 {
            let text = format!("threads of rank {} inside collectives: {}", rank.0, inside.join("; "));
            condition.two_inside.get_or_insert(evidence(text));
        }
        // No process has the number 0: then the name of the thread counts, or its place.
        let pid = stacks.pid.unwrap_or(Pid(0));
        if let Some(thread) = main_thread(&stacks.threads, pid, stacks.tool)
            && !is_of_worker(thread)
        {
            let mut stand = stand_of(thread, cite);
            let is_same = |known: &ProgramPosition| known.place() == stand.place();
            condition.n_same_looks += u32::from(condition.stand.as_ref().is_none_or(is_same));
            if condition.stand.is_none() {
                stand.gil_holder = gil_holder(&stacks.threads, thread, cite);
                condition.stand = Some(stand);
            }
        }
    }

    /// Communicators that a process closed.
    fn join_nccl(&mut self, roster: &Roster, log: &NcclLog) {
        for comm in &log.comms {
            let process = log.processes.get(comm.process as usize);
            let Some(rank) = process.and_then(|p| roster.find(&p.who)?.rank) else { continue };
            let (how, word, cite) = match (comm.aborted, comm.destroyed) {
                (Some(cite), _) => (Farewell::Aborted, "Abort", cite),
                (None, Some(cite)) => (Farewell::Destroyed, "Destroy COMPLETE", cite),
                (None, None) => continue,
            };
            let text = format!("comm {:#x} rank {} nranks {} - {word}", comm.ptr, comm.rank.0, comm.n_ranks);
            let evidence = Evidence { cite, text, kind: SourceKind::NcclLog };
            self.by_rank.entry(rank).or_default().comm_closed.get_or_insert((how, evidence));
        }
    }

    /// Processes from which RAS got no answer.
    fn join_ras(&mut self, roster: &Roster, report: &RasReport, cite: Cite) {
        // A rank without either mark did answer: it has left that communicator.
        let no_answer = report.comms.iter().flat_map(|c| &c.missing).filter(|p| p.unresponsive || p.dead);
        for peer in report.missing_processes.iter().chain(no_answer) {
            let Some(pid) = peer.pid else { continue };
            let Some(rank) = roster.rank_of(pid, peer.host.as_ref()) else { continue };
            let host = peer.host.as_ref().map_or(String::new(), |h| format!(" on node {h}"));
            let text = format!("RAS got no answer from process {}{host}", pid.0);
            let evidence = Evidence { cite, text, kind: SourceKind::Ras };
            self.by_rank.entry(rank).or_default().ras_missing.get_or_insert(evidence);
        }
    }

    /// How a process ended or what it waited for, by torch and its launcher.
    fn join_torch(&mut self, roster: &Roster, event: &TorchEvent, observation: &Observation) {
        self.has_failure_table |= matches!(event, TorchEvent::ChildFailure { .. });
        let Some(rank) = roster.speaker(observation) else { return };
        let condition = self.by_rank.entry(rank).or_default();
        let (cite, text) = (observation.cite, observation.text.to_string());
        let evidence = Evidence { cite, text, kind: SourceKind::TorchLog };
        match event {
            TorchEvent::ChildFailure { exit_code, is_root, .. }
                if condition.exit.as_ref().is_none_or(|e| !e.is_root) =>
            {
                condition.exit = Some(ProcessExit { code: *exit_code, is_root: *is_root, evidence });
            }
            TorchEvent::ChildExit { exit_code, is_first } => {
                condition.exit.get_or_insert(ProcessExit { code: *exit_code, is_root: *is_first, evidence });
            }
            TorchEvent::Crash { reason, threads, .. } => {
                condition.crash.get_or_insert((reason.clone(), threads.clone(), evidence));
            }
            TorchEvent::WatchdogTimeout { .. } => {
                condition.timed_out.get_or_insert(evidence);
            }
            TorchEvent::Exception(_) => {
                condition.exception.get_or_insert(evidence);
            }
            _ => {}
        }
    }

    /// Processes that a watcher saw end.
    fn join_ends(&mut self, ended: &[WatchedEnd], is_all: bool, cite: Cite) {
        self.is_over |= is_all;
        let last_ns = ended.iter().map(|end| end.at_ns).max().unwrap_or_default();
        for end in ended {
            let outlived_s = (last_ns - end.at_ns) / 1_000_000_000;
            let was_outlived = !is_all || outlived_s >= TOGETHER_S;
            let rest =
                if is_all { format!("the last {outlived_s} s later") } else { "others lived".to_owned() };
            let text = format!("the watcher saw rank {} end at {}, {rest}", end.rank.0, clock(end.at_ns));
            let evidence = Evidence { cite, text, kind: SourceKind::Watch };
            let condition = self.by_rank.entry(end.rank).or_default();
            let is_first = was_outlived && ended.iter().all(|other| other.at_ns >= end.at_ns);
            // Where all ended together, whoever ended the job sent the signal.
            if let Some(code) = end.exit_code.filter(|code| *code >= 0 || was_outlived) {
                let evidence = evidence.clone();
                condition.exit.get_or_insert(ProcessExit { code, is_root: is_first && code != 0, evidence });
            }
            if was_outlived {
                condition.absent.get_or_insert(evidence);
            }
        }
    }

    /// Processes whose rings were read while they lived, and those that left only a ring.
    fn join_rings(&mut self, case: &Case, roster: &Roster) {
        /// A ring that was copied by hand a moment before the others were read.
        const MOMENT_NS: i64 = 1_000_000_000;
        /// What closes within this of a timeout of another rank closes because of it.
        const BECAUSE_NS: i64 = 600_000_000_000;
        let timed_out_ns = first_timeout(case);
        let is_consequence = |closed_ns: i64| {
            let closed = in_year(WallTime { ns: closed_ns, error_ns: 0, has_year: true });
            timed_out_ns.is_some_and(|at| (at..at.saturating_add(BECAUSE_NS)).contains(&closed))
        };
        let horizon = Horizon::new(case);
        let rings = rings(case);
        // The newest time of a dead process is no later than its end.
        let ended = rings.iter().filter(|(_, r)| !r.is_live || r.exit.is_some());
        let first_ns = ended.map(|(_, r)| r.exit.map_or(r.taken_ns, |(_, at_ns)| at_ns)).min();
        let lives = |boot_id: &str| rings.iter().any(|(_, r)| r.is_live && &*r.boot_id == boot_id);
        for (observation, ring) in &rings {
            let Some(rank) = roster.rank_of_ring(observation) else { continue };
            let pid = observation.who.pid.map_or(0, |p| p.0);
            let said = |text: String| Some(Evidence { cite: observation.cite, text, kind: SourceKind::Ring });
            let condition = self.by_rank.entry(rank).or_default();
            if let Some((code, at_ns)) = ring.exit {
                let is_first = first_ns.is_none_or(|first_ns| at_ns <= first_ns);
                let text =
                    format!("rank {} (pid {pid}) called exit with code {code} at {}", rank.0, clock(at_ns));
                let evidence = Evidence { cite: observation.cite, text, kind: SourceKind::Ring };
                let code = i64::from(code);
                condition.exit.get_or_insert(ProcessExit { code, is_root: is_first && code != 0, evidence });
            }
            condition.ring_idle = !ring.ops.iter().any(ringleader_model::RingOp::is_open);
            if ring.is_live {
                let at = clock(ring.taken_ns);
                condition.ring_live = said(format!("rank {} (pid {pid}) lived at {at}", rank.0));
            } else if ring.is_ended {
                let text = format!(
                    "rank {} (pid {pid}) closed all its communicators in order, the last at {}",
                    rank.0,
                    clock(ring.taken_ns)
                );
                let how = if is_consequence(ring.taken_ns) { Farewell::Aborted } else { Farewell::Destroyed };
                let closed = said(text).map(|evidence| (how, evidence));
                condition.comm_closed = condition.comm_closed.take().or(closed);
            } else if !self.is_over && lives(&ring.boot_id) && horizon.after(ring) > MOMENT_NS {
                let after_s = horizon.after(ring) / 1_000_000_000;
                let text = format!(
                    "the ring of rank {} (pid {pid}) ends at {}; processes of its node lived {after_s} s later, it did not",
                    rank.0,
                    clock(ring.taken_ns)
                );
                condition.ring_gone = said(text);
                condition.absent = condition.absent.take().or_else(|| condition.ring_gone.clone());
            }
        }
    }

    fn join_processes(&mut self, roster: &Roster, table: &ProcessTable, cite: Cite) {
        let mut present: Vec<Rank> = Vec::new();
        let is_rank = |row: &&ProcessRow| row.pid.and_then(|pid| roster.rank_of(pid, None)).is_some();
        let n_dead = table.rows.iter().filter(is_rank).filter(|row| row.state.starts_with('Z')).count();
        // One alone that ended while others live did so first.
        let is_first = n_dead == 1 && table.rows.iter().filter(is_rank).count() > 1;
        for row in &table.rows {
            let Some(rank) = row.pid.and_then(|pid| roster.rank_of(pid, None)) else { continue };
            present.push(rank);
            let state = match row.state.chars().next() {
                Some('R') => ProcessState::Running,
                Some('S' | 'I') => ProcessState::Sleeping,
                Some('D') => ProcessState::Uninterruptible,
                Some('T' | 't') => ProcessState::Stopped,
                Some('Z' | 'X') => ProcessState::Zombie,
                _ => continue,
            };
            let condition = self.by_rank.entry(rank).or_default();
            let text = format!(
                "pid {} STAT {} WCHAN {} {}",
                row.pid.map_or(0, |p| p.0),
                row.state,
                if row.wchan.is_empty() { "-" } else { &row.wchan },
                row.command
            );
            let evidence =
                Evidence { cite: Cite { line: row.line, ..cite }, text, kind: SourceKind::Processes };
            condition.wchan = Some(row.wchan.clone()).filter(|w| !w.is_empty());
            condition.cpu_pct = row.cpu_pct.or(condition.cpu_pct);
            // Where all have ended, whoever ended the job sent the signal.
            if let Some(code) = row.exit_code.filter(|code| is_first || *code >= 0) {
                let how = if code < 0 { format!("signal {}", -code) } else { format!("exit code {code}") };
                let evidence =
                    Evidence { text: format!("{}, ended with {how}", evidence.text), ..evidence.clone() };
                condition.exit.get_or_insert(ProcessExit { code, is_root: is_first && code != 0, evidence });
            }
            condition.state = Some((state, evidence));
        }
        if present.is_empty() || table.is_cut {
            return;
        }
        // Its node's list shows peers of the same node, and not it. A host name identifies a node; a single unnamed
        // list of a single-node job counts for all.
        let hosts = |rank: Rank| roster.by_rank(rank).and_then(|m| m.host.clone());
        let here: Vec<_> = present.iter().filter_map(|r| hosts(*r)).collect();
        let one_list_of_all = roster.members.iter().filter_map(|m| m.host.as_ref()).all(|h| here.contains(h));
        // A list that ends with a rank may have been cut behind it.
        let ends_elsewhere =
            table.rows.last().and_then(|row| row.pid).is_some_and(|pid| roster.rank_of(pid, None).is_none());
        let is_last = roster.world_size.is_some_and(|n| n as usize == present.len() + 1)
            && one_list_of_all
            && ends_elsewhere;
        for member in &roster.members {
            let Some(rank) = member.rank.filter(|r| !present.contains(r)) else { continue };
            let Some(pid) = member.pid else {
                // It has spoken, and this list has all ranks but it.
                if is_last {
                    let text =
                        format!("rank {} is not in this list of processes; all other ranks are", rank.0);
                    let evidence = Evidence { cite, text, kind: SourceKind::Processes };
                    self.by_rank.entry(rank).or_default().absent.get_or_insert(evidence);
                }
                continue;
            };
            // The snapshot saw the process and did not take it for one of the job's: it is there.
            if table.pick.as_ref().is_some_and(|pick| pick.others.contains(&pid)) {
                continue;
            }
            let same_node = match &member.host {
                Some(host) => here.contains(host),
                None => one_list_of_all,
            };
            if same_node {
                let condition = self.by_rank.entry(rank).or_default();
                let text = format!(
                    "pid {} (rank {}) is not in this list of processes; its peers are",
                    member.pid.map_or(0, |p| p.0),
                    rank.0
                );
                condition.absent.get_or_insert(Evidence { cite, text, kind: SourceKind::Processes });
            }
        }
    }
}

/// Whether the table of places marks this frame so.
pub fn is_marked(mark: &str, frame: &Frame) -> bool {
    place::is_marked(mark, &frame.function, &frame.file)
}

/// The collective that a thread of the program is in, and the user's line that called it.
fn stand_in_collective(thread: &ThreadStack) -> Option<String> {
    let call = thread.frames.iter().find(|f| is_marked(marks::TORCH_COLLECTIVE, f))?;
    let place = user_frame(&thread.frames)?;
    Some(format!("{} called from {} ({}:{})", call.function, place.function, place.file, place.line))
}

/// The thread that runs the program: named MainThread, or the one whose id is the pid, or the one with user code.
pub(super) fn main_thread(threads: &[ThreadStack], pid: Pid, tool: StackTool) -> Option<&ThreadStack> {
    threads
        .iter()
        .find(|t| t.name.as_deref() == Some("MainThread"))
        .or_else(|| threads.iter().find(|t| t.tid == Some(u64::from(pid.0))))
        // faulthandler prints the most recent thread first and the main thread last.
        .or_else(|| {
            if tool == StackTool::Faulthandler {
                threads.iter().rev().find(|t| !t.frames.is_empty())
            } else {
                None
            }
        })
        .or_else(|| threads.iter().find(|t| user_frame(&t.frames).is_some()))
        .filter(|t| !t.frames.is_empty())
}

/// Frames of a crash report's interesting thread: the one that crashed, or the main thread.
pub fn crash_frames(threads: &[ThreadStack]) -> &[Frame] {
    threads
        .iter()
        .find(|t| t.current && !t.frames.is_empty())
        .or_else(|| threads.iter().rev().find(|t| !t.frames.is_empty()))
        .map_or(&[], |t| t.frames.as_slice())
}

/// The process is a worker of a data loader: a child of a rank; it does not show where the rank is.
fn is_of_worker(thread: &ThreadStack) -> bool {
    thread.frames.iter().any(|f| is_marked(marks::LOADER_WORKER, f))
}

/// A thread other than the main one that holds Python's lock.
fn gil_holder(threads: &[ThreadStack], main: &ThreadStack, cite: Cite) -> Option<(Box<str>, Evidence)> {
    let holder = threads.iter().find(|t| t.holds_gil && !std::ptr::eq(*t, main))?;
    let frame = holder.frames.iter().find(|f| !f.is_native()).or(holder.frames.first())?;
    let name: Box<str> = match (&holder.name, holder.tid) {
        (Some(name), _) => name.clone(),
        (None, Some(tid)) => tid.to_string().into(),
        (None, None) => "without a name".into(),
    };
    let text =
        format!("thread {name} holds Python's lock: {} ({}:{})", frame.function, frame.file, frame.line);
    Some((name, Evidence { cite, text, kind: SourceKind::Stacks }))
}

fn stand_of(thread: &ThreadStack, cite: Cite) -> ProgramPosition {
    // The innermost frame shows what it waits for, and the program's own frames where.
    let is_mixed = thread.frames.iter().any(|f| f.file.ends_with(".py"));
    let (n_native, n_more) = if is_mixed { (2, 4) } else { (0, 4) };
    let n_inner = thread.frames.iter().take_while(|f| f.is_native()).count();
    let inner = thread.frames.iter().take(n_inner.min(n_native));
    let outer = thread.frames.iter().skip(if is_mixed { n_inner } else { 0 }).take(n_more);
    let chain: Vec<String> = inner
        .chain(outer)
        .map(|f| {
            if f.line > 0 {
                format!("{} ({}:{})", f.function, f.file, f.line)
            } else {
                f.function.to_string()
            }
        })
        .collect();
    ProgramPosition {
        frames: thread.frames.clone(),
        active: thread.active,
        gil_holder: None,
        evidence: Evidence {
            cite,
            text: format!("main thread: {}", chain.join(" < ")),
            kind: SourceKind::Stacks,
        },
    }
}
/// When a collective first timed out, in the year 1970.
fn first_timeout(case: &Case) -> Option<i64> {
    let is_timeout = |o: &&Observation| matches!(&o.fact, Fact::Torch(TorchEvent::WatchdogTimeout { .. }));
    case.observations.iter().filter(is_timeout).filter_map(|o| o.at).map(in_year).min()
}
