//! Where each rank stands with regard to the operation that its communicator stands at.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::digest::{OpDigest, ProcessState};
use crate::table::{Chair, Circle, Stand, Table, stand_of};

/// Where one rank stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Place {
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
        /// Why.
        why: String,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::Unknown { why: String::new() }
    }
}

impl Place {
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

/// Where a rank stands in a circle. `deep`: also what else it is in, which takes a look at all that it has.
pub(crate) fn place(table: &Table<'_>, circle: &Circle<'_>, chair: &Chair<'_>, deep: bool) -> Place {
    let Some(row) = table.rows.get(chair.row) else { return Place::default() };
    if row.is_silent {
        return Place::Unknown { why: "its agent is silent".to_owned() };
    }
    match row.seat.state {
        // The state of a process explains what it has not ended, and no more.
        _ if chair.stand == Stand::Finished || !row.is_broken(table.now_ns) => {}
        ProcessState::Stopped => return Place::Stopped,
        ProcessState::Dead => return Place::Dead,
        ProcessState::Zombie => return Place::Zombie,
        ProcessState::Uninterruptible => {
            return Place::Uninterruptible { wchan: row.seat.digest.wchan.clone() };
        }
        ProcessState::Alive | ProcessState::Unknown => {}
    }
    if circle.front.is_none()
        && let Some(op) = chair.pairs().next()
    {
        return of_op(table, circle, op, stand_of(op), deep.then_some(chair));
    }
    match chair.stand {
        Stand::Unseen => Place::Unknown { why: "its operations cannot be seen".to_owned() },
        Stand::Idle => Place::Idle,
        Stand::Finished => Place::Finished,
        Stand::Entered => Place::Entered,
        Stand::Never => Place::NeverEntered {
            calls: chair.digest.collectives,
            elsewhere: if deep { elsewhere(table, circle, chair, false) } else { None },
        },
        Stand::Different => {
            let number = circle.front.map_or(0, |f| f.number);
            Place::Different {
                called: chair.call(number).map(call).unwrap_or_default(),
                others: circle.front.and_then(|f| f.op).map(call).unwrap_or_default(),
            }
        }
        Stand::NotStarted | Stand::Started => {
            let op = circle.front.and_then(|f| chair.call(f.number));
            op.map_or(Place::Entered, |op| of_op(table, circle, op, chair.stand, deep.then_some(chair)))
        }
    }
}

fn of_op(
    table: &Table<'_>,
    circle: &Circle<'_>,
    op: &OpDigest,
    stand: Stand,
    deep: Option<&Chair<'_>>,
) -> Place {
    match stand {
        Stand::NotStarted => {
            Place::NotStarted { behind: deep.and_then(|chair| elsewhere(table, circle, chair, true)) }
        }
        Stand::Started => {
            let wait = op.waits.first();
            let peer = wait.map(|w| w.peer).or(op.peer);
            Place::Waiting {
                peer: peer.map(|p| job_rank(table, circle, p)),
                channel: wait.map(|w| w.channel),
                phase: wait.map(|w| w.phase.clone()).unwrap_or_default(),
            }
        }
        _ => Place::Entered,
    }
}

/// Rank in the job of a rank of a circle.
pub(crate) fn job_rank(table: &Table<'_>, circle: &Circle<'_>, rank: u32) -> u32 {
    let at = circle.chairs.binary_search_by_key(&rank, |c| c.rank);
    at.ok().and_then(|at| circle.chairs.get(at)).map_or(rank, |c| table.rank_of(c))
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
    table: &Table<'_>,
    here: &Circle<'_>,
    chair: &Chair<'_>,
    started: bool,
) -> Option<(String, String, u64)> {
    let row = table.rows.get(chair.row)?;
    let others = row.chairs.iter().filter_map(|(circle, at)| {
        let circle = table.circles.get(*circle)?;
        let other = circle.chairs.get(*at)?;
        let is_other = circle.id != here.id || other.rank != chair.rank;
        let ops = other.digest.in_flight.iter().filter(move |op| is_other || op.peer.is_some());
        ops.filter(|op| !started || stand_of(op) == Stand::Started).map(move |op| (circle, other, op)).next()
    });
    let (circle, _, op) = others.min_by_key(|(_, other, op)| other.here(op.enqueued_ns))?;
    Some((called(circle), op.function.clone(), op.number))
}

/// What people call a communicator.
pub(crate) fn called(circle: &Circle<'_>) -> String {
    if circle.name.is_empty() { circle.id.clone() } else { circle.name.to_owned() }
}

/// In words, for a line that begins with the rank.
pub fn detail(place: &Place) -> String {
    let op = |(comm, function, number): &(String, String, u64)| format!("{function} {number} of {comm}");
    match place {
        Place::NeverEntered { calls, elsewhere: None } => {
            format!("has not called it; made {calls} calls before")
        }
        Place::NeverEntered { calls, elsewhere: Some(at) } => {
            format!("has not called it; made {calls} calls before, and is in {}", op(at))
        }
        Place::Different { called, others } => format!("called {called}, most others {others}"),
        Place::NotStarted { behind: None } => {
            "has called it; its kernel does not start: something earlier runs on its GPU".to_owned()
        }
        Place::NotStarted { behind: Some(at) } => {
            format!("has called it; its kernel does not start, {} runs on its GPU", op(at))
        }
        Place::Waiting { peer, channel, phase } => {
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
        Place::Entered => "has called it".to_owned(),
        Place::Finished => "has ended it".to_owned(),
        Place::Idle => "has nothing in flight".to_owned(),
        Place::Stopped => "its process is stopped".to_owned(),
        Place::Dead => "its process is gone".to_owned(),
        Place::Zombie => "its process has ended and was not collected".to_owned(),
        Place::Uninterruptible { wchan: Some(wchan) } => {
            format!("its process hangs in the kernel, in {wchan}")
        }
        Place::Uninterruptible { wchan: None } => "its process hangs in the kernel".to_owned(),
        Place::Unknown { why } if why.is_empty() => "nothing is known of it".to_owned(),
        Place::Unknown { why } => why.clone(),
    }
}
