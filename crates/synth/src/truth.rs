//! The truth about a job, given which part of it the evidence shows.

use std::collections::BTreeMap;
use std::fmt;

use ringleader_model::Cause;

use crate::fault::Fault;
use crate::job::{Act, Job, Layout};
use crate::places::PlaceId;
use crate::plant::Plant;
use crate::sim::{HostEnd, Run};
use crate::{Emit, ExpectedDump, Options};

/// The truth about one job.
#[derive(Clone, Debug)]
pub struct Truth {
    /// The planted fault.
    pub fault: Fault,
    /// Ranks of the job.
    pub n_ranks: u32,
    /// The right cause.
    pub cause: Cause,
    /// Causes that this evidence supports just as well.
    pub also_right: Vec<Cause>,
    /// Ranks at fault.
    pub culprits: Vec<u32>,
    /// Other acceptable sets of ranks.
    pub culprits_also: Vec<Vec<u32>>,
    /// If not empty: any set within these ranks that contains all `culprits` is right too (a cycle has no beginning).
    pub culprits_within: Vec<u32>,
    /// If not empty: any of these ranks is right too (all of them disappeared in the same way).
    pub culprits_any: Vec<u32>,
    /// Functions of the program where the culprit is or went wrong; empty if the evidence does not show them.
    pub functions: Vec<String>,
    /// One line about the planted fault, for people.
    pub story: String,
}

impl Truth {
    /// Whether `cause` is right.
    pub fn accepts_cause(&self, cause: Cause) -> bool {
        self.cause == cause || self.also_right.contains(&cause)
    }

    /// Whether naming `ranks` (sorted) is right.
    pub fn accepts_culprits(&self, ranks: &[u32]) -> bool {
        let all_in = |set: &[u32]| !ranks.is_empty() && ranks.iter().all(|r| set.contains(r));
        self.culprits.is_empty()
            || self.culprits == ranks
            || self.culprits_also.iter().any(|c| c == ranks)
            || (self.culprits.iter().all(|r| ranks.contains(r)) && all_in(&self.culprits_within))
            || all_in(&self.culprits_any)
    }

    fn also(&mut self, causes: &[Cause]) {
        self.also_right.extend(causes);
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} ranks: {} {:?}; {}",
            self.fault, self.n_ranks, self.cause, self.culprits, self.story
        )
    }
}

/// Facts that the evidence can show.
struct Sight {
    /// All calls of a rank, in order.
    calls: bool,
    /// Places of the calls in the code.
    places: bool,
    /// States of processes.
    processes: bool,
    /// Stacks of the hosts.
    stacks: bool,
    /// Exit codes, tracebacks, crash reports.
    ends: bool,
}

impl Sight {
    fn new(emit: Emit) -> Self {
        Self {
            calls: emit.flight || emit.rings || (emit.nccl && emit.calls),
            places: emit.flight,
            processes: emit.processes,
            stacks: emit.stacks,
            ends: emit.stderr,
        }
    }
}

/// If only one call per rank is visible, these differences between calls look alike.
const DIFFERENCES: [Cause; 6] = [
    Cause::OpMismatch,
    Cause::ShapeMismatch,
    Cause::DtypeMismatch,
    Cause::SkippedCollective,
    Cause::ExtraCollective,
    Cause::CollectiveOrderMismatch,
];

/// Causes of a rank that falls silent for an invisible reason.
const SILENT: [Cause; 3] = [Cause::StuckOutsideCollective, Cause::PeerProcessDied, Cause::Undecided];

