//! What each rank does at the moment of a look, by its stack and the list of processes alone: it waits for others, it
//! works, or it rests somewhere of its own. For jobs without records of their operations.

use ringleader_model::{Evidence, Frame, Rank};

use crate::process::condition::{Busy, Condition, Conditions, ProcessState, Stand};

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posture {
    /// Its stack is inside a call that waits for other ranks.
    InCollective,
    /// It waits for its GPU, or spins in code of its own as programs do that wait for a result of the GPU.
    OnGpu,
    /// It sleeps, and waits for no GPU and no other rank.
    Rests,
    /// It is stopped, or blocked in the kernel.
    Halted,
}

/// One rank at the moment of the look.
#[derive(Clone, Debug)]
pub struct Look<'c> {
    /// Who.
    pub rank: Rank,
    /// What it does.
    pub posture: Posture,
    /// Innermost frame of the user's own code.
    pub place: Option<&'c Frame>,
    /// What it does there, if its frames or the kernel's function show it.
    pub busy: Option<Busy>,
    /// Share of a processor since its start, percent.
    pub cpu_pct: Option<f32>,
    /// Looks that show it in the same place.
    pub n_same: u32,
    /// As cited.
    pub evidence: Vec<Evidence>,
}

/// All ranks with a stack or a row in a process list, by rank.
pub fn looks(conditions: &Conditions) -> Vec<Look<'_>> {
    conditions.all().filter_map(|(rank, condition)| look(rank, condition)).collect()
}

fn look(rank: Rank, condition: &Condition) -> Option<Look<'_>> {
    let stand = condition.stand.as_ref();
    let state = condition.state.as_ref().map(|(state, _)| *state);
    let posture = match (state, stand) {
        (Some(ProcessState::Stopped | ProcessState::Uninterruptible), _) => Posture::Halted,
        (Some(ProcessState::Zombie), _) => return None,
        (_, Some(stand)) => of_stack(stand, state)?,
        (Some(ProcessState::Running), None) => Posture::OnGpu,
        (Some(ProcessState::Sleeping), None) => Posture::Rests,
        (None, None) => return None,
    };
    let rows = condition.state.iter().map(|(_, row)| row);
    Some(Look {
        rank,
        posture,
        place: stand.and_then(Stand::place),
        busy: condition.busy(),
        cpu_pct: condition.cpu_pct,
        n_same: condition.n_same_looks,
        evidence: stand.map(|s| &s.evidence).into_iter().chain(rows).cloned().collect(),
    })
}

fn of_stack(stand: &Stand, state: Option<ProcessState>) -> Option<Posture> {
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
