//! Per group, each rank's sequence of operations, from every recorder.
//!
//! A group is seen through a view: Flight Recorder entries, NCCL's COLL lines, RAS counts, or the watchdog's lines.
//! Views are kept separate, since they count differently; two of them that agree make a verdict sure.

mod counted;
mod rings;

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use ringleader_model::{Case, FlightDump, OpKind, OpState, SourceKind};

use counted::Room;

use crate::calls::moments::{self, Moment};
use crate::said::watchdog::WatchdogLines;
use crate::said::watcher::StandStill;
use crate::track::{Call, Group, GroupRecorder, Origin, P2pCall, Track};
use crate::when::failure::JobFailure;
use crate::who::dumps::OwnedDump;
use crate::who::roster::Roster;

/// All groups of a job. It does not change once it is built.
#[derive(Clone, Debug, Default)]
pub struct Ledger<'a> {
    groups: Vec<Group<'a>>,
    calls: Vec<Call>,
    moment: Moment,
    n_left_out: usize,
}

/// Distinct calls while a ledger is built.
#[derive(Default)]
struct Calls {
    by_call: BTreeMap<Call, u32>,
    all: Vec<Call>,
}

impl Calls {
    fn intern(&mut self, call: Call) -> u32 {
        if let Some(at) = self.by_call.get(&call) {
            return *at;
        }
        let at = self.all.len() as u32;
        self.all.push(call.clone());
        self.by_call.insert(call, at);
        at
    }
}

