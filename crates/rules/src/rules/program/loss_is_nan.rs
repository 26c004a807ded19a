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
use ringleader_model::{Cause, Cite, Confidence, Impact, Rank, Weight};

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
/// Words of lines that show the values of a step.
const OF_STEPS: [&str; 5] = ["loss", "epoch", "step", "iter", "round "];
/// Citations of one finding.
const CITATIONS: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let stated: Vec<&Stated<'_>> = scene.stated().all().iter().filter(|s| is_loss(s)).collect();
    let n: u64 = stated.iter().map(|s| s.count()).sum();
    let lasts = n >= MANY || stated.iter().any(|s| s.utterances.iter().any(|u| is_last(scene, u.said.last)));
    let Some(first) = stated.iter().min_by_key(|s| (s.at_ns().is_none(), s.at_ns())).filter(|_| lasts) else {
        return Outcome::Clear;
    };
    let (title, culprits) = match first_rank(&stated) {
        Some((rank, step)) => (
            format!("the loss of rank {} is NaN first, in step {step}; it is NaN in {n} lines", rank.0),
            vec![scene.roster().culprit_rank(rank)],
        ),
        None => (format!("the loss is NaN in {n} lines"), Vec::new()),
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

/// The rank whose own loss is NaN in an earlier step than that of any other, and that step. Norms of gradients are those of all ranks
/// after the reduction, so they show nobody.
fn first_rank(stated: &[&Stated<'_>]) -> Option<(Rank, u64)> {
    let mut first: BTreeMap<Rank, u64> = BTreeMap::new();
    for utterance in stated.iter().flat_map(|s| &s.utterances) {
        let text = utterance.observation.text.to_ascii_lowercase();
        let (Some(rank), Some(step)) = (utterance.rank, step_of(&text).filter(|_| has_nan_loss(&text)))
        else {
            continue;
        };
        let known = first.entry(rank).or_insert(step);
        *known = (*known).min(step);
    }
    let (rank, step) = first.iter().min_by_key(|(_, step)| **step)?;
    let is_alone = first.iter().all(|(other, later)| other == rank || later > step);
    (first.len() > 1 && is_alone).then_some((*rank, *step))
}

/// `TotalLoss:nan`, `loss = nan`, `'loss': nan`.
fn has_nan_loss(lower: &str) -> bool {
    lower.match_indices("loss").any(|(at, name)| {
        let value = lower.get(at + name.len()..).unwrap_or_default();
        value.trim_start_matches([':', '=', ' ', '"', '\'']).starts_with("nan")
    })
}

/// The number behind `step` or `iter`: `Step:412/1843`, `iter 20`.
fn step_of(lower: &str) -> Option<u64> {
    ["step", "iteration", "iter"].iter().find_map(|name| {
        lower.match_indices(name).find_map(|(at, _)| {
            let rest = lower.get(at + name.len()..)?.trim_start_matches([':', '=', ' ', '[', '#', '"', '\'']);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.get(..end)?.parse().ok()
        })
    })
}

/// The value of a loss is not a number.
fn is_loss(stated: &Stated<'_>) -> bool {
    stated.utterances.iter().any(|u| u.said.form.is_nan)
        && stated.utterances.iter().any(|u| {
            let template = u.said.template.to_ascii_lowercase();
            OF_STEPS.iter().any(|word| template.contains(word))
        })
        && stated.row().is_none_or(|row| row.role() != ringleader_knowledge::message::Role::Harmless)
}

/// No step of the same source follows.
fn is_last(scene: &Scene<'_>, nan: Cite) -> bool {
    !scene.course().text().was_followed(nan)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cite, Fact, Progress, Said, SaidForm, SourceId, SourceKind, Who};

    use super::{RULE, has_nan_loss, step_of};
    use crate::trial::{StagedCase, Trial as _};

    fn cite(line: u32) -> Cite {
        Cite { source: SourceId(0), line, start: u64::from(line) * 100, end: u64::from(line) * 100 + 99 }
    }

    fn printed(last_nan: u32, last_step: u32) -> StagedCase {
        let said = Said {
            template: "step <n> loss nan".into(),
            count: 3,
            last: cite(last_nan),
            last_at: None,
            form: SaidForm { is_nan: true, ..SaidForm::default() },
            named: ringleader_model::Named::default(),
            rows: Vec::new(),
            is_read: false,
        };
        let progress =
            Progress { n_lines: 9, n_steps: 2, last: Some(cite(last_step)), ..Progress::default() };
        let stage = StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Said(Box::new(said)));
        stage.push(SourceKind::PlainText, Who::default(), Fact::Progress(progress))
    }

    #[test]
    fn steps_and_losses_of_lines() {
        for (line, step, is_nan) in [
            ("   | > step:412/1843  globalstep:412  totalloss:nan  gradnorm:nan", Some(412), true),
            ("step:412/1843 totalloss:0.34 gradnorm:nan", Some(412), false),
            ("{'loss': nan, 'epoch': 0.1}", None, true),
            ("iter 20 | loss = nan", Some(20), true),
            ("loss 99999999999999999999999 step 99999999999999999999999", None, false),
        ] {
            assert_eq!((step_of(line), has_nan_loss(line)), (step, is_nan), "{line}");
        }
    }

    /// The norm of the gradients is that of all ranks.
    #[test]
    fn the_rank_that_has_it_first() {
        let stage = |steps: [u32; 3]| {
            steps.iter().enumerate().fold(StagedCase::new(), |stage, (rank, step)| {
                let said = Said {
                    template: format!("step <n> loss nan norm nan {step}").into(),
                    count: 9,
                    last: cite(*step),
                    last_at: None,
                    form: SaidForm { is_nan: true, ..SaidForm::default() },
                    named: ringleader_model::Named::default(),
                    rows: Vec::new(),
                    is_read: false,
                };
                let who = Who::rank(rank as u32);
                let mut stage = stage.push(SourceKind::PlainText, who, Fact::Said(Box::new(said)));
                let printed = stage.case.observations.last_mut().expect("it was pushed");
                printed.text = format!("step {step} loss nan norm nan").into();
                stage
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
