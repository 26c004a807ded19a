//! # What it shows
//! A running job was sampled twice, and no rank made progress in between. Most ranks are at one place, one or a few are
//! elsewhere.
//!
//! # Why it happens
//! Those elsewhere have not reached the call in which the others wait: a data loader without data, a lock, storage, a
//! sleep, a branch of their own.
//!
//! # Evidence
//! Two stacks of each rank, a few seconds apart; no operations were recorded.
//!
//! # What looks like it but is not
//! A rank that waits in a call of its own, as do the others in theirs; a job that all waits for requests; a step that
//! takes longer than the time between the samples.
//!
//! # What to do
//! Look at the place where the odd ranks are; with the plugin loaded the operations are visible too.
//!
//! # References
//! py-spy; proc(5).

use ringleader_correlate::Scene;
use ringleader_correlate::process::looks::ProcessLook;
use ringleader_model::{Cause, Confidence, Impact, Need, RankSet, Weight};

use crate::drafting;
use crate::health;
use crate::rule::{Draft, Outcome, Rule};

/// The rule.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "two-looks",
    title: "a rank is elsewhere while the others wait",
    since: "0.3",
    doc: include_str!("two_looks.rs"),
    check,
};

/// The command that follows the job, by the pid of one of its ranks: that of the launcher is not known.
fn watching(ranks: &[ProcessLook]) -> String {
    ranks.first().map_or_else(
        || "ringleader watch".to_owned(),
        |look| format!("ringleader watch --pid {}", look.pid.0),
    )
}

fn check(scene: &Scene<'_>) -> Outcome {
    let looks = scene.looks();
    if !(looks.all_stand() || looks.may_go_on()) || !health::is_sight_alone(scene) {
        return Outcome::Clear;
    }
    let groups = looks.by_place();
    if looks.may_go_on() {
        return Outcome::Undecided(vec![Need {
            question: format!(
                "all ranks slept several times within {:.0} s and were in one place at both ends: {}; does the job make steps?",
                looks.apart_s(),
                places(&groups)
            ),
            command: watching(looks.ranks()),
            ..Need::default()
        }]);
    }
    let n_all = looks.ranks().len();
    let waits = |group: &Vec<&ProcessLook>| group.iter().all(|look| look.waits);
    let most = groups.last().filter(|group| group.len() * 2 > n_all);
    let waiting: Vec<&ProcessLook> = groups.iter().filter(|group| waits(group)).flatten().copied().collect();
    let mut others: Vec<&ProcessLook> = match most {
        Some(most) => {
            let place = most.first().and_then(|look| look.place.as_ref());
            looks.ranks().iter().filter(|look| look.place.as_ref() != place && !look.waits).collect()
        }
        // Without a majority it is those that do not wait for others.
        None => looks.ranks().iter().filter(|look| !look.waits && !waiting.is_empty()).collect(),
    };
    // Where a stopped process stands, it was stopped: that is its own finding.
    let n_apart = others.len();
    others.retain(|look| !look.is_stopped());
    if others.is_empty() && n_apart > 0 {
        return Outcome::Clear;
    }
    if others.is_empty() || others.len() == n_all || others.iter().all(|look| look.place.is_none()) {
        return Outcome::Undecided(vec![Need {
            question: format!(
                "no rank made progress within {:.0} s: {}; does any a minute later?",
                looks.apart_s(),
                places(&groups)
            ),
            command: watching(looks.ranks()),
            ..Need::default()
        }]);
    }
    let is_sure = most.is_some_and(waits) || (most.is_none() && others.len() == 1);
    let ranks: RankSet = others.iter().map(|look| look.rank).collect();
    let victims: RankSet =
        looks.ranks().iter().map(|look| look.rank).filter(|rank| !ranks.contains(*rank)).collect();
    let Some(first) = others.first() else { return Outcome::Clear };
    let what = first.doing.as_ref().map_or_else(String::new, |doing| format!(", {doing}"));
    let title = format!(
        "{} elsewhere{what}{}; {}{}, and no rank made progress within {:.0} s",
        standing(&ranks),
        drafting::at(first.place.as_ref()),
        drafting::waiting(&victims),
        drafting::at(most.and_then(|group| group.first()?.place.as_ref())),
        looks.apart_s(),
    );
    let mut draft = Draft::new(RULE.id, Cause::StuckOutsideCollective, title)
        .weight(Weight::Derived)
        .confidence(if is_sure { Confidence::Medium } else { Confidence::Low })
        .victims(victims);
    for look in &others {
        let mut culprit = scene.roster().culprit_rank(look.rank);
        culprit.place.clone_from(&look.place);
        let stand = scene.condition(look.rank).and_then(|c| c.stand.as_ref());
        draft = draft.culprit(culprit).evidence(stand.map(|stand| stand.evidence.clone()));
    }
    let pid = drafting::pid_of(scene, first.rank);
    let found = draft
        .advise_made(
            Impact::Harmless,
            "take the stacks again: the same place means stuck, another means slow",
            Some(format!("ringleader diagnose --live --pid {pid}")),
        )
        .build();
    Outcome::from_findings(found.into_iter().collect())
}

