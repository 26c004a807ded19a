//! A case: everything that was read, before anything is concluded.

use crate::{
    BenchRun, Cite, CopyTest, Environment, FlightDump, GpuService, GpuTable, GpuTests, KernelEvent, Limit,
    NcclLog, NetFact, Note, ProcessStacks, ProcessTable, Progress, RasReport, RingRecord, Said, Source,
    SystemFact, TorchEvent, WallTime, WatchEvent, Who,
};

/// One thing seen, with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Where it stands.
    pub cite: Cite,
    /// Whom it is about.
    pub who: Who,
    /// When, if the line or its launcher's prefix says so.
    pub at: Option<WallTime>,
    /// What.
    pub fact: Fact,
    /// The line or lines themselves, bounded (see `evidence`); empty for binary formats.
    pub text: Box<str>,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A Flight Recorder dump.
    Flight(Box<FlightDump>),
    /// The NCCL lines of one source.
    Nccl(Box<NcclLog>),
    /// A RAS report.
    Ras(Box<RasReport>),
    /// The ring of one process.
    Ring(Box<RingRecord>),
    /// Stacks of one process.
    Stacks(Box<ProcessStacks>),
    /// A process list.
    Processes(Box<ProcessTable>),
    /// What nvidia-smi says of GPUs, in any of its forms.
    Gpus(Box<GpuTable>),
    /// What dcgmi's tests found.
    GpuTests(Box<GpuTests>),
    /// A service of the GPU driver: its state, or its log.
    GpuService(Box<GpuService>),
    /// Limits.
    Limits(Vec<Limit>),
    /// Environment variables.
    Environment(Box<Environment>),
    /// A statement of torch, Python or a launcher.
    Torch(TorchEvent),
    /// A statement of the kernel.
    Kernel(Box<KernelEvent>),
    /// A run of nccl-tests.
    Bench(Box<BenchRun>),
    /// A copy between GPUs, compared afterwards.
    Copy(Box<CopyTest>),
    /// The network and its cards.
    Net(Box<NetFact>),
    /// The node and its scheduler.
    System(Box<SystemFact>),
    /// What a watcher said of the job.
    Watch(WatchEvent),
    /// A line that speaks of failure, or is known to the message table.
    Said(Box<Said>),
    /// Signs that the job goes on, or ended well.
    Progress(Progress),
}

/// All evidence of one diagnosis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// Sources in a canonical order: the same evidence gives the same order, whatever the file system's.
    pub sources: Vec<Source>,
    /// Observations, grouped by source.
    pub observations: Vec<Observation>,
    /// What could not be read.
    pub notes: Vec<Note>,
}
