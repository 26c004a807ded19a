//! Kernel logs, and how each statement belongs to the job: by process, by GPU, by time, or not.
//!
//! A kernel log holds all that happened to the machine: boots, other jobs, other days. A statement counts against this
//! job only if it names a process of it, or a GPU of it while it ran, or happened on one of its hosts while it ran. A
//! log without events is evidence only if it reaches past the failure. Without any job in the evidence the log is
//! judged by itself.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::program::{is_beside, trains};
use ringleader_knowledge::wording;
use ringleader_knowledge::xid::Kills;
use ringleader_model::{
    Case, Culprit, Evidence, Fact, Host, KernelCoverage, KernelEvent, KernelEventKind, Observation,
    PciAddress, Pid, ProcessRow, ProcessTable, Rank, SourceId, SourceKind, SystemFact, WallTime, WatchEvent,
    Who,
};

use crate::when::failure::{JobFailure, KillReport, kill};
use crate::when::window::{Lies, Window};
use crate::when::year::in_year;
use crate::who::roster::{Member, Roster, telling_host, told_size};

const SECOND_NS: i64 = 1_000_000_000;
/// Between a kill for lack of memory and the launcher's report that the process is gone.
const REAPED_NS: i64 = 20 * SECOND_NS;
/// A kernel logs an event some time after it happened, by the clock of its log.
const LATE_NS: i64 = 2 * SECOND_NS;
/// A log that ends less than this before a moment may have reached it: two clocks stamp them, one of them perhaps to the second.
const CLOCKS_S: f64 = 5.0;
/// Longest text of a statement that is cited: the lines of one event, such as those of the OOM killer, of which the last one names
/// the process.
const CITED_CHARS: usize = 2_000;

/// How a statement belongs to the job, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bond {
    /// It is of another process, or from before the job began.
    Foreign,
    /// Of a GPU that no rank uses, where the GPUs of all ranks are known.
    Beside,
    /// Nothing ties it to this job, and something would if it were of it.
    Loose,
    /// The evidence of the job names neither times nor processes nor GPUs that it could be compared with.
    Untold,
    /// On a host of the job while it ran, of a device that nothing ties to a rank.
    Time,
    /// Of a GPU of the job, at a time that cannot be compared.
    Device,
    /// There is no job in the evidence: the log is judged by itself.
    Alone,
    /// Of a GPU of the job, while it ran.
    DeviceInTime,
    /// Of a process of the job.
    Process,
}

/// A statement of a kernel, and how it belongs to the job.
#[derive(Clone, Debug)]
pub struct KernelStatement<'a> {
    /// Its place in the evidence.
    pub observation: &'a Observation,
    /// What it says.
    pub event: &'a KernelEvent,
    /// How it belongs to the job.
    pub bond: Bond,
    /// The process or GPU that it is about.
    pub culprit: Culprit,
}

impl KernelStatement<'_> {
    /// When, ns on its host's wall clock, if that has a year.
    pub fn at_ns(&self) -> Option<i64> {
        self.observation.at.filter(|t| t.has_year).map(|t| t.ns)
    }

    /// As cited evidence.
    pub fn evidence(&self) -> Evidence {
        let mut text: String = self.observation.text.chars().take(CITED_CHARS).collect();
        if text.len() < self.observation.text.len() {
            text.push('…');
        }
        Evidence { cite: self.observation.cite, text, kind: SourceKind::KernelLog }
    }

    /// Seconds from this statement to another one of the same log and boot, or of the same host's clock.
    pub fn seconds_to(&self, other: &Self) -> Option<f64> {
        let same_log = self.observation.cite.source == other.observation.cite.source;
        if same_log && self.event.boot == other.event.boot {
            if let (Some(a), Some(b)) = (self.event.uptime_us, other.event.uptime_us) {
                return Some((b as f64 - a as f64) / 1e6);
            }
            // A log without stamps: its lines follow each other.
            if self.observation.at.is_none() && other.observation.at.is_none() {
                let lines = i64::from(other.observation.cite.line) - i64::from(self.observation.cite.line);
                return Some(lines as f64 * 0.01);
            }
        }
        if self.observation.who.host != other.observation.who.host {
            return None;
        }
        let (a, b) = (self.observation.at?, other.observation.at?);
        (a.has_year == b.has_year).then(|| b.ns.saturating_sub(a.ns) as f64 / 1e9)
    }
}

