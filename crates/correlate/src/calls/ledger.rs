//! Per group, each rank's sequence of operations, from whatever saw it.
//!
//! A group is seen through a view: Flight Recorder entries, NCCL's COLL lines, RAS counts, or the watchdog's lines.
//! Views are kept apart, since they count differently; that two of them say the same is what makes a verdict sure.

mod counted;
mod rings;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use rayon::prelude::*;
use ringleader_model::{
    Case, Cite, FlightDump, Frame, NcclLog, OpKind, OpState, Rank, RingRecord, SourceKind,
};

use counted::Room;

pub use rings::{n_set_aside, rank_of, rings};

use crate::said::watchdog::WatchdogLines;
use crate::who::dumps::OwnedDump;
use crate::who::roster::Roster;

/// Which recorder saw a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Flight Recorder dumps, completed by watchdog lines of ranks without a dump.
    Flight,
    /// Rings of NCCL's plugin.
    Ring,
    /// COLL lines of NCCL logs.
    Nccl,
    /// RAS launch counts.
    Ras,
}

impl View {
    /// Whether its recorder sees operations end, and numbers them itself: a track then tells what is unfinished.
    pub fn knows_ends(self) -> bool {
        matches!(self, Self::Flight | Self::Ring)
    }
}

/// What was called, comparable across ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Kind.
    pub kind: OpKind,
    /// Elements in; 0 where sizes may differ between ranks of a healthy call, or are unknown.
    pub elements_in: u64,
    /// Elements out; likewise.
    pub elements_out: u64,
    /// Type; empty = unknown.
    pub dtype: Box<str>,
    /// Root of a rooted collective; -1 = unknown or none.
    pub root: i32,
    /// Reduction; empty = unknown.
    pub redop: &'static str,
}

impl Call {
    /// Whether two ranks may call these together. What one view does not tell is no difference.
    pub fn fits(&self, other: &Self) -> bool {
        self.kind == other.kind && self.difference(other).is_none()
    }

    /// The first thing that differs, or None.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let text_differs = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        if self.kind != other.kind {
            Some(Difference::Kind)
        } else if self.root >= 0 && other.root >= 0 && self.root != other.root {
            Some(Difference::Root)
        } else if text_differs(self.redop, other.redop) {
            Some(Difference::Reduction)
        } else if text_differs(&self.dtype, &other.dtype) {
            Some(Difference::Type)
        } else if !self.kind.sizes_may_differ()
            && (self.elements_in != other.elements_in || self.elements_out != other.elements_out)
        {
            Some(Difference::Size)
        } else {
            None
        }
    }

    /// Bytes of the larger side; None where the number of elements or the size of one is unknown.
    pub fn bytes(&self) -> Option<u64> {
        let of_one = match &*self.dtype {
            "Char" | "Byte" | "Bool" | "Float8_e4m3fn" | "Float8_e5m2" => 1,
            "Half" | "BFloat16" | "Short" | "UInt16" => 2,
            "Int" | "UInt32" | "Float" => 4,
            "Long" | "UInt64" | "Double" => 8,
            _ => return None,
        };
        let elements = self.elements_in.max(self.elements_out);
        (elements > 0).then(|| elements.saturating_mul(of_one))
    }

    /// `all_reduce of 1048576 Float`.
    pub fn describe(&self) -> String {
        let elements = self.elements_in.max(self.elements_out);
        let mut text = self.kind.name().to_owned();
        if elements > 0 {
            let _ = write!(text, " of {elements}");
            if !self.dtype.is_empty() {
                let _ = write!(text, " {}", self.dtype);
            }
        } else if !self.dtype.is_empty() {
            let _ = write!(text, " ({})", self.dtype);
        }
        if self.root >= 0
            && matches!(self.kind, OpKind::Broadcast | OpKind::Reduce | OpKind::Gather | OpKind::Scatter)
        {
            let _ = write!(text, " root {}", self.root);
        }
        text
    }
}

/// How two calls at the same place differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Kind of operation.
    Kind,
    /// Root.
    Root,
    /// Reduction.
    Reduction,
    /// Data type.
    Type,
    /// Number of elements.
    Size,
}

