//! # What it shows
//! One rank continued without a collective that every other rank of the group calls. From then on its sequence numbers
//! are one behind, so it and its peers wait in different operations.
//!
//! # Why it happens
//! A branch that depends on the rank, on its data (an empty batch, a frozen parameter, a text-only sample), or an
//! exception that was caught and ignored.
//!
//! # Evidence
//! The operation records of the group: what follows the first difference aligns again once the odd rank is shifted by
//! the calls it left out. One call fewer in total; NCCL's lines, the recorder and the watchdog count it alike.
//!
//! # What looks like it but is not
//! A changed size looks the same at the first difference; afterwards the calls are aligned again without a
//! shift. A rank that is late or stuck has entered fewer calls but none that differ.
//!
//! # What to do
//! Make all ranks take the same path to the call, or call it with a zero contribution where there is nothing
//! to add.
//!
//! # References
//! PyTorch docs, Flight Recorder for Debugging Stuck Jobs; NCCL user guide, collective communication
//! semantics.

use ringleader_model::{
    Cause, Confidence, Evidence, Finding, Impact, NamedCall, RankSet, SourceKind, Weight,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use crate::rules::calls::mismatch::{and_more, findings};
use ringleader_correlate::Scene;
use ringleader_correlate::calls::align::CallFault;
use ringleader_correlate::track::{Group, GroupRecorder};
use ringleader_correlate::track::{RankOrSource, node};
use ringleader_correlate::waits::graph::FrontKind;
use ringleader_correlate::waits::suspects;

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "skipped-collective",
    title: "a rank skipped a collective that its peers call",
    since: "0.1",
    doc: include_str!("skipped_collective.rs"),
    check,
};

/// Where nothing shows of what the odd rank would have called next.
const OTHER_ORDER: &str = "no later call of that rank is recorded: if it makes the missing call afterwards, only the order differs (collective-order-mismatch)";

fn check(scene: &Scene<'_>) -> Outcome {
    let mut found = findings(scene, &RULE, Cause::SkippedCollective, |m| {
        let CallFault::Skipped(n) = m.fault else { return None };
        let (odd, waiting) = (drafting::who(&m.odd), drafting::waiting(&m.usual));
        let title = format!(
            "{odd} skipped {} #{} of {}{}; {waiting} in it",
            m.usual_call,
            m.seq,
            m.group,
            and_more(n)
        );
        let place = drafting::at(m.place.as_ref());
        let mut advice = vec![format!(
            "make every rank reach the call{place}: look for a branch on the rank, on data, or on a local error around it"
        )];
        if m.n_confirmed == 0 {
            advice.push(OTHER_ORDER.to_owned());
        }
        Some((title, advice))
    });
    found.extend(gone_on(scene));
    found.extend(run_ahead(scene));
    Outcome::from_findings(found)
}

/// The calls of a group are all alike, so the records do not differ; but all its other ranks wait for one that waits
/// for one of them in another group, in a later call.
fn gone_on(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for waits in scene.waits().iter().filter(|w| w.view.knows_ends()) {
        for (who, front) in
            waits.cycles.iter().filter_map(|cycle| suspects::went_on(scene.ledger(), waits, cycle))
        {
            let FrontKind::Collective(seq) = front.what else { continue };
            let Some(group) = scene.ledger().groups().get(front.group) else { continue };
            if scene.has_parted(who) {
                continue;
            }
            let waiting = front.waiting.iter().filter_map(|m| group.tracks.get(*m)?.as_ref());
            // Where the others make the call. Of rings only stacks tell it.
            let place = waiting.clone().find_map(|t| {
                let called = scene.proof().place_near(t, &group.name, seq);
                called.or_else(|| scene.proof().standing(t).cloned())
            });
            let victims: RankSet = front.waiting.iter().filter_map(|m| group.rank(*m)).collect();
            let title = format!(
                "{} went on without #{seq} of {}; {} in it",
                drafting::who(&[who]),
                group.name,
                drafting::waiting(&victims)
            );
            findings.extend(
                Draft::new(RULE.id, Cause::SkippedCollective, title)
                    .call(NamedCall { group: group.name.clone(), number: seq.into() })
                    .weight(Weight::Stated)
                    .confidence(Confidence::Medium)
                    .culprits(drafting::culprits(scene, &[who], place.as_ref()))
                    .victims(victims)
                    .evidence(waiting.take(3).filter_map(|t| scene.proof().evidence_of(t, seq)))
                    .evidence(newest(scene, group, who))
                    .at(front.since_ns)
                    .advise(
                        Impact::Harmless,
                        format!("make every rank reach the call{}", drafting::at(place.as_ref())),
                    )
                    .build(),
            );
        }
    }
    findings
}

