//! Where each rank is, equal ranks folded, and the stacks of all of them as one tree.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::{End, Fate, Killer, Life};
use ringleader_correlate::track::Origin;
use ringleader_correlate::waits::graph::FrontKind;
use ringleader_model::{Frame, FrameOwner, Rank, StackNode, Standing, StandingState, user_frame};

use super::calls::{decisive, operation};

/// Rows of ranks in the same place.
const MAX_STANDINGS: usize = 128;
/// Wordings of one row that are kept separate.
const MAX_ALIKE: usize = 8;
/// Frames of one stack, and of the tree.
const MAX_DEPTH: usize = 80;
const MAX_NODES: usize = 400;

/// Where each rank is; the accused and those that do not wait first. Empty if nothing is known of any.
pub(super) fn standings(scene: &Scene<'_>, accused: &[Rank]) -> Vec<Standing> {
    let mut at: BTreeMap<Rank, RankPicture> = BTreeMap::new();
    in_calls(scene, &mut |rank, state, doing, place| {
        let row = at.entry(rank).or_default();
        // The operation in which it waits is more informative than the one in which others wait for it.
        if row.state.is_none() || state == StandingState::Waits {
            (row.state, row.doing) = (Some(state), doing);
            row.place = place.or(row.place.take());
        }
    });
    for (rank, condition) in scene.conditions().all() {
        let row = at.entry(rank).or_default();
        if let Some(stand) = &condition.stand {
            row.place = stand.place().cloned().or(row.place.take());
        }
        let busy = condition.busy().map(|busy| busy.words());
        if let Some(busy) = busy.filter(|_| row.state != Some(StandingState::Waits)) {
            let besides = |doing: &str| {
                if doing.is_empty() { busy.clone() } else { format!("{busy}; {doing}") }
            };
            row.doing = Doing { words: besides(&row.doing.words), kind: besides(&row.doing.kind) };
        }
    }
    for (rank, fate) in scene.fates().all() {
        let row = at.entry(rank).or_default();
        row.fate = words(fate);
        let halted = match fate.life() {
            Life::Stopped => Some(StandingState::Stopped),
            Life::Blocked => Some(StandingState::Blocked),
            Life::Zombie | Life::Absent | Life::Closed => match fate.end() {
                End::InOrder | End::Untold if fate.life() == Life::Closed => Some(StandingState::Ended),
                End::InOrder => Some(StandingState::Ended),
                _ => Some(StandingState::Gone),
            },
            Life::Alive | Life::Unseen => None,
        };
        row.state = halted.or(row.state);
    }
    at.retain(|_, row| row.state.is_some() || !row.fate.is_empty() || row.place.is_some());
    if at.is_empty() {
        return Vec::new();
    }
    fold(at, accused)
}

/// Where one rank is, as far as it is known.
#[derive(Default)]
struct RankPicture {
    state: Option<StandingState>,
    fate: String,
    place: Option<Frame>,
    doing: Doing,
}

impl RankPicture {
    fn state(&self) -> StandingState {
        let unknown = if self.place.is_some() { StandingState::Alive } else { StandingState::NoRecord };
        self.state.unwrap_or(unknown)
    }
}

/// What a rank waits in, or does.
#[derive(Clone, Default)]
struct Doing {
    words: String,
    /// The same for all groups of one kind, which differ by a number in their names.
    kind: String,
}

type Tell<'t> = dyn FnMut(Rank, StandingState, Doing, Option<Frame>) + 't;

