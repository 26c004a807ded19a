//! The text form of `STATUS` and `VERBOSE STATUS`.
//!
//! Releases differ: 2.24 and 2.25 count all operations together, name missing ranks in one list and say UNKNOWN for
//! NOCOMM; 2.26 counts per function; 2.27 and later name each missing rank with its process; `(NVML n)` is present
//! where CUDA and NVML number the GPU differently.

use std::collections::BTreeSet;

use ringleader_model::{
    Cite, Fact, Host, NoteKind, OpKind, Pid, RasComm, RasGroup, RasPeer, RasRank, RasReport, SourceKind,
    WallTime, Who,
};

use super::peer;
use crate::ground::{Line, Sink, intern::LookupMap};

/// Most ranks that one list line may name.
const MAX_LISTED: u32 = 1 << 20;

/// A report that is being read.
pub(super) struct OpenRasReport {
    fact: RasReport,
    first: Cite,
    end: u64,
    text: Vec<u8>,
    at: Option<WallTime>,
    who: Who,
    has_summary: bool,
    section: Section,
    topic: Topic,
    shared: Option<SharedStatus>,
    /// Positions in the current communicator's lists, by rank.
    ranks: LookupMap<u32, usize>,
    missing: LookupMap<u32, usize>,
    processes: BTreeSet<(Option<Host>, Option<Pid>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Head,
    /// Job-level list of processes that did not answer, or were given up.
    Job {
        is_dead: bool,
    },
    /// The last of `fact.comms`.
    Comm,
}

#[derive(Clone, Copy, PartialEq)]
enum Topic {
    None,
    Missing,
    InitError,
    AsyncError,
    Status,
    Counts(OpKind),
}

/// `3 ranks have …`: what the ranks of the lines that follow share. If none follow they are the unlisted majority.
struct SharedStatus {
    n_ranks: u32,
    said: RasStatement,
    is_listed: bool,
}

#[derive(Clone)]
enum RasStatement {
    Count(u64),
    Status(Box<str>),
    Error(Box<str>),
    Nothing,
}

/// Whether `words` begin a report, given the one that is being read.
pub(super) fn begins_report(words: &str, open: Option<&OpenRasReport>) -> bool {
    if words.starts_with("NCCL version ") && words.contains(" compiled with CUDA ") {
        return true;
    }
    match open {
        None => {
            words == "Job summary"
                || (words.starts_with("CUDA runtime version ") && words.contains(", driver version "))
        }
        Some(report) => words == "Job summary" && report.has_summary,
    }
}

impl OpenRasReport {
    pub(super) fn begin(line: &Line<'_>, sink: &mut Sink<'_>) -> Self {
        sink.saw(SourceKind::Ras);
        Self {
            fact: RasReport { at: line.tag.at, ..RasReport::default() },
            first: sink.cite(line.number, line.offset, line.end()),
            end: line.end(),
            text: Vec::new(),
            at: line.tag.at,
            who: line.tag.who.clone(),
            has_summary: false,
            section: Section::Head,
            topic: Topic::None,
            shared: None,
            ranks: LookupMap::default(),
            missing: LookupMap::default(),
            processes: BTreeSet::new(),
        }
    }

    pub(super) fn close(mut self, sink: &mut Sink<'_>) {
        self.end_shared();
        let cite = Cite { end: self.end, ..self.first };
        sink.push(cite, self.who, self.at, Fact::Ras(self.fact.into()), &self.text);
    }

    /// Takes a line of the report.
    pub(super) fn line(&mut self, line: &Line<'_>, words: &str, sink: &mut Sink<'_>) -> bool {
        let is_ours = self.read(line, words, sink);
        if is_ours {
            self.end = line.end();
            if self.text.len() < sink.limits.max_text_chars {
                if !self.text.is_empty() {
                    self.text.push(b'\n');
                }
                self.text.extend_from_slice(line.body.get(..sink.limits.max_text_chars).unwrap_or(line.body));
            }
        }
        is_ours
    }

