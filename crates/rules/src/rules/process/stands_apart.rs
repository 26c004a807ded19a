//! # What it shows
//!
//! From stacks and the process list alone: some ranks wait while another one sleeps elsewhere, or ranks wait in
//! different calls.
//!
//! # Why it happens
//!
//! A rank waits for a lock, a file, a question on its terminal, a debugger that was left in, or its data, while its peers
//! wait for it in a collective; or its program took another path and calls other collectives.
//!
//! # Evidence
//!
//! The main thread of each rank, its state and its share of a processor: a rank that waits for the GPU keeps a
//! processor busy, a sleeping one does not. A share much lower than its peers', a second sample at the same place, or a
//! timeout show that it has slept for long.
//!
//! # What looks like it but is not
//!
//! One sample of a running job catches ranks anywhere: without a sign that the state lasts, this rule asks for a second
//! sample. If operations are recorded, other rules know more.
//!
//! # What to do
//!
//! Take the stacks again a few seconds later; look at the code where the rank sleeps.
//!
//! # References
//!
//! py-spy's `active` and `idle`; proc(5) for states.

use ringleader_model::{Cause, Confidence, Frame, Impact, Need, RankSet, SourceKind, Weight};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;
use ringleader_correlate::waits::posture::{Posture, PostureLook, by_place, looks, odd_ones};
use ringleader_correlate::when::failure::Way;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "stands-apart",
    title: "stacks show one rank in a different place than its peers",
    since: "0.2",
    doc: include_str!("stands_apart.rs"),
    check,
};

/// Who waits for the GPU uses so many times the processor of who rests, if it has lasted: a rank that has rested for a
/// fifth of its life.
const BUSIER: f32 = 1.25;
/// Looks at a rank, beside its own, that are cited.
const CITED_WAITERS: usize = 3;
/// Places that a title names.
const SHOWN_PLACES: usize = 3;

fn check(scene: &Scene<'_>) -> Outcome {
    // Records of operations know more; the lines of a watchdog are of those that waited alone.
    let has_timed_out = scene.failure().has(Way::TimedOut);
    let is_recorded = scene.ledger().groups().iter().any(|g| g.tracks.iter().flatten().next().is_some());
    let is_known = !scene.suspects().is_empty() || !scene.mismatches().is_empty();
    // A snapshot looks twice, and rings, even damaged ones, are of a job that a watcher judges by its calls.
    let has_rings = scene.case().sources.iter().any(|s| s.kinds.contains(&SourceKind::Ring));
    let is_snapshot =
        has_rings || scene.process_tables().any(|(_, t)| t.rows.iter().any(|row| row.picked.is_some()));
    if is_snapshot || is_known || is_recorded && !has_timed_out || scene.failure().ended_process() {
        return Outcome::Clear;
    }
    let looks = looks(scene.conditions());
    let (waiting, others): (Vec<&PostureLook<'_>>, Vec<&PostureLook<'_>>) =
        looks.iter().partition(|l| l.waits());
    let resting: Vec<&PostureLook<'_>> =
        others.iter().copied().filter(|l| l.posture == Posture::Rests).collect();
    if waiting.is_empty() || others.len() > resting.len() {
        return Outcome::Clear;
    }
    if resting.is_empty() {
        return parted(scene, &waiting);
    }
    // Half of a job of two may be at fault, half of a larger one is not told from the other half.
    if resting.len() > waiting.len() {
        return Outcome::Clear;
    }
    let mut needs = Vec::new();
    let findings =
        resting.iter().filter_map(|look| apart(scene, look, &waiting, &mut needs)).collect::<Vec<_>>();
    if findings.is_empty() && !needs.is_empty() {
        Outcome::Undecided(needs)
    } else {
        Outcome::from_findings(findings)
    }
}

