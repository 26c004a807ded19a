//! What the watchdog lines of torch show of each rank: the operation that timed out and how far the rank had come.
//!
//! They replace the dump of a rank that left none, and are the whole ledger where there is only stderr.

use std::collections::BTreeMap;

use ringleader_model::{
    Case, Cite, Fact, Frame, GroupLabel, OpKind, Rank, SourceKind, TorchEvent, WorkDescription,
};

use crate::track::{Call, Group, GroupRecorder, Origin, P2pCall, Track};
use crate::who::roster::Roster;

/// One rank's last position in one group.
#[derive(Clone, Debug, Default)]
pub struct GroupPosition {
    /// The operation that timed out.
    pub work: Option<WorkDescription>,
    /// How long it had run, ms.
    pub ran_ms: Option<u64>,
    /// When the line was written, ns on the host's clock (no year).
    pub at_ns: Option<i64>,
    /// Sequence number that failed.
    pub seq: Option<u32>,
    /// Last enqueued.
    pub last_enqueued: Option<u32>,
    /// Last completed.
    pub last_completed: Option<u32>,
    /// Lines that say so.
    pub lines: Vec<(Cite, String)>,
    /// Stack of the failed collective, innermost first.
    pub frames: Vec<Frame>,
}

/// Positions of all ranks, by group.
#[derive(Clone, Debug, Default)]
pub struct WatchdogLines {
    /// (group, rank) to position. Lines that name no group are kept under an empty label until joined.
    stands: BTreeMap<(GroupLabel, Rank), GroupPosition>,
}

impl WatchdogLines {
    /// Collects the lines of a case.
    pub fn new(case: &Case) -> Self {
        let mut stands: BTreeMap<(GroupLabel, Rank), GroupPosition> = BTreeMap::new();
        let mut unnamed: BTreeMap<(Rank, u64), GroupPosition> = BTreeMap::new();
        let mut stacks: BTreeMap<Rank, Vec<Frame>> = BTreeMap::new();
        for observation in &case.observations {
            let (Fact::Torch(event), Some(rank)) = (&observation.fact, observation.who.rank) else {
                continue;
            };
            let line = || (observation.cite, observation.text.to_string());
            match event {
                TorchEvent::WatchdogTimeout { work, ran_ms, group } => {
                    // Without a number it stands nowhere among the calls.
                    let Some(number) = work.seq else { continue };
                    let stand = if *group == GroupLabel::default() {
                        unnamed.entry((rank, number)).or_default()
                    } else {
                        stands.entry((group.clone(), rank)).or_default()
                    };
                    // The oldest unfinished operation is the one that matters.
                    if stand.seq.is_none_or(|seq| number < u64::from(seq)) {
                        stand.seq = u32::try_from(number).ok();
                        stand.work = Some(work.clone());
                        stand.ran_ms = Some(*ran_ms);
                        stand.at_ns = observation.at.map(|t| t.ns);
                    }
                    stand.lines.push(line());
                }
                TorchEvent::WatchdogPosition { seq, last_enqueued, last_completed, group } => {
                    let stand = stands.entry((group.clone(), rank)).or_default();
                    if stand.last_enqueued.is_none() || seq.is_some() {
                        stand.last_enqueued = u32::try_from(*last_enqueued).ok();
                        stand.last_completed = u32::try_from(*last_completed).ok().or(Some(0));
                    }
                    if stand.seq.is_none() {
                        stand.seq = seq.and_then(|s| u32::try_from(s).ok());
                    }
                    if stand.lines.len() < 4 {
                        stand.lines.push(line());
                    }
                }
                TorchEvent::FailedCollectiveStack { frames } => {
                    stacks.entry(rank).or_insert_with(|| frames.clone());
                }
                _ => {}
            }
        }
        join_unnamed(&mut stands, unnamed);
        for ((_, rank), stand) in &mut stands {
            if let Some(frames) = stacks.get(rank) {
                stand.frames.clone_from(frames);
            }
        }
        Self { stands }
    }

