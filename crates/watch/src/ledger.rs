//! The newest digests of all agents joined: communicators by identifier, and where each of their ranks is.

use std::collections::BTreeMap;

use crate::digest::{CommDigest, OpDigest, ProcessState, SeenBy, is_p2p};
use crate::roster::{LastWord, Roster};

/// State D is common for moments; a process that stays in it as long hangs.
pub(crate) const UNINTERRUPTIBLE_NS: i64 = 4_000_000_000;

/// The joined job: its members, and its groups with a track for each rank.
pub(crate) struct Ledger<'a> {
    pub(crate) now_ns: i64,
    /// The moment up to which all agents that still send have reported.
    pub(crate) known_ns: i64,
    /// Times of an agent that still speaks may turn out to be earlier than they seem: nothing is learnt from pauses.
    pub(crate) is_settling: bool,
    pub(crate) nodes: Vec<AgentState<'a>>,
    pub(crate) members: Vec<Member<'a>>,
    pub(crate) groups: Vec<Group<'a>>,
}

/// What is known of a node.
pub(crate) struct AgentState<'a> {
    pub(crate) name: &'a str,
    pub(crate) age_ns: i64,
    pub(crate) is_silent: bool,
    pub(crate) notes: &'a [String],
    pub(crate) n_processes: u32,
}

/// A process of the job.
pub(crate) struct Member<'a> {
    pub(crate) node: usize,
    pub(crate) word: &'a LastWord,
    pub(crate) is_silent: bool,
    /// Index of a group, and of its track in it.
    pub(crate) tracks: Vec<(usize, usize)>,
}

/// A communicator, as the digests of its ranks describe it.
pub(crate) struct Group<'a> {
    pub(crate) id: String,
    pub(crate) name: &'a str,
    pub(crate) size: u32,
    pub(crate) tracks: Vec<Track<'a>>,
    pub(crate) is_ended: bool,
    /// The collective that it is at.
    pub(crate) front: Option<Front<'a>>,
    /// A rank waits inside: in the front, or in a send or receive.
    pub(crate) is_inside: bool,
    /// Newest sign that something moves, own clock.
    pub(crate) moved_ns: i64,
}

/// The oldest collective that not all have ended.
#[derive(Clone, Copy)]
pub(crate) struct Front<'a> {
    pub(crate) number: u64,
    /// As most ranks called it; none where no call can be seen.
    pub(crate) op: Option<&'a OpDigest>,
    pub(crate) since_ns: i64,
}

/// One rank's operations in one group.
pub(crate) struct Track<'a> {
    pub(crate) rank: u32,
    pub(crate) member: usize,
    pub(crate) digest: &'a CommDigest,
    pub(crate) stage: Stage,
    pub(crate) moved_ns: i64,
    shift_ns: i64,
}

/// How far a rank has come in the front of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its agent is silent, or its operations cannot be seen.
    Unseen,
    /// There is no front.
    Idle,
    Never,
    /// It called something else at this number.
    Different,
    /// Called; whether its kernel has started cannot be seen.
    Entered,
    NotStarted,
    Started,
    Finished,
}

impl Stage {
    /// In the front, not through it.
    pub(crate) fn is_inside(self) -> bool {
        matches!(self, Self::Entered | Self::NotStarted | Self::Started | Self::Different)
    }
}

impl Member<'_> {
    /// Stopped, gone, or hanging in the kernel: it will do nothing by itself.
    pub(crate) fn is_broken(&self, now_ns: i64) -> bool {
        match self.word.state {
            ProcessState::Stopped | ProcessState::Zombie | ProcessState::Dead => true,
            ProcessState::Uninterruptible => now_ns - self.word.state_since_ns >= UNINTERRUPTIBLE_NS,
            ProcessState::Alive | ProcessState::Unknown => false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.word.digest.is_ended || matches!(self.word.state, ProcessState::Dead | ProcessState::Zombie)
    }
}

impl<'a> Track<'a> {
    /// A time of its node's clock.
    pub(crate) fn here(&self, ns: i64) -> i64 {
        ns + self.shift_ns
    }

