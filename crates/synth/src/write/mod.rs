//! Writes a run as evidence.

mod clock;
pub(crate) mod expected;
mod flight;
mod nccl;
mod ras;
mod rings;
mod snapshot;
mod stderr;

use crate::fault::Fault;
use crate::job::{Halt, Job};
use crate::plant::Plant;
use crate::prng::Prng;
use crate::sim::{HostEnd, Run};
use crate::{JobEvidence, Options};
use expected::ExpectedDump;

/// How the job ended, as observers saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// All ranks finished.
    Finished,
    /// The launcher received a request to stop while the job was healthy.
    StoppedFromOutside,
    /// The watchdogs ended it.
    TimedOut,
    /// A process failed and the launcher ended its peers at once.
    Failed,
    /// A process failed; other nodes noticed it only through their watchdogs.
    FailedElsewhere,
    /// It never started.
    NeverBegan,
}

/// One call that its rank's watchdog reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout {
    pub(crate) group: u16,
    pub(crate) made: usize,
    pub(crate) at_ns: i64,
}

/// When each piece of evidence was written.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) outcome: JobEnd,
    /// Per rank, earliest first.
    pub(crate) timeouts: Vec<Vec<Timeout>>,
    /// Time and rank of the earliest one.
    pub(crate) first: Option<(i64, u32)>,
    /// When each rank wrote its dump; None if it did not.
    pub(crate) dumped: Vec<Option<i64>>,
    /// When an operator looked (ps, py-spy, RAS, nvidia-smi); None if nobody did.
    pub(crate) looked_ns: Option<i64>,
    pub(crate) end_ns: i64,
}

impl Timeline {
    fn new(job: &Job, plant: &Plant, run: &Run, prng: &mut Prng) -> Self {
        let n = job.n as usize;
        let outcome = match plant.fault {
            Fault::None | Fault::Straggler => JobEnd::Finished,
            Fault::NoneStopped => JobEnd::StoppedFromOutside,
            Fault::MissingRank => JobEnd::NeverBegan,
            Fault::Killed | Fault::Crashed | Fault::Exception => {
                if job.nodes.len() > 1 && prng.chance(40) {
                    JobEnd::FailedElsewhere
                } else {
                    JobEnd::Failed
                }
            }
            _ => JobEnd::TimedOut,
        };
        let mut line = Self {
            outcome,
            timeouts: vec![Vec::new(); n],
            first: None,
            dumped: vec![None; n],
            looked_ns: None,
            end_ns: run.last_ns(),
        };
        let failed_node = job.info(plant.rank).node;
        match outcome {
            JobEnd::TimedOut | JobEnd::FailedElsewhere => {
                for rank in 0..job.n {
                    let there = outcome == JobEnd::TimedOut || job.info(rank).node != failed_node;
                    if there {
                        line.timeouts[rank as usize] = timeouts(job, run, rank, prng);
                    }
                }
                line.first =
                    (0..job.n).filter_map(|r| line.timeouts[r as usize].first().map(|t| (t.at_ns, r))).min();
                let Some((first_ns, _)) = line.first else { return line };
                for rank in 0..n {
                    let there = outcome == JobEnd::TimedOut || job.ranks[rank].node != failed_node;
                    let can = match run.ranks[rank].end {
                        HostEnd::Standing(Halt::Stopped, _) | HostEnd::Exited | HostEnd::Failed(..) => false,
                        HostEnd::Standing(Halt::Uninterruptible, _) => prng.chance(70),
                        _ => true,
                    };
                    if there && can {
                        line.dumped[rank] = Some(first_ns + 3_000_000_000 + prng.below(2_000_000_000) as i64);
                    }
                }
                if outcome == JobEnd::TimedOut {
                    line.looked_ns = Some(first_ns - 2_000_000_000);
                }
                line.end_ns = first_ns + 16_000_000_000;
            }
            JobEnd::Finished => {
                // Dumps requested through the pipe after the last step.
                if plant.fault == Fault::Straggler || prng.chance(70) {
                    line.dumped = vec![Some(line.end_ns + 200_000_000); n];
                }
                // An operator looked at a healthy job.
                if plant.fault == Fault::None && prng.chance(50) {
                    line.looked_ns = Some(line.end_ns);
                }
                line.end_ns += 1_000_000_000;
            }
            JobEnd::StoppedFromOutside | JobEnd::Failed => line.end_ns += 2_000_000_000,
            JobEnd::NeverBegan => {
                line.looked_ns = Some(i64::from(job.timeout_ms) * 1_000_000 - 2_000_000_000);
                line.end_ns = i64::from(job.timeout_ms) * 1_000_000 + 3_000_000_000;
            }
        }
        line
    }
}