/// Whether a kernel log reaches past a moment.
#[derive(Clone, Copy, Debug)]
pub struct Coverage<'a> {
    /// The log.
    pub observation: &'a Observation,
    /// Seconds from the moment to the log's last line; negative if it ends before.
    past_s: f64,
}

impl Coverage<'_> {
    /// The log goes on after the moment: what it does not report did not happen there.
    pub fn reaches_past(&self) -> bool {
        self.past_s >= 0.0
    }

    /// Seconds that its last line is before the moment, if that is more than stamps of two clocks are worth.
    pub fn missing_s(&self) -> Option<f64> {
        (self.past_s < -CLOCKS_S).then_some(-self.past_s)
    }

    /// `3 minutes`.
    pub fn missing(&self) -> Option<String> {
        let seconds = self.missing_s()?;
        Some(match seconds {
            s if s < 120.0 => format!("{s:.0} seconds"),
            s if s < 7_200.0 => format!("{:.0} minutes", s / 60.0),
            s if s < 172_800.0 => format!("{:.0} hours", s / 3_600.0),
            s => format!("{:.0} days", s / 86_400.0),
        })
    }
}

/// All statements of kernels.
#[derive(Clone, Debug, Default)]
pub struct KernelLogs<'a> {
    events: Vec<KernelStatement<'a>>,
    /// What each kernel log covers.
    covers: Vec<(&'a Observation, &'a KernelCoverage)>,
}

impl<'a> KernelLogs<'a> {
    /// Joins what kernels say with the job. Without any (`has_job`) a log is judged by itself.
    pub fn new(case: &'a Case, roster: &Roster, has_job: bool, window: Window, failure: &JobFailure) -> Self {
        let mut logs = Self::default();
        if !case.observations.iter().any(|o| matches!(o.fact, Fact::Kernel(_))) {
            return logs;
        }
        logs.covers = case
            .observations
            .iter()
            .filter_map(|o| match &o.fact {
                Fact::Kernel(event) => match &event.kind {
                    KernelEventKind::Covers(covers) => Some((o, &**covers)),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let join = Join::new(case, roster, window, has_job, failure.is_stated());
        logs.events = case
            .observations
            .iter()
            .filter_map(|o| match &o.fact {
                Fact::Kernel(event) => Some((o, &**event)),
                _ => None,
            })
            .filter(|(_, event)| !matches!(event.kind, KernelEventKind::Covers(_)))
            .map(|(observation, event)| {
                let (bond, culprit) = join.bond(observation, event);
                KernelStatement { observation, event, bond, culprit }
            })
            .collect();
        logs
    }

    /// All statements, foreign ones too, in source order.
    pub fn all(&self) -> &[KernelStatement<'a>] {
        &self.events
    }

    /// Statements that may concern the job.
    pub fn near(&self) -> impl Iterator<Item = &KernelStatement<'a>> {
        self.events.iter().filter(|e| e.bond > Bond::Foreign)
    }

    /// What the kernel log of a host is worth at a moment, as far as stamps of both allow: absence counts only if the
    /// log reaches past the failure.
    pub fn coverage(&self, host: Option<&Host>, at: WallTime) -> Option<Coverage<'a>> {
        let of_host = |o: &Observation| host.is_none() || o.who.host.is_none() || o.who.host.as_ref() == host;
        let reach = |covers: &KernelCoverage| {
            let last = covers.last_at?;
            let (last, at) = match (last.has_year, at.has_year) {
                (true, true) => (last.ns, at.ns),
                _ => (in_year(last), in_year(at)),
            };
            Some(last.saturating_sub(at) as f64 / 1e9)
        };
        let of_host = self.covers.iter().filter(|(o, _)| of_host(o));
        let longest = of_host.filter_map(|(o, covers)| Some((*o, reach(covers)?)));
        let (observation, seconds) = longest.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Coverage { observation, past_s: seconds })
    }

    /// Hosts whose kernel logs have nothing after a moment, and how long before it they end.
    pub fn ends_before(&self, at: WallTime) -> Vec<(Option<Host>, String)> {
        let hosts: BTreeSet<Option<&Host>> = self.covers.iter().map(|(o, _)| o.who.host.as_ref()).collect();
        let short = |host: Option<&Host>| Some((host.cloned(), self.coverage(host, at)?.missing()?));
        hosts.into_iter().filter_map(short).collect()
    }

