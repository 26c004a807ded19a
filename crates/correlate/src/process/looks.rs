//! The ranks of a job that runs, each looked at twice, some seconds apart: its state, the processor time that it has
//! used between, and where its main thread was. Only what a collector took of living processes is here.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, Frame, PickedProcess, Pid, ProcessRow, Rank, SecondLook, user_frame};

use super::condition::{Conditions, ProgramPosition, main_thread};
use crate::who::roster::{Roster, told_size};

/// One rank.
#[derive(Clone, Debug)]
pub struct ProcessLook {
    /// Rank.
    pub rank: Rank,
    /// Process.
    pub pid: Pid,
    /// State letter at the second look.
    pub state: Box<str>,
    /// Processor time used since it began, milliseconds.
    pub cpu_ms: u64,
    /// Share of one processor that it used between the looks.
    pub busy: f64,
    /// Kernel function in which it sleeps.
    pub wchan: Option<Box<str>>,
    /// Innermost frame of the program's own code.
    pub place: Option<Frame>,
    /// What it does or waits for there, by its stack.
    pub doing: Option<String>,
    /// The same as an id of `knowledge::place`; None if stopped.
    pub activity: Option<&'static str>,
    /// It waits in a collective or for the GPU: for others.
    pub waits: bool,
    /// Whether its main thread went on from the first look to the second; None without two stacks, or if that is not certain.
    pub has_moved: Option<bool>,
}

/// All ranks that were looked at.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    ranks: Vec<ProcessLook>,
    apart_ms: u64,
    missing: Vec<Rank>,
    may_go_on: bool,
}

/// A process that went to sleep this often between two looks did something in between. A single wait is one sleep.
const WAKES: u64 = 3;
/// Ranks that are reported as missing.
const MAX_MISSING: usize = 64;

impl ProcessLook {
    /// By a signal or a debugger: whatever its stack shows, it does nothing there.
    pub fn is_stopped(&self) -> bool {
        is_stopped(&self.state)
    }
}

fn is_stopped(state: &str) -> bool {
    matches!(state, "T" | "t")
}

impl Looks {
    /// Collects them. Empty unless a snapshot looked twice.
    pub fn new(case: &Case, roster: &Roster, conditions: &Conditions) -> Self {
        let mut looks = Self::default();
        let stacks = stacks_by_pid(case);
        let rows = case.observations.iter().flat_map(|observation| match &observation.fact {
            Fact::Processes(table) => table.rows.as_slice(),
            _ => &[],
        });
        let (mut seen, mut n_sleeps) = (BTreeSet::new(), Vec::new());
        for row in rows {
            let Some((pid, again)) = looked_twice(row) else { continue };
            let Some(rank) = roster.rank_of(pid, None).filter(|rank| seen.insert(*rank)) else { continue };
            looks.apart_ms = looks.apart_ms.max(again.after_ms);
            n_sleeps.push(again.n_sleeps);
            let stand = conditions.get(rank).and_then(|condition| condition.stand.as_ref());
            let activity = stand.and_then(ProgramPosition::activity).filter(|_| !is_stopped(&again.state));
            let used = again.cpu_ms.saturating_sub(again.first_cpu_ms);
            looks.ranks.push(ProcessLook {
                rank,
                pid,
                state: again.state.clone(),
                cpu_ms: again.cpu_ms,
                busy: used as f64 / again.after_ms.max(1) as f64,
                wchan: Some(again.wchan.clone()).filter(|wchan| !wchan.is_empty()),
                place: stand.and_then(ProgramPosition::place).cloned(),
                doing: if is_stopped(&again.state) {
                    Some("stopped".to_owned())
                } else {
                    activity.as_ref().map(super::condition::Busy::words)
                },
                activity: activity.map(|busy| busy.place.id),
                waits: stand.is_some_and(super::condition::ProgramPosition::waits_in_gpu_or_collective),
                has_moved: stacks.get(&pid).and_then(|stacks| has_moved(stacks)),
            });
        }
        if !looks.ranks.is_empty() {
            let world = told_size(case).unwrap_or_default();
            let known: BTreeSet<Rank> = roster.members.iter().filter_map(|member| member.rank).collect();
            looks.missing =
                (0..world).map(Rank).filter(|rank| !known.contains(rank)).take(MAX_MISSING).collect();
        }
        looks.ranks.sort_by_key(|look| look.rank);
        // All of them slept more than once in between: a step is short, and both looks met the longest part of it.
        if !n_sleeps.is_empty() && n_sleeps.iter().all(|n| n.is_some_and(|n| n >= WAKES)) {
            looks.may_go_on = looks.all_stand();
            for look in &mut looks.ranks {
                look.has_moved = look.has_moved.filter(|moved| *moved);
            }
        }
        looks
    }

    /// The ranks, by number.
    pub fn ranks(&self) -> &[ProcessLook] {
        &self.ranks
    }

    /// Ranks of the job that nothing was seen of.
    pub fn missing(&self) -> &[Rank] {
        &self.missing
    }

    /// Between the two looks, seconds.
    pub fn apart_s(&self) -> f64 {
        self.apart_ms as f64 / 1e3
    }

    /// Whether ranks with two stacks exist and none of them made progress.
    pub fn all_stand(&self) -> bool {
        self.ranks.iter().any(|look| look.has_moved == Some(false))
            && self.ranks.iter().all(|look| look.has_moved != Some(true))
    }

    /// Whether all ranks stood in one place at both looks and slept several times in between: the job is slow, or polls.
    pub fn may_go_on(&self) -> bool {
        self.may_go_on
    }

    /// Ranks at one place, the fewest first.
    pub fn by_place(&self) -> Vec<Vec<&ProcessLook>> {
        let mut groups: BTreeMap<(&str, u32, &str), Vec<&ProcessLook>> = BTreeMap::new();
        for look in &self.ranks {
            let place = look.place.as_ref().map_or(("", 0, ""), |f| (&*f.file, f.line, &*f.function));
            groups.entry(place).or_default().push(look);
        }
        let mut groups: Vec<Vec<&ProcessLook>> = groups.into_values().collect();
        groups.sort_by_key(|group| (group.len(), group.first().map(|look| look.rank)));
        groups
    }
}

fn looked_twice(row: &ProcessRow) -> Option<(Pid, &SecondLook)> {
    let picked: &PickedProcess = row.picked.as_deref()?;
    Some((row.pid?, picked.again.as_ref().filter(|_| picked.is_of_job)?))
}

/// Main threads of each process, as they were taken.
fn stacks_by_pid(case: &Case) -> BTreeMap<Pid, Vec<&[Frame]>> {
    let mut found: BTreeMap<Pid, Vec<&[Frame]>> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Stacks(stacks) = &observation.fact else { continue };
        let Some(pid) = stacks.pid else { continue };
        if let Some(thread) = main_thread(&stacks.threads, pid, stacks.tool) {
            found.entry(pid).or_default().push(&thread.frames);
        }
    }
    found
}

/// Whether the frames of the program differ. Below them native code may go round in a wait.
fn has_moved(stacks: &[&[Frame]]) -> Option<bool> {
    let (first, rest) = stacks.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let of_program = |frames: &[Frame]| -> Vec<(String, u32, String)> {
        let all_native = user_frame(frames).is_none() && frames.iter().all(Frame::is_native);
        let meant = frames.iter().filter(|frame| all_native || !frame.is_native());
        meant.map(|frame| (frame.file.to_string(), frame.line, frame.function.to_string())).collect()
    };
    let before = of_program(first);
    Some(rest.iter().any(|frames| of_program(frames) != before))
}