    fn read(&mut self, line: &Line<'_>, words: &str, sink: &mut Sink<'_>) -> bool {
        if let Some((peer, said)) = peer::rank(words) {
            return self.rank(RasPeer { line: line.number, ..peer }, said);
        }
        if let Some(peer) = peer::process(words) {
            return self.process(RasPeer { line: line.number, ..peer });
        }
        if self.ranks_share(words)
            || self.comm_header(words)
            || self.topic_line(words)
            || self.group_row(line, words)
        {
            return true;
        }
        match words {
            "INCOMPLETE" => self.go(Section::Job { is_dead: false }),
            "DEAD" => self.go(Section::Job { is_dead: true }),
            "TIMEOUT" | "Errors" | "Warnings" => self.go(Section::Head),
            "Job summary" => self.has_summary = true,
            "No communicator data collected!" => self.fact.unavailable = Some(words.into()),
            _ => return self.heading(line, words, sink),
        }
        true
    }

    fn go(&mut self, section: Section) {
        self.end_shared();
        self.section = section;
        self.topic = Topic::None;
    }

    /// Lines of the head and of the verbose form, and those that say nothing more.
    fn heading(&mut self, line: &Line<'_>, words: &str, sink: &mut Sink<'_>) -> bool {
        if let Some((version, _)) =
            words.strip_prefix("NCCL version ").and_then(|v| v.split_once(" compiled with CUDA "))
        {
            self.fact.nccl_version = Some(version.into());
        } else if let Some(rest) =
            words.strip_prefix("Encountered ").or(words.strip_prefix("Warning: encountered "))
        {
            let n = rest.split(' ').next().and_then(|n| n.parse().ok());
            self.fact.n_timeouts = self.fact.n_timeouts.saturating_add(n.unwrap_or(0));
        } else if words.starts_with("The missing process") {
            self.go(Section::Job { is_dead: false });
        } else if words.starts_with("Warning: negative travel times") {
            let cite = sink.cite(line.number, line.offset, line.end());
            let text = "RAS found that the clocks of the nodes differ: timestamps of different nodes cannot be compared";
            sink.note(cite, NoteKind::Remark, text.into());
        } else {
            const KNOWN: [&str; 16] = [
                "CUDA runtime version ",
                "====",
                "Communicators...",
                "Group  ",
                "#  in group",
                "Nodes  ",
                "(total)",
                "The outlier node",
                "Gathering data about",
                "Collected data about",
                "Travel times",
                "Minimum ",
                "Missing communicator data",
                "[could not find information",
                "No connection data collected",
                "Node ",
            ];
            return KNOWN.iter().any(|k| words.starts_with(k))
                || words.contains(" considered dead (unreachable via the RAS network)");
        }
        true
    }

    /// `#0-0 (d084fa8fcc524627) MISMATCH`
    fn comm_header(&mut self, words: &str) -> bool {
        let parsed = words.strip_prefix('#').and_then(|rest| {
            let (number, rest) = rest.split_once(" (")?;
            let (hash, error) = rest.split_once(") ")?;
            let group: u32 = number.split_once('-')?.0.parse().ok()?;
            let is_word = error.bytes().all(|b| b.is_ascii_uppercase());
            is_word.then_some((group, u64::from_str_radix(hash, 16).ok()?, error))
        });
        let Some((group, hash, error)) = parsed else { return false };
        self.go(Section::Comm);
        // Errors and warnings of one communicator are in two places.
        if let Some(at) = self.fact.comms.iter().position(|c| c.hash == hash) {
            let comm = self.fact.comms.remove(at);
            self.fact.comms.push(comm);
        } else {
            let group = self.fact.groups.iter().find(|g| g.number == group);
            self.fact.comms.push(RasComm {
                hash,
                size: group.map_or(0, |g| g.comm_size),
                status: group.map(|g| g.status.clone()).into_iter().collect(),
                ..RasComm::default()
            });
        }
        self.ranks.clear();
        self.missing.clear();
        if let Some(comm) = self.fact.comms.last_mut() {
            self.ranks.extend(comm.ranks.iter().enumerate().filter_map(|(at, r)| Some((r.peer.rank?.0, at))));
            self.missing.extend(comm.missing.iter().enumerate().filter_map(|(at, p)| Some((p.rank?.0, at))));
            push_new(&mut comm.errors, error);
            if error == "INCOMPLETE" {
                self.topic = Topic::Missing;
            }
        }
        true
    }