    /// Whether the out-of-memory killer is known to have taken this rank.
    pub fn oom_killed(&self, rank: Rank) -> bool {
        self.events.iter().any(|e| {
            e.bond > Bond::Foreign
                && e.culprit.rank == Some(rank)
                && matches!(e.event.kind, KernelEventKind::OomKill(_))
        })
    }
}

/// What statements are joined by.
struct Join<'r> {
    roster: &'r Roster,
    window: Window,
    /// The GPU of every rank is known.
    knows_all_gpus: bool,
    has_job: bool,
    /// The job's hosts, as far as logs name them.
    hosts: BTreeSet<Host>,
    /// Ranks that have each GPU.
    gpus: BTreeMap<PciAddress, Vec<&'r Member>>,
    /// Ranks that their launcher saw end by SIGKILL, and when.
    killed: Vec<(Who, WallTime)>,
    /// The only rank that its launcher saw end by SIGKILL, where the kernel killed one process only, and no record of the rank
    /// shows when it ended.
    only_killed: Option<Who>,
    /// Until when, ns, each rank is known to have gone on by the ring of its plugin.
    lived: BTreeMap<Rank, i64>,
    /// When each rank ended an operation of NCCL last, or itself with exit code 0, by its ring.
    worked: BTreeMap<Rank, i64>,
    /// The first wall time of each boot of each log.
    boots: BTreeMap<(SourceId, u32), WallTime>,
    /// Processes beside the ranks that the job's own statements name, or that were seen to be its own: workers of a
    /// data loader.
    named: BTreeMap<Pid, Who>,
    /// Processes of the job that were seen to live, by number.
    alive: BTreeSet<Pid>,
    /// Processes of the job by the kernel's own numbers, where these are known.
    numbered: BTreeSet<Pid>,
    /// Something of the job says that it failed.
    has_failed: bool,
}

/// See [`Join::only_killed`].
fn only_killed(case: &Case, roster: &Roster) -> Option<Who> {
    let is_kill = |o: &&Observation| matches!(&o.fact, Fact::Kernel(event) if matches!(event.kind, KernelEventKind::OomKill(_)));
    let is_of_recorder = |o: &Observation| matches!(o.fact, Fact::Ring(_));
    if case.observations.iter().filter(is_kill).count() != 1 || case.observations.iter().any(is_of_recorder) {
        return None;
    }
    let ends = case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Torch(event) if kill(event).is_some() => {
            let rank = o.who.rank.or_else(|| roster.culprit(&o.who).rank)?;
            Some((rank, o.who.clone()))
        }
        _ => None,
    });
    let ends: BTreeMap<Rank, Who> = ends.collect();
    let (rank, who) = ends.iter().next().filter(|_| ends.len() == 1)?;
    Some(Who { rank: Some(*rank), ..who.clone() })
}

