//! The scene: everything that rules look at, joined from one case.

use std::collections::BTreeSet;

use ringleader_knowledge::variable;
use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{
    BenchRun, Case, Cite, CopyTest, Culprit, Evidence, Fact, GpuTable, Host, Interface, Limit, MemoryGroup,
    NcclLog, NcclMessage, NcclProcess, NetFact, Observation, ProcessStacks, ProcessTable, Rank, RasReport,
    RingRecord, SourceKind, SystemFact, Timeline, TorchEvent, WallTime, Who,
};

use crate::calls::align::{self, Divergence};
use crate::calls::ledger::Ledger;
use crate::calls::mismatch::{self, Mismatch, Proof};
use crate::machine::clocks::{self, Shifted};
use crate::machine::kernel::KernelLogs;
use crate::prepare::rings::rings;
use crate::process::closed::{self, Closed};
use crate::process::condition::{Condition, Conditions, ProgramPosition};
use crate::process::fate::{Fate, Fates};
use crate::process::looks::{Looks, ProcessLook};
use crate::process::samples::Samples;
use crate::process::thrown::{self, Thrown};
use crate::said::likeness::Likeness;
use crate::said::messages::Claims;
use crate::said::scheduler::Schedulers;
use crate::said::statements::Statements;
use crate::said::watchdog::WatchdogLines;
use crate::said::watcher::{self, StandStill};
use crate::signs::Signs;
use crate::track::{GroupRecorder, RankOrSource};
use crate::waits::graph::{self, Waits};
use crate::waits::inside::{self, Last};
use crate::waits::suspects::{self, Suspect};
use crate::when::course::{self, Course};
use crate::when::failure::JobFailure;
use crate::when::trail::Trails;
use crate::when::window::{Lies, Window, has_job};
use crate::who::culprits::add_culprit;
use crate::who::dumps::{self, OwnedDump};
use crate::who::gpus::Gpus;
use crate::who::hosts::Hosts;
use crate::who::roster::Roster;
use crate::who::settings;
use crate::who::tools::{self, Listener, Tools, VerbsUser};

/// Everything rules look at. It is complete once it exists: each part is made from parts before it, and none
/// changes afterwards.
pub struct Scene<'a> {
    case: &'a Case,
    roster: Roster,
    dumps: Vec<OwnedDump<'a>>,
    tools: Tools<'a>,
    claims: Claims<'a>,
    stated: Statements<'a>,
    watchdog: WatchdogLines,
    stood_still: Vec<StandStill<'a>>,
    has_job: bool,
    window: Window,
    failure: JobFailure,
    course: Course<'a>,
    signs: Signs,
    hosts: Hosts,
    kernel: KernelLogs<'a>,
    gpus: Gpus<'a>,
    ledger: Ledger<'a>,
    divergences: Vec<Divergence>,
    conditions: Conditions,
    fates: Fates,
    looks: Looks,
    samples: Samples,
    mismatches: Vec<Mismatch>,
    waits: Vec<Waits>,
    suspects: Vec<Suspect>,
}

/// A statement of torch, Python or a launcher, with its place.
#[derive(Clone, Copy)]
pub struct TorchStatement<'a> {
    /// The observation that holds it.
    pub observation: &'a Observation,
    /// What it says.
    pub event: &'a TorchEvent,
}

/// An NCCL message with the process that wrote it.
#[derive(Clone, Copy)]
pub struct NcclLine<'a> {
    /// The message.
    pub message: &'a NcclMessage,
    /// Its process, if the line identifies it.
    pub process: Option<&'a NcclProcess>,
}