/// What the calls show of each rank.
fn in_calls(scene: &Scene<'_>, tell: &mut Tell<'_>) {
    let Some(decisive) = decisive(scene) else { return };
    let groups = scene.ledger().groups();
    let mut places = Places::default();
    for front in &decisive.fronts {
        let Some(group) = groups.get(front.group) else { continue };
        let op = operation(scene.ledger(), group, front);
        let (op, kind) = (op.to_string(), op.kind());
        let mut each = |members: &[usize], state: StandingState, words: &dyn Fn(&str) -> String| {
            let doing = Doing { words: words(&op), kind: words(&kind) };
            for at in members {
                let Some(rank) = group.rank(*at) else { continue };
                let track = group.tracks.get(*at).and_then(Option::as_ref);
                let place = match (track, front.what) {
                    (Some(track), FrontKind::Collective(seq)) if state == StandingState::Waits => {
                        track.op(seq).and_then(|op| places.get(track.origin, op).own.clone())
                    }
                    _ => None,
                };
                tell(rank, state, doing.clone(), place);
            }
        };
        each(&front.waiting, StandingState::Waits, &|op| format!("in {op}"));
        each(&front.behind, StandingState::Behind, &|op| format!("has not entered {op}"));
        each(&front.held, StandingState::Held, &|op| {
            format!("has entered {op}, but an older operation blocks it")
        });
        each(&front.unseen, StandingState::NoRecord, &|op| format!("no record of it in {op}"));
    }
}

/// Stacks of dumps by their place in memory: ranks of one job share them.
#[derive(Default)]
struct Places {
    known: BTreeMap<(usize, u32), Stack>,
}

#[derive(Clone, Default)]
struct Stack {
    /// Innermost first.
    frames: Vec<Frame>,
    own: Option<Frame>,
}

impl Places {
    fn get(&mut self, origin: Origin<'_>, op: u32) -> &Stack {
        let (key, dump) = match origin {
            Origin::Dump(dump) => {
                let stack = dump.ops.get(op as usize).map_or(u32::MAX, |op| op.stack);
                ((std::sync::Arc::as_ptr(&dump.stacks).addr(), stack), Some(dump))
            }
            _ => ((0, u32::MAX), None),
        };
        self.known.entry(key).or_insert_with(|| {
            let indices = dump.and_then(|dump| dump.stacks.get(key.1 as usize));
            let frame = |at: &u32| dump.and_then(|dump| dump.frames.get(*at as usize)).cloned();
            let frames: Vec<Frame> = indices.into_iter().flat_map(|s| s.iter().filter_map(frame)).collect();
            let own = user_frame(&frames).cloned();
            Stack { frames, own }
        })
    }
}

fn fold(at: BTreeMap<Rank, RankPicture>, accused: &[Rank]) -> Vec<Standing> {
    type Key = (bool, StandingState, String, Option<Frame>, String);
    let mut folded: BTreeMap<Key, (Vec<Rank>, BTreeSet<String>)> = BTreeMap::new();
    for (rank, row) in at {
        let is_other = !accused.contains(&rank);
        let state = row.state();
        let doing = if is_other { row.doing.kind } else { row.doing.words.clone() };
        let row_of = folded.entry((is_other, state, row.fate, row.place, doing)).or_default();
        row_of.0.push(rank);
        if row_of.1.len() < MAX_ALIKE {
            row_of.1.insert(row.doing.words);
        }
    }
    let mut rows: Vec<_> = folded.into_iter().collect();
    rows.sort_by_key(|((is_other, state, ..), (ranks, _))| {
        (
            *is_other,
            *state == StandingState::Waits,
            *state == StandingState::NoRecord,
            ranks.len(),
            ranks.first().copied(),
        )
    });
    rows.truncate(MAX_STANDINGS);
    rows.into_iter()
        .map(|((_, state, fate, place, _), (ranks, doing))| {
            let first = doing.first().cloned().unwrap_or_default();
            let doing = if doing.len() > 1 { format!("{first}, or the like in other groups") } else { first };
            Standing { ranks: ranks.into_iter().collect(), state, fate, place, doing }
        })
        .collect()
}

