//! # What it shows
//!
//! In a table that compares ranks, GPUs or hosts one row is much slower than all others, which agree.
//!
//! # Why it happens
//!
//! A GPU that is throttled, a slower disk, a link of lower speed, other work on the same node: in a synchronous job all
//! others wait for this one.
//!
//! # Evidence
//!
//! The row of the slow one, and the number of the others. Only columns of time, speed and waiting count, and only where
//! at least three others are within a quarter of each other.
//!
//! # What looks like it but is not
//!
//! The rank that waits longest is fastest: where one waits least and computes longest, the computing counts. Memory,
//! losses and tokens differ between the ranks of healthy jobs.
//!
//! # What to do
//!
//! Look at clocks, temperature, links and storage of that one beside the others.
//!
//! # References
//!
//! pytorch/pytorch torch/profiler; NVIDIA DCGM, diagnostics.

use ringleader_correlate::Scene;
use ringleader_correlate::said::CITED_CHARS;
use ringleader_model::{
    Category, Cause, Confidence, Culprit, Evidence, Fact, Impact, Outlier, OutlierKey, Severity, SourceKind,
    Weight,
};

use crate::rule::{Draft, Outcome, Rule};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "one-differs",
    title: "one of several is slow",
    since: "0.3",
    doc: include_str!("one_differs.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Outlier(outlier) => Some((o, &**outlier)),
        _ => None,
    });
    let Some((observation, outlier)) = seen.max_by(|a, b| factor(a.1).total_cmp(&factor(b.1))) else {
        return Outcome::Clear;
    };
    let (who, culprit) = match &outlier.key {
        OutlierKey::Rank(rank) => (format!("rank {}", rank.0), scene.roster().culprit_rank(*rank)),
        OutlierKey::Gpu(gpu) => {
            let local = scene.roster().members.iter().find(|m| m.rank.is_some_and(|r| r.0 == *gpu));
            let culprit = local.and_then(|m| m.rank).map(|r| scene.roster().culprit_rank(r));
            (format!("GPU {gpu}"), culprit.unwrap_or_default())
        }
        OutlierKey::Host(host) => {
            (format!("{host}"), Culprit { host: Some(host.clone()), ..Culprit::default() })
        }
    };
    let title = format!(
        "{who} is slower than the {} others: {} against {}",
        outlier.n_rows.saturating_sub(1),
        outlier.value,
        outlier.others
    );
    let culprits = Some(culprit).filter(|c| *c != Culprit::default());
    let draft = Draft::new(RULE.id, Cause::Straggler, title)
        .category(Category::Performance)
        .severity(Severity::Warning)
        .weight(Weight::Symptom)
        .confidence(Confidence::Low)
        .at_most(Confidence::Low)
        .culprits(culprits)
        .evidence([Evidence {
            cite: observation.cite,
            text: observation.text.chars().take(CITED_CHARS).collect(),
            kind: SourceKind::PlainText,
        }])
        .advise_command(
            Impact::Harmless,
            "compare clocks, power, temperature and links of all GPUs while they work",
            "nvidia-smi --query-gpu=index,clocks.sm,power.draw,temperature.gpu,pcie.link.gen.current,pcie.link.width.current --format=csv",
        );
    Outcome::from_drafts([draft])
}

fn factor(outlier: &Outlier) -> f64 {
    let ratio = outlier.value / outlier.others;
    ratio.max(1.0 / ratio)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Outlier, OutlierKey, Rank, SourceKind, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn one_of_eight() {
        let outlier = Outlier {
            key: OutlierKey::Rank(Rank(3)),
            column: "compute s".into(),
            value: 3.2,
            others: 1.1,
            n_rows: 8,
        };
        let stage =
            StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Outlier(Box::new(outlier)));
        stage.expect(&RULE, &["straggler 3"]);
        StagedCase::new().silent(&RULE);
    }
}