impl<'a> Scene<'a> {
    /// Joins a case, stage by stage. This is the only place that has the order.
    pub fn new(case: &'a Case) -> Self {
        // Who: ranks, processes, hosts; then the owner of each dump and of each tool's output.
        let roster = Roster::new(case);
        let dumps = dumps::own(case, &roster);
        let tools = Tools::new(case, &roster);
        let hosts = Hosts::new(case, &roster);
        // Said: what texts, watchdogs and a watcher report, each by itself.
        let claims = Claims::new(case);
        let stated = Statements::new(case, &roster);
        let watchdog = WatchdogLines::new(case);
        let stood_still = watcher::standing(case);
        // When: whether there is a job, the time that it spans, whether and when it failed, what it got over.
        let has_job = has_job(case);
        let window = Window::new(case);
        let trails = Trails::new(case);
        let failure = JobFailure::new(case, &claims, &trails);
        let course = Course::new(case, trails, &failure);
        let signs = Signs::new(case, &roster, &stated, &claims, &failure, &course);
        // Machines: kernel logs and GPUs, and how they belong to the job.
        let kernel = KernelLogs::new(case, &roster, has_job, window, &failure);
        let gpus = Gpus::new(case, &roster, has_job);
        // Calls: each rank's operations, and where ranks differ.
        let ledger = Ledger::new(case, &roster, &dumps, &watchdog, &failure, &stood_still);
        let divergences = align::divergences(&ledger);
        // Processes: alive and where, dead and how.
        let conditions = Conditions::new(case, &roster);
        let fates = Fates::new(case, &roster, &tools, &kernel, &conditions, &failure);
        let looks = Looks::new(case, &roster, &conditions);
        let samples = Samples::new(case, &roster);
        let proof = Proof { ledger: &ledger, conditions: &conditions, watchdog: &watchdog };
        let mismatches = mismatch::mismatches(proof, &divergences);
        // Waits: which rank waits for which, and which ranks hold the others up.
        let views: &[GroupRecorder] = if ledger.logs_know_more() {
            &[GroupRecorder::Ring, GroupRecorder::Nccl, GroupRecorder::Ras]
        } else {
            &[GroupRecorder::Flight, GroupRecorder::Ring, GroupRecorder::Nccl, GroupRecorder::Ras]
        };
        let mut waits: Vec<Waits> = views.iter().filter_map(|view| graph::waits(&ledger, *view)).collect();
        // Messages whose other side is not known decide nothing where another view knows it.
        waits.sort_by_key(Waits::is_mute);
        let suspects = suspects::suspects(proof, &dumps, &waits);
        Self {
            case,
            roster,
            dumps,
            tools,
            claims,
            stated,
            watchdog,
            stood_still,
            has_job,
            window,
            failure,
            course,
            signs,
            hosts,
            kernel,
            gpus,
            ledger,
            divergences,
            conditions,
            fates,
            looks,
            samples,
            mismatches,
            waits,
            suspects,
        }
    }

