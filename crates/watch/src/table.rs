//! The newest digests of all agents joined: communicators by identifier, and where each of their ranks stands.

use std::collections::BTreeMap;

use crate::digest::{CommDigest, OpDigest, ProcessState, SeenBy, is_p2p};
use crate::roll::{Roll, Seat};

/// State D is common for moments; a process that stays in it as long hangs.
pub(crate) const UNINTERRUPTIBLE_NS: i64 = 4_000_000_000;

/// The joined job.
pub(crate) struct Table<'a> {
    pub(crate) now_ns: i64,
    /// The moment that all agents that still speak have told of.
    pub(crate) known_ns: i64,
    /// Times of an agent that still speaks may turn out to be earlier than they seem: nothing is learnt from pauses.
    pub(crate) is_settling: bool,
    pub(crate) nodes: Vec<NodeRow<'a>>,
    pub(crate) rows: Vec<Row<'a>>,
    pub(crate) circles: Vec<Circle<'a>>,
}

pub(crate) struct NodeRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) age_ns: i64,
    pub(crate) is_silent: bool,
    pub(crate) notes: &'a [String],
    pub(crate) n_processes: u32,
}

/// A process.
pub(crate) struct Row<'a> {
    pub(crate) node: usize,
    pub(crate) seat: &'a Seat,
    pub(crate) is_silent: bool,
    /// Circle and place in it.
    pub(crate) chairs: Vec<(usize, usize)>,
}

/// A communicator.
pub(crate) struct Circle<'a> {
    pub(crate) id: String,
    pub(crate) name: &'a str,
    pub(crate) size: u32,
    pub(crate) chairs: Vec<Chair<'a>>,
    pub(crate) is_ended: bool,
    /// The collective that it stands at.
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

/// A rank of a communicator.
pub(crate) struct Chair<'a> {
    pub(crate) rank: u32,
    pub(crate) row: usize,
    pub(crate) digest: &'a CommDigest,
    pub(crate) stand: Stand,
    pub(crate) moved_ns: i64,
    shift_ns: i64,
}

/// Where a rank stands with regard to the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
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

impl Stand {
    /// In the front, not through it.
    pub(crate) fn is_inside(self) -> bool {
        matches!(self, Self::Entered | Self::NotStarted | Self::Started | Self::Different)
    }
}

impl Row<'_> {
    /// Stopped, gone, or hanging in the kernel: it will do nothing by itself.
    pub(crate) fn is_broken(&self, now_ns: i64) -> bool {
        match self.seat.state {
            ProcessState::Stopped | ProcessState::Zombie | ProcessState::Dead => true,
            ProcessState::Uninterruptible => now_ns - self.seat.state_since_ns >= UNINTERRUPTIBLE_NS,
            ProcessState::Alive | ProcessState::Unknown => false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.seat.digest.is_ended || matches!(self.seat.state, ProcessState::Dead | ProcessState::Zombie)
    }
}

impl<'a> Chair<'a> {
    /// A time of its node's clock.
    pub(crate) fn here(&self, ns: i64) -> i64 {
        ns + self.shift_ns
    }

    /// The oldest collective in flight.
    pub(crate) fn collective(&self) -> Option<&'a OpDigest> {
        self.digest.in_flight.iter().find(|op| !is_p2p(&op.function))
    }

    /// The collective of this number, if it is in flight and told of.
    pub(crate) fn call(&self, number: u64) -> Option<&'a OpDigest> {
        self.digest.in_flight.iter().find(|op| !is_p2p(&op.function) && op.number == number)
    }

    /// Sends and receives in flight.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &'a OpDigest> + use<'a> {
        self.digest.in_flight.iter().filter(|op| is_p2p(&op.function) && !op.is_end_unseen)
    }

    /// Number of the next collective that it ends.
    fn position(&self) -> u64 {
        // One whose end nobody tells of holds nobody up by itself; that somebody has not called it shows all the same.
        let first = self.digest.in_flight.iter().find(|op| !is_p2p(&op.function) && !op.is_end_unseen);
        first.map_or(self.digest.collectives, |op| op.number.min(self.digest.collectives))
    }

    /// All that it has in flight is told of.
    pub(crate) fn tells_all(&self) -> bool {
        self.digest.n_in_flight as usize <= self.digest.in_flight.len()
    }
}

/// Whether the kernel has started, as far as it can be seen.
pub(crate) fn stand_of(op: &OpDigest) -> Stand {
    if op.started_ns.is_some() || !op.waits.is_empty() {
        Stand::Started
    } else if op.is_start_visible {
        Stand::NotStarted
    } else {
        Stand::Entered
    }
}

/// What has to be equal on all ranks.
fn signature(op: &OpDigest) -> (&str, u64, &str, Option<u32>) {
    (&op.function, op.count, &op.datatype, op.root)
}

impl<'a> Table<'a> {
    pub(crate) fn new(roll: &'a Roll, now_ns: i64, interval_ns: i64) -> Self {
        let mut table = Self {
            now_ns,
            known_ns: now_ns,
            is_settling: false,
            nodes: Vec::new(),
            rows: Vec::new(),
            circles: Vec::new(),
        };
        let mut shifts = Vec::new();
        let (mut known, mut newest) = (None, None);
        for (node, (name, agent)) in roll.agents.iter().enumerate() {
            let is_silent = agent.age_ns(now_ns) > agent.patience_ns(interval_ns);
            table.nodes.push(NodeRow {
                name,
                age_ns: agent.age_ns(now_ns),
                is_silent,
                notes: &agent.notes,
                n_processes: agent.seats.len() as u32,
            });
            shifts.push(agent.shift_ns());
            if !is_silent && !agent.seats.is_empty() {
                let made_ns = agent.made_ns();
                known = Some(known.map_or(made_ns, |k: i64| k.min(made_ns)));
                table.is_settling |= agent.is_settling();
            }
            newest = newest.max(Some(agent.made_ns()));
            table.rows.extend(agent.seats.values().map(|seat| Row {
                node,
                seat,
                is_silent,
                chairs: Vec::new(),
            }));
        }
        // When nobody speaks any more it is the hub, or we: nothing is known after the last word.
        table.known_ns = known.or(newest).unwrap_or(now_ns);
        table.rows.sort_by_key(|row| {
            let rank = row.seat.digest.rank;
            (rank.is_none(), rank, row.node, row.seat.digest.pid)
        });
        table.seat(&shifts);
        table.fronts();
        table
    }

