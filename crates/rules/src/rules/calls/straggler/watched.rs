//! A rank that is late, by the word of a watcher that saw all of its collectives.

use ringleader_knowledge::remedy;
use ringleader_model::{
    Cause, Confidence, Evidence, Fact, Finding, Impact, Severity, SourceKind, WatchEvent, Weight,
};

use super::RULE;
use crate::drafting;
use crate::rule::Draft;
use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;

/// One finding: a rank that is late later makes the word on another one old.
pub(super) fn findings(scene: &Scene<'_>) -> Option<Finding> {
    let newest = scene.case().observations.iter().rev().find_map(|observation| match &observation.fact {
        Fact::Watch(WatchEvent::Late(late)) => Some((observation, late)),
        _ => None,
    });
    let (observation, late) = newest.filter(|(_, late)| late.is_sure)?;
    Draft::new(RULE.id, Cause::Straggler, late.text.to_string())
        .severity(Severity::Warning)
        .weight(Weight::Derived)
        .confidence(Confidence::High)
        .culprits(drafting::culprits(scene, &[RankOrSource::Rank(late.rank)], None))
        .evidence([Evidence {
            cite: observation.cite,
            text: observation.text.to_string(),
            kind: SourceKind::Watch,
        }])
        .advise_command(
            Impact::Harmless,
            "compare its GPU with the others: clocks, power, throttle reasons",
            remedy::SHOW_CLOCKS,
        )
        .advise(Impact::Harmless, "compare its data path and its amount of work with its peers'")
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Rank, SourceKind, WatchEvent, WatchedLate, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn the_newest_word_counts() {
        let told = |stage: StagedCase, rank: u32| {
            let text = format!("rank {rank} comes 80 ms late into 90 % of the collectives").into();
            let late = WatchedLate { rank: Rank(rank), is_sure: true, cost_percent: Some(40), text };
            stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Late(Box::new(late))))
        };
        told(StagedCase::job(4), 2).concludes(&RULE, "straggler 2, high");
        told(told(StagedCase::job(4), 2), 1).concludes(&RULE, "straggler 1, high");
    }
}
