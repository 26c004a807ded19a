//! The roster: what the agents have said last of each process, and since when.

use std::collections::{BTreeMap, BTreeSet};

use crate::digest::{CommDigest, Digest, OpDigest, ProcessState, RankDigest, is_p2p};
use crate::waiting::Waiting;

/// Processes that are kept of one agent, those that are gone included.
const MAX_PROCESSES: usize = 1024;
/// A process that is gone is listed for this long: those of earlier attempts of a job pile up.
const GONE_NS: i64 = 3_600_000_000_000;
/// An agent is silent after this many of its intervals: one digest may get lost, rarely two.
const SILENT_INTERVALS: i64 = 3;
/// No agent is called silent sooner: hubs have hiccups of this length.
const SILENT_FLOOR_NS: i64 = 3_000_000_000;

/// Digests after which the offset of an agent's clock to ours is known.
const SETTLED: u64 = 3;
/// A correction of this size looks like a pause of the job.
const CORRECTION_NS: i64 = 200_000_000;
/// TCP counters are not in every digest that comes through a hub; the last ones stay valid for this long.
const TCP_NS: i64 = 20_000_000_000;
/// The quickest digest of this time and of as long before counts: clocks drift, and are set.
const DELAY_NS: i64 = 60_000_000_000;

/// All agents.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) agents: BTreeMap<String, Agent>,
}

/// One agent.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    run: String,
    sequence: u64,
    /// When its newest digest was made, by its clock.
    pub(crate) at_ns: i64,
    /// When that digest came.
    pub(crate) arrived_ns: i64,
    n_digests: u64,
    interval_ns: i64,
    delay: Delay,
    pub(crate) notes: Vec<String>,
    pub(crate) processes: BTreeMap<u32, LastWord>,
}

/// The transit of an agent's digests. The quickest one gives the offset of its clock to ours; what others take longer
/// is the hub's doing, and no movement or pause of the job.
#[derive(Debug, Default)]
struct Delay {
    /// From the making by the agent's clock to the coming by ours, the least.
    least_ns: i64,
    /// Since when it is taken, and the least since then.
    recent: Option<(i64, i64)>,
    /// The least of the time before.
    before: Option<i64>,
    is_corrected: bool,
}

impl Delay {
    fn take(&mut self, took_ns: i64, now_ns: i64) {
        let is_first = self.recent.is_none();
        let (since, mut least) = self.recent.unwrap_or((now_ns, took_ns));
        if now_ns - since >= DELAY_NS {
            self.before = Some(least);
            least = took_ns;
            self.recent = Some((now_ns, took_ns));
        } else {
            least = least.min(took_ns);
            self.recent = Some((since, least));
        }
        let least = self.before.map_or(least, |before| before.min(least));
        self.is_corrected = !is_first && least < self.least_ns - CORRECTION_NS;
        self.least_ns = least;
    }
}

/// The last word of one process.
#[derive(Debug, Default)]
pub(crate) struct LastWord {
    /// The newest word of it, without what has ended.
    pub(crate) digest: RankDigest,
    pub(crate) state: ProcessState,
    pub(crate) state_since_ns: i64,
    pub(crate) cpu: Option<f64>,
    pub(crate) waiting: Waiting,
    /// When its TCP counters last arrived, by its node's clock.
    tcp_ns: i64,
}

impl Roster {
    /// Whether no newer digest of the same agent is known.
    pub(crate) fn is_news(&self, digest: &Digest) -> bool {
        self.agents.get(&digest.node).is_none_or(|agent| {
            if agent.run == digest.agent {
                digest.sequence > agent.sequence || agent.n_digests == 0
            } else {
                digest.at_ns > agent.at_ns
            }
        })
    }

    /// Takes a digest that is news.
    pub(crate) fn take(&mut self, digest: Digest, now_ns: i64) {
        let agent = self.agents.entry(digest.node).or_default();
        if agent.run != digest.agent {
            agent.n_digests = 0;
            agent.interval_ns = 0;
            agent.delay = Delay::default();
        }
        agent.delay.take(now_ns - digest.at_ns, now_ns);
        let elapsed = digest.at_ns - agent.at_ns;
        if agent.n_digests > 0 && elapsed > 0 {
            // Of a few digests, the mean: one late one must not make silence of the next.
            agent.interval_ns =
                if agent.n_digests == 1 { elapsed } else { (agent.interval_ns * 3 + elapsed) / 4 };
        }
        agent.n_digests += 1;
        agent.run = digest.agent;
        agent.sequence = digest.sequence;
        agent.at_ns = digest.at_ns;
        agent.arrived_ns = now_ns;
        agent.notes = digest.notes;
        let mut before = std::mem::take(&mut agent.processes);
        let live = digest.ranks.iter().filter(|rank| rank.process != ProcessState::Dead);
        let live: BTreeSet<u32> = live.filter_map(|rank| rank.rank).collect();
        for rank in digest.ranks {
            let old = before.remove(&rank.pid);
            let word = word(rank, old.as_ref(), digest.at_ns, elapsed, now_ns);
            agent.processes.insert(word.digest.pid, word);
        }
        // What its agent no longer lists is gone.
        for (pid, mut word) in before {
            let is_old = word.state == ProcessState::Dead && now_ns - word.state_since_ns > GONE_NS;
            // Another process has turned out to be this rank, and this one to be a shell around it. Those that have died are
            // listed.
            let is_taken =
                word.digest.comms.is_empty() && word.digest.rank.is_some_and(|rank| live.contains(&rank));
            if is_old
                || is_taken && word.state != ProcessState::Dead
                || agent.processes.len() >= MAX_PROCESSES
            {
                continue;
            }
            if word.state != ProcessState::Dead {
                word.state = ProcessState::Dead;
                word.state_since_ns = now_ns;
            }
            agent.processes.insert(pid, word);
        }
    }
}

