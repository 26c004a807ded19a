//! Simulated training jobs with one planted fault, written as evidence in the real formats. For tests only.
//!
//! A seed determines the whole job: how many ranks on which nodes, which process groups, what each rank calls and
//! from where, which fault strikes which rank, and every byte of the evidence. The simulation obeys the blocking
//! rules of NCCL and torch (see `sim`), so the ranks stop where those of a real job would. Nothing here knows how a
//! diagnosis is made.

pub mod accuracy;
mod fault;
mod job;
mod places;
mod plant;
mod planting;
mod prng;
mod program;
mod ring_cases;
mod rings;
mod sim;
mod truth;
mod write;

pub use crate::fault::Fault;
pub use crate::ring_cases::{RingCase, ring_cases};
pub use crate::rings::{RingEnd, RingJob};
pub use crate::truth::Truth;
pub use crate::write::expected::{ExpectedDump, ExpectedOp};

/// The job to simulate and the evidence to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fault to plant; None lets the seed choose.
    pub fault: Option<Fault>,
    /// Smallest number of ranks.
    pub min_ranks: u32,
    /// Largest number of ranks.
    pub max_ranks: u32,
    /// Kinds of evidence to write.
    pub emit: Emit,
    /// Percentage of Flight Recorder dumps left out (drawn for each rank separately).
    pub drop_dumps_pct: u32,
    /// Largest difference between the nodes' clocks, milliseconds.
    pub clock_skew_ms: u32,
    /// Whether files get meaningless names.
    pub shuffle_names: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fault: None,
            min_ranks: 2,
            max_ranks: 1024,
            emit: Emit::ALL,
            drop_dumps_pct: 0,
            clock_skew_ms: 0,
            shuffle_names: false,
        }
    }
}

/// Kinds of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emit {
    /// Flight Recorder dumps.
    pub flight: bool,
    /// Rings of NCCL's plugin.
    pub rings: bool,
    /// NCCL logs.
    pub nccl: bool,
    /// COLL lines within NCCL logs.
    pub calls: bool,
    /// The launchers' stderr.
    pub stderr: bool,
    /// NCCL RAS, text and JSON.
    pub ras: bool,
    /// py-spy stacks.
    pub stacks: bool,
    /// Process lists.
    pub processes: bool,
    /// nvidia-smi tables.
    pub gpus: bool,
}

impl Emit {
    /// All kinds.
    pub const ALL: Self = Self {
        flight: true,
        rings: true,
        nccl: true,
        calls: true,
        stderr: true,
        ras: true,
        stacks: true,
        processes: true,
        gpus: true,
    };
    /// No kind, to switch single kinds on.
    pub const NONE: Self = Self {
        flight: false,
        rings: false,
        nccl: false,
        calls: false,
        stderr: false,
        ras: false,
        stacks: false,
        processes: false,
        gpus: false,
    };
}

/// The evidence of one job.
#[derive(Clone, Debug, Default)]
pub struct JobEvidence {
    /// File name and content.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Simulates the job of `seed` and writes its evidence.
pub fn job(seed: u64, options: &Options) -> (Truth, JobEvidence) {
    let (truth, evidence, _) = job_with_dumps(seed, options);
    (truth, evidence)
}

/// Like [`job`], and also returns what a reader must find in each Flight Recorder dump that was written.
pub fn job_with_dumps(seed: u64, options: &Options) -> (Truth, JobEvidence, Vec<ExpectedDump>) {
    let mut prng = prng::Prng::new(seed);
    let fault = options.fault.unwrap_or_else(|| prng.pick(Fault::ALL));
    let mut job = program::job(&mut prng, fault, options);
    let plant = planting::plant(&mut job, &mut prng, fault);
    let run = sim::run(&job, &plant);
    let mut truth = truth::truth(&job, &plant, &run, options);
    let (evidence, dumps) = write::write(&job, &plant, &run, &prng, options);
    if options.emit.flight {
        truth::allow_for_missing_dumps(&mut truth, &dumps);
    }
    (truth, evidence, dumps)
}