/// Where a track's operations come from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// A dump; operation indices point into its `ops`.
    Dump(&'a FlightDump),
    /// A ring; operation indices point into its `ops`.
    Ring(&'a RingRecord),
    /// An NCCL log; operation indices point into its `calls`.
    Log(&'a NcclLog),
    /// Counts or watchdog lines: no operations behind the calls.
    Lines,
}

/// One rank's operations in one group.
#[derive(Clone, Debug)]
pub struct Track<'a> {
    /// Global rank, if known.
    pub rank: Option<Rank>,
    /// What proves it.
    pub cite: Cite,
    /// Kind of that source.
    pub kind: SourceKind,
    /// Behind the calls.
    pub origin: Origin<'a>,
    /// Sequence number of `calls[0]`.
    pub first_seq: u32,
    /// Calls by sequence number, contiguous: indices into [`Ledger::calls`]; [`Track::GAP`] where unknown.
    pub calls: Vec<u32>,
    /// Index of the operation behind each call in its origin.
    pub ops: Vec<u32>,
    /// Highest sequence number entered; 0 = none.
    pub entered: u32,
    /// All up to here are known to be finished; None = this view does not tell completion.
    pub finished: Option<u32>,
    /// Sends and receives, in order: (peer's group rank, is_send, op index).
    pub p2p: Vec<P2p>,
    /// The first operation is in the record (a ring that rolled over, or a log that begins late, has lost it).
    pub from_start: bool,
    /// The record may end before the rank did: what it does not show may still have happened.
    pub open_end: bool,
    /// The same for sends and receives, of which the watchdog's lines tell no number.
    pub p2p_open: bool,
    /// Lines that back the calls of a track without operations.
    pub lines: Vec<(u32, Cite, String)>,
}

/// One send or receive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct P2p {
    /// Peer's group rank.
    pub peer: u32,
    /// Send or receive.
    pub is_send: bool,
    /// Finished; None = unknown.
    pub done: Option<bool>,
    /// Index of the operation in its origin.
    pub op: u32,
    /// Elements.
    pub elements: u64,
}

impl Track<'_> {
    /// A call that is not known.
    pub const GAP: u32 = u32::MAX;

    /// Call with this sequence number.
    pub fn call(&self, seq: u32) -> Option<u32> {
        let at = seq.checked_sub(self.first_seq)?;
        self.calls.get(at as usize).copied().filter(|c| *c != Self::GAP)
    }

    /// Operation with this sequence number, as the recorder kept it.
    pub fn op(&self, seq: u32) -> Option<u32> {
        let at = seq.checked_sub(self.first_seq)?;
        self.ops.get(at as usize).copied().filter(|c| *c != Self::GAP)
    }

    /// Last sequence number in `calls`.
    pub fn last_seq(&self) -> u32 {
        self.first_seq.saturating_add(self.calls.len() as u32).saturating_sub(1)
    }

    /// Stack of an operation, innermost first.
    pub fn frames(&self, op: u32) -> Vec<Frame> {
        let Origin::Dump(dump) = self.origin else { return Vec::new() };
        let Some(stack) = dump.ops.get(op as usize).and_then(|op| dump.stacks.get(op.stack as usize)) else {
            return Vec::new();
        };
        stack.iter().filter_map(|f| dump.frames.get(*f as usize)).cloned().collect()
    }

    /// Time at which an operation was enqueued, on its host's clock; None where the view has none.
    pub fn created_ns(&self, op: u32) -> Option<i64> {
        match self.origin {
            Origin::Dump(dump) => dump.ops.get(op as usize).map(|o| o.created_ns).filter(|t| *t > 0),
            Origin::Log(log) => {
                log.calls.get(op as usize).map(|c| i64::from(c.at_s) * 1_000_000_000).filter(|t| *t > 0)
            }
            Origin::Ring(ring) => ring.ops.get(op as usize).map(|o| o.enqueued_ns).filter(|t| *t > 0),
            Origin::Lines => None,
        }
    }

    /// Cites an operation: line of a log, bytes of a ring, or the dump as a whole.
    pub fn cite_op(&self, op: u32) -> Cite {
        match self.origin {
            Origin::Log(log) => log.calls.get(op as usize).map_or(self.cite, |call| Cite {
                source: self.cite.source,
                line: call.line,
                start: call.offset,
                end: call.offset,
            }),
            Origin::Ring(ring) => ring.ops.get(op as usize).map_or(self.cite, |op| Cite {
                source: self.cite.source,
                line: 0,
                start: op.span.0,
                end: op.span.1,
            }),
            _ => self.cite,
        }
    }
}