    /// Position of a rank in a group.
    pub fn stand(&self, group: &str, rank: Rank) -> Option<&GroupPosition> {
        self.stands.iter().find(|((label, r), _)| *r == rank && matches(label, group)).map(|(_, s)| s)
    }

    /// Stack of the collective that timed out on a rank, in any group.
    pub fn frames_of(&self, rank: Rank) -> Option<&[Frame]> {
        self.stands
            .iter()
            .find(|((_, r), s)| *r == rank && !s.frames.is_empty())
            .map(|(_, s)| s.frames.as_slice())
    }

    /// All positions.
    pub fn all(&self) -> impl Iterator<Item = (&GroupLabel, Rank, &GroupPosition)> {
        self.stands.iter().map(|((label, rank), stand)| (label, *rank, stand))
    }

    /// Gives ranks of `group` that left no dump what their watchdog lines show.
    pub fn complete(&self, group: &mut Group<'_>, mut intern: impl FnMut(Call) -> u32) {
        for at in 0..group.ranks.len() {
            let Some(rank) = group.ranks.get(at).copied().flatten() else { continue };
            let Some(stand) = self.stand(&group.name, rank) else { continue };
            if let Some(Some(track)) = group.tracks.get_mut(at) {
                // A dump that was cut shows less than the watchdog knew.
                if track.open_end
                    && let Some(entered) = stand.last_enqueued
                    && entered >= track.entered
                {
                    track.entered = entered;
                    track.finished = stand.last_completed.or(track.finished);
                    track.open_end = false;
                    track.lines =
                        stand.lines.iter().map(|(cite, text)| (entered, *cite, text.clone())).collect();
                    extend_to_stand(track, stand, &mut intern);
                }
                continue;
            }
            let track = track_of(rank, stand, &mut intern);
            if let (Some(slot), Some(track)) = (group.tracks.get_mut(at), track) {
                *slot = Some(track);
            }
        }
    }

    /// Groups as the lines name them, without tracks yet: for cases with no dump at all.
    pub fn groups<'a>(&self, roster: &Roster) -> Vec<Group<'a>> {
        let mut labels: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
        for (label, rank) in self.stands.keys() {
            labels.entry(label_name(label)).or_default().push(*rank);
        }
        labels
            .into_iter()
            .map(|(name, mut seen)| {
                seen.sort_unstable();
                seen.dedup();
                // The default group has every rank; of others only the speakers are known to be members.
                let is_world = name == "default_pg";
                let ranks: Vec<Option<Rank>> = match roster.world_size {
                    Some(world) if is_world && world <= MAX_WORLD => {
                        (0..world).map(|r| Some(Rank(r))).collect()
                    }
                    _ => seen.into_iter().map(Some).collect(),
                };
                Group {
                    view: GroupRecorder::Flight,
                    name,
                    is_unnamed: false,
                    tracks: vec![None; ranks.len()],
                    ranks,
                    is_world,
                    counts: Vec::new(),
                    silent: Vec::new(),
                }
            })
            .collect()
    }
}

/// Timeout lines name no group in some versions; the position line that follows has the same rank and number.
fn join_unnamed(
    stands: &mut BTreeMap<(GroupLabel, Rank), GroupPosition>,
    unnamed: BTreeMap<(Rank, u64), GroupPosition>,
) {
    for ((rank, seq), stand) in unnamed {
        let named = stands
            .iter_mut()
            .find(|((_, r), s)| *r == rank && s.work.is_none() && s.seq.map(u64::from) == Some(seq))
            .map(|(_, s)| s);
        if let Some(named) = named {
            named.work = stand.work;
            named.ran_ms = stand.ran_ms;
            named.at_ns = stand.at_ns;
            let tail = std::mem::replace(&mut named.lines, stand.lines);
            named.lines.extend(tail);
        } else {
            let label = GroupLabel { id: None, guid: None, desc: Some("default_pg".into()) };
            let slot = stands.entry((label, rank)).or_default();
            if slot.seq.is_none() {
                *slot = stand;
            } else {
                slot.lines.extend(stand.lines);
            }
        }
    }
}

