//! What is right to say about a job, given what of it can be seen.

use std::collections::BTreeMap;
use std::fmt;

use crate::fault::{Fault, Plant};
use crate::job::{Act, Job, Layout};
use crate::places::Place;
use crate::sim::{End, Run};
use crate::{Emit, ExpectedDump, Options};

/// A cause id of the project's closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause(&'static str);

impl Cause {
    /// The id.
    pub fn id(self) -> &'static str {
        self.0
    }
}

/// What is really the matter.
#[derive(Clone, Debug)]
pub struct Truth {
    /// The planted fault.
    pub fault: Fault,
    /// Ranks of the job.
    pub n_ranks: u32,
    /// Cause id.
    pub cause: Cause,
    /// Causes that this evidence supports just as well.
    pub also_right: Vec<Cause>,
    /// The ranks that did it.
    pub culprits: Vec<u32>,
    /// Other sets of ranks that would be an honest answer.
    pub culprits_also: Vec<Vec<u32>>,
    /// If not empty: any set within these ranks that holds all `culprits` is right too (a cycle has no beginning).
    pub culprits_within: Vec<u32>,
    /// If not empty: any of these ranks is right too (all of them vanished alike).
    pub culprits_any: Vec<u32>,
    /// Functions of the program in which the culprit stands or went wrong; empty where the evidence does not tell.
    pub functions: Vec<String>,
    /// One line on what was planted, for people.
    pub story: String,
}

impl Truth {
    /// Whether `cause` is right.
    pub fn accepts_cause(&self, cause: &str) -> bool {
        self.cause.id() == cause || self.also_right.iter().any(|c| c.id() == cause)
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

    fn also(&mut self, ids: &[&'static str]) {
        self.also_right.extend(ids.iter().map(|id| Cause(id)));
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} ranks: {} {:?}; {}",
            self.fault,
            self.n_ranks,
            self.cause.id(),
            self.culprits,
            self.story
        )
    }
}