impl<'a> Ledger<'a> {
    /// Builds all views, and decides where records may end before their ranks did.
    pub fn new(
        case: &'a Case,
        roster: &Roster,
        dumps: &[OwnedDump<'a>],
        watchdog: &WatchdogLines,
        failure: &JobFailure,
        stood_still: &[StandStill<'a>],
    ) -> Self {
        let mut calls = Calls::default();
        let [mut of_dumps, mut of_rings, mut of_logs, mut of_ras] =
            [Room::new(), Room::new(), Room::new(), Room::new()];
        let mut groups = flight_groups(roster, dumps, watchdog, &mut calls, &mut of_dumps);
        groups.extend(rings::ring_groups(case, roster, &mut calls, &mut of_rings));
        let logged = counted::nccl_groups(case, roster, &mut calls, &mut of_logs);
        groups.extend(logged);
        groups.extend(counted::ras_groups(case, roster, &mut of_ras));
        let n_left_out = [of_dumps, of_rings, of_logs, of_ras].iter().map(|r| r.n_left_out).sum();
        let moment = moments::open_ends(&mut groups, &calls.all, case, failure, stood_still);
        Self { groups, calls: calls.all, moment, n_left_out }
    }

    /// Groups, by view and name.
    pub fn groups(&self) -> &[Group<'a>] {
        &self.groups
    }

    /// Distinct calls; tracks hold indices into them.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Something is stalled: a job says that it failed, or rings show an operation in flight for longer than the job's
    /// own rhythm explains.
    pub fn is_stalled(&self) -> bool {
        self.moment.is_stalled
    }

    /// Records contradict each other as one picture, and nothing failed: the job ran while they were copied.
    pub fn may_run(&self) -> bool {
        self.moment.may_run
    }

    /// Communicators and process groups for which there was no room.
    pub fn n_left_out(&self) -> usize {
        self.n_left_out
    }

    /// Whether the wait-for graph is better drawn from NCCL's logs: dumps of some ranks are missing, and the logs of
    /// all ranks are whole. Calls counted on every rank say more than states known of some.
    pub fn logs_know_more(&self) -> bool {
        let holes = |g: &Group<'_>| {
            g.tracks.iter().any(|t| t.as_ref().is_none_or(|t| matches!(t.origin, Origin::Lines)))
        };
        let whole =
            |g: &Group<'_>| g.tracks.iter().all(|t| t.as_ref().is_some_and(|t| t.from_start && !t.open_end));
        let of = |view: GroupRecorder| self.groups.iter().filter(move |g| g.view == view);
        let counted = of(GroupRecorder::Nccl)
            .flat_map(|g| g.tracks.iter().flatten())
            .any(|t| t.entered > 0 || !t.p2p.is_empty());
        of(GroupRecorder::Flight).any(holes)
            && of(GroupRecorder::Nccl).count() > 0
            && of(GroupRecorder::Nccl).all(whole)
            && counted
    }

    /// Call behind an index.
    pub fn get(&self, call: u32) -> Option<&Call> {
        self.calls.get(call as usize)
    }
}

fn flight_call(signature: &ringleader_model::Signature) -> Call {
    let loose = signature.kind.sizes_may_differ();
    let mut dtype: Vec<&str> =
        signature.input_dtypes.iter().chain(&signature.output_dtypes).map(|d| &**d).collect();
    dtype.dedup();
    dtype.sort_unstable();
    dtype.dedup();
    Call {
        kind: if signature.kind == OpKind::Barrier { OpKind::AllReduce } else { signature.kind },
        elements_in: if loose { 0 } else { signature.input_elements() },
        elements_out: if loose { 0 } else { signature.output_elements() },
        dtype: if loose && signature.kind == OpKind::Coalesced { "".into() } else { dtype.join("+").into() },
        root: -1,
        redop: "",
    }
}

fn flight_groups<'a>(
    roster: &Roster,
    dumps: &[OwnedDump<'a>],
    watchdog: &WatchdogLines,
    calls: &mut Calls,
    room: &mut Room,
) -> Vec<Group<'a>> {
    // Groups meet by name and description; ids are local to each process.
    let mut by_name: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    // By the place in memory of a table that dumps may share.
    let mut tables: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for dump in dumps.iter().map(|owned| owned.dump) {
        tables
            .entry(Arc::as_ptr(&dump.signatures).addr())
            .or_insert_with(|| dump.signatures.iter().map(|s| calls.intern(flight_call(s))).collect());
    }
    // Dump by dump on all processors; joined in their order.
    let of_dumps: Vec<Vec<Track<'a>>> = dumps
        .par_iter()
        .map(|owned| {
            let table = tables.get(&Arc::as_ptr(&owned.dump.signatures).addr());
            let mut tracks: Vec<Track<'a>> = owned.dump.groups.iter().map(|_| flight_track(owned)).collect();
            fill_tracks(owned.dump, table.map_or(&[], Vec::as_slice), &mut tracks);
            tracks
        })
        .collect();
    for (owned, tracks) in dumps.iter().zip(of_dumps) {
        for (group, track) in owned.dump.groups.iter().zip(tracks) {
            let at = *by_name.entry((&group.name, &group.desc)).or_insert_with(|| {
                groups.push(Group {
                    view: GroupRecorder::Flight,
                    name: group_name(&group.name, &group.desc),
                    is_unnamed: false,
                    ranks: Vec::new(),
                    tracks: Vec::new(),
                    is_world: false,
                    counts: Vec::new(),
                    silent: Vec::new(),
                });
                groups.len() - 1
            });
            let Some(target) = groups.get_mut(at) else { continue };
            let more = group.ranks.len().saturating_sub(target.ranks.len());
            if more > 0 && room.take(more) {
                target.ranks = group.ranks.iter().copied().map(Some).collect();
                target.tracks.resize(group.ranks.len(), None);
            }
            place_track(target, track);
        }
    }
    for group in &mut groups {
        group.is_world = roster.world_size == Some(group.ranks.len() as u32);
        watchdog.complete(group, |call| calls.intern(call));
    }
    if groups.is_empty() {
        let mut fresh = watchdog.groups(roster);
        for group in &mut fresh {
            watchdog.complete(group, |call| calls.intern(call));
        }
        groups = fresh;
    }
    groups
}

/// Puts a track at its rank's place; one whose rank is unknown goes to a free place, so that its content still counts.
fn place_track<'a>(group: &mut Group<'a>, track: Track<'a>) {
    let at = match track.rank {
        // Nearly always in ascending order: a place among ten thousand is not searched from the first.
        Some(rank) => match group.ranks.binary_search(&Some(rank)) {
            Ok(at) => Some(at),
            Err(_) => group.ranks.iter().position(|r| *r == Some(rank)),
        },
        None => None,
    };
    if let Some(at) = at
        && let Some(slot @ None) = group.tracks.get_mut(at)
    {
        *slot = Some(track);
        return;
    }
    if track.rank.is_some() && at.is_some() {
        // A second dump of the same rank: another attempt; `jobs` has separated them before.
        return;
    }
    // Unknown owner. Any free place will do, such as the last: its rank is removed, so no rank is blamed because of its
    // place.
    let free = group.tracks.iter().rposition(Option::is_none);
    if let Some(free) = free {
        if let Some(rank) = group.ranks.get_mut(free) {
            *rank = track.rank;
        }
        if let Some(slot) = group.tracks.get_mut(free) {
            *slot = Some(track);
        }
    } else {
        group.ranks.push(track.rank);
        group.tracks.push(Some(track));
    }
}

