//! What became of each rank: how its process was seen last, and how it ended. Decided once; rules read it.
//!
//! The two are separate because both may be known: a process that was stopped is killed by its launcher in the end.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::program::may_train;
use ringleader_knowledge::signal::{self, SIGABRT, SIGKILL, SIGTERM, Signal, is_exit_by};
use ringleader_model::{
    Case, Evidence, Fact, Observation, ProcessRow, Rank, SourceKind, TorchEvent, WallTime,
};

use crate::machine::kernel::KernelLogs;
use crate::process::condition::{Condition, Conditions, Farewell, ProcessExit, ProcessState};
use crate::when::failure::{self, JobFailure, Way};
use crate::who::roster::Roster;
use crate::who::tools::Tools;

/// The sender of a SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killer {
    /// The kernel, for lack of memory: its log says so, or the count of a memory cgroup of that host.
    Memory,
    /// The launcher, after a process did not end in time: another process failed first.
    Launcher,
    /// Another process.
    Outside,
}

/// How a process was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// State T.
    Stopped,
    /// State D: in the kernel.
    Blocked,
    /// State Z: ended, and not waited for by its parent.
    Zombie,
    /// A list of its node has its peers and not it.
    Absent,
    /// It closed its communicators, and no stack shows it since.
    Closed,
    /// It was seen at work: by a list, a stack, a ring, or a timeout that it reported.
    Alive,
    /// No evidence shows it.
    Unseen,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By SIGKILL. `is_root`: its launcher noticed this failure first.
    Killed {
        /// Who sent it.
        by: Killer,
        /// The launcher's first failure.
        is_root: bool,
    },
    /// By a signal that it brought on itself.
    Crashed(&'static Signal),
    /// By SIGABRT after a collective had timed out: its watchdog ended it.
    Aborted,
    /// By SIGTERM, which launchers and schedulers send.
    Terminated,
    /// With this exit code.
    Exited(i64),
    /// A crash report shows it; no exit code is known.
    CrashReported,
    /// It raised an exception; no exit code is known.
    Raised,
    /// In order, as a program that has reached its end: nothing calls it a failure.
    InOrder,
    /// Nothing shows that it ended.
    Untold,
}

/// What became of one rank.
#[derive(Clone, Debug)]
pub struct Fate {
    life: Life,
    end: End,
    is_cut_off: bool,
    is_absent: bool,
    lives: bool,
    was_seen: bool,
    has_raised: bool,
    exit: Option<ProcessExit>,
    ring_gone: Option<Evidence>,
    departure: Vec<Evidence>,
    evidence: Vec<Evidence>,
}

impl Fate {
    /// How it was seen last.
    pub fn life(&self) -> Life {
        self.life
    }

    /// How it ended.
    pub fn end(&self) -> End {
        self.end
    }

    /// RAS got no answer, and no list of processes shows it: it has exited, is stopped or is cut off.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Its process was seen to be gone.
    pub fn is_gone(&self) -> bool {
        match self.life {
            Life::Zombie | Life::Absent | Life::Closed => true,
            Life::Stopped | Life::Blocked | Life::Alive | Life::Unseen => false,
        }
    }

    /// Its process was seen to be there and cannot go on: stopped, or in the kernel.
    pub fn is_halted(&self) -> bool {
        matches!(self.life, Life::Stopped | Life::Blocked)
    }

    /// Its own signs say that it is there: it was seen running or asleep, its stack was taken or it reported a timeout, and
    /// no list of its node lacks it. Unlike [`Life::Alive`] this does not rest on its ring.
    pub fn lives(&self) -> bool {
        self.lives
    }

    /// Nothing shows why it would not answer its peers: it was not seen halted or absent, and no end of it is reported.
    pub fn can_answer(&self) -> bool {
        !self.is_halted() && self.exit.is_none() && !self.is_absent
    }

    /// It will not come to where others wait for it: it is gone, halted, or ended by itself.
    pub fn cannot_come(&self) -> bool {
        self.is_gone() || self.is_halted() || self.failed_by_itself()
    }

