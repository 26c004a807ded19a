//! Joins what was seen: who is who, what each rank called, who waits for whom, what came first.

pub mod claims;
pub mod roster;

use ringleader_model::{
    Case, Cite, Culprit, Evidence, Fact, GpuTable, Limit, NcclLog, NcclMessage, NcclProcess, Observation,
    ProcessStacks, ProcessTable, RasReport, SourceKind, TorchEvent, Who,
};

pub use claims::{Claim, Claims};
pub use roster::{Member, Roster};

/// Everything rules look at.
pub struct Scene<'a> {
    /// The case itself.
    pub case: &'a Case,
    /// Ranks, hosts, processes and GPUs, joined.
    pub roster: Roster,
    /// What the texts claim.
    pub claims: Claims<'a>,
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
        let claims = Claims::new(case);
        Self { case, roster, claims }
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
            Fact::Processes(table) => Some((o, &**table)),
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

    /// Whom `who` means, with everything the roster knows of it.
    pub fn culprit(&self, who: &Who) -> Culprit {
        self.roster.culprit(who)
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
