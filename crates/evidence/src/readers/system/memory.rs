//! Memory of the node and of its cgroups, and how often the processors of a cgroup were held back.

use ringleader_model::{CpuGroup, Memory, MemoryGroup};

use super::files::size;
use super::{SystemReader, SystemTable};
use crate::ground::{Line, Sink};

/// A cgroup whose files are being read.
pub(super) struct OpenCgroup {
    fact: MemoryGroup,
    /// `memory.events`: the file that the next lines are of.
    file: Box<str>,
}

impl OpenCgroup {
    /// What was read, if it tells anything.
    pub(super) fn done(self) -> Option<MemoryGroup> {
        let f = &self.fact;
        let told = f.max.is_some() || f.current.is_some() || f.oom_kill.is_some() || f.peak.is_some();
        told.then_some(self.fact)
    }
}

/// Splits `/sys/fs/cgroup/x/memory.max` into the group and the file; the bare name of a file will do.
fn file_of(path: &str) -> Option<(Option<&str>, &str)> {
    let (group, file) = match path.rsplit_once('/') {
        Some((group, file)) => (Some(group), file),
        None => (None, path),
    };
    let known = file.strip_prefix("memory.")?;
    let is_known = matches!(
        known,
        "max"
            | "current"
            | "peak"
            | "events"
            | "events.local"
            | "stat"
            | "limit_in_bytes"
            | "usage_in_bytes"
            | "max_usage_in_bytes"
            | "oom_control"
            | "failcnt"
            | "high"
            | "swap.max"
            | "swap.current"
    );
    is_known.then_some((group, file))
}

impl SystemReader {
    /// A heading or a path that names a file of a memory cgroup.
    pub(super) fn memory_group(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        // `/sys/fs/cgroup/memory.events:oom_kill 3`, as `grep .` prints files.
        if let Some((path, value)) = text.split_once(':')
            && path.starts_with('/')
            && !value.is_empty()
            && let Some((group, file)) = file_of(path)
        {
            let (group, file): (Option<Box<str>>, Box<str>) = (group.map(Into::into), file.into());
            self.group_file(group, file, line, sink);
            return self.group_value(value, line, sink);
        }
        let asked = crate::ground::shell::command(text).or_else(|| super::heading(text));
        let asked = asked.map(|c| c.strip_prefix("cat ").unwrap_or(c).trim());
        if let Some((group, file)) = asked.and_then(file_of) {
            let (group, file): (Option<Box<str>>, Box<str>) = (group.map(Into::into), file.into());
            self.group_file(group, file, line, sink);
            return true;
        }
        // The file alone: its first line is `low 0`, and only there.
        if text.strip_prefix("low ").is_some_and(|n| n.parse::<u64>().is_ok()) {
            self.group_file(None, "memory.events".into(), line, sink);
            return true;
        }
        false
    }

    fn group_file(&mut self, group: Option<Box<str>>, file: Box<str>, line: &Line<'_>, sink: &mut Sink<'_>) {
        if let Some(super::OpenTable { table: SystemTable::MemoryGroup(open), .. }) = &mut self.open
            && (group.is_none() || open.fact.path.is_none() || open.fact.path == group)
        {
            open.file = file;
            if group.is_some() {
                open.fact.path = group;
            }
            return;
        }
        let fact = MemoryGroup { path: group, ..MemoryGroup::default() };
        self.open(SystemTable::MemoryGroup(OpenCgroup { fact, file }), line, sink);
    }

    fn group_value(&mut self, value: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(super::OpenTable { table: SystemTable::MemoryGroup(group), span }) = &mut self.open else {
            return false;
        };
        let taken = goes_on(group, value, line.number);
        if taken {
            span.add(line, sink);
        }
        taken
    }

    /// `Mem:  263998500  624364 …` of free, `MemTotal:       263998500 kB`.
    pub(super) fn memory(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let mut memory = Memory::default();
        if meminfo(&mut memory, text) && memory.total > 0 {
            self.open(SystemTable::Memory(memory), line, sink);
            return true;
        }
        let Some(rest) = text.strip_prefix("Mem:") else { return false };
        let asked = self.asked.as_deref().unwrap_or_default();
        let unit = match () {
            () if asked.contains(" -b") => 1,
            () if asked.contains(" -m") => 1 << 20,
            () if asked.contains(" -g") => 1 << 30,
            () => 1 << 10,
        };
        let numbers: Option<Vec<u64>> = rest.split_ascii_whitespace().map(|w| size(w, unit)).collect();
        let Some([total, _, _, shared, _, available]) = numbers.as_deref() else { return false };
        let memory = Memory { total: *total, available: *available, shared: Some(*shared) };
        self.open(SystemTable::Memory(memory), line, sink);
        true
    }
}

