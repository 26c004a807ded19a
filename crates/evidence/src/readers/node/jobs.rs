//! The job's processes: states, environments, limits, cgroups.

use std::collections::BTreeSet;

use ringleader_knowledge::program;
use ringleader_model::{
    Environment, EnvironmentForm, Fact, Limit, LimitKind, LocalRank, MemoryGroup, NoteKind, PciAddress, Pick,
    PickedProcess, Pid, ProcessRow, ProcessTable, Rank, SecondLook, Setting, SystemFact, Who,
};
use ringleader_node::{Jobs, Process};

use super::{MAX_ROWS, SnapshotReader};

impl SnapshotReader<'_, '_, '_> {
    pub(super) fn jobs(&mut self, jobs: &Jobs) {
        let cite = self.places.of_part("jobs", self.sink);
        let mut rows = Vec::new();
        let mut groups = BTreeSet::new();
        let shared = jobs.shared_pids();
        let asked = asked(jobs);
        let own = own(jobs, &asked);
        for process in jobs.processes.iter().take(MAX_ROWS) {
            let pid = Pid(process.known_pid(&shared));
            let place = self.places.next_number("pid", u64::from(process.pid), self.sink);
            let command = if process.arguments.is_empty() {
                process.command.clone()
            } else {
                process.arguments.join(" ")
            };
            rows.push(ProcessRow {
                line: place.line,
                pid: Some(pid),
                ppid: Some(Pid(process.ppid)),
                state: process.state.as_str().into(),
                exit_code: process.exit_code,
                wchan: process.wchan.as_deref().unwrap_or_default().into(),
                elapsed_s: u64::try_from(self.at_ns.saturating_sub(process.started_ns) / 1_000_000_000).ok(),
                cpu_pct: None,
                command: command.into(),
                picked: Some(Box::new(PickedProcess {
                    is_of_job: own.contains(&process.pid),
                    was_asked_for: asked.contains(&process.pid),
                    started_ns: Some(process.started_ns).filter(|ns| *ns > 0),
                    outer_pid: Some(Pid(process.pid)).filter(|outer| *outer != pid),
                    gpus: process.gpus.iter().take(64).filter_map(|gpu| PciAddress::parse(gpu)).collect(),
                    blocked: process
                        .blocked_threads
                        .iter()
                        .take(MAX_ROWS)
                        .map(|(tid, place)| (*tid, place.as_str().into()))
                        .collect(),
                    hidden: process.hidden.as_deref().map(Into::into),
                    again: process.again.as_ref().map(|again| SecondLook {
                        after_ms: again.after_ms,
                        first_cpu_ms: (process.cpu_s * 1e3) as u64,
                        cpu_ms: (again.cpu_s * 1e3) as u64,
                        n_sleeps: again
                            .sleeps
                            .zip(process.sleeps)
                            .map(|(now, then)| now.saturating_sub(then)),
                        state: again.state.as_str().into(),
                        wchan: again.wchan.as_deref().unwrap_or_default().into(),
                    }),
                })),
            });
            self.environment(process, pid, rank_of(jobs, process));
            self.limits(process, pid);
            if let Some(group) = process.cgroup.as_ref().filter(|g| groups.insert(g.path.clone())) {
                let cite = self.places.next("path", &group.path, self.sink);
                let line = cite.line;
                let fact = MemoryGroup {
                    path: Some(group.path.as_str().into()),
                    max: group.memory_max.map(|max| (line, Some(max))),
                    current: group.memory_current.map(|n| (line, n)),
                    oom_kill: group.oom_kills.map(|n| (line, n)),
                    ..MemoryGroup::default()
                };
                let text = format!(
                    "{}: memory.max {:?}, memory.current {:?}, oom_kill {:?}",
                    group.path, group.memory_max, group.memory_current, group.oom_kills
                );
                self.push_system(cite, SystemFact::MemoryGroup(fact), &text);
            }
        }
        let text = format!("{} processes ({})", rows.len(), jobs.chosen_by);
        let unread = jobs.unseen.as_deref().filter(|_| rows.is_empty()).map(Into::into);
        let others = jobs.others.iter().take(MAX_ROWS).copied().map(Pid).collect();
        let pick = Some(Pick { n_hidden: jobs.n_hidden, unread, others });
        self.push(cite, Fact::Processes(Box::new(ProcessTable { rows, pick, is_cut: false })), &text);
        if let Some(why) = jobs.blind_spot() {
            self.sink.note(cite, NoteKind::Remark, why);
        }
    }

    /// The list of the job's processes could not be had.
    pub(super) fn no_jobs(&mut self, why: &str) {
        let cite = self.places.of_part("jobs", self.sink);
        let pick = Some(Pick { unread: Some(why.into()), ..Pick::default() });
        let text = format!("the job's processes were not read: {why}");
        self.push(
            cite,
            Fact::Processes(Box::new(ProcessTable { rows: Vec::new(), pick, is_cut: false })),
            &text,
        );
    }

    /// What a process was started with, if it is a rank's own: its children inherit all of it.
    fn environment(&mut self, process: &Process, pid: Pid, rank: Option<u32>) {
        let (Some(variables), Some(rank)) = (&process.environment, rank) else { return };
        let mut settings = Vec::new();
        let mut first = None;
        let mut text = Vec::new();
        for (name, value) in variables.iter().filter(|(n, v)| crate::ground::may_keep(n, v)).take(MAX_ROWS) {
            let cite = self.places.next(name, value, self.sink);
            first = first.or(Some(cite));
            text.push(format!("{name}={value}"));
            settings.push(Setting { cite, name: name.as_str().into(), value: value.as_str().into() });
        }
        let Some(cite) = first else { return };
        let who = Who {
            rank: Some(Rank(rank)),
            local_rank: process.local_rank().map(LocalRank),
            pid: Some(pid),
            ..self.who()
        };
        let environment = Environment {
            form: EnvironmentForm::Process,
            settings,
            n_left_out: process.cut_variables.len() as u32,
            // The whole of it was looked at.
            is_whole: true,
        };
        self.push_environment(cite, who, environment, &text.join("\n"));
    }

    fn limits(&mut self, process: &Process, pid: Pid) {
        let kinds =
            [("Max locked memory", LimitKind::LockedMemory), ("Max open files", LimitKind::OpenFiles)];
        let mut limits = Vec::new();
        let mut first = None;
        let mut text = Vec::new();
        for (name, kind) in kinds {
            let Some((soft, hard)) = process.limits.get(name) else { continue };
            let cite = self.places.next_text(name, self.sink);
            first = first.or(Some(cite));
            let shown = |n: &Option<u64>| n.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
            text.push(format!("{name} {} {}", shown(soft), shown(hard)));
            limits.push(Limit { line: cite.line, kind, soft: *soft, hard: *hard });
        }
        let Some(cite) = first else { return };
        let who = Who { pid: Some(pid), ..self.who() };
        let at = self.at();
        self.sink.push(cite, who, at, Fact::Limits(limits), text.join("; ").as_bytes());
    }
}

