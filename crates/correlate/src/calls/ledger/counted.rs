//! Groups seen by counting: COLL lines of NCCL's logs, launch counts of RAS.

use std::collections::BTreeMap;

use ringleader_model::{
    Case, Fact, NcclComm, NcclLog, OpKind, Rank, SourceKind, nccl_datatype_name, nccl_redop_name,
};

use super::Calls;
use crate::track::{Call, Group, GroupRecorder, Origin, P2pCall, Track};
use crate::who::roster::Roster;

/// Limit for the members of all groups of one view together. A log may claim communicators of any size; those that find
/// no room are left out and counted.
pub(super) struct Room {
    left: usize,
    /// Groups left out.
    pub(super) n_left_out: usize,
}

impl Room {
    /// Members of all groups of a view.
    const PLACES: usize = 1 << 19;

    pub(super) fn new() -> Self {
        Self { left: Self::PLACES, n_left_out: 0 }
    }

    /// Takes room for this many members, if there is enough.
    pub(super) fn take(&mut self, n_members: usize) -> bool {
        let left = self.left.checked_sub(n_members);
        match left {
            Some(left) => self.left = left,
            None => self.n_left_out += 1,
        }
        left.is_some()
    }
}

pub(super) fn nccl_groups<'a>(
    case: &'a Case,
    roster: &Roster,
    calls: &mut Calls,
    room: &mut Room,
) -> Vec<Group<'a>> {
    // Communicators meet by commId. Splits of newer versions print none: they meet by parent, color and size.
    let mut keys: BTreeMap<(u64, u64, i64, u32), usize> = BTreeMap::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for observation in &case.observations {
        let Fact::Nccl(log) = &observation.fact else { continue };
        let mut tracks: Vec<Track<'a>> = log
            .comms
            .iter()
            .enumerate()
            .map(|(at, comm)| Track {
                rank: log
                    .processes
                    .get(comm.process as usize)
                    .and_then(|p| roster.find(&p.who))
                    .and_then(|m| m.rank),
                cite: comm.started.or(comm.completed).unwrap_or(observation.cite),
                kind: SourceKind::NcclLog,
                origin: Origin::Log(log),
                first_seq: dropped(log, at).saturating_add(1),
                calls: Vec::new(),
                ops: Vec::new(),
                entered: dropped(log, at),
                finished: None,
                p2p: Vec::new(),
                from_start: comm.started.is_some() || comm.completed.is_some(),
                open_end: log.truncated,
                p2p_open: log.truncated,
                lines: Vec::new(),
            })
            .collect();
        for (at, call) in log.calls.iter().enumerate() {
            let Some(track) = tracks.get_mut(call.comm as usize) else { continue };
            // Logs before NCCL 2.4 tell of no beginning, but count a communicator's calls from 0. A count that stays 0 counts nothing.
            let is_first = track.ops.is_empty() && track.p2p.is_empty() && track.entered == 0;
            track.from_start |= is_first && call.op_count == 0 && goes_up(log, at);
            if call.kind.is_p2p() {
                let peer = call.root.max(0) as u32;
                let is_send = call.kind == OpKind::Send;
                track.p2p.push(P2pCall { peer, is_send, done: None, op: at as u32, elements: call.count });
                continue;
            }
            let rooted =
                matches!(call.kind, OpKind::Broadcast | OpKind::Reduce | OpKind::Gather | OpKind::Scatter);
            let reduces = matches!(call.kind, OpKind::AllReduce | OpKind::Reduce | OpKind::ReduceScatter);
            let loose = call.kind.sizes_may_differ();
            track.calls.push(calls.intern(Call {
                kind: call.kind,
                elements_in: if loose { 0 } else { call.count },
                elements_out: if loose { 0 } else { call.count },
                dtype: nccl_datatype_name(call.datatype).into(),
                root: if rooted { call.root } else { -1 },
                // Averages and custom sums are made by the caller's own library and numbered per process.
                redop: if reduces && call.redop < 5 { nccl_redop_name(call.redop) } else { "" },
            }));
            track.ops.push(at as u32);
            track.entered = track.entered.saturating_add(1);
        }
        for ((comm, track), key) in log.comms.iter().zip(tracks).zip(communicator_keys(log)) {
            if !keys.contains_key(&key) && !room.take(comm.n_ranks as usize) {
                continue;
            }
            let at = *keys.entry(key).or_insert_with(|| {
                groups.push(Group {
                    view: GroupRecorder::Nccl,
                    name: comm.comm_id.map_or_else(
                        || "split communicator".to_owned(),
                        |id| format!("communicator {id:016x}"),
                    ),
                    is_unnamed: comm.comm_id.is_some(),
                    ranks: vec![None; comm.n_ranks as usize],
                    tracks: vec![None; comm.n_ranks as usize],
                    is_world: roster.world_size == Some(comm.n_ranks),
                    counts: Vec::new(),
                    silent: Vec::new(),
                });
                groups.len() - 1
            });
            let Some(group) = groups.get_mut(at) else { continue };
            if let Some(rank) = group.ranks.get_mut(comm.rank.0 as usize) {
                *rank = track.rank;
            }
            if let Some(slot) = group.tracks.get_mut(comm.rank.0 as usize) {
                // The same log given twice must not count twice; the longer one has more to say.
                if slot
                    .as_ref()
                    .is_none_or(|old| old.calls.len() + old.p2p.len() < track.calls.len() + track.p2p.len())
                {
                    *slot = Some(track);
                }
            }
        }
    }
    for group in &mut groups {
        name_world_ranks(group);
    }
    groups
}