/// A line of /proc/meminfo.
pub(super) fn meminfo(memory: &mut Memory, text: &str) -> bool {
    let Some((key, value)) = text.split_once(':') else { return false };
    let kib = value.trim().strip_suffix(" kB").and_then(|n| n.parse::<u64>().ok());
    let Some(bytes) = kib.and_then(|n| n.checked_mul(1024)) else { return false };
    match key {
        // That of `free` is above: this one starts again.
        "MemTotal" if memory.total > 0 => return false,
        "MemTotal" => memory.total = bytes,
        "MemAvailable" => memory.available = bytes,
        "Shmem" => memory.shared = Some(bytes),
        _ if memory.total > 0 => {}
        _ => return false,
    }
    true
}

/// Splits `/sys/fs/cgroup/x/cpu.stat:nr_periods 5` and its like.
fn cpu_path(text: &str) -> (Option<&str>, &str) {
    match text.split_once("/cpu.stat:") {
        Some((group, rest)) if group.starts_with('/') => (Some(group), rest),
        _ => (None, text),
    }
}

impl SystemReader {
    /// `nr_periods 120934` of a cpu.stat; the command or heading above shows which group it is of.
    pub(super) fn cpu_group(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let (path, rest) = cpu_path(text);
        if rest.strip_prefix("nr_periods ").is_none_or(|n| n.trim().parse::<u64>().is_err()) {
            return false;
        }
        let asked = self.asked.as_deref().unwrap_or_default();
        let asked = asked.split_ascii_whitespace().find_map(|w| w.strip_suffix("/cpu.stat"));
        let mut group = CpuGroup { path: path.or(asked).map(Into::into), ..CpuGroup::default() };
        cpu_stat(&mut group, text, line.number);
        self.open(SystemTable::CpuGroup(group), line, sink);
        true
    }
}

/// A line of cpu.stat (v2: throttled_usec; v1: throttled_time in ns).
pub(super) fn cpu_stat(group: &mut CpuGroup, text: &str, line: u32) -> bool {
    let (path, text) = cpu_path(text);
    if path.is_some() && path != group.path.as_deref() {
        return false;
    }
    let Some((key, value)) = text.split_once(' ') else { return false };
    let Ok(value) = value.trim().parse::<u64>() else { return false };
    match key {
        // Another file begins.
        "nr_periods" if group.line > 0 => return false,
        "nr_periods" => (group.line, group.periods) = (line, value),
        "nr_throttled" => group.throttled = value,
        "throttled_usec" => group.throttled_us = value,
        "throttled_time" => group.throttled_us = value / 1_000,
        "nr_bursts" | "burst_usec" | "burst_time" | "wait_sum" | "core_sched.force_idle_usec" => {}
        _ => return false,
    }
    true
}

/// A line of the file that is being read.
pub(super) fn goes_on(group: &mut OpenCgroup, text: &str, line: u32) -> bool {
    let f = &mut group.fact;
    let number = || text.parse::<u64>().ok();
    match group.file.as_ref() {
        "memory.max" | "memory.limit_in_bytes" => {
            // v1 prints a number near 2^63 for no limit.
            let limit = if text == "max" { None } else { number().filter(|n| *n < 1 << 62) };
            if text != "max" && number().is_none() {
                return false;
            }
            f.max = Some((line, limit));
        }
        "memory.current" | "memory.usage_in_bytes" => match number() {
            Some(n) => f.current = Some((line, n)),
            None => return false,
        },
        "memory.peak" | "memory.max_usage_in_bytes" => match number() {
            Some(n) => f.peak = Some((line, n)),
            None => return false,
        },
        "memory.events" | "memory.events.local" | "memory.oom_control" | "memory.stat" => {
            let Some((key, value)) = text.split_once(' ') else { return false };
            let Ok(value) = value.trim().parse() else { return false };
            match (key, group.file.as_ref()) {
                ("shmem" | "total_shmem", "memory.stat") => f.shmem = Some((line, value)),
                (_, "memory.stat") => {}
                ("oom", _) => f.oom = Some((line, value)),
                ("oom_kill", _) => f.oom_kill = Some((line, value)),
                _ => {}
            }
            return key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
        }
        _ => return number().is_some() || text == "max",
    }
    true
}
