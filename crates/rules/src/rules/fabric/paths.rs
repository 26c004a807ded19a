//! Whether two NICs have a way to each other, and had one.

use ringleader_correlate::Scene;
use ringleader_correlate::said::gid;
use ringleader_correlate::said::messages::Claim;
use ringleader_knowledge::wording;
use ringleader_model::{Fact, NcclProcess};

/// Calls after which the path is known to have worked: a job that made so many has done several steps.
const CALLS_OF_A_RUNNING_JOB: usize = 50;
/// Retries run out within seconds: communicators that were up for longer had a path.
const UP_NS: i64 = 60_000_000_000;

/// Whether a failure of verbs shows two NICs between which there is no way: of two subnets, or of one host.
pub(super) fn has_no_path(scene: &Scene<'_>, claim: &Claim<'_>) -> bool {
    wording::gids(&claim.text).is_some_and(|(a, b)| gid::apart(a, b))
        || is_within_host(scene, claim) && !was_running(scene)
}

/// Whether the peer of a failed work request is on the host that reports it: `from peer 10.0.0.7<54800> with status=12`, where
/// 10.0.0.7 is the reporter's own address. Then its NICs cannot reach each other, whatever the other hosts do.
pub(super) fn is_within_host(scene: &Scene<'_>, claim: &Claim<'_>) -> bool {
    let Some(peer) = wording::completion_peer(&claim.text) else { return false };
    let is_own = |process: &NcclProcess| {
        let address = process.meets_at().map(|socket| socket.address);
        process.who.host.is_some() && process.who.host == claim.who.host && address == Some(peer)
    };
    scene.case().observations.iter().any(|o| match &o.fact {
        Fact::Nccl(log) => log.processes.iter().any(is_own),
        _ => false,
    })
}

/// The path had worked: many calls were made, or the communicators had been up for a while.
pub(super) fn was_running(scene: &Scene<'_>) -> bool {
    scene.nccl_logs().any(|(_, log)| {
        let ready =
            log.comms.iter().filter(|c| c.completed.is_some()).filter_map(|c| c.at).map(|at| at.ns).max();
        let silent = log.messages.iter().filter(|m| wording::is_completion(&m.text)).filter_map(|m| m.at);
        log.calls.len() > CALLS_OF_A_RUNNING_JOB
            || ready.is_some_and(|ready| silent.map(|at| at.ns).any(|at| at - ready > UP_NS))
    })
}
