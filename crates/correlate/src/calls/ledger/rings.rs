//! Groups as the rings of NCCL's plugin see them: every operation of a process, with its state.

use std::collections::BTreeMap;

use ringleader_model::{Case, Observation, OpKind, RingComm, RingRecord, SourceKind};

use super::Calls;
use super::counted::{Room, name_world_ranks};
use crate::prepare::rings::rings;
use crate::track::{Call, Group, GroupRecorder, Origin, P2pCall, Track};
use crate::who::roster::Roster;

pub(super) fn ring_groups<'a>(
    case: &'a Case,
    roster: &Roster,
    calls: &mut Calls,
    room: &mut Room,
) -> Vec<Group<'a>> {
    // Communicators meet by NCCL's own number. One that was created again under the same number has another size or
    // comes later; a number is a hash of addresses and times, so the latest counts.
    let mut by_id: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (observation, ring) in rings(case) {
        let rank = roster.rank_of_ring(observation);
        let mut tracks = tracks(observation, ring, calls);
        for (at, comm) in ring.comms.iter().enumerate() {
            let (true, Some(member)) = (comm.id != 0 && comm.size > 0, comm.rank) else { continue };
            let key = (comm.id, comm.size);
            if !by_id.contains_key(&key) && !room.take(comm.size as usize) {
                continue;
            }
            let place = *by_id.entry(key).or_insert_with(|| {
                groups.push(fresh(comm, roster));
                groups.len() - 1
            });
            let (Some(group), Some(track)) = (groups.get_mut(place), tracks.get_mut(at)) else { continue };
            // Several ranks in one process: the environment names the process, not the rank.
            let alone = ring.comms.iter().filter(|c| c.id == comm.id && c.rank != comm.rank).count() == 0;
            track.rank = rank.filter(|_| alone);
            let member = member as usize;
            if let Some(slot) = group.ranks.get_mut(member) {
                *slot = slot.or(track.rank);
            }
            if let Some(slot) = group.tracks.get_mut(member)
                && slot.as_ref().is_none_or(|old: &Track<'_>| old.entered <= track.entered)
            {
                *slot = Some(track.clone());
            }
        }
    }
    let mut n_named: BTreeMap<String, usize> = BTreeMap::new();
    for group in &groups {
        *n_named.entry(group.name.clone()).or_default() += 1;
    }
    let ids: BTreeMap<usize, u64> = by_id.into_iter().map(|((id, _), at)| (at, id)).collect();
    for (at, group) in groups.iter_mut().enumerate() {
        name_world_ranks(group);
        // Programs give several communicators one name.
        if let (Some(2..), Some(id)) = (n_named.get(&group.name), ids.get(&at)) {
            group.name = format!("{} (communicator {id:016x})", group.name);
        }
    }
    groups
}

fn fresh<'a>(comm: &RingComm, roster: &Roster) -> Group<'a> {
    let number = || format!("communicator {:016x}", comm.id);
    let name = if comm.name.is_empty() { number() } else { comm.name.to_string() };
    Group {
        view: GroupRecorder::Ring,
        name,
        is_unnamed: comm.name.is_empty(),
        ranks: vec![None; comm.size as usize],
        tracks: vec![None; comm.size as usize],
        is_world: roster.world_size == Some(comm.size),
        counts: Vec::new(),
        silent: Vec::new(),
    }
}

/// Most numbers that a ring may leave out between two operations that it knows.
const MAX_HOLE: usize = 1 << 16;

/// One track for each communicator of a ring.
fn tracks<'a>(observation: &'a Observation, ring: &'a RingRecord, calls: &mut Calls) -> Vec<Track<'a>> {
    let table: Vec<u32> = ring.calls.iter().map(|call| calls.intern(ring_call(call))).collect();
    let mut tracks: Vec<Track<'a>> = ring
        .comms
        .iter()
        .map(|comm| Track {
            rank: None,
            cite: observation.cite,
            kind: SourceKind::Ring,
            origin: Origin::Ring(ring),
            first_seq: 0,
            calls: Vec::new(),
            ops: Vec::new(),
            entered: u32::try_from(comm.collectives).unwrap_or(u32::MAX),
            finished: None,
            p2p: Vec::new(),
            from_start: true,
            open_end: false,
            p2p_open: false,
            lines: Vec::new(),
        })
        .collect();
    // The oldest collective of each communicator that is in flight, and whether all that is in flight can be seen to
    // end.
    let mut open: Vec<Option<u32>> = vec![None; tracks.len()];
    let mut blind: Vec<bool> = vec![false; tracks.len()];
    for (at, op) in ring.ops.iter().enumerate() {
        let comm = op.comm as usize;
        let (Some(track), Some(call)) = (tracks.get_mut(comm), ring.calls.get(op.call as usize)) else {
            continue;
        };
        // What a rank sends to itself waits for nobody, and NCCL reports no kernel for it.
        if op.is_p2p && call.peer.is_some() && call.peer == ring.comms.get(comm).and_then(|c| c.rank) {
            continue;
        }
        if !op.is_end_visible && op.ended_ns == 0 {
            blind.iter_mut().skip(comm).take(1).for_each(|b| *b = true);
        }
        if op.is_p2p {
            let Some(peer) = call.peer else { continue };
            track.p2p.push(P2pCall {
                peer,
                is_send: call.kind == OpKind::Send,
                done: if op.is_end_visible || op.ended_ns > 0 { Some(!op.is_open()) } else { None },
                op: at as u32,
                elements: call.count,
            });
            continue;
        }
        if track.calls.is_empty() {
            track.first_seq = op.number;
        }
        let Some(place) = op.number.checked_sub(track.first_seq) else { continue };
        let place = place as usize;
        if place < track.calls.len() || place > track.calls.len().saturating_add(MAX_HOLE) {
            continue;
        }
        track.calls.resize(place, Track::GAP);
        track.ops.resize(place, Track::GAP);
        track.calls.push(table.get(op.call as usize).copied().unwrap_or(Track::GAP));
        track.ops.push(at as u32);
        track.entered = track.entered.max(op.number);
        if op.is_open()
            && let Some(oldest) = open.get_mut(comm)
        {
            *oldest = Some(oldest.map_or(op.number, |o| o.min(op.number)));
        }
    }
    for (((track, comm), open), blind) in tracks.iter_mut().zip(&ring.comms).zip(open).zip(blind) {
        let first = if track.calls.is_empty() { track.entered.saturating_add(1) } else { track.first_seq };
        track.first_seq = first;
        track.from_start = first <= 1 && track.p2p.len() as u64 == comm.p2p;
        track.finished = match open {
            Some(number) => Some(number.saturating_sub(1)),
            None if blind => None,
            None => Some(track.entered),
        };
    }
    tracks
}

fn ring_call(call: &ringleader_model::RingCall) -> Call {
    let loose = call.kind.sizes_may_differ();
    let elements = if loose { 0 } else { call.count };
    let rooted = matches!(call.kind, OpKind::Broadcast | OpKind::Reduce | OpKind::Gather | OpKind::Scatter);
    Call {
        kind: call.kind,
        elements_in: elements,
        elements_out: elements,
        dtype: call.dtype.clone(),
        root: call.root.filter(|_| rooted).and_then(|r| i32::try_from(r).ok()).unwrap_or(-1),
        redop: "",
    }
}