/// The last call that a rank made in a group, as cited evidence.
fn newest(scene: &Scene<'_>, group: &Group<'_>, who: RankOrSource) -> Option<Evidence> {
    let me = (0..group.tracks.len()).find(|m| node(group, *m) == Some(who))?;
    let track = group.tracks.get(me)?.as_ref()?;
    scene.proof().evidence_of(track, track.last_seq())
}

/// NCCL's own count shows one rank further on than all the others, who time out in a call that it never made.
fn run_ahead(scene: &Scene<'_>) -> Option<Finding> {
    let waits = scene.waits_of(GroupRecorder::Nccl)?;
    let node = suspects::ran_ahead(scene.ledger(), scene.conditions(), waits)?;
    if scene.has_parted(node) {
        return None;
    }
    let timed_out: Vec<_> =
        scene.conditions().all().filter(|(r, c)| Some(*r) != node.rank() && c.timed_out.is_some()).collect();
    let victims: RankSet = timed_out.iter().map(|(rank, _)| *rank).collect();
    let ahead = waits.fronts.iter().filter_map(|f| {
        let group = scene.ledger().groups().get(f.group)?;
        let track = group.tracks.get(*f.waiting.first()?)?.as_ref()?;
        let others =
            f.behind.iter().filter_map(|m| group.tracks.get(*m)?.as_ref()).map(|t| t.entered).max()?;
        let text = format!(
            "{} made {} calls on {}, the others at most {others}",
            drafting::who(&[node]),
            track.entered,
            group.name
        );
        Some(Evidence { cite: track.cite, text, kind: SourceKind::NcclLog })
    });
    let title =
        format!("{} went on without a call that {} in", drafting::who(&[node]), drafting::waiting(&victims));
    Draft::new(RULE.id, Cause::SkippedCollective, title)
        .weight(Weight::Stated)
        .confidence(Confidence::Medium)
        .culprits(drafting::culprits(scene, &[node], None))
        .victims(victims)
        .evidence(ahead.take(3))
        .evidence(timed_out.iter().take(2).filter_map(|(_, c)| c.timed_out.clone()))
        .advise(Impact::Harmless, "look for a branch around the collective in which the others timed out")
        .build()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const USUAL: &str = "ar:100 ar:50? ar:7? ag:3?";

    #[test]
    fn one_behind_ever_after() {
        StagedCase::job(3)
            .dumps(&[USUAL, "ar:100 ar:7@61? ag:3?", USUAL])
            .concludes(&RULE, "skipped-collective 1 at step:61, high");
    }

    #[test]
    fn stuck_at_once_in_what_follows_it_in_the_loop() {
        let usual = "ar:100@20 ar:50@30 ar:7@40 ar:100@20 ar:50@30?";
        StagedCase::job(3)
            .dumps(&[usual, "ar:100@20 ar:50@30 ar:7@40 ar:100@20 ar:7@40?", usual])
            .concludes(&RULE, "skipped-collective 1 at step:40, medium");
        // The same line with another size is a size.
        StagedCase::job(3)
            .dumps(&[usual, "ar:100@20 ar:50@30 ar:7@40 ar:100@20 ar:7@30?", usual])
            .silent(&RULE);
    }

    #[test]
    fn two_calls_left_out() {
        let usual = "ar:100 ar:50? ar:51? ar:7? ag:3?";
        let finding = StagedCase::job(3).dumps(&[usual, usual, "ar:100 ar:7? ag:3?"]).finding(&RULE);
        assert!(finding.title.contains("and 1 more"), "{}", finding.title);
    }

    #[test]
    fn calls_alike_and_ahead_elsewhere() {
        let job = StagedCase::job(3).group("dp", 0..3);
        job.dumps(&["dp/ar:8@30?", "dp/ar:8@30?", "ar:5?"])
            .concludes(&RULE, "skipped-collective 2 at step:30, medium");
    }

    /// Four ranks in a mesh of two by two, some steps, and the calls of each in the last one.
    fn mesh(last: [&str; 4]) -> [String; 4] {
        let steps = [
            "r0/ar:8 c0/ar:9 ar:5 ",
            "r0/ar:8 c1/ar:9 ar:5 ",
            "r1/ar:8 c0/ar:9 ar:5 ",
            "r1/ar:8 c1/ar:9 ar:5 ",
        ];
        std::array::from_fn(|r| format!("{}{}", steps[r].repeat(12), last[r]))
    }

    #[test]
    fn one_rank_breaks_its_own_pattern() {
        use crate::rules::calls::deadlock_cycle;
        let job = || {
            let job = StagedCase::job(4).group("r0", 0..2).group("r1", 2..4);
            job.group("c0", [0, 2]).group("c1", [1, 3])
        };
        let ringed = |last: [&str; 4]| {
            let scripts = mesh(last);
            job().rings(&[&scripts[0], &scripts[1], &scripts[2], &scripts[3]])
        };
        // Rank 0 left out its row: it met rank 2 in their column, and waits for all others at the end of the step.
        let skips = ["c0/ar:9 ar:5?", "r0/ar:8?", "r1/ar:8 c0/ar:9 ar:5?", "r1/ar:8 c1/ar:9?"];
        ringed(skips).concludes(&RULE, "skipped-collective 0, medium");
        ringed(skips).silent(&deadlock_cycle::RULE);
        let mesh = [("/srv/train.py", 125, "mesh")];
        ringed(skips).stands(1, &mesh).concludes(&RULE, "skipped-collective 0 at mesh:125, medium");
        // Two call the column first: each is in the first call that is out of order.
        let turned = ["r0/ar:8?", "c1/ar:9?", "c0/ar:9?", "r1/ar:8?"];
        ringed(turned).silent(&RULE);
        ringed(turned).expect(&deadlock_cycle::RULE, &["deadlock-cycle 0-3"]);
        // One rank alone does, and waits there: left out or turned round, it does not show.
        let alone = ["c0/ar:9?", "r0/ar:8?", "r1/ar:8?", "r1/ar:8?"];
        ringed(alone).silent(&RULE);
    }

    /// Ranks 0 and 3 share a group of their own beside that of all.
    #[test]
    fn its_own_history_says_more_than_who_waits_for_whom() {
        let ends = |last: &str| format!("{}{last}", "ends/ar:8 ar:1 ".repeat(12));
        let inner = "ar:1 ".repeat(12) + "ar:1?";
        let job = |first: &str, last: &str| {
            let job = StagedCase::job(4).group("default_pg", 0..4).group("ends", [0, 3]);
            job.rings(&[&ends(first), &inner, &inner, &ends(last)])
        };
        job("ends/ar:8?", "ar:1? ends/ar:8?").expect(&RULE, &["skipped-collective 3"]);
        job("ar:1? ends/ar:8?", "ends/ar:8?").expect(&RULE, &["skipped-collective 0"]);
    }

    #[test]
    fn ahead_by_the_count_of_nccl() {
        let logs = || {
            StagedCase::job(3).log(0, "node1", "ar:9*3").log(1, "node1", "ar:9*3").log(2, "node1", "ar:9*4")
        };
        let waiting = logs().timed_out(0, "ar:9", 3, 3).timed_out(1, "ar:9", 3, 3);
        waiting.concludes(&RULE, "skipped-collective 2, high");
        // Nobody waits: the logs end at different moments.
        logs().silent(&RULE);
    }

    #[test]
    fn a_changed_size_is_aligned_again() {
        StagedCase::job(3).dumps(&[USUAL, "ar:100 ar:49? ar:7? ag:3?", USUAL]).silent(&RULE);
    }

    #[test]
    fn the_others_stand_in_what_was_left_out() {
        let step = "ar:9 ar:9 ar:1 ";
        let usual = step.repeat(6) + "ar:9 ar:9 ar:1?";
        let job = |odd: &str| StagedCase::job(4).rings(&[&usual, &usual, &usual, &(step.repeat(6) + odd)]);
        job("ar:9 ar:9 ar:9? ar:9? ar:1?").expect(&RULE, &["skipped-collective 3"]);
        // What it calls is no part of the step: one too many.
        job("ar:9 ar:9 ar:5? ar:1?").silent(&RULE);
        job("ar:9 ar:9 ar:1?").silent(&RULE);
    }

    #[test]
    fn late_or_stuck() {
        StagedCase::job(3).dumps(&[USUAL, "ar:100", USUAL]).silent(&RULE);
        StagedCase::job(3).dumps(&["ar:9*4", "ar:9*3 ar:9?", "ar:9*3 ar:9?"]).silent(&RULE);
    }
}