/// How a rank ended, or how it was seen last.
fn words(fate: &Fate) -> String {
    let end = match fate.end() {
        End::Killed { by: Killer::Memory, .. } => "killed by SIGKILL for lack of memory".to_owned(),
        End::Killed { by: Killer::Launcher, .. } => "killed by its launcher (SIGKILL)".to_owned(),
        End::Killed { by: Killer::Outside, .. } => "killed by SIGKILL".to_owned(),
        End::Crashed(signal) => format!("crashed by {}", signal.name),
        End::Aborted => "aborted by its watchdog (SIGABRT)".to_owned(),
        End::Terminated => "ended by SIGTERM".to_owned(),
        End::Exited(code) => format!("exited with code {code}"),
        End::CrashReported => "crashed".to_owned(),
        End::Raised => "raised an exception".to_owned(),
        End::InOrder => "exited cleanly".to_owned(),
        End::Untold => String::new(),
    };
    let life = match fate.life() {
        Life::Stopped => "stopped (state T)",
        Life::Blocked => "in the kernel (state D)",
        Life::Zombie => "a zombie (state Z)",
        Life::Absent => "missing from the process list",
        Life::Closed => "closed its communicators",
        Life::Alive | Life::Unseen => "",
    };
    match (life.is_empty(), end.is_empty()) {
        (_, true) => life.to_owned(),
        (true, false) => end,
        (false, false) => format!("{life}; {end}"),
    }
}

/// The stacks of all ranks, merged from the outside: of living processes; of ranks without one, the stack of the
/// unfinished call that its recorder kept.
pub(super) fn stacks(scene: &Scene<'_>) -> Vec<StackNode> {
    let mut by_frames: BTreeMap<Vec<Frame>, Vec<Rank>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (rank, condition) in scene.conditions().all() {
        let Some(stand) = condition.stand.as_ref().filter(|s| !s.frames.is_empty()) else { continue };
        seen.insert(rank);
        by_frames.entry(outside_in(&stand.frames)).or_default().push(rank);
    }
    let mut places = Places::default();
    let groups = scene.ledger().groups();
    let mut of_calls: BTreeMap<Vec<Frame>, Vec<Rank>> = BTreeMap::new();
    for front in decisive(scene).iter().flat_map(|w| &w.fronts) {
        let (Some(group), FrontKind::Collective(seq)) = (groups.get(front.group), front.what) else {
            continue;
        };
        for at in &front.waiting {
            let Some(rank) = group.rank(*at) else { continue };
            let track = group.tracks.get(*at).and_then(Option::as_ref);
            let Some((track, op)) = track.and_then(|t| Some((t, t.op(seq)?))) else { continue };
            let stack = places.get(track.origin, op);
            if !stack.frames.is_empty() && seen.insert(rank) {
                let frames = outside_in(&stack.frames);
                of_calls.entry(frames).or_default().push(rank);
            }
        }
    }
    for (frames, ranks) in of_calls {
        by_frames.entry(frames).or_default().extend(ranks);
    }
    let stacks: Vec<(Vec<Frame>, Vec<Rank>)> = by_frames.into_iter().collect();
    let mut nodes = Vec::new();
    merge(&stacks, 0, &mut nodes);
    nodes
}

fn outside_in(frames: &[Frame]) -> Vec<Frame> {
    frames.iter().take(MAX_DEPTH).rev().cloned().collect()
}

/// Adds the frames at this depth of sorted stacks that agree above it, each followed by what is below it.
fn merge(stacks: &[(Vec<Frame>, Vec<Rank>)], depth: usize, nodes: &mut Vec<StackNode>) {
    let mut branches: Vec<&[(Vec<Frame>, Vec<Rank>)]> =
        stacks.chunk_by(|a, b| a.0.get(depth) == b.0.get(depth)).collect();
    let n_ranks = |branch: &[(Vec<Frame>, Vec<Rank>)]| branch.iter().map(|(_, r)| r.len()).sum::<usize>();
    // The few that part from the others come first.
    branches.sort_by_key(|branch| n_ranks(branch));
    for branch in branches {
        let Some(frame) = branch.first().and_then(|(frames, _)| frames.get(depth)) else { continue };
        if nodes.len() >= MAX_NODES {
            return;
        }
        nodes.push(StackNode {
            frame: frame.clone(),
            depth: depth as u32,
            ranks: branch.iter().flat_map(|(_, ranks)| ranks.iter().copied()).collect(),
            is_own: frame.owner() == FrameOwner::User,
        });
        merge(branch, depth + 1, nodes);
    }
}