impl<'r> Join<'r> {
    fn new(case: &Case, roster: &'r Roster, window: Window, has_job: bool, has_failed: bool) -> Self {
        let mut gpus: BTreeMap<PciAddress, Vec<&Member>> = BTreeMap::new();
        for member in &roster.members {
            if let Some(gpu) = member.gpu {
                gpus.entry(PciAddress { function: 0, ..gpu }).or_default().push(member);
            }
        }
        let mut named = BTreeMap::new();
        for observation in &case.observations {
            if matches!(observation.fact, Fact::Torch(_)) {
                for pid in wording::pids(&observation.text) {
                    named.entry(pid).or_insert_with(|| observation.who.clone());
                }
            }
        }
        let mut alive = BTreeSet::new();
        for observation in &case.observations {
            let Fact::Processes(table) = &observation.fact else { continue };
            add_own(table, &observation.who, roster, &mut named, &mut alive);
        }
        let numbered = numbered(case);
        let hosts = roster.members.iter().filter_map(|m| telling_host(m.host.as_ref()).cloned()).collect();
        // Where several nodes have the same numbers, only the launcher's table identifies the rank.
        let in_table = |exit: &Who| {
            let mut ranks = case.observations.iter().filter(|o| {
                matches!(&o.fact, Fact::Torch(event) if kill(event) == Some(KillReport::Table))
                    && o.who.rank.is_some()
                    && o.who.pid == exit.pid
            });
            let first = ranks.next()?;
            ranks.all(|o| o.who.rank == first.who.rank).then(|| first.who.clone())
        };
        let only_killed = only_killed(case, roster);
        let killed = case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Torch(event) if kill(event) == Some(KillReport::Line) => {
                let who = if o.who.rank.is_none() && o.who.pid.is_some() { in_table(&o.who) } else { None };
                Some((who.unwrap_or_else(|| o.who.clone()), o.at?))
            }
            _ => None,
        });
        let mut killed: Vec<(Who, WallTime)> = killed.collect();
        if killed.is_empty() {
            // Loggers without times: the rows of the table have them.
            let rows = case
                .observations
                .iter()
                .filter(|o| matches!(&o.fact, Fact::Torch(event) if kill(event) == Some(KillReport::Table)));
            killed.extend(rows.filter_map(|o| Some((o.who.clone(), o.at?))));
        }
        let mut boots = BTreeMap::new();
        for observation in &case.observations {
            let Fact::Kernel(event) = &observation.fact else { continue };
            let at = match &event.kind {
                KernelEventKind::Covers(covers) => covers.booted_at,
                _ => observation.at,
            };
            if let Some(at) = at {
                boots.entry((observation.cite.source, event.boot)).or_insert(at);
            }
        }
        let has_gpu = |m: &&Member| m.gpu.is_some() || !m.holds.is_empty();
        let with_gpu: BTreeSet<Rank> = roster.members.iter().filter(has_gpu).filter_map(|m| m.rank).collect();
        let world_size = roster.world_size.or_else(|| told_size(case));
        let knows_all_gpus = world_size.is_some_and(|n| n > 0 && with_gpu.len() >= n as usize);
        let mut lived: BTreeMap<Rank, i64> = BTreeMap::new();
        let mut worked: BTreeMap<Rank, i64> = BTreeMap::new();
        for observation in &case.observations {
            let Fact::Ring(ring) = &observation.fact else { continue };
            let rank = observation.who.rank.or_else(|| roster.culprit(&observation.who).rank);
            if let Some(rank) = rank {
                let until = lived.entry(rank).or_insert(ring.taken_ns);
                *until = ring.taken_ns.max(*until);
                let well = ring.exit.filter(|(code, _)| *code == 0).map(|(_, at_ns)| at_ns);
                let newest = ring.ops.iter().map(|op| op.ended_ns).chain(well).max().unwrap_or_default();
                let until = worked.entry(rank).or_default();
                *until = newest.max(*until);
            }
        }
        Self {
            roster,
            window,
            knows_all_gpus,
            has_job,
            hosts,
            gpus,
            killed,
            only_killed,
            lived,
            worked,
            boots,
            named,
            alive,
            numbered,
            has_failed,
        }
    }

    fn bond(&self, observation: &Observation, event: &KernelEvent) -> (Bond, Culprit) {
        let host = observation.who.host.as_ref();
        let pid = pid_of(&event.kind);
        // For a failing GPU the process is any that used it, not the culprit.
        let blamed = pid.filter(|_| names_culprit(&event.kind));
        let mut culprit =
            Culprit { host: host.cloned(), pid: blamed, gpu: gpu_of(event), ..Culprit::default() };
        if !self.has_job {
            return (Bond::Alone, culprit);
        }
        let place = self.window.place(observation.at);
        if place == Some(Lies::Before) || self.is_of_earlier_boot(observation, event) {
            return (Bond::Foreign, culprit);
        }
        // A host that the job's logs do not know, where they know some.
        let elsewhere = host.is_some_and(|h| !self.hosts.is_empty() && !self.hosts.contains(h));
        if elsewhere && !self.is_alias(host) {
            return (Bond::Loose, culprit);
        }
        // Several nodes may have a process of that number: the one that its launcher saw end then is meant.
        if matches!(event.kind, KernelEventKind::OomKill(_))
            && host.is_none()
            && pid.is_some()
            && let Some(who) = self.killed_at(observation, pid)
        {
            let about = self.roster.culprit(who);
            culprit = Culprit { host: about.host.clone().or(culprit.host), ..about };
            return (Bond::Process, culprit);
        }
        let is_person = |m: &&Member| m.rank.is_some() || m.pid.is_some();
        if let Some(pid) = pid
            && let Some(member) = self.roster.by_kernel(pid, host).filter(is_person)
        {
            let gpu = culprit.gpu;
            let pid = member.pid.or(Some(pid));
            culprit = self.roster.culprit(&Who { rank: member.rank, pid, ..Who::default() });
            culprit.gpu = gpu.or(culprit.gpu);
            culprit.host = culprit.host.or_else(|| host.cloned());
            return (Bond::Process, culprit);
        }
        if let Some(who) = pid.and_then(|pid| self.named.get(&pid)) {
            let about = self.roster.culprit(who);
            culprit = Culprit { rank: about.rank, host: culprit.host.or(about.host), ..culprit };
            return (Bond::Process, culprit);
        }
        // After the end, the next job or a repair used it.
        let is_after = place == Some(Lies::After);
        let users = event.device.map(|gpu| self.users(gpu, host)).unwrap_or_default();
        if let Some(first) = users.first() {
            // Several may use it; nothing shows which did.
            if let [member] = users.as_slice() {
                culprit.rank = member.rank;
                culprit.local_rank = member.local_rank;
                culprit.gpu = member.gpu.or(culprit.gpu);
            }
            culprit.host = culprit.host.or_else(|| first.host.clone());
            if ends_its_process(&event.kind) && self.is_none_of(&users, pid) {
                let is_loose = is_contained(&event.kind);
                return (if is_loose { Bond::Loose } else { Bond::Foreign }, culprit);
            }
            // Another process on this rank's GPU, unless it is the rank by another number: a container starts counting
            // at 0.
            if blamed.is_some() && !users.iter().any(|m| blamed == m.pid || blamed == m.outer_pid) {
                let by_name = name_of(&event.kind).is_some_and(trains);
                let may_be_rank = by_name || place.is_some() && !is_of_desktop(&event.kind);
                if !may_be_rank {
                    // A fault of the GPU's memory is worth a word whoever met it.
                    let is_loose = is_contained(&event.kind);
                    return (if is_loose { Bond::Loose } else { Bond::Foreign }, culprit);
                }
                // Such a fault ends its process, and those that could be meant worked on.
                if ends_its_process(&event.kind) && users.iter().all(|m| self.worked_on(m, observation)) {
                    return (Bond::Foreign, culprit);
                }
                // The processes that could be meant live, and report nothing.
                let all_live = users.iter().all(|m| m.pid.is_some_and(|pid| self.alive.contains(&pid)));
                if !self.has_failed && all_live {
                    return (Bond::Loose, Culprit { rank: None, local_rank: None, ..culprit });
                }
            }
            if is_after {
                return (Bond::Loose, culprit);
            }
            if let [member] = users.as_slice() {
                culprit.pid = member.pid;
            }
            let bond = if place.is_some() { Bond::DeviceInTime } else { Bond::Device };
            return (bond, culprit);
        }
        // The GPUs of this host are known, and this is none of them.
        let is_here = |m: &Member| host.is_none() || m.host.as_ref() == host;
        let holders = || self.roster.members.iter().filter(|m| !m.holds.is_empty());
        let knows_gpus = self.gpus.values().flatten().any(|m| is_here(m)) || holders().any(is_here);
        if event.device.is_some() && knows_gpus && is_of_gpu(&event.kind) {
            let bond = if self.knows_all_gpus { Bond::Beside } else { Bond::Loose };
            return (bond, culprit);
        }
        // In a container a process has two numbers: a kill for lack of memory at the moment in which a rank died of
        // SIGKILL is that rank's.
        if matches!(event.kind, KernelEventKind::OomKill(_))
            && name_of(&event.kind).is_none_or(trains)
            && let Some(who) = self.killed_at(observation, None).or_else(|| self.killed_once(observation))
        {
            let about = self.roster.culprit(who);
            culprit = Culprit { host: about.host.clone().or(culprit.host), ..about };
            return (Bond::Process, culprit);
        }
        let bond = match place {
            Some(Lies::After) => Bond::Loose,
            Some(_) => Bond::Time,
            None if pid.is_none() || self.roster.members.iter().all(|m| m.pid.is_none()) => Bond::Untold,
            _ => Bond::Loose,
        };
        (bond, culprit)
    }

    /// A later boot of the same log began before the job.
    fn is_of_earlier_boot(&self, observation: &Observation, event: &KernelEvent) -> bool {
        let Some(next) = event.boot.checked_add(1) else { return false };
        let later = (observation.cite.source, next)..=(observation.cite.source, u32::MAX);
        self.boots.range(later).any(|(_, at)| self.window.place(Some(*at)) == Some(Lies::Before))
    }

    /// The only rank that died by SIGKILL, for the only kill of a log without a time of day, where no process of the job is known by
    /// number.
    fn killed_once(&self, observation: &Observation) -> Option<&Who> {
        let is_untold = observation.at.is_none() && self.roster.members.iter().all(|m| m.pid.is_none());
        self.only_killed.as_ref().filter(|_| is_untold)
    }

    /// The one rank, of that number if one is given, whose launcher saw it end by SIGKILL within seconds of a
    /// statement.
    fn killed_at(&self, observation: &Observation, pid: Option<Pid>) -> Option<&Who> {
        let at = observation.at?;
        let near = |killed: &WallTime| match (killed.has_year, at.has_year) {
            (true, true) => killed.ns.saturating_sub(at.ns).saturating_abs() < REAPED_NS,
            _ => in_year(*killed).saturating_sub(in_year(at)).saturating_abs() < REAPED_NS,
        };
        // A rank that went on after the kill was not the one killed.
        let until = at.ns.saturating_add(at.error_ns.max(LATE_NS));
        let outlived = |who: &Who| {
            let lived = self.roster.culprit(who).rank.and_then(|rank| self.lived.get(&rank));
            at.has_year && lived.is_some_and(|lived| *lived > until)
        };
        let is_it = |who: &Who| match pid {
            None => !outlived(who),
            Some(_) => who.pid == pid && who.rank.is_some(),
        };
        let killed = self.killed.iter().filter(|(who, killed)| near(killed) && is_it(who));
        let mut found = killed.map(|(who, _)| who);
        let first = found.next()?;
        found.all(|who| self.roster.culprit(who).rank == self.roster.culprit(first).rank).then_some(first)
    }

    /// The rank ended operations of NCCL seconds after this statement, or itself in order.
    fn worked_on(&self, member: &Member, observation: &Observation) -> bool {
        let Some(at) = observation.at.filter(|at| at.has_year) else { return false };
        let until = at.ns.saturating_add(at.error_ns.max(LATE_NS));
        member.rank.and_then(|rank| self.worked.get(&rank)).is_some_and(|worked| *worked > until)
    }

    /// The rank with this GPU; with several hosts, the one of this host.
    fn member_with(&self, gpu: PciAddress, host: Option<&Host>) -> Option<&'r Member> {
        let all = self.gpus.get(&PciAddress { function: 0, ..gpu })?;
        let here: Vec<&&Member> =
            all.iter().filter(|m| host.is_none() || m.host.is_none() || m.host.as_ref() == host).collect();
        match (here.as_slice(), all.as_slice()) {
            ([one], _) => Some(*one),
            // One process may be there twice, with and without its rank.
            (_, [one]) => Some(*one),
            ([first, rest @ ..], _) if rest.iter().all(|m| m.pid == first.pid && m.host == first.host) => {
                Some(*first)
            }
            _ => None,
        }
    }

    /// The rank with this GPU by the job's own account; else those that run on it, or could, by what was seen of them.
    fn users(&self, gpu: PciAddress, host: Option<&Host>) -> Vec<&'r Member> {
        if let Some(member) = self.member_with(gpu, host) {
            return vec![member];
        }
        let same =
            |held: &PciAddress| PciAddress { function: 0, ..*held } == PciAddress { function: 0, ..gpu };
        let is_here = |m: &Member| host.is_none() || m.host.is_none() || m.host.as_ref() == host;
        let members = self.roster.members.iter().filter(|m| m.gpu.is_none() && is_here(m));
        members.filter(|m| m.holds.iter().any(same)).collect()
    }

    /// By the kernel's own numbers the process is none of these.
    fn is_none_of(&self, users: &[&Member], pid: Option<Pid>) -> bool {
        let is_numbered = |m: &&Member| m.pid.is_some_and(|pid| self.numbered.contains(&pid));
        users.iter().all(is_numbered) && pid.is_some_and(|pid| !self.numbered.contains(&pid))
    }

    /// Hosts that their logs call otherwise (`vm`, an address) cannot be distinguished from it: one host, one log.
    fn is_alias(&self, host: Option<&Host>) -> bool {
        self.hosts.len() == 1
            && host
                .is_some_and(|h| self.hosts.iter().all(|own| own.starts_with(&**h) || h.starts_with(&**own)))
    }
}

