//! On which machine a line of the evidence was printed: the line's own word, the prompt above it, the source that one machine
//! wrote, and last the name of the file.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Cite, Fact, Host, HostAt, HostReach, SourceId, SourceKind};

use crate::who::roster::Roster;

/// Kinds of sources that one machine prints about itself.
const OF_MACHINE: [SourceKind; 8] = [
    SourceKind::KernelLog,
    SourceKind::NvidiaSmi,
    SourceKind::Dcgmi,
    SourceKind::GpuServices,
    SourceKind::BugReport,
    SourceKind::System,
    SourceKind::Limits,
    SourceKind::Network,
];
/// Words that names of files begin with and machines do not.
const NO_HOSTS: [&str; 30] = [
    "rank", "log", "out", "err", "stderr", "stdout", "slurm", "job", "run", "attempt", "step", "stack",
    "stacks", "pyspy", "gdb", "dmesg", "kern", "kernel", "gpu", "gpus", "smi", "nvidia", "ib", "fr", "trace",
    "test", "part", "proc", "syslog", "mlx",
];

/// The machines of a case.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// What prompts and lines name, by source.
    marks: BTreeMap<SourceId, Vec<HostAt>>,
    /// What the lines say themselves.
    said: BTreeMap<(SourceId, u32), Host>,
    /// Sources of one machine.
    whole: BTreeMap<SourceId, Host>,
    /// All that are named.
    all: BTreeSet<Host>,
}

impl Hosts {
    /// Of a case.
    pub fn new(case: &Case, roster: &Roster) -> Self {
        let mut hosts = Self::default();
        let mut by_source: BTreeMap<SourceId, BTreeSet<Host>> = BTreeMap::new();
        hosts.all.extend(roster.members.iter().filter_map(|m| m.host.clone()));
        for observation in &case.observations {
            let source = observation.cite.source;
            if let Some(host) = &observation.who.host {
                hosts.said.insert((source, observation.cite.line), host.clone());
                by_source.entry(source).or_default().insert(host.clone());
            }
            match &observation.fact {
                Fact::Hosts(marks) => {
                    let named = marks.iter().filter_map(|m| m.host.clone());
                    by_source.entry(source).or_default().extend(named);
                    hosts.marks.insert(source, marks.to_vec());
                }
                Fact::Nccl(log) => {
                    let named = log.processes.iter().filter_map(|p| p.who.host.clone());
                    by_source.entry(source).or_default().extend(named);
                }
                _ => {}
            }
        }
        hosts.all.extend(by_source.values().flatten().cloned());
        for (id, source) in (0u32..).map(SourceId).zip(&case.sources) {
            let named = by_source.get(&id);
            let one = named.filter(|named| named.len() == 1).and_then(|named| named.first().cloned());
            let is_quiet = named.is_none_or(BTreeSet::is_empty);
            let by_name = || hosts.by_name(&source.path, source.kinds.iter().all(|k| OF_MACHINE.contains(k)));
            if let Some(host) = one.or_else(|| is_quiet.then(by_name).flatten()) {
                hosts.whole.insert(id, host);
            }
        }
        hosts.all.extend(hosts.whole.values().cloned());
        hosts
    }

    /// The machine that a file's name is: one that is known, or the name of a file that a machine's tools wrote.
    fn by_name(&self, path: &str, is_of_machine: bool) -> Option<Host> {
        let file = path.rsplit(['/', '!']).next()?;
        let stem = file.split('.').next().filter(|stem| !stem.is_empty())?;
        let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
        let is_in = |host: &&Host| {
            file.match_indices(host.as_ref()).any(|(at, name)| {
                let (before, after) =
                    (file.get(..at).unwrap_or(""), file.get(at + name.len()..).unwrap_or(""));
                is_edge(before.chars().next_back()) && is_edge(after.chars().next())
            })
        };
        if let Some(known) = self.all.iter().filter(is_in).max_by_key(|host| host.len()) {
            return Some(known.clone());
        }
        let is_name = |part: &&str| {
            let first = part.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            part.ends_with(|c: char| c.is_ascii_digit()) && first.len() > 1 && !NO_HOSTS.contains(&first)
        };
        stem.split('_').find(is_name).filter(|_| is_of_machine).map(Host::from)
    }

    /// The machine on which a line was printed.
    pub fn at(&self, cite: Cite) -> Option<&Host> {
        if let Some(host) = self.said.get(&(cite.source, cite.line)) {
            return Some(host);
        }
        if let Some(marks) = self.marks.get(&cite.source) {
            let upto = marks.partition_point(|m| m.line <= cite.line);
            let before = marks.get(..upto).unwrap_or_default();
            let own = before.iter().rev().take_while(|m| m.line == cite.line).find_map(|m| m.host.as_ref());
            let session = before.iter().rev().find(|m| m.reach == HostReach::Session);
            if let Some(host) = own.or_else(|| session.and_then(|m| m.host.as_ref())) {
                return Some(host);
            }
        }
        self.whole.get(&cite.source)
    }

    /// All machines that the evidence names.
    pub fn all(&self) -> &BTreeSet<Host> {
        &self.all
    }
}
