//! A rank that is late, and whose main thread is elsewhere in the program in more samples than those of its peers.

use ringleader_model::{
    Cause, Confidence, Evidence, Fact, Finding, Impact, Rank, Severity, SourceKind, WatchEvent, Weight,
};

use super::RULE;
use super::rings::MIN_LATE;
use crate::drafting;
use crate::rule::Draft;
use ringleader_correlate::Scene;
use ringleader_correlate::track::{GroupRecorder, RankOrSource};
use ringleader_correlate::waits::lateness;

/// Share of the others' time, percent, that a rank costs at least: less is not worth a word.
const LEAST_PERCENT: u32 = 8;
/// And that it costs for certain: what only rank 0 does, such as printing, costs less in healthy jobs.
const SURE_PERCENT: u32 = 12;
/// Of its samples a rank is in so many more than its peers at one place where less is certain, too.
const SURE_APART: f64 = 0.3;

/// A rank that is late by some measure.
struct SampledLate {
    rank: Rank,
    percent: Option<u32>,
    words: String,
    evidence: Option<Evidence>,
}

/// One finding for each late rank that the samples set apart.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for late in watched(scene).into_iter().chain(by_rings(scene)) {
        let is_known = found.iter().any(|f| f.culprits.iter().any(|c| c.rank == Some(late.rank)));
        if !is_known {
            found.extend(finding(scene, late));
        }
    }
    found
}

fn finding(scene: &Scene<'_>, late: SampledLate) -> Option<Finding> {
    let apart = scene.samples().apart(late.rank)?;
    let node = RankOrSource::Rank(late.rank);
    let is_clear = apart.share - apart.others >= SURE_APART;
    let is_sure = late.percent.is_some_and(|percent| percent >= SURE_PERCENT || is_clear);
    let most = if is_sure { Confidence::High } else { Confidence::Medium };
    let doing = apart.doing.map_or_else(String::new, |doing| format!(" {doing}"));
    Draft::new(
        RULE.id,
        Cause::Straggler,
        format!(
            "{} is{doing} below {} ({}:{}) in {:.0} % of the samples, its peers in {:.0} %; {}",
            drafting::who(&[node]),
            apart.frame.function,
            apart.frame.file,
            apart.frame.line,
            apart.share * 100.0,
            apart.others * 100.0,
            late.words
        ),
    )
    .severity(Severity::Warning)
    .weight(Weight::Derived)
    .confidence(most)
    .at_most(most)
    .culprits(drafting::culprits(scene, &[node], Some(&apart.frame)))
    .evidence(apart.evidence)
    .evidence(late.evidence)
    .advise(Impact::Harmless, "compare what that line does on this rank with what it does on its peers")
    .build()
}

/// The newest word of a watcher on a rank that is persistently late.
fn watched(scene: &Scene<'_>) -> Option<SampledLate> {
    let newest = scene.case().observations.iter().rev().find_map(|observation| match &observation.fact {
        Fact::Watch(WatchEvent::Late(late)) => Some((observation, late)),
        _ => None,
    });
    let (observation, late) = newest?;
    late.cost_percent.is_none_or(|cost| cost >= LEAST_PERCENT).then(|| SampledLate {
        rank: late.rank,
        percent: late.cost_percent,
        words: late.text.to_string(),
        evidence: Some(Evidence {
            cite: observation.cite,
            text: observation.text.to_string(),
            kind: SourceKind::Watch,
        }),
    })
}

/// The rank of each group that costs its peers most, by their rings.
fn by_rings(scene: &Scene<'_>) -> Vec<SampledLate> {
    let groups = scene.ledger().groups().iter().filter(|g| g.view == GroupRecorder::Ring);
    let late = |group| {
        let late = lateness::latest(scene.ledger(), group)?;
        let percent = late.lost_ns.saturating_mul(100) / late.span_ns.max(1);
        let is_most = late.lost_ns.saturating_mul(2) > late.all_lost_ns;
        (late.n_late >= MIN_LATE && is_most && percent >= i64::from(LEAST_PERCENT)).then_some(())?;
        let rank = group.rank(late.member)?;
        let words = format!("its peers lose {percent} % of their time to it");
        Some(SampledLate { rank, percent: u32::try_from(percent).ok(), words, evidence: None })
    };
    groups.filter_map(late).collect()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Rank, SourceKind, WatchEvent, WatchedLate, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    type Samples<'a> = &'a [(u32, &'a [(&'a str, u32, &'a str)])];

    const TRAIN: (&str, u32, &str) = ("train.py", 90, "<module>");
    const WAITS: (&str, u32, &str) = ("torch/cuda/__init__.py", 1162, "synchronize");
    const READS: Samples<'static> = &[(20, &[("train.py", 33, "read_row"), TRAIN]), (20, &[WAITS, TRAIN])];
    const SYNCS: Samples<'static> = &[(40, &[WAITS, TRAIN])];

    /// Rank 1 is late, which costs this share, percent.
    fn late(stage: StagedCase, cost: u32) -> StagedCase {
        let text = "the others wait for rank 1".into();
        let late = WatchedLate { rank: Rank(1), is_sure: false, cost_percent: Some(cost), text };
        stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Late(Box::new(late))))
    }

    #[test]
    fn late_and_elsewhere_in_the_program() {
        let job = || StagedCase::job(2).sampled(0, SYNCS).sampled(1, READS);
        let found = late(job(), 15).finding(&RULE);
        assert!(found.title.contains("read_row (train.py:33) in 50 %"), "{}", found.title);
        late(job(), 15).concludes(&RULE, "straggler 1 at read_row:33, high");
        late(job(), 10).concludes(&RULE, "straggler 1 at read_row:33, high");
        // Less often there, what it costs decides.
        let few: Samples<'static> = &[(8, &[("train.py", 33, "read_row"), TRAIN]), (32, &[WAITS, TRAIN])];
        let rarely = || StagedCase::job(2).sampled(0, SYNCS).sampled(1, few);
        late(rarely(), 12).concludes(&RULE, "straggler 1 at read_row:33, high");
        late(rarely(), 10).concludes(&RULE, "straggler 1 at read_row:33, medium");
        // It costs nothing; nobody is late; the other one is elsewhere.
        late(job(), 5).silent(&RULE);
        job().silent(&RULE);
        late(StagedCase::job(2).sampled(0, READS).sampled(1, SYNCS), 15).silent(&RULE);
        late(StagedCase::job(2).sampled(0, READS).sampled(1, READS), 15).silent(&RULE);
    }
}