    /// It ended by itself, before or without the others: ranks that wait for it wait for a process that has failed.
    pub fn failed_by_itself(&self) -> bool {
        match self.end {
            End::Killed { is_root, .. } => is_root,
            // An abort is how a watchdog ends a process, too.
            End::Crashed(signal) => signal.number != SIGABRT,
            End::Exited(_) | End::CrashReported => true,
            End::Aborted | End::Terminated | End::Raised | End::InOrder | End::Untold => false,
        }
    }

    /// It ended by a failure, its own or one from outside, other than in the way in which launchers and watchdogs
    /// end processes.
    pub fn failed(&self) -> bool {
        matches!(self.end, End::Killed { .. }) || self.failed_by_itself() && self.end != End::Exited(0)
    }

    /// How it ended by the word of its launcher, its watcher or its ring.
    pub fn exit(&self) -> Option<&ProcessExit> {
        self.exit.as_ref()
    }

    /// The account of its end, if the signal with this number ended it; the sender does not matter.
    pub fn ended_by(&self, signal: u8) -> Option<&ProcessExit> {
        self.exit().filter(|exit| signal::is_exit_by(exit.code, signal))
    }

    /// The account of its end, if it ended by itself with an exit code.
    pub fn exited(&self) -> Option<&ProcessExit> {
        self.exit().filter(|_| matches!(self.end, End::Exited(_)))
    }

    /// Its failure was the first of all that were noticed.
    pub fn failed_first(&self) -> bool {
        self.exit().is_some_and(|exit| exit.is_root)
    }

    /// SIGTERM ended it before any other failed, and it had raised nothing: the signal was for it.
    pub fn was_terminated_first(&self) -> bool {
        self.end == End::Terminated && self.failed_first() && !self.has_raised
    }

    /// Its process was seen while it was there: by a list, a stack, a ring, or a timeout that it reported.
    pub fn was_seen(&self) -> bool {
        self.was_seen
    }

    /// Its ring ends while processes of its node go on: nothing else of it remains.
    pub fn left_a_ring(&self) -> Option<&Evidence> {
        self.ring_gone.as_ref()
    }

    /// Signs that its process left: of the list of processes (it is not in it, or a zombie), RAS, its own log or ring.
    pub fn departure(&self) -> &[Evidence] {
        &self.departure
    }

    /// It lived until its launcher ended it, after others had failed.
    pub fn outlived_others(&self) -> bool {
        matches!(self.end, End::Terminated | End::Killed { is_root: false, .. })
    }

    /// What says so: of its end, else of how it was seen last.
    pub fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }
}

/// The fates of all ranks that the evidence shows.
#[derive(Clone, Debug, Default)]
pub struct Fates {
    by_rank: BTreeMap<Rank, Fate>,
    killed_at: BTreeMap<Rank, WallTime>,
    has_stopped_program: bool,
    has_escalated: bool,
    has_rank_timed_out: bool,
    has_job_timed_out: bool,
    launcher_lists: bool,
    launcher_reports: bool,
}

impl Fates {
    /// Decides them.
    pub fn new(
        case: &Case,
        roster: &Roster,
        tools: &Tools<'_>,
        kernel: &KernelLogs<'_>,
        conditions: &Conditions,
        failure: &JobFailure,
    ) -> Self {
        let has_rank_timed_out = any_rank_timed_out(conditions);
        let judge = Judge {
            roster,
            tools,
            kernel,
            conditions,
            has_escalated: has_escalated(case),
            has_rank_timed_out,
            gave_up: gave_up(case, roster, conditions),
        };
        let of_rank = |(rank, condition): (Rank, &Condition)| (rank, judge.fate(rank, condition));
        Self {
            by_rank: conditions.all().map(of_rank).collect(),
            killed_at: killed_at(case, roster),
            has_stopped_program: process_rows(case).any(is_stopped_program),
            has_escalated: judge.has_escalated,
            has_rank_timed_out,
            has_job_timed_out: failure.has(Way::TimedOut),
            launcher_lists: conditions.has_failure_table(),
            launcher_reports: conditions.has_failure_table() || reports_ends(case),
        }
    }