/// Its rank, if it is the rank's own process: workers of a data loader inherit the variables, and of a launcher that
/// Slurm started the task's number is no rank.
fn rank_of(jobs: &Jobs, process: &Process) -> Option<u32> {
    let has_torch = jobs.processes.iter().any(|p| p.variable("RANK").is_some());
    let rank = |p: &Process| if has_torch { p.number("RANK") } else { p.rank() };
    let own = rank(process)?;
    let parent = jobs.processes.iter().find(|p| p.pid == process.ppid);
    (parent.and_then(rank) != Some(own)).then_some(own)
}

/// Numbers of the processes that were asked for: `pid 4711, 4712 and all below`.
fn asked(jobs: &Jobs) -> BTreeSet<u32> {
    let list = jobs.chosen_by.strip_prefix("pid ").unwrap_or_default();
    list.split([',', ' ']).filter_map(|word| word.parse().ok()).collect()
}

/// Numbers of the processes that are the job's own: ranks with what they started, what was asked for where none has a
/// rank, and those beside ranks that nobody could look into, or that have ended.
fn own(jobs: &Jobs, asked: &BTreeSet<u32>) -> BTreeSet<u32> {
    let of = |pid: u32| jobs.processes.iter().find(|p| p.pid == pid);
    let ranks: Vec<&Process> = jobs.processes.iter().filter(|p| rank_of(jobs, p).is_some()).collect();
    let roots: BTreeSet<u32> =
        if ranks.is_empty() { asked.clone() } else { ranks.iter().map(|p| p.pid).collect() };
    let is_below = |process: &Process| {
        let mut at = process;
        // No tree of processes is deeper, and parents that were read at different moments may form a ring.
        for _ in 0..64 {
            if roots.contains(&at.pid) {
                return true;
            }
            let Some(parent) = of(at.ppid) else { return false };
            at = parent;
        }
        false
    };
    // Who has ended has no environment any more.
    let is_beside = |process: &Process| {
        let is_dead = matches!(process.state.as_str(), "Z" | "X");
        let is_peer = |rank: &&Process| {
            rank.ppid == process.ppid
                && (process.hidden.is_some() || is_dead && rank.command == process.command)
        };
        process.ppid > 1 && ranks.iter().any(is_peer)
    };
    let is_parent = |process: &Process| {
        program::launcher(&process.command, &process.arguments).is_some()
            || program::is(program::ProgramRole::Wraps, &process.command)
    };
    let is_own = |process: &&Process| (is_below(process) && !is_parent(process)) || is_beside(process);
    jobs.processes.iter().filter(is_own).map(|p| p.pid).collect()
}
