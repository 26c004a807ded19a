//! # What it shows
//!
//! From watchdogs alone: a rank has finished calls that another one still waits in, so the calls of the two do not
//! belong together. From records of calls: two calls in a row differ, and no shift aligns the calls that follow.
//!
//! # Why it happens
//!
//! A rank left a loop early, skipped a call or made one more; from then on each of its calls meets a different call of
//! its peers. Some of those finish anyway, with wrong data, until two calls are incompatible.
//!
//! # Evidence
//!
//! The timeouts of two ranks of one group: their numbers and operations, and the last call that each has finished. Or
//! the calls of both from the first difference on. Of two ranks, the one whose call breaks the earlier pattern is
//! named.
//!
//! # What looks like it but is not
//!
//! A rank that is merely late waits in the call that its peers wait in, and has finished what they have.
//!
//! # What to do
//!
//! Compare what the ranks call: the one in the smaller call, of a metric, a barrier or a log, has usually left the
//! common path. The Flight Recorder shows the first call that differs.
//!
//! # References
//!
//! `torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp`: timeouts, last enqueued and last completed work.

use ringleader_model::{Cause, Confidence, Evidence, Impact, Rank, RankSet, SourceKind, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use crate::rules::calls::mismatch;
use ringleader_correlate::Scene;
use ringleader_correlate::calls::align::CallFault;
use ringleader_correlate::said::watchdog::GroupPosition;
use ringleader_correlate::track::RankOrSource;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "out-of-step",
    title: "ranks wait in calls that do not belong together",
    since: "0.2",
    doc: include_str!("out_of_step.rs"),
    check,
};

/// A call with this many times fewer elements is bookkeeping: a barrier, a metric.
const SMALLER: u64 = 8;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut by_group: std::collections::BTreeMap<&ringleader_model::GroupLabel, Vec<(Rank, &GroupPosition)>> =
        std::collections::BTreeMap::new();
    for (label, rank, stand) in scene.watchdog().all() {
        if stand.seq.is_some() && stand.work.as_ref().is_some_and(|w| !w.kind.is_p2p()) {
            by_group.entry(label).or_default().push((rank, stand));
        }
    }
    let found = by_group.values().find_map(|stands| {
        let behind = stands.iter().min_by_key(|(rank, s)| (s.seq, *rank))?;
        // It has finished the call that the other one waits in: a watchdog reports the oldest call that is unfinished.
        let ahead = stands.iter().find(|(_, s)| match s.last_completed {
            Some(completed) => Some(completed) >= behind.1.seq,
            None => s.work.is_some() && s.seq > behind.1.seq,
        })?;
        finding(scene, stands, *behind, *ahead)
    });
    let parted = mismatch::findings(scene, &RULE, Cause::CollectiveDesync, |m| {
        (m.fault == CallFault::Parted).then(|| {
            let title = format!("{}, and the calls that follow do not match either", mismatch::instead(m));
            let advice =
                "look for the branch that it alone took: an evaluation, a stop, a skipped or repeated batch";
            (title, vec![advice.to_owned()])
        })
    });
    Outcome::from_findings(found.into_iter().chain(parted).collect())
}

fn finding(
    scene: &Scene<'_>,
    stands: &[(Rank, &GroupPosition)],
    behind: (Rank, &GroupPosition),
    ahead: (Rank, &GroupPosition),
) -> Option<ringleader_model::Finding> {
    let call = |(_, stand): (Rank, &GroupPosition)| {
        let work = stand.work.as_ref()?;
        Some(format!("{} #{} ({} elements)", work.kind.name(), stand.seq?, work.numel_in.unwrap_or(0)))
    };
    let odd = odd_one(stands, behind, ahead);
    let title = format!(
        "{} waits in {}, {} past it in {}",
        drafting::rank(behind.0),
        call(behind)?,
        drafting::rank(ahead.0),
        call(ahead)?
    );
    let lines = [behind, ahead].into_iter().flat_map(|(_, stand)| stand.lines.iter().take(2));
    let evidence =
        lines.map(|(cite, text)| Evidence { cite: *cite, text: text.clone(), kind: SourceKind::TorchLog });
    let odd: Vec<RankOrSource> = odd.into_iter().map(RankOrSource::Rank).collect();
    let victims: RankSet = stands
        .iter()
        .map(|(rank, _)| *rank)
        .filter(|rank| !odd.contains(&RankOrSource::Rank(*rank)))
        .collect();
    Draft::new(RULE.id, Cause::CollectiveDesync, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .at_most(Confidence::Medium)
        .culprits(drafting::culprits(scene, &odd, None))
        .victims(victims)
        .evidence(evidence)
        .at(behind.1.at_ns)
        .advise_command(
            Impact::Harmless,
            "let the next run record the calls of all ranks",
            "TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun …",
        )
        .build()
}

/// Who left the common path: one against several that wait in the same call; of two the one in a call of bookkeeping.
fn odd_one(
    stands: &[(Rank, &GroupPosition)],
    behind: (Rank, &GroupPosition),
    ahead: (Rank, &GroupPosition),
) -> Option<Rank> {
    let with = |one: &GroupPosition| stands.iter().filter(|(_, s)| s.seq == one.seq).count();
    match (with(behind.1), with(ahead.1)) {
        (1, n) if n > 1 => return Some(behind.0),
        (n, 1) if n > 1 => return Some(ahead.0),
        (1, 1) => {}
        _ => return None,
    }
    let size =
        |s: &GroupPosition| s.work.as_ref().map(|w| w.numel_in.unwrap_or(0).max(w.numel_out.unwrap_or(0)));
    let (a, b) = (size(behind.1)?, size(ahead.1)?);
    if a.saturating_mul(SMALLER) <= b {
        Some(behind.0)
    } else if b.saturating_mul(SMALLER) <= a {
        Some(ahead.0)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::{GroupLabel, OpKind, TorchEvent, WorkDescription};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn waits(stage: StagedCase, rank: u32, seq: u64, kind: OpKind, n: u64, completed: i64) -> StagedCase {
        let work = WorkDescription {
            seq: Some(seq),
            kind,
            numel_in: Some(n),
            numel_out: Some(n),
            timeout_ms: Some(30_000),
        };
        let group =
            GroupLabel { id: Some("0".into()), guid: Some("0".into()), desc: Some("default_pg".into()) };
        let timeout = TorchEvent::WatchdogTimeout { work, ran_ms: 30_001, group: group.clone() };
        let position = TorchEvent::WatchdogPosition {
            seq: Some(seq),
            last_enqueued: seq as i64 + 1,
            last_completed: completed,
            group,
        };
        stage.torch(Some(rank), timeout, "Watchdog caught").torch(Some(rank), position, "failure detected")
    }

    #[test]
    fn one_has_finished_what_the_other_waits_in() {
        let first = waits(StagedCase::new(), 0, 41, OpKind::AllReduce, 267_025, 40);
        waits(first, 1, 43, OpKind::AllGather, 1_024, 42).expect(&RULE, &["collective-desync 1"]);
    }

    #[test]
    fn one_is_late() {
        let first = waits(StagedCase::new(), 0, 41, OpKind::AllReduce, 267_025, 40);
        waits(first, 1, 41, OpKind::AllReduce, 267_025, 40).silent(&RULE);
    }
}