    /// The fate of a rank; None if nothing is known of it.
    pub fn get(&self, rank: Rank) -> Option<&Fate> {
        self.by_rank.get(&rank)
    }

    /// When a launcher first saw this rank end by SIGKILL; None if it did not or has no clock.
    pub fn killed_at(&self, rank: Rank) -> Option<WallTime> {
        self.killed_at.get(&rank).copied()
    }

    /// A launcher sent SIGKILL, since processes had not ended in time.
    pub fn has_escalated(&self) -> bool {
        self.has_escalated
    }

    /// A rank reports that a collective timed out for it: see [`any_rank_timed_out`].
    pub fn has_rank_timed_out(&self) -> bool {
        self.has_rank_timed_out
    }

    /// Its launcher ended it once others had timed out: it lived while they waited for it.
    pub fn lived_while_others_waited(&self, rank: Rank) -> bool {
        self.has_job_timed_out && self.get(rank).is_some_and(Fate::outlived_others)
    }

    /// A launcher reports those that fail, an operation timed out, and no end of this rank is known: it lived until
    /// then.
    pub fn is_unlisted(&self, rank: Rank) -> bool {
        self.launcher_reports
            && self.has_job_timed_out
            && self.get(rank).is_none_or(|fate| fate.exit.is_none())
    }

    /// Anything shows that it lived: that it was seen, that its launcher ended it, or that its launcher lists those that
    /// failed without it. Reports of single ends are no list: they acquit one silent rank, and where many are silent they
    /// would show each of them alive.
    pub fn shows_life(&self, rank: Rank) -> bool {
        let by_itself = |fate: &Fate| fate.was_seen() || fate.outlived_others();
        self.get(rank).is_some_and(by_itself) || self.launcher_lists && self.is_unlisted(rank)
    }

    /// Nothing shows it: neither it nor its end was ever seen.
    pub fn is_silent(&self, rank: Rank) -> bool {
        self.get(rank).is_none_or(|fate| !fate.was_seen() && fate.exit.is_none())
    }

    /// Whether a process of the job is stopped: a rank's, or a program whose rank is not known.
    pub fn any_stopped(&self) -> bool {
        self.has_stopped_program || self.by_rank.values().any(|fate| fate.life == Life::Stopped)
    }

    /// Each rank with its fate, in the order of ranks.
    pub fn all(&self) -> impl Iterator<Item = (Rank, &Fate)> {
        self.by_rank.iter().map(|(rank, fate)| (*rank, fate))
    }
}

/// A rank reports that a collective timed out for it. What is said here of ranks, their waits and their aborts, rests on it.
/// [`Way::TimedOut`] is wider: it counts the report of a process whose rank is not known, too, which says of the job that
/// it hung, and not who did.
pub fn any_rank_timed_out(conditions: &Conditions) -> bool {
    conditions.all().any(|(_, c)| c.timed_out.is_some())
}

/// When launchers first saw ranks end by SIGKILL.
fn killed_at(case: &Case, roster: &Roster) -> BTreeMap<Rank, WallTime> {
    let mut first = BTreeMap::new();
    for observation in &case.observations {
        if let (Fact::Torch(event), Some(at)) = (&observation.fact, observation.at)
            && failure::kill(event).is_some()
            && let Some(rank) = roster.culprit(&observation.who).rank
        {
            first.entry(rank).or_insert(at);
        }
    }
    first
}

/// A launcher reports ends of single processes, or that it ended some.
fn reports_ends(case: &Case) -> bool {
    let is_report =
        |e: &TorchEvent| matches!(e, TorchEvent::ChildExit { .. } | TorchEvent::ClosingSignal { .. });
    case.observations.iter().any(|o| matches!(&o.fact, Fact::Torch(event) if is_report(event)))
}