pub(crate) fn truth(job: &Job, plant: &Plant, run: &Run, options: &Options) -> Truth {
    let emit = options.emit;
    let sight = Sight::new(emit);
    let mut truth = Truth {
        fault: plant.fault,
        n_ranks: job.n,
        cause: Cause::None,
        also_right: Vec::new(),
        culprits: plant.culprits.clone(),
        culprits_also: Vec::new(),
        culprits_within: Vec::new(),
        culprits_any: Vec::new(),
        functions: Vec::new(),
        story: plant.story.clone(),
    };
    truth.culprits.sort_unstable();
    truth.cause = cause_of(plant.fault);
    match plant.fault {
        Fault::None => {}
        // The launcher says that it was stopped; it cannot be proved that the job was healthy until then.
        Fault::NoneStopped => truth.also(&[Cause::Undecided, Cause::StoppedFromOutside]),
        Fault::SkippedCollective
        | Fault::ExtraCollective
        | Fault::OpMismatch
        | Fault::RootMismatch
        | Fault::ShapeMismatch
        | Fault::DtypeMismatch
        | Fault::OrderMismatch
        | Fault::UnevenInputs => {
            logic(&mut truth, plant, run, emit, &sight);
        }
        Fault::DeadlockCycle => {
            truth.culprits_within = (0..job.n).collect();
            if !sight.calls {
                // torch's messages name groups, not their members.
                truth.also(&[Cause::Undecided]);
            }
        }
        Fault::MissingSend | Fault::MissingRecv => {
            // Both ranks: only a comparison with other pairs or steps shows whose list lacks the call.
            if let Some(peer) = peer_of_transfer(job, plant) {
                let mut both = vec![plant.rank, peer];
                both.sort_unstable();
                truth.culprits_also.push(both);
            }
            if !sight.calls {
                truth.also(&[Cause::Undecided]);
            }
        }
        Fault::ExitedEarly => {
            truth.also(&[Cause::UnevenInputs, Cause::PeerProcessDied]);
            if !sight.processes {
                truth.also(&[Cause::StuckOutsideCollective, Cause::ProcessStopped, Cause::Undecided]);
            }
        }
        Fault::Killed | Fault::Crashed | Fault::Exception => died(&mut truth, job, plant, emit, &sight),
        Fault::Stopped => {
            if !sight.processes && !sight.stacks {
                truth.also(&SILENT);
                truth.also(&[Cause::RankExitedEarly]);
            }
        }
        Fault::StuckOutside | Fault::Uninterruptible | Fault::SlowRankStall => {
            if plant.fault == Fault::SlowRankStall {
                // One sample cannot distinguish busy from stuck.
                truth.also(&[Cause::StuckOutsideCollective]);
            }
            if !sight.processes && !sight.stacks {
                truth.also(&SILENT);
                truth.also(&[Cause::SlowRankStall]);
            }
        }
        Fault::MissingRank => {
            if plant.rank == 0 {
                // Rank 0 hosts the store: nothing answers there, which a firewall or a wrong address would also
                // explain.
                truth.also(&[Cause::FirewallOrPort, Cause::Undecided]);
            }
            if !sight.ends {
                truth.also(&[Cause::None, Cause::Undecided]);
            }
        }
        Fault::GpuStuck => {
            if !emit.gpus && !emit.rings {
                truth.also(&[Cause::Undecided]);
            }
            if !emit.flight && !emit.rings && !sight.ends {
                // Logs of calls that all agree until they end.
                truth.also(&[Cause::None]);
            }
        }
        Fault::Straggler => {
            if !emit.flight && !emit.rings {
                truth.also(&[Cause::None, Cause::Undecided]);
            }
            if options.shuffle_names && matches!(job.layout, Layout::Ddp | Layout::Fsdp) {
                // A healthy dump of a rank whose groups are those of all others does not show its rank.
                truth.culprits_also.push(Vec::new());
            }
        }
    }
    functions(&mut truth, job, plant, run);
    truth
}

/// A process that ended at once.
fn died(truth: &mut Truth, job: &Job, plant: &Plant, emit: Emit, sight: &Sight) {
    if plant.fault != Fault::Exception {
        truth.also(&[Cause::PeerProcessDied]);
    }
    if !sight.ends {
        truth.also(&SILENT);
        if !emit.nccl {
            // The launcher ended the whole node: none of its ranks left a dump.
            let node = job.node_of(plant.rank);
            truth.culprits_any = (node.first..node.first + node.n_ranks).collect();
        }
    }
}

/// Functions of the user's code that may be named: those of the planted calls, and where the culprit is.
fn functions(truth: &mut Truth, job: &Job, plant: &Plant, run: &Run) {
    let stands = match run.ranks[plant.rank as usize].end {
        HostEnd::Waiting(place) | HostEnd::Standing(_, place) | HostEnd::Failed(_, place) => Some(place),
        HostEnd::Finished | HostEnd::Exited => None,
    };
    if !truth.culprits.is_empty()
        && !matches!(
            plant.fault,
            Fault::Straggler | Fault::GpuStuck | Fault::Killed | Fault::ExitedEarly | Fault::Stopped
        )
    {
        for place in plant.place.into_iter().chain(plant.other_place).chain(stands) {
            if let Some(name) = job.places.user_function(place) {
                truth.functions.push(name.to_owned());
            }
        }
    }
}

/// Adjusts the truth to the dumps that were really written.
pub(crate) fn allow_for_missing_dumps(truth: &mut Truth, dumps: &[ExpectedDump]) {
    if truth.fault == Fault::Straggler && !truth.culprits.iter().all(|r| dumps.iter().any(|d| d.rank == *r)) {
        // All others wait, but their clocks alone do not show for which rank.
        truth.also(&[Cause::None, Cause::Undecided]);
    }
}