/// What the evidence can show at all.
struct Sight {
    /// All calls of a rank in order.
    calls: bool,
    /// Where in the code they were made.
    places: bool,
    /// States of processes.
    processes: bool,
    /// Where hosts stand.
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

/// Where one call per rank is all that can be seen, the ways in which calls can differ look alike.
const DIFFERENCES: [&str; 6] = [
    "op-mismatch",
    "shape-mismatch",
    "dtype-mismatch",
    "skipped-collective",
    "extra-collective",
    "collective-order-mismatch",
];

/// A rank that falls silent for a reason that cannot be seen.
const SILENT: [&str; 3] = ["stuck-outside-collective", "peer-process-died", "undecided"];

pub(crate) fn truth(job: &Job, plant: &Plant, run: &Run, options: &Options) -> Truth {
    let emit = options.emit;
    let sight = Sight::new(emit);
    let mut truth = Truth {
        fault: plant.fault,
        n_ranks: job.n,
        cause: Cause("none"),
        also_right: Vec::new(),
        culprits: plant.culprits.clone(),
        culprits_also: Vec::new(),
        culprits_within: Vec::new(),
        culprits_any: Vec::new(),
        functions: Vec::new(),
        story: plant.story.clone(),
    };
    truth.culprits.sort_unstable();
    truth.cause = Cause(cause_id(plant.fault));
    match plant.fault {
        Fault::None => {}
        // Whether it was well until the scheduler stopped it cannot be proved.
        Fault::NoneStopped => truth.also(&["undecided"]),
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
                truth.also(&["undecided"]);
            }
        }
        Fault::MissingSend | Fault::MissingRecv => {
            // The pair: whose list lacks the call can be told only by comparing with other pairs or steps.
            if let Some(peer) = peer_of_transfer(job, plant) {
                let mut both = vec![plant.rank, peer];
                both.sort_unstable();
                truth.culprits_also.push(both);
            }
            if !sight.calls {
                truth.also(&["undecided"]);
            }
        }
        Fault::ExitedEarly => {
            truth.also(&["uneven-inputs", "peer-process-died"]);
            if !sight.processes {
                truth.also(&["stuck-outside-collective", "process-stopped", "undecided"]);
            }
        }
        Fault::Killed | Fault::Crashed | Fault::Exception => died(&mut truth, job, plant, emit, &sight),
        Fault::Stopped => {
            if !sight.processes && !sight.stacks {
                truth.also(&SILENT);
                truth.also(&["rank-exited-early"]);
            }
        }
        Fault::StuckOutside | Fault::Uninterruptible | Fault::SlowRankStall => {
            if plant.fault == Fault::SlowRankStall {
                // One sample does not tell busy from stuck.
                truth.also(&["stuck-outside-collective"]);
            }
            if !sight.processes && !sight.stacks {
                truth.also(&SILENT);
                truth.also(&["slow-rank-stall"]);
            }
        }
        Fault::MissingRank => {
            if plant.rank == 0 {
                // Rank 0 hosts the store: nothing answers there, which a filter or a wrong address would explain too.
                truth.also(&["firewall-or-port", "undecided"]);
            }
            if !sight.ends {
                truth.also(&["none", "undecided"]);
            }
        }
        Fault::GpuStuck => {
            if !emit.gpus && !emit.rings {
                truth.also(&["undecided"]);
            }
            if !emit.flight && !emit.rings && !sight.ends {
                // Logs of calls that all agree, and then end.
                truth.also(&["none"]);
            }
        }
        Fault::Straggler => {
            if !emit.flight && !emit.rings {
                truth.also(&["none", "undecided"]);
            }
            if options.shuffle_names && matches!(job.layout, Layout::Ddp | Layout::Fsdp) {
                // A healthy dump of a rank that is in the same groups as all others does not say whose it is.
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
        truth.also(&["peer-process-died"]);
    }
    if !sight.ends {
        truth.also(&SILENT);
        if !emit.nccl {
            // The launcher ended the whole node: no rank of it left a dump.
            let node = job.node_of(plant.rank);
            truth.culprits_any = (node.first..node.first + node.n_ranks).collect();
        }
    }
}

/// Functions of the user's own code that may be named: of the planted calls, and where the culprit stands.
fn functions(truth: &mut Truth, job: &Job, plant: &Plant, run: &Run) {
    let stands = match run.ranks[plant.rank as usize].end {
        End::Waiting(place) | End::Standing(_, place) | End::Failed(_, place) => Some(place),
        End::Finished | End::Exited => None,
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

/// Takes in which dumps were really written.
pub(crate) fn allow_for_missing_dumps(truth: &mut Truth, dumps: &[ExpectedDump]) {
    if truth.fault == Fault::Straggler && !truth.culprits.iter().all(|r| dumps.iter().any(|d| d.rank == *r)) {
        // Everybody else waits; for whom, their clocks alone do not tell.
        truth.also(&["none", "undecided"]);
    }
}

fn cause_id(fault: Fault) -> &'static str {
    match fault {
        Fault::NoneStopped => "none",
        Fault::RootMismatch => "op-mismatch",
        Fault::MissingSend | Fault::MissingRecv => "unmatched-p2p",
        other => other.name(),
    }
}

fn logic(truth: &mut Truth, plant: &Plant, run: &Run, emit: Emit, sight: &Sight) {
    match plant.fault {
        Fault::SkippedCollective => {
            if !shift_shows(plant, run) {
                // Without a later call of its own in the group, the rank that waits elsewhere might as well have
                // turned round two calls of two groups.
                truth.also(&["deadlock-cycle", "op-mismatch", "extra-collective"]);
            }
            if !sight.calls {
                truth.also(&["undecided", "deadlock-cycle"]);
            }
        }
        Fault::ExtraCollective if !shift_shows(plant, run) => {
            truth.also(&["op-mismatch"]);
            if !sight.places {
                truth.also(&["shape-mismatch", "dtype-mismatch"]);
            }
        }
        Fault::OpMismatch | Fault::RootMismatch => {
            if !calls_after(plant, run) {
                // Nothing follows that would show whether the calls fall into step again.
                truth.also(&["extra-collective", "skipped-collective"]);
            }
            if plant.fault == Fault::RootMismatch && !(emit.rings || emit.nccl && emit.calls) {
                // Dumps and watchdog lines do not hold the root.
                truth.also(&["undecided", "gpu-kernel-stuck"]);
            }
        }
        Fault::ShapeMismatch | Fault::OrderMismatch if !calls_after(plant, run) => {
            truth.also(&["op-mismatch"]);
        }
        Fault::DtypeMismatch if !sight.calls => truth.also(&["undecided", "gpu-kernel-stuck"]),
        Fault::UnevenInputs => {
            // It did leave out a whole step.
            truth.also(&["skipped-collective"]);
            if !sight.places {
                truth.also(&["extra-collective", "op-mismatch"]);
            }
        }
        _ => {}
    }
    if !sight.calls {
        truth.also(&DIFFERENCES);
    }
}

/// Whether the rank called something on the same group after the changed position.
fn calls_after(plant: &Plant, run: &Run) -> bool {
    let Some((group, seq)) = plant.at else { return false };
    run.ranks[plant.rank as usize].made.iter().any(|m| m.group == group && m.coll_seq > seq)
}

/// Whether the rank's calls from the changed position on can be seen to be its peers' calls, shifted.
fn shift_shows(plant: &Plant, run: &Run) -> bool {
    let Some((group, seq)) = plant.at else { return false };
    let of = |rank: usize| -> BTreeMap<u32, (u16, Place)> {
        let made = run.ranks[rank].made.iter().filter(|m| m.group == group && m.peer.is_none());
        made.map(|m| (m.coll_seq, (m.call, m.place))).collect()
    };
    let mine = of(plant.rank as usize);
    let others = (0..run.ranks.len()).filter(|r| *r != plant.rank as usize).map(of);
    let Some(longest) = others.max_by_key(BTreeMap::len) else { return false };
    let later = match plant.fault {
        Fault::SkippedCollective => 1,
        // The call of its own, then one that the peers have made at the position before.
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

/// The other end of the transfer that was left out.
fn peer_of_transfer(job: &Job, plant: &Plant) -> Option<u32> {
    let before = &job.programs[plant.rank as usize];
    let after = plant.changed.get(&(plant.rank as usize))?;
    let at = before.iter().zip(after).position(|(a, b)| a != b).unwrap_or(after.len());
    match before.get(at)? {
        Act::Call { group, peer: Some(peer), .. } => job.group(*group).ranks.get(usize::from(*peer)).copied(),
        _ => None,
    }
}