    /// `Communicator ranks have different AllReduce operation counts` and its kin.
    fn topic_line(&mut self, words: &str) -> bool {
        let topic = if let Some(what) = words.strip_prefix("Communicator ranks have different ") {
            match what.strip_suffix(" operation counts") {
                _ if what == "status" => Topic::Status,
                Some("collective") => Topic::Counts(OpKind::Other),
                Some(function) => Topic::Counts(OpKind::from_nccl(function)),
                None => return false,
            }
        } else if words.starts_with("Initialization error") {
            Topic::InitError
        } else if words.starts_with("Asynchronous error") {
            Topic::AsyncError
        } else if let Some((_, list)) = words
            .split_once(": ")
            .filter(|(w, _)| w.starts_with("The missing rank") || w.starts_with("The unknown rank"))
        {
            let is_unresponsive = self.topic == Topic::Missing;
            for rank in peer::rank_list(list, MAX_LISTED) {
                let rank = Some(ringleader_model::GroupRank(rank));
                self.miss(RasPeer { rank, unresponsive: is_unresponsive, ..RasPeer::default() });
            }
            return true;
        } else {
            return false;
        };
        self.end_shared();
        self.topic = topic;
        true
    }

    /// `3 ranks have launched up to operation 48`
    fn ranks_share(&mut self, words: &str) -> bool {
        let Some((n_ranks, said)) = words.split_once(" ranks ") else { return false };
        let Ok(n_ranks) = n_ranks.parse() else { return false };
        let said = said_of(said.trim_end());
        if matches!(said, RasStatement::Nothing) || self.section != Section::Comm {
            return false;
        }
        self.end_shared();
        self.shared = Some(SharedStatus { n_ranks, said, is_listed: false });
        true
    }

    /// Ends a group of ranks that share something: what was not listed is kept as a count.
    fn end_shared(&mut self) {
        let (Some(shared), Some(comm)) = (self.shared.take(), self.fact.comms.last_mut()) else { return };
        match (shared.said, self.topic) {
            (RasStatement::Count(count), Topic::Counts(kind)) if !shared.is_listed => {
                comm.majority_counts.push((kind, shared.n_ranks, count));
            }
            (RasStatement::Status(status), _) => {
                push_new(&mut comm.status, &status);
                comm.status_counts.push((status, shared.n_ranks));
            }
            (RasStatement::Error(error), _) => comm.reported.push((error, shared.n_ranks)),
            _ => {}
        }
    }

    fn rank(&mut self, peer: RasPeer, said: &str) -> bool {
        if self.section != Section::Comm {
            return false;
        }
        let said = match (said_of(said), &mut self.shared) {
            (RasStatement::Nothing, Some(shared)) => {
                shared.is_listed = true;
                shared.said.clone()
            }
            (RasStatement::Nothing, None) => RasStatement::Nothing,
            (said, _) => {
                self.end_shared();
                if let (RasStatement::Status(status), Some(comm)) = (&said, self.fact.comms.last_mut()) {
                    push_new(&mut comm.status, status);
                    comm.status_counts.push((status.clone(), 1));
                }
                if let (RasStatement::Error(error), Some(comm)) = (&said, self.fact.comms.last_mut()) {
                    comm.reported.push((error.clone(), 1));
                }
                said
            }
        };
        if self.topic == Topic::Missing {
            self.miss(RasPeer { unresponsive: true, ..peer });
            return true;
        }
        if matches!(&said, RasStatement::Status(s) if matches!(&**s, "NOCOMM" | "UNKNOWN")) {
            self.miss(peer);
            return true;
        }
        let topic = self.topic;
        let Some(comm) = self.fact.comms.last_mut() else { return false };
        let Some(number) = peer.rank else { return false };
        let at = *self.ranks.entry(number.0).or_insert(comm.ranks.len());
        if at == comm.ranks.len() {
            comm.ranks.push(RasRank { peer, ..RasRank::default() });
        }
        let Some(rank) = comm.ranks.get_mut(at) else { return false };
        match (said, topic) {
            (RasStatement::Count(count), Topic::Counts(kind)) => rank.counts.push((kind, count)),
            (RasStatement::Status(status), _) => {
                rank.aborting |= &*status == "ABORT";
                rank.finalizing |= &*status == "FINALIZE";
                rank.status = Some(status);
            }
            (RasStatement::Error(error), Topic::AsyncError) => rank.async_error = error_code(&error),
            (RasStatement::Error(error), _) => rank.init_state = error_code(&error),
            _ => {}
        }
        true
    }

