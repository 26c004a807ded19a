//! # What it shows
//!
//! The loss that the program prints is NaN until the end of its output.
//!
//! # Why it happens
//!
//! A learning rate, a bad record, labels that are all ignored on one rank (0/0), an overflow in half precision, or wrong
//! data from a transfer. After a gradient reduction all ranks have it.
//!
//! # Evidence
//!
//! The first line with a loss that is not a number, and the last one: no finite loss follows.
//!
//! # What looks like it but is not
//!
//! A loss scaler that skips a step prints an overflow and continues with finite values. If the data of one rank alone
//! differ after a reduction, look for silent corruption.
//!
//! # What to do
//!
//! Find the rank and step where it began: compare losses and gradient norms of all ranks before the reduction.
//!
//! # References
//!
//! pytorch/pytorch torch/autograd/anomaly_mode.py.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::said::statements::Stated;
use ringleader_correlate::who::tools::shown;
use ringleader_model::{
    Apart, ApartBy, Cause, Cite, Confidence, Fact, Finding, Impact, Observation, Rank, SourceKind, Weight,
};

use crate::rule::{Draft, Outcome, Rule};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "loss-is-nan",
    title: "the loss became NaN",
    since: "0.2",
    doc: include_str!("loss_is_nan.rs"),
    check,
};

/// Lines with a NaN that no step that is passed over explains.
const MANY: u64 = 10;
/// Citations of one finding.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let stated: Vec<&Stated<'_>> = scene.stated().all().iter().filter(|s| is_loss(s)).collect();
    let n: u64 = stated.iter().map(|s| s.count()).sum();
    let lasts = n >= MANY || stated.iter().any(|s| s.utterances.iter().any(|u| is_last(scene, u.said.last)));
    let Some(first) = stated.iter().min_by_key(|s| (s.at_ns().is_none(), s.at_ns())).filter(|_| lasts) else {
        return Outcome::from_findings(by_table(scene).into_iter().collect());
    };
    let (title, culprits) = if let Some((rank, step)) = first_rank(&stated) {
        (
            format!("the loss of rank {} is NaN first, in step {step}; it is NaN in {n} lines", rank.0),
            vec![scene.roster().culprit_rank(rank)],
        )
    } else {
        let ranks = told_apart(scene).map(|(_, apart)| apart.ranks.clone()).or_else(|| named_at_end(&stated));
        let culprits = ranks.into_iter().flatten().map(|rank| scene.roster().culprit_rank(rank));
        (format!("the loss is NaN in {n} lines"), culprits.collect())
    };
    let finding = Draft::new(RULE.id, Cause::NanLoss, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .at(first.at_ns())
        .evidence(stated.iter().flat_map(|s| s.evidence(CITATIONS)).take(CITATIONS))
        .advise_command(
            Impact::Harmless,
            "find the operation that produced the first NaN",
            "torch.autograd.set_detect_anomaly(True)",
        )
        .advise(Impact::Harmless, "compare losses and gradient norms of all ranks before the reduction")
        .build();
    Outcome::from_findings(finding.into_iter().collect())
}

/// A table that compares the ranks: the values of one are not numbers.
fn told_apart<'a>(scene: &Scene<'a>) -> Option<(&'a Observation, &'a Apart)> {
    scene.case().observations.iter().find_map(|o| match &o.fact {
        Fact::Apart(apart) if apart.by == ApartBy::NotANumber => Some((o, &**apart)),
        _ => None,
    })
}

fn by_table(scene: &Scene<'_>) -> Option<Finding> {
    let (observation, apart) = told_apart(scene)?;
    let rank = apart.ranks.first()?;
    Draft::new(RULE.id, Cause::NanLoss, format!("the values of rank {} alone are NaN", rank.0))
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(vec![scene.roster().culprit_rank(*rank)])
        .evidence([shown(observation, None, SourceKind::PlainText, "")])
        .advise(
            Impact::Harmless,
            "look at the data and the gradients of that rank in the first step with a NaN",
        )
        .advise(Impact::Harmless, "decide over all ranks whether a step is skipped: all-reduce the flag")
        .build()
}

