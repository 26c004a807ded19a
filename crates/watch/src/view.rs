//! A job at one moment: the newest digests of all nodes joined.
//!
//! All times are nanoseconds since 1970 by the clock of the one who looks; what an agent says is moved to it by the
//! moment at which its digest came.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::digest::{ProcessState, SeenBy};
pub use crate::event::Sees;
use crate::event::{Slowest, Stall};
use crate::standing::Standing;

/// The whole job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// When it was looked at.
    pub at_ns: i64,
    /// What the job does.
    pub job: JobState,
    /// The best that any rank is seen by.
    pub sees: Sees,
    /// What cannot be seen, for people.
    pub cannot_see: Vec<String>,
    /// Nodes, by name.
    pub nodes: Vec<Node>,
    /// Processes, by rank, node and pid; those without a rank last.
    pub processes: Vec<Process>,
    /// Communicators: the largest first, then by identifier. Ended ones are left out unless all have ended.
    pub comms: Vec<Comm>,
    /// The rank that keeps the others waiting most, if one does.
    pub slowest: Option<Slowest>,
    /// Current stalls.
    pub stalls: Vec<Stall>,
    /// Ended collectives in which ranks called something else, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differing: Option<String>,
}

/// What the job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// No rank has been seen.
    #[default]
    Unseen,
    /// Ranks are there; no rhythm has been shown yet.
    Starting,
    /// Collectives come and go.
    Running,
    /// There is a stall.
    Stalled,
    /// All ranks are gone or have ended their communicators.
    Ended,
}

/// One agent's node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Nanoseconds since its newest digest was made.
    pub age_ns: i64,
    /// It has said nothing for too long; what is known of its ranks is old.
    pub is_silent: bool,
    /// Processes on it.
    pub n_processes: u32,
    /// What its agent could not see.
    pub notes: Vec<String>,
}

/// One process of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Local rank.
    pub local_rank: Option<u32>,
    /// Index into [`View::nodes`].
    pub node: usize,
    /// Pid on its host.
    pub pid: u32,
    /// State; `dead` also for one that its agent no longer lists.
    pub state: ProcessState,
    /// Since when it is in that state, as far as it was watched.
    pub state_since_ns: i64,
    /// Function of the kernel it sleeps in.
    pub wchan: Option<String>,
    /// Share of one processor that it used between its last two digests: 1 = one core.
    pub cpu: Option<f64>,
    /// By what it is seen.
    pub seen_by: SeenBy,
    /// Its agent is silent.
    pub is_silent: bool,
    /// It ended its last communicator in good order.
    pub is_ended: bool,
    /// What its ring has lost.
    pub lost: u64,
    /// How late it enters collectives in the mean, milliseconds: the largest of its communicators.
    pub late_ms: Option<f64>,
    /// Where it is outside any collective, if its agent took a stack.
    pub outside: Option<crate::outside::Outside>,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comm {
    /// Identifier, hexadecimal; begins with `?` where the interface does not tell one and nothing can be joined.
    pub id: String,
    /// Name given by the program.
    pub name: String,
    /// Number of ranks; the number seen if it is not reported.
    pub size: u32,
    /// Ranks that are in a digest.
    pub ranks_seen: u32,
    /// All ranks seen have finalized it, or are gone.
    pub is_ended: bool,
    /// Its ranks, by rank within it.
    pub members: Vec<CommRank>,
    /// Operations that every rank has ended (collectives); most sends and receives of one rank where it has no others.
    pub ops_done: u64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Bytes a second that a rank's calls carry.
    pub bytes_per_s: f64,
    /// Bus bandwidth of the newest collectives while they ran, GB/s, by the factors of NCCL's tests.
    pub busbw_gbs: Option<f64>,
    /// The oldest operation that not all ranks have ended.
    pub front: Option<Front>,
    /// Operations in flight, of the rank that has most.
    pub in_flight: u32,
    /// Ranks of the job that have not entered the front, at most [`MAX_WAITING_FOR`].
    pub waiting_for: Vec<u32>,
    /// Nanoseconds for which nothing has moved in it, as far as the digests reach.
    pub still_ns: i64,
    /// Nanoseconds for which it may pause before that is a stall.
    pub patience_ns: i64,
    /// The longest pause that is usual in it, nanoseconds; none before it has shown a rhythm.
    pub usual_ns: Option<i64>,
    /// It has a stall.
    pub is_stalled: bool,
}