/// Processes of the job that a snapshot lists or a watcher names, if the snapshot saw them by the kernel's numbers.
fn numbered(case: &Case) -> BTreeSet<Pid> {
    let mut found = BTreeSet::new();
    let mut is_bare = false;
    for observation in &case.observations {
        match &observation.fact {
            Fact::System(fact) => is_bare |= matches!(**fact, SystemFact::NodePids),
            Fact::Processes(table) => {
                let own = |row: &&ProcessRow| {
                    row.picked.as_deref().is_some_and(|picked| picked.is_of_job && picked.outer_pid.is_none())
                };
                found.extend(table.rows.iter().filter(own).filter_map(|row| row.pid));
            }
            Fact::Watch(WatchEvent::Ranks(all)) => found.extend(all.iter().filter_map(|who| who.pid)),
            _ => {}
        }
    }
    if is_bare { found } else { BTreeSet::new() }
}

/// The job's own processes of a list: those that are no ranks are named by the rank that started them.
fn add_own(
    table: &ProcessTable,
    who: &Who,
    roster: &Roster,
    named: &mut BTreeMap<Pid, Who>,
    alive: &mut BTreeSet<Pid>,
) {
    for row in &table.rows {
        let (Some(pid), Some(picked)) = (row.pid, row.picked.as_deref()) else { continue };
        if !picked.is_of_job {
            continue;
        }
        if !row.state.starts_with(['Z', 'X']) {
            alive.insert(pid);
        }
        let whose = |pid| roster.find(&Who { pid: Some(pid), host: who.host.clone(), ..Who::default() });
        if whose(pid).is_some() {
            continue;
        }
        let rank = row.ppid.and_then(whose).and_then(|parent| parent.rank);
        let own = Who { rank, host: who.host.clone(), pid: Some(pid), ..Who::default() };
        named.entry(picked.outer_pid.unwrap_or(pid)).or_insert(own);
    }
}