fn word(
    mut digest: RankDigest,
    old: Option<&LastWord>,
    at_ns: i64,
    elapsed_ns: i64,
    now_ns: i64,
) -> LastWord {
    let old = old.filter(|o| o.state != ProcessState::Dead || digest.process == ProcessState::Dead);
    for (index, comm) in digest.comms.iter_mut().enumerate() {
        // Mostly the same place in the list as before.
        let same = |c: &&CommDigest| c.id == comm.id && c.rank == comm.rank;
        let before = old.and_then(|o| {
            o.digest.comms.get(index).filter(same).or_else(|| o.digest.comms.iter().find(same))
        });
        comm.moved_ns = moved(comm, before, at_ns);
        comm.recent = Vec::new();
    }
    let mut tcp_ns = at_ns;
    if let Some(old) = old.filter(|o| digest.tcp.is_none() && at_ns - o.tcp_ns < TCP_NS) {
        digest.tcp.clone_from(&old.digest.tcp);
        tcp_ns = old.tcp_ns;
    }
    let cpu = old.and_then(|o| Some((digest.cpu_ms?, o.digest.cpu_ms?))).filter(|_| elapsed_ns > 0);
    LastWord {
        state: digest.process,
        state_since_ns: old.filter(|o| o.state == digest.process).map_or(now_ns, |o| o.state_since_ns),
        waiting: old.map(|o| o.waiting).unwrap_or_default().take(&digest, at_ns, now_ns),
        tcp_ns,
        cpu: cpu.map(|(new, old)| new.saturating_sub(old) as f64 * 1e6 / elapsed_ns as f64),
        digest,
    }
}

/// What a look shows of a communicator, without any moment. An agent re-maps the clock of its ring with every look, so
/// the same moment differs slightly each time, which is not progress.
fn shown(comm: &CommDigest) -> impl PartialEq + use<> {
    let since = |op: &OpDigest, ns: i64| ns - op.enqueued_ns;
    let op = |op: &OpDigest| {
        let waits: Vec<_> =
            op.waits.iter().map(|w| (w.peer, w.channel, w.is_send, since(op, w.since_ns))).collect();
        (op.number, op.peer, op.channels, op.started_ns.map(|ns| since(op, ns)), waits)
    };
    let ops: Vec<_> = comm.in_flight.iter().map(op).collect();
    let counts = (comm.collectives, comm.collectives_done, comm.p2p, comm.p2p_done, comm.bytes_done);
    (counts, comm.n_in_flight, comm.is_ended, ops)
}

/// When something last moved, by the node's clock. A call counts if the operation is the oldest there is: it then is what
/// others may have waited for. Calls that queue up behind one that is stuck are no progress.
fn moved(comm: &CommDigest, before: Option<&CommDigest>, at_ns: i64) -> i64 {
    let same = before.filter(|before| shown(before) == shown(comm));
    same.map_or_else(|| moved_as_told(comm, before, at_ns), |before| before.moved_ns)
}

fn moved_as_told(comm: &CommDigest, before: Option<&CommDigest>, at_ns: i64) -> i64 {
    let oldest = |p2p: bool| {
        comm.in_flight.iter().filter(move |op| is_p2p(&op.function) == p2p).map(|op| op.enqueued_ns).next()
    };
    let entered = oldest(false).max(oldest(true)).unwrap_or(0);
    if comm.moved_ns > 0 {
        return comm.moved_ns.max(entered);
    }
    // Only counts are seen: they move when they change.
    let counts = |c: &CommDigest| (c.collectives, c.collectives_done, c.p2p, c.p2p_done);
    let told = if comm.progress_ns > 0 { comm.progress_ns } else { at_ns };
    let changed = match before {
        Some(before) if counts(before) == counts(comm) => before.moved_ns,
        Some(_) if comm.collectives_done.is_none() => at_ns.min(told.max(entered)),
        _ => told,
    };
    changed.max(entered)
}