    fn miss(&mut self, peer: RasPeer) {
        let Some(comm) = self.fact.comms.last_mut().filter(|_| self.section == Section::Comm) else { return };
        let Some(number) = peer.rank else { return };
        let at = *self.missing.entry(number.0).or_insert(comm.missing.len());
        match comm.missing.get_mut(at) {
            Some(known) => known.unresponsive |= peer.unresponsive,
            None => comm.missing.push(peer),
        }
    }

    fn process(&mut self, peer: RasPeer) -> bool {
        let Section::Job { is_dead } = self.section else { return false };
        if self.processes.insert((peer.host.clone(), peer.pid)) {
            self.fact.missing_processes.push(RasPeer { unresponsive: true, dead: is_dead, ..peer });
        } else if is_dead
            && let Some(known) =
                self.fact.missing_processes.iter_mut().find(|k| (&k.host, k.pid) == (&peer.host, peer.pid))
        {
            known.dead = true;
        }
        true
    }

    /// `    0         1         1         4         4         4   RUNNING  MISMATCH`
    fn group_row(&mut self, line: &Line<'_>, words: &str) -> bool {
        let mut columns = words.split_ascii_whitespace();
        let mut number = || columns.next().and_then(|c| c.split('-').next()?.parse::<u32>().ok());
        let numbers = [number(), number(), number(), number(), number(), number()];
        let (Some(status), Some(errors), None) = (columns.next(), columns.next(), columns.next()) else {
            return false;
        };
        let [Some(number), Some(n_comms), Some(_), Some(_), Some(comm_size), Some(n_ranks)] = numbers else {
            return false;
        };
        let (status, errors) = (status.into(), errors.into());
        self.fact.groups.push(RasGroup {
            line: line.number,
            number,
            n_comms,
            comm_size,
            n_ranks,
            status,
            errors,
        });
        true
    }
}

fn said_of(said: &str) -> RasStatement {
    if let Some(count) = said
        .strip_prefix("have launched up to operation ")
        .or(said.strip_prefix("has launched up to operation "))
    {
        return count.parse().map_or(RasStatement::Nothing, RasStatement::Count);
    }
    if let Some(status) = said.strip_prefix("have status ").or(said.strip_prefix("has status ")) {
        return RasStatement::Status(status.into());
    }
    if let Some(error) = said.strip_prefix("reported ") {
        return RasStatement::Error(error.into());
    }
    if said.ends_with("not launched any operations") { RasStatement::Count(0) } else { RasStatement::Nothing }
}

/// NCCL's result code, from the words RAS has for it.
fn error_code(words: &str) -> Option<i64> {
    const WORDS: [&str; 7] = [
        "Unhandled CUDA error",
        "System error",
        "Internal error",
        "Invalid argument",
        "Invalid usage",
        "Remote process error",
        "NCCL operation in progress",
    ];
    WORDS.iter().position(|w| *w == words).map(|at| at as i64 + 1)
}

fn push_new(list: &mut Vec<Box<str>>, word: &str) {
    if !list.iter().any(|w| **w == *word) {
        list.push(word.into());
    }
}
