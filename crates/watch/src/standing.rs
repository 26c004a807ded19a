//! Where each rank is relative to the operation that its communicator waits at.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::digest::{OpDigest, ProcessState};
use crate::ledger::{Group, Ledger, Stage, Track, stage_of};

/// Where one rank is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Standing {
    /// It has not called it.
    NeverEntered {
        /// Calls of this communicator that it has made.
        calls: u64,
        /// What it waits in elsewhere: communicator, function, number.
        elsewhere: Option<(String, String, u64)>,
    },
    /// It called something else at this number: kind, size, type or root differ from what most called.
    Different {
        /// What it called.
        called: String,
        /// What most called.
        others: String,
    },
    /// It has called it, and its kernel has not started: something earlier is on this GPU.
    NotStarted {
        /// An earlier operation in flight on the same process that has started: communicator, function, number.
        behind: Option<(String, String, u64)>,
    },
    /// Its kernel runs and waits.
    Waiting {
        /// For this rank of the job.
        peer: Option<u32>,
        /// On this channel.
        channel: Option<u8>,
        /// `send-gpu`, `send-peer`, `send-net`, `recv-net`, `recv-flush`, `recv-gpu`, or empty.
        phase: String,
    },
    /// It has called it; whether its kernel has started cannot be seen.
    Entered,
    /// It has ended it.
    Finished,
    /// Nothing is in flight in this communicator.
    Idle,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Gone.
    Dead,
    /// Ended, not yet collected.
    Zombie,
    /// Hangs in the kernel (state D).
    Uninterruptible {
        /// The kernel's function.
        wchan: Option<String>,
    },
    /// Nothing is known.
    Unknown {
        /// Why nothing is known, in words.
        why: String,
    },
}

impl Default for Standing {
    fn default() -> Self {
        Self::Unknown { why: String::new() }
    }
}