impl Agent {
    /// Age of what is known of it.
    pub(crate) fn age_ns(&self, now_ns: i64) -> i64 {
        let since_arrival = now_ns - self.arrived_ns;
        // A leftover file may be of any age; an agent that has reported twice is alive, regardless of its clock.
        if self.n_digests > 1 { since_arrival } else { since_arrival.max(now_ns - self.at_ns) }
    }

    /// Nanoseconds after which it is silent.
    pub(crate) fn patience_ns(&self, interval_ns: i64) -> i64 {
        let interval = if self.n_digests > 1 { self.interval_ns } else { interval_ns };
        (interval.max(interval_ns) * SILENT_INTERVALS).max(SILENT_FLOOR_NS)
    }

    /// To be added to a time of its clock.
    pub(crate) fn shift_ns(&self) -> i64 {
        self.delay.least_ns
    }

    /// When its newest digest was made, by the clock of the one who looks.
    pub(crate) fn made_ns(&self) -> i64 {
        self.at_ns + self.delay.least_ns
    }

    /// Its times may still turn out to be earlier than they seem.
    pub(crate) fn is_settling(&self) -> bool {
        self.n_digests < SETTLED || self.delay.is_corrected
    }
}

#[cfg(test)]
mod tests {
    use super::{Delay, Roster};
    use crate::digest::{CommDigest, Digest, OpDigest, ProcessState, RankDigest};

    #[test]
    fn a_shell_that_was_taken_for_the_rank_has_not_died() {
        let mut roster = Roster::default();
        let mut tell = |sequence: u64, pids: &[(u32, u32)]| {
            let process = ProcessState::Alive;
            let rank = |(pid, rank): &(u32, u32)| RankDigest {
                pid: *pid,
                rank: Some(*rank),
                process,
                ..RankDigest::default()
            };
            let ranks = pids.iter().map(rank).collect();
            let at_ns = sequence as i64;
            roster.take(Digest { sequence, at_ns, ranks, ..Digest::default() }, at_ns);
            roster.agents[""].processes.iter().map(|(pid, word)| (*pid, word.state)).collect::<Vec<_>>()
        };
        let (lives, is_dead) = (ProcessState::Alive, ProcessState::Dead);
        assert_eq!(tell(1, &[(10, 0), (20, 1)]), [(10, lives), (20, lives)]);
        assert_eq!(tell(2, &[(11, 0), (20, 1)]), [(11, lives), (20, lives)]);
        assert_eq!(tell(3, &[(11, 0)]), [(11, lives), (20, is_dead)]);
        assert_eq!(tell(4, &[(11, 0), (21, 1)]), [(11, lives), (20, is_dead), (21, lives)]);
    }

    /// Before anything has ended or started the only moment there is, is that of the call.
    #[test]
    fn a_first_call_that_is_told_anew_has_not_moved() {
        let mut roster = Roster::default();
        let mut tell = |sequence: u64, enqueued_ns: i64, number: u64| {
            let op =
                OpDigest { number, function: "AllReduce".to_owned(), enqueued_ns, ..OpDigest::default() };
            let comm = CommDigest {
                id: "a".to_owned(),
                collectives: number,
                collectives_done: Some(0),
                progress_ns: enqueued_ns,
                in_flight: vec![op],
                ..CommDigest::default()
            };
            let ranks =
                vec![RankDigest { pid: 10, rank: Some(0), comms: vec![comm], ..RankDigest::default() }];
            let at_ns = sequence as i64 * 500_000_000;
            roster.take(Digest { sequence, at_ns, ranks, ..Digest::default() }, at_ns);
            roster.agents[""].processes[&10].digest.comms[0].moved_ns
        };
        let first = tell(1, 100_000_000, 1);
        assert_eq!(first, 100_000_000);
        assert_eq!(tell(2, 100_000_900, 1), first, "the clock of the ring was mapped anew");
        assert_eq!(tell(3, 100_001_700, 1), first);
        assert!(tell(4, 1_600_000_000, 2) > first);
    }

    #[test]
    fn the_quickest_digest_says_how_clocks_stand() {
        let second = 1_000_000_000;
        let mut delay = Delay::default();
        let mut least = |at: i64, took: i64| {
            delay.take(took, at * second);
            (delay.least_ns, delay.is_corrected)
        };
        assert_eq!(least(0, 9 * second), (9 * second, false));
        assert_eq!(least(1, second), (second, true));
        assert_eq!(least(2, 5 * second), (second, false));
        assert_eq!(least(3, second - 1), (second - 1, false));
        // The clock was set back by an hour: after two times it is believed.
        assert_eq!(least(61, 3600 * second), (second - 1, false));
        assert_eq!(least(122, 3601 * second), (3600 * second, false));
        // And forward again.
        assert_eq!(least(123, second), (second, true));
    }
}