    /// The case itself.
    pub fn case(&self) -> &'a Case {
        self.case
    }

    /// Ranks, hosts, processes and GPUs, joined.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Flight Recorder dumps with their owners.
    pub fn dumps(&self) -> &[OwnedDump<'a>] {
        &self.dumps
    }

    /// Statements of failure, from any program.
    pub fn stated(&self) -> &Statements<'a> {
        &self.stated
    }

    /// What the texts claim.
    pub fn claims(&self) -> &Claims<'a> {
        &self.claims
    }

    /// What the watchdogs said.
    pub fn watchdog(&self) -> &WatchdogLines {
        &self.watchdog
    }

    /// Stalls that a watcher reported and that nothing ended.
    pub fn stood_still(&self) -> &[StandStill<'a>] {
        &self.stood_still
    }

    /// There is a job in the evidence at all.
    pub fn has_job(&self) -> bool {
        self.has_job
    }

    /// Whether a moment is before the job began; None if they cannot be compared.
    pub fn precedes_job(&self, at: Option<WallTime>) -> Option<bool> {
        self.window.place(at).map(|place| place == Lies::Before)
    }

    /// Whether and when the job failed.
    pub fn failure(&self) -> &JobFailure {
        &self.failure
    }

    /// What the job got over, and how it ended.
    pub fn course(&self) -> &Course<'a> {
        &self.course
    }

    /// Which causes the words of the case resemble.
    pub fn likeness(&self) -> Likeness {
        Likeness::new(self.case)
    }

    /// Signs, from which causes follow where several are there together.
    pub fn signs(&self) -> &Signs {
        &self.signs
    }

    /// The machines, and to which machine each line belongs.
    pub fn machines(&self) -> &Hosts {
        &self.hosts
    }

    /// What the machines' kernels say.
    pub fn kernel(&self) -> &KernelLogs<'a> {
        &self.kernel
    }

    /// Kernel events that would explain the failure if the log's clock were in another time zone.
    pub fn shifted(&self) -> Vec<Shifted<'_, 'a>> {
        clocks::shifted(&self.kernel, &self.roster, &self.failure)
    }

    /// What the driver's tools show of GPUs.
    pub fn gpus(&self) -> &Gpus<'a> {
        &self.gpus
    }

    /// Each rank's operations, per group and view.
    pub fn ledger(&self) -> &Ledger<'a> {
        &self.ledger
    }

    /// Where ranks of a group differ, per view.
    pub fn divergences(&self) -> &[Divergence] {
        &self.divergences
    }

    /// The same, joined over views.
    pub fn mismatches(&self) -> &[Mismatch] {
        &self.mismatches
    }

    /// Whether this rank differs from its group in a call that the group has not passed.
    pub fn has_parted(&self, who: RankOrSource) -> bool {
        self.mismatches.iter().any(|m| !m.is_bygone && m.odd.contains(&who))
    }

    /// Whether any rank has.
    pub fn any_parted(&self) -> bool {
        self.mismatches.iter().any(|m| !m.is_bygone)
    }

    /// Calls as cited evidence, and where in the program they were made.
    pub fn proof(&self) -> Proof<'_, 'a> {
        Proof { ledger: &self.ledger, conditions: &self.conditions, watchdog: &self.watchdog }
    }

    /// The ranks of a job that runs, from two readings.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// Main threads that were sampled while the job ran.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Processes: alive and where, stopped, dead and how.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// What became of each rank.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }

    /// What became of a rank; None if nothing is known of it.
    pub fn fate(&self, rank: Rank) -> Option<&Fate> {
        self.fates.get(rank)
    }

    /// Who waits for whom, per view that recorded anything: Flight Recorder first.
    pub fn waits(&self) -> &[Waits] {
        &self.waits
    }

    /// Ranks that hold others up, joined over views.
    pub fn suspects(&self) -> &[Suspect] {
        &self.suspects
    }

    /// Where a suspect rests in a collective call that no record shows, while its peers wait for it in another: it is not
    /// outside of any. None where the evidence does not show that.
    pub fn unseen_call(&self, suspect: &Suspect) -> Option<&ProgramPosition> {
        /// Share of a processor; a rank that uses no more between two looks waits.
        const RESTING: f64 = 0.05;
        let rank = suspect.node.rank()?;
        let is_gone = self.fate(rank).is_some_and(Fate::cannot_come);
        // Only a ring shows that nothing is in flight; another view may have missed it.
        let is_recorded = suspect.views.contains(&GroupRecorder::Ring);
        if is_gone || suspect.is_inside || suspect.in_p2p || !is_recorded || self.has_parted(suspect.node) {
            return None;
        }
        let stand = self.condition(rank)?.stand.as_ref()?;
        // Its two stacks are the same, and it does not work: it is not on its way into the others' call.
        let rests = |look: &&ProcessLook| look.has_moved == Some(false) && look.busy < RESTING;
        let is_still = self.looks.ranks().iter().filter(rests).any(|look| look.rank == rank);
        if !stand.is_in_collective() || stand.is_joining() || !is_still {
            return None;
        }
        let place = |stand: &ProgramPosition| stand.place().map(|f| (f.file.clone(), f.line));
        let is_elsewhere = |victim: &Rank| {
            let other = self.condition(*victim).and_then(|c| c.stand.as_ref());
            other.is_none_or(|other| place(other) != place(stand))
        };
        suspect.victims.ranks().iter().all(is_elsewhere).then_some(stand)
    }

    /// The last state of every process with a ring that has not ended in order.
    pub fn last_states(&self) -> Vec<Last> {
        inside::last_states(self.case, &self.roster)
    }

    /// Statements of torch, Python and launchers, in source order.
    pub fn statements(&self) -> impl Iterator<Item = TorchStatement<'a>> + use<'a> {
        self.case.observations.iter().filter_map(|observation| match &observation.fact {
            Fact::Torch(event) => Some(TorchStatement { observation, event }),
            _ => None,
        })
    }

    /// NCCL logs with their observations.
    pub fn nccl_logs(&self) -> impl Iterator<Item = (&'a Observation, &'a NcclLog)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Nccl(log) => Some((o, &**log)),
            _ => None,
        })
    }

    /// NCCL's WARN lines and failure reports, in source order.
    pub fn nccl_messages(&self) -> impl Iterator<Item = NcclLine<'a>> + use<'a> {
        self.nccl_logs().flat_map(|(_, log)| {
            log.messages
                .iter()
                .map(|message| NcclLine { message, process: log.processes.get(message.process as usize) })
        })
    }

    /// RAS reports.
    pub fn ras(&self) -> impl Iterator<Item = (&'a Observation, &'a RasReport)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Ras(report) => Some((o, &**report)),
            _ => None,
        })
    }

    /// Rings, one for each process.
    pub fn rings(&self) -> Vec<(&'a Observation, &'a RingRecord)> {
        rings(self.case)
    }

    /// Timelines of profilers, in source order.
    pub fn timelines(&self) -> impl Iterator<Item = (&'a Observation, &'a Timeline)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Timeline(timeline) => Some((o, &**timeline)),
            _ => None,
        })
    }

    /// Stacks of processes.
    pub fn stacks(&self) -> impl Iterator<Item = (&'a Observation, &'a ProcessStacks)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Stacks(stacks) => Some((o, &**stacks)),
            _ => None,
        })
    }

    /// Process lists.
    pub fn process_tables(&self) -> impl Iterator<Item = (&'a Observation, &'a ProcessTable)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Processes(table) if !table.rows.is_empty() => Some((o, &**table)),
            _ => None,
        })
    }

    /// GPU tables.
    pub fn gpu_tables(&self) -> impl Iterator<Item = (&'a Observation, &'a GpuTable)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Gpus(table) => Some((o, &**table)),
            _ => None,
        })
    }

    /// Limits.
    pub fn limits(&self) -> impl Iterator<Item = (&'a Observation, &'a Limit)> + use<'a> {
        self.case.observations.iter().flat_map(|o| {
            let limits: &[Limit] = match &o.fact {
                Fact::Limits(limits) => limits,
                _ => &[],
            };
            limits.iter().map(move |l| (o, l))
        })
    }

    /// Waits of one view.
    pub fn waits_of(&self, view: GroupRecorder) -> Option<&Waits> {
        self.waits.iter().find(|w| w.view == view)
    }

    /// Condition of a rank.
    pub fn condition(&self, rank: Rank) -> Option<&Condition> {
        self.conditions.get(rank)
    }

    /// The process that `who` means, with everything the roster knows of it.
    pub fn culprit(&self, who: &Who) -> Culprit {
        self.roster.culprit(who)
    }

    /// The process that a node means.
    pub fn culprit_node(&self, node: RankOrSource) -> Culprit {
        node.rank().map_or_else(Culprit::default, |rank| self.roster.culprit_rank(rank))
    }

    /// Folder of the source that is cited.
    pub fn folder(&self, cite: Cite) -> &'a str {
        course::folder(self.case, cite)
    }

    /// Kind of a source, for counting independent kinds of evidence.
    pub fn kind_of(&self, cite: Cite) -> SourceKind {
        self.case
            .sources
            .get(cite.source.0 as usize)
            .and_then(|s| s.kinds.first().copied())
            .unwrap_or(SourceKind::Unknown)
    }

    /// What tools of the fabric and the network say, in source order.
    pub fn net(&self) -> impl Iterator<Item = (&'a Observation, &'a NetFact)> + use<'a> {
        self.tools.net()
    }

    /// What tools of the node say, in source order.
    pub fn system(&self) -> impl Iterator<Item = (&'a Observation, &'a SystemFact)> + use<'a> {
        self.tools.system()
    }

    /// What schedulers say, and which of it is of this job.
    pub fn schedulers(&self) -> Schedulers<'_, 'a> {
        let events = self.system().filter_map(|(observation, fact)| match fact {
            SystemFact::Scheduler(event) => Some((observation, event)),
            _ => None,
        });
        Schedulers::new(events, self.hosts())
    }

    /// Connections that peers closed, as the ranks that lost them report it.
    pub fn closed_connections(&self) -> Option<Closed> {
        closed::closed(self.case, &self.roster, &self.course)
    }

    /// The last word of a rank that aborted, if the message table knows which cause it states.
    pub fn thrown(&self, rank: Rank) -> Option<Thrown> {
        thrown::thrown(self.case, &self.roster, rank)
    }

    /// Whether the watchdog of its process group ended this rank.
    pub fn is_ended_by_watchdog(&self, rank: Rank) -> bool {
        thrown::is_of_watchdog(self.case, &self.roster, rank)
    }

    /// Who listens on a port, with the process that holds it, if it is known.
    pub fn listeners(&self, port: u16) -> impl Iterator<Item = Listener<'a>> {
        self.tools.listeners(port)
    }

    /// Runs of nccl-tests.
    pub fn benches(&self) -> impl Iterator<Item = (&'a Observation, &'a BenchRun)> + use<'a> {
        self.tools.benches()
    }

    /// Copies between GPUs.
    pub fn copies(&self) -> impl Iterator<Item = (&'a Observation, &'a CopyTest)> + use<'a> {
        self.tools.copies()
    }

    /// Whether anything in the evidence says that the job failed: that a process did, or an operation.
    pub fn has_failed(&self) -> bool {
        self.failure.is_claimed()
    }

    /// Whether a communicator was ever ready beside these statements: the job that they are of got going.
    pub fn got_going(&self, beside: impl IntoIterator<Item = Cite>) -> bool {
        self.course.got_going(beside)
    }

    /// The oldest NCCL release that a process says it runs.
    pub fn nccl_version(&self) -> Option<NcclVersion> {
        settings::nccl_version(self.case)
    }

    /// Whether advice to set this variable makes sense: true unless the release is known and does not read it.
    pub fn reads_variable(&self, name: &str) -> bool {
        variable::is_read_by(name, self.nccl_version()) != Some(false)
    }

    /// Whether /dev/shm of a host is full, or as small as containers have it by default.
    pub fn has_tight_shm(&self, host: Option<&Host>) -> bool {
        self.tools.has_tight_shm(host)
    }

    /// Memory cgroups of a host that count kills for lack of memory, with the line and the count.
    pub fn group_kills(
        &self,
        host: Option<&Host>,
    ) -> impl Iterator<Item = (&'a Observation, &'a MemoryGroup, u32, u64)> {
        self.tools.group_kills(host)
    }

    /// Hosts of the job, each once.
    pub fn hosts(&self) -> BTreeSet<&Host> {
        self.roster.hosts()
    }

    /// The host that a tool ran on, if it is known.
    pub fn host_of(&self, observation: &Observation) -> Option<Host> {
        self.tools.host_of(observation)
    }

    /// Whether the source itself identifies its host: by name, or by an address of the host.
    pub fn names_host(&self, observation: &Observation) -> bool {
        self.tools.names_host(observation)
    }

    /// Whether a host is none of the job's, the hosts of all ranks being known.
    pub fn is_elsewhere(&self, host: Option<&Host>) -> bool {
        host.is_some_and(|h| self.roster.is_elsewhere(h))
    }

    /// Whether output of `tool_host` may be of a process on `host`: nothing says otherwise.
    pub fn may_be_on(&self, tool_host: Option<&Host>, host: Option<&Host>) -> bool {
        tools::may_be_on(tool_host, host)
    }

    /// Processes that said they use this port: `[0]mlx5_0:1/IB`.
    pub fn verbs_users(&self, host: Option<&Host>, device: &str, port: u32) -> Vec<VerbsUser<'a>> {
        self.tools.verbs_users(host, device, port)
    }

    /// Processes whose bootstrap or sockets go over this interface.
    pub fn interface_users(
        &self,
        host: Option<&Host>,
        interface: &Interface,
    ) -> Vec<(&'a NcclProcess, Cite)> {
        self.tools.interface_users(host, interface)
    }

    /// Processes as culprits, each once.
    pub fn culprits_of<'p>(&self, processes: impl IntoIterator<Item = &'p NcclProcess>) -> Vec<Culprit> {
        processes.into_iter().fold(Vec::new(), |mut all, p| {
            add_culprit(&mut all, self.culprit(&p.who));
            all
        })
    }
}

