//! A case: everything that was read, before any conclusion.

use crate::{
    Apart, BenchRun, Cite, CopyTest, Environment, FlightDump, GpuService, GpuTable, GpuTests, GuardEvent,
    HostAt, KernelEvent, Limit, NcclLog, NetFact, Note, Outlier, Pid, ProcessStacks, ProcessTable, Progress,
    RasReport, RingRecord, RunPace, Said, Sign, Source, StackSamples, StepTimes, SystemFact, Timeline,
    TorchEvent, WallTime, WatchEvent, Who, WordAt,
};

/// One fact with its citation.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Where it was read.
    pub cite: Cite,
    /// The process that it is about.
    pub who: Who,
    /// When it happened, if the line or its launcher's prefix has a timestamp.
    pub at: Option<WallTime>,
    /// The fact.
    pub fact: Fact,
    /// The line or lines themselves, bounded (see `evidence`); empty for binary formats.
    pub text: Box<str>,
}

/// The content of an observation, by kind of evidence.
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
    /// Output of nvidia-smi about GPUs, in any of its forms.
    Gpus(Box<GpuTable>),
    /// Results of dcgmi's tests.
    GpuTests(Box<GpuTests>),
    /// A service of the GPU driver: its state or its log.
    GpuService(Box<GpuService>),
    /// Stacks of a process, taken many times.
    Samples(Box<StackSamples>),
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
    /// An event of a watcher.
    Watch(WatchEvent),
    /// An event of the guard in the job.
    Guard(Box<GuardEvent>),
    /// A line that reports a failure, or that a row of the message table matches.
    Said(Box<Said>),
    /// Signs that the job makes progress, or ended successfully.
    Progress(Progress),
    /// The timeline of a process.
    Timeline(Box<Timeline>),
    /// A sign of the table of signs.
    Sign(Sign),
    /// Where the time of steps goes.
    StepTimes(StepTimes),
    /// How fast a run goes.
    Pace(RunPace),
    /// One of several that differs.
    Outlier(Box<Outlier>),
    /// Ranks that a text sets apart.
    Apart(Box<Apart>),
    /// Machines on which lines of a text were printed.
    Hosts(Box<[HostAt]>),
    /// Words of the table of likeness.
    Words(Box<[WordAt]>),
    /// The process whose output a member of a bundle is.
    Owner(Box<Owner>),
}

/// A member of a bundle that one process alone has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name of the member.
    pub name: Box<str>,
    /// The process.
    pub pid: Pid,
}

/// All evidence of one diagnosis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// Sources in a canonical order: the same evidence gives the same order, independent of the file system.
    pub sources: Vec<Source>,
    /// Observations, grouped by source.
    pub observations: Vec<Observation>,
    /// Notes on what could not be read.
    pub notes: Vec<Note>,
}
