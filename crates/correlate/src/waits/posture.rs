//! What each rank does at the moment of a look, by its stack and the list of processes alone: it waits for others, it
//! works, or it rests somewhere of its own. For jobs without records of their operations.

use std::collections::BTreeMap;

use ringleader_knowledge::place::{is_aside, marks};
use ringleader_model::{Evidence, Frame, Rank};

use crate::process::condition::{Busy, Condition, Conditions, ProcessState, ProgramPosition, is_marked};

/// Where all others wait for their GPUs, those in a call are odd if they are at most one rank in this many. Chosen: a third; of
/// more, either part may be the odd one.
const IN_CALL_ONE_IN: usize = 3;

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posture {
    /// Its stack is inside a call that waits for other ranks.
    InCollective,
    /// It waits for its GPU, or spins in code of its own as programs do that wait for a result of the GPU.
    OnGpu,
    /// It sleeps, or works at what its frames show, and waits for no GPU and no other rank.
    Rests,
    /// It is stopped, or blocked in the kernel.
    Halted,
}

/// One rank at the moment of the look.
#[derive(Clone, Debug)]
pub struct PostureLook<'c> {
    /// Who.
    pub rank: Rank,
    /// What it does.
    pub posture: Posture,
    /// Innermost frame of the user's own code.
    pub place: Option<&'c Frame>,
    /// What it does there, if its frames or the kernel's function show it.
    pub busy: Option<Busy>,
    /// It works at that, rather than waiting for it.
    pub works: bool,
    /// Share of a processor since its start, percent.
    pub cpu_pct: Option<f32>,
    /// Looks that show it in the same place.
    pub n_same: u32,
    /// As cited.
    pub evidence: Vec<Evidence>,
}

/// All ranks with a stack or a row in a process list, by rank.
pub fn looks(conditions: &Conditions) -> Vec<PostureLook<'_>> {
    conditions.all().filter_map(|(rank, condition)| look(rank, condition)).collect()
}

fn look(rank: Rank, condition: &Condition) -> Option<PostureLook<'_>> {
    let stand = condition.stand.as_ref();
    let state = condition.state.as_ref().map(|(state, _)| *state);
    let mut works = false;
    let posture = match (state, stand) {
        (Some(ProcessState::Stopped | ProcessState::Uninterruptible), _) => Posture::Halted,
        (Some(ProcessState::Zombie), _) => return None,
        // What it works at is its own, however busy the processor is.
        (_, Some(stand)) => {
            let posture = of_stack(stand, state)?;
            let has_work = condition.busy().is_some() && !stand.waits_in_gpu_or_collective();
            works = posture == Posture::OnGpu && has_work;
            if works { Posture::Rests } else { posture }
        }
        (Some(ProcessState::Running), None) => Posture::OnGpu,
        (Some(ProcessState::Sleeping), None) => Posture::Rests,
        (None, None) => return None,
    };
    let rows = condition.state.iter().map(|(_, row)| row);
    Some(PostureLook {
        rank,
        posture,
        place: stand.and_then(ProgramPosition::place),
        busy: condition.busy(),
        works,
        cpu_pct: condition.cpu_pct,
        n_same: condition.n_same_looks,
        evidence: stand.map(|s| &s.evidence).into_iter().chain(rows).cloned().collect(),
    })
}

fn of_stack(stand: &ProgramPosition, state: Option<ProcessState>) -> Option<Posture> {
    if stand.is_leaving() || stand.is_joining() {
        return None;
    }
    if stand.is_in_collective() {
        return Some(Posture::InCollective);
    }
    // A thread that waits for the GPU keeps its processor busy.
    let spins = stand.active.unwrap_or(state == Some(ProcessState::Running));
    Some(if stand.waits_in_gpu_or_collective() || spins { Posture::OnGpu } else { Posture::Rests })
}

impl PostureLook<'_> {
    /// Whether it waits: for other ranks, or for its GPU, whose work may wait for them.
    pub fn waits(&self) -> bool {
        matches!(self.posture, Posture::InCollective | Posture::OnGpu)
    }
}

/// The ranks of each place of their own code, in the order of the first rank of each.
pub fn by_place<'c>(looks: &[&PostureLook<'c>]) -> Vec<(&'c Frame, Vec<Rank>)> {
    let mut at: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    let mut groups: Vec<(&Frame, Vec<Rank>)> = Vec::new();
    for look in looks {
        let Some(place) = look.place else { continue };
        let number = *at.entry((&place.file, place.line)).or_insert(groups.len());
        match groups.get_mut(number) {
            Some((_, ranks)) => ranks.push(look.rank),
            None => groups.push((place, vec![look.rank])),
        }
    }
    groups
}

/// Who left the common path: all but those of the place where most stand; else the few that evaluate, save or log while the
/// others do not, or that are out of the step in whose backward pass the others are. Empty if that cannot be told.
pub fn odd_ones(conditions: &Conditions, looks: &[&PostureLook<'_>]) -> Vec<Rank> {
    let n = looks.len();
    let by_place = by_place(looks);
    if by_place.len() > 1 && by_place.iter().any(|(_, ranks)| n > 2 && ranks.len() * 2 > n) {
        let few = by_place.iter().filter(|(_, ranks)| ranks.len() * 2 <= n);
        return few.flat_map(|(_, ranks)| ranks.iter().copied()).collect();
    }
    let frames = |look: &PostureLook<'_>, is: fn(&Frame) -> bool| {
        let stand = conditions.get(look.rank).and_then(|c| c.stand.as_ref());
        stand.is_some_and(|s| s.frames.iter().any(|f| !f.is_native() && is(f)))
    };
    let few = |is: &dyn Fn(&PostureLook<'_>) -> bool| {
        let found: Vec<Rank> = looks.iter().filter(|look| is(look)).map(|look| look.rank).collect();
        (!found.is_empty() && found.len() * 2 <= n).then_some(found)
    };
    few(&|look| frames(look, |f| is_aside(&f.function)))
        .or_else(|| few(&|look| !frames(look, is_backward)))
        .or_else(|| {
            // The others wait for what is on their GPUs: the call of the few is another one.
            let inside = few(&|look| look.posture == Posture::InCollective)?;
            let on_gpu = looks.iter().filter(|look| look.posture == Posture::OnGpu).count();
            (inside.len() + on_gpu == n && inside.len() * IN_CALL_ONE_IN <= n).then_some(inside)
        })
        .unwrap_or_default()
}

/// In the backward pass of a step.
fn is_backward(frame: &Frame) -> bool {
    is_marked(marks::BACKWARD, frame)
}