impl<'a> TorchStatement<'a> {
    /// As cited evidence.
    pub fn evidence(&self) -> Evidence {
        Evidence {
            cite: self.observation.cite,
            text: self.observation.text.to_string(),
            kind: SourceKind::TorchLog,
        }
    }

    /// Who said it.
    pub fn who(&self) -> &'a Who {
        &self.observation.who
    }

    /// When, ns on its host's wall clock.
    pub fn at_ns(&self) -> Option<i64> {
        self.observation.at.map(|t| t.ns)
    }
}

impl<'a> NcclLine<'a> {
    /// As cited evidence.
    pub fn evidence(&self) -> Evidence {
        let word = if self.message.is_warn { "NCCL WARN" } else { "NCCL INFO" };
        Evidence {
            cite: self.message.cite,
            text: format!("{word} {}", self.message.text),
            kind: SourceKind::NcclLog,
        }
    }

    /// Who said it.
    pub fn who(&self) -> Who {
        self.process.map(|p| p.who.clone()).unwrap_or_default()
    }

    /// The text after `NCCL WARN `.
    pub fn text(&self) -> &'a str {
        &self.message.text
    }

    /// When, ns on its host's wall clock.
    pub fn at_ns(&self) -> Option<i64> {
        self.message.at.map(|t| t.ns)
    }
}