    /// The oldest collective in flight.
    pub(crate) fn collective(&self) -> Option<&'a OpDigest> {
        self.digest.in_flight.iter().find(|op| !is_p2p(&op.function))
    }

    /// The collective of this number, if it is in flight and reported.
    pub(crate) fn call(&self, number: u64) -> Option<&'a OpDigest> {
        self.digest.in_flight.iter().find(|op| !is_p2p(&op.function) && op.number == number)
    }

    /// Sends and receives in flight.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &'a OpDigest> + use<'a> {
        self.digest.in_flight.iter().filter(|op| is_p2p(&op.function) && !op.is_end_unseen)
    }

    /// Number of the next collective that it ends.
    fn position(&self) -> u64 {
        // One whose end is not reported holds up no rank by itself; a rank that has not called it shows all the same.
        let first = self.digest.in_flight.iter().find(|op| !is_p2p(&op.function) && !op.is_end_unseen);
        first.map_or(self.digest.collectives, |op| op.number.min(self.digest.collectives))
    }

    /// All that it has in flight is reported.
    pub(crate) fn tells_all(&self) -> bool {
        self.digest.n_in_flight as usize <= self.digest.in_flight.len()
    }
}

/// Whether the kernel has started, as far as it can be seen.
pub(crate) fn stage_of(op: &OpDigest) -> Stage {
    if op.started_ns.is_some() || !op.waits.is_empty() {
        Stage::Started
    } else if op.is_start_visible {
        Stage::NotStarted
    } else {
        Stage::Entered
    }
}