fn cause_of(fault: Fault) -> Cause {
    match fault {
        Fault::None | Fault::NoneStopped => Cause::None,
        Fault::SkippedCollective => Cause::SkippedCollective,
        Fault::ExtraCollective => Cause::ExtraCollective,
        Fault::OpMismatch | Fault::RootMismatch => Cause::OpMismatch,
        Fault::ShapeMismatch => Cause::ShapeMismatch,
        Fault::DtypeMismatch => Cause::DtypeMismatch,
        Fault::OrderMismatch => Cause::CollectiveOrderMismatch,
        Fault::DeadlockCycle => Cause::DeadlockCycle,
        Fault::MissingSend | Fault::MissingRecv => Cause::UnmatchedP2p,
        Fault::UnevenInputs => Cause::UnevenInputs,
        Fault::ExitedEarly => Cause::RankExitedEarly,
        Fault::Killed => Cause::ProcessKilled,
        Fault::Crashed => Cause::ProcessCrashed,
        Fault::Exception => Cause::ApplicationException,
        Fault::Stopped => Cause::ProcessStopped,
        Fault::StuckOutside => Cause::StuckOutsideCollective,
        Fault::Uninterruptible => Cause::ProcessUninterruptible,
        Fault::MissingRank => Cause::MissingRank,
        Fault::GpuStuck => Cause::GpuKernelStuck,
        Fault::SlowRankStall => Cause::SlowRankStall,
        Fault::Straggler => Cause::Straggler,
    }
}

fn logic(truth: &mut Truth, plant: &Plant, run: &Run, emit: Emit, sight: &Sight) {
    match plant.fault {
        Fault::SkippedCollective => {
            if !shift_shows(plant, run) {
                // Without a later call of its own in the group, the rank that waits elsewhere might as well have
                // swapped two calls of two groups.
                truth.also(&[Cause::DeadlockCycle, Cause::OpMismatch, Cause::ExtraCollective]);
            }
            if !sight.calls {
                truth.also(&[Cause::Undecided, Cause::DeadlockCycle]);
            }
        }
        Fault::ExtraCollective if !shift_shows(plant, run) => {
            truth.also(&[Cause::OpMismatch]);
            if !sight.places {
                truth.also(&[Cause::ShapeMismatch, Cause::DtypeMismatch]);
            }
        }
        Fault::OpMismatch | Fault::RootMismatch => {
            if !calls_after(plant, run) {
                // Nothing follows that would show whether the calls line up again.
                truth.also(&[Cause::ExtraCollective, Cause::SkippedCollective]);
            }
            if plant.fault == Fault::RootMismatch && !(emit.rings || emit.nccl && emit.calls) {
                // Dumps and watchdog lines do not contain the root.
                truth.also(&[Cause::Undecided, Cause::GpuKernelStuck]);
            }
        }
        Fault::ShapeMismatch | Fault::OrderMismatch if !calls_after(plant, run) => {
            truth.also(&[Cause::OpMismatch]);
        }
        Fault::DtypeMismatch if !sight.calls => truth.also(&[Cause::Undecided, Cause::GpuKernelStuck]),
        Fault::UnevenInputs => {
            // It did skip a whole step.
            truth.also(&[Cause::SkippedCollective]);
            if !sight.places {
                truth.also(&[Cause::ExtraCollective, Cause::OpMismatch]);
            }
        }
        _ => {}
    }
    if !sight.calls {
        truth.also(&DIFFERENCES);
    }
}

/// Whether the rank made another call on the group after the changed position.
fn calls_after(plant: &Plant, run: &Run) -> bool {
    let Some((group, seq)) = plant.at else { return false };
    run.ranks[plant.rank as usize].made.iter().any(|m| m.group == group && m.coll_seq > seq)
}

/// Whether the rank's calls from the changed position on are visibly its peers' calls, shifted.
fn shift_shows(plant: &Plant, run: &Run) -> bool {
    let Some((group, seq)) = plant.at else { return false };
    let of = |rank: usize| -> BTreeMap<u32, (u16, PlaceId)> {
        let made = run.ranks[rank].made.iter().filter(|m| m.group == group && m.peer.is_none());
        made.map(|m| (m.coll_seq, (m.call, m.place))).collect()
    };
    let mine = of(plant.rank as usize);
    let others = (0..run.ranks.len()).filter(|r| *r != plant.rank as usize).map(of);
    let Some(longest) = others.max_by_key(BTreeMap::len) else { return false };
    let later = match plant.fault {
        Fault::SkippedCollective => 1,
        // Its own call, then one that the peers made at the previous position.
        _ => 0,
    };
    if plant.fault == Fault::SkippedCollective {
        mine.range(seq..)
            .any(|(at, call)| longest.get(at) != Some(call) && longest.get(&(at + later)) == Some(call))
    } else {
        mine.range(seq + 1..)
            .any(|(at, call)| longest.get(at) != Some(call) && longest.get(&(at - 1)) == Some(call))
    }
}

/// The other end of the skipped transfer.
fn peer_of_transfer(job: &Job, plant: &Plant) -> Option<u32> {
    let before = &job.programs[plant.rank as usize];
    let after = plant.changed.get(&(plant.rank as usize))?;
    let at = before.iter().zip(after).position(|(a, b)| a != b).unwrap_or(after.len());
    match before.get(at)? {
        Act::Call { group, peer: Some(peer), .. } => job.group(*group).ranks.get(usize::from(*peer)).copied(),
        _ => None,
    }
}