impl Standing {
    /// Name of the state, as events and pages show it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NeverEntered { .. } => "never-entered",
            Self::Different { .. } => "different",
            Self::NotStarted { .. } => "not-started",
            Self::Waiting { .. } => "waiting",
            Self::Entered => "entered",
            Self::Finished => "finished",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Zombie => "zombie",
            Self::Uninterruptible { .. } => "uninterruptible",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// Where a rank is in a communicator. `deep`: also what else it is in, which takes a look at all that it has.
pub(crate) fn standing(ledger: &Ledger<'_>, group: &Group<'_>, track: &Track<'_>, deep: bool) -> Standing {
    let Some(member) = ledger.members.get(track.member) else { return Standing::default() };
    if member.is_silent {
        return Standing::Unknown { why: "its agent is silent".to_owned() };
    }
    match member.word.state {
        // The state of a process explains what it has not ended, and no more.
        _ if track.stage == Stage::Finished || !member.is_broken(ledger.now_ns) => {}
        ProcessState::Stopped => return Standing::Stopped,
        ProcessState::Dead => return Standing::Dead,
        ProcessState::Zombie => return Standing::Zombie,
        ProcessState::Uninterruptible => {
            return Standing::Uninterruptible { wchan: member.word.digest.wchan.clone() };
        }
        ProcessState::Alive | ProcessState::Unknown => {}
    }
    if group.front.is_none()
        && let Some(op) = track.pairs().next()
    {
        return of_op(ledger, group, op, stage_of(op), deep.then_some(track));
    }
    match track.stage {
        Stage::Unseen => Standing::Unknown { why: "its operations cannot be seen".to_owned() },
        Stage::Idle => Standing::Idle,
        Stage::Finished => Standing::Finished,
        Stage::Entered => Standing::Entered,
        Stage::Never => Standing::NeverEntered {
            calls: track.digest.collectives,
            elsewhere: if deep { elsewhere(ledger, group, track, false) } else { None },
        },
        Stage::Different => {
            let number = group.front.map_or(0, |f| f.number);
            Standing::Different {
                called: track.call(number).map(call).unwrap_or_default(),
                others: group.front.and_then(|f| f.op).map(call).unwrap_or_default(),
            }
        }
        Stage::NotStarted | Stage::Started => {
            let op = group.front.and_then(|f| track.call(f.number));
            op.map_or(Standing::Entered, |op| of_op(ledger, group, op, track.stage, deep.then_some(track)))
        }
    }
}

fn of_op(
    ledger: &Ledger<'_>,
    group: &Group<'_>,
    op: &OpDigest,
    stage: Stage,
    deep: Option<&Track<'_>>,
) -> Standing {
    match stage {
        Stage::NotStarted => {
            Standing::NotStarted { behind: deep.and_then(|track| elsewhere(ledger, group, track, true)) }
        }
        Stage::Started => {
            let wait = op.waits.first();
            let peer = wait.map(|w| w.peer).or(op.peer);
            Standing::Waiting {
                peer: peer.map(|p| job_rank(ledger, group, p)),
                channel: wait.map(|w| w.channel),
                phase: wait.map(|w| w.phase.clone()).unwrap_or_default(),
            }
        }
        _ => Standing::Entered,
    }
}

/// Rank in the job of a rank of a communicator.
pub(crate) fn job_rank(ledger: &Ledger<'_>, group: &Group<'_>, rank: u32) -> u32 {
    let at = group.tracks.binary_search_by_key(&rank, |c| c.rank);
    at.ok().and_then(|at| group.tracks.get(at)).map_or(rank, |c| ledger.rank_of(c))
}

/// A call in words.
pub(crate) fn call(op: &OpDigest) -> String {
    let datatype = op.datatype.strip_prefix("nccl").unwrap_or(&op.datatype);
    let mut text = format!("{} of {} {datatype}", op.function, op.count);
    if let Some(root) = op.root {
        _ = write!(text, ", root {root}");
    }
    if let Some(peer) = op.peer {
        _ = write!(text, ", peer {peer}");
    }
    text
}

/// The oldest operation that the same process is in elsewhere.
fn elsewhere(
    ledger: &Ledger<'_>,
    here: &Group<'_>,
    track: &Track<'_>,
    started: bool,
) -> Option<(String, String, u64)> {
    let member = ledger.members.get(track.member)?;
    let others = member.tracks.iter().filter_map(|(group, at)| {
        let group = ledger.groups.get(*group)?;
        let other = group.tracks.get(*at)?;
        let is_other = group.id != here.id || other.rank != track.rank;
        let ops = other.digest.in_flight.iter().filter(move |op| is_other || op.peer.is_some());
        ops.filter(|op| !started || stage_of(op) == Stage::Started).map(move |op| (group, other, op)).next()
    });
    let (group, _, op) = others.min_by_key(|(_, other, op)| other.here(op.enqueued_ns))?;
    Some((called(group), op.function.clone(), op.number))
}

/// What people call a communicator.
pub(crate) fn called(group: &Group<'_>) -> String {
    if group.name.is_empty() { group.id.clone() } else { group.name.to_owned() }
}

/// The operation that a communicator waits at, in words.
pub(crate) fn called_op(group: &Group<'_>) -> String {
    if let Some(front) = group.front {
        let kind = front.op.map_or("call", |op| &*op.function);
        return format!("{kind} {} of {}", front.number, called(group));
    }
    let op = group.tracks.iter().find_map(|c| c.pairs().next());
    op.map_or_else(|| called(group), |op| format!("{} {} of {}", op.function, op.number, called(group)))
}

/// In words, for a line that begins with the rank.
pub fn detail(standing: &Standing) -> String {
    let op = |(comm, function, number): &(String, String, u64)| format!("{function} {number} of {comm}");
    match standing {
        Standing::NeverEntered { calls, elsewhere: None } => {
            format!("has not called it; made {calls} calls before")
        }
        Standing::NeverEntered { calls, elsewhere: Some(at) } => {
            format!("has not called it; made {calls} calls before, and is in {}", op(at))
        }
        Standing::Different { called, others } => format!("called {called}, most others {others}"),
        Standing::NotStarted { behind: None } => {
            "has called it; its kernel does not start: something earlier runs on its GPU".to_owned()
        }
        Standing::NotStarted { behind: Some(at) } => {
            format!("has called it; its kernel does not start, {} runs on its GPU", op(at))
        }
        Standing::Waiting { peer, channel, phase } => {
            let mut text = "its kernel runs".to_owned();
            if let Some(peer) = peer {
                _ = write!(text, " and waits for rank {peer}");
            }
            if let Some(channel) = channel {
                _ = write!(text, " on channel {channel}");
            }
            text += match phase.as_str() {
                "send-gpu" => ": its own GPU has not produced the data",
                "send-peer" => ": the receiver gives no credit",
                "send-net" => ": the network has not taken the data",
                "recv-net" => ": nothing arrives from the network",
                "recv-flush" => ": the GPU's memory does not confirm",
                "recv-gpu" => ": its own GPU does not take the data",
                _ => "",
            };
            text
        }
        Standing::Entered => "has called it".to_owned(),
        Standing::Finished => "has ended it".to_owned(),
        Standing::Idle => "has nothing in flight".to_owned(),
        Standing::Stopped => "its process is stopped".to_owned(),
        Standing::Dead => "its process is gone".to_owned(),
        Standing::Zombie => "its process has ended and was not reaped".to_owned(),
        Standing::Uninterruptible { wchan: Some(wchan) } => {
            format!("its process hangs in the kernel, in {wchan}")
        }
        Standing::Uninterruptible { wchan: None } => "its process hangs in the kernel".to_owned(),
        Standing::Unknown { why } if why.is_empty() => "nothing is known about it".to_owned(),
        Standing::Unknown { why } => why.clone(),
    }
}