    /// Groups the ranks of each communicator.
    fn seat(&mut self, shifts: &[i64]) {
        let mut by_id: BTreeMap<(&'a str, u32), usize> = BTreeMap::new();
        for (row_index, row) in self.rows.iter_mut().enumerate() {
            let digest = &row.seat.digest;
            let shift_ns = shifts.get(row.node).copied().unwrap_or(0);
            for (index, comm) in digest.comms.iter().enumerate() {
                let at = self.circles.len();
                // Without an identifier nothing says which ranks belong together.
                let circle_index =
                    if comm.id.is_empty() { at } else { *by_id.entry((&comm.id, comm.size)).or_insert(at) };
                if circle_index == at {
                    let id = if comm.id.is_empty() {
                        let node = self.nodes.get(row.node).map_or("", |n| n.name);
                        format!("?{node}:{}:{index}", digest.pid)
                    } else {
                        comm.id.clone()
                    };
                    self.circles.push(Circle {
                        id,
                        name: &comm.name,
                        size: comm.size,
                        chairs: Vec::new(),
                        is_ended: false,
                        front: None,
                        is_inside: false,
                        moved_ns: 0,
                    });
                }
                let Some(circle) = self.circles.get_mut(circle_index) else { continue };
                row.chairs.push((circle_index, circle.chairs.len()));
                circle.chairs.push(Chair {
                    rank: comm.rank.unwrap_or(circle.chairs.len() as u32),
                    row: row_index,
                    digest: comm,
                    stand: Stand::Idle,
                    moved_ns: comm.moved_ns + shift_ns,
                    shift_ns,
                });
            }
        }
        self.circles.sort_by(|a, b| {
            let size = |c: &Circle<'_>| c.size.max(c.chairs.len() as u32);
            (size(b), &a.id, a.size).cmp(&(size(a), &b.id, b.size))
        });
        for row in &mut self.rows {
            row.chairs.clear();
        }
        for (circle_index, circle) in self.circles.iter_mut().enumerate() {
            circle.chairs.sort_by_key(|c| (c.rank, c.row));
            for (index, chair) in circle.chairs.iter().enumerate() {
                if let Some(row) = self.rows.get_mut(chair.row) {
                    row.chairs.push((circle_index, index));
                }
            }
        }
    }

    fn fronts(&mut self) {
        for circle in &mut self.circles {
            let row = |c: &Chair<'_>| self.rows.get(c.row);
            circle.moved_ns = circle.chairs.iter().map(|c| c.moved_ns).max().unwrap_or(0);
            circle.is_ended =
                circle.chairs.iter().all(|c| c.digest.is_ended || row(c).is_some_and(Row::is_over));
            let unseen: Vec<bool> = circle
                .chairs
                .iter()
                .map(|c| row(c).is_none_or(|r| r.is_silent || r.seat.digest.seen_by == SeenBy::Process))
                .collect();
            let seen = || circle.chairs.iter().zip(&unseen).filter(|(_, unseen)| !**unseen).map(|(c, _)| c);
            let Some(number) = seen().map(Chair::position).min() else {
                for chair in &mut circle.chairs {
                    chair.stand = Stand::Unseen;
                }
                continue;
            };
            let has_entered = |c: &Chair<'_>| c.digest.collectives > number;
            let is_open = seen().any(|c| has_entered(c) && (c.digest.collectives_done.is_none() || c.call(number).is_some()))
                // One is behind and the others have gone on: what it has not ended is still open.
                || seen().any(|c| !has_entered(c)) && seen().any(|c| c.collective().is_some());
            let calls: Vec<&OpDigest> = seen().filter_map(|c| c.call(number)).collect();
            let usual = most(&calls);
            let since = seen().filter_map(|c| c.call(number).map(|op| c.here(op.enqueued_ns))).min();
            if is_open {
                circle.front = Some(Front { number, op: usual, since_ns: since.unwrap_or(circle.moved_ns) });
            }
            let mut inside = false;
            for (chair, unseen) in circle.chairs.iter_mut().zip(&unseen) {
                chair.stand = match chair.call(number) {
                    _ if *unseen => Stand::Unseen,
                    _ if !is_open => Stand::Idle,
                    Some(op) if usual.is_some_and(|u| signature(u) != signature(op)) => Stand::Different,
                    Some(op) => stand_of(op),
                    None if chair.digest.collectives <= number => Stand::Never,
                    // Counts of launches: one that has called may have gone through.
                    None if chair.digest.collectives_done.is_none() => Stand::Entered,
                    None => Stand::Finished,
                };
                inside |= chair.stand.is_inside() || !unseen && chair.pairs().next().is_some();
            }
            circle.is_inside = inside;
        }
    }

    /// Rank in the job, else within the communicator.
    pub(crate) fn rank_of(&self, chair: &Chair<'_>) -> u32 {
        self.rows.get(chair.row).and_then(|r| r.seat.digest.rank).unwrap_or(chair.rank)
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