/// Where they are, in words.
fn places(groups: &[Vec<&ProcessLook>]) -> String {
    let words = groups.iter().take(4).map(|group| {
        let ranks: RankSet = group.iter().map(|look| look.rank).collect();
        let place = group.first().and_then(|look| look.place.as_ref());
        let place =
            place.map_or_else(|| " at a place that no stack shows".to_owned(), |p| drafting::at(Some(p)));
        format!("{}{place}", standing(&ranks))
    });
    words.collect::<Vec<_>>().join("; ")
}

/// `rank 3 is`, `ranks 0-2 are`.
fn standing(set: &RankSet) -> String {
    format!("{} {}", drafting::ranks(set), if set.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, SecondLook};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const LOAD: (&str, u32, &str) = ("/srv/train.py", 4, "load_batch");
    const REDUCE: (&str, u32, &str) = ("/srv/train.py", 6, "all_reduce");
    const GATHER: (&str, u32, &str) =
        ("/opt/site-packages/torch/distributed/distributed_c10d.py", 99, "all_gather");

    /// Two ranks that were looked at twice, at these places.
    fn job(places: [&[(&str, u32, &str)]; 2], again: [&[(&str, u32, &str)]; 2]) -> StagedCase {
        let mut stage = StagedCase::new().seen(1_000, "S S", |_, picked| {
            let look = SecondLook { after_ms: 3_000, state: "S".into(), ..SecondLook::default() };
            picked.again = Some(look);
        });
        for look in [places, again] {
            for (rank, frames) in (0..).zip(look) {
                stage = stage.stands(rank, frames);
            }
        }
        stage
    }

    #[test]
    fn the_one_that_does_not_wait_for_others() {
        let stuck = || job([&[LOAD], &[GATHER, REDUCE]], [&[LOAD], &[GATHER, REDUCE]]);
        stuck().concludes(&RULE, "stuck-outside-collective 0 at load_batch:4, medium");
    }

    /// A job that makes a step a second: both looks meet the sleep of its slow rank.
    #[test]
    fn ranks_that_all_woke_in_between_may_go_on() {
        let woke = |sleeps: [u64; 2]| {
            let mut stage = StagedCase::new().seen(1_000, "S S", move |rank, picked| {
                let n_sleeps = sleeps.get(rank as usize).copied();
                let state = "S".into();
                picked.again = Some(SecondLook { after_ms: 4_000, state, n_sleeps, ..SecondLook::default() });
            });
            for _ in 0..2 {
                stage = stage.stands(0, &[LOAD]).stands(1, &[GATHER, REDUCE]);
            }
            stage
        };
        // Neither hung nor healthy for certain.
        assert_eq!(crate::diagnose(&woke([4, 9]).case).cause, Cause::Undecided);
        // Only one of them polls.
        woke([40, 0]).concludes(&RULE, "stuck-outside-collective 0 at load_batch:4, medium");
    }

    #[test]
    fn a_stopped_one_is_not_elsewhere() {
        let stopped = |state: &'static str| {
            StagedCase::new()
                .seen(1_000, "S S", move |rank, picked| {
                    let state = if rank == 0 { state } else { "S" };
                    let look = SecondLook { after_ms: 3_000, state: state.into(), ..SecondLook::default() };
                    picked.again = Some(look);
                })
                .stands(0, &[LOAD])
                .stands(1, &[GATHER, REDUCE])
                .stands(0, &[LOAD])
                .stands(1, &[GATHER, REDUCE])
        };
        stopped("S").concludes(&RULE, "stuck-outside-collective 0 at load_batch:4, medium");
        stopped("T").silent(&RULE);
    }

    #[test]
    fn two_places_of_which_neither_is_known_to_wait_are_both_told() {
        let verdict = crate::diagnose(&job([&[LOAD], &[REDUCE]], [&[LOAD], &[REDUCE]]).case);
        assert_eq!(verdict.cause, Cause::Undecided, "{verdict:#?}");
        assert!(
            verdict
                .needs
                .iter()
                .any(|need| { need.question.contains("load_batch") && need.question.contains("all_reduce") })
        );
        assert_eq!(verdict.ranks.len(), 2);
    }

    #[test]
    fn who_goes_on_is_well() {
        let moving = job([&[LOAD], &[GATHER, REDUCE]], [&[REDUCE], &[GATHER, REDUCE]]);
        moving.silent(&RULE);
        assert_eq!(crate::diagnose(&moving.case).cause, Cause::None);
    }
}