/// Ranks that a communicator names as waited for.
pub const MAX_WAITING_FOR: usize = 16;

/// The operation at which a communicator waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Front {
    /// Number within the communicator.
    pub number: u64,
    /// NCCL's name of what most ranks called.
    pub function: String,
    /// Elements.
    pub count: u64,
    /// NCCL's name of the type.
    pub datatype: String,
    /// Root.
    pub root: Option<u32>,
    /// A send or receive.
    pub is_p2p: bool,
    /// When the first rank entered it.
    pub since_ns: i64,
    /// Ranks that have entered, the following included.
    pub entered: u32,
    /// Ranks whose kernel has started, or ended.
    pub started: u32,
    /// Ranks that have ended it.
    pub finished: u32,
}

/// One rank of a communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommRank {
    /// Rank within the communicator.
    pub rank: u32,
    /// Index into [`View::processes`].
    pub process: usize,
    /// Collectives handed over.
    pub collectives: u64,
    /// Collectives ended, where that is seen.
    pub done: Option<u64>,
    /// Sends and receives handed over.
    pub p2p: u64,
    /// Where it is relative to the communicator's front.
    #[serde(rename = "place")]
    pub standing: Standing,
    /// How late it enters in the mean, milliseconds, and its share of the last collectives in which it was the last.
    pub late_ms: Option<f64>,
    /// Share of the last collectives in which it entered last, 0 to 1.
    pub late_share: Option<f64>,
}

impl View {
    /// The rank in the job of a member, else its rank within the communicator: what people call it.
    pub fn rank_of(&self, member: &CommRank) -> u32 {
        self.processes.get(member.process).and_then(|p| p.rank).unwrap_or(member.rank)
    }

    /// Rank of a process, by its place in [`Self::processes`]: its own word, or its rank in the largest communicator.
    pub fn rank_of_process(&self, at: usize) -> Option<u32> {
        let own = self.processes.get(at).and_then(|process| process.rank);
        let member = || self.comms.first()?.members.iter().find(|member| member.process == at);
        own.or_else(|| Some(member()?.rank))
    }

    /// Processes of a rank that this communicator speaks of: a program may keep its rank to itself.
    pub fn pids_of(&self, rank: u32, comm: &str) -> BTreeSet<u32> {
        let comms = self.comms.iter().filter(|c| c.id == comm);
        let members = comms.flat_map(|c| &c.members).filter(|member| self.rank_of(member) == rank);
        let by_comm = members.filter_map(|member| self.processes.get(member.process));
        let by_rank = self.processes.iter().filter(|process| process.rank == Some(rank));
        by_rank.chain(by_comm).map(|process| process.pid).collect()
    }

    /// Name of the node that a process is on.
    pub fn host_of(&self, process: &Process) -> &str {
        self.nodes.get(process.node).map_or("", |n| &n.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Comm, CommRank, Process, View};

    #[test]
    fn processes_of_a_rank_by_what_they_say_or_by_their_communicator() {
        let process = |rank, pid| Process { rank, pid, ..Process::default() };
        let member = |rank, process| CommRank { rank, process, ..CommRank::default() };
        let view = View {
            processes: vec![process(Some(4), 10), process(None, 11), process(None, 12)],
            comms: vec![Comm {
                id: "c".to_owned(),
                members: vec![member(0, 1), member(1, 2)],
                ..Comm::default()
            }],
            ..View::default()
        };
        let pids = |rank, comm| view.pids_of(rank, comm).into_iter().collect::<Vec<_>>();
        assert_eq!((pids(4, "c"), pids(1, "c"), pids(1, "d")), (vec![10], vec![12], Vec::new()));
        assert_eq!([0, 1, 2, 3].map(|at| view.rank_of_process(at)), [Some(4), Some(0), Some(1), None]);
    }
}