fn group_name(name: &str, desc: &str) -> String {
    match desc {
        "" | "undefined" => name.to_owned(),
        "default_pg" => "default_pg".to_owned(),
        desc => format!("{desc} ({name})"),
    }
}

fn flight_track<'a>(owned: &OwnedDump<'a>) -> Track<'a> {
    Track {
        rank: owned.rank,
        cite: owned.observation.cite,
        kind: SourceKind::FlightRecorder,
        origin: Origin::Dump(owned.dump),
        first_seq: 0,
        calls: Vec::new(),
        ops: Vec::new(),
        entered: 0,
        finished: Some(0),
        p2p: Vec::new(),
        from_start: owned.dump.ops.first().is_none_or(|op| op.record_id == 0),
        open_end: owned.dump.truncated,
        p2p_open: owned.dump.truncated,
        lines: Vec::new(),
    }
}

/// Numbers that may be missing in a track beyond a few for each entry: a wild number must not cost memory.
const MAX_HOLE: usize = 1 << 16;

/// Distributes a dump's entries over the tracks of its groups.
fn fill_tracks(dump: &FlightDump, table: &[u32], tracks: &mut [Track<'_>]) {
    let mut n_ops: Vec<usize> = vec![0; tracks.len()];
    for op in &dump.ops {
        if let Some(n) = n_ops.get_mut(op.group as usize) {
            *n += 1;
        }
    }
    for (track, n) in tracks.iter_mut().zip(n_ops) {
        track.calls.reserve_exact(n);
        track.ops.reserve_exact(n);
    }
    // First unfinished collective per group; everything before it is finished.
    let mut unfinished: Vec<Option<u32>> = vec![None; tracks.len()];
    for (at, op) in dump.ops.iter().enumerate() {
        let Some(track) = tracks.get_mut(op.group as usize) else { continue };
        let Some(signature) = dump.signatures.get(op.signature as usize) else { continue };
        let at = at as u32;
        if signature.kind == OpKind::Coalesced {
            settle_block(dump, at, op.group, op.state == OpState::Completed, track, &mut unfinished);
            continue;
        }
        if op.is_p2p() || signature.kind.is_p2p() {
            let Some(peer) = signature.peer else { continue };
            track.p2p.push(P2pCall {
                peer: peer.0,
                is_send: signature.kind == OpKind::Send,
                done: Some(op.state == OpState::Completed),
                op: at,
                elements: signature.input_elements().max(signature.output_elements()),
            });
            continue;
        }
        let Some(call) = table.get(op.signature as usize) else { continue };
        if track.calls.is_empty() {
            track.first_seq = op.seq;
        }
        let Some(place) = op.seq.checked_sub(track.first_seq) else { continue };
        let place = place as usize;
        match place.cmp(&track.calls.len()) {
            std::cmp::Ordering::Equal => {
                track.calls.push(*call);
                track.ops.push(at);
            }
            // Members of a coalesced block share a number: the first represents the block.
            std::cmp::Ordering::Less => continue,
            std::cmp::Ordering::Greater => {
                // Point-to-point blocks and lost entries leave holes; a wild number must not cost memory.
                if place > dump.ops.len().saturating_mul(4).saturating_add(MAX_HOLE) {
                    continue;
                }
                track.calls.resize(place, Track::GAP);
                track.ops.resize(place, Track::GAP);
                track.calls.push(*call);
                track.ops.push(at);
            }
        }
        track.entered = track.entered.max(op.seq);
        if op.state != OpState::Completed
            && let Some(first) = unfinished.get_mut(op.group as usize)
            && first.is_none_or(|seq| op.seq < seq)
        {
            *first = Some(op.seq);
        }
    }
    for (track, first) in tracks.iter_mut().zip(unfinished) {
        track.finished = Some(first.map_or(track.entered, |seq| seq.saturating_sub(1)));
    }
}

/// The end entry of a coalesced block carries the state; its members stay `scheduled` forever.
fn settle_block(
    dump: &FlightDump,
    end: u32,
    group: u16,
    done: bool,
    track: &mut Track<'_>,
    unfinished: &mut [Option<u32>],
) {
    let Some(block) = dump.ops.get(end as usize) else { return };
    for p2p in track.p2p.iter_mut().rev() {
        match dump.ops.get(p2p.op as usize) {
            Some(op) if op.seq == block.seq && op.p2p_seq == block.p2p_seq => {
                p2p.done = Some(done || p2p.done == Some(true));
            }
            _ => break,
        }
    }
    if done
        && let Some(first) = unfinished.get_mut(group as usize)
        && *first == Some(block.seq)
    {
        *first = None;
    }
}