/// One for each group with an unfinished call of this rank: the oldest call.
fn timeouts(job: &Job, run: &Run, rank: u32, prng: &mut Prng) -> Vec<Timeout> {
    let stopped = matches!(run.ranks[rank as usize].end, HostEnd::Standing(Halt::Stopped, _));
    let mut found: Vec<Timeout> = Vec::new();
    for (at, made) in run.ranks[rank as usize].made.iter().enumerate() {
        if made.done_ns.is_none() && !stopped && !found.iter().any(|t| t.group == made.group) {
            let late = 2_000_000 + prng.below(98_000_000) as i64;
            let at_ns = made.at_ns + i64::from(job.timeout_ms) * 1_000_000 + late;
            found.push(Timeout { group: made.group, made: at, at_ns });
        }
    }
    found.sort_by_key(|t| t.at_ns);
    found
}

/// Everything a writer needs.
pub(crate) struct WriteContext<'a> {
    pub(crate) job: &'a Job,
    pub(crate) plant: &'a Plant,
    pub(crate) run: &'a Run,
    pub(crate) line: &'a Timeline,
    pub(crate) prng: &'a Prng,
}

impl WriteContext<'_> {
    /// Wall clock of `rank`'s node at a time of the run.
    pub(crate) fn wall(&self, rank: u32, ns: i64) -> i64 {
        self.job.start_ns + ns + self.job.node_of(rank).skew_ns
    }

    /// Whether the process exists when the operator looks.
    pub(crate) fn alive(&self, rank: u32) -> bool {
        match self.line.outcome {
            JobEnd::NeverBegan => rank != self.plant.rank,
            _ => !matches!(self.run.ranks[rank as usize].end, HostEnd::Exited | HostEnd::Failed(..)),
        }
    }
}

/// Writes every kind of evidence that `options` asks for.
pub(crate) fn write(
    job: &Job,
    plant: &Plant,
    run: &Run,
    prng: &Prng,
    options: &Options,
) -> (JobEvidence, Vec<ExpectedDump>) {
    let mut own = prng.fork(1);
    let line = Timeline::new(job, plant, run, &mut own);
    let scene = WriteContext { job, plant, run, line: &line, prng };
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut dumps = Vec::new();
    let emit = options.emit;
    if emit.flight {
        let mut drop = prng.fork(2);
        for rank in 0..job.n {
            let dropped = drop.below(100) < u64::from(options.drop_dumps_pct);
            if line.dumped[rank as usize].is_some() && !dropped {
                let (bytes, expected) = flight::dump(&scene, rank);
                let name = format!("fr_rank{rank}");
                dumps.push(ExpectedDump { file: name.clone(), rank, ops: expected });
                files.push((name, bytes));
            }
        }
    }
    if emit.nccl {
        nccl::write(&scene, emit.calls, &mut files);
    }
    if emit.rings {
        rings::write(&scene, &mut files);
    }
    if emit.stderr {
        stderr::write(&scene, &mut files);
    }
    if let Some(looked) = line.looked_ns {
        if emit.ras && line.outcome != JobEnd::NeverBegan {
            ras::write(&scene, looked, &mut files);
        }
        if emit.stacks {
            snapshot::stacks(&scene, &mut files);
        }
        if emit.processes {
            snapshot::processes(&scene, looked, &mut files);
        }
        if emit.gpus {
            snapshot::gpus(&scene, looked, &mut files);
        }
    }
    if options.shuffle_names {
        let mut shuffle = prng.fork(3);
        for at in (1..files.len()).rev() {
            files.swap(at, shuffle.below(at as u64 + 1) as usize);
        }
        for (number, (name, _)) in files.iter_mut().enumerate() {
            let new = format!("part-{number:04}");
            for dump in &mut dumps {
                if dump.file == *name {
                    dump.file.clone_from(&new);
                }
            }
            *name = new;
        }
    }
    (JobEvidence { files }, dumps)
}
