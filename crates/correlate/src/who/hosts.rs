//! On which machine a line of the evidence was printed: the line's own word, the prompt above it, the source that one machine
//! wrote, and last the name of the file.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{
    Case, Cite, Fact, Host, HostAt, HostReach, Scheduler, SourceId, SourceKind, SystemFact, hostlist,
};

use crate::who::roster::Roster;

/// Shorter numbers in the names of files count something else than jobs.
const MIN_ID_DIGITS: usize = 3;

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
    /// Some commands ran on a machine that is not named.
    has_nameless: bool,
}

impl Hosts {
    /// Of a case.
    pub fn new(case: &Case, roster: &Roster) -> Self {
        let mut hosts = Self::default();
        let mut by_source: BTreeMap<SourceId, BTreeSet<Host>> = BTreeMap::new();
        let mut nameless: BTreeSet<SourceId> = BTreeSet::new();
        hosts.all.extend(roster.members.iter().filter_map(|m| m.host.clone()));
        for observation in &case.observations {
            let source = observation.cite.source;
            if let Some(host) = &observation.who.host {
                hosts.said.insert((source, observation.cite.line), host.clone());
                by_source.entry(source).or_default().insert(host.clone());
            }
            match &observation.fact {
                Fact::Hosts(marks) => {
                    let named = marks.iter().filter(|m| m.reach != HostReach::Heading);
                    by_source.entry(source).or_default().extend(named.filter_map(|m| m.host.clone()));
                    // A shell without a name that leads to a machine with one is on another.
                    let mut sessions = marks.iter().filter(|m| m.reach == HostReach::Session);
                    let is_named = sessions.next().map(|m| m.host.is_some());
                    if is_named.is_some_and(|is_named| sessions.any(|m| m.host.is_some() != is_named)) {
                        hosts.has_nameless = true;
                        nameless.insert(source);
                    }
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
        hosts.settle_headings(&mut by_source);
        let by_word = hosts.by_first_word();
        let jobs = nodes_of_jobs(case);
        let mut whole = BTreeMap::new();
        let sources = (0u32..).map(SourceId).zip(&case.sources).filter(|(id, _)| !nameless.contains(id));
        for (id, source) in sources {
            let named = by_source.get(&id);
            let one = named.filter(|named| named.len() == 1).and_then(|named| named.first().cloned());
            let is_quiet = named.is_none_or(BTreeSet::is_empty);
            let is_of_machine = source.kinds.iter().all(|k| OF_MACHINE.contains(k));
            let by_name =
                || by_name(&by_word, &source.path, is_of_machine).or_else(|| by_job(&jobs, &source.path));
            if let Some(host) = one.or_else(|| is_quiet.then(by_name).flatten()) {
                whole.insert(id, host);
            }
        }
        hosts.all.extend(whole.values().cloned());
        hosts.whole = whole;
        hosts
    }

    /// Headings name a machine if something else names it, too.
    fn settle_headings(&mut self, by_source: &mut BTreeMap<SourceId, BTreeSet<Host>>) {
        for (source, marks) in &mut self.marks {
            let is_known = |host: &Host| self.all.contains(host);
            marks.retain(|m| m.reach != HostReach::Heading || m.host.as_ref().is_some_and(is_known));
            let named = marks.iter().filter(|m| m.reach == HostReach::Heading);
            by_source.entry(*source).or_default().extend(named.filter_map(|m| m.host.clone()));
        }
    }

    /// All that are named, by the first word of their names.
    fn by_first_word(&self) -> BTreeMap<String, Vec<Host>> {
        let mut by_word: BTreeMap<String, Vec<Host>> = BTreeMap::new();
        for host in &self.all {
            let word = host.split(is_edge).next().unwrap_or_default();
            by_word.entry(word.to_owned()).or_default().push(host.clone());
        }
        by_word
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
            let session = before.iter().rev().find(|m| m.reach != HostReach::Line);
            if let Some(host) = own.or_else(|| session.and_then(|m| m.host.as_ref())) {
                return Some(host);
            }
        }
        self.whole.get(&cite.source)
    }

    /// All machines that are named, ascending.
    pub fn all(&self) -> impl Iterator<Item = &Host> {
        self.all.iter()
    }

    /// Whether no two machines are named.
    pub fn only_or_none(&self) -> bool {
        self.all.len() <= 1
    }

    /// The only machine that the evidence is of, if it is named.
    pub fn only(&self) -> Option<&Host> {
        self.all.first().filter(|_| self.all.len() == 1 && !self.has_nameless)
    }
}

fn is_edge(c: char) -> bool {
    !c.is_ascii_alphanumeric()
}

/// The node of each job of Slurm that has one alone.
fn nodes_of_jobs(case: &Case) -> BTreeMap<&str, BTreeSet<String>> {
    let mut jobs: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::System(fact) = &observation.fact else { continue };
        let SystemFact::Scheduler(event) = &**fact else { continue };
        let nodes =
            event.node.as_deref().filter(|_| !event.is_of_script).and_then(|node| hostlist::parse(node).ok());
        if let Some(nodes) = nodes.filter(|_| event.scheduler == Scheduler::Slurm) {
            // `812` of `812.0`.
            let id = event.subject.split('.').next().unwrap_or_default();
            jobs.entry(id).or_default().extend(nodes.into_iter().take(2));
        }
    }
    jobs.retain(|_, nodes| nodes.len() == 1);
    jobs
}

/// The node of the job after which a file is named: `slurm-4711.out`.
fn by_job(jobs: &BTreeMap<&str, BTreeSet<String>>, path: &str) -> Option<Host> {
    let file = path.rsplit(['/', '!']).next()?;
    let mut ids = file.split(|c: char| !c.is_ascii_digit()).filter(|id| id.len() >= MIN_ID_DIGITS);
    let nodes = ids.find_map(|id| jobs.get(id))?;
    nodes.first().map(|node| Host::from(node.as_str()))
}

/// The machine that a file's name is: one that is known, or the name of a file that a machine's tools wrote.
fn by_name(by_word: &BTreeMap<String, Vec<Host>>, path: &str, is_of_machine: bool) -> Option<Host> {
    let file = path.rsplit(['/', '!']).next()?;
    let stem = file.split('.').next().filter(|stem| !stem.is_empty())?;
    // Where each word of the name begins.
    let starts = file.char_indices().filter(|(at, c)| {
        !is_edge(*c) && file.get(..*at).and_then(|before| before.chars().next_back()).is_none_or(is_edge)
    });
    let known = starts.filter_map(|(at, _)| {
        let rest = file.get(at..)?;
        let hosts = by_word.get(rest.split(is_edge).next()?)?;
        let ends = |host: &&Host| {
            rest.strip_prefix(host.as_ref()).is_some_and(|left| left.chars().next().is_none_or(is_edge))
        };
        hosts.iter().filter(ends).max_by_key(|host| host.len())
    });
    if let Some(known) = known.max_by_key(|host| host.len()) {
        return Some(known.clone());
    }
    let is_name = |part: &&str| {
        let first = part.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        part.ends_with(|c: char| c.is_ascii_digit()) && first.len() > 1 && !NO_HOSTS.contains(&first)
    };
    stem.split('_').find(is_name).filter(|_| is_of_machine).map(Host::from)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{
        Cite, Fact, Host, HostAt, HostReach, Scheduler, SchedulerEvent, SchedulerKind, SourceId, SourceKind,
        Who,
    };

    use super::{Hosts, by_job, nodes_of_jobs};
    use crate::staging::StagedCase;
    use crate::who::roster::Roster;

    fn at(line: u32) -> Cite {
        Cite { source: SourceId(0), line, start: 0, end: 1 }
    }

    fn mark(line: u32, host: &str, reach: HostReach) -> HostAt {
        HostAt { line, host: Some(Host::from(host)), reach }
    }

    #[test]
    fn a_heading_names_a_machine_that_something_else_names() {
        let marks = vec![mark(1, "gx01", HostReach::Session), mark(4, "gx02", HostReach::Heading)];
        let of = |stage: &StagedCase| {
            let hosts = Hosts::new(&stage.case, &Roster::new(&stage.case));
            hosts.at(at(5)).map(ToString::to_string)
        };
        let stage = StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Hosts(marks.into()));
        assert_eq!(of(&stage).as_deref(), Some("gx01"));
        let known = vec![mark(1, "gx02", HostReach::Line)];
        let stage = stage.push(SourceKind::PlainText, Who::default(), Fact::Hosts(known.into()));
        assert_eq!(of(&stage).as_deref(), Some("gx02"));
    }

    #[test]
    fn a_file_named_after_a_job_of_one_node() {
        let job = |id: &str, node: &str| SchedulerEvent {
            scheduler: Scheduler::Slurm,
            kind: SchedulerKind::Failed,
            subject: id.into(),
            node: Some(node.into()),
            ..SchedulerEvent::default()
        };
        let stage =
            StagedCase::new().scheduled(job("992031", "a100-04")).scheduled(job("992032", "a100-[04-05]"));
        let jobs = nodes_of_jobs(&stage.case);
        let of = |path: &str| by_job(&jobs, path).map(|host| host.to_string());
        assert_eq!(of("logs/slurm-992031.out").as_deref(), Some("a100-04"));
        assert_eq!(of("logs/slurm-992032.out"), None);
        assert_eq!(of("logs/992031/train.log"), None);
        assert_eq!(of("logs/slurm-31.out"), None);
    }
}