/// Whether the GPU stops the process for what that did itself.
fn ends_its_process(kind: &KernelEventKind) -> bool {
    let KernelEventKind::Xid(xid) = kind else { return false };
    ringleader_knowledge::xid::get(xid.code).is_some_and(|row| {
        row.class == ringleader_knowledge::xid::Class::Application && row.kills_job == Kills::Yes
    })
}

/// The process a statement names.
fn pid_of(kind: &KernelEventKind) -> Option<Pid> {
    match kind {
        KernelEventKind::Xid(xid) => xid.pid,
        KernelEventKind::OomKill(kill) => kill.pid,
        KernelEventKind::HungTask { pid, .. }
        | KernelEventKind::Lockup { pid, .. }
        | KernelEventKind::Crash { pid, .. }
        | KernelEventKind::MemoryFailure { pid, .. }
        | KernelEventKind::DriverMismatch { pid, .. } => *pid,
        _ => None,
    }
}

/// The name of the process, as the kernel prints it: at most 15 characters, of the thread.
fn name_of(kind: &KernelEventKind) -> Option<&str> {
    let name = match kind {
        KernelEventKind::Xid(xid) => xid.name.as_deref()?,
        KernelEventKind::OomKill(kill) => &kill.name,
        _ => return None,
    };
    (!name.is_empty() && !name.starts_with('<')).then_some(name)
}