/// Signs that a rank has been where it is for long.
fn lasts(scene: &Scene<'_>, look: &PostureLook<'_>, waiting: &[&PostureLook<'_>]) -> usize {
    let least = waiting.iter().filter_map(|l| l.cpu_pct).fold(f32::INFINITY, f32::min);
    let is_idler = look.cpu_pct.is_some_and(|own| least.is_finite() && least >= own * BUSIER);
    let is_endless = look.busy.as_ref().is_some_and(|b| b.place.is_endless);
    let has_timed_out = scene.failure().has(Way::TimedOut) || scene.failure().has(Way::Stuck);
    let signs = [is_idler, is_endless, has_timed_out, look.n_same > 1];
    signs.into_iter().filter(|is| *is).count()
}

fn apart(
    scene: &Scene<'_>,
    look: &PostureLook<'_>,
    waiting: &[&PostureLook<'_>],
    needs: &mut Vec<Need>,
) -> Option<ringleader_model::Finding> {
    let n_signs = lasts(scene, look, waiting);
    let rank = drafting::rank(look.rank);
    let pid = drafting::pid_of(scene, look.rank);
    let is_waiting = waiting.iter().any(|l| l.place.is_some());
    // What waits for data or works in a library does so in a job that runs, too.
    let is_own_code = look.busy.is_none() && look.place.is_some();
    if n_signs == 0 && !(is_own_code && is_waiting) {
        needs.push(Need {
            question: format!(
                "{rank} sleeps while its peers run{}: is it still there a few seconds later?",
                drafting::at(look.place)
            ),
            command: format!("ringleader diagnose --live --pid {pid}"),
            ..Need::default()
        });
        return None;
    }
    let words = look.busy.as_ref().map_or_else(String::new, |b| format!(", {}", b.words()));
    let victims = waiting.iter().map(|l| l.rank).collect();
    let title = format!(
        "{rank} is elsewhere{words}{}; {} for it",
        drafting::at(look.place),
        drafting::waiting(&victims)
    );
    let cause = if look.works { Cause::SlowRankStall } else { Cause::StuckOutsideCollective };
    Draft::new(RULE.id, cause, title)
        .weight(Weight::Derived)
        .confidence(if n_signs > 0 { Confidence::Medium } else { Confidence::Low })
        .at_most(if n_signs > 1 { Confidence::High } else { Confidence::Medium })
        .culprits(drafting::culprits(scene, &[RankOrSource::Rank(look.rank)], look.place))
        .victims(victims)
        .evidence(look.evidence.iter().cloned())
        .evidence(waiting.iter().take(CITED_WAITERS).flat_map(|l| l.evidence.iter().cloned()))
        .advise_made(
            Impact::Harmless,
            "take its stack again a few seconds later: the same place means stuck, another means slow",
            Some(format!("ringleader diagnose --live --pid {pid}")),
        )
        .build()
}

/// All wait, and not in the same call.
fn parted(scene: &Scene<'_>, waiting: &[&PostureLook<'_>]) -> Outcome {
    let n_inside = waiting.iter().filter(|l| l.posture == Posture::InCollective).count();
    let lasts = scene.failure().has(Way::TimedOut) || waiting.iter().all(|l| l.n_same > 1);
    let places: Vec<&Frame> = waiting.iter().filter_map(|l| l.place).collect();
    let Some((first, rest)) = places.split_first() else { return Outcome::Clear };
    let is_same = |other: &&Frame| is_same_place(other, first);
    // Frames of a library in between may differ where the program stands at one line.
    let stacks_differ = waiting.iter().any(|l| l.posture != waiting[0].posture);
    if waiting.len() < 2 || places.len() < waiting.len() || rest.iter().all(is_same) && !stacks_differ {
        return Outcome::Clear;
    }
    if n_inside == 0 && !lasts {
        return Outcome::Clear;
    }
    let by_place = by_place(waiting);
    let shown: Vec<String> = by_place
        .iter()
        .take(SHOWN_PLACES)
        .map(|(place, ranks)| {
            let ranks: RankSet = ranks.iter().copied().collect();
            format!("{}{}", drafting::ranks(&ranks), drafting::at(Some(*place)))
        })
        .collect();
    let title = format!("ranks wait in different calls: {}", shown.join("; "));
    let odd: Vec<RankOrSource> =
        odd_ones(scene.conditions(), waiting).into_iter().map(RankOrSource::Rank).collect();
    let victims = waiting
        .iter()
        .map(|l| l.rank)
        .filter(|rank| !odd.is_empty() && !odd.contains(&RankOrSource::Rank(*rank)));
    let finding = Draft::new(RULE.id, Cause::CollectiveDesync, title)
        .weight(Weight::Derived)
        .confidence(if lasts { Confidence::Medium } else { Confidence::Low })
        .at_most(if lasts { Confidence::Medium } else { Confidence::Low })
        .culprits(drafting::culprits(scene, &odd, None))
        .victims(victims.collect())
        .evidence(waiting.iter().take(4).flat_map(|l| l.evidence.iter().cloned()))
        .advise(
            Impact::Harmless,
            "compare the two paths: a call under a condition on the rank, in an evaluation, a checkpoint or a log",
        )
        .build();
    Outcome::from_findings(finding.into_iter().collect())
}

fn is_same_place(a: &Frame, b: &Frame) -> bool {
    a.file == b.file && a.line == b.line
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const LOCK: (&str, u32, &str) = ("/srv/lock.py", 31, "wait_for_lock");
    const BARRIER: (&str, u32, &str) = ("torch/distributed/distributed_c10d.py", 5030, "barrier");
    const MAIN: (&str, u32, &str) = ("/srv/train.py", 90, "main");

    fn seen() -> StagedCase {
        StagedCase::new().process("node0", 100, Some(0)).process("node0", 101, Some(1))
    }

    #[test]
    fn one_rests_in_its_own_code() {
        seen()
            .stands(0, &[BARRIER, MAIN])
            .stands(1, &[LOCK])
            .ps("R S")
            .expect(&RULE, &["stuck-outside-collective 1"]);
    }

    #[test]
    fn all_in_the_same_call() {
        seen().stands(0, &[BARRIER, MAIN]).stands(1, &[BARRIER, MAIN]).silent(&RULE);
    }

    #[test]
    fn two_calls() {
        let other = ("/srv/train.py", 120, "evaluate");
        seen()
            .stands(0, &[BARRIER, MAIN])
            .stands(1, &[BARRIER, other])
            .expect(&RULE, &["collective-desync 1"]);
        // Two places of the same work: nobody can tell.
        let other = ("/srv/train.py", 120, "step");
        seen().stands(0, &[BARRIER, MAIN]).stands(1, &[BARRIER, other]).expect(&RULE, &["collective-desync"]);
    }

    #[test]
    fn one_of_four_in_another_call() {
        let other = ("/srv/train.py", 120, "step");
        let most = |stage: StagedCase| (1..4).fold(stage, |stage, rank| stage.stands(rank, &[BARRIER, MAIN]));
        let four = || seen().process("node0", 102, Some(2)).process("node0", 103, Some(3));
        most(four()).stands(0, &[BARRIER, other]).expect(&RULE, &["collective-desync 0"]);
        // Half and half.
        four()
            .stands(0, &[BARRIER, MAIN])
            .stands(1, &[BARRIER, MAIN])
            .stands(2, &[BARRIER, other])
            .stands(3, &[BARRIER, other])
            .expect(&RULE, &["collective-desync"]);
    }
}