/// Rows of all lists of processes.
fn process_rows(case: &Case) -> impl Iterator<Item = &ProcessRow> {
    let tables = case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Processes(table) => Some(&table.rows),
        _ => None,
    });
    tables.flatten()
}

/// A Python program or its launcher in state T, of any rank or of none.
fn is_stopped_program(row: &ProcessRow) -> bool {
    may_train(&row.command) && row.state.starts_with(['T', 't'])
}

/// A launcher escalates to SIGKILL if processes do not end in time. Only the name counts so far: of a launcher that prints
/// `via 9` the kill still reads as one from outside.
fn has_escalated(case: &Case) -> bool {
    case.observations.iter().any(|o| {
        matches!(&o.fact, Fact::Torch(TorchEvent::ClosingSignal { signal, .. })
            if signal::named(signal).is_some_and(|s| s.number == SIGKILL))
    })
}

struct Judge<'s, 'a> {
    roster: &'s Roster,
    tools: &'s Tools<'a>,
    kernel: &'s KernelLogs<'a>,
    conditions: &'s Conditions,
    has_escalated: bool,
    has_rank_timed_out: bool,
    gave_up: BTreeSet<Rank>,
}

/// Messages of processes that abort themselves because of what they heard of others.
const GIVES_UP: [&str; 3] =
    ["jax-coord-terminating", "jax-coord-coordinator-died-old", "xla-clique-terminate"];

/// Ranks that say so. Where it is not known which process says it, it is of the only rank that ended by SIGABRT.
fn gave_up(case: &Case, roster: &Roster, conditions: &Conditions) -> BTreeSet<Rank> {
    let says = |o: &&Observation| match &o.fact {
        Fact::Said(said) => said.rows.iter().any(|row| GIVES_UP.contains(row)),
        _ => false,
    };
    let aborted = |c: &Condition| c.exit.as_ref().is_some_and(|exit| is_exit_by(exit.code, SIGABRT));
    let mut aborts = conditions.all().filter(|(_, c)| aborted(c)).map(|(rank, _)| rank);
    let only = aborts.next().filter(|_| aborts.next().is_none());
    let speaker = |o: &Observation| roster.speaker(o).or(only.filter(|_| o.who.pid.is_none()));
    case.observations.iter().filter(says).filter_map(speaker).collect()
}

impl Judge<'_, '_> {
    fn fate(&self, rank: Rank, c: &Condition) -> Fate {
        let is_cut_off = c.ras_missing.is_some() && c.state.is_none();
        let life = match c.state.as_ref().map(|(state, _)| state) {
            Some(ProcessState::Zombie) => Life::Zombie,
            Some(ProcessState::Stopped) => Life::Stopped,
            Some(ProcessState::Uninterruptible) => Life::Blocked,
            _ if c.absent.is_some() => Life::Absent,
            _ if c.comm_closed.is_some() && c.stand.is_none() => Life::Closed,
            Some(ProcessState::Running | ProcessState::Sleeping) => Life::Alive,
            None if c.stand.is_some() || c.timed_out.is_some() || c.ring_live.is_some() => Life::Alive,
            None => Life::Unseen,
        };
        let end = self.end(rank, c);
        let evidence = match end {
            End::InOrder => {
                let exit = c.exit.iter().map(|exit| exit.evidence.clone());
                c.signs_of_leaving().into_iter().chain(exit).collect()
            }
            End::CrashReported => c.crash.iter().map(|(.., e)| e.clone()).collect(),
            End::Raised => c.exception.iter().cloned().collect(),
            End::Untold => match life {
                Life::Stopped | Life::Blocked | Life::Zombie => {
                    c.state.iter().map(|(_, e)| e.clone()).collect()
                }
                Life::Absent | Life::Closed => c.signs_of_leaving(),
                Life::Alive | Life::Unseen => Vec::new(),
            },
            _ => c.exit.iter().map(|e| e.evidence.clone()).collect(),
        };
        let zombie = c.state.iter().filter(|(state, _)| *state == ProcessState::Zombie);
        Fate {
            life,
            end,
            is_cut_off,
            is_absent: c.absent.is_some(),
            lives: c.absent.is_none()
                && (matches!(c.state, Some((ProcessState::Running | ProcessState::Sleeping, _)))
                    || c.timed_out.is_some()
                    || c.stand.is_some()),
            was_seen: c.stand.is_some()
                || c.state.is_some()
                || c.timed_out.is_some()
                || c.ring_live.is_some(),
            has_raised: c.exception.is_some(),
            exit: c.exit.clone(),
            ring_gone: c.ring_gone.clone(),
            departure: c.signs_of_leaving().into_iter().chain(zombie.map(|(_, row)| row.clone())).collect(),
            evidence,
        }
    }