/// The process that this Xid names made the fault itself; for others it is any process that used the GPU.
fn names_culprit(kind: &KernelEventKind) -> bool {
    match kind {
        _ if is_contained(kind) => true,
        KernelEventKind::Xid(xid) => ringleader_knowledge::xid::get(xid.code)
            .is_none_or(|x| x.class == ringleader_knowledge::xid::Class::Application || x.is_never_root()),
        _ => true,
    }
}

/// A memory error that ends the process that it names, and no other.
fn is_contained(kind: &KernelEventKind) -> bool {
    matches!(kind, KernelEventKind::Xid(xid) if xid.code == ringleader_knowledge::xid::CONTAINED)
}

/// A fault that a display server, a browser or a monitor made itself.
fn is_of_desktop(kind: &KernelEventKind) -> bool {
    let KernelEventKind::Xid(xid) = kind else { return false };
    xid.name.as_deref().is_some_and(is_beside)
}

fn is_of_gpu(kind: &KernelEventKind) -> bool {
    matches!(
        kind,
        KernelEventKind::Xid(_)
            | KernelEventKind::GpuLost
            | KernelEventKind::GpuInitFailed { .. }
            | KernelEventKind::GspSilent
    )
}

fn gpu_of(event: &KernelEvent) -> Option<PciAddress> {
    event.device.filter(|_| is_of_gpu(&event.kind))
}
