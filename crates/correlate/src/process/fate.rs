//! What became of each rank: how its process was seen last, and how it ended. Decided once; rules read it.
//!
//! The two are separate because both may be known: a process that was stopped is killed by its launcher in the end.

use std::collections::BTreeMap;

use ringleader_knowledge::signal::{self, SIGABRT, SIGKILL, SIGTERM, Signal};
use ringleader_model::{Case, Evidence, Fact, ProcessRow, Rank, SourceKind, TorchEvent};

use crate::machine::kernel::KernelLogs;
use crate::process::condition::{Condition, Conditions, Exit, Farewell, ProcessState};
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
    has_stopped_program: bool,
}

impl Fates {
    /// Decides them.
    pub fn new(
        case: &Case,
        roster: &Roster,
        tools: &Tools<'_>,
        kernel: &KernelLogs<'_>,
        conditions: &Conditions,
    ) -> Self {
        let judge = Judge {
            roster,
            tools,
            kernel,
            conditions,
            has_escalated: has_escalated(case),
            anybody_timed_out: conditions.all().any(|(_, c)| c.timed_out.is_some()),
        };
        let of_rank = |(rank, condition): (Rank, &Condition)| (rank, judge.fate(rank, condition));
        Self {
            by_rank: conditions.all().map(of_rank).collect(),
            has_stopped_program: process_rows(case).any(is_stopped_program),
        }
    }

    /// The fate of a rank; None if nothing is known of it.
    pub fn get(&self, rank: Rank) -> Option<&Fate> {
        self.by_rank.get(&rank)
    }

    /// Whether a process of the job is stopped: a rank's, or a program whose rank is not known.
    pub fn any_stopped(&self) -> bool {
        self.has_stopped_program || self.by_rank.values().any(|fate| fate.life == Life::Stopped)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (Rank, &Fate)> {
        self.by_rank.iter().map(|(rank, fate)| (*rank, fate))
    }
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
    let is_program = ["python", "torchrun"].iter().any(|word| row.command.contains(word));
    is_program && row.state.starts_with(['T', 't'])
}

/// A launcher escalates to SIGKILL if processes do not end in time.
pub fn has_escalated(case: &Case) -> bool {
    case.observations.iter().any(|o| {
        matches!(&o.fact, Fact::Torch(TorchEvent::ClosingSignal { signal, .. }) if signal.contains("KILL"))
    })
}

struct Judge<'s, 'a> {
    roster: &'s Roster,
    tools: &'s Tools<'a>,
    kernel: &'s KernelLogs<'a>,
    conditions: &'s Conditions,
    has_escalated: bool,
    anybody_timed_out: bool,
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
        Fate { life, end, is_cut_off, evidence }
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
            Some(s) if s.number == SIGABRT && self.anybody_timed_out => End::Aborted,
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
        let is_own_word = |exit: &Exit| exit.evidence.kind == SourceKind::Ring;
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