/// What has to be equal on all ranks.
fn signature(op: &OpDigest) -> (&str, u64, &str, Option<u32>) {
    (&op.function, op.count, &op.datatype, op.root)
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(roster: &'a Roster, now_ns: i64, interval_ns: i64) -> Self {
        let mut ledger = Self {
            now_ns,
            known_ns: now_ns,
            is_settling: false,
            nodes: Vec::new(),
            members: Vec::new(),
            groups: Vec::new(),
        };
        let mut shifts = Vec::new();
        let (mut known, mut newest) = (None, None);
        for (node, (name, agent)) in roster.agents.iter().enumerate() {
            let is_silent = agent.age_ns(now_ns) > agent.patience_ns(interval_ns);
            ledger.nodes.push(AgentState {
                name,
                age_ns: agent.age_ns(now_ns),
                is_silent,
                notes: &agent.notes,
                n_processes: agent.processes.len() as u32,
            });
            shifts.push(agent.shift_ns());
            if !is_silent && !agent.processes.is_empty() {
                let made_ns = agent.made_ns();
                known = Some(known.map_or(made_ns, |k: i64| k.min(made_ns)));
                ledger.is_settling |= agent.is_settling();
            }
            newest = newest.max(Some(agent.made_ns()));
            ledger.members.extend(agent.processes.values().map(|word| Member {
                node,
                word,
                is_silent,
                tracks: Vec::new(),
            }));
        }
        // If all agents are silent, the hub or we are cut off: nothing is known after the last digest.
        ledger.known_ns = known.or(newest).unwrap_or(now_ns);
        ledger.members.sort_by_key(|member| {
            let rank = member.word.digest.rank;
            (rank.is_none(), rank, member.node, member.word.digest.pid)
        });
        ledger.group(&shifts);
        ledger.fronts();
        ledger
    }

    /// Groups the ranks of each communicator.
    fn group(&mut self, shifts: &[i64]) {
        let mut by_id: BTreeMap<(&'a str, u32), usize> = BTreeMap::new();
        for (member_index, member) in self.members.iter_mut().enumerate() {
            let digest = &member.word.digest;
            let shift_ns = shifts.get(member.node).copied().unwrap_or(0);
            for (index, comm) in digest.comms.iter().enumerate() {
                let at = self.groups.len();
                // Without an identifier nothing says which ranks belong together.
                let group_index =
                    if comm.id.is_empty() { at } else { *by_id.entry((&comm.id, comm.size)).or_insert(at) };
                if group_index == at {
                    let id = if comm.id.is_empty() {
                        let node = self.nodes.get(member.node).map_or("", |n| n.name);
                        format!("?{node}:{}:{index}", digest.pid)
                    } else {
                        comm.id.clone()
                    };
                    self.groups.push(Group {
                        id,
                        name: &comm.name,
                        size: comm.size,
                        tracks: Vec::new(),
                        is_ended: false,
                        front: None,
                        is_inside: false,
                        moved_ns: 0,
                    });
                }
                let Some(group) = self.groups.get_mut(group_index) else { continue };
                member.tracks.push((group_index, group.tracks.len()));
                group.tracks.push(Track {
                    rank: comm.rank.unwrap_or(group.tracks.len() as u32),
                    member: member_index,
                    digest: comm,
                    stage: Stage::Idle,
                    moved_ns: comm.moved_ns + shift_ns,
                    shift_ns,
                });
            }
        }
        self.groups.sort_by(|a, b| {
            let size = |c: &Group<'_>| c.size.max(c.tracks.len() as u32);
            (size(b), &a.id, a.size).cmp(&(size(a), &b.id, b.size))
        });
        for member in &mut self.members {
            member.tracks.clear();
        }
        for (group_index, group) in self.groups.iter_mut().enumerate() {
            group.tracks.sort_by_key(|c| (c.rank, c.member));
            for (index, track) in group.tracks.iter().enumerate() {
                if let Some(member) = self.members.get_mut(track.member) {
                    member.tracks.push((group_index, index));
                }
            }
        }
    }

    fn fronts(&mut self) {
        for group in &mut self.groups {
            let member = |c: &Track<'_>| self.members.get(c.member);
            group.moved_ns = group.tracks.iter().map(|c| c.moved_ns).max().unwrap_or(0);
            group.is_ended =
                group.tracks.iter().all(|c| c.digest.is_ended || member(c).is_some_and(Member::is_over));
            let unseen: Vec<bool> = group
                .tracks
                .iter()
                .map(|c| member(c).is_none_or(|r| r.is_silent || r.word.digest.seen_by == SeenBy::Process))
                .collect();
            let seen = || group.tracks.iter().zip(&unseen).filter(|(_, unseen)| !**unseen).map(|(c, _)| c);
            let Some(number) = seen().map(Track::position).min() else {
                for track in &mut group.tracks {
                    track.stage = Stage::Unseen;
                }
                continue;
            };
            // A root leaves its broadcast without the others, and waits in a later call for the one that has not come.
            let has_left = |c: &Track<'_>| c.digest.collectives_done.is_some() && c.call(number).is_none();
            let later = || {
                let seen = seen().filter_map(Track::collective);
                seen.filter(|op| !op.is_end_unseen).map(|op| op.number).min()
            };
            let (behind, entered): (Vec<_>, Vec<_>) = seen().partition(|c| c.digest.collectives <= number);
            let is_left = !behind.is_empty() && !entered.is_empty() && entered.into_iter().all(has_left);
            let number = if is_left { later().unwrap_or(number) } else { number };
            let has_entered = |c: &Track<'_>| c.digest.collectives > number;
            let is_open = seen().any(|c| has_entered(c) && (c.digest.collectives_done.is_none() || c.call(number).is_some()))
                // One is behind and the others have gone on: what it has not ended is still open.
                || seen().any(|c| !has_entered(c)) && seen().any(|c| c.collective().is_some());
            let calls: Vec<&OpDigest> = seen().filter_map(|c| c.call(number)).collect();
            let usual = most(&calls);
            let since = seen().filter_map(|c| c.call(number).map(|op| c.here(op.enqueued_ns))).min();
            if is_open {
                group.front = Some(Front { number, op: usual, since_ns: since.unwrap_or(group.moved_ns) });
            }
            let mut inside = false;
            for (track, unseen) in group.tracks.iter_mut().zip(&unseen) {
                track.stage = match track.call(number) {
                    _ if *unseen => Stage::Unseen,
                    _ if !is_open => Stage::Idle,
                    Some(op) if usual.is_some_and(|u| signature(u) != signature(op)) => Stage::Different,
                    Some(op) => stage_of(op),
                    None if track.digest.collectives <= number => Stage::Never,
                    // Counts of launches: one that has called may have gone through.
                    None if track.digest.collectives_done.is_none() => Stage::Entered,
                    None => Stage::Finished,
                };
                inside |= track.stage.is_inside() || !unseen && track.pairs().next().is_some();
            }
            group.is_inside = inside;
        }
    }

    /// Rank in the job, else within the communicator.
    pub(crate) fn rank_of(&self, track: &Track<'_>) -> u32 {
        self.members.get(track.member).and_then(|r| r.word.digest.rank).unwrap_or(track.rank)
    }
}

/// The call that most ranks made; of equally many, the smaller one, so that the order of ranks does not matter.
fn most<'a>(calls: &[&'a OpDigest]) -> Option<&'a OpDigest> {
    let first = *calls.first()?;
    if calls.iter().all(|c| signature(c) == signature(first)) {
        return Some(first);
    }
    let mut counts: BTreeMap<_, (usize, &'a OpDigest)> = BTreeMap::new();
    for call in calls {
        counts.entry(signature(call)).or_insert((0, call)).0 += 1;
    }
    let best = counts.values().map(|(n, _)| *n).max()?;
    counts.into_values().find(|(n, _)| *n == best).map(|(_, op)| op)
}