/// Whether NCCL's own count of its communicator's calls goes up behind this call, or it is the last one.
fn goes_up(log: &NcclLog, at: usize) -> bool {
    let mut rest = log.calls.iter().skip(at);
    let Some(call) = rest.next() else { return false };
    rest.find(|next| next.comm == call.comm).is_none_or(|next| next.op_count > call.op_count)
}

/// What makes a communicator the same on all its members: its commId; for splits of versions that print none, the
/// parent's, the colour, and that it is the n-th such split.
fn communicator_keys(log: &NcclLog) -> impl Iterator<Item = (u64, u64, i64, u32)> {
    // Of each process: the commId of a pointer's first communicator, and how many splits of a parent and colour came
    // before a pointer's first one.
    let mut ids: BTreeMap<(u32, u64), Option<u64>> = BTreeMap::new();
    let mut n_splits: BTreeMap<_, u64> = BTreeMap::new();
    let mut places: BTreeMap<_, u64> = BTreeMap::new();
    for comm in &log.comms {
        ids.entry((comm.process, comm.ptr)).or_insert(comm.comm_id);
        let split = (comm.process, comm.parent, comm.color);
        let n = n_splits.entry(split).or_default();
        places.entry((split, comm.ptr)).or_insert(*n);
        *n += 1;
    }
    log.comms.iter().map(move |comm: &NcclComm| {
        if let Some(id) = comm.comm_id {
            return (id, 0, 0, comm.n_ranks);
        }
        let parent = comm.parent.and_then(|ptr| ids.get(&(comm.process, ptr)).copied()?).unwrap_or(0);
        let nth = places.get(&((comm.process, comm.parent, comm.color), comm.ptr)).copied().unwrap_or(0);
        (parent, 1 + nth, comm.color.unwrap_or(-1), comm.n_ranks)
    })
}

/// Calls of a communicator that the reader left out to keep within its bound: the oldest ones.
fn dropped(log: &NcclLog, comm: usize) -> u32 {
    log.dropped_of_comm.get(comm).map_or(0, |n| u32::try_from(*n).unwrap_or(u32::MAX))
}