    fn end(&self, rank: Rank, c: &Condition) -> End {
        let was_reported = c.crash.as_ref().is_some_and(|(reason, ..)| &**reason != "Aborted");
        let Some(exit) = &c.exit else {
            return match () {
                () if was_reported => End::CrashReported,
                () if c.exception.is_some() => End::Raised,
                () if self.left_in_order(rank, c) => End::InOrder,
                () => End::Untold,
            };
        };
        match signal::of_exit(exit.code) {
            Some(s) if s.number == SIGKILL => {
                End::Killed { by: self.killer(rank, exit.is_root), is_root: exit.is_root }
            }
            // The watchdog aborts its own process: that is what a timeout looks like from outside.
            Some(s) if s.number == SIGABRT && (self.has_rank_timed_out || self.gave_up.contains(&rank)) => {
                End::Aborted
            }
            Some(s) if s.is_own() => End::Crashed(s),
            _ if was_reported => End::CrashReported,
            Some(s) if s.number == SIGTERM => End::Terminated,
            // The one that saw it end reports no failure.
            _ if exit.code == 0 && c.exception.is_none() && self.left_in_order(rank, c) => End::InOrder,
            _ => End::Exited(exit.code),
        }
    }

    fn killer(&self, rank: Rank, is_root: bool) -> Killer {
        let host = self.roster.culprit_rank(rank).host;
        if self.kernel.oom_killed(rank) || self.tools.group_kills(host.as_ref()).next().is_some() {
            Killer::Memory
        } else if self.has_escalated && !is_root {
            Killer::Launcher
        } else {
            Killer::Outside
        }
    }

    /// Its end was seen (by a list of processes, RAS, its own log or ring), and it was an orderly one.
    fn left_in_order(&self, rank: Rank, c: &Condition) -> bool {
        let is_zombie = c.state.as_ref().is_some_and(|(state, _)| *state == ProcessState::Zombie);
        let is_own_word = |exit: &ProcessExit| exit.evidence.kind == SourceKind::Ring;
        if c.exit.as_ref().is_some_and(|exit| exit.code == 0 && (is_zombie || is_own_word(exit))) {
            return true;
        }
        if c.crash.is_some() || c.state.is_some() || c.stand.is_some() || c.timed_out.is_some() {
            return false;
        }
        let unlisted = self.conditions.has_failure_table() && self.peers_are_listed(rank);
        // An abort alone is what torch does on any way out, an exception's too.
        let is_destroyed = c.comm_closed.as_ref().is_some_and(|(how, _)| *how == Farewell::Destroyed);
        let has_signs = c.absent.is_some() || c.ras_missing.is_some() || c.comm_closed.is_some();
        is_destroyed || unlisted && has_signs || c.comm_closed.is_some() && c.absent.is_some()
    }

    /// The launcher of its node listed others, so it would have listed this rank had it failed.
    fn peers_are_listed(&self, rank: Rank) -> bool {
        let host = |rank: Rank| self.roster.by_rank(rank).and_then(|m| m.host.as_ref());
        let own = host(rank);
        let is_listed = |(other, c): (Rank, &Condition)| {
            other != rank && c.exit.is_some() && (own.is_none() || host(other) == own)
        };
        self.conditions.all().any(is_listed)
    }
}