/// A group as one view sees it.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// View.
    pub view: View,
    /// Name for people: `default_pg`, `dp`, or a communicator hash.
    pub name: String,
    /// Global ranks by group rank; None where unknown.
    pub ranks: Vec<Option<Rank>>,
    /// Tracks; `tracks[i]` belongs to group rank `i`; None = nothing recorded for it.
    pub tracks: Vec<Option<Track<'a>>>,
    /// All ranks of the job.
    pub is_world: bool,
    /// RAS only: counts per function, since it keeps no order.
    pub counts: Vec<Option<Vec<(OpKind, u64)>>>,
    /// RAS only: group ranks that gave no answer. (A rank that a cut report does not list is not among them.)
    pub silent: Vec<usize>,
}

impl Group<'_> {
    /// Global rank of a group rank.
    pub fn rank(&self, at: usize) -> Option<Rank> {
        self.ranks.get(at).copied().flatten()
    }
}

/// All groups of a job.
#[derive(Clone, Debug, Default)]
pub struct Ledger<'a> {
    /// Groups, by view and name.
    pub groups: Vec<Group<'a>>,
    /// Distinct calls.
    pub calls: Vec<Call>,
    /// Something stands still: a job says that it failed, or rings show an operation in flight for longer than the job's
    /// own rhythm explains.
    pub is_stalled: bool,
    /// Records contradict each other as one picture, and nothing failed: the job ran while they were copied.
    pub may_run: bool,
    /// Communicators and process groups for which there was no room.
    pub n_left_out: usize,
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
    /// Builds all views.
    pub fn new(case: &'a Case, roster: &Roster, dumps: &[OwnedDump<'a>], watchdog: &WatchdogLines) -> Self {
        let mut calls = Calls::default();
        let [mut of_dumps, mut of_rings, mut of_logs, mut of_ras] =
            [Room::new(), Room::new(), Room::new(), Room::new()];
        let mut groups = flight_groups(roster, dumps, watchdog, &mut calls, &mut of_dumps);
        groups.extend(rings::ring_groups(case, roster, &mut calls, &mut of_rings));
        let logged = counted::nccl_groups(case, roster, &mut calls, &mut of_logs);
        groups.extend(logged);
        groups.extend(counted::ras_groups(case, roster, &mut of_ras));
        let n_left_out = [of_dumps, of_rings, of_logs, of_ras].iter().map(|r| r.n_left_out).sum();
        Self { groups, calls: calls.all, is_stalled: false, may_run: false, n_left_out }
    }

    /// Whether the wait-for graph is better drawn from NCCL's logs: dumps of some ranks are missing, and the logs of all
    /// ranks are whole. Calls counted on every rank say more than states known of some.
    pub fn logs_know_more(&self) -> bool {
        let holes = |g: &Group<'_>| {
            g.tracks.iter().any(|t| t.as_ref().is_none_or(|t| matches!(t.origin, Origin::Lines)))
        };
        let whole =
            |g: &Group<'_>| g.tracks.iter().all(|t| t.as_ref().is_some_and(|t| t.from_start && !t.open_end));
        let of = |view: View| self.groups.iter().filter(move |g| g.view == view);
        let counted = of(View::Nccl)
            .flat_map(|g| g.tracks.iter().flatten())
            .any(|t| t.entered > 0 || !t.p2p.is_empty());
        of(View::Flight).any(holes) && of(View::Nccl).count() > 0 && of(View::Nccl).all(whole) && counted
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
                    view: View::Flight,
                    name: group_name(&group.name, &group.desc),
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
        // A second dump of the same rank: another attempt; `jobs` has told them apart before.
        return;
    }
    // Unknown owner. The last free place is as good as any: its rank is withdrawn, so nobody is blamed by place.
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
            track.p2p.push(P2p {
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
            // Members of a coalesced block share a number: the first stands for the block.
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

/// The end entry of a coalesced block carries the state; its members stay `scheduled` for ever.
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