/// In a communicator of the whole job the group rank is the global rank.
pub(super) fn name_world_ranks(group: &mut Group<'_>) {
    if !group.is_world {
        return;
    }
    for (at, rank) in group.ranks.iter_mut().enumerate() {
        rank.get_or_insert(Rank(at as u32));
    }
    for (at, track) in group.tracks.iter_mut().enumerate() {
        if let Some(track) = track {
            track.rank.get_or_insert(Rank(at as u32));
        }
    }
}

pub(super) fn ras_groups<'a>(case: &'a Case, roster: &Roster, room: &mut Room) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<u64, Group<'a>> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Ras(report) = &observation.fact else { continue };
        for comm in &report.comms {
            let size = comm.size as usize;
            if size == 0 {
                continue;
            }
            if !groups.contains_key(&comm.hash) && !room.take(size) {
                continue;
            }
            let group = groups.entry(comm.hash).or_insert_with(|| Group {
                view: GroupRecorder::Ras,
                name: format!("communicator {:016x}", comm.hash),
                is_unnamed: true,
                ranks: vec![None; size],
                tracks: vec![None; size],
                is_world: roster.world_size == Some(comm.size),
                counts: vec![None; size],
                silent: Vec::new(),
            });
            let unanswered = comm.missing.iter().filter(|p| p.unresponsive || p.dead);
            group.silent.extend(unanswered.filter_map(|p| p.rank.map(|r| r.0 as usize)));
            for rank in &comm.ranks {
                let Some(at) = rank.peer.rank.map(|r| r.0 as usize) else { continue };
                let global = rank.peer.pid.and_then(|pid| roster.rank_of(pid, rank.peer.host.as_ref()));
                if let Some(slot) = group.ranks.get_mut(at) {
                    *slot = slot.or(global);
                }
                if let Some(slot) = group.tracks.get_mut(at)
                    && slot.is_none()
                {
                    *slot = Some(Track {
                        rank: global,
                        cite: observation.cite,
                        kind: SourceKind::Ras,
                        origin: Origin::Lines,
                        first_seq: 1,
                        calls: Vec::new(),
                        ops: Vec::new(),
                        entered: 0,
                        finished: None,
                        p2p: Vec::new(),
                        from_start: true,
                        open_end: false,
                        p2p_open: false,
                        lines: Vec::new(),
                    });
                }
                if let Some(slot) = group.counts.get_mut(at)
                    && (slot.is_none() || !rank.counts.is_empty())
                {
                    *slot = Some(rank.counts.clone());
                }
            }
            fill_majority(group, comm);
        }
    }
    let mut groups: Vec<Group<'a>> = groups.into_values().collect();
    for group in &mut groups {
        name_world_ranks(group);
        for (track, counts) in group.tracks.iter_mut().zip(&group.counts) {
            if let (Some(track), Some(counts)) = (track, counts) {
                track.entered =
                    counts.iter().fold(0, |all: u64, (_, n)| all.saturating_add(*n)).min(u64::from(u32::MAX))
                        as u32;
            }
        }
    }
    groups
}

/// The text form lists outliers only; the others share the majority's count.
fn fill_majority(group: &mut Group<'_>, comm: &ringleader_model::RasComm) {
    if comm.majority_counts.is_empty() {
        return;
    }
    let kinds: Vec<(OpKind, u64)> =
        comm.majority_counts.iter().map(|(kind, _, count)| (*kind, *count)).collect();
    let absent: Vec<usize> = comm.missing.iter().filter_map(|p| p.rank.map(|r| r.0 as usize)).collect();
    for (at, slot) in group.counts.iter_mut().enumerate() {
        if absent.contains(&at) {
            continue;
        }
        let counts = slot.get_or_insert_with(Vec::new);
        for (kind, count) in &kinds {
            if !counts.iter().any(|(k, _)| k == kind) {
                counts.push((*kind, *count));
            }
        }
    }
}