#[cfg(test)]
mod tests {
    use ringleader_knowledge::signal::SIGKILL;
    use ringleader_model::{Rank, TorchEvent};

    use super::SIGTERM;
    use crate::Scene;
    use crate::staging::StagedCase;

    #[test]
    fn who_gives_up_because_of_others_did_not_crash() {
        assert!(super::GIVES_UP.iter().all(|id| ringleader_knowledge::message::get(id).is_some()));
        let says = "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details.";
        let crashed = |stage: StagedCase| {
            let scene = Scene::new(&stage.case);
            matches!(scene.fate(Rank(0)).map(super::Fate::end), Some(super::End::Crashed(_)))
        };
        let ends = || StagedCase::job(2).failed(0, -6, true);
        assert!(crashed(ends()));
        assert!(!crashed(ends().says(ringleader_model::Who::rank(0), says)));
        assert!(crashed(ends().says(ringleader_model::Who::rank(1), says)));
        // Nobody signed it: of one abort it is the reason, of two nobody knows which.
        assert!(!crashed(ends().says(ringleader_model::Who::default(), says)));
        assert!(crashed(ends().failed(1, -6, false).says(ringleader_model::Who::default(), says)));
    }

    #[test]
    fn accounts_of_an_end() {
        let stage = StagedCase::job(3).failed(0, 137, true).failed(1, -15, false).failed(2, 3, false);
        let scene = Scene::new(&stage.case);
        let of = |rank| scene.fate(Rank(rank)).expect("it is listed");
        assert!(of(0).ended_by(SIGKILL).is_some() && of(0).failed_first() && of(0).exited().is_none());
        assert!(of(1).ended_by(SIGKILL).is_none() && of(1).ended_by(SIGTERM).is_some());
        assert!(!of(1).was_terminated_first() && of(1).outlived_others());
        assert_eq!(of(2).exited().map(|exit| exit.code), Some(3));
    }

    #[test]
    fn a_signal_for_one_rank() {
        let first = |stage: StagedCase| {
            let scene = Scene::new(&stage.case);
            scene.fate(Rank(1)).is_some_and(super::Fate::was_terminated_first)
        };
        assert!(first(StagedCase::job(2).failed(1, -15, true)));
        assert!(!first(StagedCase::job(2).failed(1, -15, true).raised(Some(1), "OSError", "x", &[])));
    }

    /// Whether rank 1 is unlisted, shows life, and is silent.
    fn rank_1(stage: &StagedCase) -> [bool; 3] {
        let scene = Scene::new(&stage.case);
        let (fates, rank) = (scene.fates(), Rank(1));
        [fates.is_unlisted(rank), fates.shows_life(rank), fates.is_silent(rank)]
    }

    #[test]
    fn a_rank_that_its_launcher_does_not_list() {
        let timed_out = || StagedCase::job(2).timed_out(0, "ar:9", 13, 13);
        assert_eq!(rank_1(&timed_out()), [false, false, true]);
        assert_eq!(rank_1(&timed_out().failed(0, -6, true)), [true, true, true]);
        // Nobody had waited for it; it is listed itself.
        assert_eq!(rank_1(&StagedCase::job(2).failed(0, -6, true)), [false, false, true]);
        assert_eq!(rank_1(&timed_out().failed(1, 1, true)), [false, false, false]);
        // Ends of single processes, and no list: the other may be one that was not reported.
        let exit = TorchEvent::ChildExit { exit_code: -6, is_first: false };
        assert_eq!(rank_1(&timed_out().torch(Some(0), exit, "")), [true, false, true]);
    }

    #[test]
    fn a_rank_that_its_launcher_ended_once_others_had_timed_out() {
        let waited = |stage: StagedCase| Scene::new(&stage.case).fates().lived_while_others_waited(Rank(1));
        assert!(waited(
            StagedCase::job(2).timed_out(0, "ar:9", 13, 13).failed(0, -6, true).failed(1, -15, false)
        ));
        assert!(!waited(StagedCase::job(2).failed(0, 1, true).failed(1, -15, false)));
    }
}
