//! # What it shows
//! A rank gave up waiting for a message or for a key of the store, and one rank alone could have sent or set it.
//!
//! # Why it happens
//! The other rank was busy or stuck elsewhere for longer than the timeout, or went on without its send.
//!
//! # Evidence
//! The exception of the rank that waited: Gloo's and the store's words say for how long. All other ranks but one gave up
//! as well, or the job has two ranks.
//!
//! # What looks like it but is not
//! A rank that crashed or was killed sends nothing either: how it ended is the cause. Of several ranks that wait for
//! nobody's message in particular, nobody is named.
//!
//! # What to do
//! Look at what the other rank did at that time; give slow work a longer timeout.
//!
//! # References
//! Gloo, gloo/transport/tcp/unbound_buffer.cc; PyTorch, torch/csrc/distributed/c10d/TCPStore.cpp.

use ringleader_correlate::process::thrown;
use ringleader_knowledge::message::MessageRow;
use ringleader_model::{
    Cause, Confidence, Evidence, FrameOwner, Impact, PythonException, Rank, RankSet, TorchEvent, Weight,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "waited-in-vain",
    title: "a rank gave up waiting for a message of another",
    since: "0.3",
    doc: include_str!("waited_in_vain.rs"),
    check,
};

/// Messages of Gloo: a send or receive within `ProcessGroupGloo`.
const GLOO: &str = "gloo-recv-timeout";
/// Messages of Gloo's barrier, which quotes them.
const BARRIER: [&str; 3] = [
    "torch-gloo-monitored-barrier-failed",
    "torch-gloo-monitored-barrier-ranks",
    "torch-gloo-monitored-barrier-reached",
];
/// The message of the store.
const STORE: &str = "torch-store-wait-timeout";
/// Citations at most.
const CITATIONS: usize = 3;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut waiting: Vec<(Rank, Evidence)> = Vec::new();
    for statement in scene.statements() {
        let TorchEvent::Exception(raised) = statement.event else { continue };
        let Some(rank) = statement.who().rank.filter(|_| is_wait(raised)) else { continue };
        if !waiting.iter().any(|(known, _)| *known == rank) {
            waiting.push((rank, statement.evidence()));
        }
    }
    if waiting.is_empty() {
        return Outcome::Clear;
    }
    let waits: RankSet = waiting.iter().map(|(rank, _)| *rank).collect();
    let known = scene.roster().members.iter().filter_map(|member| member.rank);
    let world = scene.roster().world_size.unwrap_or_default();
    let all: RankSet = known.chain((0..world.min(MAX_WORLD)).map(Rank)).collect();
    let mut others = all.ranks().iter().filter(|rank| !waits.contains(**rank));
    let (Some(other), None) = (others.next(), others.next()) else { return Outcome::Clear };
    if scene.fate(*other).is_some_and(|fate| fate.failed() || fate.is_halted()) {
        return Outcome::Clear;
    }
    // It waits in a collective itself: it went on without what the others wait for.
    let went_on = scene.condition(*other).and_then(|condition| condition.timed_out.clone());
    let who = drafting::rank(*other);
    let (cause, title) = match &went_on {
        Some(_) => (
            Cause::UnmatchedP2p,
            format!(
                "{who} went on to wait in a collective, without the message that {} for",
                drafting::waiting(&waits)
            ),
        ),
        None => (
            Cause::StuckOutsideCollective,
            format!("{who} sent nothing until its timeout was over; {} for it", drafting::waiting(&waits)),
        ),
    };
    let finding = Draft::new(RULE.id, cause, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .at_most(Confidence::Medium)
        .culprits([scene.roster().culprit_rank(*other)])
        .victims(waits)
        .evidence(waiting.into_iter().take(CITATIONS).map(|(_, evidence)| evidence))
        .evidence(went_on)
        .advise(
            Impact::Harmless,
            format!("look at what {who} did in that time: its output, and its stack in the next run"),
        )
        .advise(Impact::Harmless, "if it only needs longer, give the process group a longer timeout")
        .build();
    Outcome::from_findings(finding.into_iter().collect())
}

/// Larger jobs name nobody here.
const MAX_WORLD: u32 = 1024;

/// Whether a rank raised this because nothing came for too long. Of the store only what the program itself waited for: the
/// keys of process groups have messages of their own.
fn is_wait(raised: &PythonException) -> bool {
    let rows: Vec<&str> = thrown::rows(raised).map(MessageRow::id).collect();
    let is_gloo = rows.contains(&GLOO) && !BARRIER.iter().any(|id| rows.contains(id));
    let is_own = || raised.frames.first().is_some_and(|frame| frame.owner() == FrameOwner::User);
    is_gloo || rows.contains(&STORE) && is_own()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const GLOO: &str =
        "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation to complete";
    const KEY: &str = "wait timeout after 30000ms, keys: /default_pg/0//shards/ready";

    #[test]
    fn its_messages_are_rows_of_the_table() {
        let ids = super::BARRIER.into_iter().chain([super::GLOO, super::STORE]);
        ids.for_each(|id| assert!(ringleader_knowledge::message::get(id).is_some(), "{id}"));
    }

    #[test]
    fn the_other_of_two_sent_nothing() {
        let job = || {
            StagedCase::new().two_ranks().raised(
                Some(0),
                "RuntimeError",
                GLOO,
                &[("/srv/train.py", 89, "learn")],
            )
        };
        job().concludes(&RULE, "stuck-outside-collective 1, medium");
        // It failed: that is why.
        job().failed(1, -9, true).silent(&RULE);
        job().raised(Some(1), "RuntimeError", GLOO, &[]).silent(&RULE);
    }

    #[test]
    fn the_other_waits_in_a_collective() {
        let job = StagedCase::new().two_ranks().raised(
            Some(0),
            "RuntimeError",
            GLOO,
            &[("/srv/train.py", 89, "learn")],
        );
        job.timed_out(1, "ar:9", 15, 15).expect(&RULE, &["unmatched-p2p 1"]);
    }

    #[test]
    fn a_key_of_the_program_that_nobody_set() {
        let own = [("/srv/train.py", 84, "run")];
        let job =
            |frames| StagedCase::job(2).raised(Some(1), "torch.distributed.DistStoreError", KEY, frames);
        job(&own).concludes(&RULE, "stuck-outside-collective 0, medium");
        job(&[("/x/site-packages/torch/distributed/c10d.py", 2, "new_group"), ("/srv/train.py", 84, "run")])
            .silent(&RULE);
    }

    #[test]
    fn several_that_may_have_failed_to_send_name_nobody() {
        StagedCase::job(4).logs().raised(Some(0), "RuntimeError", GLOO, &[]).silent(&RULE);
        let barrier = "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 10000 ms. Original exception: Timed out \
                       waiting 10000ms for recv operation to complete";
        StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", barrier, &[]).silent(&RULE);
    }
}
