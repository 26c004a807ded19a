//! The scene: everything that rules look at, joined from one case.

use ringleader_model::{
    Case, Cite, Culprit, Evidence, Fact, GpuTable, Limit, NcclLog, NcclMessage, NcclProcess, Observation,
    ProcessStacks, ProcessTable, Rank, RasReport, RingRecord, SourceKind, TorchEvent, Who,
};

use crate::calls::align::{self, Divergence};
use crate::calls::ledger::{self, Ledger, View};
use crate::calls::mismatch::{self, Mismatch};
use crate::calls::moments;
use crate::process::condition::{Condition, Conditions};
use crate::said::kernel::Machine;
use crate::said::messages::Claims;
use crate::said::watchdog::WatchdogLines;
use crate::said::watcher::{self, StandStill};
use crate::waits::graph::{self, Waits};
use crate::waits::suspects::{self, Suspect};
use crate::who::dumps::{self, OwnedDump};
use crate::who::gpus::Gpus;
use crate::who::roster::Roster;
use crate::who::tools::Sites;

/// Everything rules look at.
pub struct Scene<'a> {
    /// The case itself.
    pub case: &'a Case,
    /// Ranks, hosts, processes and GPUs, joined.
    pub roster: Roster,
    /// Flight Recorder dumps with their owners.
    pub dumps: Vec<OwnedDump<'a>>,
    /// What the watchdogs said.
    pub watchdog: WatchdogLines,
    /// Each rank's operations, per group and view.
    pub ledger: Ledger<'a>,
    /// Where ranks of a group part ways, per view.
    pub divergences: Vec<Divergence>,
    /// The same, joined over views.
    pub mismatches: Vec<Mismatch>,
    /// Who waits for whom, per view that recorded anything: Flight Recorder first.
    pub waits: Vec<Waits>,
    /// Ranks that hold others up, joined over views.
    pub suspects: Vec<Suspect>,
    /// Processes: alive and where, stopped, dead and how.
    pub conditions: Conditions,
    /// What the texts claim.
    pub claims: Claims<'a>,
    /// What the machines' kernels say.
    pub machine: Machine<'a>,
    /// What the driver's tools show of GPUs.
    pub gpus: Gpus<'a>,
    /// What the nodes' tools show, and whose it is.
    pub sites: Sites<'a>,
    /// Stalls that a watcher told of and that nothing ended.
    pub stood_still: Vec<StandStill<'a>>,
}

/// A statement of torch, Python or a launcher, with its place.
#[derive(Clone, Copy)]
pub struct Statement<'a> {
    /// The observation it stands in.
    pub observation: &'a Observation,
    /// What it says.
    pub event: &'a TorchEvent,
}

/// An NCCL message with the process that wrote it.
#[derive(Clone, Copy)]
pub struct NcclLine<'a> {
    /// The message.
    pub message: &'a NcclMessage,
    /// Its process, if the line tells.
    pub process: Option<&'a NcclProcess>,
}

impl<'a> Scene<'a> {
    /// Joins a case.
    pub fn new(case: &'a Case) -> Self {
        let roster = Roster::new(case);
        let dumps = dumps::own(case, &roster);
        let watchdog = WatchdogLines::new(case);
        let mut ledger = Ledger::new(case, &roster, &dumps, &watchdog);
        let stood_still = watcher::standing(case);
        moments::open_ends(&mut ledger, case, &stood_still);
        let divergences = align::divergences(&ledger);
        let views: &[View] = if ledger.logs_know_more() {
            &[View::Ring, View::Nccl, View::Ras]
        } else {
            &[View::Flight, View::Ring, View::Nccl, View::Ras]
        };
        let waits: Vec<Waits> = views.iter().filter_map(|view| graph::waits(&ledger, *view)).collect();
        let conditions = Conditions::new(case, &roster);
        let claims = Claims::new(case);
        let machine = Machine::new(case, &roster);
        let gpus = Gpus::new(case, &roster, machine.has_job);
        let sites = Sites::new(case, &roster);
        let mut scene = Self {
            case,
            roster,
            claims,
            machine,
            gpus,
            sites,
            stood_still,
            dumps,
            watchdog,
            ledger,
            divergences,
            mismatches: Vec::new(),
            waits,
            suspects: Vec::new(),
            conditions,
        };
        scene.mismatches = mismatch::mismatches(&scene);
        scene.suspects = suspects::suspects(&scene);
        scene
    }

    /// Statements of torch, Python and launchers, in source order.
    pub fn statements(&self) -> impl Iterator<Item = Statement<'a>> + use<'a> {
        self.case.observations.iter().filter_map(|observation| match &observation.fact {
            Fact::Torch(event) => Some(Statement { observation, event }),
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
        ledger::rings(self.case)
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
    pub fn waits_of(&self, view: View) -> Option<&Waits> {
        self.waits.iter().find(|w| w.view == view)
    }

    /// Condition of a rank.
    pub fn condition(&self, rank: Rank) -> Option<&Condition> {
        self.conditions.get(rank)
    }

    /// Whom `who` means, with everything the roster knows of it.
    pub fn culprit(&self, who: &Who) -> Culprit {
        self.roster.culprit(who)
    }

    /// Whom a node means.
    pub fn culprit_node(&self, node: graph::Node) -> Culprit {
        node.rank().map_or_else(Culprit::default, |rank| self.roster.culprit_rank(rank))
    }

    /// Folder of the source that is cited.
    pub fn folder(&self, cite: Cite) -> &'a str {
        self.case.sources.get(cite.source.0 as usize).map_or("", ringleader_model::Source::folder)
    }

    /// Kind of a source, for counting independent kinds of evidence.
    pub fn kind_of(&self, cite: Cite) -> SourceKind {
        self.case
            .sources
            .get(cite.source.0 as usize)
            .and_then(|s| s.kinds.first().copied())
            .unwrap_or(SourceKind::Unknown)
    }
}

impl<'a> Statement<'a> {
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
