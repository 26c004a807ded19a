//! The picture beside a verdict: who did what around the failure, who waits for whom, where processes are, the
//! machines, and what became of each error statement. It concludes nothing: it shows what the scene holds, in bounds.

mod calls;
mod events;
mod facts;
mod guess;
mod machines;
mod ranks;
mod statements;

use ringleader_correlate::Scene;
use ringleader_model::{Cause, Picture, PicturedMember, Rank};

use crate::weigh::Decision;

/// Draws the picture of a job on which the verdict is known.
pub(crate) fn picture(scene: &Scene<'_>, decision: &Decision) -> Picture {
    let verdict = &decision.verdict;
    let accused: Vec<Rank> = verdict.culprits.iter().filter_map(|c| c.rank).collect();
    let waits = calls::waits(scene, &accused);
    let (timeline, failed_ns) = calls::timeline(scene, &accused);
    let standings = ranks::standings(scene, &accused);
    let (machines, n_machines_left_out) = machines::machines(scene, verdict);
    let (statements, n_statements_left_out) = statements::statements(scene, &verdict.findings);
    let candidates = match verdict.cause {
        Cause::Undecided => statements::candidates(scene, verdict),
        _ => guess::candidates(decision),
    };
    Picture {
        statements,
        n_statements_left_out,
        events: events::events(scene, verdict),
        facts: facts::facts(scene),
        calls: calls::calls(scene),
        differences: facts::differences(scene),
        span: facts::span(scene),
        world_size: scene.roster().world_size,
        candidates,
        standings,
        members: members(scene),
        waits,
        stacks: ranks::stacks(scene),
        machines,
        n_machines_left_out,
        timeline,
        failed_ns,
        jobs: Vec::new(),
    }
}

/// The processes of the job that have a rank, the current one of each.
fn members(scene: &Scene<'_>) -> Vec<PicturedMember> {
    let ranked = scene.roster().members.iter().filter(|m| !m.is_followed);
    let mut members: Vec<PicturedMember> = ranked
        .filter_map(|m| Some(PicturedMember { rank: m.rank?, host: m.host.clone(), pid: m.pid }))
        .collect();
    members.sort_by_key(|m| m.rank);
    members.dedup_by_key(|m| m.rank);
    members
}