fn label_name(label: &GroupLabel) -> String {
    match (label.desc.as_deref(), label.guid.as_deref()) {
        (Some("default_pg"), _) => "default_pg".to_owned(),
        (Some("" | "undefined") | None, Some(guid)) => guid.to_owned(),
        (Some(desc), Some(guid)) => format!("{desc} ({guid})"),
        (Some(desc), None) => desc.to_owned(),
        (None, None) => "default_pg".to_owned(),
    }
}

fn matches(label: &GroupLabel, group: &str) -> bool {
    label_name(label) == group
}

/// Larger worlds are not spelled out: a number may be torn.
const MAX_WORLD: u32 = 1 << 20;
/// Calls between the end of a record and the one that timed out: with more, the numbers are not of one count.
const MAX_GAP: usize = 1 << 16;

/// Adds the call that timed out to a record that ends before it.
fn extend_to_stand(track: &mut Track<'_>, stand: &GroupPosition, intern: &mut impl FnMut(Call) -> u32) {
    let (Some(work), Some(seq)) = (&stand.work, stand.seq) else { return };
    let Some(place) = seq.checked_sub(track.first_seq).map(|p| p as usize) else { return };
    if work.kind.is_p2p()
        || work.kind == OpKind::Coalesced
        || place < track.calls.len()
        || place - track.calls.len() > MAX_GAP
    {
        return;
    }
    if track.calls.is_empty() {
        track.first_seq = seq;
    } else {
        track.calls.resize(place, Track::GAP);
        track.ops.resize(place, Track::GAP);
    }
    track.calls.push(intern(call_of(work)));
    track.ops.push(Track::GAP);
}

fn call_of(work: &WorkDescription) -> Call {
    let loose = work.kind.sizes_may_differ();
    Call {
        kind: if work.kind == OpKind::Barrier { OpKind::AllReduce } else { work.kind },
        elements_in: if loose { 0 } else { work.numel_in.unwrap_or(0) },
        elements_out: if loose { 0 } else { work.numel_out.unwrap_or(0) },
        dtype: "".into(),
        root: -1,
        redop: "",
    }
}

fn track_of<'a>(
    rank: Rank,
    stand: &GroupPosition,
    intern: &mut impl FnMut(Call) -> u32,
) -> Option<Track<'a>> {
    let (cite, _) = stand.lines.first()?;
    let mut track = Track {
        rank: Some(rank),
        cite: *cite,
        kind: SourceKind::TorchLog,
        origin: Origin::Lines,
        first_seq: 1,
        calls: Vec::new(),
        ops: Vec::new(),
        entered: stand.last_enqueued.or(stand.seq).unwrap_or(0),
        finished: stand.last_completed.or(stand.seq.map(|s| s.saturating_sub(1))),
        p2p: Vec::new(),
        from_start: false,
        open_end: false,
        p2p_open: false,
        lines: Vec::new(),
    };
    if let (Some(work), Some(seq)) = (&stand.work, stand.seq) {
        if work.kind.is_p2p() || work.kind == OpKind::Coalesced {
            // Its number is the point-to-point counter: it says nothing of the collectives, and names no peer.
            track.entered = 0;
            track.finished = Some(0);
            track.p2p.push(P2pCall {
                peer: u32::MAX,
                is_send: work.kind == OpKind::Send,
                done: Some(false),
                op: Track::GAP,
                elements: work.numel_in.unwrap_or(0),
            });
        } else {
            track.first_seq = seq;
            track.calls.push(intern(call_of(work)));
            track.ops.push(Track::GAP);
            track.entered = track.entered.max(seq);
        }
    }
    let seq = stand.seq.unwrap_or(0);
    track.lines = stand.lines.iter().map(|(cite, text)| (seq, *cite, text.clone())).collect();
    Some(track)
}