/// The one rank that lines with a NaN name at their end: `Loss is NaN (local_rank 5)`.
fn named_at_end(stated: &[&Stated<'_>]) -> Option<Vec<Rank>> {
    let nan = stated.iter().flat_map(|s| &s.utterances).filter_map(|u| u.said.form.nan);
    let mut ranks: Vec<Rank> = nan.filter_map(|nan| nan.at_end).collect();
    ranks.dedup();
    (ranks.len() == 1).then_some(ranks)
}

/// The rank whose own loss is NaN in an earlier step than that of any other, and that step. Norms of gradients are those of all ranks
/// after the reduction, so they show nobody.
fn first_rank(stated: &[&Stated<'_>]) -> Option<(Rank, u64)> {
    let mut first: BTreeMap<Rank, u64> = BTreeMap::new();
    for utterance in stated.iter().flat_map(|s| &s.utterances) {
        let nan = utterance.said.form.nan.filter(|nan| nan.is_loss);
        let (Some(rank), Some(step)) = (utterance.rank, nan.and_then(|nan| nan.step)) else { continue };
        let known = first.entry(rank).or_insert(step);
        *known = (*known).min(step);
    }
    let (rank, step) = first.iter().min_by_key(|(_, step)| **step)?;
    let is_alone = first.iter().all(|(other, later)| other == rank || later > step);
    (first.len() > 1 && is_alone).then_some((*rank, *step))
}

/// The value of a loss is not a number.
fn is_loss(stated: &Stated<'_>) -> bool {
    stated.utterances.iter().any(|u| u.said.form.nan.is_some_and(|nan| nan.is_of_step))
        && stated.row().is_none_or(|row| row.role() != ringleader_knowledge::message::Role::Harmless)
}

/// No step of the same source follows.
fn is_last(scene: &Scene<'_>, nan: Cite) -> bool {
    !scene.course().text().was_followed(nan)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{
        Apart, ApartBy, Cite, Fact, NanLine, Progress, Rank, Said, SaidForm, SourceId, SourceKind, Who,
    };

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn cite(line: u32) -> Cite {
        Cite { source: SourceId(0), line, start: u64::from(line) * 100, end: u64::from(line) * 100 + 99 }
    }

    fn said(template: &str, count: u32, last: u32, nan: NanLine) -> Fact {
        Fact::Said(Box::new(Said {
            template: template.into(),
            count,
            last: cite(last),
            last_at: None,
            form: SaidForm { nan: Some(nan), ..SaidForm::default() },
            named: ringleader_model::Named::default(),
            rows: Vec::new(),
            is_read: false,
        }))
    }

    fn of_step() -> NanLine {
        NanLine { is_of_step: true, ..NanLine::default() }
    }

    fn printed_as(nan: NanLine, last_nan: u32, last_step: u32) -> StagedCase {
        let progress =
            Progress { n_lines: 9, n_steps: 2, last: Some(cite(last_step)), ..Progress::default() };
        let said = said("step <n> loss nan", 3, last_nan, nan);
        let stage = StagedCase::new().push(SourceKind::PlainText, Who::default(), said);
        stage.push(SourceKind::PlainText, Who::default(), Fact::Progress(progress))
    }

    fn printed(last_nan: u32, last_step: u32) -> StagedCase {
        printed_as(of_step(), last_nan, last_step)
    }

    #[test]
    fn the_rank_at_the_end_of_a_line_with_a_nan() {
        let named = |at_end| {
            let finding = printed_as(NanLine { at_end, ..of_step() }, 30, 20).finding(&RULE);
            finding.culprits.first().and_then(|culprit| culprit.rank)
        };
        assert_eq!(named(Some(Rank(5))), Some(Rank(5)));
        assert_eq!(named(None), None);
    }

    #[test]
    fn a_value_of_no_step() {
        printed_as(NanLine::default(), 30, 20).silent(&RULE);
    }

    #[test]
    fn a_table_that_sets_one_rank_apart() {
        let apart = |by| Apart { by, ranks: vec![Rank(5)], among: (0..8).map(Rank).collect() };
        let stage = |by| {
            StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Apart(Box::new(apart(by))))
        };
        let finding = stage(ApartBy::NotANumber).finding(&RULE);
        assert_eq!(finding.culprits[0].rank, Some(Rank(5)));
        stage(ApartBy::Least).silent(&RULE);
    }

    /// The norm of the gradients is that of all ranks.
    #[test]
    fn the_rank_that_has_it_first() {
        let stage = |steps: [u32; 3]| {
            steps.iter().enumerate().fold(StagedCase::new(), |stage, (rank, step)| {
                let nan = NanLine { is_loss: true, step: Some(u64::from(*step)), ..of_step() };
                let fact = said(&format!("step <n> loss nan norm nan {step}"), 9, *step, nan);
                stage.push(SourceKind::PlainText, Who::rank(rank as u32), fact)
            })
        };
        stage([13, 12, 13]).expect(&RULE, &["nan-loss 1"]);
        stage([12, 12, 13]).expect(&RULE, &["nan-loss"]);
    }

    /// What ends a process without a word of its own is no number.
    #[test]
    fn a_rank_that_is_gone_comes_first() {
        let job = StagedCase::job(3).rings(&["ar:9*12 ar:9?", "ar:9*12 ar:9?", "ar:9*12 ar:9?"]);
        let nan = |mut job: StagedCase| {
            job.case.observations.extend(printed(9, 9).case.observations);
            crate::diagnose(&job.case).cause
        };
        assert_eq!(nan(job.ring_gone(1)), ringleader_model::Cause::PeerProcessDied);
    }

    #[test]
    fn nothing_finite_follows() {
        printed(9, 9).expect(&RULE, &["nan-loss"]);
    }

    #[test]
    fn it_recovered() {
        printed(9, 30).silent(&RULE);
    }
}
