//! The job's processes: states, environments, limits, cgroups.

use std::collections::BTreeSet;

use ringleader_model::{
    Environment, EnvironmentForm, Fact, Limit, LimitKind, LocalRank, MemoryGroup, NoteKind, Pid, ProcessRow,
    ProcessTable, Rank, Setting, SystemFact, Who,
};
use ringleader_node::{Jobs, Process};

use super::{MAX_ROWS, Reader};

impl Reader<'_, '_, '_> {
    pub(super) fn jobs(&mut self, jobs: &Jobs) {
        let cite = self.places.of_part("jobs", self.sink);
        let mut rows = Vec::new();
        let mut groups = BTreeSet::new();
        let shared = jobs.shared_pids();
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
                wchan: process.wchan.as_deref().unwrap_or_default().into(),
                elapsed_s: u64::try_from(self.at_ns.saturating_sub(process.started_ns) / 1_000_000_000).ok(),
                cpu_pct: None,
                command: command.into(),
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
        if !rows.is_empty() {
            let text = format!("{} processes ({})", rows.len(), jobs.chosen_by);
            self.push(cite, Fact::Processes(Box::new(ProcessTable { rows })), &text);
        }
        if let Some(why) = jobs.blind_spot() {
            self.sink.note(cite, NoteKind::Remark, why);
        }
    }

    /// What a process was started with, if it is a rank's own: its children inherit all of it.
    fn environment(&mut self, process: &Process, pid: Pid, rank: Option<u32>) {
        let (Some(variables), Some(rank)) = (&process.environment, rank) else { return };
        let mut settings = Vec::new();
        let mut first = None;
        let mut text = Vec::new();
        for (name, value) in
            variables.iter().filter(|(n, v)| crate::environment::may_keep(n, v)).take(MAX_ROWS)
        {
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
